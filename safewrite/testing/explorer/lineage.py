"""Checks what must hold of a catalog in every state of an exploration, and be possible from its ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from safewrite.errors import CommitUnknownError, ConflictError, InvalidInputError, Kind, SafewriteError
from safewrite.protocol.effects import Effect, Ok, Outcome, Together
from safewrite.stores.world import run
from safewrite.testing.explorer.automaton import (
    TICK_S,
    Absent,
    Acked,
    Broken,
    Down,
    InDoubt,
    Node,
    NotCommitted,
    Program,
)
from safewrite.testing.explorer.catalog_unions import unequal_in
from safewrite.testing.explorer.catalogs import Catalog, CatalogSnapshot
from safewrite.testing.explorer.changes import NOTHING, State, refuses
from safewrite.testing.explorer.invariants import FORESEEN, Judged, states_of


class JudgedCatalog(Judged, Protocol):
    """A model of an Iceberg table, as far as its states are judged by it."""

    @property
    def rolled_back(self) -> bool: ...

    @property
    def expired(self) -> bool: ...

    @property
    def shares(self) -> int: ...

    def next_writer(self, name: str, /) -> Program:
        """A writer that comes when all others have ended."""


class LineageWorld:
    """A catalog on which programs run, one after the other and without faults."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.ticks = 0

    def perform(self, effect: Effect) -> Outcome:
        """Perform one effect."""
        if isinstance(effect, Together):
            return Ok(tuple(self.perform(part) for part in effect.effects))
        self.ticks += 1
        match type(effect).__name__:
            case "Now":
                return Ok(self.ticks * TICK_S)
            case "Sleep" | "Backoff" | "WallClock":
                return Ok(0)
        outcome, self.catalog = self.catalog.perform(effect)
        return outcome


def _held(line: Sequence[CatalogSnapshot]) -> Counter[str]:
    return Counter(key for one in line if one.key for key in one.key.split("+"))


def _states(catalog: Catalog) -> tuple[list[State], str]:
    """What snapshots leave of the key under changes: see ``states_of``."""
    line = [one for one in reversed(catalog.branch()) if one.makes is not None]
    return states_of((f"snapshot {one.id}", one.changes, one.makes or NOTHING) for one in line)


class LineageJudge:
    """The invariants of one model; each check says what is broken, or ''."""

    def __init__(self, model: JudgedCatalog) -> None:
        self.model = model

    def state(self, catalog: Catalog, nodes: Sequence[Node]) -> str:
        """Check the branch against how the processes have ended so far."""
        files = dict(catalog.store.objects)
        for one in catalog.metadata.snapshots:
            if one.path and one.path not in files:
                return f"unreadable: snapshot {one.id} names {one.path}, which was deleted"
        ids = Counter(one.id for one in catalog.ever)
        if any(times > 1 for times in ids.values()):
            return f"doubled: a snapshot was added twice: {sorted(ids.elements())}"
        rows = Counter(
            row
            for one in catalog.ever
            if one.first_row is not None
            for row in range(one.first_row, one.first_row + one.rows)
        )
        if any(times > 1 for times in rows.values()):
            return f"doubled: row ids were given twice: {sorted(rows.elements())}"
        lines = {side: catalog.branch(side=side) for side in (False, True)}
        held = {side: _held(line) for side, line in lines.items()}
        for key, times in (*held[False].items(), *held[True].items()):
            if times > 1:
                return f"doubled: key {key} is {times} times in a branch"
        if revived := _states(catalog)[1] or unequal_in(catalog):
            return revived
        for node in nodes:
            writer = self.model.writers[node.slot]
            if node.end is None or not writer.ours:
                continue
            on = writer.program == "branch"
            attempts = {attempt for one in lines[on] for attempt in one.attempt.split("+")}
            ends = self._forwarded if writer.program == "forward" else self._end
            if found := ends(node, catalog, held[on], attempts):
                return found
        return ""

    def _forwarded(self, node: Node, catalog: Catalog, held: Counter[str], attempts: set[str]) -> str:
        """A fast-forward that was acked is there; one that was refused brought the main branch nothing."""
        brings = {writer.key for writer in self.model.writers if writer.program == "branch"}
        match node.end:
            case Acked(version) if not any(one.id == version for one in catalog.branch()):
                return f"lost: a fast-forward to snapshot {version} was acked, and the main branch does not have it"
            case NotCommitted(kind) if kind not in {*FORESEEN, Kind.BRANCH_CHANGED.value}:
                return f"alarm: the fast-forward ended with {kind}"
            case NotCommitted() if brings & held.keys():
                return (
                    "zombie: a fast-forward ended as not committed, and the main branch has the branch's rows"
                )
            case Broken(error):
                return f"alarm: the fast-forward ended with {error}"
        return ""

    def _end(self, node: Node, catalog: Catalog, held: Counter[str], attempts: set[str]) -> str:
        key, attempt = self.model.writers[node.slot].key, f"{node.slot}.{node.incarnation}"
        match node.end:
            case Acked(version) if not self.model.rolled_back and not held[key]:
                return f"lost: key {key} was acked in snapshot {version}, and is not in the branch"
            case Acked(version) if not any(
                one.id == version and key in one.key.split("+") for one in catalog.ever
            ):
                return f"lost: key {key} was acked in snapshot {version}, which it never was in"
            case Absent() if held[key]:
                return f"misled: resolve did not find key {key}, and it is in the branch"
            case NotCommitted(kind) if kind not in FORESEEN and not (
                kind == Kind.INVALID_INPUT.value and self._refused(node.slot, catalog)
            ):
                return f"alarm: {attempt} ended with {kind}"
            case NotCommitted() if attempt in attempts:
                return f"zombie: attempt {attempt} ended as not committed, and is in the branch"
            case Broken(error) if not (self.model.rolled_back and error.startswith("ForeignWriterError")):
                return f"alarm: {attempt} ended with {error}"
        return ""

    def _refused(self, slot: int, catalog: Catalog) -> bool:
        """Whether there was a snapshot on which the change of a process is refused."""
        return any(refuses(state, self.model.writers[slot].change) for state in _states(catalog)[0])

    def replaced(self, before: Catalog, after: Catalog) -> str:
        """Check nothing: a catalog replaces its metadata all the time, and ``state`` checks what may not vanish."""
        return ""

    def end(self, catalog: Catalog, nodes: Sequence[Node], late: Sequence[Effect]) -> str:
        """Start processes in doubt again, let a new writer commit, then let late requests arrive."""
        world = LineageWorld(catalog)
        try:
            for node in nodes:
                writer = self.model.writers[node.slot]
                if writer.ours and isinstance(node.end, Down | InDoubt):
                    self._again(node, world)
            version = run(self.model.next_writer("next"), world)
        except SafewriteError as error:
            return f"stuck: {type(error).__name__}: {error}"
        for effect in late:
            world.perform(effect)
        if self.model.shares:  # what arrived late in the queue of members is found by who comes
            run(self.model.next_writer("last"), world)
        after = world.catalog
        stands = [one.id for one in after.branch() if "next" in one.key.split("+")] == [version]
        if not stands and not self.model.rolled_back:
            return f"lost: snapshot {version} of the writer that came after"
        return self.state(after, nodes)

    def _again(self, node: Node, world: LineageWorld) -> None:
        """Start a process again; where snapshots are expired, it may say that its key is undecidable for good."""
        before = len(world.catalog.ever)
        try:
            run(self.model.decide(node.slot, node.incarnation + 1), world)
        except ConflictError as error:
            if error.kind is not Kind.BRANCH_CHANGED:  # by which a fast-forward is refused for good
                raise
        except InvalidInputError:
            if not self._refused(node.slot, world.catalog):
                raise
        except CommitUnknownError:
            if not self.model.expired or len(world.catalog.ever) != before:
                raise
