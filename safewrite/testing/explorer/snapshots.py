"""Commits one row to a model of an Iceberg table, by safewrite's own code and by other writers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from safewrite.errors import ReplayMismatchError, StorageError
from safewrite.iceberg.catalog.commit_request import CommitRequest, RefCommit, holds
from safewrite.iceberg.write.file_changes import NOTHING, IcebergChange
from safewrite.iceberg.write.summary import Write, find
from safewrite.iceberg.write.write import IcebergDone, Ledgers, write
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Exists, Ok, Outcome, Put
from safewrite.protocol.iceberg.change import LoadTable, SwapTable
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.forward import fast_forward
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.iceberg.numbers import SnapshotNumbers, are_new
from safewrite.protocol.members import Met
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.catalogs import (
    FIRST_SNAPSHOT,
    AddSnapshot,
    Expire,
    RollBack,
    SetProperty,
    SwapLocation,
    adding,
    forwarding,
    on_side,
)

LIMITS = Limits(attempts=2, asks=2, timeout_s=1e9, lease_s=3.0, recheck_s=1e9)


@dataclass(slots=True)
class _NoFiles:
    """The data files of a write of one row: none, so that the search is about the commit."""

    data_files: tuple[()] = ()

    def upload(self, files: object) -> Generator[Effect, Outcome, None]:
        yield from ()


@dataclass(slots=True)
class RowPlan:
    """A write of one row as a plan; its snapshot holds its key and its attempt, no more."""

    write: Write
    snapshot_id: int
    attempt: str
    ordered: bool
    staging: _NoFiles = field(default_factory=_NoFiles)
    bound: TableVersion | None = None
    met: dict[str, Met | ReplayMismatchError] = field(default_factory=dict)
    tries: int = 0
    rebases: bool = False
    rebased: int = 0
    through: int | None = None
    change: IcebergChange = NOTHING

    @property
    def sharer(self) -> Any:
        return None

    def holding(self, write_id: str, held_s: float) -> Holder:
        """A snapshot without rows that holds the table."""
        number = self.snapshot_id + 100 * (1 + self.tries)
        return Holder(self.write, number, write_id, self.ordered, held_s=held_s)

    def examine(self, head: TableVersion) -> int | None:
        found = find(head, self.write)
        if found is not None:
            self.met[self.write.key] = found
        return None if found is None else found.version

    def check_positions(self, head: TableVersion) -> None:
        """A row takes no source anywhere."""

    def stage(self, head: TableVersion) -> Generator[Effect, Outcome, CommitRequest]:
        self.bound = head
        path = f"list-{self.attempt}-{self.tries}"
        self.tries += 1
        put = Put(path, b"", name="stage.put_manifest_list")
        outcome = yield from ask(put, LIMITS)
        if not isinstance(outcome, Ok):
            raise unanswered(put, outcome)
        return self.request(head, path)

    def request(self, head: TableVersion, path: str) -> CommitRequest:
        """The snapshot of our row."""
        return self.adding(head, self.snapshot_id, self.write.key, self.attempt, path)

    def adding(
        self, head: TableVersion, snapshot_id: int, key: str, attempt: str, path: str
    ) -> CommitRequest:
        """A snapshot on a base."""
        return adding(head, snapshot_id, key, attempt, path, ordered=self.ordered)


@dataclass(slots=True)
class Holder(RowPlan):
    """A snapshot without rows that holds the table."""

    held_s: float = 0.0

    def request(self, head: TableVersion, path: str) -> CommitRequest:
        """The snapshot, which has no key."""
        return adding(head, self.snapshot_id, "", "", path, ordered=self.ordered, held_s=self.held_s)


def safewrite(
    key: str,
    attempt: str,
    snapshot_id: int,
    seen: TableVersion | None,
    *,
    helpers: Ledgers,
    ordered: bool = True,
    queue_first: bool = False,
    kind: Callable[..., RowPlan] = RowPlan,
    limits: Limits = LIMITS,
) -> Program:
    """One call of ``append``, or of another verb's plan, by a table that was looked at long ago (``seen``) or is looked at now."""
    head = (yield from load(LIMITS)) if seen is None else seen
    row = kind(Write(key, "1:0", 1), snapshot_id, attempt, ordered)
    done: IcebergDone = yield from write(
        row,  # type: ignore[arg-type]
        tuple,
        head,
        helpers=helpers,
        limits=limits,
        queue_first=queue_first,
    )
    return done.version


def checking_first(program: Program) -> Program:
    """The same program where a commit is a check by the client, and then a compare-and-set of a location."""
    effect = next(program)
    try:
        while True:
            if isinstance(effect, SwapTable):
                outcome = yield from _swap(effect)
            else:
                outcome = yield effect
            effect = program.send(outcome)
    except StopIteration as end:
        version: int = end.value
        return version


def _swap(swap: SwapTable) -> Generator[Effect, Outcome, Outcome]:
    looked = yield LoadTable(name="swap.check")
    if not isinstance(looked, Ok):
        return looked
    change, head = swap.change, looked.value
    assert isinstance(change, CommitRequest | RefCommit)
    assert isinstance(head, TableVersion)
    if not holds(change.requirements, head) or not _are_new(change, head):
        return Exists()
    return (yield SwapLocation(head.location, change, name=swap.name))


def _are_new(change: CommitRequest | RefCommit, head: TableVersion) -> bool:
    """Whether the numbers of a snapshot are new, which the client looks at where rows have ids."""
    now: Any = head.raw
    added = [one.snapshot for one in change.updates if isinstance(one, AddSnapshot)]
    return now.next_row is None or all(
        are_new(SnapshotNumbers(one.sequence, one.first_row), now.last_sequence, now.next_row)
        for one in added
    )


# --- another branch -----------------------------------------------------------------------------------
def on_branch(program: Program) -> Program:
    """The same program on the other branch: what it sees of the table is as that one has it."""
    effect = next(program)
    try:
        while True:
            outcome = yield effect
            if isinstance(outcome, Ok) and isinstance(outcome.value, TableVersion):
                outcome = Ok(on_side(outcome.value))
            effect = program.send(outcome)
    except StopIteration as end:
        version: int = end.value
        return version


def forwarder() -> Program:
    """A process that audits what the other branch has, and moves the main branch there."""
    audited = on_side((yield from load(LIMITS))).current
    assert audited is not None

    def stage(head: TableVersion) -> Generator[Effect, Outcome, RefCommit]:
        yield from ()
        return forwarding(head, audited)

    yield from fast_forward(audited, stage, LIMITS)
    return audited


# --- other writers ------------------------------------------------------------------------------------
def optimistic(attempt: str, snapshot_id: int, *, ordered: bool = True) -> Program:
    """A writer that commits on what it sees, and looks again after a conflict."""
    for number in range(LIMITS.attempts):
        head = yield from load(LIMITS)
        drawn = snapshot_id + 100 * number
        outcome = yield SwapTable(adding(head, drawn, "", attempt, ordered=ordered), name="peer.commit")
        if isinstance(outcome, Ok):
            return drawn
        if not isinstance(outcome, Exists):
            break
    raise StorageError("The peer gave up.")


def expirer(*, cuts: bool) -> Program:
    """A process that removes old snapshots."""
    return (yield from _once(Expire(cuts, name="peer.expire")))


def rollbacker() -> Program:
    """A process that rolls the table back to its first snapshot."""
    return (yield from _once(RollBack(FIRST_SNAPSHOT, name="peer.roll_back")))


def setter() -> Program:
    """A process that changes the table's properties."""
    return (yield from _once(SetProperty("q", name="peer.set_property")))


def _once(effect: Effect) -> Program:
    outcome = yield effect
    if not isinstance(outcome, Ok):
        raise StorageError("The peer gave up.")
    return 0
