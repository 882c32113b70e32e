"""Writers of several processes share one commit: who leads, who is carried, and what each is answered.

A second table object stands for the second process; it acts at a step of the first one's write.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest

import safewrite as sw
from safewrite.protocol.effects import Delete, Effect, Failed, Get, List, Ok, Outcome, Put, Together
from safewrite.stores.world import Performer
from safewrite.table.shared_queue import _usable
from safewrite.testing.steps import At, Recorder, points, side_of
from tests.integration.places import CrashError, Place, crash_at, once, rows, visible
from tests.sampling import some_points

STEPS = ("share.", "commit.put_commit", "commit.verify", "ledger.", "catch_up.")


def begun(folder: Path) -> Place:
    """A table of one row."""
    here = Place(str(folder), "local")
    here.open(create=True).append(rows(0), key="before")
    return here


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """The same."""
    return begun(tmp_path / "t")


def joining(place: Place, **settings: Any) -> sw.Table:
    """A writer that shares from its first try on."""
    return place.open(group="always", **({"lease_s": 0.02} | settings))


def meanwhile(
    table: sw.Table, act: Callable[[], object], step: str = "share.put_member", side: Any = "after"
) -> At:
    """Let another writer act at a step of this table's next write."""
    table.world = trap = At(table.world, step, side, act)
    return trap


def crash() -> None:
    raise CrashError


def queued(place: Place) -> list[str]:
    """What waits in the queue."""
    return list(place.objects("_safewrite/queue"))


def all_see(place: Place, *ids: int) -> None:
    """Every reader sees these rows, once each, and nothing waits any more."""
    assert visible([place.ids(), place.replayed_ids()]) == once(*ids)
    assert queued(place) == []


# --- what a commit carries ------------------------------------------------------------------------------
def test_who_waits_is_committed_with_another_writers_rows(place: Place) -> None:
    """Both have receipts of their own, and repeats are recognised."""
    led, leads = joining(place), joining(place)
    receipts: list[sw.Receipt] = []
    meanwhile(led, lambda: receipts.append(leads.append(rows(2), key="leads")))
    first = led.append(rows(1), key="led")
    (second,) = receipts
    assert (first.outcome, first.version, first.members, first.led_by_us, first.rows) == (
        "committed",
        1,
        2,
        False,
        1,
    )
    assert (second.outcome, second.version, second.members, second.led_by_us) == ("committed", 1, 2, True)
    assert second.waited_s > 0
    all_see(place, 0, 1, 2)
    assert {write.key: write.rows for write in place.open().committed_writes(1) or ()} == {
        "leads": 1,
        "led": 1,
    }
    for key, row in (("led", 1), ("leads", 2)):
        again = joining(place).append(rows(row), key=key)
        assert (again.outcome, again.version, again.led_by_us) == ("already_committed", 1, None)
        with pytest.raises(sw.ReplayMismatchError):
            joining(place).append(rows(9), key=key)
        found = place.open().resolve(key)
        assert found is not None
        assert found.version == 1
    assert led.append(rows(3)).version == 2  # it knows the table as the other writer left it
    all_see(place, 0, 1, 2, 3)


def test_a_lone_writer_asks_the_queue_nothing(place: Place) -> None:
    table = place.open()
    table.world = recorder = Recorder(table.world)
    receipt = table.append(rows(1))
    assert (receipt.members, receipt.led_by_us, receipt.waited_s) == (1, True, 0.0)
    assert [step for step in recorder.steps if step.startswith("share.")] == []


def test_one_writer_waits_for_no_one(place: Place) -> None:
    receipt = joining(place).append(rows(1), key="alone")
    assert (receipt.members, receipt.led_by_us) == (1, True)
    all_see(place, 0, 1)


def test_a_key_that_waits_twice_is_committed_once(place: Place) -> None:
    """D5: the app writes again while its first call waits."""
    first, again = joining(place), joining(place)
    receipts: list[sw.Receipt] = []
    meanwhile(first, lambda: receipts.append(again.append(rows(1), key="event")))
    assert first.append(rows(1), key="event").outcome == "already_committed"
    assert [(one.outcome, one.members) for one in receipts] == [("committed", 1)]
    all_see(place, 0, 1)


def test_batches_of_one_app_are_committed_in_their_order(place: Place) -> None:
    """Two of them in one version would leave the table with only the later one's number."""
    first, second, third = (joining(place) for _ in range(3))
    meanwhile(second, lambda: third.append(rows(3), key="other"))
    receipts: list[sw.Receipt] = []
    meanwhile(first, lambda: receipts.append(second.append(rows(2), txn=("app", 2))))
    assert first.append(rows(1), txn=("app", 1)).outcome == "committed"
    assert receipts[0].version > 1
    all_see(place, 0, 1, 2, 3)


def test_a_member_that_stays_in_the_queue_is_never_carried_again(place: Place) -> None:
    """D4: its removal is lost, and its rows are compacted, before the next writer leads."""
    table = joining(place)
    table.world = Without(table.world, Delete, Ok())
    table.append(rows(1), key="event")
    assert len(queued(place)) == 1
    place.delta().optimize.compact()
    assert joining(place).append(rows(2), key="next").members == 1
    all_see(place, 0, 1, 2)


def test_a_member_waits_for_few_versions_only(place: Place) -> None:
    """So one whose owner is long dead, or whose upload arrives late, cannot come in some day."""
    owner = joining(place)
    meanwhile(owner, crash)
    with pytest.raises(CrashError):
        owner.append(rows(1), key="dead")
    others = place.open(group="never")
    for number in range(16):
        with pytest.raises(sw.CommitUnknownError) as undecided:
            place.open().resolve("dead")
        assert undecided.value.version == 16
        others.append(rows(10 + number))
    assert place.open().resolve("dead") is None  # though its member is there
    receipt = joining(place).append(rows(2), key="next")
    assert receipt.members == 1
    all_see(place, 0, 2, *range(10, 26))
    assert place.open().append(rows(1), key="dead").outcome == "committed"


# --- members at fault -----------------------------------------------------------------------------------
def test_a_member_from_before_a_change_of_the_table_goes_alone_and_the_others_together(place: Place) -> None:
    """D6: the table changes while it waits; it meets that itself, and the leader's commit goes on."""
    late = joining(place)

    def change_and_lead() -> None:
        place.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 40 days"})
        waits, leads = joining(place), joining(place)
        meanwhile(waits, lambda: leads.append(rows(3), key="leads"))
        assert waits.append(rows(2), key="waits").members == 2

    meanwhile(late, change_and_lead)
    receipt = late.append(rows(1), key="late")  # planned again on the table as it is now
    assert (receipt.outcome, receipt.version, receipt.members) == ("committed", 3, 1)
    all_see(place, 0, 1, 2, 3)


def test_a_table_that_another_replaces_while_a_write_waits_is_not_written(place: Place) -> None:  # A17
    """Who waits reads versions without a proof of the log; the proof comes before the write's own commit."""
    crash_at(joining(place), "share.put_member", "after", rows(8), key="first")
    waits = joining(place)

    def replace() -> None:
        shutil.rmtree(place.uri)
        begun(Path(place.uri)).open().append(rows(5))

    trap = meanwhile(waits, replace, "share.poll", "before")
    with pytest.raises(sw.ConflictError) as caught:
        waits.append(rows(1), key="waits")
    assert (caught.value.kind, trap.reached) == (sw.Kind.TABLE_REPLACED, 1)
    all_see(place, 0, 5)


def test_who_is_next_leads_without_another_look(place: Place) -> None:
    """A version says whose writes it carries, so the queue is not listed again to learn who is left."""
    next_one, leads, looked = joining(place, lease_s=30.0), joining(place), threading.Event()
    next_one.world = At(recorder := Recorder(next_one.world), "share.look", "after", looked.set)
    thread = threading.Thread(target=next_one.append, args=(rows(2),))

    def offer() -> None:
        thread.start()
        assert looked.wait(30)

    meanwhile(leads, offer, "commit.put_commit", "before")
    assert leads.append(rows(1)).members == 1
    thread.join(30)
    assert [step for step in recorder.steps if step.startswith("share.look")] == ["share.look"]
    all_see(place, 0, 1, 2)


def test_objects_of_others_in_the_queue_stop_no_one(place: Place) -> None:
    """As many as who waits asks for, and before its own."""
    Path(place.uri, "_safewrite/queue").mkdir(parents=True)
    for number in range(100):
        place.put(f"_safewrite/queue/-{number:03d}", b"")
    assert joining(place).append(rows(1)).members == 1
    assert place.ids() == once(0, 1)
    assert len(queued(place)) == 100


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b'{"form":1}', b'{"form":2,"write":{}}'])
def test_what_no_one_can_read_stops_no_one(place: Place, body: bytes) -> None:
    name = f"_safewrite/queue/{0:020d}-{16:020d}-x-y"
    Path(place.uri, "_safewrite/queue").mkdir(parents=True)
    place.put(name, body)
    assert joining(place).append(rows(1)).members == 1
    assert place.ids() == once(0, 1)
    assert queued(place) == ([] if b'"form":1' in body else [name])  # of a later release, perhaps


# --- who dies, who gives up -----------------------------------------------------------------------------
def shared_points(place: Place) -> list[str]:
    """The points of a leader's write, from a write that is not disturbed."""
    owner, leader = joining(place), joining(place)
    leader.world = recorder = Recorder(leader.world)
    meanwhile(owner, lambda: leader.append(rows(2), key="leads"))
    owner.append(rows(1), key="waits")
    return points(step for step in recorder.steps if step.startswith(STEPS))


@pytest.mark.parametrize("every_point", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_leader_that_dies_at_any_step_is_succeeded(tmp_path: Path, every_point: bool) -> None:
    """D3, D8: its members learn from the log what became of them, and its own write is once."""
    found = shared_points(begun(tmp_path / "undisturbed"))
    assert len(found) >= 30
    for number, point in enumerate(found if every_point else some_points(found, every=len(found))):
        place = begun(tmp_path / f"{number}")
        owner, leader = joining(place), joining(place)

        def lead(leader: sw.Table = leader, point: str = point) -> None:
            trap = meanwhile(leader, crash, *side_of(point))
            with pytest.raises(CrashError):
                leader.append(rows(2), key="leads")
            assert trap.reached

        meanwhile(owner, lead)
        assert owner.append(rows(1), key="waits").outcome == "committed"
        assert joining(place).append(rows(2), key="leads").outcome in {"committed", "already_committed"}
        assert joining(place).append(rows(3), key="next").outcome == "committed"
        all_see(place, 0, 1, 2, 3)


def test_who_gives_up_ends_in_doubt_for_a_leader_may_have_read_its_member(place: Place) -> None:
    """D5: here one did, and the key decides."""
    leader, owner = joining(place), joining(place, timeout_s=0.6, lease_s=60.0)
    ends: list[object] = []
    offered = threading.Event()

    def wait_in_vain() -> None:
        meanwhile(owner, offered.set)
        try:
            ends.append(owner.append(rows(1), key="gives-up"))
        except sw.CommitUnknownError as error:
            ends.append(error)

    waiting = threading.Thread(target=wait_in_vain, daemon=True)

    def start() -> None:
        waiting.start()
        assert offered.wait(30)

    def let_it_give_up() -> None:
        waiting.join(10)
        with pytest.raises(sw.CommitUnknownError):
            place.open().resolve("gives-up")

    meanwhile(leader, start)
    meanwhile(leader, let_it_give_up, "commit.put_commit", "before")
    assert leader.append(rows(2), key="leads").members == 2
    assert [type(end) for end in ends] == [sw.CommitUnknownError]
    assert place.open().resolve("gives-up") is not None
    all_see(place, 0, 1, 2)


@pytest.mark.parametrize("end", ["killed", "not recorded"])
def test_who_gives_up_leaves_the_queue_after_its_doubt_is_recorded(place: Place, end: str) -> None:
    """Else ``resolve`` finds neither, and says that the write is not there while a leader that had read its member commits it."""
    owner = joining(place, timeout_s=0.5)
    meanwhile(owner, lambda: sleep(0.6))

    def fail() -> None:
        raise CrashError if end == "killed" else OSError("the ledger is out of reach")

    meanwhile(owner, fail, "ledger.doubt", "before")
    with pytest.raises(CrashError if end == "killed" else sw.CommitUnknownError):
        owner.append(rows(1), key="event")
    with pytest.raises(sw.CommitUnknownError, match="may still land in one of the versions 1 to 16"):
        place.open().resolve("event")
    assert len(queued(place)) == 1
    assert joining(place).append(rows(2), key="next").members in {1, 2}
    assert place.open().append(rows(1), key="event").outcome in {"committed", "already_committed"}
    assert visible([place.ids(), place.replayed_ids()]) == once(0, 1, 2)


@pytest.mark.sweep("0.0", "1.0")
@pytest.mark.parametrize(("request_s", "least_s"), [(0.0, 2.0), (0.05, 2.0), (0.1, 3.2), (1.0, 6.0)])
def test_dead_writers_hold_up_who_comes_after_them_for_a_moment_each(
    place: Place, request_s: float, least_s: float
) -> None:
    """D8: a sixth of ``lease_s`` for each that is ahead, or more where requests are slow; never more than ``lease_s``."""
    for row in (1, 2):
        dead = joining(place)
        meanwhile(dead, crash)
        with pytest.raises(CrashError):
            dead.append(rows(row), key=f"dead-{row}")
    told = list[sw.Event]()
    clock = Virtual(joining(place, lease_s=6.0, on_event=told.append), request_s)
    receipt = clock.table.append(rows(3))
    assert [event.details for event in told if event.kind == "repair"] == [{"passed_over": True}]
    assert least_s < receipt.waited_s < least_s + 0.6 + 5 * request_s
    assert receipt.members == 3
    all_see(place, 0, 1, 2, 3)


class Virtual:
    """Lets time pass for a table only where it sleeps, and with each request of a wait."""

    def __init__(self, table: sw.Table, request_s: float) -> None:
        self.table, self.request_s, self.at_s = table, request_s, 0.0
        world: Any = table.world
        self.perform, world.perform = world.perform, self.slowly
        world.monotonic, world.sleep = (lambda: self.at_s), self.sleep

    def sleep(self, seconds: float) -> None:
        self.at_s += seconds

    def slowly(self, effect: Effect) -> Outcome:
        self.at_s += self.request_s * effect.name.startswith(("share.look", "share.poll"))
        return self.perform(effect)


def test_who_gives_up_on_an_idle_table_is_decided_by_the_same_call(place: Place) -> None:
    """D5: error and resolve name the same last version, and no command that decides nothing here."""
    owner = joining(place, timeout_s=0.5)
    meanwhile(owner, lambda: sleep(0.6))
    with pytest.raises(sw.CommitUnknownError, match=r"reached version 16\.") as given_up:
        owner.append(rows(1), key="event")
    with pytest.raises(
        sw.CommitUnknownError, match=r"versions 1 to 16\. .* reached version 16\."
    ) as undecided:
        place.open().resolve("event")
    assert (given_up.value.version, undecided.value.version) == (16, 16)
    assert "repair" not in str(undecided.value)
    assert place.open().append(rows(1), key="event").version == 1
    assert place.open().resolve("event") is not None
    all_see(place, 0, 1)


def test_no_member_is_put_when_the_time_is_used_up(place: Place) -> None:
    """So the write is not there and never will be, as with ``group="never"``."""
    owner = joining(place, timeout_s=0.2)
    owner.world = recorder = Recorder(owner.world)
    meanwhile(owner, lambda: sleep(0.3), "share.id")
    with pytest.raises(sw.RetriesExhaustedError):
        owner.append(rows(1), key="event")
    assert "share.put_member" not in recorder.steps
    assert place.open().resolve("event") is None
    all_see(place, 0)


# --- what the credentials may not do --------------------------------------------------------------------
class Without(Performer):
    """Answers one kind of effect on the queue itself."""

    def __init__(self, world: Performer, kind: type[Effect], answer: Outcome) -> None:
        self.world, self.kind, self.answer = world, kind, answer
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def perform(self, effect: Effect) -> Outcome:
        if isinstance(effect, Together):
            return Ok(tuple(self.perform(one) for one in effect.effects))
        path = getattr(effect, "path", None) or getattr(effect, "prefix", "")
        if not path.startswith("_safewrite/queue/"):
            return self.world.perform(effect)
        self.asked += 1
        return self.answer if isinstance(effect, self.kind) else self.world.perform(effect)


@pytest.mark.sweep("Put", "Delete")
@pytest.mark.parametrize("kind", [List, Delete, Put, Get])
def test_where_the_queue_may_not_be_used_writes_go_alone(place: Place, kind: type[Effect]) -> None:
    """And the process asks no more; another may."""
    left = joining(place)
    meanwhile(left, crash)
    with pytest.raises(CrashError):
        left.append(rows(1), key="left")
    table = joining(place)
    table.world = denied = Without(table.world, kind, Failed("403"))
    assert table.append(rows(2), key="first").members == 1
    asked = denied.asked
    assert asked > 0
    assert table.append(rows(3), key="second").members == 1
    assert joining(place).append(rows(4), key="third").members == 1
    assert denied.asked == asked
    assert len(queued(place)) == 1
    _usable.clear()  # as another process with more rights
    assert joining(place).append(rows(5), key="fourth").members == 2
    all_see(place, 0, 1, 2, 3, 4, 5)


def test_a_right_that_is_taken_away_stops_no_write(place: Place) -> None:
    table = joining(place)
    table.append(rows(1))
    table.world = denied = Without(table.world, Delete, Failed("403"))
    for number in (2, 3):
        assert table.append(rows(number)).members == 1
    assert len(queued(place)) == 1
    asked = denied.asked
    table.append(rows(4))
    assert denied.asked == asked
    _usable.clear()
    joining(place).append(rows(5))
    all_see(place, 0, 1, 2, 3, 4, 5)


def test_how_writers_share_is_one_of_three_words(tmp_path: Path) -> None:
    for group in ("sometimes", True, None, ["always"]):
        with pytest.raises(sw.InvalidInputError, match="group= is 'auto' or 'never' or 'always'"):
            sw.open(str(tmp_path / "t"), create=True, group=group)  # type: ignore[arg-type]
