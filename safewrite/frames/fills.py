"""Fills columns that a frame lacks and its table computes: generated ones by their expression, others by their default.

They are filled before rows are checked and fingerprinted, so that a repeat is compared by what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from safewrite.errors import WouldAlterError
from safewrite.frames.columns import Indices
from safewrite.frames.conform import conform
from safewrite.frames.source import Frame, as_frame
from safewrite.frames.terms import Term, names_of, values, whole
from safewrite.text.rendering import shortened


@dataclass(frozen=True)
class ColumnFill:
    """What a column gets where a frame lacks it: the value of ``term``, which ``text`` is in Spark's SQL."""

    name: str
    text: str
    term: Term

    @property
    def reads(self) -> frozenset[str]:
        """The columns that it is made of."""
        return names_of(self.term)


def filled(data: Any, fills: Sequence[ColumnFill], schema: pa.Schema) -> Any:
    """The data with the columns that it lacks; as it is where it lacks none."""
    frame = as_frame(data, target=schema)
    there = frozenset(frame.column_names)
    lacking = [one for one in fills if one.name not in there]
    return _FilledFrame(frame, lacking, schema) if lacking and there else data


class _FilledFrame(Frame):
    """A frame with more columns, which are made of the others slice by slice."""

    def __init__(self, frame: Frame, fills: Sequence[ColumnFill], schema: pa.Schema) -> None:
        self._frame, self._fills, self._schema = frame, {one.name: one for one in fills}, schema
        self.rows, self.ragged = frame.rows, frame.ragged
        self.nbytes = frame.nbytes + 8 * frame.rows * len(fills)

    @property
    def column_names(self) -> tuple[str, ...]:
        return (*self._frame.column_names, *self._fills)

    def arrow_schema(self) -> pa.Schema:
        return pa.schema([
            *self._frame.arrow_schema(), *(pa.field(name, one.term.type) for name, one in self._fills.items())
        ])  # fmt: skip

    def piece(self, start: int, stop: int, *, columns: Sequence[str] | None = None) -> pa.Table:
        def read(names: Sequence[str]) -> pa.Table:
            return self._frame.piece(start, stop, columns=names)

        return self._made(self.column_names if columns is None else columns, read, stop - start, start)

    def take(self, rows: Indices) -> pa.Table:
        taken = self._frame.take(rows)
        return self._made(self.column_names, taken.select, taken.num_rows, 0)

    def _made(
        self, names: Sequence[str], read: Callable[[Sequence[str]], pa.Table], count: int, first_row: int
    ) -> pa.Table:
        own = read([name for name in names if name not in self._fills])
        columns = {name: own.column(name) for name in own.column_names}
        for name in names:
            if name in self._fills:
                columns[name] = self._filled(self._fills[name], read, count, first_row)
        return pa.table([columns[name] for name in names], names=[*names])

    def _filled(
        self, fill: ColumnFill, read: Callable[[Sequence[str]], pa.Table], count: int, first_row: int
    ) -> pa.ChunkedArray:
        """The values of a column; what it is made of may be filled itself, or be missing, which is NULL or refused later."""
        wanted = [field for field in self._schema if field.name in fill.reads]
        there = frozenset(self._frame.column_names)
        found = read([field.name for field in wanted if field.name in there])
        found = conform(
            found, pa.schema([field for field in wanted if field.name in there]), first_row=first_row
        )
        columns: list[Any] = []
        for field in wanted:
            if field.name in there:
                columns.append(found.column(field.name))
            elif field.name in self._fills:
                made = self._filled(self._fills[field.name], read, count, first_row)
                columns.append(made.cast(field.type))
            else:
                columns.append(pa.nulls(count, field.type))
        return computed(
            fill, pa.table(columns, schema=pa.schema(wanted)), count, partial(_refuse, fill, first_row)
        )


def computed(
    fill: ColumnFill, table: pa.Table, count: int, failed: Callable[[int], object], first: int = 0
) -> pa.ChunkedArray:
    """The values of a column for so many rows; ``failed`` is told the place of one that no number holds, which is NULL."""
    given = table if table.num_columns else pa.table({"row": pa.nulls(count)})
    try:
        return whole(values(fill.term, given), count)
    except pa.ArrowInvalid:
        if count == 1:
            failed(first)
            return pa.chunked_array([pa.nulls(1, fill.term.type)])
        half = count // 2
        parts = (
            computed(fill, given.slice(0, half), half, failed, first),
            computed(fill, given.slice(half), count - half, failed, first + half),
        )
        return pa.chunked_array([*parts[0].chunks, *parts[1].chunks])


def _refuse(fill: ColumnFill, first_row: int, place: int) -> None:
    raise WouldAlterError(
        f"Row {first_row + place}: column {fill.name!r} cannot be computed ({shortened(fill.text)}), for a number is too large. Nothing was "
        "written. Correct the row, or give the column."
    )
