"""Makes commit requests bound to a base: updates, and requirements that hold only there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.text.rendering import said

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import StagedTable, Table
    from pyiceberg.table.sorting import SortOrder
    from pyiceberg.table.update import TableRequirement, TableUpdate
    from pyiceberg.typedef import Identifier, Properties

MARK = "safewrite.change"
"""The table property that carries the id of the last change without a snapshot."""


@dataclass(frozen=True)
class CommitRequest:
    """A change that adds snapshots; their ids, drawn before, say whether it landed.

    ``written`` are files that only this change names, besides data files.
    """

    base: TableVersion
    snapshot_ids: tuple[int, ...]
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    written: tuple[str, ...] = ()

    def landed_in(self, head: TableVersion) -> bool:
        return all(snapshot_id in head.parents for snapshot_id in self.snapshot_ids)

    def stands_in(self, head: TableVersion) -> bool:
        """Whether the last snapshot is the current one or an ancestor of it (C5)."""
        return head.is_current(self.snapshot_ids[-1])

    def may_land_on(self, head: TableVersion) -> bool:
        return holds(self.requirements, head)

    def accounted_in(self, head: TableVersion) -> bool:
        return head.accounts_since(self.base)


@dataclass(frozen=True)
class StagedSnapshot(CommitRequest):
    """A change whose snapshots no branch shows, such as one for later publication (WAP)."""

    def stands_in(self, head: TableVersion) -> bool:
        return True

    def accounted_in(self, head: TableVersion) -> bool:
        return head.location == self.base.location


@dataclass(frozen=True)
class MetadataCommit:
    """A change without a snapshot (schema, properties, expiry), known by a mark among the properties."""

    base: TableVersion
    mark: str
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    written: tuple[str, ...] = ()

    def landed_in(self, head: TableVersion) -> bool:
        return head.properties.get(MARK) == self.mark

    def stands_in(self, head: TableVersion) -> bool:
        return True

    def may_land_on(self, head: TableVersion) -> bool:
        """Whether the base's own mark is still there, and what the change requires holds."""
        return holds(self.requirements, head) and head.properties.get(MARK) == self.base.properties.get(MARK)

    def accounted_in(self, head: TableVersion) -> bool:
        """Whether it is the base: a later change overwrites the mark, so only the base shows that it did not land."""
        return head.location == self.base.location


@dataclass(frozen=True)
class RefCommit:
    """A change that moves the branch to a snapshot that the table has already: a fast-forward."""

    base: TableVersion
    snapshot_id: int
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    written: tuple[str, ...] = ()

    def landed_in(self, head: TableVersion) -> bool:
        return self.snapshot_id in head.ancestors()

    def stands_in(self, head: TableVersion) -> bool:
        return True

    def may_land_on(self, head: TableVersion) -> bool:
        return holds(self.requirements, head)

    def accounted_in(self, head: TableVersion) -> bool:
        return head.accounts_since(self.base)


@dataclass(frozen=True)
class CreateRequest:
    """A table to be created, known by the UUID that was drawn for it."""

    staged: Table
    table_id: str
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]

    def landed_in(self, head: TableVersion) -> bool:
        """Whether the table that is there is this one."""
        return head.table_id == self.table_id


@dataclass(frozen=True)
class CreateCall:
    """A table to be created by one request, ``make``, and known by a property: the server stages none, and draws the UUID itself."""

    mark: str
    make: Callable[[], object]

    def landed_in(self, head: TableVersion) -> bool:
        """Whether the table that is there is this one."""
        return head.properties.get(MARK) == self.mark


def creation(
    staged: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> CreateRequest:
    """The creation of a staged table."""
    from pyiceberg.table.update import AssignUUIDUpdate

    drawn = next(str(update.uuid) for update in updates if isinstance(update, AssignUUIDUpdate))
    return CreateRequest(staged, drawn, requirements, updates)


def staged(  # noqa: PLR0917 - PyIceberg's own signature
    catalog: Catalog,
    identifier: str | Identifier,
    schema: Schema | pa.Schema,
    location: str | None,
    partition_spec: PartitionSpec,
    sort_order: SortOrder,
    properties: Properties,
) -> StagedTable:
    """A table to be created in a namespace of several levels.

    PyIceberg's catalogs on databases make such tables, and have no transaction that does (0.12.0).
    """
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import StagedTable, TableProperties
    from pyiceberg.table.locations import load_location_provider
    from pyiceberg.table.metadata import new_table_metadata

    inner: Any = catalog
    names = Catalog.identifier_to_tuple(identifier)
    version = int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
    place = inner._resolve_table_location(location, ".".join(names[:-1]), names[-1])  # noqa: SLF001 - as its create_table
    metadata = new_table_metadata(
        location=place,
        schema=inner._convert_schema_if_needed(schema, version),  # noqa: SLF001 - as above
        partition_spec=partition_spec,
        sort_order=sort_order,
        properties=properties,
    )
    where = load_location_provider(place, properties).new_table_metadata_file_location()
    file_io = inner._load_file_io(properties=properties, location=where)  # noqa: SLF001 - as above
    return StagedTable(names, metadata, where, file_io, catalog)


def unmet(requirements: Sequence[TableRequirement], head: TableVersion) -> str:
    """PyIceberg's sentence about the first requirement that does not hold; "" if all do."""
    from pyiceberg.exceptions import CommitFailedException

    metadata = table_of(head).metadata
    for requirement in requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as error:
            return f"{said(error)}. "
    return ""


def holds(requirements: Sequence[TableRequirement], head: TableVersion) -> bool:
    """Whether a catalog would find all requirements met by that metadata."""
    return not unmet(requirements, head)


def bind(
    base: TableVersion,
    requirements: tuple[TableRequirement, ...],
    updates: tuple[TableUpdate, ...],
    *,
    mark: str,
) -> CommitRequest | MetadataCommit:
    """A commit request for another caller's change, with what tells whether it landed.

    ``mark`` becomes a table property where the change adds no snapshot.
    """
    from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

    ids = tuple(u.snapshot.snapshot_id for u in updates if isinstance(u, AddSnapshotUpdate))
    if not ids:
        marked = (*updates, SetPropertiesUpdate(updates={MARK: mark}))
        return MetadataCommit(base, mark, requirements, marked)
    if any(isinstance(u, SetSnapshotRefUpdate) and u.snapshot_id == ids[-1] for u in updates):
        return CommitRequest(base, ids, requirements, updates)
    return StagedSnapshot(base, ids, requirements, updates)


def branch_of(updates: Sequence[TableUpdate]) -> str:
    """The branch that a change moves; the main one if it moves none."""
    from pyiceberg.table.update import SetSnapshotRefUpdate

    refs = [u.ref_name for u in updates if isinstance(u, SetSnapshotRefUpdate)]
    return refs[-1] if refs else MAIN
