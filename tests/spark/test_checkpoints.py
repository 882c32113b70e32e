"""Our checkpoints in place of the commits that they sum up: rows, transactions, history."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta import upkeep
from tests.spark.session import Spark

APP = "app-1"


STRUCTS = {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"}
"""Databricks' form of statistics in checkpoints (T4-A11)."""


@pytest.fixture(params=[{}, STRUCTS], ids=["json", "structs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Eleven versions, checkpoints at 3, 6 and 9; partitions, a batch of a stream, an overwrite with tombstones."""
    table = sw.open(
        str(tmp_path / "t"),
        create=True,
        partition_by=["day"],
        properties={"delta.checkpointInterval": "3", **request.param},
    )
    for number in range(8):
        table.append(rows(number), **({"txn": (APP, number)} if number in (3, 4) else {}))
        upkeep.finish()
    table.overwrite(rows(100, day="d1"), where="day = 'd1'")
    for number in (8, 9):
        table.append(rows(number))
        upkeep.finish()
    return tmp_path / "t"


REMAINING = [0, 2, 3, 5, 6, 8, 9, 100]
"""Ids that are no longer there were in partition d1."""


def rows(number: int, day: str | None = None) -> pa.Table:
    """One row; every third is in partition ``d1``, the others in another one or in that of NULL."""
    return pa.table(
        {"id": [number], "day": pa.array([day or (None, "d1", "50%/ü")[number % 3]], pa.string())}
    )


def clean_up(root: Path, *, keep_from: int) -> list[str]:
    """Delete commits below a version, and checkpoints below the last; what is left of the log."""
    log = root / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    commits = [path for path in log.glob("*.json") if int(path.stem) < keep_from]
    for path in [*commits, *checkpoints[:-1]]:
        path.unlink()
    return sorted(path.name for path in log.iterdir() if path.name[:1] == "0")


@pytest.mark.long
def test_a_checkpoint_and_later_commits_are_the_whole_table(spark: Spark, root: Path) -> None:
    left = clean_up(root, keep_from=10)
    assert left == [f"{9:020d}.checkpoint.parquet", f"{10:020d}.json"]
    expected = Counter(REMAINING)
    assert spark.ids({"t": root}) == {"t": expected}
    assert Counter(deltalake.DeltaTable(str(root)).to_pyarrow_table()["id"].to_pylist()) == expected
    assert spark.filtered(root, ["day = '50%/ü'", "day IS NULL", "day = 'd1'"]) == {
        "day = '50%/ü'": [2, 5, 8], "day IS NULL": [0, 3, 6, 9], "day = 'd1'": [100]
    }  # fmt: skip


@pytest.mark.sweep("json")
def test_spark_goes_on_from_our_checkpoint(spark: Spark, root: Path) -> None:
    """Spark's next commits and checkpoint, and ours after them."""
    clean_up(root, keep_from=9)
    for number in (10, 11):
        spark.write(root, rows(number))
    assert (root / "_delta_log" / f"{12:020d}.checkpoint.parquet").exists(), "Spark made its checkpoint"
    clean_up(root, keep_from=13)
    sw.open(str(root)).append(rows(12))
    assert spark.ids({"t": root}) == {"t": Counter([*REMAINING, 10, 11, 12])}


@pytest.mark.sweep("json")
def test_spark_skips_a_batch_that_safewrite_has_committed(spark: Spark, root: Path) -> None:
    """E2: Spark reads our ``txn`` actions, here out of our checkpoint; it skips without a word."""
    clean_up(root, keep_from=10)
    for version in (3, 4, 5):
        spark.write(root, rows(20 + version), txnAppId=APP, txnVersion=str(version))
    assert spark.ids({"t": root}) == {"t": Counter([*REMAINING, 25])}
    with pytest.raises(sw.ReplayMismatchError):
        sw.open(str(root)).append(rows(30), txn=(APP, 5))


@pytest.mark.long
def test_spark_keeps_our_tombstones(spark: Spark, root: Path) -> None:
    """VACUUM deletes by tombstones: files that were replaced, and nothing else."""
    clean_up(root, keep_from=10)
    live = {Path(uri).resolve() for uri in deltalake.DeltaTable(str(root)).file_uris()}
    before = {path.resolve() for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert len(before) == len(REMAINING) + 3
    with spark.setting("spark.databricks.delta.retentionDurationCheck.enabled", "false"):
        spark.run(f"VACUUM delta.`{root}` RETAIN 0 HOURS")
    after = {path.resolve() for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}
    assert {path.name for path in after} == {path.name for path in live}
    assert spark.ids({"t": root}) == {"t": Counter(REMAINING)}


@pytest.mark.sweep("structs")
def test_spark_shows_our_history(spark: Spark, root: Path) -> None:
    history = spark.history(root)
    assert [row["version"] for row in history] == list(range(11))
    assert {(row["version"], row["operation"]) for row in history} == {(v, "WRITE") for v in range(11)}
    modes = [dict(row["operationParameters"])["mode"] for row in history]
    assert modes == ["Append"] * 8 + ["Overwrite"] + ["Append"] * 2
    assert all(row["engineInfo"] == f"safewrite/{sw.__version__}" for row in history)
    assert all(dict(row["operationMetrics"])["numOutputRows"] == "1" for row in history)
    assert [row["isBlindAppend"] for row in history] == [mode == "Append" for mode in modes]
