"""Answers for a Delta table what the verbs and the loop around a write ask of a format."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.boundary.public import after_ack
from safewrite.delta import history, nested
from safewrite.delta.arbiter import PROPERTY_ARBITER, check_arbiter
from safewrite.delta.connect import Connection
from safewrite.delta.log import row_rules
from safewrite.delta.log.features import unwritable
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.snapshot import Snapshot, as_of, load, load_unheld
from safewrite.delta.opening import (
    already_there,
    check_same,
    check_table,
    check_writable,
    not_there,
    open_state,
    remember,
    tell_of_copies,
)
from safewrite.delta.upkeep import Checkpointing, finish
from safewrite.delta.write import creation
from safewrite.delta.write.abc import Write
from safewrite.delta.write.conflicts import positions_of
from safewrite.delta.write.group_commit import Group, write_many
from safewrite.delta.write.plans import Planner
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.resolve import recorded, resolve
from safewrite.delta.write.steps import steps_of
from safewrite.delta.write.transaction import Transaction
from safewrite.delta.write.write import write
from safewrite.errors import ConflictError, InvalidInputError, Kind, WouldAlterError, not_yet
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Arbiter
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.keys import Identity
from safewrite.protocol.positions import stand
from safewrite.receipt import Receipt
from safewrite.stores.settings import warn_of_encryption
from safewrite.stores.world import Performer, monotonic_s, run
from safewrite.table.added_rows import AddedFile, AddedRows, Followed, checked_columns
from safewrite.table.format import FRESH_S
from safewrite.table.history import CommittedWrite, HistoryEntry
from safewrite.table.new_table import Layout
from safewrite.table.operation import Operation, clean_up
from safewrite.table.shared_queue import SharedQueue
from safewrite.table.writer import repeated

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext

    from safewrite.changes.members.task_changes import TaskChanges
    from safewrite.engine.abc import Engine
    from safewrite.frames.row_rules import TableRules
    from safewrite.frames.spark.computed_frame import ComputedFrame
    from safewrite.table.lookup import RowFilter
    from safewrite.table.row_changes import ChangeSource
    from safewrite.upkeep.groups import Group as FileGroup
    from safewrite.upkeep.groups import Inventory
    from safewrite.upkeep.maintain import Compacted, Settled, Settling

T = TypeVar("T")
log = logging.getLogger("safewrite")


class DeltaFormat:
    """One Delta table, as this process knows it."""

    replanned = frozenset({Kind.TABLE_REPLACED})

    def __init__(
        self,
        connection: Connection,
        *,
        limits: Limits | None = None,
        target_file_size: int | None = None,
        checkpoints: bool = True,
        group: str = "never",
        first: creation.NewTable | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.connection = connection
        self.world: Performer = connection.world
        self.limits = limits or Limits()
        self.checkpoints = checkpoints
        mark = self.uri, f"{connection.endpoint} {connection.lock_table_id}"
        self.queue = SharedQueue(group, connection.address.is_s3, mark, connection.world)
        self.unlike: Callable[[], object] | None = None
        self.planner = Planner(connection, self.limits, target_file_size, first)
        self.planner.new_id = new_id or self.planner.new_id
        self._state: Snapshot | None = None
        self._known_s: float | None = None
        self._ledger_seen_s: float | None = None
        """When the ledger's mark was seen, which is not looked for again for a moment."""
        self._mixed = False
        self._checkpointing = Checkpointing(self.uri)

    def after_fork(self) -> None:
        """Distrust, in a forked child, what the parent saw a moment ago."""
        self._known_s = None
        self._checkpointing.after_fork()

    # --- what it is -------------------------------------------------------------------------------
    @property
    def uri(self) -> str:
        return self.connection.address.uri

    @property
    def table_id(self) -> str:
        return self._existing().table_id

    @property
    def arbiter(self) -> str:
        """Who decides which writer gets a version: ``dynamodb``, ``object-store`` or ``local``."""
        return self.connection.arbiter_name

    @property
    def version(self) -> int:
        return self._state.version if self._state is not None else -1

    @property
    def schema(self) -> pa.Schema:
        return self._existing().schema

    @property
    def unread(self) -> Mapping[str, str]:
        return self._existing().unread

    @property
    def partition_by(self) -> tuple[str, ...]:
        return self._existing().partition_by

    @property
    def properties(self) -> dict[str, str]:
        return dict(self._existing().properties)

    def made_as(self, given: Layout) -> tuple[Layout, Layout, Mapping[str, str]]:
        """The layout that was given for a new table and that of this one; its properties."""
        return Layout(tuple(given.partition_by)), Layout(self.partition_by), self.properties

    # --- opening ----------------------------------------------------------------------------------
    def open(self, *, strict: bool) -> None:
        """Load the table and refuse what would not be safe."""
        opened = open_state(self.connection, self.world, self.limits, strict=strict)
        self._state = opened.state
        self._known_s = monotonic_s(self.world) if opened.settled else None
        self._mixed = opened.mixed
        if self._state is None:
            if self.planner.first is None:
                raise not_there(self.uri)
            nested.refuse_within(self.connection)

    def create(self, schema: pa.Schema) -> None:
        if self._state is not None:
            raise already_there(self.uri)
        try:
            self._commit_nothing(schema)
        except ConflictError as error:
            raise already_there(self.uri) from error
        self.refresh()

    def _commit_nothing(self, schema: pa.Schema) -> None:
        """Commit a version without rows, which creates the table or records its arbiter."""
        prepared = self.planner.prepare(schema.empty_table(), self._state)
        named = self.planner.name(prepared, Identity(), self._state)
        candidate = self.planner.appending(prepared, named, self._state)
        self._run(write(candidate, lambda: (), arbiter=self._arbiter(), limits=self.limits))

    # --- the newest version -------------------------------------------------------------------------
    def refresh(self, *, afresh: bool = False) -> Snapshot | None:
        """Load the newest version; ``afresh``: without use of what was known."""
        before = self.mark()
        self._see(self._run(load(None if afresh else self._state, limits=self.limits)))
        if not afresh and before is not None and self.mark() == before:
            self._known_s = monotonic_s(self.world)  # nobody else writes, as far as this tells
        return self._state

    def _see(self, state: Snapshot | None) -> None:
        """Take a newer snapshot: every one enters here, whoever read it.

        Raises:
            ConflictError, TableNotFoundError: it is not a snapshot of the table that was opened.
            UnsupportedTableError, UnsafeConfigError: as for ``safewrite.open``; the known snapshot stays.
        """
        check_same(self.uri, self._state, state)
        if state is not None:
            check_arbiter(self.connection, state.properties)
            check_table(state)
        self._state = state

    def mark(self) -> object:
        """The table and its version that are known; None before there is a table."""
        return None if self._state is None else (self._state.table_id, self._state.version)

    def _existing(self) -> Snapshot:
        if self._state is None:
            raise not_yet(f"Delta table at {self.uri}")
        return self._state

    # --- steps of a write -------------------------------------------------------------------------
    def planned_on(self, operation: Operation, data: Any, *, alone: bool = True) -> Snapshot | None:
        """The version that a write is planned on; None where the write creates the table."""
        self._state = self._checkpointing.seen(self._state)
        self.check_writable()
        if operation.verb == "append" and not operation.positions:
            return self._state
        if not (self._is_fresh() and self._serves(operation, alone=alone)):
            self.refresh()
            self.check_writable()
        return self._existing() if operation.verb in {"delete", "apply_changes"} else self._state

    def check_writable(self) -> None:
        if self._state is not None and unwritable(self._state):
            # The feature may have been dropped since, or something tells the time of the newest commit now.
            self.refresh(afresh=self._state.told_ms is None)
        if self._state is not None:
            check_writable(self.connection, self._state, self.limits)

    def row_rules(self) -> TableRules:
        """See :class:`safewrite.table.format.Format`.  Raises UnsupportedTableError where rules cannot be evaluated."""
        from safewrite.frames.row_rules import TableRules

        return TableRules() if self._state is None else row_rules.table_rules(self._state)

    def commit(
        self, plan: Transaction, operation: Operation, encode: Callable[[], Any], *, queue_first: bool
    ) -> DeltaDone:
        queue_first = queue_first or self.queue.group == "always"
        how: dict[str, Any] = {"arbiter": self._arbiter(), "limits": self.limits, "queue_first": queue_first}
        plan.known |= self.queue.known(plan.anchor)
        with self._checkpointing.during(self.limits, self.world), self._ledger_of(plan):
            done = self._run(steps_of(operation.verb, plan, encode, fresh=self._is_fresh(), **how))
            return self.queue.kept(done, plan.known)

    def commit_group(self, plan: Transaction, encode: Callable[..., Any], *, queue_first: bool) -> Group:
        how: dict[str, Any] = {"arbiter": self._arbiter(), "limits": self.limits, "queue_first": queue_first}
        with self._checkpointing.during(self.limits, self.world), self._ledger_of(plan):
            return self._run(write_many(plan, encode, fresh=self._is_fresh(), **how))

    @contextmanager
    def _ledger_of(self, plan: Transaction) -> Iterator[None]:
        """Tell a plan whether the ledger was seen to be whole a moment ago, and note where it sees it."""
        began_s, seen_s = monotonic_s(self.world), self._ledger_seen_s
        plan.ledger_seen = known = seen_s is not None and began_s - seen_s < FRESH_S
        try:
            yield
        finally:
            self._ledger_seen_s = (seen_s if known else began_s) if plan.ledger_seen else None

    def after(self, done: DeltaDone, elapsed_s: float) -> None:
        """Keep what the commit showed of the table, and let a checkpoint be made where one is due."""
        self._mixed |= done.mixed
        self._known_s = None if done.contended and done.members in {None, 1} else monotonic_s(self.world)
        self.queue.note(done.may_share)
        if done.state is not None and done.state.version >= self.version:
            self._see(done.state)
            if not done.already:
                remember(self.connection, done.state)
        elif self._state is None or not done.already:
            self.refresh()
        tell_of_copies(self.uri, self._state)
        if self.checkpoints and done.led_by_us and not done.already:
            left_s = self.limits.timeout_s - elapsed_s
            self._state = self._checkpointing.note(self._state, done.version, left_s, self.world)

    def checkpoint(self) -> bool:
        """Make a checkpoint of the newest version, unless there is one; True if it was made."""
        from safewrite.delta.log.checkpoint import write_checkpoint

        self.refresh()
        if (made := self._run(write_checkpoint(self._existing(), limits=self.limits))) is not None:
            self._state = self._existing().with_checkpoint(made)
        return made is not None

    # --- lookups ----------------------------------------------------------------------------------
    def resolve(self, key: str) -> tuple[int, Mapping[str, Any]] | None:
        newest = self._run(load(self._state, limits=self.limits))
        check_same(self.uri, self._state, newest)
        if newest is not None:
            check_arbiter(self.connection, newest.properties)
        table_id = newest.table_id if newest is not None else None
        found = self._run(resolve(key, table_id, arbiter=self._arbiter(), limits=self.limits))
        return None if found is None else (found[0], {**found[1], "key": key})

    def recorded(self, version: int) -> Sequence[Mapping[str, Any]]:
        return self._run(recorded(version, limits=self.limits))

    def as_of(self, version: int) -> Snapshot | None:
        return self._run(as_of(version, self.limits))

    def history(self, limit: int | None) -> list[HistoryEntry]:
        self.refresh()
        return self._run(history.history(self._existing(), limit, self.limits))

    def committed_writes(self, version: int) -> list[CommittedWrite] | None:
        self.refresh()
        if not 0 <= version <= self._existing().version:
            return None
        return self._run(history.committed_writes(version, self.limits))

    def positions(self) -> Mapping[str, int]:
        self.refresh()
        return positions_of(self._existing())

    # --- reading the known version ------------------------------------------------------------------
    def rows(self, wanted: RowFilter) -> pa.Table:
        from safewrite.delta.read.files import rows_with

        vectors, known = self.planner.vectors(), self.planner.known_files
        return self._run(rows_with(wanted, self._existing(), known, vectors, self.limits))

    def row_count(self) -> int:
        from safewrite.delta.read.files import row_count

        vectors, known = self.planner.vectors(), self.planner.known_files
        return self._run(row_count(self._existing(), known, vectors, self.limits))

    def added_since(self, position: int | None) -> list[AddedRows]:
        from safewrite.delta.read import added_rows

        state, table = self._existing(), Followed(self.uri, self.read_added)
        if position is None:
            return [self._run(added_rows.everything(state, self.planner.known_files, self.limits, table))]
        return self._run(added_rows.added_since(position, state, self.limits, table))

    def added_by(self, version: int) -> AddedRows:
        from safewrite.delta.read import added_rows

        table = Followed(self.uri, self.read_added)
        return self._run(added_rows.added_by(version, self._existing(), self.limits, table))

    def read_added(self, files: Sequence[AddedFile], columns: tuple[str, ...] | None) -> pa.Table:
        from safewrite.delta.read.files import read_files

        state, adds = self._existing(), [file.handle for file in files]
        columns = checked_columns(columns, state.schema)
        return self._run(read_files(adds, state, self.planner.vectors(), self.limits, columns=columns))

    def changes(self, columns: tuple[Any, ...] | None) -> ChangeSource:
        from safewrite.delta.read.row_changes import DeltaChanges
        from safewrite.delta.write.memory_file import recorded_keys

        state, asked = self._existing(), checked_columns(columns, self.schema)
        seen = (state, self.connection.address.uri, self.planner.known_files, self.limits)
        table, keys = Followed(self.uri, self.read_added, "changes_since"), partial(recorded_keys, state)
        return DeltaChanges(*seen, table, self._run, lambda: self._run(keys(self.limits)), asked)

    def apply_shared(
        self, given: TaskChanges, operation: Operation, name: Identity, *, queue_first: bool
    ) -> tuple[DeltaDone, Write]:
        from safewrite.changes.members.table_chunks import UnfitError
        from safewrite.delta.write.apply_by_tasks import transaction

        state, store, spec = self.planned_on(operation, None), self.connection.store(), operation.changes
        if store is None or state is None or spec is None:
            raise UnfitError("executors lack the credentials of its store")
        with transaction(self.planner, store, state, given, (spec, name)) as plan:
            plan.properties = {**operation.properties, **given.properties}
            plan.positions = operation.positions
            return self.commit(plan, operation, tuple, queue_first=queue_first), plan.write

    # --- upkeep -------------------------------------------------------------------------------------
    def inventory(self) -> Inventory:
        from safewrite.delta.write.compaction import inventory

        self.refresh()
        self.check_writable()
        known, size = KnownFiles(files_max=sys.maxsize), self.planner.target_file_size
        return self._run(inventory(self._existing(), known, size, self.limits))

    def compact(self, groups: Sequence[FileGroup], on: Inventory, engine: Engine[Any] | None) -> Compacted:
        from safewrite.upkeep.maintain import ended

        assert isinstance(on.listing, KnownFiles)
        self._see(self._run(load_unheld(self._existing(), self.limits)))
        self.check_writable()
        plan = self.planner.compaction(groups, self._existing(), on.listing, self.world, engine)

        def commit() -> int:
            done = self.commit(plan, Operation("compact"), tuple, queue_first=False)
            self.after(done, 0.0)
            return done.version

        try:
            return ended(plan, commit, lambda key: (self.resolve(key) or (None,))[0])
        finally:
            with after_ack(self.uri):  # files that are left over are harmless
                self._run(clean_up(plan.never_named()))

    def settle(self, asked: Settling) -> Settled:
        """Make a checkpoint: after upkeep it is small, and else readers read the old one and all that went since.  Then old ones may go."""
        from safewrite.delta.log.checkpoint import is_behind
        from safewrite.delta.needed_files import settled

        if asked.changed:
            finish()  # else the checkpoint that is under way would be made twice
        self.refresh()
        state = self._existing()
        wanted = self.checkpoints and not asked.dry_run and (asked.changed or is_behind(state, state.version))
        stands = asked.changed and state.checkpoint is not None and state.checkpoint.version == state.version
        made = self.version if stands or (wanted and self.checkpoint()) else None
        return self._run(settled(made, self._existing(), asked, self.limits))

    # --- Spark --------------------------------------------------------------------------------------
    def in_session(self, catalog: str | None) -> str | None:
        """Refuse a name for the table's catalog, for it has none."""
        if catalog is not None:
            raise InvalidInputError(
                "spark_catalog= is for Iceberg tables; a Delta table is known by its address. Nothing was written. Leave it out."
            )
        return None

    def write_spark(
        self, held: ComputedFrame, operation: Operation, name: Identity, *, queue_first: bool
    ) -> tuple[DeltaDone, Write] | Receipt:
        """Let tasks on the executors write the files of a DataFrame, or Delta's own library the whole commit of an append."""
        self.check_writable()
        from safewrite.delta.spark import by_tasks
        from safewrite.delta.spark import write as spark

        if operation.changes is not None:
            return by_tasks.apply(self, held, operation, name, queue_first=queue_first)
        if (made := by_tasks.write(self, held, operation, name, queue_first=queue_first)) is not None:
            return made
        frame = held.rows
        if self._state is None and held.computed is None:
            parts = () if self.planner.first is None else tuple(self.planner.first.partition_by)
            with spark.first(held, parts, operation) as kept:
                return self.write_spark(kept, operation, name, queue_first=queue_first)
        warn_of_encryption(self.connection.storage_options, "Spark's own library, which writes these files,")
        state = self.ready_for_spark(lambda: spark.new_schema(frame))
        place = spark.SparkTarget(
            self.connection,
            self.world,
            state,
            self._arbiter(),
            self.limits,
            self.planner.new_id,
            name=lambda batch: self.planner.name(batch, name, state),
            held=held,
            txn=name.txn,
        )
        try:
            done, candidate = spark.write(place, operation)
        except WouldAlterError:
            count = partial(spark.counted, frame, state, operation.volatile)
            if (found := repeated(self, count, operation, name, state)) is None:
                raise
            return found
        return done, candidate.write

    def tell_spark(self, context: SparkContext) -> None:
        from safewrite.delta.spark.relations import table_id_of
        from safewrite.frames.spark.cached import read_anew

        table_id = self._existing().table_id
        read_anew(context, lambda relation: table_id_of(relation) == table_id)

    def ready_for_spark(self, schema: Callable[[], pa.Schema] | None) -> Snapshot:
        """The table as it is now, created if it may be, its arbiter recorded: Delta's commits record none."""
        if self._state is None and schema is not None:
            try:
                self.create(schema())
            except ConflictError:
                log.info("another writer made the table", extra={"table": self.uri})
        self.refresh()
        self.check_writable()
        state = self._existing()
        if self.arbiter == "local" or PROPERTY_ARBITER in state.properties:
            return state
        self._commit_nothing(state.schema)
        self.refresh()
        return self._existing()

    # --- small helpers ----------------------------------------------------------------------------
    def _arbiter(self) -> Arbiter:
        """The arbiter; it seals claims once writers were met that know no lock table."""
        return replace(self.connection.arbiter, sealed=self._mixed, **asdict(self.queue.terms()))

    def _serves(self, operation: Operation, *, alone: bool) -> bool:
        """Whether a write that moves positions may be planned on the version of a moment ago, where they stand.

        Who wrote since moved them too, or makes the commit plan again.  A write without positions is one of many writers' more
        often, and a second plan costs more than a look.
        """
        if not operation.positions or not stand(positions_of(self._state), operation.positions):
            return False
        return alone or operation.verb == "append"

    def _is_fresh(self) -> bool:
        return self._known_s is not None and monotonic_s(self.world) - self._known_s < FRESH_S

    def _run(self, steps: Generator[Effect, Outcome, T]) -> T:
        return run(steps, self.world)
