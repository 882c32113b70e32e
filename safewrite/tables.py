"""The one API: open or create a table of either format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from safewrite.connect import connect
from safewrite.delta import creation
from safewrite.errors import InvalidInputError, MissingExtraError
from safewrite.protocol.ask import Limits
from safewrite.table import TARGET_FILE_SIZE, Table

if TYPE_CHECKING:
    import boto3
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.sorting import SortOrder

    from safewrite.iceberg.table import IcebergTable


def open(  # noqa: A001 - as users of deltalake and the built-in know it
    uri: Any,
    *,
    catalog: Any = None,
    lock_table: str | None = None,
    arbiter: Literal["dynamodb", "object-store"] | None = None,
    create: bool = False,
    partition_by: Sequence[str] | PartitionSpec = (),
    sort_by: Sequence[str] | SortOrder = (),
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
    strict: bool = False,
    attempts_max: int = Limits.attempts,
    timeout_s: float = Limits.timeout_s,
    lease_s: float = Limits.lease_s,
    target_file_size: int | None = None,
    checkpoints: bool = True,
) -> Table | IcebergTable:
    """Open a Delta table, or with ``catalog=`` an Iceberg table, for safe writes.

    Args:
        uri: Delta: ``s3://bucket/path`` or a local path.  Iceberg: ``"db.table"``.
        catalog: Iceberg only: the name of a catalog in PyIceberg's configuration, a dict of its
            properties, or a PyIceberg catalog (REST, Glue, SQL).
        lock_table: DynamoDB table.  For Delta it arbitrates versions, in the schema of Delta's
            ``S3DynamoDBLogStore`` (default on S3: ``DELTA_DYNAMO_TABLE_NAME``, else ``delta_log``).  For
            Iceberg it remembers keys past the expiry of snapshots and lets writers take turns; SQL
            catalogs do both in their own database without it.
        arbiter: Delta only: ``"object-store"`` to go by conditional PUT alone, without DynamoDB.
        create: if there is no table, the first append makes it, with its frame's schema,
            ``partition_by``, ``sort_by``, ``properties`` and ``location``.
        partition_by: columns; for Iceberg transforms too (``"day(ts)"``, ``"bucket(16, id)"``), or a
            ``PartitionSpec``.
        sort_by: Iceberg only: ``"id"``, ``"ts desc"``, or a ``SortOrder``.
        location: Iceberg only: where the files go; the catalog decides without it.
        storage_options: deltalake's keys: ``AWS_ENDPOINT_URL``, ``AWS_REGION``, ...  For Iceberg they fill in
            what the catalog's properties leave open.
        strict: raise, instead of warning, where other writers of this table may lose rows among
            themselves, or where an Iceberg table may forget keys.
        attempts_max, timeout_s: limits of one write; beyond them it is NotCommitted.
        lease_s: how long an unmoving queue is watched before its holder is passed over.
        target_file_size: bytes of a data file from which another one is begun (default 128 MiB; for
            Iceberg the table's ``write.target-file-size-bytes`` goes first).
        checkpoints: Delta only: make a checkpoint every ``delta.checkpointInterval`` versions, after the
            commit.

    Raises:
        TableNotFoundError: there is no table and ``create`` is False.
        UnsafeConfigError: a setting, a store, a catalog or a mix of arbiters that allows silent loss.
        UnsupportedTableError: the table uses a writer feature or format version that safewrite does not
            know.
        StorageError: the store, the catalog or the lock table does not answer.
    """
    limits = Limits(attempts=attempts_max, timeout_s=timeout_s, lease_s=lease_s)
    if catalog is not None:
        if arbiter is not None:
            raise InvalidInputError(
                "arbiter= is for Delta tables; an Iceberg table's arbiter is its catalog."
            )
        first = {
            "partition_by": partition_by,
            "sort_by": sort_by,
            "properties": dict(properties or {}),
            "location": location,
        }
        return _open_iceberg(
            uri,
            catalog,
            first=first if create else None,
            limits=limits,
            target_file_size=target_file_size,
            strict=strict,
            lock_table=lock_table,
            storage_options=storage_options,
            boto3_session=boto3_session,
        )
    if sort_by or location is not None or not isinstance(partition_by, Sequence):
        raise InvalidInputError(
            "sort_by=, location= and a PartitionSpec are for Iceberg tables, which need catalog=. Nothing was "
            "written. For a Delta table give its address and the names of partition columns."
        )
    connection = connect(
        uri,
        lock_table=lock_table,
        arbiter=arbiter,
        storage_options=storage_options,
        boto3_session=boto3_session,
        create_lock_table=create,
    )
    table = Table(
        connection,
        limits=limits,
        target_file_size=target_file_size or TARGET_FILE_SIZE,
        checkpoints=checkpoints,
        first=creation.Plan(tuple(partition_by), dict(properties or {})) if create else None,
    )
    table._open(strict=strict)  # noqa: SLF001 - the other half of the constructor
    if boto3_session is None:
        table.reopen = partial(
            _opened_again,
            table.uri,
            lock_table=lock_table,
            arbiter=arbiter,
            create=create,
            partition_by=tuple(partition_by),
            properties=dict(properties or {}),
            storage_options=dict(storage_options or {}) or None,
            target_file_size=target_file_size,
            checkpoints=checkpoints,
            **_limits(limits),
        )
    return table


def _opened_again(uri: Any, **settings: Any) -> Any:
    return open(uri, **settings)


def _limits(limits: Limits) -> dict[str, Any]:
    return {"attempts_max": limits.attempts, "timeout_s": limits.timeout_s, "lease_s": limits.lease_s}


def create(uri: Any, schema: pa.Schema, *, catalog: Any = None, **settings: Any) -> Table | IcebergTable:
    """Create an empty table and open it; ``settings`` are those of :func:`open`.

    The lock table is made too, if it is not there, and so is an Iceberg table's namespace.

    Raises:
        ConflictError: kind TABLE_EXISTS; there is a table already, which is left as it is.
        InvalidInputError: the schema cannot be a schema of that format.
        UnsafeConfigError, StorageError: as for :func:`open`.
        CommitUnknownError: Iceberg: the catalog did not say whether the table was made.
    """
    table: Table | IcebergTable = open(uri, catalog=catalog, create=True, **settings)
    table._create(schema)  # noqa: SLF001 - the other half of the constructor
    return table


def _open_iceberg(
    identifier: Any,
    catalog: Any,
    *,
    first: dict[str, Any] | None,
    limits: Limits,
    target_file_size: int | None,
    strict: bool,
    boto3_session: boto3.Session | None,
    **settings: Any,
) -> IcebergTable:
    try:
        from safewrite.iceberg import creation as iceberg_creation
        from safewrite.iceberg.connect import connect as connect_iceberg
        from safewrite.iceberg.table import IcebergTable
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"catalog= needs PyIceberg: pip install 'safewrite[iceberg]' ({error}). Nothing was written."
        ) from error
    table = IcebergTable(
        connect_iceberg(
            identifier, catalog, create_lock_table=first is not None, boto3_session=boto3_session, **settings
        ),
        limits=limits,
        target_file_size=target_file_size,
        first=iceberg_creation.Plan(**first) if first is not None else None,
    )
    table._open(strict=strict)  # noqa: SLF001 - the other half of the constructor
    if boto3_session is None:
        table.reopen = partial(
            _opened_again,
            identifier,
            catalog=_portable(catalog),
            create=first is not None,
            target_file_size=target_file_size,
            **(first or {}),
            **settings,
            **_limits(limits),
        )
    return table


def _portable(catalog: Any) -> Any:
    """A catalog as a name or as properties, which can be sent to another process."""
    from pyiceberg.catalog import Catalog

    from safewrite.iceberg.catalog import SafeCatalog

    if isinstance(catalog, SafeCatalog):
        catalog = catalog.inner
    return {"name": catalog.name, **catalog.properties} if isinstance(catalog, Catalog) else catalog
