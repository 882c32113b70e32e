"""The stress run's reader by Spark: a child process, the whole table, every value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bench.servers.catalogs import CatalogKind
from bench.stress.spark_reader import SparkReadError, catalog_settings, iceberg_rows
from safewrite.testing.checker import Read
from safewrite.testing.history import COLUMNS, Row, make_rows
from tests.spark.lake import Lake

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.long]

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "writer": pa.int64(),
        "seq": pa.int64(),
        "key": pa.string(),
        "amount": pa.float64(),
        "text": pa.string(),
        "day": pa.date32(),
        "check": pa.int64(),
    }
)


def columns(rows: list[Row]) -> dict[str, list[object]]:
    return {name: [getattr(row, name) for row in rows] for name in COLUMNS}


def test_the_rows_of_a_stress_table_are_read_as_they_were_written(
    lakes: Callable[[CatalogKind], Lake],
) -> None:
    lake = lakes("sql")
    table = lake.create(SCHEMA, partition_by=["day"])
    written = [make_rows(7, writer=1, seq=seq, count=20, key=f"k{seq}") for seq in range(2)]
    for rows in written:
        table.append(pa.table(columns(rows), schema=SCHEMA))
    properties = lake.properties | {"name": lake.name}
    found = iceberg_rows(properties, table.uri).sort_by("id")
    expected = columns([row for rows in written for row in rows])
    assert found.to_pydict() == expected
    assert Read.of("spark", found.to_pydict()).computed == tuple(expected["check"])


def test_what_the_child_says_when_it_fails_is_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAFEWRITE_JARS", str(tmp_path))
    with pytest.raises(SparkReadError, match="make jars"):
        iceberg_rows({"type": "rest", "uri": "http://127.0.0.1:1", "warehouse": "s3://bucket"}, "ns.t")


def test_a_catalog_without_a_driver_is_refused() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        catalog_settings("lab", {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "s3://bucket"})
