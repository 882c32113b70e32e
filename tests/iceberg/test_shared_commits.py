"""Writers of several processes share one snapshot of an Iceberg table: who leads, who is carried, and what each is answered.

A second table object stands for the second process; it acts at a step of the first one's write.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from time import sleep
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

import safewrite as sw
from safewrite.errors import Kind
from safewrite.iceberg.format import IcebergFormat
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write import waiting
from safewrite.protocol.effects import Delete, Effect, Ok, Outcome, Unknown
from safewrite.protocol.iceberg.change import SwapTable
from safewrite.stores.world import Performer
from safewrite.table import shared_queue
from safewrite.testing.steps import At, Recorder, Stepwise, points, side_of
from tests.integration.places import CrashError, once, rows
from tests.sampling import some_points

STEPS = ("share.", "stage.", "swap.", "ledger.")


class Lake:
    """One table of a catalog on SQLite."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
        self.open(create=True, create_namespace=True).append(rows(0), key="before")

    def open(self, **settings: Any) -> IcebergTable:
        table = sw.open("db.t", catalog=self.catalog, **settings)
        assert isinstance(table, IcebergTable)
        return table

    def joining(self, **settings: Any) -> IcebergTable:
        """A writer that shares from its first try on."""
        return self.open(group="always", **({"lease_s": 0.02} | settings))

    def queued(self) -> list[Path]:
        """What waits in the queue."""
        return list(self.folder.glob("db/t/_safewrite/queue/*"))

    def all_see(self, *ids: int) -> None:
        """PyIceberg sees these rows, once each, and nothing waits any more."""
        seen = self.catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist()
        assert Counter(seen) == once(*ids)
        assert self.queued() == []


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def meanwhile(
    table: sw.Table, act: Callable[[], object], step: str = "share.put_member", side: Any = "after"
) -> At:
    """Let another writer act at a step of this table's next write."""
    table.world = trap = At(table.world, step, side, act)
    return trap


def crash() -> None:
    raise CrashError


class Without(Stepwise):
    """Performs all but one kind of effect."""

    def __init__(self, world: Performer, kind: type[Effect], answer: Outcome) -> None:
        super().__init__(world)
        self.kind, self.answer = kind, answer

    def _step(self, step: str, effect: Effect) -> Outcome:
        return self.answer if isinstance(effect, self.kind) else self.world.perform(effect)


def test_who_waits_is_committed_with_another_writers_rows(lake: Lake) -> None:
    """Both have receipts of their own, and repeats are recognised; the snapshot's count is the sum."""
    led, leads = lake.joining(), lake.joining()
    receipts: list[sw.Receipt] = []
    meanwhile(led, lambda: receipts.append(leads.append(rows(2, 3), key="leads")))
    first = led.append(rows(1), txn=("app", 7))
    (second,) = receipts
    assert (first.outcome, first.members, first.led_by_us, first.rows) == ("committed", 2, False, 1)
    assert (second.outcome, second.members, second.led_by_us, second.rows) == ("committed", 2, True, 2)
    assert first.version == second.version
    assert second.waited_s > 0
    lake.all_see(0, 1, 2, 3)
    assert {write.key: write.rows for write in lake.open().committed_writes(first.version) or ()} == {
        "leads": 2,
        "app/7": 1,
    }
    summary = lake.catalog.load_table("db.t").current_snapshot().summary  # type: ignore[union-attr]
    assert (summary["added-records"], summary["total-records"]) == ("3", "4")  # type: ignore[index]
    assert lake.joining().append(rows(1), txn=("app", 7)).outcome == "already_committed"
    assert lake.joining().append(rows(2, 3), key="leads").led_by_us is None
    with pytest.raises(sw.ReplayMismatchError):
        lake.joining().append(rows(9), key="leads")
    assert led.append(rows(4)).members == 1  # it knows the table as the other writer left it
    lake.all_see(0, 1, 2, 3, 4)


def test_a_lone_writer_asks_the_queue_nothing(lake: Lake) -> None:
    table = lake.open()
    table.world = recorder = Recorder(table.world)
    receipt = table.append(rows(1))
    assert (receipt.members, receipt.led_by_us, receipt.waited_s) == (1, True, 0.0)
    assert [step for step in recorder.steps if step.startswith("share.")] == []


@pytest.mark.long
@pytest.mark.parametrize("far", [True, False])
def test_writers_that_meet_share_by_themselves_where_the_store_is_far(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    """A lone writer asks the queue nothing; two that have lost a try to each other commit for each other."""
    if far:
        monkeypatch.setattr(waiting, "REMOTE", ("file://",))
    one, two = (lake.open(lease_s=0.02) for _ in range(2))
    plain = one.world
    recorders = [Recorder(one.world), Recorder(two.world)]
    one.world, two.world = recorders
    one.append(rows(1))
    assert [step for step in recorders[0].steps if step.startswith("share.")] == []
    meanwhile(one, lambda: two.append(rows(2)), "swap.commit", "before")
    one.append(rows(3))
    two.world = recorders[1]
    meanwhile(two, lambda: one.append(rows(4)), "swap.commit", "before")
    two.append(rows(5))
    receipts: list[sw.Receipt] = []
    if far:
        one.world = plain
        meanwhile(one, lambda: receipts.append(two.append(rows(7))))
        receipts.append(one.append(rows(6)))
        assert [(receipt.members, receipt.led_by_us) for receipt in receipts] == [(2, True), (2, False)]
    steps = [step for recorder in recorders for step in recorder.steps if step.startswith("share.")]
    assert bool(steps) is far
    lake.all_see(0, 1, 2, 3, 4, 5, *([6, 7] if far else []))


def test_a_key_that_waits_twice_is_committed_once(lake: Lake) -> None:
    """D5: the app writes again while its first call waits."""
    first, again = lake.joining(), lake.joining()
    receipts: list[sw.Receipt] = []
    meanwhile(first, lambda: receipts.append(again.append(rows(1), key="event")))
    assert first.append(rows(1), key="event").outcome == "already_committed"
    assert [(one.outcome, one.members) for one in receipts] == [("committed", 1)]
    lake.all_see(0, 1)


def test_a_member_that_stays_in_the_queue_is_never_carried_again(lake: Lake) -> None:
    """D4: its removal is lost; the key is in the metadata."""
    table = lake.joining()
    table.world = Without(table.world, Delete, Ok())
    table.append(rows(1), key="event")
    assert len(lake.queued()) == 1
    assert lake.joining().append(rows(2), key="next").members == 1
    lake.all_see(0, 1, 2)


def test_no_member_is_carried_past_snapshots_that_were_expired(lake: Lake) -> None:
    """One of them may have carried it: the metadata does not show every sequence number since its base."""
    table = lake.joining()
    table.world = Without(table.world, Delete, Ok())
    table.append(rows(1), key="event")
    lake.open().append(rows(2))
    plain = lake.catalog.load_table("db.t")
    plain.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in plain.snapshots()[:-1]]).commit()
    assert lake.joining().append(rows(3), key="next").members == 1
    assert Counter(lake.open().iceberg.scan().to_arrow()["id"].to_pylist()) == once(0, 1, 2, 3)


@pytest.mark.long
def test_a_member_waits_for_few_snapshots_only(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """So one whose owner is long dead, or whose upload arrives late, cannot come in some day."""
    monkeypatch.setattr(shared_queue, "SPAN", 3)
    owner = lake.joining()
    meanwhile(owner, crash)
    with pytest.raises(CrashError):
        owner.append(rows(1), key="dead")
    others = lake.open(group="never")
    for number in range(3):
        with pytest.raises(sw.CommitUnknownError, match="sequence number 4"):
            lake.open().resolve("dead")
        others.append(rows(10 + number))
    assert lake.open().resolve("dead") is None  # though its member is there
    assert lake.joining().append(rows(2), key="next").members == 1
    lake.all_see(0, 2, *range(10, 13))
    assert lake.open().append(rows(1), key="dead").outcome == "committed"


def test_a_member_from_before_a_change_of_the_schema_goes_alone(lake: Lake) -> None:
    """D6: the table changes while it waits; it meets that itself, and the leader's commit goes on."""
    late = lake.joining()

    def change_and_lead() -> None:
        with lake.catalog.load_table("db.t").update_schema() as update:
            update.add_column("more", LongType())
        more = rows(2).append_column("more", pa.array([5], pa.int64()))
        assert lake.joining().append(more, key="leads").members == 1

    meanwhile(late, change_and_lead)
    with pytest.raises(sw.WouldAlterError):  # planned again on the table as it is now
        late.append(rows(1), key="late")
    lake.all_see(0, 2)


def rename(lake: Lake, old: str, new: str) -> None:
    with lake.catalog.load_table("db.t").update_schema() as update:
        update.rename_column(old, new)


@pytest.mark.long
def test_who_meets_a_schema_that_may_come_back_is_in_doubt_while_a_leader_may_hold_its_write(
    lake: Lake,
) -> None:
    """A change of schema takes no sequence number: the leader's commit, made before it, lands once it is taken back."""
    late, leader = lake.joining(), lake.joining()
    holds, lands = Event(), Event()

    def hold() -> None:
        holds.set()
        assert lands.wait(5)

    def lead_and_change() -> None:
        thread.start()
        assert holds.wait(5)
        rename(lake, "id", "other")

    receipts: list[sw.Receipt] = []
    meanwhile(leader, hold, "swap.commit", "before")
    thread = Thread(target=lambda: receipts.append(leader.append(rows(2), key="leads")))
    meanwhile(late, lead_and_change)
    with pytest.raises(
        sw.CommitUnknownError, match="sequence number 17"
    ):  # its rows do not fit the table as it is now
        late.append(rows(1), key="late")
    rename(lake, "other", "id")
    with pytest.raises(sw.CommitUnknownError):
        lake.open().resolve("late")
    lands.set()
    thread.join(5)
    assert [one.members for one in receipts] == [2]
    assert lake.open().resolve("late") is not None
    assert lake.open().append(rows(1), key="late").outcome == "already_committed"
    lake.all_see(0, 1, 2)


def test_a_doubt_outlives_the_attempts_that_follow(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    doubt = sw.CommitUnknownError("Another may still commit it.")
    doubt.__cause__ = sw.ConflictError("The schema changed.", kind=Kind.SCHEMA_CHANGED)
    answers = [doubt, sw.StorageError("No answer. Nothing was committed.")]

    def commit(*_: object, **__: object) -> None:
        raise answers.pop(0)

    monkeypatch.setattr(IcebergFormat, "commit", commit)
    with pytest.raises(sw.CommitUnknownError, match="Another may") as raised:
        lake.open().append(rows(1), key="event")
    assert (answers, type(raised.value.__cause__)) == ([], sw.StorageError)
    assert raised.value.key == "event"


def test_a_member_on_the_local_disk_is_whole_or_absent(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, sync = lake.joining(), os.fsync
    seen: list[list[str]] = []

    def synced(number: int) -> None:
        seen.append([path.name for path in lake.queued() if not path.name.startswith(".")])
        sync(number)

    monkeypatch.setattr(os, "fsync", synced)
    meanwhile(owner, lambda: seen.append([path.name for path in lake.queued()]))
    owner.append(rows(1))
    assert (len(seen[0]), len(seen[-1])) == (0, 1)


@pytest.mark.sweep("[1]", '{"form":1}')
@pytest.mark.parametrize("body", [b"", b"[1]", b'{"form":1}', b'{"form":2,"write":{}}'])
def test_what_no_one_can_read_stops_no_one(lake: Lake, body: bytes) -> None:
    name = lake.folder / f"db/t/_safewrite/queue/{1:020d}-{17:020d}-x-y"
    name.parent.mkdir(parents=True)
    name.write_bytes(body)
    assert lake.joining().append(rows(1)).members == 1
    assert lake.queued() == ([] if b'"form":1' in body else [name])  # of a later release, perhaps


@pytest.mark.long
@pytest.mark.parametrize("every_point", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_leader_that_dies_at_any_step_is_succeeded(tmp_path: Path, every_point: bool) -> None:
    """D3, D8: its members learn from the table what became of them, and its own write is once."""
    undisturbed = Lake(tmp_path / "undisturbed")
    owner, leader = undisturbed.joining(), undisturbed.joining()
    leader.world = recorder = Recorder(leader.world)
    meanwhile(owner, lambda: leader.append(rows(2), key="leads"))
    owner.append(rows(1), key="waits")
    found = points(step for step in recorder.steps if step.startswith(STEPS))
    assert len(found) >= 20
    few = some_points(found, every=len(found))[::3]
    for number, point in enumerate(found if every_point else few):
        lake = Lake(tmp_path / f"{number}")
        owner, leader = lake.joining(), lake.joining()

        def lead(leader: sw.Table = leader, point: str = point) -> None:
            trap = meanwhile(leader, crash, *side_of(point))
            with pytest.raises((CrashError, sw.CommitUnknownError)):
                leader.append(rows(2), key="leads")
            assert trap.reached

        meanwhile(owner, lead)
        assert owner.append(rows(1), key="waits").outcome == "committed"
        assert lake.joining().append(rows(2), key="leads").outcome in {"committed", "already_committed"}
        assert lake.joining().append(rows(3), key="next").outcome == "committed"
        lake.all_see(0, 1, 2, 3)


def test_a_leader_in_doubt_leaves_its_members_to_others(lake: Lake) -> None:
    """Its answers are lost from the commit on; each row is there once, by whomever."""
    owner, leader = lake.joining(), lake.joining(timeout_s=0.3)

    def lead() -> None:
        leader.world = Without(leader.world, SwapTable, Unknown("no answer"))
        with pytest.raises(sw.CommitUnknownError):
            leader.append(rows(2), key="leads")

    meanwhile(owner, lead)
    assert owner.append(rows(1), key="waits").outcome == "committed"
    assert lake.open().append(rows(2), key="leads").outcome in {"committed", "already_committed"}
    lake.all_see(0, 1, 2)


@pytest.mark.long
def test_who_gives_up_on_an_idle_table_is_decided_by_the_same_call(lake: Lake) -> None:
    """D5: error and resolve name the same last sequence number, whether the ledger or the queue tells it."""
    owner = lake.joining(timeout_s=0.5)
    meanwhile(owner, lambda: sleep(0.6))
    with pytest.raises(sw.CommitUnknownError, match=r"reached sequence number 17\."):
        owner.append(rows(1), key="event")
    assert lake.queued() == []
    for table in (owner, lake.open()):
        with pytest.raises(sw.CommitUnknownError, match="sequence number 17"):
            table.resolve("event")
    assert lake.open().append(rows(1), key="event").outcome == "committed"
    assert lake.open().resolve("event") is not None
    lake.all_see(0, 1)
