"""Writers of several processes apply changes in one commit: who leads, who is carried, and what each is answered.

As in ``test_shared_commits``, a second table object stands for the second process.  Both formats do it by the same code, but for
how a commit is encoded: most cases of Iceberg are the sweep's.
"""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.delta.write import members
from safewrite.iceberg.maintenance.waiting_writes import finish
from safewrite.iceberg.write import members as iceberg_members
from safewrite.protocol import member_queue
from safewrite.testing.steps import Recorder
from tests.delta.test_waiting_writes import grow_old, repaired
from tests.integration.places import LEASE_S, CrashError, Place
from tests.test_shared_commits import crash, joining, meanwhile, queued

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}


class LakePlace(Place):
    """A table of an Iceberg catalog on SQLite, whose files lie at ``uri``."""

    def open(self, **settings: Any) -> sw.Table:
        warehouse = Path(self.uri).parents[1]
        catalog = SqlCatalog("local", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=warehouse.as_uri())
        if settings.get("create"):
            catalog.create_namespace("db")
        return sw.open("db.t", catalog=catalog, **({"lease_s": LEASE_S} | settings))


def begun(folder: Path, kind: str) -> Place:
    """A table of two rows under changes."""
    (folder / "db").mkdir(parents=True)
    here = (
        LakePlace(str(folder / "db" / "t"), "local")
        if kind == "iceberg"
        else Place(str(folder / "t"), "local")
    )
    table = here.open(create=True)
    table.append([{"id": 1, "at": 1, "name": "a"}, {"id": 2, "at": 1, "name": "b"}])
    return here


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A table of each format."""
    return begun(tmp_path, request.param)


def finished(place: Place) -> list[tuple[str, str]]:
    """What ``repair`` does about the queue of an Iceberg table."""
    steps = finish(place.open()._format.connection)
    return [(step.status, step.detail) for step in steps]


def step_of(place: Place, step: str) -> str:
    """A step of a commit, as the table's format names it."""
    steps = {"commit.put_commit": "swap.commit", "commit.verify": "swap.verify"}
    return steps.get(step, step) if isinstance(place, LakePlace) else step


def change(number: int, at: int, name: str = "x", op: str = "u") -> dict[str, Any]:
    return {"id": number, "at": at, "name": name, "op": op}


def rows_of(place: Place) -> dict[int, tuple[int, str]]:
    found = place.open().rows(where=[("id", ">=", 0)]).to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: (row["at"], row["name"]) for row in found}


def applies(table: sw.Table, key: str, *changes: dict[str, Any], **how: Any) -> sw.Receipt:
    return table.apply_changes(list(changes), key=key, **HOW | how)


def both(
    place: Place,
    led: list[dict[str, Any]],
    leads: list[dict[str, Any]],
    *,
    led_late: str = "error",
    leads_late: str = "error",
) -> tuple[Any, Any]:
    """What becomes of two batches, the first of which waits for the writer of the second."""
    first, second = joining(place), joining(place)
    answers: list[Any] = []

    def lead() -> None:
        try:
            answers.append(applies(second, "leads", *leads, all_late=leads_late))
        except sw.SafewriteError as error:
            answers.append(error)

    meanwhile(first, lead)
    try:
        return applies(first, "led", *led, all_late=led_late), answers[0]
    except sw.SafewriteError as error:
        return error, answers[0]


# --- what a commit carries ------------------------------------------------------------------------------
def test_who_waits_is_committed_with_another_writers_changes(place: Place) -> None:
    """Overlapping keys too; each has counts and a receipt of its own, and repeats are recognised."""
    led, leads = both(
        place,
        [change(1, 5, op="d"), change(2, 2, "led"), change(3, 1, "led")],
        [change(2, 3, "leads"), change(4, 1, "leads")],
    )
    assert led.version == leads.version == place.open().version
    assert (led.outcome, led.members, led.led_by_us) == ("committed", 2, False)
    assert (leads.outcome, leads.members, leads.led_by_us) == ("committed", 2, True)
    assert {name: n for name, n in leads.changes.items() if n} == {"applied": 2, "inserted": 1, "updated": 1}
    assert {name: n for name, n in led.changes.items() if n} == {
        "applied": 2, "inserted": 1, "deleted": 1, "late": 1,
    }  # fmt: skip
    assert (led.rows, leads.rows, led.removed_rows, leads.removed_rows) == (1, 2, None, None)
    assert rows_of(place) == {2: (3, "leads"), 3: (1, "led"), 4: (1, "leads")}
    assert queued(place) == []
    for key, changes, first in (
        ("led", [change(1, 5, op="d"), change(2, 2, "led"), change(3, 1, "led")], led),
        ("leads", [change(2, 3, "leads"), change(4, 1, "leads")], leads),
    ):
        again = applies(joining(place), key, *changes)
        assert (again.outcome, again.version, again.changes) == (
            "already_committed",
            first.version,
            first.changes,
        )
        with pytest.raises(sw.ReplayMismatchError):
            applies(joining(place), key, change(9, 9))
    assert place.open().append([{"id": 7, "at": 1, "name": "later"}]).outcome == "committed"
    assert len(place.open().history()) == 3


def test_counts_of_a_long_list_are_each_members_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list goes into a file of its own, once the plan says what each member's changes did."""
    monkeypatch.setattr(members, "INLINE_BYTES_MAX", 10)
    monkeypatch.setattr(iceberg_members, "INLINE_CHARS_MAX", 10)
    led, leads = both(place, [change(1, 5, op="d"), change(3, 1)], [change(2, 3)])
    assert (led.changes["inserted"], led.changes["deleted"], leads.changes["updated"]) == (1, 1, 1)
    assert isinstance(place, LakePlace) or len(place.objects("_safewrite/members")) == 1
    assert applies(joining(place), "led", change(1, 5, op="d"), change(3, 1)).outcome == "already_committed"


def test_a_long_list_is_uploaded_once_with_each_plan(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rival's commit makes the leader's plan old: its next plan has the other writer's changes too."""
    monkeypatch.setattr(members, "INLINE_BYTES_MAX", 10)
    monkeypatch.setattr(iceberg_members, "INLINE_CHARS_MAX", 10)
    led, leads, rival = joining(place), joining(place), place.open()
    meanwhile(
        leads, lambda: applies(rival, "rival", change(3, 1)), step_of(place, "commit.put_commit"), "before"
    )
    leads.world = recorder = Recorder(leads.world)
    meanwhile(led, lambda: applies(leads, "leads", change(2, 3)))
    receipt = applies(led, "led", change(3, 2))
    assert (receipt.members, receipt.changes["updated"], len(place.open().history())) == (2, 1, 3)
    listed = [
        step for step in recorder.steps if step.startswith(("stage.put_members", "stage.put_manifest_list"))
    ]
    assert len(listed) == 2


def test_a_row_that_a_later_member_replaces_is_written_once(place: Place) -> None:
    led, leads = both(place, [change(1, 3, "led")], [change(1, 2, "leads")])
    assert (led.changes["updated"], leads.changes["updated"], led.version) == (1, 1, leads.version)
    assert rows_of(place) == {1: (3, "led"), 2: (1, "b")}


def test_who_waits_makes_no_plan(place: Place) -> None:
    """A crowd must not each read and upload in vain."""
    first, second = joining(place), joining(place)
    meanwhile(first, lambda: applies(second, "leads", change(2, 2)))
    first.world = recorder = Recorder(first.world)
    assert applies(first, "led", change(1, 2)).led_by_us is False
    assert [step for step in recorder.steps if step.startswith(("stage.", "overwrite.", "apply."))] == []
    data = {path for path in place.objects("") if path.endswith(".parquet") and "_delta_log" not in path}
    memory = 0 if isinstance(place, LakePlace) else 1  # Delta's is a Parquet file too
    assert len(data) == 2 + memory  # the first file, and that of the leader's changes


def test_one_writer_waits_for_no_one(place: Place) -> None:
    receipt = applies(joining(place), "alone", change(1, 2, "new"), change(2, 2, op="d"))
    assert (receipt.members, receipt.led_by_us, receipt.removed_rows) == (1, True, 2)
    assert rows_of(place) == {1: (2, "new")}
    assert queued(place) == []


def test_who_takes_over_is_waited_for_as_its_predecessor_was() -> None:
    """Its member has another time then. So the dead cost those behind them a step each, not a lease each."""
    names = [
        member_queue.path_of("", 0, 16, clock_ms=at, key=f"k{at}", unique="x", kind=member_queue.CHANGES)
        for at in range(5)
    ]
    there = [member_queue.Waiting(name, 0, 16, 1000, 9, kind=member_queue.CHANGES) for name in names]
    share = member_queue.Share[Any](
        SimpleNamespace(kind=member_queue.CHANGES), member_queue.Terms(), path=names[4]
    )
    share.look(there)
    assert [one.path for one in share.ahead()] == names[:4]
    assert share.patience_s(6.0, 0.0) == 6.0 + 3 * 1.0
    share.look([replace(one, modified_ms=8000) if one.path == names[2] else one for one in there])
    assert [one.path for one in share.ahead()] == names[2:4]
    assert share.patience_s(6.0, 0.0) == 6.0 + 1.0
    assert share.patience_s(6.0, 1.0) == 8.0 + 8.0  # its own requests take long


def test_a_lone_writer_asks_the_queue_nothing(place: Place) -> None:
    table = place.open()
    table.world = recorder = Recorder(table.world)
    assert applies(table, "alone", change(1, 2)).members == 1
    assert [step for step in recorder.steps if step.startswith("share.")] == []


# --- members at fault -----------------------------------------------------------------------------------
def test_a_member_that_is_refused_fails_alone_and_for_good(place: Place) -> None:
    """Its error says that nothing was written: so no one may apply it later, whoever has read it."""
    led, leads = both(place, [change(1, 1, "other")], [change(2, 2, "leads")])
    assert isinstance(led, sw.InvalidInputError)
    assert "unequal changes with one sequence" in str(led)
    assert (leads.outcome, leads.members) == ("committed", 1)
    assert rows_of(place) == {1: (1, "a"), 2: (2, "leads")}
    assert queued(place) == []
    assert place.open().resolve("led") is None
    last, before = place.open().history()[:2]
    assert before.version == leads.version  # what was refused on the newest version is not planned again
    assert last.writes == ()  # a version without rows harms no one
    assert isinstance(place, LakePlace) or examine(inspect_table(place.uri)) == []


def test_a_leader_that_is_refused_fails_alone(place: Place) -> None:
    led, leads = both(place, [change(1, 2, "led")], [change(2, 1, "other")])
    assert isinstance(leads, sw.InvalidInputError)
    assert led.outcome == "committed"
    assert rows_of(place) == {1: (2, "led"), 2: (1, "b")}
    assert place.open().resolve("leads") is None


@pytest.mark.parametrize(("led_late", "leads_late"), [("error", "count"), ("count", "error")])
def test_each_writer_says_whether_its_changes_may_all_be_late(
    place: Place, led_late: str, leads_late: str
) -> None:
    led, leads = both(place, [change(1, 0)], [change(2, 0)], led_late=led_late, leads_late=leads_late)
    counted, refused = (led, leads) if led_late == "count" else (leads, led)
    assert isinstance(refused, sw.InvalidInputError)
    assert "Every change of this call (1 in all) is older" in str(refused)
    assert (counted.outcome, counted.changes["late"]) == ("committed", 1)
    assert rows_of(place) == {1: (1, "a"), 2: (1, "b")}


def test_writers_whose_changes_may_be_late_share_commits(place: Place) -> None:
    late = {"led_late": "count", "leads_late": "count"}
    led, leads = both(place, [change(1, 0), change(2, 2)], [change(2, 0)], **late)
    assert (led.version, led.members, leads.members) == (leads.version, 2, 2)
    assert (led.changes["late"], leads.changes["late"]) == (1, 1)
    assert rows_of(place) == {1: (1, "a"), 2: (2, "x")}


def test_withdrawn_changes_are_carried_by_no_one(place: Place) -> None:
    """Their member stays in the queue here, as one that a writer has read stays with it."""
    owner = joining(place)
    body: list[tuple[str, bytes]] = []

    def read() -> None:
        (path,) = queued(place)
        body.append((path, bytes(place.objects("_safewrite/queue")[path])))

    meanwhile(owner, read)
    with pytest.raises(sw.InvalidInputError):
        applies(owner, "refused", change(1, 1, "other"))
    place.put(*body[0])
    place.open().delete([("id", "=", 1)])  # now nothing would refuse them
    assert applies(joining(place), "next", change(2, 5)).members == 1
    assert rows_of(place) == {2: (5, "x")}


def test_a_refusal_that_no_version_takes_back_is_in_doubt(place: Place) -> None:
    """Whatever stands in the way, a library's own exception too."""
    owner = joining(place)

    def fail() -> None:
        raise OSError("no more memory")

    meanwhile(owner, fail, "withdraw.id", "before")
    with pytest.raises(sw.CommitUnknownError, match="unequal changes with one sequence"):
        applies(owner, "refused", change(1, 1, "other"))


def test_a_refusal_decides_what_an_earlier_call_left_in_doubt(place: Place) -> None:
    """A writer may have read what that one offered, and be as late as it likes."""
    first, again = joining(place), joining(place)
    body: list[tuple[str, bytes]] = []

    def read() -> None:
        (path,) = queued(place)
        body.append((path, bytes(place.objects("_safewrite/queue")[path])))

    meanwhile(first, read)
    meanwhile(first, crash, step_of(place, "commit.put_commit"), "before")
    with pytest.raises(CrashError):
        applies(first, "refused", change(2, 2))
    place.open().append([{"id": 9, "at": 1, "name": "later"}])
    place.open().overwrite([{"id": 2, "at": 2, "name": "other"}], where=[("id", "=", 2)])
    with pytest.raises(sw.InvalidInputError):
        applies(again, "refused", change(2, 2))
    for path in queued(place):
        Path(place.uri, path).unlink()
    assert place.open().resolve("refused") is None
    place.put(*body[0])
    place.open().delete([("id", "=", 2)])  # now nothing would refuse them
    assert applies(joining(place), "next", change(1, 5)).members == 1
    assert rows_of(place).keys() == {1, 9}


def test_changes_of_other_keys_go_alone(place: Place) -> None:
    other = joining(place)
    leads: list[sw.Receipt] = []
    meanwhile(other, lambda: leads.append(applies(joining(place), "leads", change(2, 2))))
    with pytest.raises(sw.InvalidInputError, match="deleted keys could not be told"):
        applies(other, "other", change(1, 2), keys=["id", "name"])
    assert leads[0].members == 1


@pytest.mark.parametrize(
    "how",
    [
        {"check": lambda rows, counts: None},
        {"full_refresh": True},
        {"properties": {"etl.job": "x"}},
        {"positions": {"topic": (None, 5)}},
    ],
)
def test_a_call_that_asks_for_more_goes_alone(place: Place, how: dict[str, Any]) -> None:
    table = joining(place)
    table.world = recorder = Recorder(table.world)
    assert applies(table, "alone", change(1, 2), change(2, 2), **how).members == 1
    assert "share.put_member" not in recorder.steps


# --- appends and changes in one queue -------------------------------------------------------------------
def test_each_kind_is_led_by_its_own(place: Place) -> None:
    """And neither takes the other out of the queue."""
    appends, changes = joining(place), joining(place)
    receipts: list[sw.Receipt] = []
    meanwhile(appends, lambda: receipts.append(applies(changes, "changes", change(1, 2))))
    rows = [{"id": 8, "at": 1, "name": "new"}]
    receipts.append(appends.append(rows, key="append"))
    assert [(one.outcome, one.members) for one in receipts] == [("committed", 1)] * 2
    meanwhile(changes, lambda: receipts.append(appends.append([{"id": 9, "at": 1, "name": "n"}], key="two")))
    receipts.append(applies(changes, "again", change(1, 3)))
    assert [(one.outcome, one.members) for one in receipts[2:]] == [("committed", 1)] * 2
    assert rows_of(place).keys() == {1, 2, 8, 9}
    assert queued(place) == []


# --- who dies -------------------------------------------------------------------------------------------
def test_changes_of_a_dead_writer_are_applied_once(place: Place) -> None:
    """By the next writer that applies changes; ``repair`` applies none."""
    owner = joining(place)
    meanwhile(owner, crash)
    with pytest.raises(CrashError):
        applies(owner, "dead", change(1, 2, "dead"))
    grow_old(place)
    ((status, why),) = finished(place) if isinstance(place, LakePlace) else repaired(place)
    assert (status, "the next that applies changes" in why) == ("skipped", True)
    (path,) = queued(place)
    os.utime(Path(place.uri, path))
    successor = joining(place)
    successor.world = recorder = Recorder(successor.world)
    receipt = applies(successor, "next", change(2, 2, "next"))
    assert receipt.members == 2
    assert recorder.steps.count("share.show") == 1  # to those behind it
    again = applies(joining(place), "dead", change(1, 2, "dead"))
    assert (again.outcome, again.version) == ("already_committed", receipt.version)
    assert rows_of(place) == {1: (2, "dead"), 2: (2, "next")}


@pytest.mark.sweep("iceberg-before", "iceberg-after-commit.verify")
@pytest.mark.parametrize("step", ["commit.put_commit", "commit.verify"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_leader_that_dies_is_succeeded(place: Place, step: str, side: str) -> None:
    """What it carried is applied once, and so are its own changes when they come again."""
    owner, leader = joining(place), joining(place)

    def lead() -> None:
        meanwhile(leader, crash, step_of(place, step), side)
        with pytest.raises(CrashError):
            applies(leader, "leads", change(2, 2, op="d"))

    meanwhile(owner, lead)
    assert applies(owner, "led", change(1, 2, "led"), change(2, 1, "b")).outcome == "committed"
    assert applies(joining(place), "leads", change(2, 2, op="d")).outcome in {
        "committed",
        "already_committed",
    }
    assert rows_of(place) == {1: (2, "led")}
    assert applies(joining(place), "next", change(3, 1)).outcome == "committed"
    assert queued(place) == []


def test_a_member_that_stays_in_the_queue_is_never_applied_again(place: Place) -> None:
    """D2: the key is looked for in every commit since its base."""
    owner = joining(place)
    body: list[tuple[str, bytes]] = []

    def read() -> None:
        (path,) = queued(place)
        body.append((path, bytes(place.objects("_safewrite/queue")[path])))

    meanwhile(owner, read)
    applies(owner, "event", change(5, 2))
    place.put(*body[0])
    place.open().delete([("id", "=", 5)])
    assert applies(joining(place), "next", change(2, 2)).members == 1
    assert rows_of(place).keys() == {1, 2}


@pytest.mark.parametrize("damage", ["rows", "keys", "fingerprint"])
def test_changes_that_are_not_what_their_member_says_are_not_applied(place: Place, damage: str) -> None:
    owner = joining(place)
    meanwhile(owner, crash)
    with pytest.raises(CrashError):
        applies(owner, "dead", change(1, 2, "dead"))
    (path,) = queued(place)
    member = json.loads(bytes(place.objects("_safewrite/queue")[path]))
    if damage == "fingerprint":
        member["write"]["fingerprint"] = "1:00"
    else:
        member["changes"][damage] = "AAAA" if damage == "rows" else ["at"]
    place.put(path, json.dumps(member).encode())
    assert applies(joining(place), "next", change(2, 2, "next")).members == 1
    assert rows_of(place) == {1: (1, "a"), 2: (2, "next")}


# --- many at once ---------------------------------------------------------------------------------------
def test_writers_that_change_the_same_keys_at_once_leave_the_last_of_each(place: Place) -> None:
    """Threads as processes: each has a table of its own, and all begin together."""
    count, batches = 5, 3
    start = threading.Barrier(count)

    def write(number: int) -> list[sw.Receipt]:
        table = joining(place, lease_s=2.0)
        start.wait(30)
        return [
            applies(table, f"{number}-{turn}", *changes_of(number, turn), timeout_s=60.0)
            for turn in range(batches)
        ]

    def changes_of(number: int, turn: int) -> list[dict[str, Any]]:
        at = 10 + turn * count + number
        own = change(100 + number * batches + turn, 1, "own")
        return [own, change(1, at, f"{number}-{turn}"), change(2, at, op="d" if at % 2 else "u")]

    with ThreadPoolExecutor(count) as pool:
        receipts = [one for found in pool.map(write, range(count)) for one in found]
    last = 10 + (batches - 1) * count + count - 1
    assert rows_of(place) == {
        1: (last, f"{count - 1}-{batches - 1}"),
        **({} if last % 2 else {2: (last, "x")}),
        **{100 + number: (1, "own") for number in range(count * batches)},
    }
    assert all(sum(one.changes.values()) - one.changes["applied"] == 3 for one in receipts if one.changes)
    assert max(one.members for one in receipts if one.members) > 1
    assert queued(place) == []
