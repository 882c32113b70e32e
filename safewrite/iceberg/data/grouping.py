"""Groups the rows of a frame by Iceberg partition, in the table's sort order.

Rows are grouped by the partition values themselves, with NULL and NaN as groups of their own: nothing is
dropped (H5).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import PrimitiveType

from safewrite.errors import InternalError, UnsupportedTableError
from safewrite.frames.columns import Indices
from safewrite.frames.grouping import Codes, rows_by_code
from safewrite.frames.prepare import Prepared
from safewrite.iceberg.data.schema import struct_path
from safewrite.iceberg.data.transforms import transformed

_NAN = math.nan  # one object: NaN equals no other in a dict


@dataclass(frozen=True)
class PartitionRows:
    """The rows of one partition: their numbers, and the values of its fields as manifests hold them."""

    values: tuple[Any, ...]
    rows: Indices


def groups(prepared: Prepared, spec: PartitionSpec, schema: Schema) -> list[PartitionRows]:
    """All rows of ``prepared`` by partition, in the order in which partitions first occur.

    Memory: some 16 bytes a row, and 4 for each partition field.  Raises UnsupportedTableError for a
    transform that is not known and WouldAlterError for a value that has no partition value.
    """
    if prepared.rows == 0:
        return []
    if spec.is_unpartitioned():
        return [PartitionRows((), np.arange(prepared.rows, dtype=np.int64))]
    known: list[dict[Any, int]] = [{} for _ in spec.fields]
    codes = [np.empty(prepared.rows, np.int32) for _ in spec.fields]
    start = 0
    for columns, rows in _transformed(prepared, spec.fields, schema):
        for column, values, out in zip(columns, known, codes, strict=True):
            out[start : start + rows] = _codes(column, values)
        start += rows
    if start != prepared.rows:
        raise InternalError(f"{start} of {prepared.rows} rows were grouped by partition; please report this.")
    distinct = [list(values) for values in known]
    parts = rows_by_code(codes, [len(values) for values in known])
    return [
        PartitionRows(
            tuple(values[code[part[0]]] for values, code in zip(distinct, codes, strict=True)), part
        )
        for part in parts
    ]


def sorted_rows(prepared: Prepared, order: SortOrder, schema: Schema) -> Indices | None:
    """The numbers of all rows in the table's sort order, equal ones as they came; None if it has none.

    The values that are sorted by are in memory at once.
    """
    if order.is_unsorted or prepared.rows == 0:
        return None
    pieces = [columns for columns, _ in _transformed(prepared, order.fields, schema)]
    keys: dict[str, pa.ChunkedArray] = {}
    ways: list[tuple[str, str]] = []
    for i, field in enumerate(order.fields):
        values = pa.chunked_array([columns[i] for columns in pieces])
        if pa.types.is_null(values.type):
            continue
        # Arrow puts NaN next to NULL, and all NULLs to one side: so NULLs have a key of their own
        keys[f"null{i}"] = pc.is_null(values).cast(pa.int8())
        ways.append((f"null{i}", "descending" if field.null_order == NullOrder.NULLS_FIRST else "ascending"))
        keys[f"value{i}"] = _in_total_order(values)
        ways.append((f"value{i}", "descending" if field.direction == SortDirection.DESC else "ascending"))
    keys["row"] = pa.chunked_array([pa.array(np.arange(prepared.rows, dtype=np.int64))])
    found: Indices = pc.sort_indices(pa.table(keys), sort_keys=[*ways, ("row", "ascending")]).to_numpy()
    return found.astype(np.int64)


def _in_total_order(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as integers that sort as Iceberg sorts floats: -0.0 before 0.0, NaN above all."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy()
    bits = np.where(np.isnan(numbers), _NAN, numbers).view(np.int64)
    flipped = bits ^ ((bits >> 63) & np.int64(2**63 - 1))
    return pa.chunked_array([pa.array(flipped)])


def _transformed(
    prepared: Prepared, fields: Sequence[PartitionField] | Sequence[SortField], schema: Schema
) -> Iterator[tuple[list[pa.Array], int]]:
    """For each slice of rows, the transformed values of ``fields``, and how many rows these are."""
    paths = {field.source_id: _path(field, schema) for field in fields}
    tops = list(dict.fromkeys(path[0] for path in paths.values() if path))
    for table in prepared.tables(tops or None):
        yield [_column(table, field, paths, schema) for field in fields], table.num_rows


def _path(field: PartitionField | SortField, schema: Schema) -> tuple[str, ...]:
    found = struct_path(schema, field.source_id)
    if found is not None:
        return found
    if isinstance(field.transform, VoidTransform):  # what is left of a field whose column was dropped
        return ()
    raise UnsupportedTableError(
        f"The table is partitioned or sorted by {field}, whose column is not in its schema. Nothing was written. "
        "Drop that field from the table's partition spec or sort order."
    )


def _column(
    table: pa.Table, field: PartitionField | SortField, paths: Mapping[int, tuple[str, ...]], schema: Schema
) -> pa.Array:
    path = paths[field.source_id]
    if not path:
        return pa.nulls(table.num_rows)
    kind = schema.find_type(field.source_id)
    if not isinstance(kind, PrimitiveType):
        raise UnsupportedTableError(
            f"The table is partitioned or sorted by {'.'.join(path)!r} of type {kind}. Nothing was written. "
            "Write this table with Spark."
        )
    return transformed(leaf(table, path), field.transform, kind, ".".join(path))


def leaf(table: pa.Table, path: Sequence[str]) -> pa.Array:
    """The values at ``path``, through structs; NULL where a struct on the way is NULL."""
    column = table.column(path[0])
    found = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    for name in path[1:]:
        found = found.flatten()[found.type.get_field_index(name)]
    return found


def _codes(column: pa.Array, known: dict[Any, int]) -> Codes:
    """The number of each row's value in ``known``, which grows by values not seen before."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    values = [_canonical(value) for value in encoded.dictionary.to_pylist()]
    numbers = np.array([known.setdefault(value, len(known)) for value in values], np.int32)
    found: Codes = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return found


def _canonical(value: Any) -> Any:
    """Reduce to one NaN and one zero: engines that take -0.0 for 0.0 compare partition values bit by bit (H7)."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    return value
