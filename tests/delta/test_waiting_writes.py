"""Writes that were left behind in the queue of those who share commits: doctor finds them, repair ends them by the log."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.delta.connect import connect
from safewrite.delta.maintenance import waiting_writes
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.findings import Finding
from safewrite.protocol.effects import Failed
from tests.integration.places import CrashError, Place, once, rows, visible
from tests.test_cli import run_json
from tests.test_shared_commits import all_see, begun, crash, joining, meanwhile, queued


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A table of one row, and a write of row 1 whose writer was killed as it waited."""
    here = begun(tmp_path / "t")
    killed(here, joining(here).append, "share.put_member", rows(1), key="left")
    return here


def killed(place: Place, write: Callable[..., Any], step: str, *args: Any, **named: Any) -> None:
    meanwhile(write.__self__, crash, step)  # type: ignore[attr-defined]
    with pytest.raises(CrashError):
        write(*args, **named)


def grow_old(place: Place) -> None:
    for path in Path(place.uri).glob("_safewrite/queue/*"):
        os.utime(path, (time.time() - 100,) * 2)


def found_by_doctor(place: Place) -> list[Finding]:
    return [one for one in examine(inspect_table(place.uri)) if one.code == "write_left_waiting"]


def repaired(place: Place, *options: str) -> list[tuple[str, str]]:
    _, done = run_json("repair", place.uri, *options)
    return [(step["status"], step["detail"]) for step in done["steps"]]


def test_a_write_that_may_still_be_committed_is_committed_once(place: Place) -> None:
    grow_old(place)
    (finding,) = found_by_doctor(place)
    assert finding.details == {"count": 1, "open": 1}
    assert repaired(place, "--dry-run") == [("would", "")]
    assert len(queued(place)) == 1
    assert repaired(place) == [("done", "key left")]
    all_see(place, 0, 1)
    assert place.open().append(rows(1), key="left").outcome == "already_committed"
    assert (found_by_doctor(place), repaired(place)) == ([], [])


def test_one_that_waits_for_less_than_a_minute_is_left_to_its_writer(place: Place) -> None:
    assert (found_by_doctor(place), repaired(place)) == ([], [])
    assert len(queued(place)) == 1


def test_one_that_the_log_has_is_removed(place: Place) -> None:
    killed(place, joining(place).append, "commit.verify", rows(2), key="leads")
    grow_old(place)
    assert visible([place.ids()]) == once(0, 1, 2)
    assert found_by_doctor(place)[0].details == {"count": 2, "open": 0}
    assert repaired(place) == [("done", "it is in the log")] * 2
    all_see(place, 0, 1, 2)


@pytest.mark.long
def test_one_that_no_one_may_commit_any_more_is_removed(place: Place) -> None:
    for row in range(2, 18):
        place.open().append(rows(row))
    grow_old(place)
    assert repaired(place) == [("done", "no one may commit it any more")]
    all_see(place, 0, *range(2, 18))


def test_none_is_committed_once_others_have_taken_its_last_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``resolve`` says from then on that it is not there, and will not be."""
    grow_old(place)
    found = inspect_table(place.uri)
    connection = connect(place.uri, lock_table=None, arbiter=None, storage_options=None, boto3_session=None)

    perform = connection.world.perform

    def slowly(effect: Any) -> Any:
        outcome = perform(effect)
        if effect.name == "finish.get_member":
            for row in range(2, 18):
                place.open().append(rows(row))
            assert place.open().resolve("left") is None
        return outcome

    monkeypatch.setattr(connection.world, "perform", slowly)
    (step,) = waiting_writes.finish(found, connection.world, arbiter=connection.arbiter)
    assert (step.status, step.version) == ("failed", None)
    assert visible([place.ids(), place.replayed_ids()]) == once(0, *range(2, 18))


def test_doctor_says_the_rest_where_the_queue_may_not_be_listed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    grow_old(place)
    found = inspect_table(place.uri)
    perform = found.world.perform
    monkeypatch.setattr(
        found.world,
        "perform",
        lambda effect: Failed("403") if effect.name == "survey.list_queue" else perform(effect),
    )
    assert examine(found) == []


def test_one_whose_table_has_changed_waits_on(place: Place) -> None:
    grow_old(place)
    sw.open(place.uri).append(rows(2).append_column("more", [[1]]), schema_mode="merge")
    ((status, why),) = repaired(place)
    assert (status, "has changed" in why) == ("skipped", True)
    assert len(queued(place)) == 1


def test_one_of_a_table_that_was_dropped_since_is_removed(place: Place) -> None:
    """It was skipped until the new table had as many versions, and doctor warned of it all the while."""
    for number in range(2, 5):
        place.open().append(rows(number))
    killed(place, joining(place).append, "share.put_member", rows(9), key="late")
    grow_old(place)
    shutil.rmtree(Path(place.uri) / "_delta_log")
    place.open(create=True).append(rows(7))
    assert repaired(place, "--dry-run") == [("would", "it is of a table that was there before")] * 2
    assert repaired(place) == [("done", "it is of a table that was there before")] * 2
    all_see(place, 7)
    assert found_by_doctor(place) == []


def test_one_whose_files_are_gone_is_not_committed(place: Place) -> None:
    grow_old(place)
    known = {action["path"] for action in files_of(place)}
    (gone,) = [path for path in Path(place.uri).rglob("*.parquet") if path.name not in known]
    gone.unlink()
    ((status, why),) = repaired(place)
    assert (status, "is gone" in why) == ("skipped", True)
    all_ids = visible([place.ids(), place.replayed_ids()])
    assert all_ids == once(0)


def files_of(place: Place) -> list[dict[str, Any]]:
    found = inspect_table(place.uri)
    return [add for commit in found.commits.values() for add in commit.adds()]
