"""Names the files that versions of a Delta table need which it keeps, and says what of its folder is its own."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from functools import partial

from safewrite.changes.meaning.row_vectors import VectorError
from safewrite.delta.data.vectors import path_of
from safewrite.delta.log import actions, segment
from safewrite.delta.log.actions import Action
from safewrite.delta.log.checkpoint import is_same_log
from safewrite.delta.log.checkpoint_file import TOMBSTONE_RETENTION_DEFAULT
from safewrite.delta.log.cleanup import clean, last_before, times_of
from safewrite.delta.log.features import interval_s
from safewrite.delta.log.replay import commits_since, load_files
from safewrite.delta.log.snapshot import Snapshot, load
from safewrite.errors import ConflictError, Kind, StorageError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.values import Listed
from safewrite.upkeep.maintain import Settled, Settling
from safewrite.upkeep.unused import Folder, name_of, remove

RETENTION = "delta.deletedFileRetentionDuration"
AT_ONCE = 500
"""So many commits are in memory at once."""
_DATA = re.compile(r".+\.parquet|deletion_vector_.+\.bin")


def settled(
    checkpoint: int | None, state: Snapshot, asked: Settling, limits: Limits
) -> Generator[Effect, Outcome, Settled]:
    """Remove what the table keeps no longer of its log, and files that nothing needs if that is asked for.  Raises as ``clean`` does."""
    removed = yield from clean(state, limits, dry_run=asked.dry_run)
    if not asked.remove_unused:
        return Settled(checkpoint, removed)
    return Settled(
        checkpoint, removed, (yield from remove(folder_of(state, limits), limits, dry_run=asked.dry_run))
    )


def folder_of(state: Snapshot, limits: Limits) -> Folder:
    """The folder of a table.

    Raises:
        UnsafeConfigError: the property that says how long removed files are kept is no duration.
    """
    kept_s = interval_s(state.properties.get(RETENTION, TOMBSTONE_RETENTION_DEFAULT), key=RETENTION)
    return Folder(
        state.table_id,
        "",
        int(kept_s * 1000),
        partial(_named, state.table_id, limits),
        is_data,
        partial(is_same_log, state, limits),
        _refuses,
    )


def is_data(path: str) -> bool:
    """Whether a path is of a data file, a change file or a file of vectors; folders that VACUUM passes over are passed over too."""
    *folders, name = path.split("/")
    hidden = [
        one for one in folders if one.startswith(("_", ".")) and "=" not in one and one != "_change_data"
    ]
    return not hidden and _DATA.fullmatch(name) is not None


def _named(
    table_id: str, limits: Limits, listed: Sequence[Listed], before_ms: int
) -> Generator[Effect, Outcome, frozenset[str]]:
    """Files that are live, that the log says were removed, and all that commits since a time name.

    Raises:
        StorageError: no answer, or a commit since then is gone.
        ConflictError: kind TABLE_REPLACED.
    """
    state = yield from load(limits=limits)
    if state is None or state.table_id != table_id:
        raise ConflictError(
            "The table was made again meanwhile. No file was removed.", kind=Kind.TABLE_REPLACED
        )
    files = yield from load_files(state, limits=limits)
    names = {*_names([*files.adds.values(), *files.tombstones.values()])}
    first = last_before(times_of(segment.read(listed, whole=True)), before_ms)
    for start in range(first, state.version, AT_ONCE):
        commits = yield from commits_since(start, min(start + AT_ONCE, state.version), limits)
        if commits is None:
            raise StorageError(
                f"A commit after version {start} is gone, so nobody knows what versions since then need. No file was removed."
            )
        for commit in commits:
            names |= {*_names([*commit.adds(), *commit.removes(), *commit.of("cdc")])}
    return frozenset(names)


def _names(files: Iterable[Action]) -> Iterable[str]:
    for one in files:
        path, _ = actions.file_key(one)
        yield name_of(path)
        vector = one.get("deletionVector")
        if vector and vector.get("storageType") != "i":
            try:
                yield name_of(path_of(vector, "") or "")
            except VectorError:
                yield name_of(str(vector.get("pathOrInlineDv")))


def _refuses(listed: Sequence[Listed]) -> Generator[Effect, Outcome, str]:
    """Why no file of the folder may go."""
    yield from ()
    if any(one.path.startswith("metadata/") and ".metadata.json" in one.path for one in listed):
        return "an Iceberg table has metadata in this folder"
    return ""
