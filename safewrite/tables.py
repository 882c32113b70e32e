"""Opens or creates a table of either format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import pyarrow as pa

from safewrite.arguments import options
from safewrite.arguments.reading import one_of, reading
from safewrite.boundary.public import naming, public
from safewrite.delta.format import DeltaFormat
from safewrite.delta.log import properties as delta_properties
from safewrite.delta.opening import connect_as_recorded
from safewrite.delta.table import DeltaTable
from safewrite.delta.write import creation
from safewrite.errors import InvalidInputError, MissingExtraError
from safewrite.protocol.ask import Limits
from safewrite.stores import call_limit
from safewrite.stores.events import Listener, OnEvent, listener
from safewrite.stores.settings import storage_options as storage_keys
from safewrite.stores.world import LEDGER_TTL_S
from safewrite.table import new_table
from safewrite.text.rendering import said

if TYPE_CHECKING:
    import boto3
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.sorting import SortOrder

    from safewrite.iceberg.table import IcebergTable
    from safewrite.table.verbs import Table

    CatalogSettings = str | Mapping[str, str] | Catalog


class Settings(TypedDict, total=False):
    """The settings of :func:`open` and :func:`create` for type checkers."""

    lock_table: str | None
    arbiter: Literal["dynamodb", "object-store"] | None
    partition_by: Sequence[str] | PartitionSpec
    sort_by: Sequence[str] | SortOrder
    properties: Mapping[str, str] | None
    location: str | None
    create_namespace: bool
    storage_options: Mapping[str, str] | None
    boto3_session: boto3.Session | None
    strict: bool
    attempts_max: int
    timeout_s: float
    lease_s: float
    target_file_size: int | None
    checkpoints: bool
    group: Literal["auto", "never", "always"]
    on_event: OnEvent | None


@overload
def open(  # noqa: A001
    uri: Any,
    *,
    catalog: None = None,
    create: bool = False,
    schema: pa.Schema | None = None,
    **settings: Unpack[Settings],
) -> DeltaTable: ...


@overload
def open(  # noqa: A001
    uri: Any,
    *,
    catalog: CatalogSettings,
    create: bool = False,
    schema: pa.Schema | None = None,
    branch: str | None = None,
    **settings: Unpack[Settings],
) -> IcebergTable: ...


@public
def open(  # noqa: A001 - as users of deltalake and the built-in know it
    uri: Any,
    *,
    catalog: Any = None,
    lock_table: str | None = None,
    arbiter: Literal["dynamodb", "object-store"] | None = None,
    create: bool = False,
    schema: pa.Schema | None = None,
    partition_by: Sequence[str] | PartitionSpec = (),
    sort_by: Sequence[str] | SortOrder = (),
    properties: Mapping[str, str] | None = None,
    location: str | None = None,
    branch: str | None = None,
    create_namespace: bool = False,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
    strict: bool = False,
    attempts_max: int = Limits.attempts,
    timeout_s: float = Limits.timeout_s,
    lease_s: float = Limits.lease_s,
    target_file_size: int | None = None,
    checkpoints: bool = True,
    group: Literal["auto", "never", "always"] = "auto",
    on_event: OnEvent | None = None,
) -> Table:
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
        create: if there is no table, the first append makes it, with its frame's schema, ``partition_by``, ``sort_by``,
            ``properties`` and ``location``.  One that is there keeps its own, and a warning names those that differ.
        schema: with ``create=True`` makes the table now, empty, with these columns, where there is none.  Declare it
            where rows come as JSON: else the first message decides, and after a ``10`` every ``9.5`` is refused.
        partition_by: columns; for Iceberg transforms too (``"day(ts)"``, ``"bucket(16, id)"``), or a
            ``PartitionSpec``.
        sort_by: Iceberg only: ``"id"``, ``"ts desc"``, or a ``SortOrder``.
        location: Iceberg only: where the files go; the catalog decides without it.
        branch: Iceberg only: the branch that is read and written; one that is not there begins at the main branch's newest snapshot.
            Its rows come to the main branch by :meth:`IcebergTable.fast_forward` (docs/iceberg.md).
        create_namespace: Iceberg only: make the new table's namespace (Glue: its database) too.  Else a missing one is
            refused, for its name may be a slip; in a SQL catalog only if one with nearly that name is there.
        storage_options: deltalake's keys: ``AWS_ENDPOINT_URL``, ``AWS_REGION``, ...  For Iceberg they fill in
            what the catalog's properties leave open.
        strict: raise, instead of warning, where other writers of this table may lose rows among
            themselves, or where an Iceberg table may forget keys.
        attempts_max, timeout_s: limits of one write; beyond them it is NotCommitted, or CommitUnknown where others may take it.
        lease_s: how long an unmoving queue is watched before its holder is passed over.
        target_file_size: bytes after which another data file is begun (default 128 MiB; an Iceberg table's
            ``write.target-file-size-bytes`` goes first).
        checkpoints: Delta only: make a checkpoint every ``delta.checkpointInterval`` versions, after a commit.
        group: whether writers of several processes share commits: where they meet on S3 (``"auto"``), never, or from
            the first try on.  Each has a receipt of its own all the same (docs/shared-commits.md).
        on_event: called with an ``Event`` at each retry, wait and repair, and at the end of each write; what it raises
            is logged.  ``safewrite.metrics`` has two.  A table that is sent to another process takes it along only if
            it can be pickled.

    Raises:
        InvalidInputError: an argument of a wrong type, or an address that could be a slip (``"bucket/path"``).
        TableNotFoundError: there is no table and ``create`` is False.
        UnsafeConfigError: a setting, a store, a catalog or a mix of arbiters that allows silent loss.
        UnsupportedTableError: the table uses a writer feature or format version that safewrite does not know.
        StorageError: the store, the catalog or the lock table does not answer.
    """
    with reading("An argument of open()"):
        given = OpenSettings(
            catalog=catalog,
            lock_table=options.text("lock_table", lock_table),
            arbiter=options.text("arbiter", arbiter),
            create=options.flag("create", create),
            schema=None if schema is None else new_table.declared(schema),
            partition_by=partition_by,
            sort_by=sort_by,
            properties=options.settings("properties", properties) or {},
            location=options.text("location", location),
            branch=options.text("branch", branch),
            create_namespace=options.flag("create_namespace", create_namespace),
            storage_options=storage_keys(options.settings("storage_options", storage_options)),
            boto3_session=options.session(boto3_session),
            strict=options.flag("strict", strict),
            limits=options.limits(attempts_max=attempts_max, timeout_s=timeout_s, lease_s=lease_s),
            target_file_size=None
            if target_file_size is None
            else options.whole("target_file_size", target_file_size),
            checkpoints=options.flag("checkpoints", checkpoints),
            group=one_of("group", group, ("auto", "never", "always")),
            on_event=listener(on_event),
        )
        if not given.create:
            new_table.only_for_new(
                schema=schema, partition_by=partition_by, sort_by=sort_by, properties=given.properties, location=location,
                create_namespace=given.create_namespace or None,
            )  # fmt: skip
    table = _opened(uri, given)
    if given.create:
        made = table._format  # noqa: SLF001 - of the same package
        kept = partial(
            new_table.warn_of_kept, made, schema=given.schema, partition_by=given.partition_by, sort_by=given.sort_by,
            properties=given.properties, location=given.location,
        )  # fmt: skip
        made.unlike = None if kept() else kept
        if made.unlike is not None and given.schema is not None and not new_table.make(made, given.schema):
            return _opened(uri, given)  # another writer was faster: its table is there now
    return table


def _opened(uri: Any, given: OpenSettings) -> Table:
    with naming(uri), call_limit.within(given.limits.timeout_s):
        return _open_iceberg(uri, given) if given.catalog is not None else _open_delta(uri, given)


@overload
def create(
    uri: Any, schema: pa.Schema, *, catalog: None = None, **settings: Unpack[Settings]
) -> DeltaTable: ...


@overload
def create(
    uri: Any,
    schema: pa.Schema,
    *,
    catalog: CatalogSettings,
    format_version: int | None = None,
    **settings: Unpack[Settings],
) -> IcebergTable: ...


@public
def create(
    uri: Any,
    schema: pa.Schema,
    *,
    catalog: Any = None,
    lock_table: str | None = None,
    arbiter: Literal["dynamodb", "object-store"] | None = None,
    partition_by: Sequence[str] | PartitionSpec = (),
    sort_by: Sequence[str] | SortOrder = (),
    properties: Mapping[str, str] | None = None,
    format_version: int | None = None,
    location: str | None = None,
    create_namespace: bool = False,
    storage_options: Mapping[str, str] | None = None,
    boto3_session: boto3.Session | None = None,
    strict: bool = False,
    attempts_max: int = Limits.attempts,
    timeout_s: float = Limits.timeout_s,
    lease_s: float = Limits.lease_s,
    target_file_size: int | None = None,
    checkpoints: bool = True,
    group: Literal["auto", "never", "always"] = "auto",
    on_event: OnEvent | None = None,
) -> Table:
    """Create an empty table and open it; the settings are those of :func:`open`.

    The lock table is made too, if it is not there; an Iceberg table's namespace with ``create_namespace=True``.  ``format_version`` is
    that of an Iceberg table: 2, or 3, which gives each row an id and which not all engines read.

    Raises:
        ConflictError: kind TABLE_EXISTS; there is a table already, which is left as it is.
        InvalidInputError: the schema cannot be a schema of that format.
        UnsafeConfigError, StorageError: as for :func:`open`.
        CommitUnknownError: Iceberg: the catalog did not say whether the table was made.
    """
    new_table.declared(schema)
    properties = new_table.of_version(format_version, properties, is_iceberg=catalog is not None)
    table: Table = open(
        uri,
        catalog=catalog,
        lock_table=lock_table,
        arbiter=arbiter,
        create=True,
        partition_by=partition_by,
        sort_by=sort_by,
        properties=properties,
        location=location,
        create_namespace=create_namespace,
        storage_options=storage_options,
        boto3_session=boto3_session,
        strict=strict,
        attempts_max=attempts_max,
        timeout_s=timeout_s,
        lease_s=lease_s,
        target_file_size=target_file_size,
        checkpoints=checkpoints,
        group=group,
        on_event=on_event,
    )
    table._format.create(schema)  # noqa: SLF001 - of the same package
    return table


@dataclass(frozen=True)
class OpenSettings:
    """How a table is to be opened: the arguments of :func:`open`, checked."""

    catalog: Any = field(repr=False)
    lock_table: str | None
    arbiter: Any
    create: bool
    schema: pa.Schema | None
    partition_by: Any
    sort_by: Any
    properties: dict[str, str]
    location: str | None
    branch: str | None
    create_namespace: bool
    storage_options: dict[str, str] | None = field(repr=False)
    boto3_session: boto3.Session | None
    strict: bool
    limits: Limits
    target_file_size: int | None
    checkpoints: bool
    group: str
    on_event: Listener | None

    def reopen(self, uri: Any, **changed: Any) -> Callable[[], Any] | None:
        """Opens the same table in the same way, here or in another process; None where it cannot be sent there."""
        if self.boto3_session is not None:
            return None
        settings = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "limits"}
        settings |= {
            "attempts_max": self.limits.attempts,
            "timeout_s": self.limits.timeout_s,
            "lease_s": self.limits.lease_s,
        }
        return partial(_opened_again, uri, **(settings | changed))


def _opened_again(uri: Any, **settings: Any) -> Any:
    return open(uri, **settings)


def _open_delta(uri: Any, given: OpenSettings) -> DeltaTable:
    with reading("partition_by= or sort_by="):
        iceberg = (
            given.sort_by,
            given.location is not None,
            given.branch is not None,
            given.create_namespace,
            hasattr(given.partition_by, "fields"),
        )
        for_iceberg = any(iceberg)
        partition_by = () if for_iceberg else options.texts("partition_by", given.partition_by)
    if for_iceberg:
        raise InvalidInputError(
            "sort_by=, location=, branch=, create_namespace= and a PartitionSpec are for Iceberg tables, which need catalog=. Nothing was "
            "written. For a Delta table give its address and the names of partition columns."
        )
    if given.create:
        delta_properties.check(given.properties, horizon_s=LEDGER_TTL_S)
    connection = connect_as_recorded(
        uri,
        lock_table=given.lock_table,
        arbiter=given.arbiter,
        storage_options=given.storage_options,
        boto3_session=given.boto3_session,
        create_lock_table=given.create,
        limits=given.limits,
        listener=given.on_event,
    )
    found = DeltaFormat(
        connection,
        limits=given.limits,
        target_file_size=given.target_file_size,
        checkpoints=given.checkpoints,
        group=given.group,
        first=creation.NewTable(partition_by, given.properties) if given.create else None,
    )
    found.open(strict=given.strict)
    return DeltaTable(found, reopen=given.reopen(found.uri))


def _open_iceberg(identifier: Any, given: OpenSettings) -> IcebergTable:
    if given.arbiter is not None:
        raise InvalidInputError(
            "arbiter= is for Delta tables; an Iceberg table's arbiter is its catalog. Nothing was written. Leave it out."
        )
    try:
        from safewrite.iceberg.branch_properties import MAIN
        from safewrite.iceberg.connect import connect as connect_iceberg
        from safewrite.iceberg.connect import is_in_memory, portable
        from safewrite.iceberg.format import IcebergFormat
        from safewrite.iceberg.table import IcebergTable
        from safewrite.iceberg.write import creation as iceberg_creation
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("safewrite."):  # the Lambda layer, which is trimmed
            raise MissingExtraError(
                "This Lambda layer writes Delta tables only; catalog= is for Iceberg ones. Nothing was written. Deploy the function "
                "as a container image with safewrite[iceberg] (docs/lambda.md)."
            ) from error
        raise MissingExtraError(
            f"catalog= needs PyIceberg: {MissingExtraError.command('iceberg')} ({said(error)}). Nothing was written."
        ) from error
    first = iceberg_creation.NewTable(
        new_table.texts_or_spec("partition_by", given.partition_by),
        new_table.texts_or_spec("sort_by", given.sort_by),
        given.properties,
        given.location,
        given.create_namespace,
    )
    found = IcebergFormat(
        connect_iceberg(
            identifier,
            given.catalog,
            lock_table=given.lock_table,
            storage_options=given.storage_options,
            boto3_session=given.boto3_session,
            create_lock_table=given.create,
            listener=given.on_event,
            branch=given.branch or MAIN,
        ),
        limits=given.limits,
        target_file_size=given.target_file_size,
        group=given.group,
        first=first if given.create else None,
    )
    found.open(strict=given.strict)
    if is_in_memory(found.connection.catalog):
        return IcebergTable(found)
    return IcebergTable(found, reopen=given.reopen(identifier, catalog=portable(given.catalog)))
