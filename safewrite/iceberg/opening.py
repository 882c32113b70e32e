"""Refuses or warns before the first write: formats, retention, catalogs that do not compare."""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING, Any

from safewrite.arguments.reading import reading
from safewrite.errors import Kind, StorageError, UnsafeConfigError
from safewrite.iceberg import features, glue_probe, ledger_place, retention
from safewrite.iceberg.data.datafiles import check_layout
from safewrite.iceberg.metadata import head_of, table_of
from safewrite.iceberg.retention import KEEP
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.stores.advice import cause_of
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.sorting import SortOrder

    from safewrite.iceberg.connect import Connection

log = logging.getLogger("safewrite")

_honest: set[tuple[str, str]] = set()
"""Catalogs that were probed by this process."""


def check_table(connection: Connection, head: TableVersion, *, strict: bool) -> None:
    """Refuse a table that safewrite cannot read, or writes and cannot write safely, when it is opened.

    One that may only be read is refused at the first write: :func:`check_state`.

    Raises:
        UnsupportedTableError: as :func:`safewrite.iceberg.features.check_read`.
        UnsafeConfigError: as :func:`check_state`; or the catalog does not compare before it sets.
    """
    features.check_read(head)
    if not may_append(connection, head):
        return
    _check_retention(connection, head, strict=strict)
    _warn_of_retention(connection, head)
    probe(connection.catalog, connection.kind, head)


def check_state(connection: Connection, head: TableVersion, *, strict: bool) -> None:
    """Refuse what a table must not be or become: each table version that a write is planned on passes this.

    Raises:
        UnsupportedTableError: as :func:`safewrite.iceberg.features.check_write`.
        UnsafeConfigError: keys would be forgotten too soon.
    """
    from safewrite.iceberg.catalog.metadata_files import check_writes

    features.check_write(head)
    check_writes(connection.catalog, connection.table_name, table_of(head).metadata)
    _check_retention(connection, head, strict=strict)


def may_append(connection: Connection, head: TableVersion) -> bool:
    """Whether nothing forbids to add rows to a table version; else it may only be read."""
    from safewrite.iceberg.catalog.metadata_files import writes

    return not features.unwritable(table_of(head).metadata) and writes(
        connection.catalog, table_of(head).metadata
    )


def check_admitted(connection: Connection, head: TableVersion, *, strict: bool) -> None:
    """As :func:`check_state`; and the catalog compares, which nobody asked where the table was one to read when it was opened.

    Raises:
        As :func:`check_table`.
    """
    check_state(connection, head, strict=strict)
    probe(connection.catalog, connection.kind, head)


def check_new(
    connection: Connection,
    schema: Schema,
    spec: PartitionSpec,
    order: SortOrder,
    properties: dict[str, str],
) -> TableVersion:
    """Refuse to create a table that would refuse every later write; what it would be, without a snapshot.

    Raises:
        InvalidInputError: a property that PyIceberg cannot read.
        UnsupportedTableError, UnsafeConfigError: as :func:`check_state`, or no file could be written as asked.
    """
    from pyiceberg.io import load_file_io
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import new_table_metadata

    from safewrite.iceberg.catalog.metadata_v3 import begun

    with reading("properties="):
        metadata = begun(new_table_metadata(schema, spec, order, "", dict(properties)))
        made = Table(connection.identifier, metadata, "", load_file_io(), connection.catalog)
        head = head_of(made, connection.branch)
        check_state(connection, head, strict=False)
    check_layout(metadata)
    return head


def _check_retention(connection: Connection, head: TableVersion, *, strict: bool) -> None:
    """Check how long snapshots remember keys, unless there is a ledger (E4), and whose ledger it is."""
    kept = retention.of(table_of(head).metadata, connection.branch)
    if connection.helpers.ledger:
        other = ledger_place.differs(connection, head)
        if other is not None and kept.short:
            raise _other_ledger(connection, other)
        return
    by_aws = ledger_place.on_aws(connection.catalog)
    if kept.short and (strict or by_aws or kept.text is not None):
        raise UnsafeConfigError(
            f"{connection.table_name} keeps snapshots for {kept.text or 'an unknown number of'} ms ({KEEP}), less than the "
            f"{retention.HORIZON_MS} ms (14 days) in which a write may be repeated: a key could be forgotten and "
            "its rows doubled. Nothing was written. Raise that (`safewrite repair TABLE --set-retention`), or open "
            "the table with lock_table= for a ledger of keys.",
            kind=Kind.RETENTION_TOO_SHORT,
        )


def _other_ledger(connection: Connection, other: str) -> UnsafeConfigError:
    table = other.removeprefix(ledger_place.DYNAMODB)
    advice = (
        f"Open the table with lock_table={table!r}."
        if table != other
        else "Open the table without lock_table=."
    )
    return UnsafeConfigError(
        f"The keys of {connection.table_name} are remembered in {other}, and its snapshots may be expired before a write is "
        f"repeated: this writer would not know the keys of others, and rows could be doubled. Nothing was written. {advice}",
        kind=Kind.RETENTION_TOO_SHORT,
    )


def _warn_of_retention(connection: Connection, head: TableVersion) -> None:
    if connection.helpers.ledger or retention.of(table_of(head).metadata, connection.branch).text is not None:
        return
    log.warning(
        "%s does not say how long it keeps snapshots (%s); Iceberg's own default is 5 days, writes may be "
        "repeated for 14. Set it to %d or more, or open the table with lock_table= for a ledger of keys.",
        connection.table_name,
        KEEP,
        retention.HORIZON_MS,
        extra={"table": connection.table_name, "kind": Kind.RETENTION_TOO_SHORT.value},
    )


def probe(catalog: Catalog, kind: str, head: TableVersion) -> None:
    """Ask the catalog for a commit that must be refused, once per process (A13, C4, C5).

    The commit would change nothing.  A SQL catalog compares in its own UPDATE statement; AWS's own Glue is
    known to compare version ids; stand-ins are tried on a table made for the purpose.

    Raises:
        UnsafeConfigError: kind DISHONEST_STORE.
        StorageError: the catalog does not answer.
    """
    glue: Any = getattr(catalog, "glue", None)  # its address may come from the environment
    address = glue.meta.endpoint_url if glue is not None else catalog.properties.get("uri")
    mark = (kind, str(address or id(catalog)))
    if kind == "sql" or mark in _honest:
        return
    compares = _glue_compares(catalog, head) if kind == "glue" else _requirements_hold(catalog, head)
    if not compares:
        raise UnsafeConfigError(
            f"The catalog {catalog.name!r} accepted a commit whose base was not the table: it sets without "
            "comparing, so writers overwrite each other's commits without an error. Nothing was written. Use a "
            "catalog that compares (moto's Glue, for one, does not).",
            kind=Kind.DISHONEST_STORE,
        )
    _honest.add(mark)


def _requirements_hold(catalog: Catalog, head: TableVersion) -> bool:
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.update import AssertTableUUID

    try:
        catalog.commit_table(table_of(head), (AssertTableUUID(uuid=uuid.uuid4()),), ())
    except CommitFailedException:
        return True
    except Exception as error:
        raise _silent(catalog, error) from error
    return False


def _glue_compares(catalog: Any, head: TableVersion) -> bool:
    try:
        return glue_probe.compares(catalog.glue, *table_of(head).name()[-2:])
    except Exception as error:
        raise _silent(catalog, error) from error


def _silent(catalog: Any, error: Exception) -> StorageError:
    cause = cause_of(error)
    return StorageError(
        f"The catalog {catalog.name!r} could not be asked whether it compares before it sets: "
        f"{type(error).__name__}: {said(error).rstrip('.')}. Nothing was written. "
        + (cause.advice if cause else "This often passes: open the table again.")
    )
