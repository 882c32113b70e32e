"""Makes the frame of a table's changes, under a schema of all rows and schemas of the batch, never of the first one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
_NAMES = pa.list_(pa.string())


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
    lacks = [_lacks(table, row, fit) for row in made.rows]
    parts = [_of_rows(table, made.rows, lacks, fit)]
    parts += [_of_columns(table, one, fit) for one in made.projected]
    return ChangeFrame(
        pa.concat_tables(part.data for part in parts),
        fit.added(None if found is None else found.schema),
        tuple(letter for part in parts for letter in part.dead),
        sum(part.changes for part in parts),
        any(lacks),
        tuple(one for name, one in fit.wider.items() if any(name in part.narrow for part in parts)),
    )


class _FramePart(NamedTuple):
    """Some of a frame's rows, the changes that do not fit, and how many do."""

    data: pa.Table
    dead: Iterable[DeadLetter]
    changes: int
    narrow: frozenset[str]


def _lacks(table: TargetTable, row: ChangeRow, fit: ColumnFit) -> tuple[str, ...]:
    """The columns that a row takes from the row before it: of a row that is deleted and stays, all that the delete does not have."""
    if table.deleted_column is None or row.op is not Op.DELETE or row.is_first:
        return row.lacks
    known = {*row.values, table.deleted_column}
    return tuple(name for name in fit.types if name not in fit.clashes and name not in known)


def _of_rows(
    table: TargetTable, rows: Sequence[ChangeRow], lacks: Sequence[Sequence[str]], fit: ColumnFit
) -> _FramePart:
    """Changes that were made to rows one by one; ``lacks`` names for each the columns that it takes from the row before it."""
    values, ops = [row.values for row in rows], [row.op.value for row in rows]
    if (deleted := table.deleted_column) is not None:
        values = [row.values | {deleted: True} if row.op is Op.DELETE else row.values for row in rows]
        ops = [Op.UPSERT.value] * len(rows)
    is_row = np.array([op == Op.UPSERT.value for op in ops], bool)
    arrays, misfits, narrow = fit.of_rows(values, lacks, is_row)
    dead = _letters_of_rows(table, rows, misfits)
    arrays[OP] = pa.array(ops, pa.string())
    arrays[LACKS] = pa.array([list(one) for one in lacks], _NAMES)
    data = pa.table(arrays)
    kept = [id(row.change) not in dead for row in rows]
    if dead:
        data = data.filter(pa.array(kept, pa.bool_()))
    living = {id(row.change) for row, lives in zip(rows, kept, strict=True) if lives}
    return _FramePart(data, dead.values(), len(living), narrow)


def _of_columns(table: TargetTable, part: Projected, fit: ColumnFit) -> _FramePart:
    """Changes that were projected as columns."""
    length = len(part.batch)
    arrays, dead, narrow = _fitted(part, fit)
    arrays[OP] = part.operations
    arrays[LACKS] = pa.array([[]] * length, _NAMES)
    data = pa.table(arrays)
    if dead:
        data = data.filter(pa.array(_without(length, dead)))
    return _FramePart(data, _letters_of_columns(table, part, dead), length - len(dead), narrow)


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
