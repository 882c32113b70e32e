"""Answers for an Iceberg table what the verbs and the loop around a write ask of a format; the catalog commits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from safewrite.arguments.reading import spark_catalog as check_catalog
from safewrite.errors import Kind, TableNotFoundError, WouldAlterError
from safewrite.iceberg import branches, features, history, ledger_place
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.connect import Connection
from safewrite.iceberg.current import CachedTable
from safewrite.iceberg.data.defaults import fills_of, rules_of
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.schema import iceberg_schema, read_schema
from safewrite.iceberg.metadata import as_of, table_of
from safewrite.iceberg.opening import check_admitted, check_table, may_append
from safewrite.iceberg.write import creation, members
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.group_commit import Group, write_many
from safewrite.iceberg.write.plans import Planner
from safewrite.iceberg.write.positions import positions_of
from safewrite.iceberg.write.steps import steps_of
from safewrite.iceberg.write.summary import Write, carries
from safewrite.iceberg.write.waiting import TableQueue
from safewrite.iceberg.write.write import IcebergDone, WritePlan
from safewrite.protocol.ask import Limits
from safewrite.protocol.iceberg.commit import let_pass
from safewrite.protocol.iceberg.failures import replaced
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.keys import Identity
from safewrite.protocol.positions import lost, stand
from safewrite.receipt import Receipt
from safewrite.stores.world import monotonic_s
from safewrite.table.added_rows import AddedFile, AddedRows, Followed, checked_columns
from safewrite.table.history import CommittedWrite, HistoryEntry
from safewrite.table.new_table import Layout
from safewrite.table.operation import Operation
from safewrite.table.writer import repeated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table as PyIcebergTable
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from safewrite.changes.members.task_changes import TaskChanges
    from safewrite.engine.abc import Engine
    from safewrite.frames.row_rules import TableRules
    from safewrite.frames.spark.batch import BatchOrigin
    from safewrite.frames.spark.computed_frame import ComputedFrame
    from safewrite.iceberg.spark.write import CachedSparkTable
    from safewrite.stores.world import Performer
    from safewrite.table.lookup import RowFilter
    from safewrite.table.row_changes import ChangeSource
    from safewrite.upkeep.groups import Group as FileGroup
    from safewrite.upkeep.groups import Inventory
    from safewrite.upkeep.maintain import Compacted, Settled, Settling


class IcebergFormat:
    """One Iceberg table, as this process knows it.

    An overwrite or delete decides what goes on the same snapshot that the new one follows (C9).
    """

    replanned: frozenset[Kind] = frozenset()

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits | None = None,
        target_file_size: int | None = None,
        group: str = "never",
        first: creation.NewTable | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.connection = connection
        self.limits = limits or Limits()
        self.unlike: Callable[[], object] | None = None
        self.catalog = SafeCatalog(connection.catalog, limits=self.limits)
        self._cached = CachedTable(connection)
        self._first = first
        recorded = partial(ledger_place.properties, connection)
        self.planner = Planner(self.limits, target_file_size, connection.branch, ledger_in=recorded)
        self.planner.catalog = connection.catalog
        self.planner.new_id = new_id or self.planner.new_id
        self._strict = False
        self._admitted: str | None = None  # where the metadata is that may be written to
        self._readable: str | None = None  # ... and that may be read
        self._in_spark: CachedSparkTable | None = None
        self._session: SparkSession | None = None  # the last one whose frame was written
        self._queue = TableQueue(group)

    def after_fork(self) -> None:
        """Load the catalog again in a forked child, for it talks over its parent's connections.

        Raises:
            InvalidInputError: the catalog cannot be loaded again.
        """
        before = self._cached
        self.connection = self.connection.after_fork()
        self.catalog = SafeCatalog(self.connection.catalog, limits=self.limits)
        self.planner.catalog = self.connection.catalog
        self._cached = CachedTable(self.connection, before.doubts)
        self._cached.own_id = before.own_id
        self._in_spark = self._session = None
        if before.head is not None:
            self._cached.look(self.limits)

    # --- what it is -------------------------------------------------------------------------------
    @property
    def uri(self) -> str:
        return self.connection.table_name

    @property
    def table_id(self) -> str:
        return self._cached.existing().table_id

    @property
    def arbiter(self) -> str:
        """Who decides which writer's commit comes next: always the catalog."""
        return "catalog"

    @property
    def version(self) -> int:
        head = self._cached.head
        return -1 if head is None or head.current is None else head.current

    @property
    def schema(self) -> pa.Schema:
        return read_schema(self.table.metadata.schema())[0]

    @property
    def unread(self) -> Mapping[str, str]:
        return read_schema(self.table.metadata.schema())[1]

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Partition fields as ``partition_by=`` spells them."""
        from safewrite.iceberg.data.partitions import spelled

        metadata = self.table.metadata
        return spelled(metadata.spec(), metadata.schema())

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._cached.existing().properties)

    @property
    def table(self) -> PyIcebergTable:
        """PyIceberg's own table object, as of the last look; its commits go through :attr:`catalog`."""
        table = table_of(self._cached.existing())
        table.catalog = self.catalog
        return table

    @property
    def world(self) -> Performer:
        return self._cached.world

    @world.setter
    def world(self, world: Performer) -> None:
        self._cached.world = world

    def made_as(self, given: Layout) -> tuple[Layout, Layout, Mapping[str, str]]:
        """The layout that was given for a new table and that of this one, in the same spelling; its properties."""
        from safewrite.iceberg.data import layout

        metadata = self.table.metadata
        properties = {**self.properties, "format-version": str(metadata.format_version)}
        return layout.spelled(given, metadata.schema()), layout.of(metadata), properties

    # --- opening ----------------------------------------------------------------------------------
    def open(self, *, strict: bool) -> None:
        """Load the table and refuse what would not be safe."""
        self._strict = strict
        try:
            head = self._cached.look(self.limits)
        except TableNotFoundError:
            if self._first is None:
                raise
            return
        check_table(self.connection, head, strict=strict)
        if self.connection.branch != MAIN and not head.branch_id:
            _begin_branch(self)
            head = self._cached.look(self.limits)
        self._look_at(head)

    def create(self, schema: pa.Schema) -> None:
        if self._cached.head is not None:
            raise creation.exists(self.uri)
        made = creation.draft(self.connection, schema, self._first or creation.NewTable())
        if not creation.create_table(self.connection, made, self.catalog):
            raise creation.exists(self.uri)
        self.unlike = None
        self.open(strict=self._strict)

    # --- the newest version -------------------------------------------------------------------------
    def refresh(self, *, afresh: bool = False) -> TableVersion:
        """Load the newest version; one that is looked at ``afresh`` is checked when a write is planned on it."""
        head = self._cached.look(self.limits)
        return head if afresh else self._look_at(head)

    def _look_at(self, head: TableVersion) -> TableVersion:
        """Check a table version as ``safewrite.open`` does: one that may only be read is refused by the next write."""
        if not may_append(self.connection, head):
            return self._read_from(head)
        return self._admit(head)

    def _admit(self, head: TableVersion) -> TableVersion:
        """Check a table version before a write is planned on it."""
        if head.table_id != self._cached.own_id:
            raise replaced(in_doubt=False)
        branches.check(self.connection, head)
        if head.location != self._admitted:
            check_admitted(self.connection, head, strict=self._strict)
            self._admitted = head.location
        return head

    def _read_from(self, head: TableVersion | None = None) -> TableVersion:
        """The known table version, or this one, checked before rows of it are read: any look may have met it."""
        head = self._cached.existing() if head is None else head
        if head.location not in {self._admitted, self._readable}:
            features.check_read(head)
            self._readable = head.location
        return head

    def mark(self) -> object:
        """The metadata file that is known; None before there is a table."""
        return None if self._cached.head is None else self._cached.head.location

    def _is_there(self) -> bool:
        """Whether a table that was not there when this object was made is there now."""
        try:
            self._cached.look(self.limits)
        except TableNotFoundError:
            return False
        return True

    # --- steps of a write -------------------------------------------------------------------------
    def planned_on(self, operation: Operation, data: Any, *, alone: bool = True) -> TableVersion:
        """The version that a write is planned on; the table is made if it may be."""
        if operation.positions and self._cached.head is not None:
            head = self._fresh_head()
            if not stand(positions_of(head, operation.positions), operation.positions):
                head = self._admit(self.refresh())  # an older version may have positions of before
        else:
            of = () if operation.verb in {"delete", "apply_changes"} else (data, operation)
            head = self._fresh_head(*of)
        if operation.verb == "apply_changes":
            features.check_rewrites(head)
        return head

    def _fresh_head(self, *of: Any) -> TableVersion:
        """The table version of a moment ago; a missing table is created for the data and verb ``of`` a write if it may be."""
        if self._cached.head is not None:
            return self._admit(self._cached.fresh(self.limits))
        if self._first is not None and of:
            made = self.planner.first(self.connection, self._first, *of)
            if creation.create_table(self.connection, made, self.catalog):
                self.unlike = None  # catalogs may spell a location or a property otherwise
            self.open(strict=self._strict)
        return self._cached.existing()

    def check_writable(self) -> None:
        """See :class:`safewrite.table.format.Format`."""
        if self._cached.head is not None:
            self._admit(self._cached.fresh(self.limits))

    def row_rules(self) -> TableRules:
        """See :class:`safewrite.table.format.Format`: Iceberg has no conditions for rows, and defaults from format version 3 on."""
        from safewrite.frames.row_rules import TableRules

        head = self._cached.head
        return TableRules() if head is None else rules_of(table_of(head).metadata, self.uri)

    def commit(
        self, plan: WritePlan, operation: Operation, encode: Callable[[], Any], *, queue_first: bool
    ) -> IcebergDone:
        how: dict[str, Any] = {"limits": self.limits, "helpers": self.connection.helpers}
        how["queue_first"] = queue_first or self._queue.group == "always"
        how["terms"] = self._queue.terms(operation.verb, self._cached.existing(), self.world)
        return self._cached.commit(plan, steps_of(operation.verb, plan, encode, **how))

    def commit_group(self, plan: AppendPlan, encode: Callable[..., Any], *, queue_first: bool) -> Group:
        how: dict[str, Any] = {"limits": self.limits, "queue_first": queue_first}
        steps = write_many(plan, encode, plan.planned, helpers=self.connection.helpers, **how)
        return self._cached.commit(plan, steps)

    def after(self, done: IcebergDone, elapsed_s: float) -> None:
        """Keep what the commit showed of the table, and drop old metadata files."""
        try:
            self._cached.see(done.head)
            self._queue.note(done.may_share)
            if done.contended:
                self._cached.seen_s = None
            if done.base is not None:
                self.connection.drop_old_metadata(table_of(done.base), table_of(done.head).metadata)
        except Exception:
            self._cached.seen_s = None
            raise

    # --- lookups ----------------------------------------------------------------------------------
    def resolve(self, key: str) -> tuple[int, Mapping[str, Any]] | None:
        if self._cached.head is None and not self._is_there():
            return None
        found = self._cached.resolve(key, self.limits)
        return None if found is None else (found.snapshot_id, found.entry(key))

    def recorded(self, version: int) -> Sequence[Mapping[str, Any]]:
        return self._cached.run(members.recorded(self._cached.look(self.limits), version, self.limits))

    def as_of(self, version: int) -> TableVersion | None:
        return as_of(self._cached.look(self.limits), version)

    def history(self, limit: int | None) -> list[HistoryEntry]:
        return self._cached.run(history.history(self._cached.look(self.limits), limit, self.limits))

    def committed_writes(self, version: int) -> list[CommittedWrite] | None:
        head = self._cached.look(self.limits)
        return self._cached.run(history.committed_writes(head, version, self.limits))

    def positions(self) -> Mapping[str, int]:
        found = positions_of(self.refresh())
        for name, at in found.items():
            if at is None:
                raise lost(name)
        return {name: at for name, at in found.items() if at is not None}

    # --- reading the known version ------------------------------------------------------------------
    def rows(self, wanted: RowFilter) -> pa.Table:
        from safewrite.iceberg.read.files import rows_with

        return self._cached.run(rows_with(wanted, self._read_from(), self.planner.known, self.limits))

    def row_count(self) -> int:
        from safewrite.iceberg.read.files import row_count

        return self._cached.run(row_count(self._read_from(), self.planner.known, self.limits))

    def added_since(self, position: int | None) -> list[AddedRows]:
        from safewrite.iceberg.read import added_rows

        seen = added_rows.Seen(self._read_from(), self.planner.known, self.limits)
        if position is None:
            return [self._cached.run(added_rows.everything(seen, Followed(self.uri, self.read_added)))]
        return self._cached.run(added_rows.added_since(position, seen, Followed(self.uri, self.read_added)))

    def added_by(self, version: int) -> AddedRows:
        from safewrite.iceberg.read import added_rows

        seen = added_rows.Seen(self._read_from(), self.planner.known, self.limits)
        return self._cached.run(added_rows.added_by(version, seen, Followed(self.uri, self.read_added)))

    def read_added(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        from safewrite.iceberg.read.files import read_files

        head, tasks = self._read_from(), [file.handle for file in files]
        return self._cached.run(read_files(tasks, head, self.limits, checked_columns(columns, self.schema)))

    def changes(self, columns: tuple[Any, ...] | None) -> ChangeSource:
        from safewrite.iceberg.read.row_changes import IcebergChanges
        from safewrite.iceberg.write.memory_file import recorded_keys

        head, asked, run = self._read_from(), checked_columns(columns, self.schema), self._cached.run
        table = Followed(self.uri, self.read_added, "changes_since")
        keys = partial(recorded_keys, head, self.connection.branch, self.limits)
        return IcebergChanges(head, self.limits, table, run, lambda: run(keys()), asked)

    def apply_shared(
        self, given: TaskChanges, operation: Operation, name: Identity, *, queue_first: bool
    ) -> tuple[IcebergDone, Write]:
        """See :class:`safewrite.table.format.Format`."""
        from safewrite.iceberg.write.apply_by_tasks import shared

        head = self.planned_on(operation, None)
        with shared(self.planner, self.connection.catalog, head, given, (operation, name)) as plan:
            return self.commit(plan, operation, tuple, queue_first=queue_first), plan.write

    # --- upkeep -------------------------------------------------------------------------------------
    def inventory(self) -> Inventory:
        from safewrite.iceberg.maintenance.aws import compacted_by
        from safewrite.iceberg.write.compaction import inventory

        head = self._admit(self.refresh())
        known, target = self.planner.known, self.planner.target_bytes(head)
        found = self._cached.run(inventory(head, known, target, self.limits))
        return replace(found, served_by=compacted_by(self.connection, table_of(head)))

    def compact(self, groups: Sequence[FileGroup], on: Inventory, engine: Engine[Any] | None) -> Compacted:
        from safewrite.upkeep.maintain import ended

        assert isinstance(on.listing, KnownManifests)
        head = self._admit(self.refresh())
        if head.held_s:
            self._cached.run(let_pass(head, self.limits))
            head = self._admit(self.refresh())
        plan = self.planner.compaction(groups, head, on.listing, self.world, engine)

        def commit() -> int:
            done = self.commit(plan, Operation("compact"), tuple, queue_first=False)
            self.after(done, 0.0)
            return done.version

        def resolve(key: str) -> int | None:
            found = self._cached.resolve(key, self.limits)
            return None if found is None else found.snapshot_id

        return ended(plan, commit, resolve)

    def settle(self, asked: Settling) -> Settled:
        """See :class:`safewrite.table.format.Format`: Iceberg has no checkpoints, and snapshots that expire."""
        from safewrite.iceberg.expiry import expire
        from safewrite.iceberg.needed_files import unused_of
        from safewrite.upkeep.maintain import Settled

        head = self._admit(self.refresh())
        count = expire(self.connection, head, self.limits, dry_run=asked.dry_run)
        head = self.refresh() if count and not asked.dry_run else head
        unused = self._cached.run(unused_of(self.connection, head, asked, self.limits))
        return Settled(None, {"snapshots": count} if count else {}, unused)

    # --- Spark --------------------------------------------------------------------------------------
    def in_session(self, catalog: str | None) -> str | None:
        """Check a Spark session's name for the table's catalog."""
        return check_catalog(catalog)

    def write_spark(
        self, held: ComputedFrame, operation: Operation, name: Identity, *, queue_first: bool
    ) -> tuple[IcebergDone, Write] | Receipt:
        """Let tasks on the executors, or Iceberg's own library, write the files of a DataFrame, and commit them."""
        from safewrite.frames.spark.stream import written
        from safewrite.iceberg.spark import by_tasks, write

        frame = held.rows
        self._session = held.frame.sparkSession
        new = self._cached.head is None and operation.changes is None
        if new and held.computed is None:
            with write.first(held, operation) as kept:
                return self.write_spark(kept, operation, name, queue_first=queue_first)
        known = self._in_spark = self._in_spark or write.CachedSparkTable(
            self.connection.identifier, self.connection.catalog.name
        )
        of = (write.empty_like(frame), operation) if new else ()
        head = self._fresh_head(*of)
        features.check_frame(head, lambda: frame.columns, rewrites=operation.changes is not None)
        write.check_session(frame.sparkSession, head)
        if (made := by_tasks.write(self, held, operation, name, head, queue_first)) is not None:
            return made
        there = known.find(
            frame.sparkSession, head, named=operation.spark_catalog, now_s=monotonic_s(self.world)
        )
        fills = fills_of(table_of(head).metadata)
        if operation.schema_mode == "merge" and self._add_columns(there.new_columns(frame)):
            return self.write_spark(held, operation, name, queue_first=queue_first)

        def by(origin: BatchOrigin | None) -> tuple[IcebergDone, Write] | Receipt:
            try:
                job = write.job(held, there, operation, origin=origin, fills=fills)
            except WouldAlterError:
                count = partial(write.counted, frame, there.schema, origin, operation.volatile, fills)
                found = repeated(self, count, operation, name, head)
                if found is None:
                    raise
                return found
            with job.batch(head, name) as (batch, files):
                plan = job.plan(batch, head, self.planner, name)
                plan.properties, plan.positions = operation.properties, operation.positions
                return self.commit(plan, operation, files, queue_first=queue_first), plan.write

        return written(held.frame, name.txn, head.table_id, by, seems_there=carries(head, name))

    def tell_spark(self, context: SparkContext) -> None:
        from safewrite.iceberg.spark import caches

        caches.read_anew(context, self._session, self.connection.identifier, self.table_id)

    def _add_columns(self, new: pa.Schema) -> bool:
        """Add columns in a commit of its own: Spark can only write files for columns that the table has."""
        if not new.names:
            return False
        with self.table.update_schema() as update:
            update.union_by_name(iceberg_schema(new))
        self.refresh()
        return True


def _begin_branch(own: IcebergFormat) -> None:
    """Begin the branch that a table is open on; of a table without a snapshot the main branch has an empty one first."""
    main = IcebergFormat(replace(own.connection, branch=MAIN), limits=own.limits)
    main.open(strict=False)
    main.check_writable()
    if main.version == -1:
        from safewrite.table.verbs import Table

        Table(main).append(main.schema.empty_table())
    branches.begin(own.connection, own.limits)
