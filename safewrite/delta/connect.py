"""From an address and settings to a world: clients, stores, arbiter, probe."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from safewrite.errors import InvalidInputError, Kind, UnsafeConfigError
from safewrite.options import DEFAULT_LOCK_TABLE, Address, ArbiterName, parse_address, refuse_unsafe
from safewrite.protocol.delta.commit import Arbiter
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.local import LocalObjects, SqliteLedger
from safewrite.stores.probe import probe_locks, probe_objects
from safewrite.stores.world import World

if TYPE_CHECKING:
    import boto3

PROPERTY_ARBITER = "safewrite.arbiter"
PROPERTY_LOCK_TABLE = "safewrite.lock-table"
PROPERTY_LOCK_PATH = "safewrite.lock-path"
PROPERTY_PROBED = "safewrite.probed"


@dataclass(frozen=True, slots=True)
class Connection:
    """A table's world and who arbitrates in it.

    ``lock_table_id`` names one lock table of one DynamoDB: two with the same name are told apart (A16).
    ``endpoint`` is where the object store was probed.
    """

    address: Address
    name: ArbiterName
    arbiter: Arbiter
    world: World
    lock_table: str | None = None
    lock_table_id: str | None = None
    endpoint: str = "local"

    @property
    def lock_path(self) -> str:
        """The spelling of the table's path under which versions are claimed; '' without a lock table."""
        return str(getattr(self.world.locks, "table_path", ""))

    def properties(self) -> dict[str, str]:
        """What a table records of its arbiter."""
        recorded = {PROPERTY_ARBITER: str(self.name), PROPERTY_PROBED: self.endpoint}
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
    """Build the world of a table; nothing is written but, where asked, the lock table itself.

    Raises:
        UnsafeConfigError: a setting allows silent loss.
        InvalidInputError: the settings contradict each other.
        StorageError: the lock table cannot be used.
    """
    refuse_unsafe(storage_options)
    address = parse_address(uri)
    if not address.is_s3:
        return _local(address, lock_table, arbiter)
    name, table_name = _choose(lock_table, arbiter, storage_options)
    from safewrite.stores.aws import ServerClock, shared_client
    from safewrite.stores.s3 import S3Objects

    s3 = shared_client("s3", boto3_session, storage_options)
    clock = ServerClock()
    objects = S3Objects(s3, address.bucket, address.prefix, clock=clock)
    endpoint = "aws" if str(s3.meta.endpoint_url).endswith(".amazonaws.com") else str(s3.meta.endpoint_url)
    if name == "object-store":
        world = World(objects, ledger=ObjectLedger(objects), wall_ms=clock)
        return Connection(address, name, Arbiter(lock_table=False), world, endpoint=endpoint)
    from safewrite.stores import lock_table as lock_tables
    from safewrite.stores.dynamodb import DynamoDBLedger, DynamoDBLocks, DynamoDBQueue, spark_path

    client, path = shared_client("dynamodb", boto3_session, storage_options), spark_path(address.uri)
    if create_lock_table:
        lock_tables.ensure(client, table_name)
    world = World(
        objects,
        locks=DynamoDBLocks(client, table_name, path),
        ledger=DynamoDBLedger(client, table_name, path),
        queue=DynamoDBQueue(client, table_name, path) if queue else None,
        wall_ms=clock,
    )
    unique = lock_tables.identity(client, table_name)
    return Connection(
        address, name, Arbiter(lock_table=True, lease=queue), world, table_name, unique, endpoint=endpoint
    )


def probe(connection: Connection, recorded: Mapping[str, str]) -> None:
    """Refuse a store that does not keep conditional creates exclusive, once per process and endpoint.

    A table whose properties record that this endpoint was probed is taken at its word.
    """
    if not connection.address.is_s3 or recorded.get(PROPERTY_PROBED) == connection.endpoint:
        return
    mark = (connection.endpoint, connection.address.bucket, connection.lock_table or "")
    if mark in _honest:
        return
    probe_objects(connection.world.objects)
    if connection.lock_table is not None:
        from safewrite.stores.dynamodb import DynamoDBLocks

        locks = connection.world.locks
        assert isinstance(locks, DynamoDBLocks)
        scratch = DynamoDBLocks(locks.client, locks.table_name, f"safewrite:probe:{uuid.uuid4()}")
        probe_locks(scratch, scratch.remove)
    _honest.add(mark)


def check_arbiter(connection: Connection, recorded: Mapping[str, str]) -> None:
    """Two writers must not disagree about who arbitrates (A12, A16).

    Raises:
        UnsafeConfigError: kind ARBITER_MISMATCH.
    """
    theirs = recorded.get(PROPERTY_ARBITER)
    if theirs is not None and theirs != connection.name:
        raise UnsafeConfigError(
            f"This table's arbiter is {theirs!r}; it was opened with {connection.name!r}. Two arbiters for "
            f"one table lose rows. Nothing was written. Open it with {_as_recorded(theirs, recorded)}.",
            kind=Kind.ARBITER_MISMATCH,
        )
    unique = recorded.get(PROPERTY_LOCK_TABLE)
    if unique is not None and connection.lock_table_id is not None and unique != connection.lock_table_id:
        raise UnsafeConfigError(
            f"This table is guarded by the lock table {unique}; {connection.lock_table_id} was given. Two "
            "lock tables do not exclude each other's writers. Nothing was written. Open it with the lock "
            "table that guards it (same name, region and account).",
            kind=Kind.ARBITER_MISMATCH,
        )


def _as_recorded(arbiter: str, recorded: Mapping[str, str]) -> str:
    """The arguments that name the arbiter which a table has on record."""
    if arbiter != "dynamodb":
        return f"arbiter={arbiter!r}"
    region, _, rest = recorded.get(PROPERTY_LOCK_TABLE, "").partition("/")
    name = rest.rpartition("/")[0]
    return f"lock_table={name!r} (region {region})" if name else "arbiter='dynamodb' and its lock_table="


def choose_spelling(
    connection: Connection, recorded: Mapping[str, str], *, ours: bool, others: bool
) -> Connection:
    """Claim versions where the table's other lock-table writers do (A15).

    Spark spells a table ``s3a://...``; deltalake before 1.6 as its user does, mostly ``s3://...``, and its
    copy overwrites ``N.json``: a writer that claims under another spelling is not seen by it.  ``ours`` and
    ``others`` say whether there are entries under the connection's spelling and under the other one.
    Returns the connection, respelled where the other spelling is the one in use.

    Raises:
        UnsafeConfigError: kind MIXED_WRITERS; both spellings are in use, so nobody is safe.
    """
    locks = connection.world.locks
    other_path = str(getattr(locks, "other_path", ""))
    wanted = recorded.get(PROPERTY_LOCK_PATH)
    if wanted == other_path or (wanted is None and others and not ours):
        locks.respell(other_path)  # type: ignore[union-attr]
        ours, others = others, ours
    if others:
        raise UnsafeConfigError(
            f"The lock table holds entries of {connection.address.uri} under two spellings of its path "
            f"({connection.lock_path} and {getattr(locks, 'other_path', '')}): writers of one do not see those of "
            "the other, and deltalake before 1.6 overwrites their commits. Nothing was written. Stop the writers "
            "of one spelling; once its entries have expired, or `safewrite locks clear` removed them, go on.",
            kind=Kind.MIXED_WRITERS,
        )
    return connection


def _local(address: Address, lock_table: str | None, arbiter: str | None) -> Connection:
    if lock_table is not None or arbiter not in (None, "local"):
        raise InvalidInputError(
            f"{address.uri} is a local path: lock_table= and arbiter= are for tables on S3. Nothing was "
            "written. Leave them out; a local table needs no server."
        )
    _refuse_file(Path(address.uri))
    objects = LocalObjects(address.uri)
    ledger = SqliteLedger(objects.folder / "_safewrite" / "ledger.sqlite")
    return Connection(address, "local", Arbiter(lock_table=False), World(objects, ledger=ledger, threads=4))


def _refuse_file(folder: Path) -> None:
    """Refuse a file where the table's folder, or one above it, should be."""
    for place in (folder, *folder.parents):
        try:
            if place.is_dir():
                return
            there = place.exists()
        except OSError:  # the world tells it, where it matters
            return
        if there:
            raise InvalidInputError(
                f"{folder} cannot be a table: {place} is a file, not a folder. Nothing was written. Give the folder of "
                "the table."
            )


def _choose(
    lock_table: str | None, arbiter: str | None, storage_options: Mapping[str, str] | None
) -> tuple[ArbiterName, str]:
    given = {key.upper(): value for key, value in (storage_options or {}).items()}
    if arbiter not in (None, "dynamodb", "object-store"):
        raise InvalidInputError(
            f"arbiter={arbiter!r} is not known. Nothing was written. Use 'dynamodb' (the default on S3, with "
            "lock_table=) or 'object-store' (conditional PUT alone)."
        )
    if arbiter == "object-store":
        if lock_table is not None:
            raise InvalidInputError(
                "arbiter='object-store' uses no lock table, but lock_table= was given. Nothing was written. "
                "Choose one: a table must have one arbiter."
            )
        return "object-store", ""
    named = given.get("DELTA_DYNAMO_TABLE_NAME") or os.environ.get("DELTA_DYNAMO_TABLE_NAME")
    return "dynamodb", lock_table or named or DEFAULT_LOCK_TABLE
