"""Decides what other writers' commits make of a write."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from safewrite.delta.log.actions import Action, Commit
from safewrite.delta.log.indexing import CLUSTERING
from safewrite.delta.log.snapshot import Snapshot, domains_after
from safewrite.errors import ConflictError, ForeignWriterError, Kind, ReplayMismatchError, UnsafeConfigError
from safewrite.protocol.positions import Moves, moved

if TYPE_CHECKING:
    from safewrite.delta.write.abc import Write

OWN_PROPERTIES = "safewrite."
FINGERPRINT_OF = "safewrite:fingerprint:"
"""App id of the ``txn`` that carries the 63-bit fingerprint of an app's last batch, past any log clean-up."""
VERSION_OF = "safewrite:version:"
"""App id of the ``txn`` that carries the table version in which an app's last batch landed, or a position was moved."""
_POSITION = "safewrite:position:"
"""App ids of the ``txn`` actions that carry positions; the table's id follows, for a table that replaces another
(CREATE OR REPLACE) keeps its log, and has none of its rows."""


def check_batch(write: Write, version: int, commit: Commit) -> None:
    """Refuse to follow another batch of our app that has landed (E3, E7)."""
    if write.txn is None:
        return
    app_id, app_version = write.txn
    for txn in commit.txns:
        if txn["appId"] == app_id and txn["version"] >= app_version:
            raise ReplayMismatchError(
                f"App {app_id!r} committed its version {txn['version']} in table version {version} while "
                f"this call was writing version {app_version}: two writers use one app id. Nothing of this "
                "call was written. Stop one of them, or give it an app id of its own.",
                key=write.key,
            )


def rewritten(version: int, key: str) -> ForeignWriterError:
    """The error of a commit of ours that has other bytes."""
    return ForeignWriterError(
        f"Version {version} is our commit with other bytes: another writer rewrites commit files. "
        "Stop the other writers and run `safewrite doctor` on the table.",
        key=key,
    )


def clusters(commit: Commit) -> bool:
    """Whether a commit says by which columns the table is clustered."""
    return any(domain["domain"] == CLUSTERING for domain in commit.domain_metadata)


def check_table(
    state: Snapshot | None, version: int, commit: Commit, own: Action | None, *, records_arbiter: bool
) -> None:
    """Refuse to follow a commit that made another table of it: another protocol, clustering, schema, properties, or arbiter (H9).

    ``own`` is the metadata that this write brings; where it only ``records_arbiter``, the other's may take its place.
    """
    if state is None and version == 0:
        raise ConflictError(
            "Another writer created the table meanwhile. Nothing was committed; the rows must be "
            "checked against its schema: call again.",
            kind=Kind.SCHEMA_CHANGED,
        )
    if state is None:
        return
    if commit.protocol is not None and commit.protocol != state.protocol:
        raise _changed(version, "changed the table's protocol")
    # Files must have statistics of these columns (PROTOCOL.md, "Clustered Table").
    if domains_after(state.domains, commit.domain_metadata).get(CLUSTERING) != state.domains.get(CLUSTERING):
        raise _changed(version, "changed the columns by which the table is clustered")
    if commit.metadata is None:
        return
    if significant(commit.metadata) != significant(state.metadata):
        raise _changed(version, "changed the table's schema or properties")
    check_arbiter(version, commit.metadata, own or state.metadata)
    if own is not None and not records_arbiter:
        raise ConflictError(
            f"Version {version} changed the table's metadata while this write was about to change it too. "
            "Nothing was committed; call again.",
            kind=Kind.SCHEMA_CHANGED,
        )


def _changed(version: int, what: str) -> ConflictError:
    return ConflictError(
        f"Version {version} {what} while this write was under way. Nothing was committed; call again.",
        kind=Kind.SCHEMA_CHANGED,
    )


# --- positions of sources -------------------------------------------------------------------------------
def position_id(table_id: str, name: str) -> str:
    """The app id under which a table keeps the position of a source."""
    return f"{_POSITION}{table_id}:{name}"


def numbers_of(writes: Sequence[Write], moves: Moves, table_id: str, version: int) -> dict[str, int]:
    """What the ``txn`` actions of a commit say of its writes and of positions, by app id."""
    found: dict[str, int] = {}
    for write in writes:
        if write.txn is not None:
            app_id, app_version = write.txn
            found[app_id] = app_version
            found[FINGERPRINT_OF + app_id] = write.fingerprint_int63
            found[VERSION_OF + app_id] = version
    for name, move in moves.items():
        position = position_id(table_id, name)
        found[position], found[VERSION_OF + position] = move.end, version
    return found


def moved_in(state: Snapshot, name: str) -> int:
    """The version whose commit moved a position last; the last that it can be where nothing tells."""
    told = state.txns.get(VERSION_OF + position_id(state.table_id, name))
    return told if told is not None else state.read_from - 1


def positions_of(state: Snapshot | None) -> Mapping[str, int]:
    """The positions of a table by name."""
    if state is None:
        return MappingProxyType({})
    own = position_id(state.table_id, "")
    return {app_id[len(own) :]: at for app_id, at in state.txns.items() if app_id.startswith(own)}


def check_moved(moves: Moves, table_id: str | None, commit: Commit, key: str) -> None:
    """Refuse to follow a commit that moved a position of ours, wherever to.

    Raises:
        ConflictError: kind POSITION_MOVED.
    """
    ours = {position_id(str(table_id), name): name for name in moves}
    for txn in commit.txns:
        if txn["appId"] in ours:
            name = ours[txn["appId"]]
            raise moved(name, moves[name], str(txn["version"]), key)


# --- metadata -------------------------------------------------------------------------------------------
def significant(metadata: Action) -> Action:
    """Metadata without what safewrite records about itself."""
    configuration = metadata.get("configuration") or {}
    kept = {name: value for name, value in configuration.items() if not name.startswith(OWN_PROPERTIES)}
    return {
        "id": metadata.get("id"),
        "schemaString": json.loads(metadata["schemaString"]),
        "partitionColumns": metadata.get("partitionColumns") or [],
        "configuration": kept,
    }


def own_properties(metadata: Action) -> dict[str, str]:
    """What metadata says of the table's arbiter."""
    configuration = metadata.get("configuration") or {}
    names = ("safewrite.arbiter", "safewrite.lock-table", "safewrite.lock-path")
    return {name: value for name, value in configuration.items() if name in names}


def check_arbiter(version: int, metadata: Action, own: Action) -> None:
    """Refuse to follow a commit that recorded another arbiter than ours."""
    theirs, ours = own_properties(metadata), own_properties(own)
    if theirs and ours and theirs != ours:
        raise UnsafeConfigError(
            f"Another writer recorded {theirs} as this table's arbiter in version {version}; this one uses "
            f"{ours}. Two arbiters for one table lose rows. Nothing was committed. Open the table with the "
            "recorded arbiter.",
            kind=Kind.ARBITER_MISMATCH,
        )
