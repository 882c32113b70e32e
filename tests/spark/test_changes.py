"""Spark's upkeep of a table under a change log forgets no deletion, and Spark reads what the log says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from tests.spark.lake import Lake
from tests.spark.session import Spark
from tests.spark.test_iceberg_upkeep import orphans, rewrite

SCHEMA = pa.schema({"id": pa.int64(), "lsn": pa.int64(), "name": pa.string()})
HOW: dict[str, Any] = {
    "keys": ["id"], "sequence_by": ["lsn"], "delete_when": [("op", "=", "d")], "all_late": "count",
}  # fmt: skip


def change(op: str, number: int, lsn: int) -> dict[str, Any]:
    return {"op": op, "id": number, "lsn": lsn, "name": None if op == "d" else f"name {lsn}"}


def fill(table: Any) -> None:
    """Four commits: rows, a deletion of one, one of a key that never was, and more rows."""
    table.apply_changes([change("u", number, 1) for number in range(4)], **HOW)
    table.apply_changes([change("d", 1, 5), change("u", 2, 5)], **HOW)
    table.apply_changes([change("d", 9, 5)], **HOW)
    table.append([{"id": 20, "lsn": 1, "name": "plain"}])


def late(table: Any) -> dict[str, int]:
    receipt = table.apply_changes([change("u", 1, 3), change("u", 9, 4), change("u", 20, 2)], **HOW)
    return {name: count for name, count in receipt.changes.items() if count}


WANTED = [(0, "name 1"), (2, "name 5"), (3, "name 1"), (20, "name 2")]


@pytest.mark.long
def test_expiry_orphans_and_compaction_forget_no_deletion_of_an_iceberg_table(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    lake = lakes("rest")
    table = lake.create(SCHEMA)
    fill(table)
    rewrite(spark, lake, table)
    orphans(spark, lake, table)
    assert late(lake.open(table.uri)) == {"applied": 1, "updated": 1, "late": 2}
    found = spark.sql(f"SELECT id, name FROM {lake.sql(table)} ORDER BY id").to_pylist()
    assert [(row["id"], row["name"]) for row in found] == WANTED


@pytest.mark.long
def test_vacuum_optimize_and_checkpoints_forget_no_deletion_of_a_delta_table(
    spark: Spark, tmp_path: Path
) -> None:
    root = str(tmp_path / "t")
    table = sw.create(root, SCHEMA)
    fill(table)
    spark.run(f"OPTIMIZE delta.`{root}`")
    with spark.setting("spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        spark.run(f"VACUUM delta.`{root}` RETAIN 0 HOURS")
    sw.open(root).checkpoint()
    assert late(sw.open(root)) == {"applied": 1, "updated": 1, "late": 2}
    found = spark.sql(f"SELECT id, name FROM delta.`{root}` ORDER BY id").to_pylist()
    assert [(row["id"], row["name"]) for row in found] == WANTED


@pytest.mark.long
def test_spark_and_safewrite_mark_rows_of_the_same_files_as_gone(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    """Merge-on-read: each reads the other's position deletes, and goes on from them."""
    lake = lakes("rest")
    table = lake.create(
        SCHEMA, properties={"write.merge.mode": "merge-on-read", "write.delete.mode": "merge-on-read"}
    )
    table.append([{"id": number, "lsn": 1, "name": f"name {number}"} for number in range(100)])
    files = {
        row["file_path"] for row in spark.sql(f"SELECT file_path FROM {lake.sql(table)}.files").to_pylist()
    }
    table.apply_changes([change("d", 1, 5), change("u", 2, 5)], **HOW)
    spark.run(f"DELETE FROM {lake.sql(table)} WHERE id IN (3, 50)")
    lake.open(table.uri).apply_changes([change("u", 3, 6), change("d", 50, 6), change("u", 51, 6)], **HOW)
    found = spark.sql(f"SELECT id, name FROM {lake.sql(table)} ORDER BY id").to_pylist()
    wanted = {number: f"name {number}" for number in range(100) if number not in {1, 50}}
    assert {row["id"]: row["name"] for row in found} == wanted | {2: "name 5", 3: "name 6", 51: "name 6"}
    assert len(found) == len(wanted)
    kept = spark.sql(f"SELECT file_path FROM {lake.sql(table)}.files WHERE content = 0").to_pylist()
    assert files <= {row["file_path"] for row in kept}
    rewrite(spark, lake, table)
    again = spark.sql(f"SELECT id, name FROM {lake.sql(table)} ORDER BY id").to_pylist()
    assert again == found
