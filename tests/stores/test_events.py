"""What a write does while it is silent is logged, and told to ``on_event=``."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

import safewrite as sw
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.delta.claim import finish
from safewrite.protocol.effects import Backoff, Effect, Get, List, Ok, Outcome, PutIfAbsent, Together, Unknown
from safewrite.protocol.ticket_queue import wait_turn
from safewrite.protocol.values import Entry
from safewrite.stores.events import Event, Listener, listener
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryLocks, MemoryObjects, MemoryQueue
from safewrite.stores.world import World, run

LIMITS = Limits(asks=3, lease_s=0.0)


class Lossy(World):
    """A world in memory that loses the first answers to requests of one name."""

    def __init__(self, name: str = "nothing", times: int = 1) -> None:
        objects = MemoryObjects()
        super().__init__(
            objects,
            locks=MemoryLocks(),
            queue=MemoryQueue(),
            ledger=ObjectLedger(objects),
            threads=1,
            sleep=lambda _: None,
        )
        self.losing, self.times = name, times
        self.told: list[Event] = []
        self.listener = listener(self.told.append)

    def perform(self, effect: Effect) -> Outcome:
        if effect.name == self.losing and self.times:
            self.times -= 1
            return Unknown("503 Slow Down.")
        return super().perform(effect)


def test_each_repeat_of_a_request_is_one_line_and_one_event(caplog: pytest.LogCaptureFixture) -> None:
    world = Lossy("look", times=2)
    with caplog.at_level(logging.INFO, "safewrite"):
        run(ask(Get("_delta_log/a", name="look"), LIMITS), world)
    assert [event.kind for event in world.told] == ["retry", "retry"]
    assert world.told[0].text == "Reading _delta_log/a failed: 503 Slow Down; asking again"
    assert dict(world.told[1].details) == {"attempt": 2, "step": "look"}
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert caplog.records[0].kind == "retry"  # type: ignore[attr-defined]


def test_repeats_side_by_side_name_their_own_requests() -> None:
    world = Lossy()

    def steps() -> Any:
        yield Together((Get("a", name="one"), List("b", name="two")))
        yield Together((Backoff(1, name="one.backoff"), Backoff(1, name="two.backoff")))

    world.perform = lambda effect: (  # type: ignore[method-assign]
        Ok((Unknown("cut"), Unknown("gone"))) if isinstance(effect, Together) else Ok()
    )
    run(steps(), world)
    assert [event.text for event in world.told] == [
        "Reading a failed: cut; asking again",
        "Listing b failed: gone; asking again",
    ]


def test_another_writers_commit_is_a_retry() -> None:
    world = Lossy()

    def steps() -> Any:
        yield PutIfAbsent("_delta_log/1", b"x", name="commit.put_commit")
        yield Backoff(1, name="commit.backoff")

    world.objects.put("_delta_log/1", b"theirs")
    run(steps(), world)
    assert [(event.kind, event.text) for event in world.told] == [
        ("retry", "Other writers were first; trying again after them")
    ]


def test_a_wait_in_the_queue_is_told_once_and_who_is_passed_over() -> None:
    world = Lossy()
    assert world.queue is not None
    world.queue.take()
    assert run(wait_turn(LIMITS), world) == 1
    assert [event.kind for event in world.told] == ["wait", "repair"]
    assert dict(world.told[0].details) == {"ticket": 1, "serving": 0}


def test_a_turn_that_comes_at_once_is_no_wait() -> None:
    world = Lossy()
    run(wait_turn(LIMITS), world)
    assert world.told == []


def test_a_commit_that_is_finished_for_another_is_a_repair() -> None:
    world = Lossy()
    world.objects.put("_delta_log/.tmp/t", b"theirs")
    entry = Entry(f"{1:020d}.json", ".tmp/t")
    assert world.locks is not None
    world.locks.put_entry_if_absent(entry)
    run(finish(entry, LIMITS), world)
    assert [event.kind for event in world.told] == ["repair"]
    assert "which another writer left unfinished" in world.told[0].text


def test_what_a_listener_raises_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = Lossy("look")

    def raising(event: Event) -> None:
        raise RuntimeError(event.kind)

    world.listener = listener(raising)
    with caplog.at_level(logging.WARNING, "safewrite"):
        run(ask(Get("a", name="look"), LIMITS), world)
    assert "on_event= raised: retry" in caplog.text


class Unprintable(Unknown):
    """What a library raised, and its text raises too."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def test_an_outcome_that_cannot_be_told_reaches_the_protocol_all_the_same() -> None:
    world = Lossy()
    seen: list[object] = []

    def steps() -> Any:
        seen.append((yield Together((Get("a"), Get("b")))))  # fewer outcomes than effects
        seen.append((yield Get("a", name="look")))
        seen.append((yield Backoff(1, name="look.backoff")))

    outcomes = [Ok((Ok(),)), Unprintable(RuntimeError()), Ok()]  # type: ignore[arg-type]
    world.perform = lambda _: outcomes[len(seen)]  # type: ignore[method-assign]
    run(steps(), world)
    assert [one is other for one, other in zip(seen, outcomes, strict=True)] == [True] * 3


def test_a_listener_travels_where_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Listener(print))).call is print
    assert pickle.loads(pickle.dumps(Listener(lambda _: None))).call is None


def test_a_listener_is_a_function() -> None:
    with pytest.raises(sw.InvalidInputError, match="on_event="):
        listener("log")
    assert listener(None) is None
    one = listener(print)
    assert listener(one) is one


def test_a_table_tells_its_listener_also_where_it_was_sent(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    table = sw.open(tmp_path / "t", create=True, on_event=told.append)
    world: Any = table.world
    put, left = world.objects.put, [1]

    def lost(path: str, body: bytes) -> Outcome:
        return Unknown("cut") if left and left.pop() else put(path, body)

    monkeypatch.setattr(world.objects, "put", lost)
    table.append([{"id": 1}], key="event")
    assert [event.kind for event in told] == ["retry", "commit"]
    assert told[0].table == str(tmp_path / "t")
    sent: Any = pickle.loads(pickle.dumps(sw.open(tmp_path / "t", on_event=print)))
    assert sent.world.listener.call is print
    alone: Any = pickle.loads(pickle.dumps(table))
    assert alone.append([{"id": 1}], key="event").outcome == "already_committed"


def test_an_iceberg_table_has_a_listener_too(tmp_path: Any) -> None:
    told: list[Event] = []
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path)}
    table: Any = sw.open("db.t", catalog=catalog, create=True, on_event=told.append)
    table.append([{"id": 1}])
    assert table.world.listener.call == told.append


# --- how a write ended --------------------------------------------------------------------------------
def test_each_write_tells_how_it_ended(tmp_path: Any) -> None:
    told: list[Event] = []
    table = sw.open(tmp_path / "t", create=True, on_event=told.append)
    table.append([{"id": 1}, {"id": 2}], key="event-1")
    table.append([{"id": 1}, {"id": 2}], key="event-1")
    table.delete("id = 1", key="gone")
    with pytest.raises(sw.WouldAlterError):
        table.append([{"id": "x"}], key="event-2")
    assert [(event.kind, event.details["operation"]) for event in told] == [
        ("commit", "append"), ("commit", "append"), ("commit", "delete"), ("failed", "append"),
    ]  # fmt: skip
    assert {event.table for event in told} == {table.uri}
    first, again, gone, failed = (event.details for event in told)
    assert [one["outcome"] for one in (first, again, gone)] == ["committed", "already_committed", "committed"]
    assert (first["rows"], first["attempts"], first["key"], again["attempts"]) == (2, 1, "event-1", 0)
    assert (gone["rows"], gone["removed_rows"]) == (0, 1)
    assert failed["error"] == "would_alter"
    assert failed["elapsed_s"] >= 0
    assert str(tmp_path / "t") in told[0].text


@pytest.mark.parametrize("iceberg", [False, True])
def test_what_a_listener_raises_takes_back_no_ack_and_hides_no_error(tmp_path: Any, iceberg: bool) -> None:
    def raising(event: Event) -> None:
        raise RuntimeError(event.kind)

    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path)}
    where: dict[str, Any] = {"catalog": catalog} if iceberg else {}
    name = "db.t" if iceberg else tmp_path / "t"
    table: Any = sw.open(name, create=True, on_event=raising, **where)
    assert table.append([{"id": 1}], key="event-1").outcome == "committed"
    with pytest.raises(sw.WouldAlterError):
        table.append([{"id": "x"}], key="event-2")
    assert sw.open(name, **where).resolve("event-1") is not None


def test_an_error_that_nobody_expected_is_told_as_internal(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    table: Any = sw.open(tmp_path / "t", create=True, on_event=told.append)

    def broken(*_: Any) -> Any:
        raise RuntimeError("broken")

    monkeypatch.setattr(table._format.planner, "prepare", broken)
    with pytest.raises(sw.InternalError):
        table.append([{"id": 1}])
    assert [(event.kind, event.details["error"]) for event in told] == [("failed", "internal")]


@pytest.mark.long
def test_an_iceberg_table_tells_of_its_writes_under_its_name(tmp_path: Any) -> None:
    told: list[Event] = []
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path)}
    table: Any = sw.open("db.t", catalog=catalog, create=True, on_event=told.append)
    table.append([{"id": 1}])
    assert [(event.kind, event.table) for event in told] == [("commit", "db.t")]


def test_a_turn_that_was_waited_for_is_told_with_its_time_when_the_write_goes_on() -> None:
    world = Lossy()
    times = iter([10.0, 10.0, 11.5, 99.0])
    world.monotonic = lambda: next(times)
    assert world.queue is not None
    world.queue.take()

    def steps() -> Any:
        yield from wait_turn(Limits(lease_s=60.0))
        yield Get("a", name="after")
        yield Get("b", name="after")

    read, left = world.queue.read, [1]

    def moving() -> Outcome:
        if not left:
            world.queue.pass_turn(0)  # type: ignore[union-attr]
        left.clear()
        return read()

    world.queue.read = moving  # type: ignore[method-assign]
    run(steps(), world)
    assert [event.kind for event in world.told] == ["wait", "turn"]
    assert dict(world.told[1].details) == {"wait_s": 1.5}
