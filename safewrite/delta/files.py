"""The full list of a table's files, for what needs it: checkpoints and overwrites."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from safewrite.delta import log, sparse
from safewrite.delta.log import Action, Commit, FileKey
from safewrite.delta.state import RESTARTS, STALE, TableState, load
from safewrite.errors import StorageError, UnsupportedTableError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Backoff, Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch


@dataclass(frozen=True)
class ActiveFiles:
    """Everything that a checkpoint of ``state.version`` holds, reconciled.

    ``adds`` are the live files and ``tombstones`` the ``remove`` actions of files that are not, by
    logical file; ``txns`` and ``domains`` are raw actions by app id and by domain; ``newest_ms`` is
    the newest time that the replayed commits speak of (0 if none did).
    """

    state: TableState
    adds: Mapping[FileKey, Action] = field(repr=False)
    tombstones: Mapping[FileKey, Action] = field(repr=False)
    txns: Mapping[str, Action] = field(repr=False)
    domains: Mapping[str, Action]
    newest_ms: int

    def advance(self, version: int, commit: Commit) -> ActiveFiles:
        """The files after one more commit.  Raises StorageError as ``TableState.advance`` does."""
        replay = _Replay(
            dict(self.adds), dict(self.tombstones), dict(self.txns), dict(self.domains), self.newest_ms
        )
        replay.apply(commit)
        return replay.files(self.state.advance(version, commit))


@dataclass
class _Replay:
    """Action reconciliation (PROTOCOL.md): the newest action on each key wins."""

    adds: dict[FileKey, Action] = field(default_factory=dict)
    tombstones: dict[FileKey, Action] = field(default_factory=dict)
    txns: dict[str, Action] = field(default_factory=dict)
    domains: dict[str, Action] = field(default_factory=dict)
    newest_ms: int = 0

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
            key = log.file_key(action)
            self.adds[key] = action
            self.tombstones.pop(key, None)

    def remove(self, removes: Iterable[Action]) -> None:
        for action in removes:
            key = log.file_key(action)
            self.adds.pop(key, None)
            self.tombstones[key] = action

    def note(self, txns: Iterable[Action], domains: Iterable[Action]) -> None:
        self.txns.update((txn["appId"], txn) for txn in txns)
        for domain in domains:
            if domain.get("removed"):
                self.domains.pop(domain["domain"], None)
            else:
                self.domains[domain["domain"]] = domain

    def files(self, state: TableState) -> ActiveFiles:
        return ActiveFiles(state, self.adds, self.tombstones, self.txns, self.domains, self.newest_ms)


def load_files(state: TableState, *, limits: Limits | None = None) -> Generator[Effect, Outcome, ActiveFiles]:
    """Read the full list of files at ``state.version``: its checkpoint and the commits after it.

    Raises:
        StorageError: no answer; CORRUPT_LOG if the checkpoint or a commit cannot be read.
        UnsupportedTableError: the checkpoint keeps its files in sidecars (v2Checkpoint).
    """
    limits = limits or Limits()
    for restart in range(1, RESTARTS + 1):
        based = state
        if restart > 1 or state.version - (state.checkpoint.version if state.checkpoint else -1) > STALE:
            # Perhaps there is a newer checkpoint than the one this state was made from.
            based = (yield from load(at=state.version, limits=limits)) or state
        bodies = yield from _read(based, limits)
        if bodies is not None:
            return _replay(state, based, bodies)
        yield Backoff(restart, name="files.restart")
    raise StorageError(
        f"Files of the log went away while they were read, {RESTARTS} times over. Nothing was committed. "
        "Is log retention set to almost nothing? Call again."
    )


def _read(based: TableState, limits: Limits) -> Generator[Effect, Outcome, list[bytes] | None]:
    """Bodies of the checkpoint's parts, then of the commits after it; None if one of them is gone."""
    first = based.checkpoint.version + 1 if based.checkpoint else 0
    gets = [
        Get(path, name="files.get_checkpoint")
        for path in (based.checkpoint.paths if based.checkpoint else ())
    ]
    gets += [Get(log.commit_path(v), name="files.get_commit") for v in range(first, based.version + 1)]
    bodies: list[bytes] = []
    for answer in (yield from fetch(gets, limits, name="files.read")):
        if isinstance(answer, Missing):
            return None
        assert isinstance(answer.value, bytes)
        bodies.append(answer.value)
    return bodies


def _replay(state: TableState, based: TableState, bodies: list[bytes]) -> ActiveFiles:
    replay = _Replay()
    paths = based.checkpoint.paths if based.checkpoint else ()
    for path, body in zip(paths, bodies, strict=False):
        _replay_part(replay, path, body)
    first = based.checkpoint.version + 1 if based.checkpoint else 0
    for version, body in enumerate(bodies[len(paths) :], start=first):
        replay.apply(log.parse(body, version))
    return replay.files(state)


def _replay_part(replay: _Replay, path: str, body: bytes) -> None:
    whole = sparse.SparseFile(len(body))
    whole.add(0, body)
    try:
        file = sparse.open_file(whole)
        if sparse.actions(file, "sidecar"):
            raise UnsupportedTableError(
                f"{path} keeps its files in sidecars (feature v2Checkpoint), which safewrite does not read. "
                "Nothing was committed. Drop the feature to write to this table."
            )
        replay.remove(sparse.actions(file, "remove"))
        replay.add(sparse.actions(file, "add"))
        replay.note(sparse.actions(file, "txn"), sparse.actions(file, "domainMetadata"))
    except sparse.UnreadableError as error:
        raise log.corrupt(f"{path} cannot be read ({error}).") from error
