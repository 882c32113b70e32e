"""A Delta table, and writes to it of which every row is there exactly once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from safewrite.delta.connect import PROPERTY_ARBITER, Connection, check_arbiter
from safewrite.delta.log.snapshot import TableState, load
from safewrite.delta.opening import (
    already_there,
    check_same,
    check_table,
    not_there,
    open_state,
    remember,
)
from safewrite.delta.write import creation
from safewrite.delta.write.plans import Counted, Drafts
from safewrite.delta.write.transaction import AppendCandidate
from safewrite.delta.write.write import Done, resolve, write
from safewrite.errors import (
    ConflictError,
    Kind,
    NotCommittedError,
    WouldAlterError,
    not_yet,
)
from safewrite.frames.source import is_spark
from safewrite.options import GENERATED, Key, Txn, identity, known_key
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.keys import Identity
from safewrite.public import Turn, after_ack, public, verb
from safewrite.receipt import Receipt
from safewrite.sink import Sink, portable, reopened, sink
from safewrite.stores.world import Performer, run

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.log.segment import Checkpoint
    from safewrite.frames.where import Where

T = TypeVar("T")
log = logging.getLogger("safewrite")

TARGET_FILE_SIZE = 128 * 2**20
QUEUE_MEMORY = 20
"""After a contended write, so many further writes queue at once instead of trying their luck first."""
RESTAGES = 5
FRESH_S = 1.0
"""What was read or committed within this time is tried upon without another look; a guess, for speed only."""


class Table:
    """A Delta table that many writers share.  Make one with ``safewrite.open`` or ``safewrite.create``.

    Threads that share one take turns.  A forked or pickled one opens connections of its own.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits | None = None,
        target_file_size: int = TARGET_FILE_SIZE,
        checkpoints: bool = True,
        first: creation.Plan | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.connection = connection
        self.world: Performer = connection.world
        self.limits = limits or Limits()
        self.target_file_size = target_file_size
        self.checkpoints = checkpoints
        self._drafts = Drafts(connection, self.limits, target_file_size, first)
        if new_id is not None:
            self._drafts.new_id = new_id
        self._state: TableState | None = None
        self._queue_first = 0
        self._known_s: float | None = None
        self._mixed = False
        self.turn = Turn()
        self.reopen: Callable[[], Table] | None = None
        """Opens the table anew, in this process or another; None where that needs what does not travel."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (portable(self.reopen),)

    def after_fork(self) -> None:
        """In a forked child: what the parent saw a moment ago is old."""
        self._known_s = None

    # --- what it is -------------------------------------------------------------------------------
    @property
    def uri(self) -> str:
        """The table's address."""
        return self.connection.address.uri

    @property
    def arbiter(self) -> str:
        """Who decides which writer gets a version: ``dynamodb``, ``object-store`` or ``local``."""
        return self.connection.name

    @property
    def version(self) -> int:
        """The newest version this object has seen; -1 before the table exists."""
        return self._state.version if self._state is not None else -1

    @property
    @public
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, as of ``version``."""
        return self._existing().schema

    @property
    @public
    def partition_by(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return self._existing().partition_by

    @property
    @public
    def properties(self) -> dict[str, str]:
        """Table properties, as of ``version``."""
        return dict(self._existing().properties)

    def __repr__(self) -> str:
        return f"<safewrite.Table {self.uri} version={self.version} arbiter={self.arbiter}>"

    @verb
    def refresh(self) -> Table:
        """Read what is new in the log; returns itself.

        Raises:
            ConflictError: kind TABLE_REPLACED; another table is at the address.
            TableNotFoundError: the table was dropped.
            UnsupportedTableError, UnsafeConfigError: the table became one that ``safewrite.open`` refuses.
        """
        self._see(self._run(load(self._state, limits=self.limits)))
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
    ) -> Receipt:
        """Append rows, exactly once.

        Args:
            data: pandas, Arrow or polars frame, a list of dicts, or a Spark DataFrame of a session that
                was set up with ``safewrite.spark``; columns are matched by name.
            key: what names this write, such as an event id: a repeat with the same key and rows
                returns the first receipt (``already_committed``), with other rows it raises.
            txn: ``(app_id, version)`` of a stream's batch, instead of a key.
            schema_mode: ``"merge"`` to add new columns to the table and leave missing ones NULL.

        Raises:
            WouldAlterError, InvalidInputError: before anything was uploaded.
            ReplayMismatchError: the key or batch was committed before with other rows.
            NotCommittedError: its other subclasses; none of the rows is or will be in the table.
            CommitUnknownError: the same call again, or ``resolve(error.key)``, decides.
            ForeignWriterError: someone replaced our commit.
        """
        started_s = time.monotonic()
        name = identity(key, txn)
        if is_spark(data):
            return self._spark(data, "append", None, name, schema_mode)

        def attempt() -> Receipt:
            try:
                prepared = self._drafts.prepare(data, self._state, schema_mode)
            except WouldAlterError:
                merged = partial(self._drafts.prepare, data, self._state, "merge")
                repeated = self._repeated(merged, name)
                if repeated is None:
                    raise
                return repeated
            named = self._drafts.name(prepared, self._state, name)
            candidate = self._drafts.append(prepared, named, self._state)
            done = self._run(
                write(
                    candidate,
                    lambda: self._drafts.encode(prepared, candidate),
                    arbiter=self._arbiter(),
                    limits=self.limits,
                    queue_first=self._queue_first > 0,
                    fresh=self._is_fresh(),
                )
            )
            return self._receipt(done, candidate, started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED)

    @verb
    def overwrite(
        self,
        data: Any,
        *,
        where: str | Sequence[tuple[str, str, Any]] | None = None,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
        schema_mode: Literal["merge"] | None = None,
    ) -> Receipt:
        """Replace the rows for which ``where`` is true (all rows without it) by ``data``, in one commit.

        Rows that other writers append meanwhile and that match are replaced too, as if they had come
        just before.  Where Spark writes, Delta decides that: without ``where`` they may stay, as if they had
        come just after.

        Args:
            data: as for :meth:`append`; every row must satisfy ``where``, as in Delta's replaceWhere.
            where: SQL (``"day = '2026-11-21'"``; extra ``[delta]``) or tuples
                (``[("day", "=", "2026-11-21")]``).  On partition columns whole files are replaced; on
                others the files that hold matching rows are written anew.
            key, txn, schema_mode: as for :meth:`append`.

        Raises:
            InvalidInputError: a row does not satisfy ``where``, or ``where`` cannot be understood.
            UnsupportedTableError: append-only table, or deletion vectors in files to be rewritten.
            ConflictError: other writers changed the same files again and again.
            WouldAlterError, ReplayMismatchError, NotCommittedError, CommitUnknownError,
            ForeignWriterError: as for :meth:`append`.
        """
        started_s = time.monotonic()
        name = identity(key, txn)
        if is_spark(data):
            return self._spark(data, "overwrite", where, name, schema_mode)

        def attempt() -> Receipt:
            self.refresh()
            prepared = self._drafts.prepare(data, self._state, schema_mode)
            replacing = self._drafts.overwrite(prepared, where, self._state, name)
            return self._replace(replacing, lambda: self._drafts.encode(prepared, replacing), started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    @verb
    def delete(
        self,
        where: str | Sequence[tuple[str, str, Any]],
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
    ) -> Receipt:
        """Remove the rows for which ``where`` is true, in one commit; rows for which it is NULL stay.

        Rows that other writers append meanwhile are treated as by :meth:`overwrite`.  A delete that
        finds no rows commits all the same, so that a repeat is known as one.

        Args:
            where: as for :meth:`overwrite`; ``"true"`` removes all rows.
            key, txn: as for :meth:`append`; a repeat must have the same ``where``.

        Returns:
            A receipt whose ``rows`` is 0: the number of rows written, not of rows removed.

        Raises:
            As :meth:`overwrite`, and TableNotFoundError before the first append.
        """
        started_s = time.monotonic()
        name = identity(key, txn)

        def attempt() -> Receipt:
            self.refresh()
            deleting = self._drafts.delete(where, self._existing(), name)
            return self._replace(deleting, lambda: (), started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    @verb
    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed: its receipt, or None if it did not.

        Raises:
            CommitUnknownError: it may still land; append again with the same key to decide.
            StorageError: the store gave no answer.
        """
        key = known_key(key)
        started_s = time.monotonic()
        newest = self._run(load(self._state, limits=self.limits))
        check_same(self.uri, self._state, newest)
        if newest is not None:
            check_arbiter(self.connection, newest.properties)
        table_id = newest.table_id if newest is not None else None
        found = self._run(resolve(key, table_id, arbiter=self._arbiter(), limits=self.limits))
        if found is None:
            return None
        version, entry = found
        return Receipt.recalled(self.uri, version, {**entry, "key": key}, time.monotonic() - started_s)

    @verb
    def sink(
        self,
        mode: Literal["append", "overwrite"] = "append",
        *,
        app_id: str,
        schema_mode: Literal["merge"] | None = None,
    ) -> Sink:
        """What ``foreachBatch`` of a Spark stream calls: ``stream.writeStream.foreachBatch(table.sink(app_id="orders"))``.

        Each batch is one commit, in the table exactly once: a replay is known by ``app_id`` and its epoch, and
        by the offsets of the stream's sources or its rows.

        Args:
            mode: ``"append"``, or ``"overwrite"`` to put each batch in the place of all rows.
            app_id: names the stream, as long as its checkpoint lives.  It has no default: two streams must not
                share one, and a stream whose checkpoint was deleted counts from 0 again and needs a new one.
            schema_mode: as for :meth:`append`.
        """
        return sink(self.reopen, mode, app_id, schema_mode)

    @verb
    def checkpoint(self) -> bool:
        """Make a checkpoint of the newest version, unless there is one; True if it was made."""
        from safewrite.delta.log.checkpoint import write_checkpoint

        self.refresh()
        return self._checkpoint(write_checkpoint(self._existing(), limits=self.limits))

    # --- opening ----------------------------------------------------------------------------------
    def _open(self, *, strict: bool) -> None:
        opened = open_state(self.connection, self.world, self.limits, strict=strict)
        self._state = opened.state
        self._known_s = time.monotonic() if opened.settled else None
        self._mixed = opened.mixed
        if self._state is None and self._drafts.first is None:
            raise not_there(self.uri)

    def _create(self, schema: pa.Schema) -> None:
        if self._state is not None:
            raise already_there(self.uri)
        prepared = self._drafts.prepare(schema.empty_table(), None)
        candidate = self._drafts.append(prepared, self._drafts.name(prepared, None, Identity()), None)
        try:
            self._run(write(candidate, lambda: (), arbiter=self._arbiter(), limits=self.limits))
        except ConflictError as error:
            raise already_there(self.uri) from error
        self.refresh()

    # --- steps of a write -------------------------------------------------------------------------
    def _restaging(self, attempt: Callable[[], Receipt], *kinds: Kind) -> Receipt:
        """Plan and stage again when another writer changed what the plan stood on (H9, C9)."""
        for turn in range(1, RESTAGES + 1):
            try:
                return attempt()
            except ConflictError as error:
                if error.kind not in (*kinds, Kind.TABLE_REPLACED) or turn == RESTAGES:
                    raise
                self._see(self._run(load(None, limits=self.limits)))
                self._queue_first = QUEUE_MEMORY
        raise AssertionError("unreachable")

    def _see(self, state: TableState | None) -> None:
        """Take a newer state: the one door for all of them, whoever read it.

        Raises:
            ConflictError, TableNotFoundError: it is not a state of the table that was opened.
            UnsupportedTableError, UnsafeConfigError: as for ``safewrite.open``; the state that was known stays.
        """
        check_same(self.uri, self._state, state)
        if state is not None:
            check_arbiter(self.connection, state.properties)
            check_table(state)
        self._state = state

    def _replace(
        self, candidate: AppendCandidate, encode_rows: Callable[[], Iterable[DataFile]], started_s: float
    ) -> Receipt:
        """Commit what removes rows, and look at them first."""
        from safewrite.delta.write.overwrite import overwrite

        steps = overwrite(
            candidate,
            encode_rows,
            arbiter=self._arbiter(),
            limits=self.limits,
            queue_first=self._queue_first > 0,
        )
        return self._receipt(self._run(steps), candidate, started_s)

    def _spark(
        self,
        frame: Any,
        mode: Literal["append", "overwrite"],
        where: Where | None,
        name: Identity,
        schema_mode: Literal["merge"] | None,
    ) -> Receipt:
        """Let Spark write the rows, and its commit come past the one protocol."""
        from safewrite.delta.spark import write as spark

        started_s = time.monotonic()

        def attempt() -> Receipt:
            state = self._ready_for_spark(lambda: spark.new_schema(frame))
            place = spark.Place(
                self.connection,
                self.world,
                state,
                self._arbiter(),
                self.limits,
                self._drafts.new_id,
                name=lambda batch: self._drafts.name(batch, state, name),
                txn=name.txn,
            )
            try:
                done, candidate = spark.write(frame, place, spark.Operation(mode, where, schema_mode))
            except WouldAlterError:
                merged = partial(spark.counted, frame, state)
                repeated = self._repeated(merged, name) if mode == "append" else None
                if repeated is None:
                    raise
                return repeated
            return self._receipt(done, candidate, started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    def _ready_for_spark(self, schema: Callable[[], pa.Schema]) -> TableState:
        """The table as it is now, made if it may be, with its arbiter on record: Delta's commits record none."""
        if self._state is None:
            try:
                self._create(schema())
            except ConflictError:
                log.info("another writer made the table", extra={"table": self.uri})
        state = self.refresh()._existing()  # noqa: SLF001 - its own
        if self.arbiter == "local" or PROPERTY_ARBITER in state.properties:
            return state
        self.append(state.schema.empty_table())
        return self._existing()

    def _repeated(self, counted: Callable[[], Counted], name: Identity) -> Receipt | None:
        """The receipt of rows that were committed before the table's schema outgrew them, if they were.

        Columns that were added since do not change a fingerprint, so the repeat can be recognised.
        """
        if not name.is_given:
            return None
        try:
            named = self._drafts.name(counted(), self._state, name)
        except NotCommittedError:
            return None
        found = self.resolve(named.key)
        return found if found is not None and found.fingerprint == named.fingerprint else None

    def _receipt(self, done: Done, candidate: AppendCandidate, started_s: float) -> Receipt:
        receipt = done.receipt(self.uri, candidate.write, time.monotonic() - started_s)
        self._queue_first = QUEUE_MEMORY if done.contended else max(0, self._queue_first - 1)
        self._mixed |= done.mixed
        self._known_s = time.monotonic() if not done.contended else None
        with after_ack(self.uri):
            told = {"receipt": receipt.to_dict()}
            log.info("%s in version %d", receipt.outcome.value, done.version, extra=told)
        with after_ack(self.uri):
            self._after(done, started_s)
        return receipt

    def _after(self, done: Done, started_s: float) -> None:
        """Keep what was learnt of the table, and look after its log."""
        if done.state is not None and done.state.version >= self.version:
            self._see(done.state)
            if not done.already:
                remember(self.connection, done.state)
        elif self._state is None or not done.already:
            self.refresh()
        if self.checkpoints and not done.already:
            from safewrite.delta.log.checkpoint import maintain

            left_s = self.limits.timeout_s - (time.monotonic() - started_s)
            self._checkpoint(maintain(self._state, done.version, left_s, limits=self.limits))

    def _checkpoint(self, steps: Generator[Effect, Outcome, Checkpoint | None]) -> bool:
        state = self._state
        made = self._run(steps)
        if made is not None and state is not None and self._state is state:
            self._state = state.with_checkpoint(made)
        return made is not None

    # --- small helpers ----------------------------------------------------------------------------
    def _arbiter(self) -> Arbiter:
        """The arbiter, sealing claims once writers were met that know no lock table."""
        return replace(self.connection.arbiter, sealed=self._mixed)

    def _is_fresh(self) -> bool:
        return self._known_s is not None and time.monotonic() - self._known_s < FRESH_S

    def _run(self, steps: Generator[Effect, Outcome, T]) -> T:
        return run(steps, self.world)

    def _existing(self) -> TableState:
        if self._state is None:
            raise not_yet(f"Delta table at {self.uri}")
        return self._state
