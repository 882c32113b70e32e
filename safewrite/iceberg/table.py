"""An Iceberg table that many writers share: the same verbs, receipts and errors as for Delta."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from safewrite.errors import (
    CommitUnknownError,
    ConflictError,
    Kind,
    NotCommittedError,
    TableNotFoundError,
    WouldAlterError,
)
from safewrite.frames.source import is_spark
from safewrite.given import schema_mode as check_mode
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.current import Sight
from safewrite.iceberg.data.schema import arrow_schema, iceberg_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.opening import check_state, check_table
from safewrite.iceberg.write import creation
from safewrite.iceberg.write.plans import Drafts, inferred_schema
from safewrite.iceberg.write.summary import carries
from safewrite.iceberg.write.write import (
    Done,
    WritePlan,
    check_doubt,
    write,
)
from safewrite.options import GENERATED, Key, Txn, identity, known_key
from safewrite.protocol.ask import Limits
from safewrite.protocol.keys import Identity
from safewrite.public import Turn, after_ack, public, verb
from safewrite.receipt import Receipt
from safewrite.sink import Sink, portable, reopened, sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table as PyIcebergTable

    from safewrite.delta.write.plans import Counted
    from safewrite.frames.spark.batch import Origin
    from safewrite.frames.where import Where
    from safewrite.iceberg.spark.write import Acquaintance
    from safewrite.protocol.iceberg.head import Head
    from safewrite.stores.world import Performer

log = logging.getLogger("safewrite")

QUEUE_MEMORY = 20
"""After a contended write, so many further writes queue at once instead of trying their luck first."""
RESTAGES = 5


class IcebergTable:
    """An Iceberg table that many writers share.  Make one with ``safewrite.open`` or ``safewrite.create``.

    Threads that share one take turns.  A forked or pickled one opens connections of its own.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits | None = None,
        target_file_size: int | None = None,
        first: creation.Plan | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.connection = connection
        self.limits = limits or Limits()
        self.catalog = SafeCatalog(connection.catalog, limits=self.limits)
        self._sight = Sight(connection)
        self._first = first
        self._drafts = Drafts(self.limits, target_file_size, connection.branch)
        if new_id is not None:
            self._drafts.new_id = new_id
        self._queue_first = 0
        self._strict = False
        self._admitted: str | None = None
        """Where the metadata is that was checked last."""
        self._in_spark: Acquaintance | None = None
        self._doubts: dict[str, Head | None] = {}
        """Keys of attempts that ended in doubt, with the base that they waited for."""
        self.turn = Turn()
        self.reopen: Callable[[], IcebergTable] | None = None
        """Opens the table anew, in this process or another; None where that needs what does not travel."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (portable(self.reopen),)

    def after_fork(self) -> None:
        """In a forked child: load the catalog again, for it talks over its parent's connections.

        Raises:
            InvalidInputError: the catalog cannot be loaded again.
        """
        known = self._sight.head
        self.connection = self.connection.after_fork()
        self.catalog = SafeCatalog(self.connection.catalog, limits=self.limits)
        self._sight = Sight(self.connection)
        self._in_spark = None
        if known is not None:
            self._sight.look(self.limits)

    # --- what it is -------------------------------------------------------------------------------
    @property
    def uri(self) -> str:
        """The table's name in its catalog."""
        return self.connection.name

    @property
    def arbiter(self) -> str:
        """Who decides which writer's commit comes next: always the catalog."""
        return "catalog"

    @property
    def version(self) -> int:
        """The newest snapshot id this object has seen; -1 before there is one."""
        head = self._sight.head
        return -1 if head is None or head.current is None else head.current

    @property
    @public
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, as of the last look."""
        return arrow_schema(self.iceberg.metadata.schema())

    @property
    @public
    def partition_by(self) -> tuple[str, ...]:
        """Partition fields as ``partition_by=`` spells them."""
        from safewrite.iceberg.data.partitions import spelled

        metadata = self.iceberg.metadata
        return spelled(metadata.spec(), metadata.schema())

    @property
    @public
    def properties(self) -> dict[str, str]:
        """Table properties, as of the last look."""
        return dict(self._sight.existing().properties)

    @property
    @public
    def iceberg(self) -> PyIcebergTable:
        """PyIceberg's own table object, as of the last look; its commits go through :attr:`catalog`."""
        if self.turn.is_anothers():
            self.after_fork()
        table = table_of(self._sight.existing())
        table.catalog = self.catalog
        return table

    @property
    def world(self) -> Performer:
        """What the effects of a write are performed on; tests put their own in its place."""
        return self._sight.world

    @world.setter
    def world(self, world: Performer) -> None:
        self._sight.world = world

    def __repr__(self) -> str:
        return f"<safewrite.IcebergTable {self.uri} snapshot={self.version} catalog={self.connection.kind}>"

    @verb
    def refresh(self) -> IcebergTable:
        """Load the table anew; returns itself.

        Raises:
            UnsupportedTableError, UnsafeConfigError: it became one that ``safewrite.open`` refuses.
        """
        self._admit(self._sight.look(self.limits))
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
        """Append rows, exactly once; arguments and errors are those of ``safewrite.Table.append``.

        ``spark_catalog`` is for a Spark DataFrame: what its session calls the table's catalog, if several
        of the session's catalogs know the table.

        Raises:
            WouldAlterError, InvalidInputError: before anything was uploaded.
            ReplayMismatchError: the key or batch was committed before with other rows.
            NotCommittedError: its other subclasses; none of the rows is or will be in the table.
            CommitUnknownError: the same call again, or ``resolve(error.key)``, decides.
            ForeignWriterError: the catalog accepted the commit, and it is not in the table.
        """
        check_mode(schema_mode)
        name = identity(key, txn)
        if is_spark(data):
            return self._spark(data, "append", None, name, schema_mode, spark_catalog)
        started_s = self._sight.now_s()

        def attempt() -> Receipt:
            head = self._fresh_head(data)
            try:
                prepared, evolution = self._drafts.prepare(data, head, schema_mode)
            except WouldAlterError:
                repeated = self._repeated(lambda: self._drafts.prepare(data, head, "merge")[0], head, name)
                if repeated is None:
                    raise
                return repeated
            named = self._drafts.name(str(prepared.fingerprint), prepared.rows, head, name)
            plan = self._drafts.append(named, head, evolution)
            return self._write(plan, lambda: self._drafts.encode(prepared, plan), head, started_s)

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
        spark_catalog: str | None = None,
    ) -> Receipt:
        """Replace the rows for which ``where`` is true (all rows without it) by ``data``, in one snapshot.

        What is replaced is decided on the very snapshot that the new one follows, so rows that other
        writers append meanwhile and that match are replaced too, as if they had come just before (C9).
        Arguments and errors are those of ``safewrite.Table.overwrite``; ``spark_catalog`` as for
        :meth:`append`.
        """
        from safewrite.frames.replace_where import EVERYTHING, check_rows
        from safewrite.frames.where import parse
        from safewrite.iceberg.write.overwrite import named_replace

        check_mode(schema_mode)
        name = identity(key, txn)
        if is_spark(data):
            return self._spark(data, "overwrite", where, name, schema_mode, spark_catalog)
        started_s = self._sight.now_s()

        def attempt() -> Receipt:
            head = self._fresh_head(data)
            prepared, evolution = self._drafts.prepare(data, head, schema_mode)
            predicate = EVERYTHING if where is None else parse(where, prepared.schema)
            check_rows(prepared, predicate)
            named = self._drafts.name(str(prepared.fingerprint), prepared.rows, head, name)
            plan = self._drafts.replace(named_replace(named, predicate), head, predicate, evolution)
            return self._write(plan, lambda: self._drafts.encode(prepared, plan), head, started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    @verb
    def delete(
        self,
        where: str | Sequence[tuple[str, str, Any]],
        *,
        key: Key = GENERATED,
        txn: Txn = GENERATED,
    ) -> Receipt:
        """Remove the rows for which ``where`` is true, in one snapshot, by copy-on-write.

        Arguments and errors are those of ``safewrite.Table.delete``.
        """
        from safewrite.frames.where import parse
        from safewrite.iceberg.write.overwrite import named_replace

        started_s, name = self._sight.now_s(), identity(key, txn)

        def attempt() -> Receipt:
            head = self._fresh_head()
            nothing, _ = self._drafts.prepare(self.schema.empty_table(), head)
            predicate = parse(where, nothing.schema)
            named = self._drafts.name(str(nothing.fingerprint), 0, head, name)
            named = named_replace(named, predicate, "delete")
            plan = self._drafts.replace(named, head, predicate, deletes=True)
            return self._write(plan, lambda: (), head, started_s)

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    @verb
    def resolve(self, key: str) -> Receipt | None:
        """Find out, without writing, whether a write landed: its receipt, or None if it did not.

        That an attempt ended in doubt is known from the ledger (``lock_table=``, SQL catalogs); without one
        only the object that made the attempt knows of it, and another one may answer None while a lost
        request is still on its way.

        Raises:
            CommitUnknownError: it may still land; write again with the same key to decide.
            StorageError: the catalog gave no answer.
        """
        key = known_key(key)
        started_s = self._sight.now_s()
        if self._sight.head is None and not self._is_there():
            return None
        found, head = self._sight.resolve(key, self.limits)
        if found is not None:
            return found.receipt(self.uri, key, self._sight.since(started_s))
        check_doubt(self._doubts.get(key), head, key)
        return None

    @verb
    def sink(
        self,
        mode: Literal["append", "overwrite"] = "append",
        *,
        app_id: str,
        schema_mode: Literal["merge"] | None = None,
        spark_catalog: str | None = None,
    ) -> Sink:
        """What ``foreachBatch`` calls; see ``safewrite.Table.sink`` and :meth:`append`."""
        extra = {} if spark_catalog is None else {"spark_catalog": spark_catalog}
        return sink(self.reopen, mode, app_id, schema_mode, extra)

    # --- opening ----------------------------------------------------------------------------------
    def _open(self, *, strict: bool) -> None:
        self._strict = strict
        try:
            head = self._sight.look(self.limits)
        except TableNotFoundError:
            if self._first is None:
                raise TableNotFoundError(
                    f"There is no Iceberg table {self.uri} in the catalog. Nothing was written. Create it with "
                    "safewrite.create(), or open it with create=True to let the first append make it."
                ) from None
            return
        check_table(self.connection, head, strict=strict)
        self._admitted = head.location

    def _create(self, schema: pa.Schema) -> None:
        if self._sight.head is not None:
            raise creation.exists(self.uri)
        if not creation.create_table(self.connection, schema, self._first or creation.Plan(), self.catalog):
            raise creation.exists(self.uri)
        self._open(strict=self._strict)

    def _is_there(self) -> bool:
        """Whether a table that was not there when this object was made is there now."""
        try:
            self._sight.look(self.limits)
        except TableNotFoundError:
            return False
        return True

    # --- steps of a write -------------------------------------------------------------------------
    def _write(
        self,
        plan: WritePlan,
        encode: Callable[[], Any],
        head: Head,
        started_s: float,
    ) -> Receipt:
        steps = write(
            plan,
            encode,
            head,
            helpers=self.connection.helpers,
            limits=self.limits,
            queue_first=self._queue_first > 0,
        )
        try:
            return self._receipt(self._sight.run(steps), plan, started_s)
        except CommitUnknownError:
            self._doubts[plan.write.key] = plan.bound
            raise

    def _restaging(self, attempt: Callable[[], Receipt], *kinds: Kind) -> Receipt:
        """Plan and stage again when another writer changed what the plan stood on (H9, C9)."""
        for turn in range(1, RESTAGES + 1):
            before = self._sight.head
            try:
                return attempt()
            except WouldAlterError:
                # What was seen a moment ago may be older than a column that came since.
                if self._sight.head is None or turn == RESTAGES:
                    raise
                newest = self._sight.look(self.limits)
                if before is not None and newest.location == before.location:
                    raise
            except ConflictError as error:
                if error.kind not in kinds or turn == RESTAGES:
                    raise
                self._sight.look(self.limits)
                self._queue_first = QUEUE_MEMORY
        raise AssertionError("unreachable")

    def _spark(  # noqa: PLR0917 - the arguments of append and overwrite, from there alone
        self,
        frame: Any,
        mode: Literal["append", "overwrite"],
        where: Where | None,
        name: Identity,
        schema_mode: Literal["merge"] | None,
        spark_catalog: str | None,
    ) -> Receipt:
        """Let Spark write the files, and commit them as those of any other frame."""
        from safewrite.frames.spark.stream import written
        from safewrite.iceberg.spark import write

        started_s = self._sight.now_s()
        known = self._in_spark = self._in_spark or write.Acquaintance(
            self.connection.identifier, self.connection.catalog.name
        )

        def attempt() -> Receipt:
            head = self._fresh_head(*([] if self._sight.head else [write.empty_like(frame)]))
            write.check_session(frame.sparkSession, head)
            there = known.find(frame.sparkSession, head, named=spark_catalog, now_s=self._sight.now_s())
            if schema_mode == "merge" and self._add_columns(there.new_columns(frame)):
                return attempt()

            def by(origin: Origin | None) -> Receipt:
                try:
                    job = write.job(
                        frame, there, mode=mode, where=where, schema_mode=schema_mode, origin=origin
                    )
                except WouldAlterError:
                    repeated = self._repeated(partial(write.counted, frame, there, origin), head, name)
                    if repeated is None or mode != "append":
                        raise
                    return repeated
                with job.batch(head, name) as (batch, files):
                    receipt = self._write(job.plan(batch, head, self._drafts, name), files, head, started_s)
                there.forget()
                return receipt

            return written(frame, name.txn, head.table_id, by, seems_there=carries(head, name))

        return self._restaging(attempt, Kind.SCHEMA_CHANGED, Kind.CONFLICT)

    def _add_columns(self, new: pa.Schema) -> bool:
        """Add columns in a commit of its own: Spark can only write files for columns that the table has."""
        if not new.names:
            return False
        with self.iceberg.update_schema() as update:
            update.union_by_name(iceberg_schema(new))
        self.refresh()
        return True

    def _repeated(self, counted: Callable[[], Counted], head: Head, name: Identity) -> Receipt | None:
        """The receipt of rows that were committed before the table's schema outgrew them, if they were."""
        if not name.is_given:
            return None
        try:
            rows = counted()
            named = self._drafts.name(str(rows.fingerprint), rows.rows, head, name)
        except NotCommittedError:
            return None
        found = self.resolve(named.key)
        return found if found is not None and found.fingerprint == named.fingerprint else None

    def _receipt(self, done: Done, plan: WritePlan, started_s: float) -> Receipt:
        receipt = done.receipt(self.uri, plan.write, self._sight.since(started_s))
        self._queue_first = QUEUE_MEMORY if done.contended else max(0, self._queue_first - 1)
        with after_ack(self.uri):
            log.info(
                "%s in snapshot %d",
                receipt.outcome.value,
                done.snapshot_id,
                extra={"receipt": receipt.to_dict()},
            )
        with after_ack(self.uri):
            self._after(done)
        return receipt

    def _after(self, done: Done) -> None:
        """Keep what was learnt of the table, and drop old metadata."""
        try:
            before = self._sight.existing()
            self._sight.see(done.head)
            if done.contended:
                self._sight.seen_s = None
            if not done.already:
                self.connection.drop_old_metadata(before, done.head)
        except Exception:
            self._sight.seen_s = None
            raise

    def _fresh_head(self, *of: Any) -> Head:
        """The table as it was a moment ago, made first for the data ``of`` a write if it is not there and may be."""
        if self._sight.head is not None:
            return self._admit(self._sight.fresh(self.limits))
        if self._first is not None and of:
            creation.create_table(self.connection, inferred_schema(*of), self._first, self.catalog)
            self._open(strict=self._strict)
        return self._sight.existing()

    def _admit(self, head: Head) -> Head:
        """The one door for states that a write is planned on: each passes the checks of ``safewrite.open``."""
        if head.location != self._admitted:
            check_state(self.connection, head, strict=self._strict)
            self._admitted = head.location
        return head
