"""Replays the log to the full list of a table's files, for checkpoints and overwrites."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from safewrite.delta.log import actions, ranges, segment
from safewrite.delta.log.actions import Action, Commit, FileKey
from safewrite.delta.log.snapshot import RESTARTS, Snapshot, load
from safewrite.errors import StorageError, UnsupportedTableError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.catch_up import digest_of, replaced
from safewrite.protocol.effects import Backoff, Effect, Get, Missing, Ok, Outcome
from safewrite.protocol.fetch import fetch
from safewrite.stores.table_folder import climbs_in_log
from safewrite.text.rendering import said

FAR = 10
"""From this many commits on, looking for a newer checkpoint costs less than reading them."""


@dataclass(frozen=True)
class LogReplay:
    """Everything that a checkpoint of ``state.version`` holds, reconciled.

    ``adds`` are the live files and ``tombstones`` the ``remove`` actions of files that are not, by
    logical file; ``txns`` and ``domains`` are raw actions by app id and by domain; ``newest_ms`` is the
    newest time that the replayed commits name (0 if none did).
    """

    state: Snapshot
    adds: Mapping[FileKey, Action] = field(repr=False)
    tombstones: Mapping[FileKey, Action] = field(repr=False)
    txns: Mapping[str, Action] = field(repr=False)
    domains: Mapping[str, Action]
    newest_ms: int

    def advance(self, version: int, commit: Commit) -> LogReplay:
        """The files after one more commit.  Raises StorageError as ``Snapshot.advance`` does."""
        return self.after(self.state.advance(version, commit), [commit])

    def after(self, state: Snapshot, commits: Sequence[Commit]) -> LogReplay:
        """The files of ``state``, which these commits lead to."""
        replay = Replay(
            dict(self.adds), dict(self.tombstones), dict(self.txns), dict(self.domains), self.newest_ms
        )
        for commit in commits:
            replay.apply(commit)
        return replay.files(state)


@dataclass
class Replay:
    """Action reconciliation (PROTOCOL.md): the newest action on each key wins."""

    adds: dict[FileKey, Action] = field(default_factory=dict)
    tombstones: dict[FileKey, Action] = field(default_factory=dict)
    txns: dict[str, Action] = field(default_factory=dict)
    domains: dict[str, Action] = field(default_factory=dict)
    newest_ms: int = 0
    astray: set[FileKey] = field(default_factory=set)
    """Files whose paths lead out of the table."""

    def apply(self, commit: Commit) -> None:
        # Removes first: the order within a commit means nothing, and where a commit both removes
        # and adds one path, it replaces it.
        self.remove(commit.removes())
        self.add(commit.adds())
        self.note(commit.txns, commit.domain_metadata)
        info = commit.commit_info or {}
        stamps = [info.get("timestamp"), info.get("inCommitTimestamp")]
        stamps += [removed.get("deletionTimestamp") for removed in commit.removes()]
        self.newest_ms = max([self.newest_ms, *(ms for ms in stamps if isinstance(ms, int))])

    def add(self, adds: Iterable[Action]) -> None:
        for action in adds:
            key = actions.file_key(action)
            self.adds[key] = action
            self.tombstones.pop(key, None)
            if climbs_in_log(action["path"]):
                self.astray.add(key)

    def remove(self, removes: Iterable[Action]) -> None:
        for action in removes:
            key = actions.file_key(action)
            self.adds.pop(key, None)
            self.tombstones[key] = action

    def note(self, txns: Iterable[Action], domains: Iterable[Action]) -> None:
        self.txns.update((txn["appId"], txn) for txn in txns)
        for domain in domains:
            if domain.get("removed"):
                self.domains.pop(domain["domain"], None)
            else:
                self.domains[domain["domain"]] = domain

    def files(self, state: Snapshot) -> LogReplay:
        """What was replayed.

        Raises:
            UnsupportedTableError: a live file's path leads out of the table.
        """
        astray = sorted(key[0] for key in self.astray if key in self.adds)
        if astray:
            raise UnsupportedTableError(
                f"The log names {astray[0]!r} as a file of the table, and that leads out of the table's folder. Nothing was read "
                "there, and nothing was committed. No engine writes such a path: see who wrote this log, and take the file out of "
                "it with FSCK REPAIR TABLE, or restore the log from a versioned copy."
            )
        return LogReplay(state, self.adds, self.tombstones, self.txns, self.domains, self.newest_ms)


@dataclass(frozen=True)
class LogFiles:
    """What the log holds of ``state.version``: the parts of a checkpoint by path, sidecars among them, and the commits after it."""

    state: Snapshot
    parts: Mapping[str, bytes] = field(repr=False)
    commits: Sequence[Commit] = field(repr=False)

    def replayed(self) -> LogReplay:
        """The full list of files.  Raises as :func:`load_files`."""
        replay = Replay()
        for path, body in self.parts.items():
            _replay_part(replay, path, body)
        for commit in self.commits:
            replay.apply(commit)
        return replay.files(self.state)


def load_files(state: Snapshot, *, limits: Limits | None = None) -> Generator[Effect, Outcome, LogReplay]:
    """The full list of files at ``state.version``.  Raises as :func:`read_log`."""
    found = yield from read_log(state, limits=limits)
    return found.replayed()


def read_log(state: Snapshot, *, limits: Limits | None = None) -> Generator[Effect, Outcome, LogFiles]:
    """Read all that the log holds of ``state.version``: its checkpoint and the commits after it.

    Raises:
        StorageError: no answer; CORRUPT_LOG if the checkpoint or a commit cannot be read.
        ConflictError: kind TABLE_REPLACED; the log is of another table.
    """
    limits = limits or Limits()
    for restart in range(1, RESTARTS + 1):
        based = state
        if restart > 1 or state.version - (state.checkpoint.version if state.checkpoint else -1) > FAR:
            # Perhaps there is a newer checkpoint than the one this snapshot was made from.
            based = (yield from load(at=state.version, limits=limits)) or state
        bodies = yield from _read(based, limits)
        if bodies is not None:
            found = _sorted(state, based, bodies)
            sidecars = yield from _sidecars(found.parts, limits)
            if sidecars is not None:
                return replace(found, parts={**found.parts, **sidecars})
        yield Backoff(restart, name="files.restart")
    raise StorageError(
        f"Files of the log went away while they were read, {RESTARTS} times over. Nothing was committed. "
        "Is log retention set to almost nothing, or did someone delete files of _delta_log/_sidecars/ that a checkpoint names? "
        "Call again."
    )


def _sidecars(
    parts: Mapping[str, bytes], limits: Limits
) -> Generator[Effect, Outcome, dict[str, bytes] | None]:
    """The files that a V2 checkpoint keeps its files in; None if one of them is gone.

    Raises:
        StorageError: no answer; CORRUPT_LOG if the checkpoint cannot be read, or a file is not as long as it says.
    """
    named = sidecars_of(parts)
    gets = [Get(path, name="files.get_sidecar") for path in named]
    bodies: dict[str, bytes] = {}
    for path, answer in zip(named, (yield from fetch(gets, limits, name="files.sidecars")), strict=True):
        if isinstance(answer, Missing):
            return None
        assert isinstance(answer.value, bytes)
        if named[path] not in (None, len(answer.value)):
            raise actions.corrupt(
                f"{path} has {len(answer.value)} bytes, and the checkpoint says {named[path]}."
            )
        bodies[path] = answer.value
    return bodies


def sidecars_of(parts: Mapping[str, bytes]) -> dict[str, int | None]:
    """The sidecars that the parts of a checkpoint name, with their bytes.  Raises as :func:`read_log`."""
    found: dict[str, int | None] = {}
    for path, body in parts.items() if len(parts) == 1 else ():
        for one in _contents(path, body)("sidecar"):
            size = one.get("sizeInBytes")
            found[actions.sidecar_path(one)] = size if type(size) is int else None
    return found


def _read(based: Snapshot, limits: Limits) -> Generator[Effect, Outcome, list[bytes] | None]:
    """Bodies of the checkpoint's parts, then of the commits after it; None if one of them is gone."""
    first = based.checkpoint.version + 1 if based.checkpoint else 0
    gets = [
        Get(path, name="files.get_checkpoint")
        for path in (based.checkpoint.paths if based.checkpoint else ())
    ]
    gets += [Get(actions.commit_path(v), name="files.get_commit") for v in range(first, based.version + 1)]
    return (yield from _bodies(gets, first, limits))


def commits_since(
    known: int, version: int, limits: Limits
) -> Generator[Effect, Outcome, list[Commit] | None]:
    """The commits after version ``known``; None if one of them is gone.  Raises as :func:`read_log`."""
    if version == known:
        return []
    gets = [Get(actions.commit_path(v), name="files.get_commit") for v in range(known + 1, version + 1)]
    bodies = yield from _bodies(gets, known + 1, limits)
    return (
        None if bodies is None else [actions.parse(body, v) for v, body in enumerate(bodies, start=known + 1)]
    )


def _bodies(
    gets: Sequence[Get], first: int, limits: Limits
) -> Generator[Effect, Outcome, list[bytes] | None]:
    """Bodies of files of the log, checked against a listing from version ``first`` on; None if one of them is gone."""
    effects: list[Effect] = [*gets, segment.effect(first or None)]
    *answers, listed = yield from fetch(effects, limits, name="files.read")
    bodies: list[bytes] = []
    for answer in answers:
        if isinstance(answer, Missing):
            return None
        assert isinstance(answer.value, bytes)
        bodies.append(answer.value)
    _check_bodies(gets, bodies, listed)
    return bodies


def _check_bodies(gets: Sequence[Get], bodies: Sequence[bytes], listed: Ok | Missing) -> None:
    """Refuse answers that were mixed up: a checkpoint made of them would lose rows for all readers, for good (faults A8).

    A listing says how long each file is, and where ETags are MD5s (some file shows that they are) also what is in it.

    Raises:
        StorageError: a file was read as other bytes than the store lists.
    """
    shown = {item.path: item for item in listed.value} if isinstance(listed, Ok) else {}  # type: ignore[attr-defined]
    pairs = [(shown[get.path], body) for get, body in zip(gets, bodies, strict=True) if get.path in shown]
    md5s = any(item.etag == digest_of(body) for item, body in pairs)
    for item, body in pairs:
        plain = md5s and len(item.etag) == len(digest_of(b""))
        if item.size != len(body) or (plain and item.etag != digest_of(body)):
            raise StorageError(
                f"{item.path} was read as other bytes than the store lists: answers were mixed up on the way, or someone "
                "replaces files of the log. Nothing was committed. Call again; if it stays so, run `safewrite doctor`."
            )


def _sorted(state: Snapshot, based: Snapshot, bodies: list[bytes]) -> LogFiles:
    paths = based.checkpoint.paths if based.checkpoint else ()
    first = based.checkpoint.version + 1 if based.checkpoint else 0
    commits = [actions.parse(body, version) for version, body in enumerate(bodies[len(paths) :], start=first)]
    ids = [based.table_id, *(one.metadata.get("id") for one in commits if one.metadata is not None)]
    if ids[-1] != state.table_id:  # its files are of a table that was made there since
        raise replaced(state.version)
    return LogFiles(state, dict(zip(paths, bodies, strict=False)), commits)


def note_part(replay: Replay, path: str, body: bytes) -> None:
    """Take over what a part of a checkpoint holds besides files.  Raises as :func:`read_log`."""
    found = _contents(path, body)
    replay.note(found("txn"), found("domainMetadata"))


def _replay_part(replay: Replay, path: str, body: bytes) -> None:
    found = _contents(path, body)
    replay.remove(found("remove"))
    replay.add(found("add"))
    replay.note(found("txn"), found("domainMetadata"))


def _contents(path: str, body: bytes) -> Callable[[str], Sequence[Action]]:
    """What gives the actions of a kind of a part of a checkpoint, or of a sidecar.

    Raises:
        StorageError: CORRUPT_LOG; it cannot be read.
    """
    if path.endswith(".json"):
        commit = actions.parse(body, actions.checkpoint_version_of(path) or 0)
        return lambda kind: commit.adds() if kind == "add" else commit.of(kind)
    whole = ranges.RangedFile(len(body))
    whole.add(0, body)

    def of(kind: str) -> Sequence[Action]:
        try:
            return ranges.actions(file, kind)
        except ranges.UnreadableError as error:
            raise actions.corrupt(f"{path} cannot be read ({said(error)}).") from error

    try:
        file = ranges.open_file(whole)
    except ranges.UnreadableError as error:
        raise actions.corrupt(f"{path} cannot be read ({said(error)}).") from error
    return of
