"""Says which rows a table refuses whose values have the types of its columns: NULL where it must not be, texts that no folder keeps, and
what breaks a CHECK constraint or its kin.  Columns that a row lacks get what the table has for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.config.table_config import TargetTable
from safewrite.frames.row_rules import RowRule, TableRules
from safewrite.intake.partitioning import NOT_READ_BACK, of_no_folder
from safewrite.values.objects import column_of

Which = Callable[[str], Any]
"""Of rows: which lack a column; booleans of NumPy."""


class HasColumns(Protocol):
    """A table, or what is known of one."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partition_by(self) -> tuple[str, ...]: ...
    @property
    def row_rules(self) -> TableRules: ...


@dataclass(frozen=True)
class Rules:
    """What a table asks of its rows, beyond the types of its columns."""

    required: Mapping[str, pa.Field] = field(default_factory=dict)
    """Columns that are NOT NULL, or have a field that is."""
    folders: frozenset[str] = frozenset()
    """Partition columns whose values are names of folders."""
    of_rows: TableRules = field(default_factory=TableRules)
    """Conditions that each row has to keep, and what columns get that a row lacks."""
    marks: str | None = None
    """The column that the job writes itself: it marks deleted rows, and is false where a change does not say that."""

    @classmethod
    def of(cls, table: TargetTable, found: HasColumns | None) -> Self:
        """The rules of a table, or of one that is to be made."""
        is_delta, marks = table.format == "delta", table.deleted_column
        if found is None:
            return cls(folders=frozenset(table.partition_by if is_delta else ()), marks=marks)
        required = {one.name: one for one in found.schema if _asks(one)}
        folders = frozenset(found.partition_by if is_delta else ())
        return cls(required, folders, found.row_rules, marks)

    def of_values(self) -> Self:
        """The rules of single values: those for whole rows are asked once the filter has passed a row and its columns are computed."""
        return replace(self, of_rows=TableRules())

    def fill(
        self, arrays: dict[str, Any], types: Mapping[str, pa.DataType], is_row: Any, absent: Which
    ) -> dict[int, str]:
        """Put in what rows lack and the table computes; the places of values that do not fit their column, and why.

        Args:
            arrays: the columns, under their ``types``.
            is_row: which rows are written; booleans of NumPy.
            absent: which rows do not have a column at all, and take its value of no row before them.
        """
        wrong: dict[int, str] = {}

        def lacking(name: str) -> Any:
            return absent(name) & is_row if name in arrays else np.zeros(len(is_row), bool)

        for name, values, which in self.of_rows.filled(arrays, len(is_row), lacking):
            made, misfits = column_of(values, types[name])
            arrays[name] = pc.if_else(pa.array(which), made, arrays[name])
            misfits = self.misfits(name, arrays[name], which) | misfits
            wrong |= {place: f"column {name!r}: {why}" for place, why in misfits.items() if which[place]}
        return wrong

    def broken(self, arrays: Mapping[str, Any], is_row: Any, left_out: Which) -> dict[int, str]:
        """The places of rows that break a condition, and how.

        Args:
            is_row: as for :meth:`fill`.
            left_out: which rows take a column's value from the row before them: what they will be, a job looks up first.
        """

        def whole(rule: RowRule) -> Any:
            found = is_row.copy()
            for name in rule.reads:
                found &= ~left_out(name)
            return found

        return self.of_rows.broken(arrays, whole) if self.of_rows.rules else {}

    def misfits(self, name: str, values: Any, is_row: Any, absent: Which | None = None) -> dict[int, str]:
        """The places of values that the table refuses, and why.

        Args:
            is_row: which values are written; of others it is no matter what they are.  Booleans of NumPy.
            absent: which rows do not have a column at all: what the table computes is judged then.
        """
        found: dict[int, str] = {}
        if absent is not None and name in self.of_rows.fill_names:
            is_row = is_row & ~absent(name)
        if name in self.required:
            for place in np.flatnonzero(_has_null(values, self.required[name]) & is_row).tolist():
                found[place] = "the source has NULL, and the table's column is NOT NULL"
        if name in self.folders:
            for place in np.flatnonzero(of_no_folder(values)).tolist():
                found[place] = f"{values[place].as_py()!r} {NOT_READ_BACK}"
        return found


def _asks(column: pa.Field) -> bool:
    return not column.nullable or any(_asks(one) for one in _fields(column.type))


def _fields(kind: pa.DataType) -> Iterator[pa.Field]:
    """The fields of structs, through structs only: what is in lists and maps the table looks at itself."""
    if pa.types.is_struct(kind):
        yield from kind


def _has_null(values: Any, column: pa.Field) -> Any:
    """Which values are NULL, or have NULL in a field, where that must not be; as booleans of NumPy."""
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    found = is_null if not column.nullable else np.zeros(len(values), bool)
    for place, one in enumerate(_fields(column.type)):
        if _asks(one):
            inner = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
            found = found | (_has_null(inner.flatten()[place], one) & ~is_null)
    return found
