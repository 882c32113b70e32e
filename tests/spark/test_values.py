"""Every value that safewrite writes, as Spark reads it."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.servers import Ministack
from tests.integration.places import Place
from tests.spark.session import Spark, to_folder

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "tiny": (pa.int8(), [-128, 127, None, 0]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1, None, 0]),
    "middle": (pa.int32(), [-(2**31), 2**31 - 1, None, 0]),
    "large": (pa.int64(), [-(2**63), 2**63 - 1, None, 2**53 + 1]),
    "single": (pa.float32(), [NAN, -0.0, None, 1.5]),
    "double": (pa.float64(), [NAN, -0.0, INF, 0.1]),
    "price": (pa.decimal128(10, 2), [Decimal("-99999999.99"), Decimal("0.01"), None, Decimal("0.00")]),
    "exact": (
        pa.decimal128(38, 18),
        [Decimal("-12345678901234567890.123456789012345678"), Decimal("1e-18"), None, Decimal(0)],
    ),
    "text": (pa.string(), ["", "Zürich 日本 \U0001f600\x00\n'\"\\", None, "NULL"]),
    "raw": (pa.binary(), [b"", b"\x00\xff", None, b"abc"]),
    "flag": (pa.bool_(), [True, False, None, True]),
    "day": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), None, dt.date(1582, 10, 4)]),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [
            dt.datetime(1677, 9, 21, 0, 12, 43, 1, tzinfo=UTC),
            dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
            None,
            dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC),
        ],
    ),
    "clock": (
        pa.timestamp("us"),
        [dt.datetime(1900, 1, 1), dt.datetime(2262, 4, 12), None, dt.datetime(2026, 3, 29, 2, 30, 0, 1)],
    ),
    "numbers": (pa.list_(pa.int64()), [[], [1, None, -3], None, [2**62]]),
    "point": (
        pa.struct({"x": pa.float64(), "note": pa.struct({"text": pa.string()})}),
        [{"x": NAN, "note": None}, {"x": None, "note": {"text": ""}}, None, {"x": -0.0, "note": {"text": None}}],
    ),
    "labels": (pa.map_(pa.string(), pa.int32()), [[], [("a", 1), ("", None)], None, [("ß", -1)]]),
    "deep": (
        pa.list_(pa.struct({"tags": pa.map_(pa.string(), pa.list_(pa.date32()))})),
        [[], [None, {"tags": [("a", [None, dt.date(2026, 1, 1)])]}], None, [{"tags": None}]],
    ),
}  # fmt: skip

PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["50%", "a/b=c d", "Zürich 日本\U0001f600", "%2F", "x" * 240, ".", None, "é:?#&"]),
    "day": (pa.date32(), [dt.date(2026, 2, 28), None, dt.date(1970, 1, 1), dt.date(1, 1, 1)] * 2),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(2026, 3, 29, 1, 30, 0, 123_456, UTC), None, dt.datetime(1969, 12, 31, tzinfo=UTC)] * 2
        + [dt.datetime(2026, 10, 25, 0, 30, tzinfo=UTC), dt.datetime(2026, 10, 25, 1, 30, tzinfo=UTC)],
    ),
    "clock": (pa.timestamp("us"), [dt.datetime(2026, 3, 29, 2, 30), None, dt.datetime(1, 1, 1, 0, 0, 0, 1)] * 2
              + [None, None]),
    "price": (pa.decimal128(20, 4), [Decimal(-3), None, Decimal("1234567890123456.7890"), Decimal("0.0001")] * 2),
    "flag": (pa.bool_(), [True, False, None, True] * 2),
    "ratio": (pa.float64(), [NAN, -INF, 0.1, None, 1e300, 5e-324, -1.5, 3.0]),
    "number": (pa.int64(), [-(2**63), 2**63 - 1, None, 0] * 2),
}  # fmt: skip


def frame(columns: dict[str, tuple[pa.DataType, list[Any]]]) -> pa.Table:
    """The columns, and an ``id`` that counts the rows."""
    arrays = {name: pa.array(values, kind) for name, (kind, values) in columns.items()}
    count = len(next(iter(arrays.values())))
    return pa.table({"id": pa.array(range(count), pa.int64()), **arrays})


def spelled(table: pa.Table) -> dict[str, list[str]]:
    """Values as text, by column: NaN equals NaN there, and -0.0 does not equal 0.0."""
    return {name: [_spell(value) for value in table[name].to_pylist()] for name in table.column_names}


def _spell(value: Any) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    return repr(value)


@pytest.mark.parametrize("name", COLUMNS)
def test_spark_reads_every_type_value_by_value(everything: tuple[pa.Table, pa.Table], name: str) -> None:
    written, read = everything
    assert spelled(read.select([name])) == spelled(written.select([name]))


@pytest.fixture(scope="module")
def everything(spark: Spark, tmp_path_factory: pytest.TempPathFactory) -> tuple[pa.Table, pa.Table]:
    """All columns, as written by two appends, and as Spark reads them."""
    root = tmp_path_factory.mktemp("types") / "table"
    written = frame(COLUMNS)
    table = sw.create(str(root), written.schema)
    table.append(written.slice(0, 2))
    table.append(written.slice(2))
    return written, spark.read(root)


def test_spark_sees_the_types_that_the_frame_had(everything: tuple[pa.Table, pa.Table]) -> None:
    written, read = everything
    plain = pa.schema([field.with_type(_plain(field.type)) for field in read.schema])
    assert dict(zip(plain.names, plain.types, strict=True)) == dict(
        zip(written.schema.names, map(_plain, written.schema.types), strict=True)
    )


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type with fields that have no names of their own and may be NULL: Arrow, Delta and Spark differ there."""
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind.fields])
    return pa.timestamp("us", tz="UTC") if pa.types.is_timestamp(kind) and kind.tz else kind


def test_spark_reads_partition_values_of_every_type(
    spark: Spark, ministack: Ministack, bucket: str, tmp_path: Path
) -> None:
    """H5: on S3, where names of directories are object keys; NULL, signs, slashes and long texts."""
    place = Place(f"s3://{bucket}/odd names/t", "object-store", ministack.storage_options())
    written = frame(PARTITIONS)
    place.open(create=True, partition_by=tuple(PARTITIONS)).append(written)
    read = spark.read(to_folder(place.objects(), tmp_path))
    assert spelled(read.select(written.column_names)) == spelled(written)


@pytest.mark.long
def test_spark_finds_rows_by_their_partition_values(spark: Spark, tmp_path: Path) -> None:
    """Spark prunes by its own parsing of what the log spells."""
    written = frame(PARTITIONS)
    sw.open(str(tmp_path / "t"), create=True, partition_by=tuple(PARTITIONS)).append(written)
    filters = {
        "text = '50%'": [0], "text = 'a/b=c d'": [1], "text = '%2F'": [3], "text IS NULL": [6], "text = '.'": [5],
        "day = DATE'0001-01-01'": [3, 7], "day IS NULL": [1, 5],
        "moment = TIMESTAMP'2026-03-29T01:30:00.123456Z'": [0, 3], "moment IS NULL": [1, 4],
        "moment = TIMESTAMP'2026-10-25T00:30:00Z'": [6], "moment > TIMESTAMP'2026-10-25T00:30:00Z'": [7],
        "clock = TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'": [2, 5], "clock > TIMESTAMP_NTZ'2026-03-29 02:29:59'": [0, 3],
        "price = 1234567890123456.7890": [2, 6], "price < 0": [0, 4],
        "flag": [0, 3, 4, 7], "flag IS NULL": [2, 6], "NOT flag": [1, 5],
        "ratio = 'NaN'": [0], "ratio < 0": [1, 6], "ratio = 5e-324D": [5],
        "number = -9223372036854775808": [0, 4], "number = 9223372036854775807": [1, 5],
    }  # fmt: skip
    assert spark.filtered(tmp_path / "t", list(filters)) == filters
