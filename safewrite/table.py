"""The one API: open or create a table, and write to it so that every row is there exactly once."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from safewrite.connect import Connection, check_arbiter, connect
from safewrite.delta import creation, features
from safewrite.delta.candidate import AppendCandidate, Write
from safewrite.delta.state import TableState, load
from safewrite.delta.write import Done, resolve, write
from safewrite.errors import (
    ConflictError,
    InvalidInputError,
    Kind,
    MissingExtraError,
    SafewriteError,
    TableNotFoundError,
)
from safewrite.frames import Prepared, prepare
from safewrite.opening import check_table, open_state, remember
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.receipt import Outcome as ReceiptOutcome
from safewrite.receipt import Receipt
from safewrite.stores.world import LEDGER_TTL_S, Performer, run

if TYPE_CHECKING:
    import boto3
    import pyarrow as pa

T = TypeVar("T")
log = logging.getLogger("safewrite")

TARGET_FILE_SIZE = 128 * 2**20
QUEUE_MEMORY = 20
"""After a contended write, so many further writes queue at once instead of trying their luck first."""
RESTAGES = 5
FRESH_S = 1.0
"""What was read or committed within this time is tried upon without another look; a guess, for speed only."""


def open(  # noqa: A001 - as users of deltalake and the built-in know it
    uri: Any,
    *,
    lock_table: str | None = None,
    arbiter: Literal["dynamodb", "object-store"] | None = None,
    create: bool = False,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
    strict: bool = False,
    attempts_max: int = Limits.attempts,
    timeout_s: float = Limits.timeout_s,
    lease_s: float = Limits.lease_s,
    target_file_size: int = TARGET_FILE_SIZE,
    checkpoints: bool = True,
    catalog: Any = None,
) -> Table:
    """Open a Delta table for safe writes.

    Args:
        uri: ``s3://bucket/path`` or a local path.
        lock_table: DynamoDB table that arbitrates versions, in the schema of Delta's
            ``S3DynamoDBLogStore`` (default on S3: ``DELTA_DYNAMO_TABLE_NAME``, else ``delta_log``).
        arbiter: ``"object-store"`` to go by conditional PUT alone, without DynamoDB.
        create: if there is no table, the first append makes it, with its frame's schema,
            ``partition_by`` and ``properties``.
        storage_options: deltalake's keys: ``AWS_ENDPOINT_URL``, ``AWS_REGION``, ...
        strict: raise, instead of warning, where other writers of this table may lose rows among
            themselves.
        attempts_max, timeout_s: limits of one write; beyond them it is NotCommitted.
        lease_s: how long an unmoving queue is watched before its holder is passed over.
        target_file_size: bytes of a data file from which another one is begun.
        checkpoints: make a checkpoint every ``delta.checkpointInterval`` versions, after the commit.

    Raises:
        TableNotFoundError: there is no table and ``create`` is False.
        UnsafeConfigError: a setting, a store or a mix of arbiters that allows silent loss.
        UnsupportedTableError: the table uses a writer feature that safewrite does not know.
        StorageError: the store or the lock table does not answer.
    """
    if catalog is not None:
        raise MissingExtraError(
            "catalog= is for Iceberg tables, which this version of safewrite does not write yet. Nothing was "
            "written. Leave it out for Delta tables."
        )
    connection = connect(
        uri,
        lock_table=lock_table,
        arbiter=arbiter,
        storage_options=storage_options,
        boto3_session=boto3_session,
        create_lock_table=create,
    )
    limits = Limits(attempts=attempts_max, timeout_s=timeout_s, lease_s=lease_s)
    table = Table(
        connection,
        limits=limits,
        target_file_size=target_file_size,
        checkpoints=checkpoints,
        first=creation.Plan(tuple(partition_by), dict(properties or {})) if create else None,
    )
    table._open(strict=strict)  # noqa: SLF001 - the other half of the constructor
    return table


def create(
    uri: Any,
    schema: pa.Schema,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    lock_table: str | None = None,
    arbiter: Literal["dynamodb", "object-store"] | None = None,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
    **settings: Any,
) -> Table:
    """Create an empty Delta table (version 0) and open it; ``settings`` are those of :func:`open`.

    The lock table is made too, if it is not there.

    Raises:
        ConflictError: kind TABLE_EXISTS; there is a table already, which is left as it is.
        InvalidInputError: the schema cannot be a Delta schema.
        UnsafeConfigError, StorageError: as for :func:`open`.
    """
    table = open(
        uri,
        lock_table=lock_table,
        arbiter=arbiter,
        create=True,
        partition_by=partition_by,
        properties=properties,
        storage_options=storage_options,
        boto3_session=boto3_session,
        **settings,
    )
    table._create(schema)  # noqa: SLF001 - the other half of the constructor
    return table


class Table:
    """A table that many writers share.  Make one with :func:`open` or :func:`create`.

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
        self._first = first
        self._new_id = new_id or (lambda: str(uuid.uuid4()))
        self._state: TableState | None = None
        self._queue_first = 0
        self._known_s: float | None = None

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
            data: pandas, Arrow or polars frame, or a list of dicts; columns are matched by name.
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
        _check_mode(schema_mode)
        started_s = time.monotonic()

        def attempt() -> Receipt:
            state = self._state
            prepared = self._prepare(data, state, schema_mode)
            named = self._name(prepared, key, txn)
            candidate = self._candidate(prepared, named)
            done = self._run(
                write(
                    candidate,
                    lambda: self._encode(prepared, candidate),
                    arbiter=self.connection.arbiter,
                    limits=self.limits,
                    queue_first=self._queue_first > 0,
                    fresh=self._is_fresh(),
                )
            )
            return self._receipt(done, candidate, started_s)

        return self._restaging(attempt)

    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed: its receipt, or None if it did not.

        Raises:
            CommitUnknownError: it may still land; append again with the same key to decide.
            StorageError: the store gave no answer.
        """
        keys.check(key)
        started_s = time.monotonic()
        found = self._run(resolve(key, arbiter=self.connection.arbiter, limits=self.limits))
        if found is None:
            return None
        version, entry = found
        txn = entry.get("txn")
        return Receipt(
            outcome=ReceiptOutcome.ALREADY_COMMITTED,
            table=self.uri,
            version=version,
            rows=int(str(entry["rows"])),
            files=int(str(entry.get("files", 0))),
            attempts=0,
            elapsed_s=time.monotonic() - started_s,
            key=key,
            fingerprint=str(entry["fingerprint"]),
            txn=(str(txn[0]), int(txn[1])) if isinstance(txn, list) else None,
        )

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
        if self._state is None and self._first is None:
            raise TableNotFoundError(
                f"There is no Delta table at {self.uri}. Nothing was written. Create it with safewrite.create(), "
                "or open it with create=True to let the first append make it."
            )

    def _create(self, schema: pa.Schema) -> None:
        if self._state is not None:
            raise _exists(self.uri)
        prepared = prepare(schema.empty_table(), None, partition_by=self._plan().partition_by)
        candidate = self._candidate(prepared, self._name(prepared, None, None))
        try:
            self._run(write(candidate, lambda: (), arbiter=self.connection.arbiter, limits=self.limits))
        except ConflictError as error:
            raise _exists(self.uri) from error
        self.refresh()

    # --- steps of a write -------------------------------------------------------------------------
    def _restaging(self, attempt: Callable[[], Receipt]) -> Receipt:
        """Write again under the new schema when another writer changed it meanwhile (H9)."""
        for turn in range(1, RESTAGES + 1):
            try:
                return attempt()
            except ConflictError as error:
                if error.kind is not Kind.SCHEMA_CHANGED or turn == RESTAGES:
                    raise
                self._state = self._run(load(None, limits=self.limits))
                if self._state is not None:
                    check_arbiter(self.connection, self._state.properties)
                    check_table(self._state)
        raise AssertionError("unreachable")

    def _prepare(self, data: Any, state: TableState | None, schema_mode: Literal["merge"] | None) -> Prepared:
        if state is None:
            return prepare(data, None, partition_by=self._plan().partition_by)
        return prepare(data, state.schema, partition_by=state.partition_by, schema_mode=schema_mode)

    def _name(self, prepared: Prepared, key: str | None, txn: tuple[str, int] | None) -> Write:
        if key is not None and txn is not None:
            raise InvalidInputError("Give key= or txn=, not both: each names the write. Nothing was written.")
        if txn is not None:
            app_id, app_version = _check_txn(txn)
            if self._state is not None:
                features.check_retention(self._state, horizon_s=LEDGER_TTL_S, txn=True)
            key, txn = f"{app_id}/{app_version}", (app_id, app_version)
        elif key is None:
            key = keys.generated(self._new_id(), self.version)
        fingerprint = prepared.fingerprint
        return Write(keys.check(key), str(fingerprint), fingerprint.int63, prepared.rows, txn=txn)

    def _candidate(self, prepared: Prepared, named: Write) -> AppendCandidate:
        from safewrite import __version__

        plan = creation.actions(
            self._state,
            prepared,
            self.connection.properties(),
            first=self._first,
            new_id=self._new_id,
            now_ms=_now_ms(),
        )
        return AppendCandidate(
            commit_id=self._new_id(),
            write=named,
            timestamp_ms=_now_ms(),
            limits=self.limits,
            state=self._state,
            metadata=plan.metadata,
            protocol=plan.protocol,
            recording_arbiter=plan.recording_arbiter,
            engine_version=__version__,
        )

    def _encode(self, prepared: Prepared, candidate: AppendCandidate) -> Any:
        from safewrite.delta.datafiles import encode

        metadata = candidate.metadata or self._existing().metadata
        return encode(
            prepared,
            partition_by=tuple(metadata.get("partitionColumns") or ()),
            write_id=candidate.commit_id,
            target_file_size=self.target_file_size,
        )

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
    def _is_fresh(self) -> bool:
        return self._known_s is not None and time.monotonic() - self._known_s < FRESH_S

    def _run(self, steps: Generator[Effect, Outcome, T]) -> T:
        return run(steps, self.world)

    def _existing(self) -> TableState:
        if self._state is None:
            raise TableNotFoundError(f"There is no Delta table at {self.uri} yet: the first append makes it.")
        return self._state

    def _plan(self) -> creation.Plan:
        return self._first or creation.Plan((), {})


def _check_mode(schema_mode: object) -> None:
    if schema_mode not in (None, "merge"):
        raise InvalidInputError(f"schema_mode is None or 'merge', not {schema_mode!r}. Nothing was written.")


def _check_txn(txn: object) -> tuple[str, int]:
    match txn:
        case (str(app_id), int(version)) if app_id and not isinstance(version, bool) and 0 <= version < 2**63:
            return app_id, version
    raise InvalidInputError(
        f"txn is (app_id, version): a non-empty text and a number from 0, not {txn!r:.80}. Nothing was written."
    )


def _exists(uri: str) -> ConflictError:
    return ConflictError(
        f"There is a Delta table at {uri} already; it was left as it is. Open it with safewrite.open().",
        kind=Kind.TABLE_EXISTS,
    )


def _now_ms() -> int:
    # A label in the log; no decision rests on it.
    return time.time_ns() // 1_000_000
