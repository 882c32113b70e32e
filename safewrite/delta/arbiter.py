"""Decides who arbitrates a Delta table, and refuses writers that disagree about it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from safewrite.arguments.options import DEFAULT_LOCK_TABLE, ArbiterName
from safewrite.errors import InvalidInputError, Kind, StorageError, UnsafeConfigError

if TYPE_CHECKING:
    from safewrite.delta.abc import Arbitrated

PROPERTY_ARBITER = "safewrite.arbiter"
PROPERTY_LOCK_TABLE = "safewrite.lock-table"
PROPERTY_LOCK_PATH = "safewrite.lock-path"
PROPERTY_PROBED = "safewrite.probed"
OWN_PROPERTIES = frozenset({PROPERTY_ARBITER, PROPERTY_LOCK_TABLE, PROPERTY_LOCK_PATH, PROPERTY_PROBED})
_LOCK_TABLE_SETTING = "DELTA_DYNAMO_TABLE_NAME"


@dataclass(frozen=True, slots=True)
class Choice:
    """Who arbitrates a table; ``lock_table`` is None where no lock table does."""

    name: ArbiterName
    lock_table: str | None


def choose(
    recorded: Mapping[str, str],
    *,
    lock_table: str | None,
    arbiter: str | None,
    storage_options: Mapping[str, str] | None,
    otherwise: ArbiterName = "dynamodb",
) -> Choice:
    """Choose the arbiter that is given, else the one that the table's properties record, else one with the
    lock table that settings name.

    Raises:
        InvalidInputError: the arguments contradict each other, or name no arbiter.
    """
    _check_given(lock_table, arbiter)
    named = {key.upper(): value for key, value in (storage_options or {}).items()}.get(_LOCK_TABLE_SETTING)
    named = named or os.environ.get(_LOCK_TABLE_SETTING)
    there = _recorded_table(recorded)
    if arbiter == "object-store":
        return Choice("object-store", None)
    if arbiter == "dynamodb" or lock_table is not None:
        return Choice("dynamodb", lock_table or there or named or DEFAULT_LOCK_TABLE)
    name = recorded.get(PROPERTY_ARBITER) or ("dynamodb" if named else otherwise)
    if name == "dynamodb":
        return Choice("dynamodb", there or named or DEFAULT_LOCK_TABLE)
    return Choice("object-store", None)


def _check_given(lock_table: str | None, arbiter: str | None) -> None:
    if arbiter not in (None, "dynamodb", "object-store"):
        raise InvalidInputError(
            f"arbiter={arbiter!r} is not known. Nothing was written. Use 'dynamodb' (the default on S3, with "
            "lock_table=) or 'object-store' (conditional PUT alone)."
        )
    if arbiter == "object-store" and lock_table is not None:
        raise InvalidInputError(
            "arbiter='object-store' uses no lock table, but lock_table= was given. Nothing was written. "
            "Choose one: a table must have one arbiter."
        )


def _recorded_table(recorded: Mapping[str, str]) -> str | None:
    """The name in ``region/name/unique``."""
    parts = recorded.get(PROPERTY_LOCK_TABLE, "").split("/")
    return parts[1] if len(parts) == 3 else None


def check_arbiter(connection: Arbitrated, recorded: Mapping[str, str]) -> None:
    """Refuse two writers that disagree about who arbitrates (A12, A16).

    Raises:
        UnsafeConfigError: kind ARBITER_MISMATCH.
    """
    theirs = recorded.get(PROPERTY_ARBITER)
    if theirs is not None and theirs != connection.arbiter_name:
        raise UnsafeConfigError(
            f"This table's arbiter is {theirs!r}; it was opened with {connection.arbiter_name!r}. Two arbiters for "
            f"one table lose rows. Nothing was written. {_cure(connection, theirs, recorded)}",
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


def check_lock_table_there(uri: str, recorded: Mapping[str, str], error: StorageError) -> None:
    """Say first what a table records, where the lock table that was asked for is not there: another one would be a stray.

    Raises:
        StorageError: kind LOCK_TABLE_UNUSABLE; the table records a lock table.
    """
    theirs = recorded.get(PROPERTY_LOCK_TABLE)
    if theirs is None:
        return
    region, name = theirs.partition("/")[0], _recorded_table(recorded)
    raise StorageError(
        f"The table at {uri} records that the lock table {name!r} in region {region} guards it ({theirs}). "
        f"{str(error).partition(' Nothing was written.')[0]} Nothing was written. Open it with lock_table={name!r}, AWS_REGION={region} and "
        "credentials of that account. Do not make another lock table: it would not exclude the writers of this one.",
        kind=Kind.LOCK_TABLE_UNUSABLE,
    ) from error


def _cure(connection: Arbitrated, theirs: str, recorded: Mapping[str, str]) -> str:
    """How a table can be written to that another arbiter guards; one of S3 is none for a folder, nor the reverse."""
    uri = connection.address.uri
    if theirs == "local":
        return f"If this is a copy of a local table, make it one of its own: `safewrite adopt {uri} --lock-table NAME`."
    if not connection.address.is_s3:
        return f"If this is a copy of a table on S3, on a local disk, make it one of its own: `safewrite adopt {uri}`."
    return f"Open it with {_as_recorded(theirs, recorded)}."


def _as_recorded(arbiter: str, recorded: Mapping[str, str]) -> str:
    """The arguments that name the arbiter recorded in a table."""
    if arbiter != "dynamodb":
        return f"arbiter={arbiter!r}"
    name, region = _recorded_table(recorded), recorded.get(PROPERTY_LOCK_TABLE, "").partition("/")[0]
    return f"lock_table={name!r} (region {region})" if name else "arbiter='dynamodb' and its lock_table="


def choose_spelling(connection: Arbitrated, recorded: Mapping[str, str], *, ours: bool, others: bool) -> None:
    """Claim versions where the table's other lock-table writers do (A15).

    Spark spells a table ``s3a://...``; deltalake before 1.6 as its user does, mostly ``s3://...``, and its
    copy overwrites ``N.json``: it does not see a writer that claims under another spelling.  ``ours`` and
    ``others`` say whether there are entries under the connection's spelling and under the other one.
    The connection is respelled where the other spelling is the one in use.

    Raises:
        UnsafeConfigError: kind MIXED_WRITERS; both spellings are in use, so no writer is safe.
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
