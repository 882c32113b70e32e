"""An Iceberg table's life under safewrite, as Spark's metadata tables and time travel show it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pytest

from bench.servers.catalogs import CatalogKind
from safewrite.iceberg.table import IcebergTable
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.test_iceberg_writers import rows

pytestmark = pytest.mark.long


@pytest.fixture(params=["rest", "sql", "glue"])
def lake(request: pytest.FixtureRequest, lakes: Callable[[CatalogKind], Lake]) -> Lake:
    return lakes(request.param)


def more(id_: int, number: float | None, **options: str) -> pa.Table:
    """A row with a column that the table did not have from the start."""
    return rows(id_, **options).append_column("more", pa.array([number], pa.float64()))


def test_every_kind_of_write_is_a_snapshot_that_spark_understands(spark: Spark, lake: Lake) -> None:
    table = lake.create(rows().schema, partition_by=["value"], properties={"format-version": "2"})
    receipts = [
        table.append(rows(1, 2, 3), key="a"),
        table.append(rows(4, 5, value=""), txn=("stream", 7)),
        table.append(more(6, 0.5), schema_mode="merge"),
        table.delete("id = 2"),
        table.overwrite(more(3, None, value="other"), where="id = 3 OR id = 4"),
        table.delete("value = 'other'"),
    ]
    name = lake.sql(table)
    snapshots = spark.sql(f"SELECT * FROM {name}.snapshots ORDER BY committed_at, snapshot_id").to_pylist()
    by_id = {one["snapshot_id"]: one for one in snapshots}
    assert set(by_id) == {one.version for one in receipts}
    kinds = [by_id[one.version]["operation"] for one in receipts]
    assert kinds == ["append", "append", "append", "overwrite", "overwrite", "delete"]
    parents = [by_id[one.version]["parent_id"] for one in receipts]
    assert parents == [None, *(one.version for one in receipts[:-1])]
    history = spark.sql(f"SELECT * FROM {name}.history").to_pylist()
    assert [one["snapshot_id"] for one in history] == [one.version for one in receipts]
    assert all(one["is_current_ancestor"] for one in history)

    assert spark.read(name).to_pylist() == [
        {"id": 1, "value": "new", "more": None},
        {"id": 5, "value": "", "more": None},
        {"id": 6, "value": "new", "more": 0.5},
    ]
    at_first = spark.sql(f"SELECT * FROM {name} VERSION AS OF {receipts[0].version}")
    assert sorted(at_first["id"].to_pylist()) == [1, 2, 3]
    properties = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {name}").to_pylist()}
    assert json.loads(properties["safewrite.txn.stream"])["version"] == 7
    totals_are_those_of_the_files(spark, name, dict(by_id[receipts[-1].version]["summary"]))
    no_path_is_there_twice(spark, lake, table)


def totals_are_those_of_the_files(spark: Spark, name: str, summary: dict[str, str]) -> None:
    """What a snapshot's summary says, and engines plan by, is what its manifests hold."""
    (found,) = spark.sql(
        f"SELECT count(*) AS files, sum(record_count) AS rows, sum(file_size_in_bytes) AS bytes FROM {name}.files"
    ).to_pylist()
    assert (int(summary["total-data-files"]), int(summary["total-records"]), int(summary["total-files-size"])) == (
        found["files"], found["rows"], found["bytes"],
    )  # fmt: skip


def no_path_is_there_twice(spark: Spark, lake: Lake, table: IcebergTable) -> None:
    """C10: not among the files of a snapshot, and each was added once ever."""
    name = lake.sql(table)
    live = Counter(spark.sql(f"SELECT file_path FROM {name}.files")["file_path"].to_pylist())
    assert set(live.values()) <= {1}
    entries = spark.sql(
        f"SELECT DISTINCT snapshot_id, sequence_number, data_file.file_path AS path FROM {name}.all_entries WHERE status = 1"
    )
    added = Counter(entries["path"].to_pylist())
    assert set(added.values()) == {1}
    numbers = spark.sql(
        f"SELECT status, sequence_number AS n, data_file.file_path AS path FROM {name}.entries"
    ).to_pylist()
    assert all(one["n"] is not None for one in numbers)
    scanned = spark.sql(f"SELECT DISTINCT _file AS path FROM {name}")["path"].to_pylist()
    assert set(scanned) == set(live)
