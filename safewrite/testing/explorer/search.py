"""Searches the states of a model, and finds a shortest trace to what is broken."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from safewrite.protocol import effects as fx
from safewrite.protocol import values
from safewrite.protocol.effects import Busy, Effect, Exists, Failed, Ok, Outcome, Unknown
from safewrite.protocol.iceberg.change import SwapTable
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import FOLDER
from safewrite.testing.explorer.automaton import Automaton, Down, InDoubt, Interned, is_shared
from safewrite.testing.explorer.catalogs import Expire, RollBack, SetProperty, SwapLocation
from safewrite.testing.explorer.immutable import Copy, OverwriteEntry
from safewrite.testing.explorer.rows import parse
from safewrite.testing.explorer.space import Space

FAULTS = (
    "crash",
    "lost-before",
    "lost-after",
    "resent",
    "late",
    "busy",
    "denied",
    "conflict",
    "expire",
    "forgotten",
)
"""The faults: the process is killed; a request is lost, or its answer; it is performed twice, or after its answer is given up;
refused for now (409, throttling); refused for good (403); a catalog reports a conflict for what it has not performed; a completed
lock-table entry is removed by its time to live (A9, A11); or the ledger shows an intent where a result was put.
"""

_WRITES = (
    fx.Put,
    fx.PutIfAbsent,
    fx.PutEntryIfAbsent,
    fx.CompleteEntry,
    fx.LedgerIntend,
    fx.LedgerCommit,
    fx.TakeTicket,
    fx.PassTurn,
    fx.Delete,
    Copy,
    OverwriteEntry,
    SwapTable,
    SwapLocation,
    Expire,
    RollBack,
    SetProperty,
)
_SWAPS = (SwapTable, SwapLocation)
_LEDGER = (fx.LedgerGet, fx.LedgerIntend, fx.LedgerCommit)
State: TypeAlias = tuple[int, ...]
"""``(store, requests under way, faults left, node of process 0, node of process 1, ...)``, all numbers."""


class PossibleOutcome(NamedTuple):
    """One possible outcome of an effect: the fault it costs, the answer, the store after it."""

    fault: str
    outcome: int
    store: int
    late: bool
    harm: str


class TraceStep(NamedTuple):
    """One step of a trace."""

    process: str
    effect: str
    fault: str
    outcome: str

    def __str__(self) -> str:
        fault = f"  [{self.fault}]" if self.fault else ""
        return f"{self.process:<20} {self.effect:<28} {self.outcome}{fault}"


@dataclass(slots=True)
class Report:
    """What one exploration found.  ``whole`` says whether nothing was left unexplored."""

    model: str
    faults: int
    states: int = 0
    transitions: int = 0
    ends: int = 0
    whole: bool = True
    seconds: float = 0.0
    violation: str = ""
    trace: list[TraceStep] = field(default_factory=list)


class Explorer:
    """The state space of one model."""

    def __init__(
        self,
        model: Space,
        faults: int,
        *,
        seed: int | None = None,
        merging: bool = True,
        kinds: Sequence[str] = FAULTS,
    ) -> None:
        self.model = model
        self.faults = faults
        self.kinds = frozenset(kinds)
        self._rng = None if seed is None else random.Random(seed)
        self._judge = model.judge()
        self._automaton = Automaton(model.start, merging=merging)
        self._nodes = self._automaton.nodes
        self._effects = self._automaton.effects.values
        self._stores = Interned[Any]()
        self._outcomes = Interned[Outcome]()
        self._pending = Interned[tuple[int, ...]]()
        self._moves: dict[tuple[int, int], list[PossibleOutcome]] = {}
        self._expiring: dict[int, list[tuple[str, int]]] = {}
        self._private: dict[tuple[int, int], bool] = {}
        self._checked: dict[tuple[object, ...], str] = {}
        self._settled: dict[tuple[object, ...], str] = {}
        keys = [writer.key for writer in model.writers]
        self._own_keys = {key for key in keys if keys.count(key) == 1}

    # --- the search -----------------------------------------------------------------------------
    def explore(self, max_states: int = 0) -> Report:
        """Search until a violation is found, everything was seen, or ``max_states`` states were (0: no limit)."""
        report = Report(self.model.name, self.faults)
        started_s = time.perf_counter()
        first = self.first()
        came_from: dict[State, State | None] = {first: None}
        level = [first]
        report.violation = self._check(first)
        while level and not report.violation:
            if self._rng is not None:
                self._rng.shuffle(level)
            level = self._expand(level, came_from, report, max_states)
        report.states = len(came_from)
        report.seconds = time.perf_counter() - started_s
        return report

    def _expand(
        self, level: list[State], came_from: dict[State, State | None], report: Report, max_states: int
    ) -> list[State]:
        found: list[State] = []
        for state in level:
            if max_states and len(came_from) >= max_states:
                report.whole = False
                return []
            violation = self._settle(state, report)
            if violation:
                self._tell(report, violation, state, came_from)
                return []
            for after, _, harm in self.successors(state):
                report.transitions += 1
                if after in came_from:
                    continue
                came_from[after] = state
                violation = harm or self._check(after)
                if violation:
                    self._tell(report, violation, after, came_from)
                    return []
                found.append(after)
        return found

    def first(self) -> State:
        """The state at the start."""
        slots = range(len(self.model.writers))
        starts = tuple(self._automaton.begin(slot, 0) for slot in slots)
        return (self._stores.number(self.model.first), self._pending.number(()), self.faults, *starts)

    def successors(self, state: State) -> Iterator[tuple[State, tuple[object, ...], str]]:
        """States one step on, each with what the step was."""
        store, late, faults, *numbers = state
        for at in range(3, len(state)):
            for option in self._nodes[state[at]].options:
                if self._is_private(store, late, option[1]):
                    yield from self._steps(state, at, (option,))
                    return
        for at in range(3, len(state)):
            yield from self._steps(state, at, self._nodes[state[at]].options)
        if late:
            yield from self._arrivals(state)
        if faults and self.model.expiring and "expire" in self.kinds:
            for name, after in self._expiries(store):
                yield (after, late, faults - 1, *numbers), ("expire", name), ""

    def _steps(
        self, state: State, at: int, options: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[State, tuple[object, ...], str]]:
        store, late, faults = state[:3]
        before, rest = state[3:at], state[at + 1 :]
        number = state[at]
        node = self._nodes[number]
        if node.end is not None:
            again = self._again(number)
            if again >= 0:
                yield (store, late, faults, *before, again, *rest), ("start", at), ""
            return
        for place, effect in options:
            for move in self._moves_of(store, effect):
                if move.fault and not faults:
                    continue
                child = node.children.get((place, move.outcome))
                if child is None:
                    child = self._automaton.step(number, place, self._outcomes.values[move.outcome])
                    node.children[place, move.outcome] = child
                left = faults - 1 if move.fault else faults
                under_way = self._with(late, effect) if move.late else late
                label = ("step", at, effect, move.fault, move.outcome)
                yield (move.store, under_way, left, *before, child, *rest), label, move.harm
                if left and self._nodes[child].end is not None and "crash" in self.kinds:
                    yield (
                        (move.store, under_way, left - 1, *before, self._down(number), *rest),
                        ("step", at, effect, "crash after", move.outcome),
                        "",
                    )
        if faults and "crash" in self.kinds:
            yield (store, late, faults - 1, *before, self._down(number), *rest), ("crash", at), ""

    def _arrivals(self, state: State) -> Iterator[tuple[State, tuple[object, ...], str]]:
        store, late, faults, *numbers = state
        effects = self._pending.values[late]
        for place, effect in enumerate(effects):
            _, outcome, after, _, harm = self._moves_of(store, effect)[0]
            left = self._pending.number(effects[:place] + effects[place + 1 :])
            yield (after, left, faults, *numbers), ("arrival", effect, outcome), harm

    # --- memoised parts -------------------------------------------------------------------------
    def _moves_of(self, store: int, effect: int) -> list[PossibleOutcome]:
        """The possible outcomes of an effect; the first is the one without a fault."""
        known = self._moves.get((store, effect))
        if known is None:
            known = self._moves[store, effect] = self._make_moves(store, self._effects[effect])
        return known

    def _make_moves(self, store: int, effect: Effect) -> list[PossibleOutcome]:
        before = self._stores.values[store]
        outcome, after = before.perform(effect)
        harm = self._judge.replaced(before, after)
        number = self._stores.number(after)
        unknown = self._outcomes.number(Unknown())

        def move(fault: str, answer: Outcome, then: int, *, late: bool = False) -> PossibleOutcome:
            return PossibleOutcome(
                fault, self._outcomes.number(answer), then, late, harm if then == number else ""
            )

        moves = [move("", outcome, number), PossibleOutcome("lost-before", unknown, store, False, "")]
        if isinstance(effect, _WRITES):
            again, twice = after.perform(effect)
            moves += [
                move("lost-after", Unknown(), number),
                move("resent", again, self._stores.number(twice)),
                move("busy", Busy(), store),
                move("denied", Failed(), store),
            ]
            if isinstance(effect, _SWAPS):
                moves.append(move("conflict", Exists(), store))
            if not isinstance(effect, fx.Put) or is_shared(effect.path):
                moves.append(PossibleOutcome("late", unknown, store, True, ""))
        if isinstance(outcome, Ok) and isinstance(outcome.value, values.LedgerRecord):
            moves.append(move("forgotten", Ok(replace(outcome.value, version=None)), store))
        distinct = {(m.outcome, m.store, m.late): m for m in reversed(moves)}
        return [m for m in moves if distinct.get(m[1:4]) is m and (not m.fault or m.fault in self.kinds)]

    def _expiries(self, store: int) -> list[tuple[str, int]]:
        if store not in self._expiring:
            whole = self._stores.values[store]
            left = {one: tuple(kept for kept in whole.entries if kept is not one) for one in whole.entries}
            self._expiring[store] = [
                (one.file_name, self._stores.number(whole._replace(entries=entries)))
                for one, entries in left.items()
                if one.settled
            ]
        return self._expiring[store]

    def _is_private(self, store: int, late: int, effect: int) -> bool:
        known = self._private.get((store, effect))
        if known is None:
            known = self._unnoticed(self._stores.values[store], self._effects[effect])
            self._private[store, effect] = known
        return known and not (late and isinstance(self._effects[effect], _LEDGER))

    def _unnoticed(self, store: Any, effect: Effect) -> bool:
        match effect:
            case fx.Put(path):
                return not is_shared(path)
            case fx.Get(path):
                fixed = not self.model.overwritten and not path.startswith(FOLDER)
                return fixed and any(name == path for name, _ in store.objects)
            case fx.LedgerGet(key):
                return key in self._own_keys
            case fx.LedgerIntend(record) | fx.LedgerCommit(record):
                return record.key in self._own_keys
        return False

    def _with(self, late: int, effect: int) -> int:
        return self._pending.number(tuple(sorted((*self._pending.values[late], effect))))

    def _down(self, number: int) -> int:
        node = self._nodes[number]
        return self._automaton.down(node.slot, node.incarnation)

    def _again(self, number: int) -> int:
        """The first node of a process started again, or -1 if it is not."""
        node = self._nodes[number]
        if not isinstance(node.end, Down | InDoubt):
            return -1
        if node.incarnation >= self.model.writers[node.slot].restarts:
            return -1
        child = node.children.get((0, 0))
        if child is None:
            child = node.children[0, 0] = self._automaton.begin(node.slot, node.incarnation + 1)
        return child

    # --- invariants -----------------------------------------------------------------------------
    def _check(self, state: State) -> str:
        """The first invariant that does not hold in a state, or ''."""
        ends = [number for number in state[3:] if self._nodes[number].end is not None]
        key = (state[0], *ends)
        found = self._checked.get(key)
        if found is None:
            found = self._judge.state(self._stores.values[state[0]], [self._nodes[number] for number in ends])
            self._checked[key] = found
        return found

    def _settle(self, state: State, report: Report) -> str:
        """What is wrong with what ended processes leave behind, or ''."""
        nodes = [self._nodes[number] for number in state[3:]]
        if any(node.end is None for node in nodes):
            return ""
        report.ends += 1
        key = (state[0], state[1], *state[3:])
        found = self._settled.get(key)
        if found is None:
            late = [self._effects[number] for number in self._pending.values[state[1]]]
            found = self._settled[key] = self._judge.end(self._stores.values[state[0]], nodes, late)
        return found

    # --- telling --------------------------------------------------------------------------------
    def _tell(
        self, report: Report, violation: str, last: State, came_from: dict[State, State | None]
    ) -> None:
        report.violation = violation
        path = [last]
        while (before := came_from[path[-1]]) is not None:
            path.append(before)
        path.reverse()
        for before, after in pairwise(path):
            label = next(label for found, label, _ in self.successors(before) if found == after)
            report.trace.append(self.step_of(label, before, after))

    def described(self, state: State) -> tuple[object, ...]:
        """A state in terms of stores, requests under way, faults left and ends, equal between explorers."""
        late = tuple(sorted(repr(self._effects[number]) for number in self._pending.values[state[1]]))
        ends = tuple(self._nodes[number].end for number in state[3:])
        return (self._stores.values[state[0]], late, state[2], ends)

    def step_of(self, label: tuple[object, ...], before: State, after: State) -> TraceStep:
        """A transition in words."""
        match label:
            case ("step", int(at), int(number), str(fault), int(outcome)):
                effect = self._effects[number]
                end = self._nodes[after[at]].end
                told = _told(self._outcomes.values[outcome]) + (f" -> {end}" if end is not None else "")
                return TraceStep(self._process(before[at]), effect.name or type(effect).__name__, fault, told)
            case ("start", int(at)):
                return TraceStep(self._process(after[at]), "started again", "", "")
            case ("crash", int(at)):
                return TraceStep(self._process(before[at]), "killed", "crash", "")
            case ("arrival", int(number), int(outcome)):
                return TraceStep(
                    "(late request)", self._effects[number].name, "", f"{self._outcomes.values[outcome]}"
                )
            case ("expire", str(name)):
                return TraceStep("(time to live)", name, "expire", "entry removed")
        raise AssertionError(label)

    def _process(self, number: int) -> str:
        node = self._nodes[number]
        return f"{self.model.writers[node.slot].program} {node.slot}.{node.incarnation}"


def _told(outcome: Outcome) -> str:
    if isinstance(outcome, Ok) and isinstance(outcome.value, TableVersion):
        head = outcome.value
        return f"Ok({head.location}: {' <- '.join(map(str, head.ancestors()))})"
    if isinstance(outcome, Ok) and isinstance(outcome.value, bytes):
        return f"Ok({' '.join(parse(outcome.value)) or 'another body'})"
    return "Ok()" if outcome == Ok() else str(outcome)
