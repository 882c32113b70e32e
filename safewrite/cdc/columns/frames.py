"""Puts a table's changes under a schema of all rows and schemas of the batch, never of the first one; what does not fit is a letter."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.columns.column_fit import ColumnFit, FittedColumns
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
class FramedPart:
    """Some changes under the types of their table, what each does, and what it lacks."""

    fitted: FittedColumns
    operations: Any
    lacks: Any

    @property
    def data(self) -> pa.Table:
        """The rows for ``apply_changes``."""
        return pa.table({**self.fitted.arrays, OP: self.operations, LACKS: self.lacks})


def framed_rows(
    fit: ColumnFit,
    values: list[dict[str, Any]],
    lacks: list[Sequence[str]],
    operations: Sequence[str],
    *,
    marks: str | None,
    first: Collection[int] = (),
    is_whole: bool = True,
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
    fitted = fit.of_rows(values, lacks, is_row, is_whole=is_whole)
    return FramedPart(fitted, pa.array(operations, pa.string()), pa.array(lacks, LISTS))


def framed_columns(
    fit: ColumnFit, columns: Mapping[str, Any], operations: Any, *, is_whole: bool = True
) -> FramedPart:
    """Changes that were read by columns; they lack nothing."""
    written, length = pc.equal(operations, "u").to_numpy(), len(operations)
    fitted = fit.columns(columns, written, length, is_whole=is_whole)
    return FramedPart(fitted, operations, pa.nulls(length, LISTS))


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


@dataclass(frozen=True)
class Framed:
    """The rows that fit a table, letters of those that do not, and columns that have to be wider for them."""

    parts: Sequence[FramedPart]
    kept: Sequence[Any]
    """Of each part which rows fit, as booleans of NumPy."""
    letters: list[DeadLetter]
    narrow: frozenset[str]

    def frame(self) -> pa.Table:
        """The rows for ``apply_changes``."""
        return pa.concat_tables(
            part.data if kept.all() else part.data.filter(pa.array(kept))
            for part, kept in zip(self.parts, self.kept, strict=True)
        )


def take_misfits(table: TargetTable, made: ChangeRows, fit: ColumnFit, *, is_whole: bool) -> Framed:
    """Take changes that do not fit out of rows, also where columns are as wide as they may be.

    What was projected gets the types of the fit.  ``is_whole``: whether ``fit`` is of all columns.
    """
    rows = made.rows
    of_rows = framed_rows(
        fit, [row.values for row in rows], [row.lacks for row in rows], [row.op.value for row in rows],
        marks=table.deleted_column, first={at for at, row in enumerate(rows) if row.is_first}, is_whole=is_whole,
    )  # fmt: skip
    of_columns = [
        framed_columns(fit, one.columns, one.operations, is_whole=is_whole) for one in made.projected
    ]
    parts = [of_rows, *of_columns]
    if narrow := frozenset[str]().union(*(one.fitted.narrow for one in parts)):
        wide = {name: fit.wider[name].type for name in narrow}
        wider = replace(fit, types={**fit.types, **wide}, wider={})
        return replace(take_misfits(table, made, wider, is_whole=is_whole), narrow=narrow)
    gone = _letters_of_rows(table, rows, of_rows.fitted.dead)
    flags = [np.array([id(row.change) not in gone for row in rows], bool)]
    if gone:
        made.rows = [row for row in rows if id(row.change) not in gone]
    letters, left = [*gone.values()], list[Projected]()
    for one, part in zip(made.projected, of_columns, strict=True):
        arrays, dead, _ = part.fitted
        flags.append(_without(len(one.batch), dead))
        columns: dict[str, Any] = {name: arrays.get(name, values) for name, values in one.columns.items()}
        letters += _letters_of_columns(table, one, dead)
        if dead:
            kept = pa.array(flags[-1])
            columns = {name: values.filter(kept) for name, values in columns.items()}
        if len(dead) < len(one.batch):
            batch = one.batch.where(flags[-1]) if dead else one.batch
            left.append(replace(one, batch=batch, columns=columns))
    made.projected = left
    return Framed(parts, flags, letters, frozenset())
