"""Executors put small files together: the driver commits, and a worker that dies costs no row."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from bench.servers.servers import Ministack
from safewrite.engine.choice import Choice, Executors
from safewrite.engine.spark import SparkEngine
from safewrite.table import regrouping
from safewrite.testing.steps import At
from safewrite.upkeep import maintain, workplace
from safewrite.upkeep.workplace import Workplace
from tests.spark.lake import Lake
from tests.spark.session import Spark

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.int64()), ("day", pa.string())])
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["s"], "delete_when": "op = 'd'"}


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workplace, "SMALL", 0)


def by_executors(spark: Spark) -> Workplace:
    engine = SparkEngine(spark.session)
    executors = Executors(engine, workplace.MODULES, 2, is_forced=True)
    return Workplace(executors, Choice("bytes to put together"))


def fill(table: sw.Table) -> None:
    """Three files of each of two days, of which two rows are deleted."""
    for number in range(3):
        table.append([{"id": 10 * number + n, "s": 1, "day": "ab"[n % 2]} for n in range(6)])
    change(table, 2, 13)


def change(table: sw.Table, *gone: int) -> None:
    table.apply_changes([{"id": n, "s": 2, "day": "ab"[n % 10 % 2], "op": "d"} for n in gone], **HOW)


def beside_a_rival(spark: Spark, table: sw.Table, again: Callable[[], sw.Table], step: str) -> Any:
    """Let executors put the files together, while a rival deletes two rows."""
    table.world = At(table.world, step, "before", lambda: change(again(), 4, 21))
    with spark.careless():
        report = table.maintain(engine=by_executors(spark))
    assert (report.groups, report.files_out, report.dropped) == (2, 2, {})
    return report


def test_rows_of_a_delta_table_keep_their_ids_and_those_that_went_stay_away(
    spark: Spark, ministack: Ministack, shore: tuple[str, str]
) -> None:
    """On S3, where executors are sent credentials; vectors of before and of a rival are applied."""
    bucket, lock_table = shore
    uri = f"s3://{bucket}/{uuid.uuid4().hex[:8]}"
    how: dict[str, Any] = {"lock_table": lock_table, "storage_options": ministack.storage_options()}
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    fill(table := sw.create(uri, SCHEMA, partition_by=["day"], properties=properties, **how))
    query = f"SELECT id, _metadata.row_id AS row, _metadata.row_commit_version AS version FROM delta.`{uri.replace('s3:', 's3a:')}`"
    before = spark.sql(query).to_pylist()
    beside_a_rival(spark, table, lambda: sw.open(uri, **how), "commit.put_commit")
    after = spark.sql(query).to_pylist()
    assert sorted(map(str, after)) == sorted(str(one) for one in before if one["id"] not in {4, 21})
    assert len(after) == 14


@pytest.mark.parametrize("version", ["2", "3"])
def test_rows_of_an_iceberg_table_keep_their_ids_and_those_that_went_stay_away(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], version: str
) -> None:
    lake = lakes("sql")
    properties = {"format-version": version, "write.merge.mode": "merge-on-read"}
    given: Any = {"name": lake.name, **lake.properties}  # PyIceberg's own catalogs do not write version 3
    name = lake.new()
    fill(table := sw.create(name, SCHEMA, catalog=given, partition_by=["day"], properties=properties))
    ids = "" if version == "2" else ", _row_id, _last_updated_sequence_number"
    query = f"SELECT id, s, day{ids} FROM {lake.sql(name)}"
    before = spark.sql(query).to_pylist()
    beside_a_rival(spark, table, lambda: sw.open(name, catalog=given), "swap.commit")
    after = spark.sql(query).to_pylist()
    assert sorted(map(str, after)) == sorted(str(one) for one in before if one["id"] not in {4, 21})
    assert len(after) == 14


# --- a worker that dies ----------------------------------------------------------------------------------
class Dying(regrouping.PutTogether):
    """The task of the second group dies once, when its files are written."""

    def __call__(self, given: Any, at: Any) -> Generator[Any, None, Any]:
        made = yield from super().__call__(given, at)
        noted = Path(self.rewriter.files.store.root).parent / "noted"  # type: ignore[attr-defined]
        if self.number == 1 and not noted.exists():
            noted.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return made


def test_a_worker_that_dies_leaves_files_and_its_groups_to_the_next_run(
    spark: Spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regrouping, "PutTogether", Dying)
    fill(table := sw.create(tmp_path / "t", SCHEMA, partition_by=["day"]))
    before, files = spark.read(tmp_path / "t"), {*tmp_path.rglob("part-*.parquet")}
    with spark.careless():
        report = table.maintain(engine=by_executors(spark))
    assert (report.groups, report.dropped) == (0, {maintain.BROKEN: 2})
    lost = {one.name for one in {*tmp_path.rglob("part-*.parquet")} - files}
    assert len(lost) == 2
    with spark.careless():
        report = table.maintain(engine=by_executors(spark))
    assert (report.groups, report.files_after, report.dropped) == (2, 2, {})
    live = {Path(str(one.name)).name for one in table._inventory().files}
    assert live.isdisjoint(lost)
    assert spark.read(tmp_path / "t").equals(before)
