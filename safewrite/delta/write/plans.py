"""Turns a caller's data into something that can be committed: conformed rows, a name, actions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from safewrite.arguments.reading import SchemaMode
from safewrite.delta.connect import Connection
from safewrite.delta.log import features, file_properties, row_rules
from safewrite.delta.log.file_list_cache import KnownFiles
from safewrite.delta.log.iceberg_compat import materializes, version_of
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write import creation
from safewrite.delta.write.abc import Write
from safewrite.delta.write.stamped import Stamper
from safewrite.delta.write.transaction import WRITE, Transaction
from safewrite.errors import InternalError
from safewrite.frames.prepare import Prepared, prepare
from safewrite.frames.source import as_frame
from safewrite.frames.task_files import MemberWriter, WrittenMember
from safewrite.protocol.ask import Limits
from safewrite.protocol.keys import Identity
from safewrite.stores.world import LEDGER_TTL_S
from safewrite.values.unsupported import check_brought
from safewrite.values.widening import wider_fields, with_fields
from safewrite.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.changes.meaning.member_batches import MemberChanges
    from safewrite.changes.meaning.reading import Changes, NewColumns
    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.members.joined_changes import JoinedChanges
    from safewrite.changes.tasks.abc import BatchWork
    from safewrite.changes.tasks.one_part import OnePart
    from safewrite.delta.data.datafiles import DataFile, FileLayout
    from safewrite.delta.data.partitions import Room
    from safewrite.delta.data.vector_files import Vectors
    from safewrite.delta.write.apply import ApplyTransaction
    from safewrite.delta.write.compaction import CompactionTransaction
    from safewrite.delta.write.memory_file import KnownMemory
    from safewrite.delta.write.staging import StagedFile
    from safewrite.delta.write.table_files import DeltaTableFiles
    from safewrite.engine.abc import Engine
    from safewrite.engine.task_files import TableInTasks
    from safewrite.frames.fingerprint import Counted, Fingerprint
    from safewrite.frames.predicate import Predicate
    from safewrite.stores.addresses import StoreAddress
    from safewrite.stores.world import Performer
    from safewrite.table.operation import Operation
    from safewrite.upkeep.groups import Group

FEW_ROWS = 10_000
"""An append of at most this many rows, most of which are new, is encoded before the ledger is asked for its key."""


@dataclass
class Planner:
    """Makes transactions for one table.

    ``first`` is how a first write would create the table (None: it must exist); ``target_file_size`` is
    in bytes (None: what the table's properties say).
    """

    connection: Connection
    limits: Limits
    target_file_size: int | None
    first: creation.NewTable | None = None
    new_id: Callable[[], str] = field(default=lambda: str(uuid.uuid4()))
    known_files: KnownFiles = field(default_factory=KnownFiles, repr=False)
    known_memory: dict[str, KnownMemory] = field(default_factory=dict, repr=False)
    """The file of what is remembered of deleted keys that was read or written last, by its path, if it is small."""

    def schema_of(self, state: Snapshot | None) -> pa.Schema:
        """The schema of the table, which must be there."""
        return _there(state).schema

    def base_of(self, state: Snapshot | None) -> int:
        """The version that a generated key names."""
        return -1 if state is None else state.version

    def prepare(
        self,
        data: Any,
        state: Snapshot | None,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] = (),
    ) -> Prepared:
        """Check the data against the table's schema and its rules, or infer a schema for a new table."""
        return self.fitting(self._conformed(data, state, schema_mode, volatile), state)

    def _conformed(
        self,
        data: Any,
        state: Snapshot | None,
        schema_mode: SchemaMode | None,
        volatile: Sequence[str],
    ) -> Prepared:
        if state is None:
            first = self.first or creation.NewTable()
            return prepare(data, None, partition_by=first.partition_by, volatile=volatile)
        data = self._filled(data, state)
        schema, by = state.schema, state.partition_by
        wider = (
            wider_fields(schema, as_frame(data, target=schema).arrow_schema(), "delta")
            if schema_mode == "widen"
            else ()
        )
        schema = with_fields(schema, wider)
        found = prepare(data, schema, partition_by=by, schema_mode=schema_mode, volatile=volatile)
        creation.check_added(state, found.added)
        return replace(found, wider=tuple(wider))

    @staticmethod
    def _filled(data: Any, state: Snapshot | None) -> Any:
        """The data with the columns that it lacks and the table computes; it may have none that cannot be written."""
        if state is None:
            return data
        check_brought(state.unread, lambda: as_frame(data, target=state.schema).column_names)
        fills = row_rules.fills_of(state)
        if not fills:
            return data
        from safewrite.frames.fills import filled

        return filled(data, fills, state.schema)

    def fitting(self, prepared: Prepared, state: Snapshot | None) -> Prepared:
        """The rows, if their partitions can have folders where the table is, and they keep the table's rules.

        Raises:
            WouldAlterError: a row breaks a rule.
            InvalidInputError: a column would get wider by which a rule goes.
        """
        if prepared.partition_by:
            self._room.check(prepared.tables(prepared.partition_by), prepared.partition_by)
        if state is None:
            return prepared
        rules, fills = row_rules.rules_of(state), bool(row_rules.fills_of(state))
        if rules is None:
            return replace(prepared, is_filled=True) if fills else prepared
        rules.check_wider([one.name for one in prepared.wider])
        rules.check(prepared.tables())
        return replace(prepared, keeps=rules, is_filled=fills)

    @property
    def _room(self) -> Room:
        from safewrite.delta.data.partitions import Room

        address = self.connection.address
        return Room(f"{address.prefix}/" if address.is_s3 else None)

    def prepare_next(
        self,
        data: Any,
        operation: Operation,
        state: Snapshot | None,
        earlier: Sequence[Prepared],
    ) -> Prepared:
        """As :meth:`prepare`, for a member of a group whose earlier ones may bring new columns.

        ``added`` of the result are the new columns of all so far.
        """
        mode, volatile = operation.schema_mode, operation.volatile
        if isinstance(data, WrittenMember) and state is not None:
            schema = earlier[-1].schema if earlier else state.schema
            return data.prepared(schema, state.partition_by, layout=_written_by(state))
        if not earlier:
            return self.prepare(data, state, mode, volatile)
        last = earlier[-1]
        found = prepare(
            self._filled(data, state),
            last.schema,
            partition_by=last.partition_by,
            schema_mode=mode,
            volatile=volatile,
        )
        if state is not None:
            creation.check_added(state, found.added)
        return replace(self.fitting(found, state), added=(*last.added, *found.added))

    def count(self, data: Any, operation: Operation, state: Snapshot | None) -> Prepared:
        """The rows under the table's schema, which may have more columns than they."""
        return self._conformed(data, state, "merge", operation.volatile)

    def name(self, prepared: Counted, name: Identity, state: Snapshot | None) -> Write:
        """Name the write by the caller's key or batch, or by a generated key.

        Raises:
            UnsafeConfigError: the table forgets batches sooner than they may be replayed (E4).
        """
        if name.txn is not None and state is not None:
            features.check_retention(state, horizon_s=LEDGER_TTL_S, txn=True)
        key = name.key_for(self.new_id, self.base_of(state))
        fingerprint = prepared.fingerprint
        return Write(
            key,
            str(fingerprint),
            prepared.rows,
            fingerprint_int63=fingerprint.int63,
            txn=name.txn,
            volatile=prepared.volatile,
            columns=prepared.column_digests if name.is_given else "",
        )

    def appending(self, prepared: Prepared, named: Write, state: Snapshot | None) -> Transaction:
        """A transaction that adds the rows, and creates the table where ``state`` is None."""
        return Transaction(**self._common(prepared, named, state), few_rows=prepared.rows <= FEW_ROWS)

    def replacing(
        self,
        prepared: Prepared,
        named: Write,
        predicate: Predicate,
        state: Snapshot | None,
        *,
        deletes: bool = False,
    ) -> Transaction:
        """A transaction that takes out the rows where ``predicate`` is true; an append where there is no table."""
        from safewrite.delta.write.overwrite import DELETE, OverwriteTransaction

        if state is None:
            return self.appending(prepared, named, None)
        return OverwriteTransaction(
            **self._common(prepared, named, state),
            operation=DELETE if deletes else WRITE,
            predicate=predicate,
            target_file_size=file_properties.target_bytes(state.properties, self.target_file_size),
            vectors=self.vectors(),
            came=prepared if features.feeds_changes(state) and not deletes else None,
        )

    def compaction(
        self,
        groups: Sequence[Group],
        state: Snapshot,
        known: KnownFiles,
        world: Performer,
        engine: Engine[Any] | None,
    ) -> CompactionTransaction:
        """A transaction that puts the files of each group together, by an engine if its tasks reach the store; else in this world."""
        import pyarrow as pa

        from safewrite.delta.write.compaction import CompactionTransaction, GroupRewriter
        from safewrite.table.regrouping import Regrouping

        nothing = Prepared.kept(pa.Table.from_batches([], state.schema), state.partition_by)
        common = self._common(nothing, self.name(nothing, Identity(), state), state)
        vectors, store = self.vectors(), None if engine is None else self.connection.store()
        rewriter = GroupRewriter(self.table_files(state, (), vectors, store).named(common["commit_id"]))
        work = Regrouping[Any, Any, Any](groups, rewriter, world, engine if store else None)
        return CompactionTransaction(**common, vectors=vectors, work=work, known_files=known)

    def vectors(self) -> Vectors:
        from safewrite.delta.data.vector_files import Vectors

        return Vectors(self.connection.address.uri)

    def changing(
        self,
        named: Write,
        spec: Spec,
        state: Snapshot | None,
        *,
        changes: Changes | None = None,
        group: tuple[MemberChanges, ...] = (),
    ) -> tuple[Transaction, Callable[[], Iterable[DataFile]]]:
        """A transaction that applies changes by key and sequence; and what encodes its rows."""
        from safewrite.changes.members.joined_changes import sharing

        columns = (group[-1].changes if changes is None else changes).columns
        common = self.applying(named, _there(state), columns)
        work = self._one_part(common, spec, changes=changes, group=group)
        joined = None if changes is None else sharing(named.key, changes, spec, work)
        made = self.transaction(common, spec, work, joined)
        return made, lambda: self.encode(made.upserts(), made) if made.batch.applied else ()

    def transaction(
        self,
        common: dict[str, Any],
        spec: Spec,
        work: BatchWork,
        joined: JoinedChanges[Write] | None = None,
    ) -> ApplyTransaction:
        """The transaction that applies changes, of the settings that :meth:`applying` gives."""
        from safewrite.delta.write.apply import ApplyTransaction
        from safewrite.delta.write.batch_plan import BatchPlan
        from safewrite.delta.write.memory_file import MemoryFile

        memory = MemoryFile(uuid.UUID(self.new_id()).int >> 65, self.known_memory)
        vectors, now_ms = common["vectors"], common["timestamp_ms"]
        batch = BatchPlan(spec, work, memory, vectors, self.known_files, now_ms, self.limits, joined)
        return ApplyTransaction(**common, batch=batch, encode=self.encoded, replaces_all=spec.full_refresh)

    def _one_part(
        self,
        common: dict[str, Any],
        spec: Spec,
        *,
        changes: Changes | None = None,
        group: tuple[MemberChanges, ...] = (),
    ) -> OnePart:
        """Changes that are decided about where the transaction is."""
        from safewrite.changes.tasks.one_part import OnePart
        from safewrite.delta.data.row_ids import lasting_columns
        from safewrite.delta.write.new_columns import left

        state = left(common)
        files = self.table_files(state, spec.keys, common["vectors"]).named(common["commit_id"])
        rules = row_rules.rules_of(state)
        if rules is not None:
            spec = replace(spec, check=rules.asked(spec.keys, spec.check))
        whole = features.feeds_changes(state)
        group = tuple(replace(one, changes=one.changes.under(state.schema)) for one in group)
        return OnePart(spec, state.schema, files, changes, group, whole=whole, lasting=lasting_columns(state))

    def table_files(
        self, state: Snapshot, keys: tuple[str, ...], vectors: Vectors, store: StoreAddress | None = None
    ) -> DeltaTableFiles:
        """How changes read and write the table's data files: here, or in tasks that reach them at an address."""
        from safewrite.delta.write.table_files import DeltaTableFiles

        return DeltaTableFiles(
            state.version,
            state.protocol,
            state.metadata,
            self.layout(state.schema, state),
            keys,
            self.connection.world.wall_ms(),
            self.limits if store is None else self.limits.elsewhere(),
            vectors,
            store,
        )

    def read(
        self, data: Any, spec: Spec, state: Snapshot | None, earlier: NewColumns | None = None
    ) -> Changes:
        """Check changes; as ``safewrite.changes.meaning.reading.read``."""
        from safewrite.changes.meaning.new_columns import schema_of
        from safewrite.changes.meaning.reading import read
        from safewrite.delta.write import new_columns

        table = _there(state)
        spec, columns = new_columns.asked(spec, table, partial(schema_of, data, table.schema), earlier)
        changes = read(data, spec, new_columns.schema_with(table, columns), table.partition_by)
        changes = replace(changes, columns=columns)
        if table.partition_by:
            self._room.check((changes.batch.table.select(list(table.partition_by)),), table.partition_by)
        return changes

    def name_changes(self, fingerprint: Fingerprint, name: Identity, state: Snapshot | None) -> Write:
        """Name changes with this fingerprint.

        Raises:
            UnsafeConfigError: the table forgets transactions sooner than batches may be replayed, and with them which keys were deleted (E4).
        """
        features.check_retention(_there(state), horizon_s=LEDGER_TTL_S, txn=name.txn is not None)
        key = name.key_for(self.new_id, self.base_of(state))
        return Write(key, str(fingerprint), txn=name.txn, changes={}, fingerprint_int63=fingerprint.int63)

    def applying(self, write: Write, state: Snapshot, columns: NewColumns) -> dict[str, Any]:
        """The settings of a transaction that applies changes."""
        from safewrite.delta.write.new_columns import nothing

        features.check_txns_stay(state, "the deleted keys, and a late change could bring such a row back")
        return {
            **self._common(nothing(state, columns), write, state),
            "vectors": self.vectors(),
        }

    def encode(self, prepared: Prepared, candidate: Transaction) -> Iterable[DataFile]:
        """Parquet files of the rows, made one by one as they are asked for."""
        return self.encoded(prepared, candidate.after, candidate.commit_id)

    def encode_group(
        self, prepared: Prepared, written: Iterable[Any], candidate: Transaction
    ) -> Iterable[DataFile | StagedFile]:
        """The same of members, some of which come with files that tasks have ``written``."""
        return chain(written, self.encode(prepared, candidate))

    def encoded(self, prepared: Prepared, state: Snapshot | None, write_id: str) -> Iterable[DataFile]:
        """As :meth:`encode`, for the table as a write leaves it; ``write_id`` is in the names of files."""
        from safewrite.delta.data.datafiles import encoded, layout_of

        if state is None:
            raise InternalError(
                "A candidate has neither a table nor the metadata of a new one. Please report it."
            )
        target = self.target_file_size
        return encoded(
            prepared, layout_of(state, prepared.schema, state.partition_by, write_id, target, self._room)
        )

    def layout(self, schema: pa.Schema, state: Snapshot | None) -> FileLayout:
        """How tasks make data files of a write; they are named by an id of their own."""
        from safewrite.delta.data.datafiles import layout_of

        first = self.first or creation.NewTable()
        after = creation.unmade(first) if state is None else creation.with_columns(state, schema)
        return layout_of(after, schema, after.partition_by, self.new_id(), self.target_file_size, self._room)

    def in_tasks(self, state: Snapshot | None) -> TableInTasks | None:
        """How tasks reach this version; None where another process cannot reach its store."""
        from safewrite.delta.read.task_reader import DeltaReader
        from safewrite.delta.write.tasks import DeltaFiles
        from safewrite.engine.task_files import TableInTasks

        store = None if state is None else self.connection.store()
        if state is None or store is None:
            return None
        limits, layout = self.limits.elsewhere(), self.layout(state.schema, state)
        files = DeltaFiles(store, layout, self.connection.world.wall_ms(), limits)
        return TableInTasks(
            MemberWriter(state.schema, state.partition_by, files, layout=_written_by(state)),
            DeltaReader(store, state.version, state.protocol, state.metadata, limits),
        )

    def _common(self, prepared: Prepared, named: Write, state: Snapshot | None) -> dict[str, Any]:
        now_ms = self.connection.world.wall_ms()
        changes = creation.actions(
            state,
            prepared,
            self.connection.properties(),
            first=self.first,
            new_id=self.new_id,
            now_ms=now_ms,
        )
        return {
            "commit_id": self.new_id(),
            "write": named,
            "timestamp_ms": now_ms,
            "stamper": Stamper(self.connection.world.wall_ms),
            "limits": self.limits,
            "state": state,
            "metadata": changes.metadata,
            "protocol": changes.protocol,
            "recording_arbiter": changes.recording_arbiter,
            "engine_version": __version__,
        }


def _written_by(state: Snapshot) -> object:
    """What else files of new rows are written by than a schema; picklable, and not to be changed between their tasks and their commit."""
    from safewrite.delta.data.datafiles import indexed_of

    return indexed_of(state), row_rules.rules_of(state), version_of(state), materializes(state)


def _there(state: Snapshot | None) -> Snapshot:
    """The table that deletes and changes need."""
    if state is None:
        raise InternalError("Deletes and changes need a table. Nothing was written. Please report it.")
    return state
