"""Tells what a table's history and its records say, without writing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from safewrite.arguments.options import known_key
from safewrite.boundary.public import Turn, verb
from safewrite.protocol.ask import Limits
from safewrite.receipt import Receipt
from safewrite.stores.world import monotonic_s
from safewrite.table.group_loop import GroupLoop
from safewrite.table.history import CommittedWrite, HistoryEntry, checked_limit, checked_version, no_version
from safewrite.table.write_loop import DoneT, PlanT, VersionT


class Lookups(GroupLoop[VersionT, PlanT, DoneT]):
    """The verbs of a table that write nothing."""

    def __init__(self, limits: Limits | None) -> None:
        super().__init__(limits)
        self.turn = Turn()

    @abstractmethod
    def after_fork(self) -> None:
        """Stop using the parent's connections and clocks in a forked child."""

    @verb
    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed: its receipt, or None if it did not.

        Iceberg: the ledger (``lock_table=``, SQL catalogs) knows that an attempt ended in doubt.  Without one
        only the object that made the attempt knows it, and another may answer None while a lost request is
        still on its way.

        Raises:
            CommitUnknownError: it may still land; write again with the same key to decide.
            StorageError: the store or the catalog gave no answer.
        """
        started_s = monotonic_s(self.world)
        found = self._resolve(known_key(key))
        return None if found is None else Receipt.recalled(self.uri, *found, self._since(started_s))

    @verb
    def history(self, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of the table, newest first, as its log or its metadata records them.

        Those of other engines are among them.  Those that were cleaned up or expired are not, nor Iceberg's snapshots
        of other branches and those that were rolled back.

        Args:
            limit: so many commits at most; None for all that are there.

        Raises:
            TableNotFoundError: before there is a table.
            StorageError: the store or the catalog gave no answer.
        """
        return self._history(checked_limit(limit))

    @verb
    def committed_writes(self, version: int) -> list[CommittedWrite]:
        """Every write that one commit carries, also where an entry of :meth:`history` shows only the first few.

        Args:
            version: a Delta version or an Iceberg snapshot id, such as that of an entry or of a receipt.

        Raises:
            InvalidInputError: the table does not have that version, or no longer.
            TableNotFoundError: before there is a table.
            StorageError: the store gave no answer, or the list of the commit's writes is gone.
        """
        found = self._committed_writes(checked_version(version))
        if found is None:
            raise no_version(version, self.uri)
        return found

    @verb
    def positions(self) -> dict[str, int]:
        """How far each source was taken into the table: what ``positions=`` of commits moved, by name.

        Raises:
            TableNotFoundError: before there is a table.
            ConflictError: kind POSITION_MOVED; the table was rolled back to where nothing tells a position any more.
            StorageError: the store or the catalog gave no answer.
        """
        return dict(self._positions())

    # --- what a format knows ------------------------------------------------------------------------
    @abstractmethod
    def _history(self, limit: int | None) -> list[HistoryEntry]:
        """The newest commits that are still there."""

    @abstractmethod
    def _committed_writes(self, version: int) -> list[CommittedWrite] | None:
        """The writes of a commit; None if the table does not have it."""

    @abstractmethod
    def _positions(self) -> Mapping[str, int]:
        """The positions of the newest version."""
