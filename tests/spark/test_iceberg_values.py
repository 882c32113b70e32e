"""Every value that safewrite writes to Iceberg tables, under every partitioning, as Spark reads it."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench.servers.catalogs import CatalogKind
from safewrite.iceberg.table import IcebergTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.test_values import COLUMNS, frame, spelled

NAN = float("nan")
UTC = dt.UTC
UUIDS = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), None, uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")]
KINDS = COLUMNS | {
    "fixed": (pa.binary(4), [b"\x00\x00\x00\x00", b"\xff\xfe\xfd\xfc", None, b"abcd"]),
    "uuid": (pa.uuid(), [None if one is None else one.bytes for one in UUIDS]),
}

VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["", None, "50%/ü=\U0001f600", "x" * 300, "abc", "NULL"]),
    "single": (pa.float32(), [NAN, None, -0.0, 0.0, 1.5, float("-inf")]),
    "number": (pa.int64(), [-(2**63) + 8, None, 2**63 - 1, -1, 0, 10]),
    "price": (pa.decimal128(20, 4), [Decimal("-0.0001"), None, Decimal("1234567890123456.7890"), Decimal(0), Decimal(-3), Decimal(3)]),
    "day": (pa.date32(), [dt.date(1969, 12, 31), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(2026, 2, 28)]),
    "moment": (
        pa.timestamp("us", tz="UTC"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), None, dt.datetime(1, 1, 1, 0, 0, 0, 1, UTC),
         dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), dt.datetime(1970, 1, 1, tzinfo=UTC), dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC)],
    ),
    "clock": (
        pa.timestamp("us"),
        [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), None, dt.datetime(1900, 1, 1), dt.datetime(2262, 4, 12),
         dt.datetime(1970, 1, 1), dt.datetime(2026, 3, 29, 2, 30)],
    ),
    "flag": (pa.bool_(), [True, None, False, True, False, True]),
    "raw": (pa.binary(), [b"", None, b"\x00\xff", b"\xff", b"abc", b"abcd"]),
    "point": (
        pa.struct({"x": pa.int32(), "name": pa.string()}),
        [{"x": 1, "name": ""}, None, {"x": None, "name": None}, {"x": -1, "name": "a"}, {"x": 0, "name": "ab"}, {"x": 7, "name": "é"}],
    ),
}  # fmt: skip
LAYOUTS: dict[str, list[str]] = {
    "as they are": ["text", "number", "price", "day", "moment", "clock", "flag", "raw", "point.name"],
    "buckets": [f"bucket(3, {name})" for name in ("text", "number", "price", "day", "moment", "clock", "raw", "point.x")],
    "cut": ["truncate(2, text)", "truncate(10, number)", "truncate(100, price)", "truncate(2, raw)", "truncate(1, point.name)"],
    "years": ["year(day)", "year(moment)", "year(clock)"],
    "months": ["month(day)", "month(moment)", "month(clock)"],
    "days": ["day(day)", "day(moment)", "day(clock)", "void(text)"],
    "hours": ["hour(moment)", "hour(clock)"],
    "none": [],
}  # fmt: skip

FILTERS: dict[str, list[int]] = {
    "text = ''": [0], "text IS NULL": [1], "text = '50%/ü=\U0001f600'": [2], "text LIKE 'ab%'": [4], "text > 'abb'": [3, 4],
    "single = float('NaN')": [0], "single > float(5)": [0], "single = float(0)": [2, 3], "single < float(0)": [5],
    "number < 0": [0, 3], "number >= 9223372036854775807": [2], "number = -1": [3], "number BETWEEN 0 AND 10": [4, 5],
    "price < 0": [0, 4], "price = -0.0001": [0], "price > 3": [2],
    "day <= DATE'1969-12-31'": [0, 2], "day >= DATE'1970-01-01'": [3, 4, 5], "day IS NULL": [1],
    "moment < TIMESTAMP'1970-01-01T00:00:00Z'": [0, 2], "moment = TIMESTAMP'9999-12-31T23:59:59.999999Z'": [3],
    "clock <= TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'": [0, 2], "clock = TIMESTAMP_NTZ'2026-03-29 02:30:00'": [5],
    "flag": [0, 3, 5], "NOT flag": [2, 4], "flag IS NULL": [1],
    "raw = X''": [0], "raw > X'61'": [3, 4, 5], "point.x >= 0": [0, 4, 5], "point.name = ''": [0], "point.name LIKE 'a%'": [3, 4],
    "point.name IS NULL": [1, 2],
}  # fmt: skip


@pytest.fixture(scope="module")
def lake(lakes: Callable[[CatalogKind], Lake]) -> Lake:
    return lakes("rest")


@pytest.mark.sweep("1")
@pytest.mark.parametrize("version", ["1", "2"])
def test_spark_and_pyiceberg_read_every_type_value_by_value(spark: Spark, lake: Lake, version: str) -> None:
    written = frame(KINDS)
    table = lake.create(written.schema, properties={"format-version": version})
    table.append(written.slice(0, 2))
    table.append(written.slice(2))
    expected = spelled(written)
    simple = [name for name in written.column_names if name != "deep"]  # PyIceberg takes its NULL for []
    found = table.iceberg.scan().to_arrow().sort_by("id")
    assert spelled(found.select(simple)) == {name: expected[name] for name in simple}
    # Spark has no such type; it shows them as text.
    expected["uuid"] = [repr(None if one is None else str(one)) for one in UUIDS]
    assert spelled(spark.read(lake.sql(table))) == expected


@pytest.fixture(scope="module")
def layouts(lake: Lake) -> dict[str, IcebergTable]:
    """A table of each partitioning, all with the same rows; every other one has the older format version."""
    written = frame(VALUES)
    found = {}
    for number, (name, partition_by) in enumerate(LAYOUTS.items()):
        found[name] = lake.create(
            written.schema,
            partition_by=partition_by,
            properties={"format-version": str(number % 2 + 1)},
            sort_by=["number desc nulls last", "bucket(4, text)"] if number % 3 == 0 else (),
        )
        found[name].append(written)
    return found


@pytest.mark.long
def test_spark_reads_the_rows_of_every_partitioning(
    spark: Spark, lake: Lake, layouts: dict[str, IcebergTable]
) -> None:
    """H5: NULL, NaN, both zeros and the empty text among the partition values."""
    parts = [f"SELECT '{name}' AS layout, * FROM {lake.sql(table)}" for name, table in layouts.items()]
    found = spark.sql(" UNION ALL ".join(parts)).sort_by("id")
    expected = spelled(frame(VALUES))
    for name, table in layouts.items():
        rows = found.filter(pc.equal(found["layout"], name)).drop_columns(["layout"])
        assert spelled(rows) == expected, name
        assert spelled(table.iceberg.scan().to_arrow().sort_by("id")) == expected, name


@pytest.mark.long
def test_spark_finds_rows_by_values_that_partitions_are_made_of(
    spark: Spark, lake: Lake, layouts: dict[str, IcebergTable]
) -> None:
    """Spark prunes by partition values first, and by metrics then."""
    for name, table in layouts.items():
        columns = tuple(re.findall(r"([a-z.]+)\)?$", text)[0] for text in LAYOUTS[name])
        filters = {
            text: ids for text, ids in FILTERS.items() if text.removeprefix("NOT ").startswith(columns)
        }
        if filters:
            assert spark.filtered(lake.sql(table), list(filters)) == filters, name


@pytest.mark.long
def test_of_partitions_of_floats_spark_loses_nan_as_it_does_in_tables_of_its_own(
    spark: Spark, lake: Lake
) -> None:
    """Iceberg's Java library looks for no NaN above a number in partitions, so no file could help it.

    It takes the column from the manifests, where both zeros are one partition, and so one value.
    """
    written = frame({"single": VALUES["single"]})
    table = lake.create(written.schema, partition_by=["single"])
    table.append(written)
    filters = {text: ids for text, ids in FILTERS.items() if text.startswith("single")}
    found = spark.filtered(lake.sql(table), list(filters))
    assert found == filters | {"single > float(5)": []}
    assert spelled(spark.read(lake.sql(table)))["single"] == ["nan", "None", "0.0", "0.0", "1.5", "-inf"]

    own = lake.sql(lake.new())
    spark.run(f"CREATE TABLE {own} (id BIGINT, single FLOAT) USING iceberg PARTITIONED BY (single)")
    spark.run(f"INSERT INTO {own} VALUES (0, float('NaN')), (5, float('-Infinity'))")
    assert spark.filtered(own, ["single > float(5)"]) == {"single > float(5)": []}
    assert spark.ids({"t": own}) == {"t": Counter([0, 5])}
