"""Spark's upkeep of Iceberg tables beside safewrite's appends, and what it makes of wrong clocks."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from tenacity import Retrying, retry_if_exception, stop_after_attempt

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write.merging import COUNT_MIN
from safewrite.medallion import Pipeline, verify
from safewrite.protocol.effects import Effect, Ok, Outcome, WallClock
from tests.medallion.test_evolution import put, shop
from tests.medallion.test_jobs import HEAD
from tests.medallion.test_lead_over import earlier_release
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.test_iceberg_writers import OURS, appending, ours, rows, settings

pytestmark = pytest.mark.long

HOUR_S = 3600.0


@pytest.mark.parametrize("kind", ["sql", "rest"])
def test_upkeep_beside_appends_loses_no_row_and_forgets_no_key(
    spark: Spark,
    lakes: Callable[[CatalogKind], Lake],
    ministack: Ministack,
    dynamodb_table: str,
    kind: CatalogKind,
) -> None:
    """Keys outlive the snapshots that carried them: in the catalog's database, or in the lock table."""
    lake = lakes(kind)
    options: dict[str, Any] = {}
    if kind == "rest":
        options = {"lock_table": dynamodb_table, "storage_options": ministack.storage_options()}
    table = lake.create(rows().schema, properties=settings("copy-on-write"), **options)
    table.append(rows(0), key="first")
    for number in range(1, 4):
        table.append(rows(number))
    with appending(lake, table, **options):
        for _ in range(2):
            rewrite(spark, lake, table)
    expected = OURS + Counter(range(4))
    assert spark.ids({"t": lake.sql(table)}) == {"t": expected}
    snapshots = spark.sql(f"SELECT * FROM {lake.sql(table)}.snapshots")
    assert snapshots.num_rows < len(OURS) / 2
    again = lake.open(table.uri, **options)
    receipts = [again.append(rows(0), key="first"), again.append(rows(ours(0, 0), ours(0, 0) + 1), key="0-0")]
    assert [receipt.outcome for receipt in receipts] == ["already_committed"] * 2
    with pytest.raises(sw.ReplayMismatchError):
        again.append(rows(77), key="first")
    assert orphans(spark, lake, table), "files that upkeep replaced"
    assert spark.ids({"t": lake.sql(table)}) == {"t": expected}


def test_java_reads_and_expires_what_commits_of_changes_merged(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    """Data and delete manifests, merged again and again between deletes, upkeep and expiry by Spark."""
    lake = lakes("sql")
    schema = pa.schema([("id", pa.int64()), ("seq", pa.int64())])
    properties = {**settings("merge-on-read"), COUNT_MIN: "3"}
    table = lake.create(schema, properties=properties)
    expected: dict[int, int] = {}

    def change(*ids: int, seq: int) -> None:
        given = pa.table({"id": list(ids), "seq": [seq] * len(ids)}, schema=schema)
        table.apply_changes(given, keys=["id"], sequence_by="seq")
        expected.update(dict.fromkeys(ids, seq))

    for turn in range(3):
        for number in range(4):
            change(10 * turn + number, 10 * turn + number + 1, 20 + number, seq=1 + 4 * turn + number)
        assert found(spark, lake, table) == expected
        spark.run(f"DELETE FROM {lake.sql(table)} WHERE id = {10 * turn + 1}")
        del expected[10 * turn + 1]
        spark.run(
            f"CALL {lake.name}.system.expire_snapshots(table => '{table.uri}', "
            "older_than => TIMESTAMP'2100-01-01 00:00:00', retain_last => 1)"
        )
        change(100 + turn, seq=50)
        assert found(spark, lake, table) == expected
    manifests = spark.sql(
        f"SELECT content, existing_data_files_count, existing_delete_files_count FROM {lake.sql(table)}.manifests"
    )
    assert manifests.num_rows < 8
    assert {row["content"] for row in manifests.to_pylist()} == {0, 1}


def found(spark: Spark, lake: Lake, table: IcebergTable) -> dict[int, int]:
    """The sequence of each row's last change; each id once."""
    rows_there = spark.sql(f"SELECT id, seq FROM {lake.sql(table)}").to_pylist()
    assert len(rows_there) == len({row["id"] for row in rows_there})
    return {row["id"]: row["seq"] for row in rows_there}


def test_spark_reads_changes_and_rewrites_a_bronze_of_a_medallion_job(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], tmp_path: Path
) -> None:
    """T4-C1: also one that an earlier release made, with a column of a name that Iceberg keeps."""
    lake = lakes("sql")
    job = shop(tmp_path, "iceberg")
    job.config["catalog"] = {"name": lake.name} | lake.properties
    bronze, silver = lake.new(), lake.new()
    job.config["defaults"] |= {"bronze": bronze, "silver": silver}
    put(job, 1, HEAD + "I,1,1.00,10\n")
    with earlier_release():
        assert job.run().ok
    put(job, 2, HEAD + "I,2,2.00,20\n")
    assert job.run().ok
    spark.run(f"REFRESH TABLE {lake.sql(bronze)}")
    found = {
        row["id"]: row["_raw_file"] for row in spark.sql(f"SELECT * FROM {lake.sql(bronze)}").to_pylist()
    }
    assert found == {number: f"shop/orders/20261101-00000{number}000.csv" for number in (1, 2)}
    spark.run(
        f"CALL {lake.name}.system.rewrite_data_files(table => '{bronze}', options => map('min-input-files', '2'))"
    )
    put(job, 3, HEAD + "D,1,,30\n")
    assert job.run().ok
    assert [one.clean for one in verify(Pipeline(job.config))] == [True]
    spark.run(f"DELETE FROM {lake.sql(bronze)} WHERE id = 2")


def rewrite(spark: Spark, lake: Lake, table: IcebergTable) -> None:
    """All that a nightly job does; snapshots are expired as early as can be."""
    call, name = f"CALL {lake.name}.system", f"table => '{table.uri}'"
    spark.run(
        f"{call}.rewrite_data_files({name}, options => map('min-input-files', '2', "
        "'max-concurrent-file-group-rewrites', '1'))"
    )
    for attempt in Retrying(retry=retry_if_exception(is_outrun), stop=stop_after_attempt(20), reraise=True):
        with attempt:
            spark.run(f"{call}.rewrite_manifests({name})")
    spark.run(
        f"{call}.expire_snapshots({name}, older_than => TIMESTAMP'2100-01-01 00:00:00', retain_last => 1)"
    )
    spark.run(f"{call}.remove_orphan_files({name}, prefix_listing => true)")


def is_outrun(error: BaseException) -> bool:
    """Whether an append replaced a manifest that Java's library was to replace: it says so, and does nothing."""
    return "could not be found in the latest snapshot" in str(error)


def orphans(spark: Spark, lake: Lake, table: IcebergTable) -> list[str]:
    """Remove, while nobody writes, whatever Java's library takes for no part of the table, however young."""
    jvm = spark.session.sparkContext._jvm
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark.session._jsparkSession)
    java = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark.session._jsparkSession, lake.sql(table)
    )
    older_than_ms = int((time.time() + HOUR_S) * 1000)
    action = actions.deleteOrphanFiles(java).usePrefixListing(True).olderThan(older_than_ms)
    return list(action.execute().orphanFileLocations())


# --- clocks ---------------------------------------------------------------------------------------
class Behind:
    """A world whose wall clock is an hour late."""

    def __init__(self, world: Any) -> None:
        self.world = world

    def perform(self, effect: Effect) -> Outcome:
        outcome: Outcome = self.world.perform(effect)
        if not isinstance(effect, WallClock):
            return outcome
        assert isinstance(outcome, Ok)
        assert isinstance(outcome.value, int)
        return Ok(outcome.value - int(HOUR_S * 1000))


def test_a_writer_whose_clock_is_an_hour_late_does_not_make_the_table_unreadable(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    """A10: Java's library reads no table whose history goes back by more than a minute."""
    lake = lakes("sql")
    table = lake.create(rows().schema)
    table.append(rows(1))
    late = lake.open(table.uri)
    late.world = Behind(late.world)
    late.append(rows(2))
    table.append(rows(3))
    assert spark.ids({"t": lake.sql(table)}) == {"t": Counter([1, 2, 3])}


def test_pyiceberg_by_itself_makes_it_unreadable(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the test above says nothing."""
    lake = lakes("sql")
    table = lake.create(rows().schema)
    table.append(rows(1))
    plain = lake.load().load_table(table.uri)
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr("pyiceberg.table.snapshots.time.time", lambda: now() - HOUR_S)
        plain.append(rows(2))
    with plain.io.new_input(plain.metadata_location).open() as file:
        metadata = file.read().decode()
    # Read by the parser alone: a table's load goes through twenty attempts, for a minute and more.
    parser = spark.session.sparkContext._jvm.org.apache.iceberg.TableMetadataParser
    with pytest.raises((PySparkException, Py4JError), match="Expected sorted snapshot log entries"):
        parser.fromJson(metadata)
