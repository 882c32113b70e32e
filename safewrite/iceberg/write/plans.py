"""Turns a caller's data into something that can be committed: conformed rows, a name, files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.arguments.reading import SchemaMode, reading
from safewrite.errors import InvalidInputError
from safewrite.frames.prepare import Prepared, prepare
from safewrite.frames.source import as_frame
from safewrite.frames.task_files import MemberWriter, WrittenMember
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.data import defaults
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.schema import arrow_schema, iceberg_schema, written_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write import creation
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.earlier_writes import base_of
from safewrite.iceberg.write.evolution import Evolution, beyond, evolve, evolved
from safewrite.iceberg.write.marked_rows import KnownMarks
from safewrite.iceberg.write.renamed import check_names
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.summary import Write
from safewrite.protocol.ask import Limits
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.keys import Identity
from safewrite.table.planning import overwriting
from safewrite.values.widening import wider_fields

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from safewrite.changes.meaning.member_batches import MemberChanges
    from safewrite.changes.meaning.reading import Changes, NewColumns
    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.tasks.one_part import OnePart
    from safewrite.engine.abc import Engine
    from safewrite.engine.task_files import TableInTasks
    from safewrite.frames.fingerprint import Counted, Fingerprint
    from safewrite.frames.predicate import Predicate
    from safewrite.iceberg.connect import Connection
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.apply import ApplyPlan
    from safewrite.iceberg.write.compaction import CompactionPlan
    from safewrite.iceberg.write.overwrite import ReplacePlan
    from safewrite.stores.world import Performer
    from safewrite.table.operation import Operation
    from safewrite.upkeep.groups import Group


@dataclass
class Planner:
    """Makes plans for one table.  ``target_file_size`` is in bytes; None goes by the table's property."""

    limits: Limits
    target_file_size: int | None = None
    branch: str = MAIN
    new_id: Callable[[], str] = field(default=lambda: str(uuid.uuid4()))
    ledger_in: Callable[[TableVersion], dict[str, str]] = field(default=lambda head: {})
    """What a table version is to record of the ledger."""
    known: KnownManifests = field(default_factory=KnownManifests)
    marks: KnownMarks = field(default_factory=KnownMarks, repr=False)
    catalog: Catalog | None = None
    """What tells tasks how to reach files of the table; None: it does not."""

    def schema_of(self, head: TableVersion) -> pa.Schema:
        """The schema of the table."""
        return written_schema(table_of(head).metadata.schema())

    def base_of(self, head: TableVersion) -> int:
        """The version that a generated key names."""
        return base_of(head)

    def first(
        self, connection: Connection, how: creation.NewTable, data: Any, operation: Operation | None = None
    ) -> creation.TableDraft:
        """The table that a first write would make; the write is checked against it, so that one that is refused makes none.

        Raises:
            As ``creation.draft`` and :meth:`rehearse`.
        """
        made = creation.draft(connection, inferred_schema(data), how)
        if operation is not None:
            self.rehearse(data, operation, made.head)
        return made

    def rehearse(self, data: Any, operation: Operation, head: TableVersion) -> None:
        """Check a first write against the table that it would make.

        Raises:
            As :meth:`plan`; and what would be refused when files are made, or at the commit.
        """
        from safewrite.iceberg.data.grouping import groups

        prepared = self.prepare(data, head, operation.schema_mode, operation.volatile)
        write = self.name(prepared, Identity(), head)
        if operation.verb == "append":
            plan = self.appending(prepared, write, head)
        else:
            plan = overwriting(self, prepared, operation.where, write, head)
        plan.positions = operation.positions
        plan.check_positions(head)
        groups(prepared, table_of(head).metadata.spec(), plan.schema)

    def changing(
        self,
        named: Write,
        spec: Spec,
        head: TableVersion,
        *,
        changes: Changes | None = None,
        group: tuple[MemberChanges, ...] = (),
    ) -> tuple[ApplyPlan, Callable[[], Iterable[StagedFile]]]:
        """A plan that applies changes by key and sequence; it makes its files itself, on each base."""
        from safewrite.changes.members.joined_changes import sharing
        from safewrite.iceberg.write.apply import ApplyPlan
        from safewrite.iceberg.write.new_columns import evolution_of
        from safewrite.iceberg.write.table_files import PlannedTable

        columns = (group[-1].changes if changes is None else changes).columns
        how = self.applying(named, head, evolution_of(head, columns))
        plan = ApplyPlan(**how, spec=spec, planned_table=PlannedTable(known=self.marks))
        plan.work = work = self._one_part(plan, spec, head, changes=changes, group=group)
        plan.joined = None if changes is None else sharing(named.key, changes, spec, work)
        return plan, tuple

    def _one_part(
        self,
        plan: ApplyPlan,
        spec: Spec,
        head: TableVersion,
        *,
        changes: Changes | None = None,
        group: tuple[MemberChanges, ...] = (),
    ) -> OnePart:
        """Changes that are decided about where the plan is."""
        from safewrite.changes.tasks.one_part import OnePart
        from safewrite.iceberg.data.lineage import id_columns
        from safewrite.iceberg.write.table_files import IcebergTableFiles

        size, table = self.target_bytes(head), plan.planned_table
        files = IcebergTableFiles(plan.write_id, size, self.limits, planned=table)
        lasting, schema = id_columns(table_of(head).metadata), arrow_schema(plan.schema)
        group = tuple(replace(one, changes=one.changes.under(schema)) for one in group)
        return OnePart(spec, schema, files, changes, group, lasting=lasting)

    def applying(self, write: Write, head: TableVersion, evolution: Evolution | None) -> dict[str, Any]:
        """The settings of a plan that applies changes."""
        from safewrite.iceberg.write.memory_file import MemoryFile

        common, size = self.common(write, head, evolution), self.target_bytes(head)
        return {**common, "target_file_size": size, "memory": MemoryFile(self.branch)}

    def read(self, data: Any, spec: Spec, head: TableVersion, earlier: NewColumns | None = None) -> Changes:
        """Check changes; as ``safewrite.changes.meaning.reading.read``."""
        from safewrite.changes.meaning.new_columns import schema_of
        from safewrite.changes.meaning.reading import read
        from safewrite.iceberg.write.new_columns import asked, evolution_of

        check_names(spec, head)
        spec, columns = asked(spec, head, partial(schema_of, data, self.schema_of(head)), earlier)
        changes = read(data, spec, self.schema_of(evolved(head, evolution_of(head, columns))))
        return replace(changes, columns=columns)

    def name_changes(self, fingerprint: Fingerprint, name: Identity, head: TableVersion) -> Write:
        """Name changes with this fingerprint."""
        key = name.key_for(self.new_id, base_of(head))
        return Write(key, str(fingerprint), 0, txn=name.txn, changes={})

    def prepare_next(
        self,
        data: Any,
        operation: Operation,
        head: TableVersion,
        earlier: Sequence[Prepared],
    ) -> Prepared:
        """As :meth:`prepare`, for a member of a group whose earlier ones may bring new columns.

        ``added`` of the result are the new columns of all so far.
        """
        mode, volatile = operation.schema_mode, operation.volatile
        target = earlier[-1].schema if earlier else self.schema_of(head)
        if isinstance(data, WrittenMember):
            return data.prepared(target, layout=table_of(head).metadata.default_spec_id)
        data = defaults.filled_data(data, table_of(head).metadata, target)
        if mode is None:
            return prepare(data, target, volatile=volatile)
        added = earlier[-1].added if earlier else ()
        found = as_frame(data, target=target).arrow_schema()
        new = beyond(target, found)
        if new:
            added = (*added, *new)
            evolution = evolve(head, added)
            target = written_schema(evolution.schema if evolution else table_of(head).metadata.schema())
        return replace(prepare(data, target, schema_mode=mode, volatile=volatile), added=added)

    def fitting(self, prepared: Prepared, head: TableVersion | None) -> Prepared:
        """The rows: each partition has room, whatever its values are, and no rule of Iceberg's is for rows."""
        metadata = None if head is None else table_of(head).metadata
        fills = metadata and (defaults.fills_of(metadata) or defaults.nested_defaults(metadata))
        return replace(prepared, is_filled=True) if fills else prepared

    def count(self, data: Any, operation: Operation, head: TableVersion) -> Prepared:
        """The rows under the table's schema, which may have more columns than they."""
        return self.prepare(data, head, "merge", operation.volatile)

    def prepare(
        self,
        data: Any,
        head: TableVersion,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] = (),
    ) -> Prepared:
        """Check the data against the table's schema, or against that schema with the new columns and wider ones that it tells."""
        target = self.schema_of(head)
        data = defaults.filled_data(data, table_of(head).metadata, target)
        if schema_mode is None:
            return prepare(data, target, volatile=volatile)
        found = as_frame(data, target=target).arrow_schema()
        wider = wider_fields(target, found, "iceberg") if schema_mode == "widen" else ()
        added = beyond(target, found)
        evolution = evolve(head, added, wider)
        if evolution is not None:
            target = written_schema(evolution.schema)
        prepared = prepare(data, target, schema_mode="merge", volatile=volatile)
        return replace(prepared, added=tuple(added), wider=tuple(wider))

    def name(self, counted: Counted, name: Identity, head: TableVersion) -> Write:
        """Name the write by the caller's key or batch, or by a generated key."""
        key = name.key_for(self.new_id, base_of(head))
        return Write(
            key,
            str(counted.fingerprint),
            counted.rows,
            txn=name.txn,
            volatile=counted.volatile,
            columns=counted.column_digests if name.is_given else "",
        )

    def appending(self, prepared: Prepared, named: Write, head: TableVersion) -> AppendPlan:
        """A plan that adds rows."""
        return AppendPlan(**self.common(named, head, evolve(head, prepared.added, prepared.wider)))

    def replacing(
        self,
        prepared: Prepared,
        named: Write,
        predicate: Predicate,
        head: TableVersion,
        *,
        deletes: bool = False,
    ) -> ReplacePlan:
        """A plan that takes out the rows for which ``predicate`` is true, and adds rows unless it ``deletes``."""
        return self.replace(
            named, head, predicate, evolve(head, prepared.added, prepared.wider), deletes=deletes
        )

    def replace(
        self,
        named: Write,
        head: TableVersion,
        predicate: Predicate,
        evolution: Evolution | None = None,
        *,
        deletes: bool = False,
    ) -> ReplacePlan:
        """As :meth:`replacing`, for a schema that is known."""
        from safewrite.iceberg.write.overwrite import ReplacePlan

        return ReplacePlan(
            **self.common(named, head, evolution),
            predicate=predicate,
            operation="delete" if deletes else "overwrite",
            target_file_size=self.target_bytes(head),
        )

    def compaction(
        self,
        groups: Sequence[Group],
        head: TableVersion,
        listing: KnownManifests,
        world: Performer,
        engine: Engine[Any] | None,
    ) -> CompactionPlan:
        """A plan that puts the files of each group together, by an engine if its tasks reach them; else in this world.

        ``listing`` is that of the groups' inventory.
        """
        from safewrite.iceberg.catalog.addresses import address_of
        from safewrite.iceberg.write.compaction import CompactionPlan, GroupRewriter
        from safewrite.iceberg.write.table_files import IcebergTableFiles, PlannedTable
        from safewrite.table.regrouping import Regrouping

        nothing = Prepared.kept(pa.Table.from_batches([], self.schema_of(head)))
        common = self.common(self.name(nothing, Identity(), head), head)
        address = None if engine is None or self.catalog is None else address_of(head, self.catalog)
        limits, planned = self.limits if address is None else self.limits.elsewhere(), PlannedTable(head)
        target = self.target_bytes(head)
        files = IcebergTableFiles(common["write_id"], target, limits, address, planned)
        work = Regrouping[Any, Any, Any](groups, GroupRewriter(files), world, engine if address else None)
        return CompactionPlan(**common, work=work, listing=listing)

    def in_tasks(self, head: TableVersion) -> TableInTasks | None:
        """How tasks reach this version; None where another process cannot reach its files."""
        from safewrite.engine.task_files import TableInTasks
        from safewrite.iceberg.catalog.addresses import address_of
        from safewrite.iceberg.read.task_reader import IcebergReader
        from safewrite.iceberg.write.tasks import IcebergFiles, piece_bytes

        address = None if self.catalog is None else address_of(head, self.catalog)
        if address is None:
            return None
        metadata, limits = table_of(head).metadata, self.limits.elsewhere()
        schema, spec_id = metadata.schema(), metadata.default_spec_id
        files = IcebergFiles(address, schema, self.new_id(), self.target_bytes(head), limits)
        return TableInTasks(
            MemberWriter(written_schema(schema), (), files, piece_bytes(head), spec_id),
            IcebergReader(address, limits),
        )

    def common(self, named: Write, head: TableVersion, evolution: Evolution | None = None) -> dict[str, Any]:
        """The settings of every plan."""
        return {
            "write": named,
            "snapshot_id": table_of(head).metadata.new_snapshot_id(),
            "write_id": self.new_id(),
            "planned": head,
            "staging": Staging(self.limits),
            "limits": self.limits,
            "ledger_in": self.ledger_in,
            "evolution": evolution,
            "branch": self.branch,
            "known": self.known,
        }

    def encode(self, prepared: Prepared, plan: AppendPlan) -> Iterable[StagedFile]:
        """Parquet files of the rows, made one by one as they are asked for."""
        from safewrite.iceberg.data.datafiles import encode

        table = table_of(plan.planned)
        return encode(
            prepared,
            metadata=table.metadata,
            schema=plan.schema,
            location=table.location_provider(),
            write_id=plan.write_id,
            target_file_size=self.target_bytes(plan.planned),
        )

    def encode_group(
        self, prepared: Prepared, written: Iterable[Any], plan: AppendPlan
    ) -> Iterable[StagedFile]:
        """The same of members, some of which come with files that tasks have ``written``."""
        plan.staging.take(written)
        return self.encode(prepared, plan)

    def target_bytes(self, head: TableVersion) -> int:
        """The bytes after which another data file begins."""
        from safewrite.iceberg.data.datafiles import target_file_size

        return self.target_file_size or target_file_size(head.properties)


@reading("The data")
def inferred_schema(data: Any) -> pa.Schema:
    """The Arrow schema of a table made for this data.

    Raises:
        InvalidInputError: a column has a type that no table can have.
    """
    found = as_frame(data, target=None).arrow_schema()
    if not found.names:
        raise InvalidInputError(
            "The data has no columns, so no table schema can be inferred from it. Nothing was written. Give it columns, "
            "or make the table with safewrite.create(name, schema=..., catalog=...)."
        )
    return arrow_schema(iceberg_schema(found))
