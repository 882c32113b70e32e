"""Names the models of Iceberg: which writers share a table, in which catalog, with which other writers."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from safewrite.iceberg.write.earlier_writes import EMPTY
from safewrite.iceberg.write.write import Ledgers
from safewrite.protocol import keys
from safewrite.protocol.member_queue import Terms
from safewrite.testing.explorer import catalog_changes, catalog_sharing, snapshots
from safewrite.testing.explorer.automaton import Program
from safewrite.testing.explorer.catalog_unions import MarkingPlan
from safewrite.testing.explorer.catalogs import FIRST_SNAPSHOT, Catalog, catalog
from safewrite.testing.explorer.delta_models import (
    AT_FIRST,
    HOLDERS,
    HOLDING,
    MARKS,
    MARKS_TOO,
    SHARED_DELETE,
    SHARED_INSERT,
    UNEQUAL,
    WriterProcess,
)
from safewrite.testing.explorer.lineage import LineageJudge

_BARE = Ledgers()
NEIGHBOURS = {
    "expirer": lambda: snapshots.expirer(cuts=False),
    "cutting-expirer": lambda: snapshots.expirer(cuts=True),
    "rollbacker": snapshots.rollbacker,
    "setter": snapshots.setter,
}


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """Processes on one Iceberg table.  ``faults`` and ``long_faults`` are the budgets of a short and a long run.

    ``compares`` is what the catalog compares at a commit: ``branch``, as a REST catalog does, or
    ``location``, as SQL catalogs and Glue do.  ``kept`` is how many earlier metadata files can be read.
    """

    name: str
    about: str
    writers: tuple[WriterProcess, ...]
    compares: str = "branch"
    helpers: Ledgers = _BARE
    faults: int = 2
    long_faults: int = 3
    empty: bool = False
    kept: int = 100
    ordered: bool = True
    numbered: bool = False
    """Whether rows have ids, as from format version 3 on."""
    flaw: tuple[str, ...] = ()
    """The invariants that are known not to hold here, where there are any."""
    expiring: bool = False
    overwritten: bool = True
    shares: int = 0
    """Up to how many sequence numbers after its base others may commit a member; 0: no snapshots are shared."""

    @property
    def rolled_back(self) -> bool:
        """Whether some process takes back what was committed."""
        return any(writer.program == "rollbacker" for writer in self.writers)

    @property
    def expired(self) -> bool:
        """Whether some process removes old snapshots."""
        return any(writer.program.endswith("expirer") for writer in self.writers)

    @property
    def first(self) -> Catalog:
        """The catalog at the start: a table of one snapshot, or of none."""
        side = any(writer.program == "branch" for writer in self.writers)
        return catalog(
            empty=self.empty, kept=self.kept, ordered=self.ordered, side=side, numbered=self.numbered
        )

    def judge(self) -> LineageJudge:
        """The invariants of its states."""
        return LineageJudge(self)

    def start(self, slot: int, incarnation: int) -> Program:
        """The program of a process, at its first start or at a later one with the same key."""
        writer, attempt = self.writers[slot], f"{slot}.{incarnation}"
        snapshot_id = 10 * (slot + 1) + incarnation
        if writer.program in NEIGHBOURS:
            return NEIGHBOURS[writer.program]()
        seen = self.first.head() if writer.fresh and incarnation == 0 else None
        how: dict[str, Any] = {"helpers": self.helpers, "terms": Terms(self.shares)}
        if writer.program == "sharing":
            program = catalog_sharing.sharing(
                writer.key, attempt, snapshot_id, seen, queue_first=writer.queue_first, **how
            )
        elif writer.program == "sharing-changes":
            how["queue_first"] = writer.queue_first
            program = catalog_changes.sharing_changes(
                writer.key, writer.change, attempt, snapshot_id, seen, **how
            )
        elif writer.program == "resolving":
            program = catalog_sharing.resolving(
                writer.key, attempt, snapshot_id, again=incarnation > 0, **how
            )
        elif writer.program == "forward":
            program = snapshots.forwarder()
        elif writer.program == "optimistic":
            program = snapshots.optimistic(attempt, snapshot_id, ordered=self.ordered)
        else:
            holds = writer.program == HOLDING
            program = snapshots.safewrite(
                writer.key,
                attempt,
                snapshot_id,
                seen,
                helpers=self.helpers,
                ordered=self.ordered,
                queue_first=writer.queue_first,
                kind=partial(MarkingPlan, rows=writer.rows, rebases=holds)
                if writer.rows
                else snapshots.RowPlan,
                limits=replace(snapshots.LIMITS, long_s=0.0) if holds else snapshots.LIMITS,
            )
        program = snapshots.on_branch(program) if writer.program == "branch" else program
        return snapshots.checking_first(program) if self.compares == "location" else program

    def decide(self, slot: int, incarnation: int) -> Program:
        """The call that decides the write of a process that has ended in doubt, or was killed."""
        if self.writers[slot].program == "resolving":
            writers = (*self.writers[:slot], replace(self.writers[slot], program="sharing"))
            return replace(self, writers=writers).start(slot, incarnation)
        return self.start(slot, incarnation)

    def next_writer(self, name: str) -> Program:
        """A writer that comes when all others have ended."""
        at = 900 + len(name) + (name == "last")
        program = snapshots.safewrite(name, name, at, None, helpers=self.helpers, ordered=self.ordered)
        if self.shares:
            terms = Terms(self.shares)
            program = catalog_sharing.sharing(name, name, at, None, helpers=self.helpers, terms=terms)
        return snapshots.checking_first(program) if self.compares == "location" else program


def _generated(number: int, base: int = FIRST_SNAPSHOT) -> str:
    return keys.generated(str(uuid.UUID(int=number)), base)


_ONE, _TWO = (
    WriterProcess("safewrite", _generated(1), fresh=True),
    WriterProcess("safewrite", _generated(2), fresh=True),
)
_FIRST = (
    WriterProcess("safewrite", _generated(1, EMPTY), fresh=True),
    WriterProcess("safewrite", _generated(2, EMPTY)),
)
_SAME = WriterProcess("safewrite", "event")
_TWICE = (_SAME, replace(_SAME, restarts=0, fresh=True))
_OTHER = WriterProcess("optimistic", "", restarts=0)
_SETTER, _ROLLBACKER = WriterProcess("setter", "", restarts=0), WriterProcess("rollbacker", "", restarts=0)
_EXPIRER, _CUTTER = WriterProcess("expirer", "", restarts=0), WriterProcess("cutting-expirer", "", restarts=0)
_WAITS = WriterProcess("sharing", "waits", queue_first=True)
_JOINS = WriterProcess("sharing", "joins", queue_first=True)
_BRANCHES = (
    replace(_ONE, restarts=0),
    replace(_TWO, program="branch", restarts=0, fresh=False),
    WriterProcess("forward", ""),
)
_KEYED_BRANCHES = (
    replace(_BRANCHES[0], key="on-main"),
    replace(_BRANCHES[1], key="on-branch", restarts=1),
    *_BRANCHES[2:],
)
_LEDGER, _QUEUE = Ledgers(ledger=True), Ledgers(ledger=True, queue=True)

CATALOG_MODELS = {
    model.name: model
    for model in (
        CatalogModel("iceberg-two", "two writers, REST catalog", (_ONE, _TWO)),
        CatalogModel("iceberg-two-sql", "two writers, SQL catalog or Glue", (_ONE, _TWO), "location"),
        CatalogModel(
            "iceberg-retry", "a zombie and its retry with one key, REST catalog", _TWICE, helpers=_LEDGER
        ),
        CatalogModel(
            "iceberg-retry-sql",
            "a zombie and its retry with one key, SQL catalog or Glue",
            _TWICE,
            "location",
            _LEDGER,
        ),
        CatalogModel("iceberg-empty", "two writers on an empty table, REST catalog", _FIRST, empty=True),
        CatalogModel(
            "iceberg-queue",
            "two writers and a ticket queue",
            (_ONE, replace(_TWO, queue_first=True)),
            "location",
            _QUEUE,
            faults=1,
            long_faults=2,
        ),
        CatalogModel("iceberg-plain", "with a plain optimistic writer", (_SAME, _OTHER), helpers=_LEDGER),
        CatalogModel(
            "iceberg-plain-sql",
            "with a plain optimistic writer, SQL catalog or Glue",
            (_SAME, _OTHER),
            "location",
            _LEDGER,
        ),
        CatalogModel("iceberg-set", "with one that sets properties", (_ONE, _SETTER)),
        CatalogModel(
            "iceberg-set-sql",
            "with one that sets properties, SQL catalog or Glue",
            (_ONE, _SETTER),
            "location",
        ),
        CatalogModel(
            "iceberg-expire",
            "with a plain writer and an expirer",
            (_SAME, _OTHER, _EXPIRER),
            helpers=_LEDGER,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-expire-cut",
            "the same, parent ids cut",
            (_SAME, _OTHER, _CUTTER),
            helpers=_LEDGER,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-expire-empty",
            "the same on a table that was empty",
            (_SAME, _OTHER, _CUTTER),
            helpers=_LEDGER,
            empty=True,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-expire-short",
            "the same, and one earlier metadata file kept",
            (_SAME, _OTHER, _CUTTER),
            helpers=_LEDGER,
            kept=1,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-expire-bare",
            "an expirer, and no ledger",
            (replace(_ONE, fresh=False), _OTHER, _CUTTER),
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-rollback",
            "with a plain writer and one that rolls back",
            (_ONE, _OTHER, _ROLLBACKER),
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-rollback-sql",
            "the same, SQL catalog or Glue",
            (_ONE, _OTHER, _ROLLBACKER),
            "location",
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-rollback-v1",
            "the same, REST catalog, no sequence numbers",
            (_ONE, _OTHER, _ROLLBACKER),
            ordered=False,
            flaw=("zombie",),
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-branch",
            "a writer on each of two branches and a fast-forward, REST catalog",
            _BRANCHES,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-branch-sql",
            "the same, SQL catalog or Glue",
            _BRANCHES,
            "location",
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-branch-ledger",
            "the same with keys of the caller in a ledger, and one that writes again, REST catalog",
            _KEYED_BRANCHES,
            helpers=_LEDGER,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "iceberg-ids",
            "a writer on each of two branches and a fast-forward, rows with ids, REST catalog",
            _BRANCHES,
            faults=1,
            long_faults=2,
            numbered=True,
        ),
        CatalogModel(
            "iceberg-ids-sql",
            "the same, SQL catalog or Glue",
            _BRANCHES,
            "location",
            faults=1,
            long_faults=2,
            numbered=True,
        ),
        CatalogModel(
            "unions-iceberg",
            "two deletions of rows of one file, one of them the same, deletion vectors in Puffin files, REST catalog",
            (MARKS, MARKS_TOO),
            helpers=_LEDGER,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "unions-iceberg-sql",
            "the same, SQL catalog or Glue",
            (MARKS, MARKS_TOO),
            "location",
            _LEDGER,
            faults=1,
            long_faults=2,
        ),
        CatalogModel(
            "held-iceberg",
            "three deletions, where who loses a try holds the table by a snapshot without rows, REST catalog",
            HOLDERS,
            helpers=_LEDGER,
            faults=0,
            long_faults=1,
        ),
        CatalogModel(
            "share-iceberg-ids",
            "two writers that share a snapshot, rows with ids, REST catalog",
            (_WAITS, _JOINS),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
            numbered=True,
        ),
        CatalogModel(
            "share-iceberg",
            "two writers that share a snapshot, REST catalog",
            (_WAITS, _JOINS),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-sql",
            "the same, SQL catalog or Glue",
            (_WAITS, _JOINS),
            "location",
            _LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-fresh",
            "one that shares and one that commits at once, REST catalog",
            (_WAITS, replace(_JOINS, queue_first=False, fresh=True)),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-again",
            "a zombie and its retry with one key, both sharing, REST catalog",
            (_WAITS, replace(_WAITS, restarts=0)),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-resolve",
            "one that shares, gives up and asks, and one that leads, REST catalog",
            (WriterProcess("resolving", "asks"), replace(_JOINS, restarts=0)),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-expire",
            "two that share, and an expirer that cuts parent ids",
            (_WAITS, replace(_JOINS, restarts=0), _CUTTER),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-three",
            "two that share within one snapshot, and one that commits at once, REST catalog",
            (
                _WAITS,
                replace(_JOINS, restarts=0),
                replace(_JOINS, key="third", restarts=0, queue_first=False, fresh=True),
            ),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=1,
        ),
        CatalogModel(
            "share-iceberg-changes",
            "an early delete and a late insert of one key that share a snapshot, REST catalog",
            (SHARED_DELETE, SHARED_INSERT),
            helpers=_LEDGER,
            faults=1,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-refused",
            "two unequal changes with one sequence that share a snapshot: the second of them is refused",
            (SHARED_INSERT, UNEQUAL),
            helpers=_LEDGER,
            faults=0,
            long_faults=1,
            shares=2,
        ),
        CatalogModel(
            "share-iceberg-withdrawn",
            "a change that is refused until another is applied, and that one, which may still carry it",
            (AT_FIRST, SHARED_INSERT),
            faults=1,
            long_faults=1,
            shares=2,
        ),
    )
}
