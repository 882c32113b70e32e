"""Verifies that the table holds everything sent, once: keys against the log, rows against the data files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log import actions
from safewrite.delta.log.replay import load_files
from safewrite.delta.maintenance.inspection import ASKS, Inspection
from safewrite.delta.read.files import read_files
from safewrite.delta.write.members import ENGINE, all_writes, those_carried
from safewrite.errors import TableNotFoundError
from safewrite.findings import KeyAudit
from safewrite.progress import watched
from safewrite.protocol import keys
from safewrite.protocol.members import Wanted
from safewrite.stores.world import run


def audit_keys(found: Inspection, sent: Iterable[str]) -> KeyAudit:
    """Look every sent key up in the log, and in the ledger where the log was cleaned up."""
    _must_exist(found)
    wanted = dict.fromkeys(sent)
    places: dict[str, list[tuple[int, int, bool]]] = {key: [] for key in wanted}
    sought = Wanted(wanted)
    for version, commit in watched(sorted(found.commits.items()), "commits", len(found.commits)):
        info = (commit.commit_info or {}).get(ENGINE) or {}
        if not those_carried(info, sought):
            continue
        writes = run(all_writes(info, ASKS), found.world)
        # Files that stand for those that a write removed have rows of these, too.
        counts_rows = _is_append(commit) or (len(writes) == 1 and not commit.removes())
        whole = not counts_rows or _rows_agree(commit, sum(int(write["rows"]) for write in writes))
        for write in writes:
            if write["key"] in places:
                places[write["key"]].append((version, int(write["rows"]), whole))
    whole_log = bool(found.listing.commits) and found.listing.commits[0] == 0 and not found.torn
    absent = [key for key, where in places.items() if not where]
    asked = [] if whole_log else absent
    in_ledger = {
        key: rows
        for key in watched(asked, "keys in the ledger", len(asked))
        if (rows := _ledger_rows(found, key)) is not None
    }
    missing = tuple(key for key in absent if key not in in_ledger)
    once = [where[0] for where in places.values() if len(where) == 1]
    return KeyAudit(
        present=len(wanted) - len(missing),
        rows=sum(rows for _, rows, _ in once) + sum(in_ledger.values()),
        lost=missing if whole_log else (),
        doubled=tuple(key for key, where in places.items() if len(where) > 1),
        torn=tuple(key for key, where in places.items() if any(not whole for _, _, whole in where)),
        unknown=() if whole_log else missing,
    )


def _is_append(commit: actions.Commit) -> bool:
    """Whether a commit adds the rows of its writes and no others."""
    return bool((commit.commit_info or {}).get("isBlindAppend"))


def _rows_agree(commit: actions.Commit, rows: int) -> bool:
    counts = [actions.rows_of(action) for action in commit.adds()]
    return None in counts or sum(count for count in counts if count is not None) == rows


def _ledger_rows(found: Inspection, key: str) -> int | None:
    """Rows of a key that the ledger knows as committed."""
    record = run(keys.recall(key, ASKS), found.world)
    return (
        int(record.fingerprint.split(":")[1]) if record is not None and record.version is not None else None
    )


def read_rows(found: Inspection, columns: tuple[str, ...]) -> dict[str, list[Any]]:
    """These columns of all rows of the newest version, as plain values.

    Raises:
        StorageError: a data file is missing, or a deletion vector is not what the log says.
        MissingExtraError: deletion vectors without pyroaring.
    """
    _must_exist(found)
    assert found.state is not None
    files = run(load_files(found.state, limits=ASKS), found.world)
    gathered: dict[str, list[Any]] = {name: [] for name in columns}
    vectors = Vectors(found.address.uri)
    for add in watched(files.adds.values(), "data files", len(files.adds)):
        part = run(read_files([add], found.state, vectors, ASKS, columns=columns), found.world)
        for name in columns:
            gathered[name] += part.column(name).to_pylist()
    return gathered


def _must_exist(found: Inspection) -> None:
    if found.state is None:
        raise found.state_error or TableNotFoundError(
            f"There is no Delta table at {found.address.uri}. Nothing was written. Check the address."
        )
