"""Checks what must hold in every state of an exploration, and what must be possible from its ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from safewrite.errors import InvalidInputError, Kind, SafewriteError
from safewrite.protocol.effects import Effect
from safewrite.stores.world import run
from safewrite.testing.explorer.automaton import (
    Absent,
    Acked,
    Broken,
    Down,
    InDoubt,
    Node,
    NotCommitted,
    Place,
    Program,
)
from safewrite.testing.explorer.changes import NOTHING, Change, State, applied, refuses, told_by
from safewrite.testing.explorer.immutable import Store
from safewrite.testing.explorer.rows import parse, safewrite
from safewrite.testing.explorer.sharing import sharing
from safewrite.testing.explorer.stamps import stale
from safewrite.testing.explorer.unions import unequal_in

if TYPE_CHECKING:
    from safewrite.protocol.delta.commit import Arbiter

FORESEEN = {Kind.STORAGE.value, Kind.RETRIES_EXHAUSTED.value}
"""``NotCommittedError`` kinds that faults and contention alone may cause."""


class Judged(Protocol):
    """A model, as far as its states are judged by it."""

    @property
    def writers(self) -> Sequence[Any]: ...

    def decide(self, slot: int, incarnation: int, /) -> Program:
        """The call that decides the write of a process that has ended in doubt, or was killed."""


class JudgedLog(Judged, Protocol):
    """The same of a Delta table."""

    @property
    def arbiter(self) -> Arbiter: ...

    @property
    def overwritten(self) -> bool:
        """Whether a peer replaces commit files by plain PUTs."""


class Judge:
    """The invariants of one model; each check says what is broken, or ''."""

    def __init__(self, model: JudgedLog) -> None:
        self.model = model

    def state(self, store: Store, nodes: Sequence[Node]) -> str:
        """Check the log against how the processes have ended so far."""
        log = store.log()
        if sorted(log) != list(range(len(log))):
            return f"hole: the log holds versions {sorted(log)}"
        commits = {version: parse(body) for version, body in log.items()}
        for name in {name for writer in self.model.writers if writer.ours for name in writer.keys}:
            held = [version for version, (key, _) in commits.items() if name in key.split("+")]
            if len(held) > 1:
                return f"doubled: key {name} is in versions {held}"
        states, told = _states(log)
        told = told or stale((version, log[version]) for version in sorted(log))
        if told := told or unequal_in(log, dict(store.objects)):
            return told
        ours = (node for node in nodes if node.end is not None and self.model.writers[node.slot].ours)
        return next((found for node in ours if (found := self._end(node, commits, states))), "")

    def _end(self, node: Node, commits: dict[int, tuple[str, str]], states: Sequence[State]) -> str:
        key, attempt = self.model.writers[node.slot].key, f"{node.slot}.{node.incarnation}"
        match node.end:
            case Acked(version) if lost := _not_in(version, key, commits):
                return f"lost: key {lost} was acked in {version}, and the log holds {commits}"
            case Absent() if held := [at for at, (keys, _) in commits.items() if key in keys.split("+")]:
                return f"misled: resolve did not find key {key}, and it is in versions {held}"
            case NotCommitted(kind) if kind not in FORESEEN and not (
                (kind == Kind.INVALID_INPUT.value and self._refused(node.slot, states))
                or (kind == Kind.CONFLICT.value and self.model.writers[node.slot].may_be_left_out)
            ):
                return f"alarm: {attempt} ended with {kind}"
            case NotCommitted() if any(
                attempt in theirs.replace("'", "").split("+") for _, theirs in commits.values()
            ):
                return f"zombie: attempt {attempt} ended as not committed, and is in the log"
            case Broken(error):
                return f"alarm: {attempt} ended with {error}"
        return ""

    def _refused(self, slot: int, states: Sequence[State]) -> bool:
        """Whether there was a version on which the change of a process is refused."""
        return any(refuses(state, self.model.writers[slot].change) for state in states)

    def replaced(self, before: Store, after: Store) -> str:
        """Check that no commit file has changed, unless a peer of the model replaces them."""
        if self.model.overwritten:
            return ""
        log = after.log()
        changed = [version for version, body in before.log().items() if log.get(version) != body]
        return f"replaced: the commit file of version {changed[0]} has changed" if changed else ""

    def end(self, store: Store, nodes: Sequence[Node], late: Sequence[Effect]) -> str:
        """Start processes in doubt again, let a new writer commit, then let late requests arrive."""
        world, taken = store.world()
        try:
            for node in nodes:
                writer = self.model.writers[node.slot]
                if writer.ours and isinstance(node.end, Down | InDoubt):
                    try:
                        place = run(self.model.decide(node.slot, node.incarnation + 1), world)
                    except InvalidInputError:
                        if self._refused(node.slot, _states(taken().log())[0]):
                            continue
                        raise
                    commits = {at: parse(body) for at, body in taken().log().items()}
                    if lost := _not_in(place, writer.key, commits):
                        return f"stuck: key {lost} is not in {place} after its retry"
            version = run(self._one_more("next"), world)
        except SafewriteError as error:
            return f"stuck: {type(error).__name__}: {error}"
        for effect in late:
            world.perform(effect)
        if self.model.arbiter.shares:  # what arrived late in the queue of members is found by who comes
            run(self._one_more("last"), world)
        after = taken()
        assert isinstance(version, int)
        if "next" not in parse(after.log()[version])[0].split("+"):
            return f"lost: version {version} of the writer that came after"
        return self.state(after, nodes) or self.replaced(store, after)

    def _one_more(self, name: str) -> Program:
        """A writer that comes when all have ended."""
        if self.model.arbiter.shares:
            return sharing(name, name, self.model.arbiter, again=True, queue_first=True)
        return safewrite(name, name, self.model.arbiter, exists=True, again=True)


def _states(log: Mapping[int, bytes]) -> tuple[list[State], str]:
    """As :func:`states_of`, of the versions of a log."""
    told = ((f"version {at}", told_by(log[at])) for at in sorted(log))
    return states_of((name, *one) for name, one in told if one is not None)


def states_of(told: Iterable[tuple[str, Sequence[Change], State]]) -> tuple[list[State], str]:
    """What commits leave of the key under changes, and a change that was planned on another one than that before its own.

    Each tells its changes, and what its plan made of the key.
    """
    states = [NOTHING]
    for name, changes, makes in told:
        state = states[-1]
        for change in changes:
            if refuses(state, change):
                return states, f"revived: {name} applies {change} to {state}, which refuses it"
            state = applied(state, change)
        if makes != state:
            return states, f"revived: {name} leaves the key at {makes}, and its changes make {state}"
        states.append(state)
    return states, ""


def _not_in(place: Place | None, key: str, commits: Mapping[int, tuple[str, str]]) -> str:
    """A key that is not in the version where it is said to be; "" if there is none."""
    places = place if isinstance(place, tuple) else ((key, -1 if place is None else place),)
    if {name for name, _ in places} != set(key.split("+")):
        return key
    return next((name for name, at in places if name not in commits.get(at, ("", ""))[0].split("+")), "")
