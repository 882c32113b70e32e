"""Says where the keys of a table's writes are remembered besides its snapshots, and records it in the table.

AWS expires snapshots by itself: Glue's optimizer and Athena's VACUUM by settings of their own, S3 Tables after five
days.  Keys that only snapshots carry are gone then, and a repeated write doubles its rows.  So each table there has a
ledger.  Writers with different ledgers do not know of each other's keys, so the table records its own.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import LEDGER, TABLE, told
from safewrite.protocol.iceberg.head import scope_of
from safewrite.stores.dynamodb_ledger import aws_ledger
from safewrite.stores.ledger import FOLDER, ObjectLedger

if TYPE_CHECKING:
    from safewrite.iceberg.abc import KeyKeeper
    from safewrite.protocol.iceberg.head import TableVersion
    from safewrite.stores.abc import Ledger, TicketQueue

AT = "at"
DYNAMODB = "dynamodb:"


def keeps_objects(catalog: Any) -> bool:
    """Whether keys are kept as objects beside the tables of a catalog: on Glue, where S3 is reached by plain settings.

    Not inside a table's folder: Athena's VACUUM removes every file there that no metadata names.  The storage of S3
    Tables has no place beside a table.
    """
    from safewrite.iceberg.catalog.s3 import is_plain

    return hasattr(catalog, "glue") and is_plain(catalog.properties) and not in_s3_tables(catalog)


def in_s3_tables(catalog: Any) -> bool:
    """Whether a catalog's tables are in a bucket of S3 Tables, which expires snapshots and bounds metadata by itself."""
    names = ("warehouse", "uri", "glue.id")
    return any("s3tables" in str(catalog.properties.get(name, "")).lower() for name in names)


def on_aws(catalog: Any) -> bool:
    """Whether services of AWS may expire snapshots of the catalog's tables, whatever the tables' properties say."""
    return hasattr(catalog, "glue") or in_s3_tables(catalog)


def recorded(head: TableVersion) -> str | None:
    """Where the table says that its keys are; None where it does not say.

    Raises:
        StorageError: the property is not as safewrite wrote it.
    """
    return told(head, LEDGER, lambda fields: str(fields[AT]))


def place(connection: KeyKeeper, head: TableVersion) -> str | None:
    """Where a writer of this connection remembers the table's keys; None where only snapshots do."""
    if connection.lock_table is not None:
        return f"{DYNAMODB}{connection.lock_table}"
    if not connection.objects:
        return None
    known = recorded(head)
    if known is not None and not known.startswith(DYNAMODB):
        return known  # the table may have moved since
    scheme, _, path = table_of(head).location().rstrip("/").partition("://")
    bucket, _, key = path.partition("/")
    parent = "/".join([bucket, *key.split("/")[:-1]])
    return f"{scheme}://{parent}/{FOLDER}{head.table_id}/"


def properties(connection: KeyKeeper, head: TableVersion) -> dict[str, str]:
    """What the next commit records in the table: its ledger, where the table does not say it and AWS has it."""
    if not on_aws(connection.catalog) or recorded(head) is not None:
        return {}
    found = place(connection, head)
    return {} if found is None else {LEDGER: json.dumps({AT: found, TABLE: head.table_id})}


def differs(connection: KeyKeeper, head: TableVersion) -> str | None:
    """The table's ledger, where it is another than this connection's."""
    known = recorded(head)
    return None if known is None or known == place(connection, head) else known


def keeps_all_keys(connection: KeyKeeper, head: TableVersion) -> bool:
    """Whether every writer of the table has the ledger of this connection: the one that the table records, or its catalog's database."""
    if recorded(head) is not None:
        return differs(connection, head) is None
    return connection.helpers.ledger and connection.lock_table is None and not connection.objects


def keepers(
    connection: KeyKeeper, head: TableVersion, branch_id: str
) -> tuple[Ledger | None, TicketQueue | None]:
    """The ledger of a branch ("": the main one), and the queue of the table, where it has them."""
    scope = scope_of(head.table_id, branch_id)
    if connection.lock_table is not None:
        return aws_ledger(connection.dynamodb, connection.lock_table, head.table_id, scope)
    if connection.objects:
        return object_ledger(connection, head, branch_id), None
    if not connection.helpers.ledger:
        return None, None
    from safewrite.stores.sql import SqlLedger, SqlQueue

    engine = connection.catalog.engine  # type: ignore[attr-defined]
    return SqlLedger(engine, scope), SqlQueue(engine, head.table_id)


def object_ledger(connection: KeyKeeper, head: TableVersion, branch_id: str) -> ObjectLedger | None:
    """The ledger of objects beside the table, of a branch ("": the main one); None where its files are not reached by a client of ours."""
    from safewrite.iceberg.catalog.s3 import direct

    found = place(connection, head)
    assert found is not None
    reached = direct(table_of(head).io, found)
    own = f"{reached[1].rstrip('/')}~{branch_id}/" if reached is not None and branch_id else None
    return None if reached is None else ObjectLedger(reached[0], folder=own or reached[1])
