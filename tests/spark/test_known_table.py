"""Where Iceberg's library writes, the table that a session has loaded serves several batches; no one goes by an old state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.iceberg.spark import files
from safewrite.iceberg.spark import write as iceberg_spark
from safewrite.iceberg.table import IcebergTable
from tests.integration.places import once
from tests.servers import object_at
from tests.spark.lake import Lake
from tests.spark.session import Spark

SCHEMA = pa.schema([("id", pa.int64())])
BY_LIBRARY = "bucket(100, id)"
"""A partitioning that Iceberg's library writes."""


@pytest.fixture(scope="module")
def cached(lakes: Callable[[CatalogKind], Lake]) -> Iterator[Lake]:
    """A catalog whose tables the session remembers, as it does where nobody asks for less."""
    lake = lakes("rest")
    name = f"{lake.name}_cached"
    lake.spark.know(name, lake.properties)
    with lake.spark.setting(f"spark.sql.catalog.{name}.cache-enabled", "true"):
        yield Lake(lake.kind, name, lake.properties, lake.namespace, lake.spark, lake.closing)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The catalogs that were asked for the table by Java, one entry for each time."""
    asked: list[str] = []

    def counted(*arguments: Any) -> Any:
        asked.append(arguments[1])
        return load(*arguments)

    load = files._load
    monkeypatch.setattr(files, "_load", counted)
    return asked


def append(spark: Spark, table: IcebergTable, *ids: int) -> sw.Receipt:
    with spark.careless():
        return table.append(
            spark.session.createDataFrame([(number,) for number in ids], "id long").coalesce(1)
        )


@pytest.mark.long
def test_the_session_reads_each_batch_at_once_though_it_remembers_tables(
    spark: Spark, cached: Lake, loads: list[str]
) -> None:
    by_tasks, by_library = cached.create(SCHEMA), cached.create(SCHEMA, partition_by=[BY_LIBRARY])
    for number in range(3):
        for table in (by_tasks, by_library):
            append(spark, table, number)
            assert spark.ids({"t": cached.sql(table)}) == {"t": once(*range(number + 1))}
    assert loads == [cached.name], "it was loaded for the first batch by the library alone"


def test_what_another_writer_changed_of_the_table_holds_for_the_next_batch(
    spark: Spark, cached: Lake, ministack: Ministack, loads: list[str]
) -> None:
    table, other = cached.create(SCHEMA, partition_by=[BY_LIBRARY]), cached.load()
    append(spark, table, 1)
    changed = other.load_table(table.uri)
    changed.transaction().set_properties({"write.parquet.compression-codec": "gzip"}).commit_transaction()
    table.refresh()
    append(spark, table, 2)
    changed = other.load_table(table.uri)
    with changed.update_spec() as update:
        update.add_identity("id")
    table.refresh()
    append(spark, table, 3)
    found = list(other.load_table(table.uri).scan().plan_files())
    codecs = sorted(codec_of(task.file.file_path, ministack) for task in found)
    assert codecs == ["GZIP", "GZIP", "ZSTD"]
    assert sorted(task.file.spec_id for task in found) == [0, 0, 1]
    assert len({str(task.file.partition) for task in found}) == 3
    assert len(loads) == 3
    assert spark.ids({"t": cached.sql(table)}) == {"t": once(1, 2, 3)}


@pytest.mark.long
def test_a_table_made_anew_under_its_name_is_not_taken_for_the_old_one(spark: Spark, cached: Lake) -> None:
    table = cached.create(SCHEMA)
    append(spark, table, 1)
    catalog = cached.load()
    catalog.drop_table(table.uri)
    catalog.create_table(table.uri, SCHEMA)
    with pytest.raises(sw.ConflictError, match="Open it again"):
        table.refresh()
    append(spark, sw.open(table.uri, catalog=catalog), 2)
    assert spark.ids({"t": cached.sql(table)}) == {"t": once(2)}


@pytest.mark.long
def test_a_loaded_table_serves_for_a_time(
    spark: Spark, cached: Lake, loads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = cached.create(SCHEMA, partition_by=[BY_LIBRARY])
    append(spark, table, 1)
    monkeypatch.setattr(iceberg_spark, "KNOWN_S", -1.0)
    append(spark, table, 2)
    assert loads == [cached.name] * 2


def codec_of(location: str, ministack: Ministack) -> str:
    """How the columns of a data file are compressed."""
    body = ministack.boto3_client("s3").get_object(**object_at(location))["Body"]
    return str(pq.read_metadata(pa.BufferReader(body.read())).row_group(0).column(0).compression)
