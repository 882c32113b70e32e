"""Stages an append as the next snapshot: data files, one manifest, a manifest list per attempt."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safewrite.errors import ConflictError, Kind, SafewriteError
from safewrite.iceberg import branch_properties
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.catalog.commit_request import CommitRequest
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import (
    added_manifest,
    manifest_list,
    manifests_of,
    snapshot,
)
from safewrite.iceberg.features import check_write
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write import positions as told
from safewrite.iceberg.write import waiting
from safewrite.iceberg.write.abc import WaitingFiles
from safewrite.iceberg.write.file_changes import (
    NOTHING,
    IcebergChange,
    Manifests,
    delete_manifests,
    without_files,
)
from safewrite.iceberg.write.members import REMOVED_ROWS
from safewrite.iceberg.write.merging import Merging
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.summary import RowlessWrite, Write, find, find_members
from safewrite.protocol.accounts import check_added
from safewrite.protocol.ask import Limits, wall_ms
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.iceberg.failures import begun_again, replaced
from safewrite.protocol.iceberg.head import HELD, HELD_OF, TableVersion
from safewrite.protocol.members import MembersMetError, Met
from safewrite.protocol.positions import Moves, must_stand

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableRequirement, TableUpdate

    from safewrite.iceberg.write.evolution import Evolution


@dataclass
class AppendPlan:
    """A blind append: it reads nothing, so only changes of schema or partitioning can stop it.

    Other plans say on each base what becomes of the files that are there; how a snapshot says it is the same for all of them.
    ``snapshot_id`` is drawn before and stays the same through all attempts.  ``planned`` is the table version
    that the data files were made for.
    """

    write: Write
    snapshot_id: int
    write_id: str
    planned: TableVersion
    staging: Staging
    limits: Limits
    operation: str = "append"
    """The snapshot's ``operation``; that of a delete which writes rows again is ``overwrite``."""
    change: IcebergChange = NOTHING
    """What becomes of the files that are there, by the last plan."""
    evolution: Evolution | None = None
    branch: str = MAIN
    known: KnownManifests = field(default_factory=KnownManifests, repr=False)
    """What manifests say that were decoded before, and the list that was read or uploaded last; shared by the plans of one table."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """What the caller wants the summary to say."""
    ledger_in: Callable[[TableVersion], dict[str, str]] = field(default=lambda head: {}, repr=False)
    """What a table version is to record of the ledger."""
    positions: Moves = field(default_factory=dict)
    """How far this snapshot takes the caller's sources."""
    met: dict[str, Met | SafewriteError] = field(default_factory=dict)
    """Writes that were found in other snapshots, or are at fault, by key."""
    attempt: int = 0
    rebases: bool = False
    rebased: int = 0
    """How often the plan was brought to a new base, where what was decided on the last one held."""
    bound: TableVersion | None = None
    taken: tuple[WaitingFiles, ...] = ()
    """Writes of other processes that this attempt commits too."""
    through: int | None = None
    """The sequence number up to which others may commit this write, where it ended in doubt of that."""
    _manifest: ManifestFile | None = field(default=None, repr=False)
    """The manifest of the new files, which serves every attempt."""
    _merging: Merging = field(default_factory=Merging, repr=False)
    _unmarked: Sequence[DataFile] = ()
    """Deletes that went with their data files, or that vectors took the place of, by the last attempt."""

    @property
    def schema(self) -> Schema:
        """The schema that the rows were written under."""
        return self.evolution.schema if self.evolution else table_of(self.planned).metadata.schema()

    @property
    def appends(self) -> bool:
        """Whether the snapshot adds rows and does nothing to those that are there."""
        return self.operation == "append"

    @property
    def sharer(self) -> waiting.SharedSnapshot | None:
        """The write as one that others may commit; None where it does more than to add files to a table."""
        fits = self.may_share and not self.write.members and type(self) is AppendPlan
        return waiting.SharedSnapshot(self, self.planned) if fits else None

    @property
    def may_share(self) -> bool:
        """Whether the commit does no more than its verb says, to a table that numbers its snapshots."""
        alone = self.evolution or self.positions or self.properties
        return not alone and table_of(self.planned).metadata.format_version >= waiting.FORMAT_MIN

    def carry(self, taken: Sequence[WaitingFiles], write_id: str) -> None:
        """Commit these writes too."""
        if taken or self.taken:
            self.begin_again(write_id)
        self.taken = tuple(taken)

    def begin_again(self, write_id: str) -> None:
        """Be another attempt: with another body go a snapshot and manifests of its own."""
        self.write_id = write_id
        self.snapshot_id = table_of(self.planned).metadata.new_snapshot_id()
        self._manifest, self._merging = None, Merging()

    @property
    def serves_others(self) -> bool:
        """Whether this attempt commits writes whose owners may have met a change of the table by themselves."""
        return bool(self.taken)

    @property
    def whole(self) -> Write:
        """All that the snapshot carries, as one write."""
        return self.write.carrying([one.write for one in self.taken])

    def holding(self, write_id: str, held_s: float) -> AppendPlan:
        """See ``safewrite.protocol.iceberg.change.Plan.holding``."""
        of = {HELD_OF: self.planned.branch_id} if self.planned.branch_id else {}
        return self.saying(write_id, {HELD: f"{held_s:.3f}", **of})

    def saying(self, write_id: str, said: Mapping[str, str]) -> AppendPlan:
        """A snapshot without rows that says something to other writers; it looks for the key in all before it."""
        new_id = table_of(self.planned).metadata.new_snapshot_id()
        write = RowlessWrite(self.write.key, self.write.fingerprint, said=said)
        how: dict[str, Any] = {"branch": self.branch, "known": self.known, "ledger_in": self.ledger_in}
        return AppendPlan(write, new_id, write_id, self.planned, Staging(self.limits), self.limits, **how)

    def examine(self, head: TableVersion) -> int | None:
        """The snapshot that carries this write already; see ``safewrite.protocol.iceberg.commit.Plan``.

        Raises:
            ReplayMismatchError: the key is there with other rows.
            ConflictError: kind SCHEMA_CHANGED; the files must be made again (H9).
            UnsupportedTableError: the table became one that may only be read.
        """
        found = None if self.write.members else find(head, self.write)
        if found is not None:
            self.met[self.write.key] = found
            return found.version
        check_write(head)
        check_unchanged(self.planned, head)
        self._meet(head)
        return None

    def _meet(self, head: TableVersion) -> None:
        """Note the members that a table version carries.

        Raises:
            MembersMetError: there are some.
        """
        self.met |= find_members(head, self.write.members)
        if self.met:
            raise MembersMetError("Members were committed meanwhile. Nothing of this group was committed.")

    def check_positions(self, head: TableVersion) -> None:
        """Refuse to move positions that are elsewhere in a table version."""
        if self.positions:
            must_stand(told.positions_of(head, self.positions), self.positions, self.write.key)

    def without(self, known: Container[str], write_id: str) -> None:
        """Go on without the members of these keys, as another snapshot with other files."""
        left = [write for write in self.write.members if write.key not in known]
        self.write = Write.group(self.write.key, left)
        self.begin_again(write_id)
        self.staging = Staging(self.limits)

    def stage(self, head: TableVersion) -> Generator[Effect, Outcome, CommitRequest]:
        """Upload what is not there yet, and write the manifest list of this attempt.

        Raises:
            ConflictError: kind POSITION_MOVED.  Only here, when it is known that no table version since the last carries
                this write: an earlier attempt may have landed, and others have gone on from its positions.
        """
        self.check_positions(head)
        self.bound = head
        made, puts = yield from self.new_manifests(head)
        name = f"{self.write_id}-{self.attempt}-merged"
        manifests, more = yield from self._merging.merge(
            head,
            made,
            snapshot_id=self.snapshot_id,
            schema=self.schema,
            known=self.known,
            limits=self.limits,
            new_location=lambda number: self.new_location(head, f"{name}{number}.avro"),
        )
        location = self.new_location(head, f"snap-{self.snapshot_id}-{self.attempt}-{self.write_id}.avro")
        self.attempt += 1
        body, listed, lineage = manifest_list(
            table_of(head).metadata,
            self.snapshot_id,
            head.current,
            manifests,
            location,
            header=self.whole.list_header(),
        )
        yield from self.staging.complete((*puts, *more, Put(location, body, name="stage.put_manifest_list")))
        self.known.note_list(head.table_id, location, listed)
        return self._change(head, location, (yield from wall_ms()), lineage)

    def new_manifests(self, head: TableVersion) -> Generator[Effect, Outcome, Manifests]:
        """The manifests of the snapshot on this base, and the uploads they still need."""
        yield from self._plan(head)
        change, at = self.change, f"{self.write_id}-{self.attempt}"
        how: dict[str, Any] = {"snapshot_id": self.snapshot_id, "schema": self.schema}
        added, puts = (
            self.added_manifests(head, self.write_id if self.appends else at)
            if self._manifest is None
            else ([self._manifest], ())
        )
        if self.appends:
            self._manifest = added[0] if added else None
        kept, more, self._unmarked = yield from without_files(
            head,
            (yield from self.kept_manifests(head)),
            change.removed,
            change.marks,
            known=self.known,
            limits=self.limits,
            new_location=lambda number: self.new_location(head, f"{at}-m{number}.avro"),
            **how,
        )
        deletes, last = delete_manifests(
            head,
            change.marks,
            new_location=lambda spec_id: self.new_location(head, f"{at}-d{spec_id}.avro"),
            **how,
        )
        return [*added, *kept, *deletes], (*more, *puts, *last)

    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Decide on this base what becomes of the files that are there; a blind append reads nothing."""
        yield from ()

    def kept_manifests(self, head: TableVersion) -> Generator[Effect, Outcome, list[ManifestFile]]:
        """The manifests of the current snapshot that the next one keeps."""
        if head.current is None:
            return []
        current = table_of(head).metadata.snapshot_by_id(head.current)
        assert current is not None
        known = self.known.listed(head.table_id, current.manifest_list)
        if known is not None:
            return [one for one in known if one.has_added_files() or one.has_existing_files()]
        return (yield from manifests_of(current, self.limits, "stage.get_manifest_list"))

    @property
    def added(self) -> Sequence[DataFile]:
        """Data files that the snapshot adds."""
        taken = (file for one in self.taken for file in one.files)
        return [*self.staging.data_files, *taken, *self.change.rewritten, *self.change.added]

    def added_manifests(self, head: TableVersion, name: str) -> Manifests:
        """A manifest of the new files, if there are any, and its upload."""
        if not self.added:
            return [], ()
        location = self.new_location(head, f"{name}-m0.avro")
        made, body = added_manifest(
            table_of(head).metadata, self.schema, self.snapshot_id, self.added, location
        )
        return [made], (Put(location, body, name="stage.put_manifest"),)

    def _change(
        self, head: TableVersion, location: str, now_ms: int, lineage: Mapping[str, int]
    ) -> CommitRequest:
        check_added(
            (file.record_count for file in self.added), self.whole.rows, self.change.kept_rows, self.write.key
        )
        from pyiceberg.table.snapshots import Operation

        change, operation = self.change, Operation(self.operation)
        if operation is Operation.DELETE and change.rewritten:
            operation = Operation.OVERWRITE
        removals = {}
        if operation in {Operation.DELETE, Operation.OVERWRITE} and change.removed_rows is not None:
            removals[REMOVED_ROWS] = str(change.removed_rows)
        metadata = table_of(head).metadata
        schema_id = self.evolution.schema_id if self.evolution else metadata.current_schema_id
        made = snapshot(
            metadata,
            operation,
            snapshot_id=self.snapshot_id,
            parent_id=head.current,
            schema=self.schema,
            schema_id=schema_id,
            added=[*self.added, *change.marks],
            removed=[*change.removed, *self._unmarked],
            list_location=location,
            properties={
                **self.properties,
                **self.whole.summary(),
                **removals,
                **told.summary(self.positions),
            },
            now_ms=now_ms,
            lineage=lineage,
        )
        requirements, updates = snapshot_updates(head, made, self._table_properties(head), self.branch)
        if self.evolution:
            requirements = (*requirements, *self.evolution.requirements)
            updates = (*self.evolution.updates, *updates)
        own: tuple[str, ...] = ()
        if self.serves_others:
            # The owner of a member meets a change of the table by itself, and may have raised it by now.
            requirements = (*requirements, *same_layout(metadata))
            made_here = [*([self._manifest] if self._manifest else []), *self._merging.made.values()]
            own = tuple(one.manifest_path for one in made_here)
        return CommitRequest(head, (self.snapshot_id,), requirements, updates, (location, *own))

    def _table_properties(self, head: TableVersion) -> dict[str, str]:
        """Properties of the table, set in the same commit."""
        moved = told.table_properties(self.positions, head.table_id, self.snapshot_id)
        return self.whole.table_properties(head.table_id, self.snapshot_id) | moved | self.ledger_in(head)

    def new_location(self, head: TableVersion, name: str) -> str:
        """The location of a new file of the table's metadata."""
        return table_of(head).location_provider().new_metadata_location(name)


def check_unchanged(planned: TableVersion, head: TableVersion) -> None:
    """Refuse a table version whose schema or partitioning is not the one that the files were made for (H9)."""
    if planned.table_id != head.table_id:
        raise replaced(in_doubt=False)
    if planned.branch_id != head.branch_id:
        raise begun_again()
    then, now = table_of(planned).metadata, table_of(head).metadata
    if (
        then.format_version != now.format_version
        or then.current_schema_id != now.current_schema_id
        or then.default_spec_id != now.default_spec_id
        or then.default_sort_order_id != now.default_sort_order_id
    ):
        raise ConflictError(
            "Another writer changed the table's schema, partitioning, sort order or format version while this write "
            "was under way. Nothing was committed. Open the table again and repeat the call with the same key.",
            kind=Kind.SCHEMA_CHANGED,
        )


def same_layout(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """The requirements that partitioning and order are as they were, and that no field was added."""
    from pyiceberg.table.update import (
        AssertDefaultSortOrderId,
        AssertDefaultSpecId,
        AssertLastAssignedFieldId,
        AssertLastAssignedPartitionId,
    )

    spec, order = metadata.default_spec_id, metadata.default_sort_order_id
    field_, partition = metadata.last_column_id, metadata.last_partition_id
    return (
        AssertDefaultSpecId.model_validate({"default-spec-id": spec}),
        AssertDefaultSortOrderId.model_validate({"default-sort-order-id": order}),
        AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": field_}),
        AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": partition}),
    )


def snapshot_updates(
    head: TableVersion, made: object, properties: dict[str, str], branch: str
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """The requirements and the updates of a snapshot's commit.

    Requiring the schema as well makes a schema change between plan and commit a conflict (H9).
    """
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import (
        AddSnapshotUpdate,
        AssertCurrentSchemaId,
        AssertRefSnapshotId,
        AssertTableUUID,
    )

    assert isinstance(made, Snapshot)
    metadata = table_of(head).metadata
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": head.current}),
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        *(
            AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": at})
            for name, at in branch_properties.led(metadata, branch).items()
        ),
    )
    updates: Sequence[TableUpdate] = (
        *branch_properties.updates(metadata, branch, properties, made.snapshot_id),
        AddSnapshotUpdate(snapshot=made),
        branch_properties.moved(metadata, branch, made.snapshot_id),
    )
    return requirements, tuple(updates)
