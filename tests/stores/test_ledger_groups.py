"""What became of the keys of one call stands in one object, and each key finds it by its own intent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from safewrite.protocol.effects import (
    Effect,
    LedgerCommit,
    LedgerIntend,
    Missing,
    Ok,
    Outcome,
    Together,
    Unknown,
)
from safewrite.protocol.values import LedgerRecord
from safewrite.stores import groups
from safewrite.stores import ledger as ledgers
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.world import World

RECORDS = [LedgerRecord(f"event-{n}", n, f"v1:{n}:ab") for n in range(250)]
DONE = [replace(record, version=9) for record in RECORDS]
FUTURE_S = 4_000_000_000


class Store:
    """Objects in memory whose requests are listed; the answers of some are lost, before or after they are performed."""

    def __init__(self) -> None:
        self.objects = MemoryObjects()
        self.puts: list[tuple[str, bytes]] = []
        self.reads: list[str] = []
        self.lose: Callable[[str], bool] = lambda _: False
        self.performed = True

    def get(self, path: str) -> Outcome:
        self.reads.append(path)
        return Unknown("lost") if self.lose(path) else self.objects.get(path)

    def put(self, path: str, body: bytes) -> Outcome:
        return self._put(self.objects.put, path, body)

    def put_if_absent(self, path: str, body: bytes) -> Outcome:
        return self._put(self.objects.put_if_absent, path, body)

    def _put(self, put: Callable[[str, bytes], Outcome], path: str, body: bytes) -> Outcome:
        self.puts.append((path, body))
        if not self.lose(path):
            return put(path, body)
        if self.performed:
            put(path, body)
        return Unknown("lost")


@pytest.fixture
def store() -> Any:
    return Store()


def world(store: Any, ledger: ObjectLedger | None = None) -> World:
    return World(
        store,
        ledger=ledger or ObjectLedger(store),
        sleep=lambda _: None,
        wall_ms=iter(range(0, 10**9, 5_000)).__next__,
    )


def ask(ours: World, effect: type[Any], records: list[LedgerRecord]) -> list[Outcome]:
    effects: tuple[Effect, ...] = tuple(effect(record) for record in records)
    outcome = ours.perform(Together(effects))
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value, tuple)
    return list(outcome.value)


def found(store: Any, records: list[LedgerRecord]) -> list[Outcome]:
    """What another process finds of each key."""
    return [ObjectLedger(store).get(record.key) for record in records]


def results(store: Any) -> list[bytes]:
    return [body for path, body in store.puts if path.endswith(".group.json")]


def test_results_of_many_keys_are_few_requests_and_each_key_finds_its_own(store: Any) -> None:
    ours = world(store)
    assert ask(ours, LedgerIntend, RECORDS) == [Ok()] * 250
    assert found(store, RECORDS) == [Ok(record) for record in RECORDS]
    told = [replace(record, version=9 + n) for n, record in enumerate(RECORDS)]
    assert ask(ours, LedgerCommit, told) == [Ok()] * 250
    assert len(store.puts) == 250 + 3
    assert found(store, RECORDS) == [Ok(record) for record in told]


def test_a_result_is_read_once_for_all_keys_of_a_repeat(store: Any) -> None:
    ours = world(store)
    for start in range(0, 60, 6):
        ask(ours, LedgerIntend, RECORDS[start : start + 6])
        ask(ours, LedgerCommit, DONE[start : start + 6])
    reader = ObjectLedger(store)
    store.reads.clear()
    assert [reader.get(record.key) for record in RECORDS[:60]] == [*map(Ok, DONE[:60])]
    assert sum(path.endswith(".group.json") for path in store.reads) == 10


def test_a_result_that_was_not_there_yet_is_looked_for_again(store: Any) -> None:
    ours, reader = world(store), ObjectLedger(store)
    ask(ours, LedgerIntend, RECORDS[:3])
    assert reader.get(RECORDS[0].key) == Ok(RECORDS[0])
    ask(ours, LedgerCommit, DONE[:3])
    assert reader.get(RECORDS[0].key) == Ok(DONE[0])


def test_a_key_whose_intent_is_of_another_call_is_told_by_itself(store: Any) -> None:
    earlier, ours = world(store), world(store)
    ask(earlier, LedgerIntend, RECORDS[:5])
    answers = ask(ours, LedgerIntend, RECORDS[3:8])
    assert [isinstance(one, Ok) for one in answers] == [False, False, True, True, True]
    ask(ours, LedgerCommit, DONE[3:8])
    assert found(store, RECORDS[:8]) == [*map(Ok, RECORDS[:3]), *map(Ok, DONE[3:8])]


def test_members_that_were_left_out_are_not_among_the_results(store: Any) -> None:
    ours = world(store)
    ask(ours, LedgerIntend, RECORDS[:6])
    ask(ours, LedgerCommit, DONE[:4])
    assert found(store, RECORDS[:6]) == [*map(Ok, DONE[:4]), *map(Ok, RECORDS[4:6])]
    # Told later, they must not take the place of the others.
    ask(ours, LedgerCommit, DONE[4:6])
    assert found(store, RECORDS[:6]) == [*map(Ok, DONE[:6])]


@pytest.mark.parametrize("performed", [True, False])
def test_a_result_whose_answer_was_lost_is_put_again_as_it_was(store: Any, performed: bool) -> None:
    """So whichever request comes last, the object says the same; what else is asked then stands by itself."""
    ours, store.performed = world(store), performed
    ask(ours, LedgerIntend, RECORDS[:6])
    store.lose = lambda path: path.endswith(".group.json")
    assert ask(ours, LedgerCommit, DONE[:6]) == [Unknown("lost")] * 6
    assert ask(ours, LedgerCommit, DONE[:6]) == [Unknown("lost")] * 6
    assert ask(ours, LedgerCommit, DONE[:3]) == [Ok()] * 3
    store.lose = lambda _: False
    assert ask(ours, LedgerCommit, DONE[3:6]) == [Ok()] * 3
    assert len(set(results(store))) == 1
    assert found(store, RECORDS[:6]) == [*map(Ok, DONE[:6])]


def test_a_lost_answer_of_an_intent_leaves_that_key_by_itself(store: Any) -> None:
    ours = world(store)
    theirs = ledgers.ObjectLedger(store)._path(RECORDS[2].key, "intent")
    store.lose = lambda path: path == theirs
    assert [type(one) for one in ask(ours, LedgerIntend, RECORDS[:4])] == [Ok, Ok, Unknown, Ok]
    store.lose = lambda _: False
    ask(ours, LedgerCommit, DONE[:4])
    assert RECORDS[2].key not in results(store)[0].decode()
    assert found(store, RECORDS[:4]) == [*map(Ok, DONE[:4])]


def test_a_result_counts_before_the_doubt_of_another_attempt(store: Any) -> None:
    """Else a repeat would not know of the commit once the log was cleaned up."""
    ours, other = world(store), ObjectLedger(store)
    ask(ours, LedgerIntend, RECORDS[:3])
    other.commit(replace(RECORDS[1], in_doubt_at=4), FUTURE_S)
    assert found(store, RECORDS[1:2]) == [Ok(replace(RECORDS[1], in_doubt_at=4))]
    ask(ours, LedgerCommit, DONE[:3])
    assert found(store, RECORDS[:3]) == [*map(Ok, DONE[:3])]


def test_a_later_result_of_one_key_counts_before_that_of_its_group(store: Any) -> None:
    ours = world(store)
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    again = replace(RECORDS[1], version=12)
    ObjectLedger(store).commit(again, FUTURE_S)
    assert found(store, RECORDS[:3]) == [Ok(DONE[0]), Ok(again), Ok(DONE[2])]


def test_keys_that_were_in_doubt_are_told_by_themselves(store: Any) -> None:
    ours = world(store)
    ask(ours, LedgerIntend, RECORDS[:3])
    doubted = [replace(record, in_doubt_at=4) for record in RECORDS[:3]]
    ask(ours, LedgerCommit, doubted)
    assert found(store, RECORDS[:3]) == [*map(Ok, doubted)]
    ask(ours, LedgerCommit, DONE[:3])
    assert results(store) == []
    assert found(store, RECORDS[:3]) == [*map(Ok, DONE[:3])]


def test_a_result_that_cannot_be_read_is_no_missing_one(store: Any) -> None:
    ours = world(store)
    ask(ours, LedgerIntend, RECORDS[:3])
    ask(ours, LedgerCommit, DONE[:3])
    store.lose = lambda path: path.endswith(".group.json")
    assert found(store, RECORDS[:3]) == [Unknown("lost")] * 3
    for path, _ in store.puts:
        if path.endswith(".group.json"):
            store.objects.put(path, b"{")
    store.lose = lambda _: False
    assert [type(one) for one in found(store, RECORDS[:3])] == [Unknown] * 3


def test_calls_that_were_never_told_are_forgotten_and_still_right(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "GROUPS_MAX", 2)
    ours = world(store)
    for start in range(0, 12, 3):
        ask(ours, LedgerIntend, RECORDS[start : start + 3])
    ask(ours, LedgerCommit, DONE[:12])
    assert len(results(store)) == 2
    assert found(store, RECORDS[:12]) == [*map(Ok, DONE[:12])]


def test_one_key_has_no_group(store: Any) -> None:
    ledger = ObjectLedger(store)
    assert ledger.intend(RECORDS[0], FUTURE_S) == Ok()
    assert ledger.commit(DONE[0], FUTURE_S) == Ok()
    assert [path.rpartition(".json")[0].rpartition(".")[2] for path, _ in store.puts] == [
        "intent",
        "committed",
    ]
    assert ledger.get("never") == Missing()
