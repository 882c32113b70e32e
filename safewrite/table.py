"""A Delta table, and writes to it of which every row is there exactly once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from safewrite.connect import PROPERTY_ARBITER, Connection, check_arbiter
from safewrite.delta import creation
from safewrite.delta.candidate import AppendCandidate
from safewrite.delta.state import TableState, load
from safewrite.delta.write import Done, resolve, write
from safewrite.drafts import Counted, Drafts
from safewrite.errors import (
    ConflictError,
    Kind,
    NotCommittedError,
    SafewriteError,
    TableNotFoundError,
    WouldAlterError,
)
from safewrite.frames.source import is_spark
from safewrite.opening import already_there, check_table, open_state, remember
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.candidate import Arbiter
from safewrite.protocol.effects import Effect, Outcome
from safewrite.receipt import Outcome as ReceiptOutcome
from safewrite.receipt import Receipt
from safewrite.sink import Sink, sink
from safewrite.stores.world import Performer, run

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.delta.datafiles import DataFile
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

    Not for use by several threads at once: give each its own.
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
        self.reopen: Callable[[], Table] | None = None
        """Opens the table anew, in this process or another; None where that needs what does not travel."""

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
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, as of ``version``."""
        return self._existing().schema

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Names of the partition columns."""
        return self._existing().partition_by

    @property
    def properties(self) -> dict[str, str]:
        """Table properties, as of ``version``."""
        return dict(self._existing().properties)

    def __repr__(self) -> str:
        return f"<safewrite.Table {self.uri} version={self.version} arbiter={self.arbiter}>"

    def refresh(self) -> Table:
        """Read what is new in the log; returns itself."""
        self._state = self._run(load(self._state, limits=self.limits))
        return self

    # --- writing ----------------------------------------------------------------------------------
    def append(
        self,
        data: Any,
        *,
        key: str | None = None,
        txn: tuple[str, int] | None = None,
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
        if is_spark(data):
            return self._spark(data, "append", None, key, txn, schema_mode)

        def attempt() -> Receipt:
            try:
                prepared = self._drafts.prepare(data, self._state, schema_mode)
            except WouldAlterError:
                merged = partial(self._drafts.prepare, data, self._state, "merge")
                repeated = self._repeated(merged, key, txn)
                if repeated is None:
                    raise
                return repeated
            named = self._drafts.name(prepared, self._state, key, txn)
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

    def overwrite(
        self,
        data: Any,
        *,
        where: str | Sequence[tuple[str, str, Any]] | None = None,
        key: str | None = None,
        txn: tuple[str, int] | None = None,
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
        if is_spark(data):
            return self._spark(data, "overwrite", where, key, txn, schema_mode)

        def attempt() -> Receipt:
            self.refresh()
            prepared = self._drafts.prepare(data, self._state, schema_mode)
            replacing = self._drafts.overwrite(prepared, where, self._state, key, txn)
            return self._replace(replacing, lambda: self._drafts.encode(prepared, replacing), started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    def delete(
        self,
        where: str | Sequence[tuple[str, str, Any]],
        *,
        key: str | None = None,
        txn: tuple[str, int] | None = None,
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

        def attempt() -> Receipt:
            self.refresh()
            deleting = self._drafts.delete(where, self._existing(), key, txn)
            return self._replace(deleting, lambda: (), started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed: its receipt, or None if it did not.

        Raises:
            CommitUnknownError: it may still land; append again with the same key to decide.
            StorageError: the store gave no answer.
        """
        keys.check(key)
        started_s = time.monotonic()
        found = self._run(resolve(key, arbiter=self._arbiter(), limits=self.limits))
        if found is None:
            return None
        version, entry = found
        return Receipt.recalled(self.uri, version, {**entry, "key": key}, time.monotonic() - started_s)

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

    def checkpoint(self) -> bool:
        """Make a checkpoint of the newest version, unless there is one; True if it was made."""
        from safewrite.delta.checkpoint import write_checkpoint

        self.refresh()
        return bool(self._run(write_checkpoint(self._existing(), limits=self.limits)))

    # --- opening ----------------------------------------------------------------------------------
    def _open(self, *, strict: bool) -> None:
        opened = open_state(self.connection, self.world, self.limits, strict=strict)
        self._state = opened.state
        self._known_s = time.monotonic() if opened.settled else None
        self._mixed = opened.mixed
        if self._state is None and self._drafts.first is None:
            raise TableNotFoundError(
                f"There is no Delta table at {self.uri}. Nothing was written. Create it with safewrite.create(), "
                "or open it with create=True to let the first append make it."
            )

    def _create(self, schema: pa.Schema) -> None:
        if self._state is not None:
            raise already_there(self.uri)
        prepared = self._drafts.prepare(schema.empty_table(), None)
        candidate = self._drafts.append(prepared, self._drafts.name(prepared, None, None, None), None)
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
                if error.kind not in kinds or turn == RESTAGES:
                    raise
                self._state = self._run(load(None, limits=self.limits))
                if self._state is not None:
                    check_arbiter(self.connection, self._state.properties)
                    check_table(self._state)
                self._queue_first = QUEUE_MEMORY
        raise AssertionError("unreachable")

    def _replace(
        self, candidate: AppendCandidate, encode_rows: Callable[[], Iterable[DataFile]], started_s: float
    ) -> Receipt:
        """Commit what removes rows, and look at them first."""
        from safewrite.delta.overwrite import overwrite

        steps = overwrite(
            candidate,
            encode_rows,
            arbiter=self._arbiter(),
            limits=self.limits,
            queue_first=self._queue_first > 0,
        )
        return self._receipt(self._run(steps), candidate, started_s)

    def _spark(  # noqa: PLR0917 - the arguments of append and overwrite, from there alone
        self,
        frame: Any,
        mode: Literal["append", "overwrite"],
        where: Where | None,
        key: str | None,
        txn: tuple[str, int] | None,
        schema_mode: Literal["merge"] | None,
    ) -> Receipt:
        """Let Spark write the rows, and its commit come past the one protocol."""
        from safewrite.spark import delta as spark

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
                name=lambda batch: self._drafts.name(batch, state, key, txn),
                txn=txn,
            )
            try:
                done, candidate = spark.write(frame, place, spark.Operation(mode, where, schema_mode))
            except WouldAlterError:
                merged = partial(spark.counted, frame, state)
                repeated = self._repeated(merged, key, txn) if mode == "append" else None
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

    def _repeated(
        self, counted: Callable[[], Counted], key: str | None, txn: tuple[str, int] | None
    ) -> Receipt | None:
        """The receipt of rows that were committed before the table's schema outgrew them, if they were.

        Columns that were added since do not change a fingerprint, so the repeat can be recognised.
        """
        if key is None and txn is None:
            return None
        try:
            named = self._drafts.name(counted(), self._state, key, txn)
        except NotCommittedError:
            return None
        found = self.resolve(named.key)
        return found if found is not None and found.fingerprint == named.fingerprint else None

    def _receipt(self, done: Done, candidate: AppendCandidate, started_s: float) -> Receipt:
        named = candidate.write
        outcome = ReceiptOutcome.ALREADY_COMMITTED if done.already else ReceiptOutcome.COMMITTED
        receipt = Receipt(
            outcome=outcome,
            table=self.uri,
            version=done.version,
            rows=done.rows,
            files=done.files,
            attempts=done.attempts,
            elapsed_s=time.monotonic() - started_s,
            key=named.key,
            fingerprint=named.fingerprint,
            txn=named.txn,
        )
        self._queue_first = QUEUE_MEMORY if done.contended else max(0, self._queue_first - 1)
        self._mixed |= done.mixed
        self._known_s = time.monotonic() if not done.contended else None
        log.info("%s in version %d", outcome.value, done.version, extra={"receipt": receipt.to_dict()})
        self._after(done, candidate)
        return receipt

    def _after(self, done: Done, candidate: AppendCandidate) -> None:
        """Keep what was learnt of the table, and look after its log; nothing here can unmake the ack."""
        try:
            if done.state is not None and done.state.version >= self.version:
                self._state = done.state
                if not done.already:
                    remember(self.connection, done.state, candidate.body(done.version))
            elif self._state is None or not done.already:
                self.refresh()
            if self.checkpoints and not done.already:
                self._maintain(done.version)
        except SafewriteError as error:
            log.warning("after the commit: %s", error, extra={"table": self.uri, "kind": error.kind.value})

    def _maintain(self, version: int) -> None:
        """The writer of a version that is due is the only one who checkpoints it: its commit is the lease."""
        from safewrite.delta.checkpoint import due, write_checkpoint

        state = self._state
        if state is not None and state.version == version and due(state, version):
            self._run(write_checkpoint(state, limits=self.limits))

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
            raise TableNotFoundError(f"There is no Delta table at {self.uri} yet: the first append makes it.")
        return self._state
