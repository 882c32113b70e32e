"""Says which values a table refuses in columns of a type that fits: NULL where it must not be, texts that no folder keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from safewrite.cdc.config.table_config import TargetTable
from safewrite.intake.partitioning import NOT_READ_BACK, of_no_folder


class HasColumns(Protocol):
    """A table, or what is known of one."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partition_by(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Rules:
    """What a table asks of its rows, beyond the types of its columns."""

    required: Mapping[str, pa.Field] = field(default_factory=dict)
    """Columns that are NOT NULL, or have a field that is."""
    folders: frozenset[str] = frozenset()
    """Partition columns whose values are names of folders."""

    @classmethod
    def of(cls, table: TargetTable, found: HasColumns | None) -> Self:
        """The rules of a table, or of one that is to be made."""
        is_delta = table.format == "delta"
        if found is None:
            return cls(folders=frozenset(table.partition_by if is_delta else ()))
        required = {one.name: one for one in found.schema if _asks(one)}
        return cls(required, frozenset(found.partition_by if is_delta else ()))

    def misfits(self, name: str, values: Any, is_row: Any) -> dict[int, str]:
        """The places of values that the table refuses, and why.

        Args:
            is_row: which values are written; of others it is no matter what they are.  Booleans of NumPy.
        """
        found: dict[int, str] = {}
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
