"""What a Delta table keeps no longer of its log is removed, and all that it keeps can be read as before."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

import safewrite as sw
from safewrite.delta.log.cleanup import expired
from safewrite.protocol.values import Listed
from safewrite.table.verbs import Table
from safewrite.testing.steps import KillAt, side_of

DAY_S = 24 * 3600
LOG = "_delta_log/"


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=25),
    st.sets(st.integers(0, 24)),
    st.sets(st.integers(0, 24)),
    st.integers(1, 40),
)
def test_what_was_live_within_the_retention_stays_readable(
    days: list[int], checkpoints: set[int], torn: set[int], keep: int
) -> None:
    """Commits at any times, also of a log that was copied; checkpoints of one part or, torn, one of two."""
    newest = max(days)  # what is of version 1 in others is a V2 checkpoint
    listed = [Listed(f"{LOG}{version:020}.json", 1, day) for version, day in enumerate(days)]
    whole = {one for one in checkpoints if one < len(days)}
    listed += [Listed(f"{LOG}{one:020}.checkpoint.parquet", 1, days[one]) for one in whole]
    listed += [
        Listed(f"{LOG}{one:020}.checkpoint.{1:010}.{2:010}.parquet", 1, 0) for one in torn if one < len(days)
    ]
    others = [
        f"{LOG}_last_checkpoint",
        f"{LOG}{1:020}.checkpoint.{'0' * 8}-0000-4000-8000-{'0' * 12}.parquet",
        f"{LOG}{0:020}.{9:020}.compacted.json.tmp",
        f"{LOG}_sidecars/x.parquet",
    ]
    base, old = expired([*listed, *(Listed(one, 1, 0) for one in others)], keep, newest)
    gone = {one.path for one in old}
    if not gone:
        return
    assert base in {*whole, 1}
    assert not gone & {*others}
    assert {version for version in range(len(days)) if f"{LOG}{version:020}.json" in gone} == {*range(base)}
    # The version that was current when the retention began, and all since, come from the base or later.
    assert all(days[version] < newest - keep for version in range(base + 1))
    assert f"{LOG}{base:020}.checkpoint.parquet" not in gone


def made(folder: Path, **properties: str) -> Table:
    table = sw.open(str(folder), create=True, checkpoints=False, properties=properties)
    for number in range(12):
        table.append([{"id": number}], key=f"event-{number}")
        if number in (4, 8):
            table.checkpoint()
    return table


def age(folder: Path, *, from_day: int, per_version: int = 1, current: int = 11, young: int = 2) -> None:
    """The current version is of today, each before it a day older, and all but the newest ``young`` are ``from_day`` more."""
    now_s = (folder / f"{LOG}{current:020}.json").stat().st_mtime
    for path in (folder / LOG).glob("0*"):
        version = int(re.match(r"\d+", path.name)[0])  # type: ignore[index]
        days = (current - version) * per_version + from_day * (version <= current - young)
        os.utime(path, (now_s - days * DAY_S, now_s - days * DAY_S))


def hint(folder: Path) -> int:
    """The version that readers are told to begin at."""
    return int(json.loads((folder / LOG / "_last_checkpoint").read_text())["version"])


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in (folder / LOG).glob("0*"))


def test_old_commits_and_checkpoints_go_and_every_later_version_reads_as_before(tmp_path: Path) -> None:
    table = made(tmp_path)
    age(tmp_path, from_day=20)
    before = names(tmp_path)
    foreseen = table.maintain(dry_run=True)
    # Younger than 30 days are the versions from 2 on; only a checkpoint from before would let others go.
    assert (foreseen.removed, names(tmp_path)) == ({}, before)
    age(tmp_path, from_day=28)  # versions up to 9 are older now
    foreseen = table.maintain(dry_run=True)
    assert (foreseen.removed, names(tmp_path)) == ({"commits": 8, "checkpoints": 1}, before)
    report = sw.open(str(tmp_path)).maintain(budget_bytes=1)
    assert report.removed == foreseen.removed
    assert "8 commits and 1 checkpoints of before were removed" in str(report)
    assert names(tmp_path)[0] == f"{8:020}.checkpoint.parquet"
    for version in range(8, 12):
        found = DeltaTable(tmp_path, version=version).to_pyarrow_table()
        assert found.num_rows == version + 1
    later = sw.open(str(tmp_path))
    assert later.append([{"id": 11}], key="event-11").outcome == "already_committed"
    assert later.append([{"id": 99}], key="event-99").version == 12
    assert later.maintain(dry_run=True).removed == {}


@pytest.mark.parametrize(
    "property_",
    [{"delta.enableExpiredLogCleanup": "false"}, {"delta.logRetentionDuration": "interval 60 days"}],
)
def test_a_table_that_keeps_its_log_longer_keeps_it(property_: dict[str, str], tmp_path: Path) -> None:
    table = made(tmp_path, **property_)
    age(tmp_path, from_day=28)
    before = names(tmp_path)
    assert table.maintain(budget_bytes=1).removed == {}
    assert {*before} <= {*names(tmp_path)}


def test_the_log_of_a_table_that_is_created_again_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    age(tmp_path, from_day=28)

    def created_again(*_: Any) -> Any:
        shutil.rmtree(tmp_path)
        made(tmp_path)
        age(tmp_path, from_day=28)
        yield from ()
        return True

    monkeypatch.setattr("safewrite.delta.log.cleanup._stands", created_again)
    table.maintain(budget_bytes=1)
    assert {f"{number:020}.json" for number in range(12)} <= {*names(tmp_path)}


@pytest.mark.sweep("checkpoint.put:after", "checkpoint.put_hint:after")
@pytest.mark.parametrize(
    "point", ["checkpoint.put:after", "checkpoint.put_hint:before", "checkpoint.put_hint:after"]
)
def test_a_maintainer_killed_between_its_checkpoint_and_the_look_up_of_it_leaves_nothing_wrong(
    tmp_path: Path, point: str
) -> None:
    """The next runs keep the checkpoint that readers are told of until a later one is (B3)."""

    def maintain_and_die() -> None:
        table = sw.open(str(tmp_path))
        table.world = KillAt(table.world, *side_of(point))  # type: ignore[assignment]
        table.maintain()

    made(tmp_path)
    child = multiprocessing.get_context("fork").Process(target=maintain_and_die)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert f"{12:020}.checkpoint.parquet" in names(tmp_path)
    told = 12 if point.endswith("hint:after") else 8
    assert hint(tmp_path) == told
    for version in range(13):
        assert DeltaTable(tmp_path, version=version).to_pyarrow_table().num_rows == min(version + 1, 12)
    table = sw.open(str(tmp_path), checkpoints=False)
    table.append([{"id": 13}])
    age(tmp_path, from_day=60, current=13, young=1)
    table.maintain(budget_bytes=1)
    assert names(tmp_path)[0] == f"{told:020}.checkpoint.parquet"
    table.checkpoint()
    table.maintain(budget_bytes=1)
    assert (names(tmp_path)[0], hint(tmp_path)) == (f"{12:020}.checkpoint.parquet", 13)
    assert sw.open(str(tmp_path)).row_count() == DeltaTable(tmp_path).to_pyarrow_table().num_rows == 13
    assert sw.open(str(tmp_path)).append([{"id": 3}], key="event-3").outcome == "already_committed"


def test_a_log_whose_first_checkpoint_cannot_be_read_stays(tmp_path: Path) -> None:
    made(tmp_path).checkpoint()
    (tmp_path / f"{LOG}{8:020}.checkpoint.parquet").write_bytes(b"PAR1torn")
    age(tmp_path, from_day=28)
    before = names(tmp_path)
    sw.open(str(tmp_path)).maintain(budget_bytes=1)
    assert {*before} <= {*names(tmp_path)}
