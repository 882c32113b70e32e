"""Describes models of Delta: the processes of one table, and how each of them begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.commit import Arbiter
from safewrite.testing.explorer import peers
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.changes import NOTHING, Change, changing
from safewrite.testing.explorer.compaction import compacting, rewriting
from safewrite.testing.explorer.groups import group
from safewrite.testing.explorer.immutable import Store
from safewrite.testing.explorer.invariants import Judge
from safewrite.testing.explorer.rows import FIRST, engine, safewrite
from safewrite.testing.explorer.shared_changes import sharing_changes
from safewrite.testing.explorer.sharing import resolving, sharing
from safewrite.testing.explorer.stamps import stamping
from safewrite.testing.explorer.unions import Rows, marking

PEERS = {"conditional-put": peers.conditional_put, "spark": peers.spark, "old-locks": peers.lock_table}

HOLDING = "holding"
COMPACTION = "compacting"
"""The program that changes no row, and may be left out."""

_OURS = [
    "safewrite",
    "engine",
    "group",
    "changes",
    "sharing",
    "resolving",
    "branch",
    "forward",
    "sharing-changes",
    "stamping",
    "rewriting",
    "marking",
    HOLDING,
    COMPACTION,
]
ROW_PROGRAMS = {"group": group, "sharing": sharing, "stamping": stamping}
CHANGE_PROGRAMS: Mapping[str, Callable[..., Program]] = {
    "changes": changing,
    "sharing-changes": sharing_changes,
    "rewriting": rewriting,
    COMPACTION: compacting,
}


@dataclass(frozen=True, slots=True)
class WriterProcess:
    """One process of a model: how it writes, under which key, how often it restarts."""

    program: str
    key: str
    restarts: int = 1
    queue_first: bool = False
    fresh: bool = False
    """Whether it makes its first try at a version without looking at the log again."""
    light: bool = True
    """Whether its keys go into the ledger with the upload."""
    change: Change = NOTHING
    """What it does to the one key of a table under changes."""
    rows: Rows = ()
    """The rows that it deletes of a table of one file."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Its key, or those of its group."""
        return tuple(self.key.split("+"))

    @property
    def may_be_left_out(self) -> bool:
        """Whether it may end without a commit because another writer was first."""
        return self.program == COMPACTION

    @property
    def ours(self) -> bool:
        """Whether its acks are safewrite's."""
        return self.program in _OURS


# Changes of one key, that writers share commits of in both formats.
SHARED_DELETE = WriterProcess("sharing-changes", "delete", change=(5, True), queue_first=True)
SHARED_INSERT = WriterProcess("sharing-changes", "insert", change=(3, False), queue_first=True, fresh=True)
UNEQUAL = replace(SHARED_INSERT, key="unequal", change=(3, True))
AT_FIRST = replace(SHARED_INSERT, key="at-first", change=(NOTHING[0], False))

# Deletions of rows of one file, one row of which is in both.
MARKS = WriterProcess("marking", "marks", rows=(1, 3))
MARKS_TOO = WriterProcess("marking", "marks-too", rows=(3, 5), fresh=True)
HOLDERS = tuple(
    replace(one, program=HOLDING, restarts=0)
    for one in (MARKS, MARKS_TOO, replace(MARKS, key="marks-third", rows=(7,)))
)
"""Three deletions, where who loses a try holds the table."""


@dataclass(frozen=True, slots=True)
class Model:
    """Processes on one table.  ``faults`` and ``long_faults`` are the budgets of a short and a long run."""

    name: str
    about: str
    writers: tuple[WriterProcess, ...]
    arbiter: Arbiter
    faults: int = 1
    long_faults: int = 1
    exists: bool = True
    flaw: tuple[str, ...] = ()
    """The invariants that are known not to hold here, where there are any.

    ``doubled`` and ``zombie``: a peer that repairs our unfinished entry with a plain PUT or rename, while a third writer
    took the version by conditional PUT, puts our bytes over that writer's after we have moved on.
    """

    @property
    def expiring(self) -> bool:
        """Whether entries may outlive their time while a process pauses.

        Not together with a client that neither looks at ``N.json`` after winning its entry nor copies with a
        condition.  Paused between its listing and its claim for as long as completed entries live (two days),
        it replaces a commit.  No writer can prevent that; old entries would have to be kept for ever.
        """
        return all(writer.program != "old-locks" for writer in self.writers)

    @property
    def overwritten(self) -> bool:
        """Whether a peer replaces commit files by plain PUTs."""
        return any(writer.program in ("spark", "old-locks") for writer in self.writers)

    @property
    def first(self) -> Store:
        """The stores at the start: a table of one version, or nothing."""
        return Store(((claims.commit_path(0), FIRST),)) if self.exists else Store()

    def judge(self) -> Judge:
        """The invariants of its states."""
        return Judge(self)

    def decide(self, slot: int, incarnation: int) -> Program:
        """The call that decides the write of a process that has ended in doubt, or was killed."""
        writer = self.writers[slot]
        if writer.program == "resolving":
            return sharing(writer.key, f"{slot}.{incarnation}", self.arbiter, again=True, queue_first=True)
        return self.start(slot, incarnation)

    def start(self, slot: int, incarnation: int) -> Program:
        """The program of a process, at its first start or at a later one with the same key."""
        writer, attempt = self.writers[slot], f"{slot}.{incarnation}"
        if writer.program in PEERS:
            return PEERS[writer.program](writer.key, attempt)
        if writer.program == "engine":
            return engine(writer.key, f"{slot}.0", self.arbiter, again=incarnation > 0, fresh=writer.fresh)
        if writer.program == "resolving":
            return resolving(writer.key, attempt, self.arbiter, again=incarnation > 0)
        how = {"again": incarnation > 0, "fresh": writer.fresh, "queue_first": writer.queue_first}
        if writer.program in CHANGE_PROGRAMS:
            return CHANGE_PROGRAMS[writer.program](writer.key, writer.change, attempt, self.arbiter, **how)
        if writer.program in {"marking", HOLDING}:
            how["holds"] = writer.program == HOLDING
            return marking(writer.key, writer.rows, attempt, self.arbiter, **how)
        how["light"] = writer.light
        if writer.program in ROW_PROGRAMS:
            return ROW_PROGRAMS[writer.program](writer.key, attempt, self.arbiter, **how)
        return safewrite(writer.key, attempt, self.arbiter, exists=self.exists, **how)
