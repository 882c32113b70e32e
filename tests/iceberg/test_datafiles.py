"""What is encoded is read back equal from a real table, and no metric or partition hides a row of it."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested
from __future__ import annotations

import datetime as dt
import decimal
import io
import math
import operator
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNaN,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotNaN,
    NotNull,
    StartsWith,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, TimestampNanoType, TimestamptzNanoType

from safewrite.errors import InternalError, InvalidInputError, UnsupportedTableError, WouldAlterError
from safewrite.frames.prepare import prepare
from safewrite.iceberg.data import datafiles, partitions
from safewrite.iceberg.data.datafiles import StagedFile, encode
from safewrite.iceberg.data.schema import arrow_schema, iceberg_schema
from safewrite.values.types import UTC_TIMESTAMP
from tests.frames.strategies import ICEBERG_LEAVES, plain, tables
from tests.iceberg.tables import Warehouse, append, local, read, staged, warehouse
from tests.sampling import no_more_than, some

D = decimal.Decimal
END = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2**127 + 5)

EDGES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "booleans": (pa.bool_(), [True, False, None]),
    "ints": (pa.int32(), [0, -1, 2**31 - 1, -(2**31) + 10, None]),
    "longs": (pa.int64(), [2**53 + 1, -1, 0, 2**63 - 1, -(2**63) + 10, None]),
    "floats": (pa.float32(), [0.5, -0.0, math.nan, math.inf, None]),
    "doubles": (pa.float64(), [0.1, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, None]),
    "decimals": (pa.decimal128(9, 2), [D("-1.28"), D("0.00"), D("9999999.99"), D("-0.01"), None]),
    "long decimals": (pa.decimal128(38, 18), [D("0.000000000000000001"), D(-(10**19)), D(10**19), None]),
    "dates": (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31), None]),
    "times": (pa.time64("us"), [dt.time(0), dt.time(23, 59, 59, 999999), None]),
    "timestamps": (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59), END, None]),
    "instants": (
        UTC_TIMESTAMP,
        [
            dt.datetime(1, 1, 1, tzinfo=dt.UTC),
            END.replace(tzinfo=dt.UTC),
            dt.datetime.fromtimestamp(-1e-6, dt.UTC),
        ],
    ),
    "texts": (
        pa.string(),
        ["", "null", "a/b", "100%", "..", "ü ñ=", "x" * 500, "\ud7ff" * 20, "\U0010ffff" * 20, "\x00", None],
    ),
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff" * 20, b"\xfe" + b"\xff" * 20, None]),
    "fixed": (pa.binary(3), [b"abc", b"\xff\xff\xff", b"\x00\x00\x00", None]),
    "uuids": (pa.uuid(), [ONE, OTHER, uuid.UUID(int=2**63), uuid.UUID(int=2**63 - 1), None]),
}


@pytest.fixture(scope="module")
def lake() -> Iterator[Warehouse]:
    """One warehouse for many tables: a catalog for each would cost more than the test."""
    with tempfile.TemporaryDirectory() as folder, warehouse(Path(folder)) as found:
        yield found


def edge_table(name: str) -> pa.Table:
    kind, values = EDGES[name]
    return pa.table({"id": range(2 * len(values)), "c": pa.array(values * 2, kind)})


@no_more_than(60)
@given(table=tables(of=ICEBERG_LEAVES), target=st.sampled_from([1, 300, 2**27]))
def test_rows_are_read_back_equal_by_pyiceberg_and_pyarrow(
    lake: Warehouse, table: pa.Table, target: int
) -> None:
    iceberg = lake.create(table.schema)
    files = append(iceberg, table, target_file_size=target)
    assert sum(file.data_file.record_count for file in files) == table.num_rows
    assert len({file.path for file in files}) == len(files)
    if not table.num_rows:
        assert files == []
        return
    # PyIceberg reads a NULL map as an empty one where its values are nested, of its own files too
    assert plain(read(iceberg)).replace("None", "[]") == plain(table).replace("None", "[]")
    parts = [pq.read_table(io.BytesIO(file.body)) for file in files]
    assert plain(pa.concat_tables(parts)) == plain(table)


def conditions(column: str, values: list[Any]) -> Iterator[tuple[BooleanExpression, Any]]:
    """Filters on a column, each with what it means in Python for a value."""
    yield IsNull(column), lambda v: v is None
    yield NotNull(column), lambda v: v is not None
    if any(isinstance(v, float) for v in values):
        yield IsNaN(column), lambda v: v is not None and math.isnan(v)
        yield NotNaN(column), lambda v: v is not None and not math.isnan(v)
    # infinity is beyond PyIceberg's idea of a float, and -0.0 and 0.0 differ in its sets
    present = [v for v in values if v is not None and not (isinstance(v, float) and not math.isfinite(v))]
    for value in present:
        literal = spelled(value)
        yield EqualTo(column, literal), compared(operator.eq, value)
        yield NotEqualTo(column, literal), compared(operator.ne, value)
        if isinstance(value, (bool, uuid.UUID)):
            continue
        if getattr(value, "year", 1000) in (1, 9999):  # PyIceberg computes a neighbour that is no date
            continue
        yield LessThanOrEqual(column, literal), compared(operator.le, value)
        yield GreaterThanOrEqual(column, literal), compared(operator.ge, value)
        yield LessThan(column, literal), compared(operator.lt, value)
        yield GreaterThan(column, literal), compared(operator.gt, value)
        if isinstance(value, str):
            yield (
                StartsWith(column, value[:3]),
                lambda v, start=value[:3]: v is not None and v.startswith(start),
            )
    several = [v for v in present if v != 0][:2]
    if len(several) == 2:
        yield In(column, [spelled(v) for v in several]), lambda v: v is not None and v in several


def compared(comparison: Any, value: Any) -> Any:
    return lambda v: v is not None and comparison(v, value)


def spelled(value: Any) -> Any:
    """A value as PyIceberg takes it in a filter."""
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value


def assert_filters_find_what_is_there(iceberg: Table, table: pa.Table, column: str) -> None:
    rows = table.select(["id", column]).to_pylist()
    for expression, holds in conditions(column, list(dict.fromkeys(row[column] for row in rows))):
        expected = [row["id"] for row in rows if holds(row[column])]
        assert read(iceberg, expression).column("id").to_pylist() == expected, expression


PARTITIONED: dict[str, list[str]] = {
    "booleans": ["c"],
    "ints": ["c", "bucket(3, c)", "truncate(10, c)"],
    "longs": ["c", "bucket(3, c)", "truncate(10, c)"],
    "floats": ["c"],
    "doubles": [],
    "decimals": ["c", "truncate(50, c)"],
    "long decimals": ["c", "truncate(50, c)"],
    "dates": ["c", "bucket(3, c)", "year(c)", "month(c)", "day(c)"],
    "times": ["c", "bucket(3, c)"],
    "timestamps": ["c", "bucket(3, c)", "year(c)", "month(c)", "day(c)", "hour(c)"],
    "instants": ["c", "bucket(3, c)", "year(c)", "month(c)", "day(c)", "hour(c)"],
    "texts": ["c", "bucket(3, c)", "truncate(2, c)"],
    "bytes": ["c", "bucket(3, c)"],
    "fixed": ["bucket(3, c)"],
    "uuids": ["bucket(3, c)"],
}


SAMPLED_PARTITIONS = some(
    [(name, by) for name, texts in PARTITIONED.items() for by in ["", "void(c)", *texts]], every=4
)


@pytest.mark.sweep(
    "texts-void(c)",
    "longs-c",
    "doubles-",
    "bytes-",
    "floats-void(c)",
    "uuids-",
    "times-",
    "timestamps-bucket(3, c)",
    "texts-truncate",
    "decimals",
    "timestamps-hour",
    "ints-bucket",
    "fixed-",
    "booleans-",
    "instants-year",
    "dates-day",
    "dates-void",
    "fixed-bucket(3, c)",
    "instants-c",
)
@pytest.mark.parametrize(("name", "partition_by"), SAMPLED_PARTITIONS)
def test_no_partition_value_hides_a_row(lake: Warehouse, name: str, partition_by: str) -> None:
    table = edge_table(name)
    iceberg = lake.create(table.schema, partition_by=[partition_by] if partition_by else [])
    append(iceberg, table, target_file_size=1 if not partition_by else 2**27)
    assert plain(read(iceberg)) == plain(table)
    assert_filters_find_what_is_there(iceberg, table, "c")


def footer(file: StagedFile) -> pq.FileMetaData:
    return pq.read_metadata(io.BytesIO(file.body))


def test_every_column_has_its_field_id_in_parquet_and_floats_neither_statistics_nor_dictionaries(
    lake: Warehouse,
) -> None:
    inner = [("x", pa.float64()), ("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.uuid()))]
    table = pa.table(
        {"id": [1], "s": pa.nulls(1, pa.struct(inner)), "d": pa.array([D(1)], pa.decimal128(9, 0))}
    )
    iceberg = lake.create(table.schema)
    (file,) = staged(iceberg, table)
    text = str(footer(file).schema)
    for field_id in iceberg.schema()._lazy_id_to_name:
        assert f"field_id={field_id} " in text
    assert "UUID" in text
    group = footer(file).row_group(0)
    found = [group.column(i) for i in range(group.num_columns)]
    assert [c.physical_type for c in found] == [
        "INT64",
        "DOUBLE",
        "BYTE_ARRAY",
        "BYTE_ARRAY",
        "FIXED_LEN_BYTE_ARRAY",
        "INT32",
    ]
    assert [c.is_stats_set for c in found] == [True, False, True, True, False, True]
    assert [c.has_dictionary_page for c in found] == [False, False, True, True, False, False]


@pytest.mark.sweep("properties0", "properties3", "properties4")
@pytest.mark.parametrize(
    ("properties", "codec"),
    [
        ({}, "ZSTD"),
        ({"write.parquet.compression-level": "9"}, "ZSTD"),
        ({"write.parquet.compression-codec": "gzip", "write.parquet.compression-level": "1"}, "GZIP"),
        ({"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "1"}, "SNAPPY"),
        ({"write.parquet.compression-codec": "LZ4"}, "LZ4"),
        ({"write.parquet.compression-codec": "uncompressed"}, "UNCOMPRESSED"),
    ],
)
def test_files_are_compressed_as_the_table_says(
    lake: Warehouse, properties: dict[str, str], codec: str
) -> None:
    table = pa.table({"id": [1], "c": ["a" * 1000]})
    iceberg = lake.create(table.schema, properties=properties)
    (file,) = append(iceberg, table)
    assert footer(file).row_group(0).column(1).compression == codec
    assert read(iceberg).to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    "properties",
    [{"write.parquet.compression-codec": "lzo"}, {"write.parquet.compression-level": "high"}],
    ids=str,
)
def test_a_compression_that_cannot_be_is_refused(lake: Warehouse, properties: dict[str, str]) -> None:
    table = pa.table({"id": [1]})
    with pytest.raises(UnsupportedTableError, match=next(iter(properties))):
        staged(lake.create(table.schema, properties=properties), table)


def test_columns_whose_names_become_alike_in_parquet_are_told_apart(lake: Warehouse) -> None:
    kind = pa.struct([("x.y", pa.int64()), ("x_x2Ey", pa.int64())])
    table = pa.table(
        {"id": [1], "a.b": ["dot"], "a_x2Eb": ["spelled"], "1 ü": pa.array([{"x.y": 1, "x_x2Ey": 2}], kind)}
    )
    iceberg = lake.create(table.schema)
    append(iceberg, table)
    assert read(iceberg).to_pylist() == table.to_pylist()
    assert read(iceberg, EqualTo("a_x2Eb", "spelled")).num_rows == 1


def test_each_file_is_in_the_tables_sort_order_and_says_so(lake: Warehouse) -> None:
    table = pa.table({"p": ["a", "b"] * 50, "id": [(i * 37) % 100 for i in range(100)]})
    iceberg = lake.create(table.schema, partition_by=["p"], sort_by=["id desc"])
    files = append(iceberg, table, target_file_size=300)
    assert len(files) > 2
    for file in files:
        ids = pq.read_table(io.BytesIO(file.body)).column("id").to_pylist()
        assert ids == sorted(ids, reverse=True)
        assert file.data_file.sort_order_id == iceberg.metadata.default_sort_order_id == 1
    assert read(iceberg).column("id").to_pylist() == list(range(100))
    whole = lake.create(table.schema, sort_by=["id"])
    (one,) = staged(whole, table)
    assert pq.read_table(io.BytesIO(one.body)).column("id").to_pylist() == list(range(100))
    (swapped,) = staged(whole, pa.table({"p": ["a"] * 4, "id": [0, 2, 1, 3]}))  # ends are where they were
    assert pq.read_table(io.BytesIO(swapped.body)).column("id").to_pylist() == [0, 1, 2, 3]
    (unsorted,) = staged(lake.create(table.schema), table)
    assert unsorted.data_file.sort_order_id is None
    assert pq.read_table(io.BytesIO(unsorted.body)).column("id").to_pylist() == table.column("id").to_pylist()


def test_partitions_with_odd_names_and_long_values_have_paths_and_are_found_again(lake: Warehouse) -> None:
    values = ["x" * 500, "x" * 500 + "y", "a/b=c", "..", "%", "ü ñ", "", "null", None]
    odd = "ü /=.%"
    table = pa.table({"id": range(len(values)), odd: values})
    iceberg = lake.create(table.schema, partition_by=[odd, f"bucket(2, {odd})", f"truncate(3, {odd})"])
    files = append(iceberg, table)
    assert len(files) == len(values)
    for file in files:
        below = local(file.path).relative_to(local(iceberg.location()) / "data")
        assert len(below.parts) == 4
        assert all(len(part.encode()) < 256 for part in below.parts)
    assert plain(read(iceberg)) == plain(table)
    for row in table.to_pylist():
        found = read(iceberg, IsNull(odd) if row[odd] is None else EqualTo(odd, row[odd]))
        assert found.to_pylist() == [row]


def test_paths_of_two_writes_never_meet(lake: Warehouse) -> None:  # B1, C10
    table = pa.table({"id": [1]})
    for properties in ({}, {"write.object-storage.enabled": "true"}):
        iceberg = lake.create(table.schema, properties=properties)
        paths = [f.path for write_id in ("w1", "w2") for f in staged(iceberg, table, write_id=write_id)]
        assert len(set(paths)) == 2
        assert all(path.startswith(f"{iceberg.location()}/data/") for path in paths)


def test_a_file_holds_about_as_many_bytes_as_asked_for(lake: Warehouse) -> None:
    numbers = np.random.default_rng(7).integers(0, 2**62, 100_000)
    files = staged(lake.create(pa.schema([("id", pa.int64())])), {"id": numbers}, target_file_size=200_000)
    assert len(files) > 2
    assert all(150_000 < len(file.body) < 450_000 for file in files[:-1])


def test_nanoseconds_of_a_table_of_version_3_are_kept() -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "c", TimestampNanoType()),
        NestedField(3, "z", TimestamptzNanoType()),
    )
    spec = partitions.spec(["hour(c)"], schema)
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", {"format-version": "3"})
    moments = pa.array([1, -1, 2**62, None], pa.timestamp("ns"))
    table = pa.table({"id": range(4), "c": moments, "z": moments.cast(pa.timestamp("ns", tz="UTC"))})
    files = list(
        encode(
            prepare(table, arrow_schema(metadata.schema())),
            metadata=metadata,
            location=load_location_provider(metadata.location, {}),
            write_id="w",
            target_file_size=2**20,
        )
    )
    assert [file.data_file.partition[0] for file in files] == [0, -1, 2**62 // 3_600_000_000_000, None]
    found = pa.concat_tables([pq.read_table(io.BytesIO(file.body)) for file in files])
    for name in ("c", "z"):
        assert found.column(name).cast(pa.int64()).to_pylist() == [1, -1, 2**62, None]


def test_partition_values_that_pyiceberg_misreads_are_refused(lake: Warehouse) -> None:
    table = pa.table({"c": [0.1]})
    with pytest.raises(InvalidInputError, match="rounded to 32 bits"):
        lake.create(table.schema, partition_by=["c"])
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))
    with pytest.raises(UnsupportedTableError, match="rounded to 32 bits"):
        staged(lake.catalog.create_table("db.t", iceberg_schema(table.schema), partition_spec=spec), table)
    with pytest.raises(InvalidInputError, match="finds no row"):
        lake.create(pa.schema([("c", pa.uuid())]), partition_by=["c"])


def test_a_value_without_a_partition_value_stops_the_write_before_its_first_file(lake: Warehouse) -> None:
    table = pa.table({"id": pa.array([5, -(2**63)], pa.int64())})
    iceberg = lake.create(table.schema, partition_by=["truncate(10, id)"])
    with pytest.raises(WouldAlterError, match=r"'id'.*truncate"):
        staged(iceberg, table)


def test_rows_that_go_missing_on_the_way_are_noticed(
    lake: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:  # H5, H10: what pandas' groupby does to NULL keys
    table = pa.table({"id": [1, 2, 3], "c": ["a", None, "a"]})
    iceberg = lake.create(table.schema, partition_by=["c"])
    every = datafiles.groups
    monkeypatch.setattr(datafiles, "groups", lambda *given: every(*given)[:1])
    with pytest.raises(InternalError, match="3 rows were given and 2 encoded"):
        staged(iceberg, table)


def test_rows_prepared_for_another_schema_are_not_written(lake: Warehouse) -> None:
    iceberg = lake.create(pa.schema([("id", pa.int64())]))
    wide = iceberg_schema(pa.schema([("id", pa.int64()), ("new", pa.string())]))
    location = load_location_provider(iceberg.location(), {})
    prepared = prepare({"id": [1], "new": ["x"]}, arrow_schema(wide))
    common: dict[str, Any] = {"location": location, "write_id": "w", "target_file_size": 2**20}
    with pytest.raises(InternalError, match="new: string"):
        list(encode(prepared, metadata=iceberg.metadata, **common))
    (file,) = encode(prepared, metadata=iceberg.metadata, schema=wide, **common)
    assert pq.read_table(io.BytesIO(file.body)).to_pylist() == [{"id": 1, "new": "x"}]


@pytest.mark.parametrize("options", [{"write_id": "a/b"}, {"write_id": ""}, {"target_file_size": 0}], ids=str)
def test_settings_that_make_no_file_are_refused(lake: Warehouse, options: dict[str, Any]) -> None:
    table = pa.table({"id": [1]})
    with pytest.raises(InvalidInputError):
        staged(lake.create(table.schema), table, **options)
