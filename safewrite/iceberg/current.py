"""Caches the last loaded table metadata and reloads it when stale."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from safewrite.errors import CommitUnknownError, SafewriteError, not_yet
from safewrite.iceberg import branches
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.earlier_writes import Resolved
from safewrite.iceberg.write.in_doubt import AttemptsInDoubt, Doubted
from safewrite.iceberg.write.resolve import resolve
from safewrite.iceberg.write.waiting import folder_of
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.commit import load
from safewrite.protocol.iceberg.failures import begun_again, replaced
from safewrite.stores.world import Performer, monotonic_s, run
from safewrite.table.format import FRESH_S

if TYPE_CHECKING:
    from collections.abc import Generator

    from safewrite.iceberg.connect import Connection
    from safewrite.protocol.ask import Limits
    from safewrite.protocol.iceberg.head import TableVersion

T = TypeVar("T")


class CachedTable:
    """The table version that was loaded last; ``head`` is None before the table was there.

    ``seen_s`` is when it was loaded, by the world's clock; None asks for a reload before the next write.
    """

    def __init__(self, connection: Connection, doubts: AttemptsInDoubt | None = None) -> None:
        self.world: Performer = connection.world()
        self.head: TableVersion | None = None
        self.seen_s: float | None = None
        self.own_id: str | None = None
        """The table that was seen first: only to it is written (decision 0018)."""
        self.own_branch = ""
        """The branch that was seen first, by the number that safewrite gave it: likewise."""
        self.doubts = doubts or AttemptsInDoubt()
        self._connection = connection

    def existing(self) -> TableVersion:
        """The table version that was loaded last.

        Raises:
            TableNotFoundError: it was not there.
        """
        if self.head is None:
            raise not_yet(f"Iceberg table {self._connection.table_name}")
        return self.head

    def fresh(self, limits: Limits) -> TableVersion:
        """The table as it was a moment ago, loaded again if the last load is older."""
        if self.seen_s is None or monotonic_s(self.world) - self.seen_s > FRESH_S:
            return self.look(limits)
        return self.existing()

    def look(self, limits: Limits) -> TableVersion:
        """Load the table again.

        Raises:
            TableNotFoundError: it is not there.
            ConflictError: another table, or another branch, has its name now.
            StorageError: the catalog gave no answer.
        """
        head = self.run(load(limits))
        self._check_own(head)
        self.see(head)
        return head

    def _check_own(self, head: TableVersion) -> None:
        """Refuse another table or branch before it is kept: reads and writes that follow would be of that one."""
        if self.own_id is not None and head.table_id != self.own_id:
            raise replaced(in_doubt=False)
        if self.own_branch and head.branch_id != self.own_branch:
            branches.check(self._connection, head)
            raise begun_again()

    def see(self, head: TableVersion) -> None:
        """Keep this table version from now on."""
        if self.head is None or self.head.scope != head.scope:
            world = self._connection.world(head)
            world.table = table_of(head)
            self.world = world
        self.own_id = self.own_id or head.table_id
        self.own_branch = self.own_branch or head.branch_id
        self.head = head
        self.seen_s = monotonic_s(self.world)

    def resolve(self, key: str, limits: Limits) -> Resolved | None:
        """Resolve a key in the table as it is now.

        Raises:
            CommitUnknownError, StorageError, TableNotFoundError: as ``safewrite.iceberg.write.write.resolve``.
            ConflictError: as :meth:`look`.
        """
        folder = folder_of(self.existing())
        found, head = self.run(resolve(key, helpers=self._connection.helpers, limits=limits, folder=folder))
        self._check_own(head)
        self.see(head)
        if found is None:
            self.doubts.check(key, head)
        return found

    def commit(self, plan: Doubted, steps: Generator[Effect, Outcome, T]) -> T:
        """Drive a commit to its end, and keep that it ended in doubt, or where it was taken back."""
        try:
            return self.run(steps)
        except SafewriteError as error:
            if isinstance(error, CommitUnknownError) or plan.through is not None:
                self.doubts.note(plan)
            raise

    def run(self, steps: Generator[Effect, Outcome, T]) -> T:
        """Drive a generator of effects to its end."""
        return run(steps, self.world)
