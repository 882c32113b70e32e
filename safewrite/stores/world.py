"""Performs effects: on stores, by clock, sleep, randomness and threads."""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache, partial
from typing import Protocol, TypeVar

from safewrite.boundary.workers import Workers
from safewrite.errors import InternalError
from safewrite.protocol import effects as fx
from safewrite.protocol import values
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.keys import MARK
from safewrite.stores.abc import (
    BatchLedger,
    BatchObjects,
    GroupLedger,
    Ledger,
    LedgerOfMany,
    LockTable,
    ObjectStore,
    TicketQueue,
)
from safewrite.stores.call_limit import carried
from safewrite.stores.events import Listener, Watch
from safewrite.stores.table_folder import climbs, refused

T = TypeVar("T")

THREADS = 104
"""Requests under way at once in a process.  A hundred keys of one commit are a request each where no lock table is, and go out with the
upload; a thread begins when it is needed."""
LEDGER_TTL_S = 14 * 24 * 3600
"""The replay horizon: the longest that SQS keeps a message."""


MARK_TTL_S = 100 * 365 * 24 * 3600
"""The ledger's own record stays for as long as the ledger."""
_OF_LEDGER = {fx.LedgerGet, fx.LedgerIntend, fx.LedgerCommit}


def _kind(effect: Effect) -> type[Effect] | None:
    """The kind of an effect that is asked for with others of its kind; None for the ledger's own record, which is alone."""
    is_mark = (
        getattr(effect, "key", None) == MARK or getattr(getattr(effect, "record", None), "key", None) == MARK
    )
    return None if is_mark else type(effect)


class Performer(Protocol):
    """Anything that answers effects; tests wrap one to kill, delay or lie at a named effect."""

    def perform(self, effect: Effect) -> Outcome:
        """Perform one effect and return its outcome."""


def run(steps: Generator[Effect, Outcome, T], world: Performer) -> T:
    """Drive a generator of effects to its end on a world.

    What a world raises is raised where the effect was asked for: a protocol knows whether a commit is in
    doubt. Retries, waits and repairs are logged, and sent to the world's ``listener``.  A run that is broken off gives up
    its tickets, for others would wait for it.
    """
    watch, tickets = Watch(world), _Tickets()
    outer = _TICKETS.set(tickets)
    try:
        effect = next(steps)
        while True:
            watch.asked(effect)
            try:
                outcome = world.perform(effect)
            except Exception as error:  # noqa: BLE001 - not swallowed: the generator has it
                effect = steps.throw(error)
            else:
                _note_ticket(tickets, effect, outcome)
                watch.answered(effect, outcome)
                effect = steps.send(outcome)
    except StopIteration as end:
        tickets.held.clear()
        result: T = end.value
        return result
    finally:
        tickets.ended = True
        _TICKETS.reset(outer)
        for ticket in tickets.held:
            with suppress(Exception):
                world.perform(fx.PassTurn(ticket, name=GIVEN_UP))


GIVEN_UP = "lease.give_up"
"""How the effect is called by which a run that is broken off gives up its turn."""


class _Tickets:
    """The tickets that a run holds."""

    def __init__(self) -> None:
        self.held: list[int] = []
        self.ended = False

    def note(self, outcome: Outcome) -> None:
        """Note the ticket that an answer brought."""
        if isinstance(outcome, Ok):
            assert isinstance(outcome.value, tuple)
            if outcome.value[0] not in self.held:
                self.held.append(outcome.value[0])


_TICKETS: ContextVar[_Tickets | None] = ContextVar("tickets", default=None)
"""Those of the run that is under way."""


def _note_ticket(tickets: _Tickets, effect: Effect, outcome: Outcome) -> None:
    """Keep the tickets that a run holds."""
    if isinstance(effect, fx.TakeTicket):
        tickets.note(outcome)
    elif isinstance(effect, fx.PassTurn) and effect.ticket in tickets.held:
        tickets.held.remove(effect.ticket)


def monotonic_s(world: Performer) -> float:
    """The monotonic clock of a world, in seconds."""
    answer = world.perform(fx.Now())
    assert isinstance(answer, Ok)
    assert isinstance(answer.value, float)
    return answer.value


@lru_cache(maxsize=1)
def _pool_of(process: int) -> Workers:
    """One pool for all tables of a process; a forked child makes its own, for threads do not survive."""
    return Workers(THREADS, "safewrite")


def _pool() -> Workers:
    return _pool_of(os.getpid())


class World:
    """Stores joined with clock, sleep and randomness; every one of them can be replaced.

    ``backoff_s`` and ``backoff_s_max`` bound the full-jitter wait: attempt *k* sleeps a uniform
    random time up to ``min(backoff_s_max, backoff_s * 2**k)`` (AWS Architecture Blog, "Exponential
    Backoff And Jitter").
    """

    def __init__(
        self,
        objects: ObjectStore,
        *,
        locks: LockTable | None = None,
        ledger: Ledger,
        queue: TicketQueue | None = None,
        threads: int = 8,
        monotonic: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
        new_id: Callable[[], str] | None = None,
        backoff_s: float = 0.02,
        backoff_s_max: float = 2.0,
        ledger_ttl_s: int = LEDGER_TTL_S,
    ) -> None:
        self.objects = objects
        self.locks = locks
        self.ledger = ledger
        self.queue = queue
        self.threads = threads
        self.monotonic = monotonic
        self.wall_ms = wall_ms or (lambda: time.time_ns() // 1_000_000)
        self.sleep = sleep
        self.rng = rng or random.SystemRandom()
        self.new_id = new_id or (lambda: str(uuid.uuid4()))
        self.backoff_s = backoff_s
        self.backoff_s_max = backoff_s_max
        self.ledger_ttl_s = ledger_ttl_s
        self.listener: Listener | None = None
        self.main_ledger: Ledger | None = None
        """The main branch's, where the table is open on another one."""
        self._given_up: set[int] = set()

    def perform(self, effect: Effect) -> Outcome:
        """Perform one effect on the stores and return its outcome."""
        match effect:
            case fx.Together(effects):
                return Ok(self._together(effects))
            case fx.Sleep(seconds):
                self.sleep(seconds)
                return Ok()
            case fx.Backoff(attempt, ceiling_s):
                grown_s = min(self.backoff_s_max, self.backoff_s * 2 ** min(attempt, 16))
                self.sleep(self.rng.random() * (grown_s if ceiling_s is None else ceiling_s))
                return Ok()
            case fx.Now():
                return Ok(self.monotonic())
            case fx.WallClock():
                return Ok(self.wall_ms())
            case fx.NewId():
                return Ok(self.new_id())
            case _:
                return self._ask_stores(effect)

    def _together(self, effects: tuple[Effect, ...]) -> tuple[Outcome, ...]:
        kinds, ledger = (
            {_kind(effect) for effect in effects},
            self._ledger_of(effects[0]) if effects else None,
        )
        gone = [effect.path for effect in effects if isinstance(effect, fx.Delete)]
        if len(gone) > 1 and isinstance(self.objects, BatchObjects) and not any(map(self.leads_out, gone)):
            return self._with_deletes(self.objects, effects, gone)
        if len(kinds) > 1 and len(kinds & _OF_LEDGER) == 1:
            return self._with_ledger(effects)
        if len(effects) > 1 and len(kinds) == 1 and kinds <= _OF_LEDGER:
            if isinstance(ledger, BatchLedger):
                size = ledger.batch_max
                parts = [effects[at : at + size] for at in range(0, len(effects), size)]
                answers = self._side_by_side([partial(self._ask_ledger, ledger, part) for part in parts])
                return tuple(outcome for part in answers for outcome in part)
            if (
                isinstance(ledger, GroupLedger)
                and kinds != {fx.LedgerGet}
                and not getattr(effects[0], "anew", False)
            ):
                return self._ask_in_groups(ledger, effects)
        return tuple(self._side_by_side([partial(self.perform, effect) for effect in effects]))

    def _with_deletes(
        self, objects: BatchObjects, effects: tuple[Effect, ...], gone: Sequence[str]
    ) -> tuple[Outcome, ...]:
        """A request for many objects that go, and the others as ever; a store that does not know it is asked for each."""
        size = objects.deletes_max
        parts = [gone[at : at + size] for at in range(0, len(gone), size)]
        others = tuple(effect for effect in effects if not isinstance(effect, fx.Delete))
        calls = [*(partial(objects.delete_many, part) for part in parts), partial(self._together, others)]
        *answers, asked = self._side_by_side(calls)
        told = [one for part in answers for one in part]
        if all(isinstance(one, fx.Failed) for one in told):
            told = self._side_by_side([partial(objects.delete, path) for path in gone])
        mine, rest = iter(told), iter(asked)
        return tuple(next(mine if isinstance(effect, fx.Delete) else rest) for effect in effects)

    def _with_ledger(self, effects: tuple[Effect, ...]) -> tuple[Outcome, ...]:
        """What the ledger is asked in one call, and each of the others in its own."""
        own = tuple(effect for effect in effects if _kind(effect) in _OF_LEDGER)
        others = [effect for effect in effects if _kind(effect) not in _OF_LEDGER]
        calls: list[Callable[[], tuple[Outcome, ...]]] = [partial(self._alone, effect) for effect in others]
        calls.append(partial(self._together, own))
        *answers, asked = self._side_by_side(calls)
        rest, mine = iter(answer for (answer,) in answers), iter(asked)
        return tuple(next(mine if _kind(effect) in _OF_LEDGER else rest) for effect in effects)

    def _alone(self, effect: Effect) -> tuple[Outcome, ...]:
        return (self.perform(effect),)

    def _ask_in_groups(self, ledger: GroupLedger, effects: tuple[Effect, ...]) -> tuple[Outcome, ...]:
        """A request for each intent, and one for many results."""
        expire_time_s = self._expire_time_s(self.ledger_ttl_s)
        intents = [effect.record for effect in effects if isinstance(effect, fx.LedgerIntend)]
        if intents:
            size = ledger.group_max
            names = [self.new_id() for _ in range(0, len(intents), size)]
            calls = [
                partial(ledger.intend_in, names[number // size], record, expire_time_s)
                for number, record in enumerate(intents)
            ]
            outcomes = self._side_by_side(calls)
            answers = {record.key: one for record, one in zip(intents, outcomes, strict=True)}
            for number, name in enumerate(names):
                own = intents[number * size : (number + 1) * size]
                ledger.intended(name, {record.key: answers[record.key] for record in own})
            return tuple(outcomes)
        records = [effect.record for effect in effects if isinstance(effect, fx.LedgerCommit)]
        parts = ledger.parts(records)
        told = self._side_by_side([partial(ledger.commit_part, part, expire_time_s) for part in parts])
        of_key = {record.key: one for part, one in zip(parts, told, strict=True) for record in part.records}
        return tuple(of_key[record.key] for record in records)

    def _side_by_side(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        if len(calls) <= 1 or self.threads <= 1:
            return [call() for call in calls]
        # The last one runs here: two calls cost one thread switch, not two.
        *others, last = calls
        pending = [_pool().submit(carried(call)) for call in others]
        mine = last()
        return [*(one.result() for one in pending), mine]

    def _ledger_of(self, effect: Effect) -> Ledger:
        return (
            self.main_ledger
            if getattr(effect, "of_main", False) and self.main_ledger is not None
            else self.ledger
        )

    def _ask_ledger(self, ledger: BatchLedger, effects: tuple[Effect, ...]) -> tuple[Outcome, ...]:
        """One request for many keys."""
        names = [effect.key for effect in effects if isinstance(effect, fx.LedgerGet)]
        if names:
            return ledger.get_many(names)
        expire_time_s = self._expire_time_s(self.ledger_ttl_s)
        intents = [effect.record for effect in effects if isinstance(effect, fx.LedgerIntend)]
        if intents:
            return ledger.intend_many(intents, expire_time_s)
        commits = [effect.record for effect in effects if isinstance(effect, fx.LedgerCommit)]
        return ledger.commit_many(commits, expire_time_s)

    def _ask_stores(self, effect: Effect) -> Outcome:
        path = getattr(effect, "path", None)
        if path is not None and self.leads_out(path):
            return refused(path)
        match effect:
            case fx.Get(path):
                return self.objects.get(path)
            case fx.GetRange(path, start, length):
                return self.objects.get_range(path, start, length)
            case fx.GetTail(path, length):
                return self.objects.get_tail(path, length)
            case fx.List(prefix, start_after, limit):
                return self.objects.list(prefix, start_after, limit)
            case fx.Put(path, body):
                return self.objects.put(path, body)
            case fx.PutIfAbsent(path, body):
                return self.objects.put_if_absent(path, body)
            case fx.Delete(path):
                return self.objects.delete(path)
            case fx.LedgerGet(key):
                return self._ledger_of(effect).get(key)
            case fx.LedgerIntend(record):
                return self.ledger.intend(record, self._expire_time_s(self.ledger_ttl_s))
            case fx.LedgerCommit():
                return self._remember(effect)
            case _:
                return self._ask_arbiter(effect)

    def _remember(self, effect: fx.LedgerCommit) -> Outcome:
        record, ledger = effect.record, self.ledger
        expire_time_s = self._expire_time_s(MARK_TTL_S if record.key == MARK else self.ledger_ttl_s)
        if effect.anew and isinstance(ledger, LedgerOfMany):
            return ledger.put_back(record, expire_time_s)
        return ledger.commit(record, expire_time_s)

    def _ask_arbiter(self, effect: Effect) -> Outcome:
        if self.locks is not None:
            match effect:
                case fx.NewestEntry(other_spelling=other):
                    return self.locks.newest(other_spelling=other)
                case fx.EntriesAfter(file_name):
                    return self.locks.entries_after(file_name)
                case fx.GetEntry(file_name):
                    return self.locks.get_entry(file_name)
                case fx.PutEntryIfAbsent(entry):
                    return self.locks.put_entry_if_absent(entry)
                case fx.CompleteEntry(entry, ttl_s):
                    return self.locks.complete_entry(entry, self._expire_time_s(ttl_s))
        if self.queue is not None:
            match effect:
                case fx.TakeTicket():
                    return self._take_ticket(self.queue)
                case fx.ReadQueue():
                    return self._read_queue(self.queue)
                case fx.PassTurn(ticket):
                    outcome = self.queue.pass_turn(ticket)
                    if effect.name == GIVEN_UP and not isinstance(outcome, Ok):
                        self._given_up.add(ticket)  # its turn is to come
                    return outcome
                case fx.HoldTurn(ticket, hold_s):
                    return self.queue.hold_turn(ticket, hold_s)
        raise InternalError(f"No store of this world performs {effect!r}.")

    def _take_ticket(self, queue: TicketQueue) -> Outcome:
        """Take a ticket in a thread, which no signal breaks off: a ticket without an owner would be waited for."""
        if self.threads <= 1:
            return queue.take()
        return _pool().submit(carried(partial(self._taken, queue, _TICKETS.get()))).waited()

    def _taken(self, queue: TicketQueue, tickets: _Tickets | None) -> Outcome:
        """Take a ticket for a run, or pass it on where the run was broken off meanwhile."""
        outcome = queue.take()
        if tickets is not None:
            tickets.note(outcome)
            if tickets.ended and isinstance(outcome, Ok):
                assert isinstance(outcome.value, tuple)
                self.perform(fx.PassTurn(outcome.value[0], name=GIVEN_UP))
        return outcome

    def _read_queue(self, queue: TicketQueue) -> Outcome:
        """The queue, once the turns that calls of this world gave up are passed over."""
        outcome = queue.read()
        while isinstance(outcome, Ok) and isinstance(outcome.value, values.Queue):
            serving = outcome.value.serving
            if serving not in self._given_up:
                break
            self._given_up.discard(serving)
            queue.pass_turn(serving)
            outcome = queue.read()
        return outcome

    def leads_out(self, path: str) -> bool:
        """Whether a path that is asked for is not the table's, whatever metadata names it."""
        return climbs(path) or path.startswith("/")

    def _expire_time_s(self, ttl_s: int) -> int:
        return self.wall_ms() // 1000 + ttl_s
