"""Commits what one table gets of a batch, with its offsets, whoever made its rows: tasks, or this process of all changes together."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import safewrite as sw
from safewrite.cdc.columns.frames import LACKS, OP
from safewrite.cdc.config.job import Config
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.ledger.ledger import JobLedger, LedgerEntry, listed
from safewrite.cdc.ledger.target_tables import TargetTables
from safewrite.cdc.records.batch import Batch, Moves
from safewrite.cdc.records.change import DeadLetter
from safewrite.cdc.routing.position_moves import SOURCE_TIME, moved_by
from safewrite.cdc.routing.refusals import (
    knows_job,
    refuse_made_anew,
    refuse_set_back,
)
from safewrite.cdc.routing.table_source import TableSource
from safewrite.cdc.rows.reset_guard import Check
from safewrite.cdc.table.ledger_counts import counts_of
from safewrite.cdc.table.version_changes import REPLANS_MAX, Apply, VersionDoubt, only_versions_came
from safewrite.cdc.table.versions import REVISIONS, VersionRule, next_revision


@dataclass(frozen=True)
class JobParts:
    """What the tables of a job have in common."""

    config: Config
    targets: TargetTables
    ledger: JobLedger
    decoder: Decoder

    def entry(self, batch: Batch, table: TargetTable, records: int) -> LedgerEntry:
        """The line of a table's share of a batch, before anything of it is known."""
        return LedgerEntry(self.config.job, batch.number, table.name, records, offsets=listed(batch.ranges))

    def refuse_other_table(
        self,
        table: TargetTable,
        found: sw.Table | None,
        positions: Mapping[str, int],
        done: Mapping[str, int],
    ) -> None:
        """Refuse a table that is not the one that the job left; ``done`` are the positions of its ledger."""
        name, landed = self.config.job, done.get(self.ledger.mark(table.name), 0)
        refuse_made_anew(name, table, self.targets, positions, landed=landed)
        refuse_set_back(name, table, self.ledger.checked(table, found, positions, landed=landed))


class ToLand(NamedTuple):
    """What a commit has to know of the rows of a table.

    ``has_lists``: whether each names the columns that it lacks.  ``newest_ms`` is the latest time of their changes, and ``snapshots`` how
    they move the positions of these.
    """

    keys: tuple[str, ...]
    rows: int
    has_lists: bool
    newest_ms: int | None
    topics: Collection[str]
    snapshots: Moves


@dataclass
class TableShare(ABC):
    """What one table gets of a batch: one commit."""

    job: JobParts
    table: TargetTable
    entry: LedgerEntry
    batch: Batch
    found: sw.Table | None = None
    """None where there is no row to make it of."""
    positions: Mapping[str, int] = field(default_factory=dict)
    origin: TableSource | None = None
    dead: Sequence[DeadLetter] = ()
    moved: Moves = field(default_factory=dict)
    """How its commit moved the table's positions."""
    versions: VersionDoubt | None = None
    """Counts what becomes of changes that begin and end versions."""

    # --- what makes its rows --------------------------------------------------------------------------
    @abstractmethod
    def _to_land(self) -> ToLand:
        """What there is to commit."""

    @abstractmethod
    def _applied(self, given: ToLand, rule: VersionRule | None, apply: Apply) -> sw.Receipt:
        """The receipt of changes by key, which ``apply`` commits; ``rule`` is theirs where they begin and end versions."""

    @abstractmethod
    def _appended(self, found: sw.Table, moved: Moves) -> sw.Receipt | None:
        """The receipt of rows that are appended; None where the filter lets none pass."""

    @abstractmethod
    def _mends(self, error: sw.InvalidInputError | sw.WouldAlterError) -> bool:
        """Whether rows that a commit refused are letters now, so that the others may land.

        Raises:
            UnfitError: whoever has all changes together can tell.
        """

    def _check(self, given: ToLand) -> Check | None:
        """What is asked of the counts of changes by key before they are committed."""
        return None

    # --- the commit -----------------------------------------------------------------------------------
    def apply(self) -> None:
        """Commit the rows, with the offsets of the batch.

        Raises:
            UnfitError: they must all be in one part; nothing was committed.
        """
        started = time.monotonic()
        receipt, moved = self._tried()
        if receipt is not None:
            versions = self.versions
            if not knows_job(self.positions, self.job.config.job):
                self.entry.begins_at = self.entry.offsets
            self.entry.count(counts_of(receipt, self.table) or {} if versions is None else versions.counts())
            self.entry.version = receipt.version
            self.entry.commit_ms = round((time.monotonic() - started) * 1000)
            self.moved = moved

    def _tried(self) -> tuple[sw.Receipt | None, Moves]:
        again = REPLANS_MAX if self.table.has_versions else 0
        while True:
            try:
                return self._landed()
            except sw.ConflictError as error:
                if not again or error.kind is not sw.Kind.POSITION_MOVED or not self._lands_again():
                    raise
                again -= 1
            except (sw.InvalidInputError, sw.WouldAlterError) as error:
                if not self._mends(error):
                    raise

    def _landed(self) -> tuple[sw.Receipt | None, Moves]:
        """The receipt of a commit, None where there is nothing to commit, and what it moves."""
        table, found, given = self.table, self.found, self._to_land()
        if not given.rows:
            return None, {}
        assert found is not None
        name = self.job.config.job
        offsets = self.batch.moves(name, self.positions)
        moved = moved_by(name, table, self.positions, offsets, given.newest_ms) | given.snapshots
        if self.origin is not None:
            moved |= self.origin.moves(given.topics)
        if table.expressions or table.has_versions or found.row_rules:
            # What was computed of rows of the table holds only for these.
            moved |= next_revision(self.positions)
        if table.is_appended:
            return self._appended(found, moved), moved
        keys, sequence, rule = [*given.keys], table.sequence_by, None
        if table.has_versions:  # a version is named by its key and its beginning
            keys, sequence = [*keys, *table.own.of_order], [table.own.revision]
            rule = VersionRule(table, given.keys, moved[REVISIONS][1])
        apply = partial(
            found.apply_changes,
            keys=keys,
            sequence_by=sequence,
            delete_when=[(OP, "=", "d")],
            unchanged=LACKS if given.has_lists else None,
            all_late="count",  # the check says it in the words of the configuration
            check=self._check(given),
            key=self.key,
            positions=moved,
        )
        receipt = self._applied(given, rule, apply)
        self.job.targets.tell_copies(table, receipt)
        return receipt, moved

    @property
    def key(self) -> str:
        """The name of the table's share of the batch."""
        return self.batch.key(self.job.config.job, self.table.name)

    @property
    def known_ms(self) -> int | None:
        """The newest time of the source that the table has."""
        return self.positions.get(f"{self.job.config.job}/{SOURCE_TIME}")

    def is_again(self, newest_ms: int | None) -> bool:
        """Whether no change is newer by the source's clock: changes that are late were sent again then.

        Late ones that are newer by it are those of a source that was set back.
        """
        known = self.known_ms
        return bool(self.batch.replay) or (known is not None and newest_ms is not None and newest_ms <= known)

    def _lands_again(self) -> bool:
        """Whether others only wrote versions meanwhile."""
        before, name = self.positions, self.job.config.job
        self.found, self.positions = self.job.targets.position(self.table)
        return self.found is not None and only_versions_came(
            before, self.positions, lambda known: self.batch.moves(name, known)
        )
