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
from safewrite.frames import Prepared, as_frame, joined, prepare
from safewrite.frames.prepare import refuse_untyped
from safewrite.frames.written import MemberWriter, WrittenMember, files_of
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.schema import arrow_schema, iceberg_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write import creation
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.earlier import base_of
from safewrite.iceberg.write.evolution import Evolution, evolve
from safewrite.iceberg.write.renamed import check_names
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.summary import Write
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.keys import Identity
from safewrite.table.group import changes_of
from safewrite.values.widening import wider_fields

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from safewrite.changes.meaning.member_batches import MemberChanges
    from safewrite.changes.meaning.reading import Changes
    from safewrite.changes.meaning.spec import Spec
    from safewrite.changes.tasks.one_part import OnePart
    from safewrite.engine.written import TableInTasks
    from safewrite.frames.fingerprint import Counted, Fingerprint
    from safewrite.frames.predicate import Predicate
    from safewrite.frames.where import Where
    from safewrite.iceberg.connect import Connection
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.apply import ApplyPlan
    from safewrite.iceberg.write.compaction import CompactionPlan
    from safewrite.iceberg.write.overwrite import ReplacePlan
    from safewrite.table.group import Member
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
    catalog: Catalog | None = None
    """What tells tasks how to reach files of the table; None: it does not."""

    def plan(
        self, data: Any, operation: Operation, name: Identity, head: TableVersion
    ) -> tuple[AppendPlan, Callable[[], Iterable[StagedFile]]]:
        """Check the data and plan its write; the plan brings the encoder of its files."""
        if operation.verb == "delete":
            return self.delete(operation.where, name, head), tuple
        if operation.verb == "apply_changes" and operation.changes is not None:
            return self.apply_changes(data, operation.changes, name, head), tuple
        prepared, evolution = self.prepare(data, head, operation.schema_mode, operation.volatile)
        if operation.verb == "append":
            plan = self.append(self.name(prepared, name, head), head, evolution)
        else:
            plan = self._overwrite(prepared, evolution, operation.where, name, head)
        return plan, partial(self.encode, prepared, plan)

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

        prepared, evolution = self.prepare(data, head, operation.schema_mode, operation.volatile)
        if operation.verb == "append":
            plan = self.append(self.name(prepared, Identity(), head), head, evolution)
        else:
            plan = self._overwrite(prepared, evolution, operation.where, Identity(), head)
        plan.positions = operation.positions
        plan.check_positions(head)
        groups(prepared, table_of(head).metadata.spec(), plan.schema)

    def delete(self, where: Any, name: Identity, head: TableVersion) -> ReplacePlan:
        """A plan that removes the rows for which ``where`` is true."""
        from safewrite.frames.where import parse
        from safewrite.iceberg.write.overwrite import named_replace

        nothing, _ = self.prepare(_schema(head).empty_table(), head)
        predicate = parse(where, nothing.schema)
        write = named_replace(self.name(nothing, name, head), predicate, "delete")
        return self.replace(write, head, predicate, deletes=True)

    def apply_changes(self, data: Any, spec: Spec, name: Identity, head: TableVersion) -> ApplyPlan:
        """A plan that applies changes by key and sequence; it makes its files itself, on each base."""
        from safewrite.changes.members.joined_changes import sharing
        from safewrite.iceberg.write.apply import ApplyPlan

        changes = _read(data, spec, head)
        plan = ApplyPlan(**self.applying(changes.fingerprint, spec, head, name), spec=spec)
        plan.work = self._one_part(plan, spec, head, changes=changes)
        plan.joined = sharing(plan.write.key, changes, spec, plan.work)
        return plan

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
        from safewrite.iceberg.write.table_files import IcebergTableFiles

        size, table = self.target_bytes(head), plan.planned_table
        files = IcebergTableFiles(plan.write_id, size, self.limits, planned=table)
        return OnePart(spec, _schema(head), files, changes, group)

    def applying(
        self, fingerprint: Fingerprint, spec: Spec, head: TableVersion, name: Identity
    ) -> dict[str, Any]:
        """The settings of a plan that applies changes with this fingerprint."""
        from safewrite.frames.replace_where import EVERYTHING
        from safewrite.iceberg.write.overwrite import named_replace

        key = name.key_for(self.new_id, base_of(head))
        write = Write(key, str(fingerprint), 0, txn=name.txn, changes={})
        if spec.full_refresh:
            write = named_replace(write, EVERYTHING, "full_refresh")
        return self._applying(write, head)

    def _applying(self, write: Write, head: TableVersion) -> dict[str, Any]:
        from safewrite.iceberg.write.memory_file import MemoryFile

        common, size = self._common(write, head, None), self.target_bytes(head)
        return {**common, "target_file_size": size, "memory": MemoryFile(self.branch)}

    def read_changes(
        self, data: Any, operation: Operation, name: Identity, head: TableVersion
    ) -> tuple[Changes, Write]:
        """The changes of a member of a group, and their write."""
        assert operation.changes is not None
        changes = _read(data, operation.changes, head)
        key = name.key_for(self.new_id, base_of(head))
        return changes, Write(key, str(changes.fingerprint), 0, txn=name.txn, changes={})

    def _group_of_changes(
        self, members: Sequence[Member], spec: Spec, head: TableVersion
    ) -> tuple[AppendPlan, Callable[[Sequence[Write]], Iterable[StagedFile]]]:
        """One plan that applies the changes of all members."""
        from safewrite.iceberg.write.apply import ApplyPlan

        writes = [member.write for member in members if isinstance(member.write, Write)]
        key = keys.generated(self.new_id(), base_of(head))
        plan = ApplyPlan(**self._applying(Write.group(key, writes), head), spec=spec)
        plan.work = self._one_part(plan, spec, head, group=changes_of(members))
        return plan, lambda left: ()

    def _overwrite(
        self,
        prepared: Prepared,
        evolution: Evolution | None,
        where: Where | None,
        name: Identity,
        head: TableVersion,
    ) -> ReplacePlan:
        from safewrite.frames.replace_where import EVERYTHING, check_rows
        from safewrite.frames.where import parse
        from safewrite.iceberg.write.overwrite import named_replace

        predicate = EVERYTHING if where is None else parse(where, prepared.schema)
        check_rows(prepared, predicate)
        write = named_replace(self.name(prepared, name, head), predicate)
        return self.replace(write, head, predicate, evolution)

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
        target = earlier[-1].schema if earlier else _schema(head)
        if isinstance(data, WrittenMember):
            return data.prepared(target, layout=table_of(head).metadata.default_spec_id)
        if mode is None:
            return prepare(data, target, volatile=volatile)
        added = earlier[-1].added if earlier else ()
        found = as_frame(data, target=target).arrow_schema()
        new = _beyond(target, found)
        if new:
            added = (*added, *new)
            evolution = evolve(head, added)
            target = arrow_schema(evolution.schema if evolution else table_of(head).metadata.schema())
        return replace(prepare(data, target, schema_mode=mode, volatile=volatile), added=added)

    def fitting(self, prepared: Prepared, head: TableVersion | None) -> Prepared:
        """The rows: each partition has room, whatever its values are, and no rule of Iceberg's is for rows."""
        return prepared

    def count(self, data: Any, operation: Operation, head: TableVersion) -> Prepared:
        """The rows under the table's schema, which may have more columns than they."""
        return self.prepare(data, head, "merge", operation.volatile)[0]

    def group(
        self, members: Sequence[Member], operation: Operation, head: TableVersion
    ) -> tuple[AppendPlan, Callable[[Sequence[Write]], Iterable[StagedFile]]]:
        """One plan of all members; its encoder takes those whose files it is to make."""
        if operation.changes is not None:
            return self._group_of_changes(members, operation.changes, head)
        parts = {member.write.key: member.prepared for member in members if member.write and member.prepared}
        last = list(parts.values())[-1]
        writes = [member.write for member in members if isinstance(member.write, Write)]
        key = keys.generated(self.new_id(), base_of(head))
        plan = self.append(Write.group(key, writes), head, evolve(head, last.added))

        def encode(left: Sequence[Write]) -> Iterable[StagedFile]:
            some = [parts[write.key] for write in left]
            plan.staging.take(files_of(some))
            return self.encode(joined(some, last.schema), plan)

        return plan, encode

    def prepare(
        self,
        data: Any,
        head: TableVersion,
        schema_mode: SchemaMode | None = None,
        volatile: Sequence[str] = (),
    ) -> tuple[Prepared, Evolution | None]:
        """Check the data against the table's schema, or against that schema with the new columns and wider ones."""
        target = _schema(head)
        if schema_mode is None:
            return prepare(data, target, volatile=volatile), None
        found = as_frame(data, target=target).arrow_schema()
        wider = wider_fields(target, found, "iceberg") if schema_mode == "widen" else ()
        evolution = evolve(head, _beyond(target, found), wider)
        if evolution is not None:
            target = arrow_schema(evolution.schema)
        return prepare(data, target, schema_mode="merge", volatile=volatile), evolution

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

    def append(self, named: Write, head: TableVersion, evolution: Evolution | None = None) -> AppendPlan:
        """A plan that adds rows."""
        return AppendPlan(**self._common(named, head, evolution))

    def replace(
        self,
        named: Write,
        head: TableVersion,
        predicate: Predicate,
        evolution: Evolution | None = None,
        *,
        deletes: bool = False,
    ) -> ReplacePlan:
        """A plan that removes the rows for which ``predicate`` is true, and adds rows unless it ``deletes``."""
        from safewrite.iceberg.write.overwrite import ReplacePlan

        return ReplacePlan(
            **self._common(named, head, evolution),
            predicate=predicate,
            operation="delete" if deletes else "overwrite",
            target_file_size=self.target_bytes(head),
        )

    def compaction(self, groups: Sequence[Group], head: TableVersion) -> CompactionPlan:
        """A plan that puts the files of each group together."""
        from safewrite.iceberg.write.compaction import CompactionPlan
        from safewrite.table.regrouping import Regrouping

        nothing = Prepared.kept(pa.Table.from_batches([], _schema(head)))
        common = self._common(self.name(nothing, Identity(), head), head, None)
        return CompactionPlan(**common, target_file_size=self.target_bytes(head), work=Regrouping(groups))

    def in_tasks(self, head: TableVersion) -> TableInTasks | None:
        """How tasks reach this version; None where another process cannot reach its files."""
        from safewrite.engine.written import TableInTasks
        from safewrite.iceberg.catalog.travel import address_of
        from safewrite.iceberg.read.task_reader import IcebergReader
        from safewrite.iceberg.write.tasks import IcebergFiles, piece_bytes

        address = None if self.catalog is None else address_of(head, self.catalog)
        if address is None:
            return None
        metadata, limits = table_of(head).metadata, self.limits.elsewhere()
        schema, spec_id = metadata.schema(), metadata.default_spec_id
        files = IcebergFiles(address, schema, self.new_id(), self.target_bytes(head), limits)
        return TableInTasks(
            MemberWriter(arrow_schema(schema), (), files, piece_bytes(head), spec_id),
            IcebergReader(address, limits),
        )

    def _common(self, named: Write, head: TableVersion, evolution: Evolution | None) -> dict[str, Any]:
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

    def target_bytes(self, head: TableVersion) -> int:
        """The bytes after which another data file begins."""
        from safewrite.iceberg.data.datafiles import target_file_size

        return self.target_file_size or target_file_size(head.properties)


def _schema(head: TableVersion) -> pa.Schema:
    return arrow_schema(table_of(head).metadata.schema())


def _read(data: Any, spec: Spec, head: TableVersion) -> Changes:
    from safewrite.changes.meaning.reading import read

    check_names(spec, head)
    return read(data, spec, _schema(head))


def _beyond(target: pa.Schema, found: pa.Schema) -> list[pa.Field]:
    """The fields that the target lacks.

    Raises:
        InvalidInputError: one of them has no type.
    """
    there = frozenset(target.names)
    new = [field for field in found if field.name not in there]
    refuse_untyped(new)
    return new


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
