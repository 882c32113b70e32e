"""Connects to a Delta table: clients, stores, arbiter, probe."""

from __future__ import annotations

import stat
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from safewrite.arguments.options import Address, ArbiterName, parse_address, refuse_unsafe
from safewrite.delta.arbiter import (
    PROPERTY_ARBITER,
    PROPERTY_LOCK_PATH,
    PROPERTY_LOCK_TABLE,
    PROPERTY_PROBED,
    choose,
)
from safewrite.errors import InvalidInputError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.world import World

if TYPE_CHECKING:
    import boto3

    from safewrite.stores.addresses import StoreAddress


@dataclass(frozen=True, slots=True)
class Connection:
    """A table's world and its arbiter.

    ``lock_table_id`` names one lock table of one DynamoDB: two with the same name are told apart (A16).
    ``endpoint`` is where the object store was probed.
    """

    address: Address
    arbiter_name: ArbiterName
    arbiter: Arbiter
    world: World
    lock_table: str | None = None
    lock_table_id: str | None = None
    endpoint: str = "local"
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    travels: bool = True
    """Whether another process can connect in the same way."""

    @property
    def lock_path(self) -> str:
        """The spelling of the table's path that claims use; '' without a lock table."""
        return str(getattr(self.world.locks, "table_path", ""))

    def store(self) -> StoreAddress | None:
        """The table's objects, as another process reaches them; None where it cannot."""
        from safewrite.engine.settings_sent import travelling
        from safewrite.stores.addresses import StoreAddress

        address = self.address
        if not address.is_s3:
            return StoreAddress(address.uri)
        client = getattr(self.world.objects, "client", None)
        options = travelling(self.storage_options, client) if self.travels else None
        if options is None:
            return None
        return StoreAddress(
            address.uri, address.bucket, address.prefix, tuple(sorted(options.items())), client
        )

    def properties(self) -> dict[str, str]:
        """What a table records of its arbiter."""
        recorded = {PROPERTY_ARBITER: str(self.arbiter_name)}
        if self.address.is_s3:
            recorded[PROPERTY_PROBED] = self.endpoint
        if self.lock_table_id:
            recorded[PROPERTY_LOCK_TABLE] = self.lock_table_id
            recorded[PROPERTY_LOCK_PATH] = self.lock_path
        return recorded


_honest: set[tuple[str, ...]] = set()
"""Stores that were probed by this process."""


def connect(
    uri: object,
    *,
    lock_table: str | None,
    arbiter: str | None,
    storage_options: Mapping[str, str] | None,
    boto3_session: boto3.Session | None,
    create_lock_table: bool = False,
    queue: bool = True,
) -> Connection:
    """Build the world of a table; writes nothing but, where asked, the lock table itself.

    Raises:
        UnsafeConfigError: a setting allows silent loss.
        InvalidInputError: the settings contradict each other.
        StorageError: the lock table cannot be used.
    """
    refuse_unsafe(storage_options)
    address = parse_address(uri)
    if not address.is_s3:
        return _local(address, lock_table, arbiter)
    choice = choose({}, lock_table=lock_table, arbiter=arbiter, storage_options=storage_options)
    from safewrite.stores.aws import ServerClock
    from safewrite.stores.clients import shared_client
    from safewrite.stores.s3 import S3Objects
    from safewrite.stores.settings import encryption

    s3 = shared_client("s3", boto3_session, storage_options)
    clock = ServerClock()
    asked = encryption(storage_options)
    objects = S3Objects(s3, address.bucket, address.prefix, clock=clock, encryption=asked)
    endpoint = "aws" if str(s3.meta.endpoint_url).endswith(".amazonaws.com") else str(s3.meta.endpoint_url)
    if choice.lock_table is None:
        world = World(objects, ledger=ObjectLedger(objects), wall_ms=clock)
        return Connection(
            address,
            choice.name,
            Arbiter(lock_table=False),
            world,
            endpoint=endpoint,
            storage_options=storage_options,
            travels=boto3_session is None,
        )
    from safewrite.stores import lock_table as lock_tables
    from safewrite.stores.dynamodb import DynamoDBLocks, DynamoDBQueue, spark_path
    from safewrite.stores.dynamodb_ledger import DynamoDBLedger

    table_name = choice.lock_table
    client, path = shared_client("dynamodb", boto3_session, storage_options), spark_path(address.uri)
    if create_lock_table:
        lock_tables.ensure(client, table_name)
    world = World(
        objects,
        locks=DynamoDBLocks(client, table_name, path),
        ledger=DynamoDBLedger(client, table_name, path, in_groups=True),
        queue=DynamoDBQueue(client, table_name, path) if queue else None,
        wall_ms=clock,
    )
    unique = lock_tables.identity(client, table_name)
    return Connection(
        address,
        choice.name,
        Arbiter(lock_table=True, lease=queue),
        world,
        table_name,
        unique,
        endpoint=endpoint,
        storage_options=storage_options,
        travels=boto3_session is None,
    )


def probe(connection: Connection, recorded: Mapping[str, str], limits: Limits) -> None:
    """Refuse a store that does not keep conditional creates exclusive, once per process and endpoint.

    A table whose properties record that this endpoint was probed is believed.
    """
    if not connection.address.is_s3 or recorded.get(PROPERTY_PROBED) == connection.endpoint:
        return
    mark = (connection.endpoint, connection.address.bucket, connection.lock_table or "")
    if mark in _honest:
        return
    from safewrite.stores.probe import probe_locks, probe_objects

    probe_objects(connection.world.objects, connection.world, limits)
    if connection.lock_table is not None:
        from safewrite.stores.dynamodb import DynamoDBLocks

        locks = connection.world.locks
        assert isinstance(locks, DynamoDBLocks)
        scratch = DynamoDBLocks(locks.client, locks.table_name, f"safewrite:probe:{uuid.uuid4()}")
        probe_locks(scratch, connection.world, limits, remove=scratch.remove)
    _honest.add(mark)


def _local(address: Address, lock_table: str | None, arbiter: str | None) -> Connection:
    if lock_table is not None or arbiter not in (None, "local"):
        raise InvalidInputError(
            f"{address.uri} is a local path: lock_table= and arbiter= are for tables on S3. Nothing was "
            "written. Leave them out; a local table needs no server."
        )
    from safewrite.stores.local import LocalObjects, SqliteLedger

    refuse_file(Path(address.uri))
    objects = LocalObjects(address.uri)
    ledger = SqliteLedger(objects.folder / "_safewrite" / "ledger.sqlite")
    return Connection(address, "local", Arbiter(lock_table=False), World(objects, ledger=ledger, threads=4))


def refuse_file(folder: Path) -> None:
    """Refuse a file where the table's folder, or one above it, should be."""
    for place in (folder, *folder.parents):
        try:
            mode = place.stat().st_mode  # one look: another writer may be making the folder
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:  # the world tells it, where it matters
            return
        if not stat.S_ISDIR(mode):
            raise InvalidInputError(
                f"{folder} cannot be a table: {place} is a file, not a folder. Nothing was written. Give the folder of "
                "the table."
            )
        return
