"""A maintainer's clock, or a writer's, that is a day ahead or behind lets nothing go before its time (B7)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.iceberg.catalog.files import FileStore
from safewrite.iceberg.retention import KEEP
from safewrite.protocol.effects import Failed
from safewrite.protocol.values import Listed
from safewrite.stores import local
from safewrite.table.verbs import Table
from tests.delta.logs import PROTOCOL, add, metadata, remove
from tests.delta.logs import Table as Log
from tests.delta.test_checkpoint import checkpoint, rows_of, values

DAY_S = 24 * 3600
DAY_MS = DAY_S * 1000
KEPT_DAYS = 3
LATER = 30.0
"""So many days after a table of Iceberg was made the tests of it happen: its writers give no snapshot a time of before that."""


@contextmanager
def clock(days: float) -> Iterator[None]:
    """The clock of this process is so many days ahead; that of the store is right."""
    now, now_ns = time.time, time.time_ns
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + days * DAY_S)
        patch.setattr(time, "time_ns", lambda: now_ns() + int(days * DAY_S) * 10**9)
        yield


def grow_older(folder: Path, days: float) -> None:
    """So many days pass for what is there, by the store's clock."""
    for path in (one for one in folder.rglob("*") if one.is_file()):
        os.utime(path, (path.stat().st_mtime - days * DAY_S,) * 2)


# --- Iceberg: snapshots ---------------------------------------------------------------------------------
class Lake:
    """An Iceberg table that keeps snapshots for three days, and whose keys its database knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "db"
        folder.mkdir(exist_ok=True)
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())
        schema = pa.schema({"id": pa.int64()})
        sw.create("db.t", schema, catalog=self.catalog, create_namespace=True, properties={KEEP: str(KEPT_DAYS * DAY_MS)})  # fmt: skip

    def write(self, times: int, *, days_ago: float, ahead: float = 0.0) -> None:
        """Appends of so many days ago, by a writer whose clock is ahead by some days."""
        before = {*self.folder.rglob("*")}
        with clock(LATER + ahead - days_ago):
            for number in range(times):
                sw.open("db.t", catalog=self.catalog).append([{"id": number}])
        for path in {*self.folder.rglob("*")} - before:
            if path.is_file():
                os.utime(path, (path.stat().st_mtime + (LATER - days_ago) * DAY_S,) * 2)

    def maintained(self, *, ahead: float = 0.0, **how: Any) -> int:
        """How many snapshots a maintainer lets go."""
        with clock(LATER + ahead):
            return sw.open("db.t", catalog=self.catalog).maintain(**how).removed.get("snapshots", 0)


@pytest.mark.parametrize("maintainer", [-1, 0, 1])
@pytest.mark.parametrize("writer", [-1, 0, 1])
@pytest.mark.sweep("-1--1", "-1-0", "0--1", "0-0", "1-")
def test_no_snapshot_goes_that_is_younger_than_it_is_kept_by_any_one_clock(
    tmp_path: Path, maintainer: int, writer: int
) -> None:
    """The maintainer compacts first: it may not take its own commit for a second opinion."""
    lake = Lake(tmp_path)
    lake.write(6, days_ago=KEPT_DAYS - 0.4, ahead=writer)
    lake.write(6, days_ago=KEPT_DAYS - 0.5, ahead=writer)
    lake.write(1, days_ago=0, ahead=0)
    lake.write(1, days_ago=0, ahead=max(writer, 0))
    assert lake.maintained(ahead=maintainer, dry_run=True) == 0
    assert lake.maintained(ahead=maintainer) == 0


def test_a_maintainer_that_nobody_writes_beside_does_not_believe_its_own_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.write(12, days_ago=KEPT_DAYS - 0.5)
    assert lake.maintained(ahead=1.0) == 0


def test_snapshots_go_that_all_clocks_call_old_and_of_others_the_older_half_is_asked_about(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path)
    lake.write(15, days_ago=KEPT_DAYS + 1, ahead=0)
    lake.write(5, days_ago=KEPT_DAYS - 0.5, ahead=-1)  # older than three days by the writer alone
    lake.write(1, days_ago=0)
    assert lake.maintained(budget_bytes=1) == 10


def test_where_the_store_tells_no_times_snapshots_stay_a_day_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileStore, "list", lambda *_: Failed("a FileIO cannot list"))
    lakes = [Lake(tmp_path / name) for name in ("young", "old")]
    for lake, days in zip(lakes, (KEPT_DAYS + 0.5, KEPT_DAYS + 1.5), strict=True):
        lake.write(12, days_ago=days)
        lake.write(1, days_ago=0)
    assert [lake.maintained(budget_bytes=1) for lake in lakes] == [0, 12]


def test_what_the_store_says_of_one_snapshot_takes_one_request(tmp_path: Path) -> None:
    """Not a listing of all that the table ever had."""
    lake = Lake(tmp_path)
    lake.write(12, days_ago=KEPT_DAYS + 1)
    lake.write(1, days_ago=0)
    asked: list[tuple[str, int]] = []
    was = FileStore.list

    def counted(self: FileStore, prefix: str, start_after: str, limit: int) -> Any:
        asked.append((prefix, limit))
        return was(self, prefix, start_after, limit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileStore, "list", counted)
        assert lake.maintained(budget_bytes=1) == 12
    assert [(prefix.rpartition("/")[2][:5], limit) for prefix, limit in asked] == [("snap-", 1)] * 2


# --- Delta: the log, and files that nothing needs --------------------------------------------------------
def written(folder: Path) -> Table:
    """A table of twelve versions with a checkpoint of the eighth."""
    table = sw.open(str(folder), create=True, checkpoints=False)
    for number in range(12):
        table.append([{"id": number}])
        if number == 8:
            table.checkpoint()
    return table


def test_no_commit_goes_because_the_newest_one_has_a_time_that_is_to_come(tmp_path: Path) -> None:
    """As where the clock of a file server was ahead for a while."""
    table = written(tmp_path)
    grow_older(tmp_path, 29.5)
    newest = tmp_path / "_delta_log" / f"{11:020}.json"
    os.utime(newest, (time.time() + DAY_S,) * 2)
    assert table.maintain(budget_bytes=1).removed == {}
    grow_older(tmp_path, 1)
    assert table.maintain(budget_bytes=1).removed["commits"] == 8


@pytest.mark.parametrize("ahead", [-1, 1])
def test_a_maintainers_clock_takes_no_commit_from_the_log(tmp_path: Path, ahead: int) -> None:
    table = written(tmp_path)
    grow_older(tmp_path, 29.5)
    with clock(ahead):
        assert table.maintain(budget_bytes=1).removed == {}


@pytest.mark.parametrize("ahead", [0, 30])
def test_a_file_of_a_time_that_is_to_come_makes_no_other_one_old(tmp_path: Path, ahead: int) -> None:
    """Nor does a maintainer that lives in the month to come: neither lists nor removes what a writer is about to commit."""
    table = written(tmp_path)
    young, strange = tmp_path / "part-of-a-write.parquet", tmp_path / "from-elsewhere.parquet"
    for path in (young, strange):
        path.write_bytes(b"PAR1")
    os.utime(strange, (time.time() + 365 * DAY_S,) * 2)
    for _ in range(2):
        with clock(ahead):
            report = table.maintain(budget_bytes=1, remove_unused=True)
        assert (report.unused_listed, report.removed) == (0, {})
    assert young.exists()


def test_a_file_server_whose_clock_is_set_ahead_makes_no_file_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, was = written(tmp_path), local._listed
    (tmp_path / "part-of-a-write.parquet").write_bytes(b"PAR1")
    grow_older(tmp_path, 6.5)

    def ahead(path: str, status: os.stat_result) -> Listed:
        found = was(path, status)
        return replace(found, modified_ms=found.modified_ms + DAY_MS * path.endswith("/clock"))

    monkeypatch.setattr(local, "_listed", ahead)
    assert table.maintain(budget_bytes=1, remove_unused=True).unused_listed == 0
    grow_older(tmp_path, 1)
    assert table.maintain(budget_bytes=1, remove_unused=True).unused_listed == 1


def test_a_writer_whose_clock_is_a_year_ahead_makes_no_tombstone_go() -> None:
    """VACUUM would take a file that was removed a moment ago from its readers."""
    now_ms = time.time_ns() // 1_000_000
    log = Log(PROTOCOL, metadata(), *(add(name) for name in ("old", "young", "last")))
    for name, at_ms in (("old", now_ms - 9 * DAY_MS), ("young", now_ms), ("last", now_ms + 365 * DAY_MS)):
        log.commit(remove(name, deletionTimestamp=at_ms), {"commitInfo": {"timestamp": at_ms}})
    checkpoint(log)
    assert [one["path"] for one in values(rows_of(log, 3), "remove")] == ["young", "last"]
