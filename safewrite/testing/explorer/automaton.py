"""Turns protocol generators into finite automata: what a process does next, for every answer.

Generators cannot be copied, so a search that branches would replay them from the start at every
step.  Here each local state of a process is reached by running the generator once; afterwards a
step is one look-up.  Two histories of answers that leave a generator in the same state (same
position, same local variables, in every frame of ``yield from``) are one state, so retries that
came to nothing do not split the search.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, Generic, TypeAlias, TypeVar

from safewrite.errors import CommitUnknownError, NotCommittedError, SafewriteError
from safewrite.protocol import effects as fx
from safewrite.protocol.delta.commit import version_of
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.member_queue import FOLDER

T = TypeVar("T", bound=Hashable)
Place: TypeAlias = int | tuple[tuple[str, int], ...]
"""The version that holds a write, or each key of a group with its version."""
Program: TypeAlias = Generator[Effect, Outcome, Place | None]

TICK_S = 4.0
"""How far a process's clock moves with each look at the queue: beyond the models' ``lease_s``, so that a
holder is passed over whenever two looks find it in one place.
"""


# --- how a process ends --------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Acked:
    """The call returned: its rows are in ``version``."""

    version: Place


@dataclass(frozen=True, slots=True)
class Absent:
    """``resolve`` returned None: the key is not in the table, and no attempt at it may still land."""


@dataclass(frozen=True, slots=True)
class NotCommitted:
    """The call raised ``NotCommittedError``; ``kind`` is its code."""

    kind: str


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The call raised ``CommitUnknownError``; the same key may be tried again."""


@dataclass(frozen=True, slots=True)
class Down:
    """The process was killed; it may be started again with the same key."""


@dataclass(frozen=True, slots=True)
class Broken:
    """The call raised something that it may not raise here."""

    error: str


End: TypeAlias = Acked | Absent | NotCommitted | InDoubt | Down | Broken


@dataclass(slots=True)
class Node:
    """One local state of a process: what it asks for next, or how it ended."""

    slot: int
    incarnation: int
    options: tuple[tuple[int, int], ...] = ()
    """Numbers of the effects that may be performed next, each after its place in a ``Together``."""
    end: End | None = None
    children: dict[tuple[int, int], int] = field(default_factory=dict)
    history: tuple[Outcome, ...] = ()
    together: bool = False
    answers: tuple[Outcome | None, ...] = ()
    """The answers to the parts of a ``Together`` so far."""
    ids: int = 0
    ticks: int = 0
    live: Program | None = None


class Interned(Generic[T]):
    """Values by number and back: equal values have one number."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._numbers: dict[T, int] = {}

    def number(self, value: T) -> int:
        """The number of a value, a new one if it was never seen."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


class Automaton:
    """The local states of all processes of a model, made as they are reached.

    ``start(slot, incarnation)`` makes a fresh generator.  ``merging`` may be switched off to keep every
    history apart (the tests compare both).
    """

    def __init__(self, start: Callable[[int, int], Program], *, merging: bool = True) -> None:
        self.nodes: list[Node] = []
        self.effects = Interned[Effect]()
        self._start = start
        self._merging = merging
        self._numbers: dict[Hashable, int] = {}

    def begin(self, slot: int, incarnation: int) -> int:
        """The number of a process's first state."""
        fresh = Node(slot, incarnation)
        return self._settle(fresh, self._start(slot, incarnation), None, ())

    def down(self, slot: int, incarnation: int) -> int:
        """The number of the state of a killed process."""
        return self._number(Node(slot, incarnation, end=Down()), ("down", slot, incarnation))

    def step(self, number: int, place: int, outcome: Outcome) -> int:
        """The state after the effect at ``place`` was answered with ``outcome``."""
        node = self.nodes[number]
        if node.together:
            answers = tuple(outcome if at == place else a for at, a in enumerate(node.answers))
            if any(answer is None for answer in answers):
                return self._wait(node, place, answers)
            outcome = Ok(answers)
        return self._settle(node, self._take(node), outcome, node.history)

    # --- inside ---------------------------------------------------------------------------------
    def _wait(self, node: Node, place: int, answers: tuple[Outcome | None, ...]) -> int:
        """One part of a ``Together`` was performed, others were not."""
        options = tuple(option for option in node.options if option[0] != place)
        program = self._take(node)
        child = replace(node, options=options, answers=answers, children={}, live=program)
        return self._number(child, self._key(child, program))

    def _take(self, node: Node) -> Program:
        """The generator of a node: its own for the first caller, a replayed one for later ones."""
        live, node.live = node.live, None
        return live or self._replay(node)

    def _replay(self, node: Node) -> Program:
        program = self._start(node.slot, node.incarnation)
        next(program)
        for outcome in node.history:
            program.send(outcome)
        return program

    def _settle(
        self, node: Node, program: Program, outcome: Outcome | None, history: tuple[Outcome, ...]
    ) -> int:
        """Run to the next effect that other processes can notice."""
        child = Node(node.slot, node.incarnation, ids=node.ids, ticks=self._ticks(node))
        sent = list(history)
        try:
            effect = next(program) if outcome is None else program.send(_noted(sent, outcome))
            while (free := self._free(child, effect)) is not None:
                effect = program.send(_noted(sent, free))
        except StopIteration as stop:
            child.end = Absent() if stop.value is None else Acked(stop.value)
        except CommitUnknownError:
            child.end = InDoubt()
        except NotCommittedError as error:
            cause = (
                error.__cause__
            )  # an error of no library comes of these worlds: it is one of the code, or of its candidate
            is_ours = cause is None or isinstance(cause, SafewriteError)
            child.end = (
                NotCommitted(error.kind.value) if is_ours else Broken(f"{type(cause).__name__}: {cause}")
            )
        except (SafewriteError, AssertionError, ValueError, TypeError) as error:
            child.end = Broken(f"{type(error).__name__}: {error}")
        else:
            child.together = isinstance(effect, fx.Together)
            parts = effect.effects if isinstance(effect, fx.Together) else (effect,)
            child.options = tuple(enumerate(map(self.effects.number, parts)))
            child.answers = (None,) * len(parts)
            child.live = program
        child.history = tuple(sent)
        if child.end is not None:
            return self._number(child, (child.slot, child.incarnation, canon(child.end)))
        assert child.live is not None
        return self._number(child, self._key(child, child.live))

    def _ticks(self, node: Node) -> int:
        """Let time pass for a process that waits in the queue; anywhere else it decides nothing and stands at 0."""
        asked = self.effects.values[node.options[0][1]] if node.options else None
        if isinstance(asked, fx.PassTurn):
            return node.ticks
        return node.ticks + 1 if isinstance(asked, fx.ReadQueue) or waits(asked) else 0

    def _free(self, node: Node, effect: Effect) -> Outcome | None:
        """The answer to an effect that nobody else can notice, or None."""
        match effect:
            case fx.Sleep() | fx.Backoff():
                return Ok()
            case fx.WallClock():
                return Ok(0)
            case fx.Now():
                return Ok(node.ticks * TICK_S)
            case fx.NewId():
                node.ids += 1
                return Ok(f"{node.slot:08x}-{node.incarnation:04x}-0000-0000-{node.ids:012x}")
        return None

    def _key(self, node: Node, program: Program) -> Hashable:
        inside = canon(program) if self._merging else tuple(canon(o) for o in node.history)
        answers = tuple(canon(a) for a in node.answers)
        return (node.slot, node.incarnation, node.ids, node.ticks, answers, inside)

    def _number(self, node: Node, key: Hashable) -> int:
        number = self._numbers.setdefault(key, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number


def is_shared(path: str) -> bool:
    """Whether others look for an object under this name."""
    return version_of(path) is not None or path.startswith(FOLDER)


def waits(asked: Effect | None) -> bool:
    """Whether a process looks whether another has committed its member."""
    return asked is not None and asked.name in {"share.look", "share.poll"}


def _noted(sent: list[Outcome], outcome: Outcome) -> Outcome:
    sent.append(outcome)
    return outcome


# --- the state of a generator as a value -------------------------------------------------------------
_ITERATORS: tuple[type, ...] = (
    type(iter(range(0))), type(iter(())), type(iter([])), zip, enumerate, reversed
)  # fmt: skip
_CODE = (CodeType, FrameType, BuiltinFunctionType, ModuleType, type)
_PLAIN = (type(None), bool, int, float, str, bytes)
Seen: TypeAlias = dict[int, tuple[Any, Hashable]]
"""What one call has met, by its address, with its form; the value is kept, or another may come to its address."""


def canon(value: Any) -> Hashable:
    """A value that is equal for equal states, of generators and of everything they may hold.

    A suspended generator refers to its local variables, its value stack (with the iterators of its loops and
    the generator it delegates to) and an exception in handling: nothing is hidden.
    """
    form: Hashable = _canon(value, {})
    return form


def _canon(value: Any, seen: Seen) -> Any:
    """The form of a value; frames hold the same values many times over, and each is looked at once."""
    form = _form_of(value.__class__)
    if form is None:
        return value
    if (met := seen.get(id(value))) is None:
        met = seen[id(value)] = (value, form(value, seen))
    return met[1]


@cache
def _form_of(kind: type) -> Callable[[Any, Seen], Hashable] | None:
    """How values of a type are given their form, or None where they are their own."""
    if issubclass(kind, _PLAIN):
        return None
    for kinds, form in _FORMS:
        if issubclass(kind, kinds):
            return form
    if is_dataclass(kind):
        names = [one.name for one in fields(kind)]
        return lambda value, seen: (kind.__name__, *[_canon(getattr(value, name), seen) for name in names])
    return _pickled


def _pickled(value: Any, seen: Seen) -> Hashable:
    """A value of a library, by all that another process would need to make it again."""
    form: Hashable = _canon(value.__reduce_ex__(4), seen)
    return form


def _generator(program: GeneratorType[Any, Any, Any], seen: Seen) -> Hashable:
    frame = program.gi_frame
    if frame is None:
        return ("finished",)
    names = tuple(frame.f_locals)
    held = [r for r in gc.get_referents(program) if not isinstance(r, FrameType) and r is not frame.f_locals]
    return (program.__qualname__, frame.f_lasti, names, *[_canon(one, seen) for one in held])


_FORMS: tuple[tuple[type | tuple[type, ...], Callable[[Any, Seen], Hashable]], ...] = (
    (Enum, lambda value, seen: (type(value).__name__, value.name)),
    ((tuple, list), lambda value, seen: (type(value).__name__, *[_canon(one, seen) for one in value])),
    ((set, frozenset), lambda value, seen: ("set", *sorted((_canon(one, seen) for one in value), key=repr))),
    (dict, lambda value, seen: ("dict", *[(_canon(k, seen), _canon(v, seen)) for k, v in value.items()])),
    (GeneratorType, _generator),
    (BaseException, lambda value, seen: (type(value).__name__, str(value))),
    (_ITERATORS, lambda value, seen: ("iterator", *[_canon(one, seen) for one in value.__reduce__()[1:]])),
    (range, lambda value, seen: ("range", value.start, value.stop, value.step)),
    (type({}.values()), lambda value, seen: ("values", *[_canon(one, seen) for one in value])),
    (
        CellType,
        lambda value, seen: (
            "cell",
            _canon(value.cell_contents, seen) if gc.get_referents(value) else "empty",
        ),
    ),
    (
        FunctionType,
        lambda value, seen: (value.__qualname__, *[_canon(one, seen) for one in value.__closure__ or ()]),
    ),
    (MethodType, lambda value, seen: (value.__qualname__, _canon(value.__self__, seen))),
    (_CODE, lambda value, seen: str(getattr(value, "__qualname__", type(value).__name__))),
)
