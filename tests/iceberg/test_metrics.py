"""Metrics of data files are true of every row, and no bound claims more than that (H7)."""

from __future__ import annotations

import datetime as dt
import io
import math
import re
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType

from safewrite.errors import UnsupportedTableError
from tests.frames.strategies import ICEBERG_LEAVES, tables
from tests.iceberg.tables import Warehouse, append, read, staged, warehouse
from tests.sampling import no_more_than


@pytest.fixture(scope="module")
def lake() -> Iterator[Warehouse]:
    """One warehouse for many tables: a catalog for each would cost more than the test."""
    with tempfile.TemporaryDirectory() as folder, warehouse(Path(folder)) as found:
        yield found


@no_more_than(60)
@given(table=tables(of=ICEBERG_LEAVES, nested=False, columns_max=3), target=st.sampled_from([1, 300, 2**27]))
def test_metrics_are_true_of_every_row(lake: Warehouse, table: pa.Table, target: int) -> None:
    iceberg = lake.create(table.schema)
    for file in staged(iceberg, table, target_file_size=target):
        rows = pq.read_table(io.BytesIO(file.body))
        assert file.data_file.record_count == rows.num_rows
        assert file.data_file.file_size_in_bytes == len(file.body)
        for column in iceberg.schema().fields:
            assert_true_of(rows.column(column.name).to_pylist(), file.data_file, column)


def assert_true_of(values: list[Any], found: DataFile, column: NestedField) -> None:
    nans = [v for v in values if isinstance(v, float) and math.isnan(v)]
    present = [v for v in values if v is not None]
    assert found.value_counts[column.field_id] == len(values)
    assert found.null_value_counts[column.field_id] == values.count(None)
    if isinstance(column.field_type, (FloatType, DoubleType)) and len(nans) < len(values):
        assert found.nan_value_counts[column.field_id] == len(nans)
    else:
        assert column.field_id not in found.nan_value_counts
    low, high = bounds(found, column)
    if nans or not present:
        assert (low, high) == (None, None)
    for value in present:
        assert low is None or low <= physical(value)
        assert high is None or high >= physical(value)


def bounds(found: DataFile, column: NestedField) -> tuple[Any, Any]:
    """Both bounds of a column as values that Python orders as Iceberg does; None where there is none."""
    kind = column.field_type
    assert isinstance(kind, PrimitiveType)
    encoded = [bound.get(column.field_id) for bound in (found.lower_bounds, found.upper_bounds)]
    low, high = (None if b is None else physical(from_bytes(kind, b)) for b in encoded)
    return low, high


def physical(value: Any) -> Any:
    """A value as Iceberg counts and orders it: times in microseconds, texts by code point."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(
            0, 0, 1
        )
    if isinstance(value, dt.date):
        return value.toordinal() - dt.date(1970, 1, 1).toordinal()
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return value


def one_file(
    lake: Warehouse, values: Any, properties: dict[str, str] | None = None
) -> tuple[DataFile, NestedField]:
    """The manifest entry of a file with one column ``c``, and that column."""
    table = pa.table({"c": values})
    iceberg = lake.create(table.schema, properties=properties)
    (file,) = staged(iceberg, table)
    return file.data_file, iceberg.schema().fields[0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, -0.0], ("-0.0", "0.0")),
        ([0.0], ("-0.0", "0.0")),
        ([-0.0, 1.0], ("-0.0", "1.0")),
        ([-1.0, -0.0], ("-1.0", "0.0")),
        ([math.inf, -math.inf], ("-inf", "inf")),
        ([1.0, math.nan], ("None", "None")),
        ([math.nan, None], ("None", "None")),
    ],
)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_bounds_of_floats_hold_for_either_zero_and_are_left_out_beside_nan(
    lake: Warehouse, kind: pa.DataType, values: list[Any], expected: tuple[str, str]
) -> None:
    low, high = bounds(*one_file(lake, pa.array(values, kind)))
    assert (repr(low), repr(high)) == expected


def test_nan_is_counted_except_where_it_is_all_there_is(lake: Warehouse) -> None:
    """Readers would skip such a file for x > 5, which Spark takes to be true of NaN."""
    found, column = one_file(lake, [math.nan, 1.0, None, math.nan])
    assert found.nan_value_counts == {column.field_id: 2}
    found, _ = one_file(lake, [math.nan, math.nan])
    assert found.nan_value_counts == {}


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("x" * 16, "x" * 16, "x" * 16),
        ("x" * 17, "x" * 16, "x" * 15 + "y"),
        ("\U0001f600" * 17, "\U0001f600" * 16, "\U0001f600" * 15 + "\U0001f601"),
        ("x" * 15 + "\ud7ff" + "z", "x" * 15 + "\ud7ff", "x" * 15 + "\ue000"),  # surrogates are between
        ("xy" + "\U0010ffff" * 20, "xy" + "\U0010ffff" * 14, "xz"),
        ("\U0010ffff" * 17, "\U0010ffff" * 16, None),
        (b"\x00" * 17, b"\x00" * 16, b"\x00" * 15 + b"\x01"),
        (b"a" + b"\xff" * 20, b"a" + b"\xff" * 15, b"b"),
        (b"\xff" * 17, b"\xff" * 16, None),
    ],
    ids=ascii,
)
def test_bounds_of_long_values_are_cut_and_rounded_outwards(
    lake: Warehouse, value: Any, low: Any, high: Any
) -> None:
    assert bounds(*one_file(lake, [value])) == (physical(low), physical(high))


def test_bounds_of_uuids_are_given_only_where_every_engine_orders_them_alike(lake: Warehouse) -> None:
    near = [uuid.UUID(int=2**64 * n + 7) for n in (3, 1, 2)]
    assert bounds(*one_file(lake, pa.array([*near, None], pa.uuid()))) == (near[1].bytes, near[0].bytes)
    for apart in ([1, 2**127], [1, 2**63]):
        found = one_file(lake, pa.array([uuid.UUID(int=n) for n in apart], pa.uuid()))
        assert bounds(*found) == (None, None)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("none", (False, None, None)),
        ("counts", (True, None, None)),
        ("truncate(2)", (True, b"ab", b"ac")),
        ("full", (True, b"abcdefghijklmnopqrstuvwxyz", b"abcdefghijklmnopqrstuvwxyz")),
    ],
)
@pytest.mark.parametrize("name", ["write.metadata.metrics.default", "write.metadata.metrics.column.c"])
def test_metrics_are_those_that_the_tables_properties_ask_for(
    lake: Warehouse, name: str, mode: str, expected: tuple[bool, Any, Any]
) -> None:
    found, column = one_file(lake, ["abcdefghijklmnopqrstuvwxyz"], {name: mode})
    counted = column.field_id in found.value_counts
    assert counted == (column.field_id in found.null_value_counts)
    assert (counted, *bounds(found, column)) == expected
    assert found.column_sizes[column.field_id] > 0


@pytest.mark.parametrize("mode", ["some", "truncate(0)"])
def test_a_mode_that_iceberg_does_not_have_is_refused(lake: Warehouse, mode: str) -> None:
    with pytest.raises(UnsupportedTableError, match=re.escape("write.metadata.metrics")):
        one_file(lake, ["a"], {"write.metadata.metrics.default": mode})


def test_a_null_struct_is_a_null_in_each_of_its_fields(lake: Warehouse) -> None:
    kind = pa.struct([("x", pa.float64()), ("l", pa.list_(pa.int64()))])
    table = pa.table({"s": pa.array([{"x": math.nan, "l": [1, 2]}, None, {"x": None, "l": None}], kind)})
    iceberg = lake.create(table.schema)
    (file,) = staged(iceberg, table)
    inner = iceberg.schema().find_field("s.x").field_id
    element = iceberg.schema().find_field("s.l.element").field_id
    assert file.data_file.value_counts[inner] == 3
    assert file.data_file.null_value_counts == {inner: 2}
    assert file.data_file.nan_value_counts == {inner: 1}
    assert set(file.data_file.column_sizes) == {inner, element}
    assert (file.data_file.lower_bounds, file.data_file.upper_bounds) == ({}, {})


@pytest.mark.long
def test_row_groups_start_where_the_metrics_say_and_texts_in_dictionaries_are_found(lake: Warehouse) -> None:
    words = [f"word {i % 7} " * 50 for i in range(50_000)]
    texts = pa.array(words)
    table = pa.table({"c": texts, "coded": texts.dictionary_encode(), "id": range(len(words))})
    iceberg = lake.create(table.schema)
    (file,) = append(iceberg, table)
    footer = pq.read_metadata(io.BytesIO(file.body))
    first = [footer.row_group(i).column(0) for i in range(footer.num_row_groups)]
    assert len(first) > 1
    assert all(column.has_dictionary_page for column in first)
    assert file.data_file.split_offsets == [column.dictionary_page_offset for column in first]
    assert file.data_file.split_offsets[0] == 4  # after the magic number
    for name in ("c", "coded"):
        assert read(iceberg, EqualTo(name, words[3])).num_rows == words.count(words[3])
