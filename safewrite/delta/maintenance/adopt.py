"""Makes a copy of a table one of its own: the arbiter of its new address decides, and knows its keys.

Two arbiters never decide about one log.  The record of the new one is a commit under it, and until then every
writer of the old one is out of reach: a folder's writers cannot reach S3, and those on S3 cannot reach a local disk.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from safewrite.delta.arbiter import OWN_PROPERTIES, PROPERTY_ARBITER, check_arbiter
from safewrite.delta.connect import Connection, probe
from safewrite.delta.log import actions, segment
from safewrite.delta.log.features import check_append
from safewrite.delta.log.retention import PropertiesCandidate
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.delta.opening import check_table, not_there, refuse_guarded
from safewrite.delta.write.abc import Write
from safewrite.delta.write.members import all_writes, own_info
from safewrite.errors import Kind, UnsafeConfigError
from safewrite.findings import Step, Steps
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import commit
from safewrite.protocol.effects import Effect, Get, LedgerCommit, Ok, Outcome
from safewrite.protocol.fetch import fetch, fetch_one
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.mounts import file_system, is_shared
from safewrite.stores.world import run

COMMITS_AT_ONCE = 64


def adopt(connection: Connection, *, engine_version: str, dry_run: bool = False) -> Steps:
    """Record the keys of the log in the ledger of this address, then its arbiter in the table.

    Raises:
        TableNotFoundError: there is no table.
        UnsafeConfigError: kind ARBITER_MISMATCH; writers of the recorded arbiter may reach this address.
        UnsupportedTableError: ``safewrite.open`` refuses the table for another reason.
        StorageError: the store or the ledger gave no answer; call again.
    """
    limits = Limits()
    state = run(load(limits=limits), connection.world)
    if state is None:
        raise not_there(connection.address.uri)
    check_append(state)
    check_table(state)
    recorded = state.properties.get(PROPERTY_ARBITER)
    if recorded == connection.arbiter_name:
        check_arbiter(connection, state.properties)
        return
    _check_out_of_reach(connection, state.properties)
    if connection.arbiter_name == "object-store":
        refuse_guarded(connection, connection.world, limits)
    if dry_run:
        yield Step("record_keys", connection.address.uri, "would", "the keys of the log")
        yield Step("record_arbiter", str(connection.arbiter_name), "would", f"it is {recorded or 'none'}")
        return
    probe(connection, {}, limits)
    told = run(_record_keys(state, limits), connection.world)
    yield Step("record_keys", connection.address.uri, "done", f"{told} keys of the log")
    version = _record_arbiter(connection, state, engine_version)
    yield Step(
        "record_arbiter", str(connection.arbiter_name), "done", f"it was {recorded or 'none'}", version
    )


def _check_out_of_reach(connection: Connection, recorded: Mapping[str, str]) -> None:
    if connection.address.is_s3:
        if recorded.get(PROPERTY_ARBITER) != "local":
            check_arbiter(connection, recorded)  # another arbiter of S3, or none
        return
    kind = file_system(Path(connection.address.uri))
    if is_shared(kind):
        raise UnsafeConfigError(
            f"{connection.address.uri} is on a file system ({kind or 'of a type that this system does not tell'}) to which "
            f"other machines may write, perhaps the bucket itself; the table's arbiter is {recorded.get(PROPERTY_ARBITER)!r}. "
            "Two arbiters for one table lose rows. Nothing was written. Copy the table to a local disk, and adopt it there.",
            kind=Kind.ARBITER_MISMATCH,
        )


# --- keys -----------------------------------------------------------------------------------------------
def _record_keys(state: Snapshot, limits: Limits) -> Generator[Effect, Outcome, int]:
    """Tell the ledger of this address every key that the log has: a ledger is not copied with its table."""
    answer = yield from fetch_one(segment.effect(None), limits)
    listed = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(listed, tuple)
    found = [v for v in segment.read(listed, whole=True).commits if v <= state.version]
    told = 0
    for first in range(0, len(found), COMMITS_AT_ONCE):
        versions = found[first : first + COMMITS_AT_ONCE]
        gets = [Get(actions.commit_path(version), name="adopt.get_commit") for version in versions]
        bodies = yield from fetch(gets, limits, name="adopt.get_commits")
        records: list[LedgerRecord] = []
        for version, body in zip(versions, bodies, strict=True):
            if isinstance(body, Ok) and isinstance(body.value, bytes):
                records += yield from _keyed(version, body.value, state.table_id, limits)
        puts = [LedgerCommit(record, name="adopt.record_key") for record in records]
        yield from fetch(puts, limits, name="adopt.record_keys")
        told += len(records)
    return told


def _keyed(
    version: int, body: bytes, table_id: str, limits: Limits
) -> Generator[Effect, Outcome, Sequence[LedgerRecord]]:
    """Records of a commit's writes; those of a stream's batches are in the table itself."""
    writes = yield from all_writes(own_info(body, version), limits)
    return [
        LedgerRecord(str(one["key"]), version - 1, str(one["fingerprint"]), version, table_id=table_id)
        for one in writes
        if not one.get("txn") and keys.base_of_generated(str(one["key"])) is None
    ]


# --- the arbiter ----------------------------------------------------------------------------------------
def _record_arbiter(connection: Connection, state: Snapshot, engine_version: str) -> int:
    kept = {name: value for name, value in state.properties.items() if name not in OWN_PROPERTIES}
    ours = connection.properties()
    candidate = PropertiesCandidate(
        commit_id=str(uuid.uuid4()),
        write=Write(keys.generated(str(uuid.uuid4()), state.version), "v1:0:" + "0" * 32),
        timestamp_ms=connection.world.wall_ms(),
        limits=Limits(),
        state=state,
        metadata={**state.metadata, "configuration": kept | ours},
        engine_version=engine_version,
        changed=ours,
    )
    landed = run(
        commit(candidate, state.version, arbiter=connection.arbiter, limits=Limits()), connection.world
    )
    return landed.version
