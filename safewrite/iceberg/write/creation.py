"""Creates an Iceberg table: schema from a frame, namespace, and one winner among creators (A20)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.arguments.reading import reading
from safewrite.errors import ConflictError, InvalidInputError, Kind, SafewriteError, StorageError
from safewrite.iceberg.data.schema import iceberg_schema
from safewrite.iceberg.retention import AWS_KEPT_MS, KEEP, KEPT_MS
from safewrite.iceberg.write import namespace
from safewrite.protocol.iceberg.settle import METADATA_READ_MAX
from safewrite.text.rendering import said, shown

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortOrder

    from safewrite.iceberg.connect import Connection
    from safewrite.protocol.iceberg.head import TableVersion

DELETE_METADATA = "write.metadata.delete-after-commit.enabled"
PREVIOUS_MAX = "write.metadata.previous-versions-max"


@dataclass(frozen=True)
class NewTable:
    """How a missing table is created."""

    partition_by: Sequence[str] | PartitionSpec = ()
    sort_by: Sequence[str] | SortOrder = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    create_namespace: bool = False


@dataclass(frozen=True)
class TableDraft:
    """A table that could be made; ``head`` is what it would be, so that a first write can be checked before there is one."""

    schema: Schema
    partition_by: PartitionSpec
    sort_by: SortOrder
    properties: dict[str, str]
    location: str | None
    head: TableVersion
    makes_namespace: bool


def draft(connection: Connection, schema: pa.Schema, plan: NewTable) -> TableDraft:
    """The table that a schema in Arrow would make; nothing is made.

    Raises:
        InvalidInputError: the schema, the partitioning, a property or the location cannot be; there is no such namespace.
        UnsupportedTableError, UnsafeConfigError: ``safewrite.open`` would refuse such a table.
    """
    from safewrite.iceberg import opening
    from safewrite.iceberg.data import locations, partitions

    with reading("The schema, partition_by= or sort_by="):
        made = iceberg_schema(schema)
        spec = partitions.spec(plan.partition_by, made)
        order = partitions.sort(plan.sort_by, made)
    _check_properties(connection, plan.properties)
    properties = {**_settings(connection), **plan.properties}
    locations.check_new(_places(connection, plan))
    head = opening.check_new(connection, made, spec, order, properties)
    makes = namespace.check(connection, connection.catalog, create=plan.create_namespace)
    return TableDraft(made, spec, order, properties, plan.location, head, makes)


_NOT_KEPT: Mapping[str, tuple[tuple[str, ...], str]] = {
    "write.format.default": (("parquet",), "safewrite writes data files in Parquet"),
    "write.delete.format.default": (("parquet",), "safewrite writes delete files in Parquet"),
    "write.location-provider.impl": ((), "safewrite cannot call a location provider of Java"),
    "write.metadata.compression-codec": (
        ("none", ""),
        "the catalog's client writes metadata files as they are",
    ),
}
"""Properties that would be passed over, with the values that are kept all the same, and why."""


def _check_properties(connection: Connection, properties: Mapping[str, str]) -> None:
    """Refuse properties that ask of each writer what safewrite does not do; a REST catalog's server writes metadata files itself."""
    for name, (kept, why) in _NOT_KEPT.items():
        value = properties.get(name)
        is_servers = name == "write.metadata.compression-codec" and connection.kind == "rest"
        if value is not None and str(value).strip().lower() not in kept and not is_servers:
            raise InvalidInputError(
                f"The table was not created: properties= has {name}={shown(value)}, and {why}. Nothing was written. Leave it out; "
                "where the table needs it, create and write the table with an engine that has it."
            )


def _places(connection: Connection, plan: NewTable) -> Iterator[tuple[str, str]]:
    """What the paths of a new table's files are made of, and what to call it."""
    from safewrite.iceberg.data.locations import PATHS

    yield from (
        (f"The property {name}", str(plan.properties[name])) for name in PATHS if name in plan.properties
    )
    if plan.location is not None:
        yield "location=", plan.location
        return
    yield "The table's name", "/".join(connection.identifier)
    if connection.kind == "rest":  # its server decides
        return
    found = _namespace_location(connection)
    yield from (("The namespace's location", found),) if found else ()
    yield from (("The catalog's warehouse", str(connection.catalog.properties.get("warehouse", ""))),) * (
        not found
    )


def _namespace_location(connection: Connection) -> str | None:
    try:
        return connection.catalog.load_namespace_properties(connection.identifier[:-1]).get("location")
    except Exception:  # noqa: BLE001 - there is none yet; another reason is told when the table is made
        return None


def create_table(connection: Connection, made: TableDraft, catalog: Any) -> bool:
    """Create the table of a draft; False if another made it first.

    ``catalog`` is the decorated catalog.

    Raises:
        CommitUnknownError: it may have been made.
        StorageError: the catalog refused or did not answer.
    """
    from pyiceberg.exceptions import TableAlreadyExistsError

    if made.makes_namespace:
        _make_namespace(connection, catalog)
    try:
        catalog.create_table(
            connection.identifier,
            made.schema,
            location=made.location,
            partition_spec=made.partition_by,
            sort_order=made.sort_by,
            properties=made.properties,
        )
    except TableAlreadyExistsError:
        return False
    except SafewriteError:
        raise
    except Exception as error:
        raise _failed(connection, error) from error
    return True


def _settings(connection: Connection) -> dict[str, str]:
    """Settings of a table of ours: how long snapshots and earlier metadata files are kept.

    Of metadata files as many are kept as are read to find out whether a commit landed whose snapshot was expired since.
    """
    from safewrite.iceberg import ledger_place

    short = connection.helpers.ledger and ledger_place.on_aws(connection.catalog)
    return {
        KEEP: str(AWS_KEPT_MS if short else KEPT_MS),
        DELETE_METADATA: "true",
        PREVIOUS_MAX: str(METADATA_READ_MAX),
    }


def _make_namespace(connection: Connection, catalog: Any) -> None:
    name = connection.identifier[:-1]
    try:
        catalog.create_namespace_if_not_exists(name)
    except Exception as error:
        # A SQL catalog looks and then inserts, so a rival's insert in between is an error of its database.
        if not _is_there(catalog, name):
            raise _failed(connection, error) from error


def _is_there(catalog: Any, name: tuple[str, ...]) -> bool:
    try:
        catalog.load_namespace_properties(name)
    except Exception:  # noqa: BLE001 - the error that is raised says why the namespace could not be made
        return False
    return True


def _failed(connection: Connection, error: Exception) -> StorageError:
    return StorageError(
        f"{connection.table_name} could not be made: {type(error).__name__}: {said(error)}. Nothing was written. Check the "
        "catalog's address, the warehouse and the permissions."
    )


def exists(name: str) -> ConflictError:
    """The refusal to create a table that exists."""
    return ConflictError(
        f"There is a table {name} in the catalog already; it was left as it was. Open it with safewrite.open().",
        kind=Kind.TABLE_EXISTS,
    )
