"""Defines the table of either format: its verbs, the loop around a write, its receipts."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self

from safewrite.errors import ConflictError, Kind, NotCommittedError, StorageError, WouldAlterError
from safewrite.frames.source import is_spark
from safewrite.given import schema_mode as check_mode
from safewrite.operation import Operation, Planned
from safewrite.options import GENERATED, Key, Txn, identity, known_key
from safewrite.protocol.ask import Limits
from safewrite.protocol.keys import Identity
from safewrite.public import Turn, after_ack, verb
from safewrite.receipt import Done, Named, Receipt
from safewrite.sink import Sink, portable, reopened, sink
from safewrite.stores.events import told
from safewrite.stores.world import monotonic_s

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar

    from safewrite.frames.fingerprint import Counted
    from safewrite.stores.world import Performer

    VersionT = TypeVar("VersionT", default=Any)  # defaults (PEP 696): users write ``safewrite.Table`` alone
    PlanT = TypeVar("PlanT", bound=Planned, default=Any)
    DoneT = TypeVar("DoneT", bound=Done, default=Any)
else:
    from typing import TypeVar

    VersionT, PlanT, DoneT = TypeVar("VersionT"), TypeVar("PlanT"), TypeVar("DoneT")

log = logging.getLogger("safewrite")

QUEUE_MEMORY = 20
"""After a contended write, this many further writes queue at once instead of trying first."""
PLANS_MAX = 5
"""How often a write is planned when other writers change what its plan depends on."""
FRESH_S = 1.0
"""A version read or committed within this time is written on without another look; a guess, for speed only."""


class Table(ABC, Generic[VersionT, PlanT, DoneT]):
    """A table that many writers share.  Make one with ``safewrite.open`` or ``safewrite.create``.

    Threads that share one take turns.  A forked or pickled one opens connections of its own.
    """

    world: Performer
    """The world that performs the effects of a write; tests replace it."""
    _REPLANNED: ClassVar[frozenset[Kind]] = frozenset()
    """Conflicts after which every write is planned again, besides those of its verb."""

    def __init__(self, limits: Limits | None) -> None:
        self.limits = limits or Limits()
        self.turn = Turn()
        self.reopen: Callable[[], Table] | None = None
        """Opens the table again, in this process or another; None where that needs what does not travel."""
        self._queue_first = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (portable(self.reopen),)

    # --- what it is -------------------------------------------------------------------------------
    @property
    @abstractmethod
    def uri(self) -> str:
        """The address of a Delta table, the name of an Iceberg table in its catalog."""

    @property
    @abstractmethod
    def arbiter(self) -> str:
        """Who decides which writer's commit comes next: ``dynamodb``, ``object-store``, ``local`` or ``catalog``."""

    @property
    @abstractmethod
    def version(self) -> int:
        """The newest Delta version or Iceberg snapshot id that this object has seen; -1 before there is one."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, as of ``version``."""

    @property
    @abstractmethod
    def partition_by(self) -> tuple[str, ...]:
        """Partition columns, or Iceberg's partition fields as ``partition_by=`` spells them."""

    @property
    @abstractmethod
    def properties(self) -> dict[str, str]:
        """Table properties, as of ``version``."""

    @abstractmethod
    def after_fork(self) -> None:
        """Stop using the parent's connections and clocks in a forked child."""

    @verb
    def refresh(self) -> Self:
        """Read what is new in the table; returns itself.

        Raises:
            ConflictError: kind TABLE_REPLACED; another table is at the address.
            TableNotFoundError: the table was dropped.
            UnsupportedTableError, UnsafeConfigError: the table became one that ``safewrite.open`` refuses.
        """
        self._refresh()
        return self

    # --- writing ----------------------------------------------------------------------------------
    @verb
    def append(
        self,
        data: Any,
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: Literal["merge"] | None = None,
        spark_catalog: str | None = None,
    ) -> Receipt:
        """Append rows, exactly once.

        Args:
            data: pandas, Arrow or polars frame, a list of dicts, or a Spark DataFrame of a session that
                was set up with ``safewrite.spark``; columns are matched by name.
            key: the name of this write, such as an event id: a repeat with the same key and rows
                returns the first receipt (``already_committed``), with other rows it raises.
            txn: ``(app_id, version)`` of a stream's batch, instead of a key.
            schema_mode: ``"merge"`` to add new columns to the table and leave missing ones NULL.
            spark_catalog: Iceberg only, for a Spark DataFrame: its session's name for the table's catalog,
                where several of the session's catalogs know the table.

        Raises:
            WouldAlterError, InvalidInputError: before anything was uploaded.
            ReplayMismatchError: the key or batch was committed before with other rows.
            NotCommittedError: its other subclasses; none of the rows is or will be in the table.
            CommitUnknownError: the same call again, or ``resolve(error.key)``, decides.
            ForeignWriterError: our commit was replaced, or the catalog acknowledged it and it is not there.
        """
        operation = Operation("append", None, check_mode(schema_mode), self._in_session(spark_catalog))
        return self._write(data, operation, identity(key, txn))

    @verb
    def overwrite(
        self,
        data: Any,
        *,
        where: str | Sequence[tuple[str, str, Any]] | None = None,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: Literal["merge"] | None = None,
        spark_catalog: str | None = None,
    ) -> Receipt:
        """Replace the rows for which ``where`` is true (all rows without it) by ``data``, in one commit.

        Rows that other writers append meanwhile and that match are replaced too, as if they had come
        just before (C9).  Where Spark writes a Delta table, Delta decides this: without ``where`` they may
        stay, as if they had come just after.

        Args:
            data: as for :meth:`append`; every row must satisfy ``where``, as in Delta's replaceWhere.
            where: SQL (``"day = '2026-11-21'"``; extra ``[delta]`` or ``[iceberg]``) or tuples
                (``[("day", "=", "2026-11-21")]``).  On partition columns whole files are replaced; on
                others the files that hold matching rows are rewritten.
            key, txn, schema_mode, spark_catalog: as for :meth:`append`.

        Raises:
            InvalidInputError: a row does not satisfy ``where``, or ``where`` cannot be understood.
            UnsupportedTableError: append-only table, or deletion vectors in files to be rewritten.
            ConflictError: other writers changed the same files again and again.
            WouldAlterError, ReplayMismatchError, NotCommittedError, CommitUnknownError,
            ForeignWriterError: as for :meth:`append`.
        """
        operation = Operation("overwrite", where, check_mode(schema_mode), self._in_session(spark_catalog))
        return self._write(data, operation, identity(key, txn))

    @verb
    def delete(
        self,
        where: str | Sequence[tuple[str, str, Any]],
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
    ) -> Receipt:
        """Remove the rows for which ``where`` is true, in one commit; rows for which it is NULL stay.

        Rows that other writers append meanwhile are treated as by :meth:`overwrite`.  A delete that finds no
        rows commits all the same, so that a repeat is recognised.  Files that hold other rows too are
        rewritten (copy-on-write).

        Args:
            where: as for :meth:`overwrite`; ``"true"`` removes all rows.
            key, txn: as for :meth:`append`; a repeat must have the same ``where``.

        Returns:
            A receipt whose ``rows`` is 0: none were written.  Its ``removed_rows`` counts those that went.

        Raises:
            As :meth:`overwrite`, and TableNotFoundError before the first append.
        """
        return self._write(None, Operation("delete", where), identity(key, txn))

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
    def sink(
        self,
        mode: Literal["append", "overwrite"] = "append",
        *,
        app_id: str,
        schema_mode: Literal["merge"] | None = None,
        spark_catalog: str | None = None,
    ) -> Sink:
        """What ``foreachBatch`` of a Spark stream calls: ``stream.writeStream.foreachBatch(table.sink(app_id="orders"))``.

        Each batch is one commit, in the table exactly once: a replay is recognised by ``app_id`` and its
        epoch, and by the offsets of the stream's sources or its rows.

        Args:
            mode: ``"append"``, or ``"overwrite"`` to replace all rows by each batch.
            app_id: names the stream, as long as its checkpoint lives.  It has no default: two streams must not
                share one, and a stream whose checkpoint was deleted counts from 0 again and needs a new one.
            schema_mode, spark_catalog: as for :meth:`append`.
        """
        extra = {} if self._in_session(spark_catalog) is None else {"spark_catalog": spark_catalog}
        return sink(self.reopen, mode, app_id, schema_mode, extra)

    # --- what a format does -----------------------------------------------------------------------
    def _in_session(self, catalog: str | None) -> str | None:
        """Check a Spark session's name for the table's catalog."""
        return catalog

    def _spelled(self, partition_by: Iterable[str]) -> tuple[str, ...]:
        """``partition_by=`` as :attr:`partition_by` spells it."""
        return tuple(partition_by)

    def _settings(self) -> dict[str, str]:
        """What the table has of the ``properties=`` that it can be created with."""
        return self.properties

    @abstractmethod
    def _open(self, *, strict: bool) -> None:
        """Load the table and refuse what would not be safe; the other half of the constructor."""

    @abstractmethod
    def _create(self, schema: pa.Schema) -> None:
        """Create the table, empty."""

    @abstractmethod
    def _refresh(self) -> VersionT | None:
        """Load the newest version, past the checks of ``safewrite.open``; None before there is a table."""

    @abstractmethod
    def _look_again(self) -> None:
        """Load the newest version after a conflict, without use of what was known."""

    @abstractmethod
    def _planned_on(self, operation: Operation, data: Any) -> VersionT | None:
        """The version that a write is planned on; None where the write creates the table."""

    @abstractmethod
    def _plan(
        self, data: Any, operation: Operation, name: Identity, on: VersionT | None
    ) -> tuple[PlanT, Callable[[], Any]]:
        """Check the data and plan its write; the plan brings the encoder of its files."""

    @abstractmethod
    def _commit(self, plan: PlanT, operation: Operation, encode: Callable[[], Any]) -> DoneT:
        """Upload and commit a plan."""

    @abstractmethod
    def _write_spark(self, frame: Any, operation: Operation, name: Identity, started_s: float) -> Receipt:
        """Let Spark write the files of its DataFrame, and commit them as those of any other frame."""

    @abstractmethod
    def _count(self, data: Any, on: VersionT | None) -> Counted:
        """The rows under the table's schema, which may have more columns than they."""

    @abstractmethod
    def _name(self, counted: Counted, on: VersionT | None, name: Identity) -> Named:
        """Name the write by the caller's key or batch, or by a generated key."""

    @abstractmethod
    def _resolve(self, key: str) -> tuple[int, Mapping[str, Any]] | None:
        """The version that holds a write, and the history's entry of it; None if it did not land."""

    @abstractmethod
    def _after(self, done: DoneT, started_s: float) -> None:
        """Keep what the commit showed of the table, and maintain its metadata."""

    # --- the loop around a write --------------------------------------------------------------------
    @told
    def _write(self, data: Any, operation: Operation, name: Identity) -> Receipt:
        started_s = monotonic_s(self.world)
        spark = operation.verb != "delete" and is_spark(data)
        kinds = {Kind.SCHEMA_CHANGED, *self._REPLANNED}
        if spark or operation.verb != "append":
            kinds.add(Kind.CONFLICT)

        def attempt() -> Receipt:
            if spark:
                return self._write_spark(data, operation, name, started_s)
            return self._write_rows(data, operation, name, started_s)

        return self._replanned(attempt, kinds)

    def _write_rows(self, data: Any, operation: Operation, name: Identity, started_s: float) -> Receipt:
        on = self._planned_on(operation, data)
        try:
            plan, encode = self._plan(data, operation, name, on)
        except WouldAlterError:
            repeated = self._repeated(lambda: self._count(data, on), operation, name, on)
            if repeated is None:
                raise
            return repeated
        return self._receipt(self._commit(plan, operation, encode), plan.write, started_s)

    def _replanned(self, attempt: Callable[[], Receipt], kinds: set[Kind]) -> Receipt:
        """Plan and stage again when another writer changed what the plan depends on (H9, C9)."""
        for turn in range(1, PLANS_MAX + 1):
            known = self._mark()
            try:
                return attempt()
            except WouldAlterError:
                # The version of a moment ago may lack a column that came since.
                if turn == PLANS_MAX or not self._has_changed(known):
                    raise
            except ConflictError as error:
                if error.kind not in kinds or turn == PLANS_MAX:
                    raise
                self._look_again()
                self._queue_first = QUEUE_MEMORY
        raise AssertionError("unreachable")

    def _has_changed(self, known: object) -> bool:
        """Whether the table has moved to another version, which is known afterwards."""
        if known is None:
            return False
        with suppress(StorageError):
            self._refresh()
        return self._mark() != known

    @abstractmethod
    def _mark(self) -> object:
        """The mark that tells one known version of the table from another; None before there is a table."""

    def _repeated(
        self, count: Callable[[], Counted], operation: Operation, name: Identity, on: VersionT | None
    ) -> Receipt | None:
        """The receipt of rows that were appended before the table's schema outgrew them, if they were.

        Columns that were added since do not change a fingerprint, so the repeat can be recognised.
        """
        if not name.is_given or operation.verb != "append":
            return None
        try:
            write = self._name(count(), on, name)
        except NotCommittedError:
            return None
        found = self.resolve(write.key)
        return found if found is not None and found.fingerprint == write.fingerprint else None

    def _receipt(self, done: DoneT, write: Named, started_s: float) -> Receipt:
        receipt = done.receipt(self.uri, write, self._since(started_s))
        self._queue_first = QUEUE_MEMORY if done.contended else max(0, self._queue_first - 1)
        with after_ack(self.uri):
            log.info(
                "%s in version %d", receipt.outcome.value, done.version, extra={"receipt": receipt.to_dict()}
            )
        with after_ack(self.uri):
            self._after(done, started_s)
        return receipt

    # --- the clock --------------------------------------------------------------------------------
    def _since(self, started_s: float) -> float:
        """Seconds since then; 0 where the clock raises, for a receipt does not depend on it."""
        with suppress(Exception):
            return monotonic_s(self.world) - started_s
        return 0.0
