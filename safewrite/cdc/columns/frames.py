"""Makes the frame of a table's changes, under a schema of all rows and schemas of the batch, never of the first one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.column_fit import ColumnFit, ColumnTypes, FittedColumns
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.change import DeadLetter, Op
from safewrite.cdc.rows.project_columns import Projected
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows

OP = "_cdc_op"
"""The column of a frame that says what its row does; it is not in the table."""
LACKS = "_cdc_lacks"
"""The column of a frame that names what its row lacks; it is not in the table."""
LISTS = pa.list_(pa.string())


@dataclass(frozen=True)
class ChangeFrame:
    """Rows for ``apply_changes``, the columns that the table does not have yet, and what does not fit."""

    data: pa.Table
    added: tuple[pa.Field, ...]
    dead: tuple[DeadLetter, ...]
    changes: int
    """Changes of the source in it; a change of a key is one, and two rows."""
    lacking: bool = False
    """Whether a row lacks a value that the table is to put in."""
    wider: tuple[pa.Field, ...] = ()
    """Columns of the table that have to be wider for some of what does not fit, as they then are."""


def frame_of(
    table: TargetTable, made: ChangeRows, found: sw.Table | None, refused: Mapping[str, str] | None = None
) -> ChangeFrame:
    """The frame of rows.

    Args:
        found: the table; None before it is made.
        refused: columns that the table cannot have, and why: rows with a value there do not land.
    """
    fit = ColumnFit.of(table, ColumnTypes.of(made), found, made.keys, refused)
    rows = made.rows
    first = {at for at, row in enumerate(rows) if row.is_first}
    of_rows = framed_rows(
        fit, [row.values for row in rows], [row.lacks for row in rows], [row.op.value for row in rows],
        marks=table.deleted_column, first=first,
    )  # fmt: skip
    gone = _letters_of_rows(table, rows, of_rows.dead)
    kept = np.array([id(row.change) not in gone for row in rows], bool)
    data, letters, narrow = [of_rows.data.filter(pa.array(kept))], [*gone.values()], of_rows.narrow
    changes = len({id(row.change) for row in rows} - {*gone})
    for one in made.projected:
        part = framed_columns(fit, one.columns, one.operations)
        data.append(
            part.data.filter(pa.array(_without(len(one.batch), part.dead))) if part.dead else part.data
        )
        letters += _letters_of_columns(table, one, part.dead)
        narrow |= part.narrow
        changes += len(one.batch) - len(part.dead)
    return ChangeFrame(
        pa.concat_tables(data),
        fit.added(None if found is None else found.schema),
        tuple(letters),
        changes,
        bool(pc.any(pc.greater(pc.list_value_length(of_rows.data.column(LACKS)), 0)).as_py()),
        tuple(one for name, one in fit.wider.items() if name in narrow),
    )


class FramedPart(NamedTuple):
    """Some changes under the types of their table, those of them that do not fit, and columns that have to be wider."""

    data: pa.Table
    dead: Mapping[int, str]
    narrow: frozenset[str]


def framed_rows(
    fit: ColumnFit,
    values: list[dict[str, Any]],
    lacks: list[Sequence[str]],
    operations: Sequence[str],
    *,
    marks: str | None,
    first: Collection[int] = (),
) -> FramedPart:
    """Changes that were made to rows one by one.

    Args:
        marks: the column that marks deleted rows, where these stay: a delete takes what it does not have from the row before it, unless it is
            among the ``first``.
    """
    if marks is not None:
        there = [name for name in fit.types if name not in fit.clashes]
        for at, operation in enumerate(operations):
            if operation == Op.DELETE.value:
                values[at] = values[at] | {marks: True}
                if at not in first:
                    lacks[at] = [name for name in there if name not in values[at]]
        operations = [Op.UPSERT.value] * len(operations)
    is_row = np.array([operation == Op.UPSERT.value for operation in operations], bool)
    arrays, dead, narrow = fit.of_rows(values, lacks, is_row)
    arrays[OP], arrays[LACKS] = pa.array(operations, pa.string()), pa.array(lacks, LISTS)
    return FramedPart(pa.table(arrays), dead, narrow)


def framed_columns(fit: ColumnFit, columns: Mapping[str, Any], operations: Any) -> FramedPart:
    """Changes that were read by columns; they lack nothing."""
    length = len(operations)
    arrays, dead, narrow = fit.columns(columns, pc.equal(operations, "u").to_numpy(), length)
    arrays[OP], arrays[LACKS] = operations, pa.nulls(length, LISTS)
    return FramedPart(pa.table(arrays), dead, narrow)


def _letters_of_rows(
    table: TargetTable, rows: Sequence[ChangeRow], misfits: Mapping[int, str]
) -> dict[int, DeadLetter]:
    """The letters of changes that do not fit, by the ids of these."""
    dead: dict[int, DeadLetter] = {}
    for place, why in misfits.items():
        change = rows[place].change
        dead.setdefault(id(change), DeadLetter(change.record, why, table.name))
    return dead


def _letters_of_columns(table: TargetTable, part: Projected, misfits: Mapping[int, str]) -> list[DeadLetter]:
    places = part.batch.places()
    return [DeadLetter(part.batch.records[int(places[at])], why, table.name) for at, why in misfits.items()]


def _without(length: int, gone: Iterable[int]) -> Any:
    """Which of so many changes are left, as booleans of NumPy."""
    kept = np.ones(length, bool)
    kept[list(gone)] = False
    return kept


# --- in the task that reads them -------------------------------------------------------------------------
def take_misfits(
    table: TargetTable, made: ChangeRows, fit: ColumnFit, *, is_whole: bool
) -> tuple[list[DeadLetter], frozenset[str]]:
    """Take changes that do not fit out of rows, also where columns are as wide as they may be: their letters, and columns that have to be.

    What was projected gets the types of the fit.  ``is_whole``: whether ``fit`` is of all columns.
    """
    rows = [row for row in made.rows if row.op is not Op.TRUNCATE]
    is_row = np.array([row.op is Op.UPSERT for row in rows], bool)
    found = fit.of_rows([row.values for row in rows], [row.lacks for row in rows], is_row, is_whole=is_whole)
    fitted = [_fitted(part, fit, is_whole=is_whole) for part in made.projected]
    if narrow := found.narrow.union(*(one.narrow for one in fitted)):
        wide = {name: fit.wider[name].type for name in narrow}
        wider = replace(fit, types={**fit.types, **wide}, wider={})
        return take_misfits(table, made, wider, is_whole=is_whole)[0], narrow
    gone = _letters_of_rows(table, rows, found.dead)
    if gone:
        made.rows = [row for row in made.rows if id(row.change) not in gone]
    letters, parts = [*gone.values()], list[Projected]()
    for part, (arrays, dead, _) in zip(made.projected, fitted, strict=True):
        length = len(part.batch)
        columns: dict[str, Any] = {name: arrays.get(name, values) for name, values in part.columns.items()}
        letters += _letters_of_columns(table, part, dead)
        if dead:
            kept = pa.array(_without(length, dead))
            columns = {name: values.filter(kept) for name, values in columns.items()}
        if len(dead) < length:
            batch = part.batch.where(_without(length, dead))
            parts.append(replace(part, batch=batch, columns=columns))
    made.projected = parts
    return letters, narrow


def _fitted(part: Projected, fit: ColumnFit, *, is_whole: bool = True) -> FittedColumns:
    """Changes that were projected as columns, under the types of a fit."""
    written = pc.equal(part.operations, "u").to_numpy()
    return fit.columns(part.columns, written, len(part.batch), is_whole=is_whole)
