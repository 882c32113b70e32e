"""Computes metrics by which Iceberg readers skip files: never narrower than the truth (H7).

Source: Iceberg table specification, "Manifests" and Appendix D.  A bound that can neither be exact nor
rounded to the safe side is left out: a missing bound costs a reader time, a wrong one costs it rows.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector, compute_statistics_plan
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    UUIDType,
)

from safewrite.errors import InternalError, UnsupportedTableError
from safewrite.iceberg.data.grouping import leaf
from safewrite.iceberg.data.schema import struct_paths
from safewrite.iceberg.data.transforms import decimal_bytes, physical
from safewrite.text.rendering import said
from safewrite.values.casts import min_max

Plan = Mapping[int, StatisticsCollector]
_SURROGATES = range(0xD800, 0xE000)  # code points that no text has


@dataclass
class _Leaf:
    """What is known so far of one column of simple values."""

    path: tuple[str, ...]
    kind: PrimitiveType
    has_bounds: bool
    length: int | None  # to which texts and bytes are cut
    nulls: int = 0
    nans: int = 0
    low: Any = None
    high: Any = None
    sides: set[tuple[int, int]] = field(default_factory=set)

    def add(self, values: pa.Array) -> None:
        """Take note of ``values``."""
        self.nulls += values.null_count
        if pa.types.is_floating(values.type):
            self.nans += pc.sum(pc.is_nan(values)).as_py() or 0
        if not self.has_bounds or values.null_count == len(values):
            return
        if isinstance(self.kind, UUIDType):
            self.sides |= _sides(values)
        if pa.types.is_fixed_size_binary(values.type):
            values = values.cast(pa.binary())
        span = min_max(physical(values))
        if span is None:
            self.has_bounds, self.low = False, None
            return
        self.low = span["min"] if self.low is None else min(self.low, span["min"])
        self.high = span["max"] if self.high is None else max(self.high, span["max"])

    def lower(self) -> bytes | None:
        """The lower bound, rounded down."""
        if not self._usable():
            return None
        if isinstance(self.low, float) and self.low == 0:
            return to_bytes(self.kind, -0.0)
        return _to_bytes(self.kind, self.low[: self.length] if self.length else self.low)

    def upper(self) -> bytes | None:
        """The upper bound, rounded up."""
        if not self._usable():
            return None
        if isinstance(self.high, float) and self.high == 0:
            return to_bytes(self.kind, 0.0)
        high = _above(self.high, self.length) if self.length else self.high
        return None if high is None else _to_bytes(self.kind, high)

    def _usable(self) -> bool:
        """Whether a bound is kept: engines order NaN differently, and Java orders UUIDs as two signed
        numbers, others as bytes.
        """
        return self.low is not None and not self.nans and len(self.sides) <= 1


def plan(schema: Schema, properties: Mapping[str, str]) -> Plan:
    """Which metrics the table's properties ``write.metadata.metrics.*`` ask for, by field id, as PyIceberg reads them.

    Raises UnsupportedTableError for a mode that Iceberg does not have.
    """
    try:
        return compute_statistics_plan(schema, dict(properties))
    except ValueError as error:
        raise UnsupportedTableError(
            f"The table's properties write.metadata.metrics.* cannot be read ({said(error)}). Nothing was written. Correct "
            "them: none, counts, truncate(16) or full."
        ) from error


class FileMetrics:
    """Gathers the metrics of one file from the rows written to it.

    NULLs, NaNs and bounds are found in the rows, since Parquet's statistics know no NaN (and are not written
    for floats).  Columns inside of lists and maps are left out, for no reader asks for them.
    """

    def __init__(self, schema: Schema, modes: Plan) -> None:
        self._modes = modes
        self._ids = [i for f in schema.fields for i in _leaf_ids(f.field_id, f.field_type)]
        self._leaves: dict[int, _Leaf] = {}
        paths = struct_paths(schema)
        for i in self._ids:
            path, mode = paths.get(i), modes[i].mode
            if path is not None and mode.type != MetricModeTypes.NONE:
                has_bounds = mode.type in (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
                self._leaves[i] = _Leaf(path, modes[i].iceberg_type, has_bounds, mode.length)

    def update(self, table: pa.Table) -> None:
        """Add rows; the columns have the names of the schema."""
        if table.num_rows:
            for column in self._leaves.values():
                column.add(leaf(table, column.path))

    def to_arguments(self, footer: pq.FileMetaData) -> dict[str, Any]:
        """What ``DataFile.from_args`` of PyIceberg takes; sizes and counts of values are the footer's."""
        if footer.num_columns != len(self._ids):
            raise InternalError(
                f"A Parquet file has {footer.num_columns} columns for the {len(self._ids)} of its schema; please "
                "report this."
            )
        sizes, counts, offsets = self._of_footer(footer)
        return {
            "record_count": footer.num_rows,
            "column_sizes": sizes,
            "value_counts": counts,
            "null_value_counts": {i: column.nulls for i, column in self._leaves.items()},
            # A file whose every value is NaN would be skipped for x > 5, which is true of NaN in Spark.
            "nan_value_counts": {
                i: column.nans
                for i, column in self._leaves.items()
                if isinstance(column.kind, (FloatType, DoubleType)) and column.nans != counts[i]
            },
            "lower_bounds": {i: b for i, c in self._leaves.items() if (b := c.lower()) is not None},
            "upper_bounds": {i: b for i, c in self._leaves.items() if (b := c.upper()) is not None},
            "split_offsets": offsets,
        }

    def _of_footer(self, footer: pq.FileMetaData) -> tuple[dict[int, int], dict[int, int], list[int]]:
        """Bytes and numbers of values by field id, and where the row groups start."""
        sizes = dict.fromkeys(self._ids, 0)
        counts = {i: 0 for i in self._ids if self._modes[i].mode.type != MetricModeTypes.NONE}
        offsets = []
        for group in map(footer.row_group, range(footer.num_row_groups)):
            for position, i in enumerate(self._ids):
                chunk = group.column(position)
                sizes[i] += chunk.total_compressed_size
                if i in counts:
                    counts[i] += chunk.num_values
            first = group.column(0)
            offsets.append(
                min(first.data_page_offset, first.dictionary_page_offset or first.data_page_offset)
            )
        return sizes, counts, offsets


def _sides(values: pa.Array) -> set[tuple[int, int]]:
    """The signs among UUIDs, taken as two signed numbers: where all have one sign, engines agree on the order."""
    raw = np.frombuffer(b"".join(values.drop_null().to_pylist()), np.uint8).reshape(-1, 16)
    signs = np.unique(raw[:, [0, 8]] >> 7, axis=0)
    return {(int(one), int(two)) for one, two in signs}


def _to_bytes(kind: PrimitiveType, value: Any) -> bytes:
    if isinstance(value, decimal.Decimal):
        return decimal_bytes(value)
    return to_bytes(kind, value)


def _above(value: str | bytes, length: int) -> str | bytes | None:
    """A text or byte string of at most ``length`` that sorts at or above ``value``; None if there is none."""
    if len(value) <= length:
        return value
    if isinstance(value, bytes):
        kept = value[:length].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    cut = value[:length].rstrip("\U0010ffff")
    if not cut:
        return None
    following = ord(cut[-1]) + 1
    return cut[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _leaf_ids(field_id: int, kind: IcebergType) -> Iterator[int]:
    """The field ids of the leaf columns, in the order of Parquet's columns."""
    if isinstance(kind, StructType):
        for inner in kind.fields:
            yield from _leaf_ids(inner.field_id, inner.field_type)
    elif isinstance(kind, ListType):
        yield from _leaf_ids(kind.element_id, kind.element_type)
    elif isinstance(kind, MapType):
        yield from _leaf_ids(kind.key_id, kind.key_type)
        yield from _leaf_ids(kind.value_id, kind.value_type)
    else:
        yield field_id
