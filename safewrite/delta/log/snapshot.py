"""Loads the part of a snapshot that a write depends on: protocol, metadata, domains and transactions.

A blind append never needs the list of files.  A cold read takes three rounds of requests
(``_last_checkpoint``; listing and footer; column chunks and later commits), whatever the length of
the log; a warm one takes a single short listing when nothing is new.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.delta.log import actions, column_names, ranges, segment, stamps
from safewrite.delta.log.actions import Action, Commit
from safewrite.delta.log.restore import Restore, restore_of
from safewrite.delta.log.segment import Checkpoint, LogSegment
from safewrite.errors import Kind, StorageError, TableNotFoundError
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.candidate import Anchor
from safewrite.protocol.delta.catch_up import digest_of, replaced
from safewrite.protocol.delta.commit import let_pass
from safewrite.protocol.effects import Backoff, Effect, Get, GetRange, GetTail, Missing, Ok, Outcome
from safewrite.protocol.fetch import fetch, fetch_one
from safewrite.protocol.values import Tail
from safewrite.values.column_names import physical_name

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Reading = Generator[Effect, Outcome, T]

RESTARTS = 5
"""How often a read starts again when log clean-up removes its files."""
STALE = 64
"""From this many new commits on, a newer checkpoint is cheaper than replaying them."""


class _VanishedError(Exception):
    """A file that was listed is gone."""


@dataclass(frozen=True)
class Snapshot:
    """Protocol, metadata, domains and transactions of a table at one version.

    ``protocol`` and ``metadata`` are the raw actions; ``txns`` maps app id to its last version;
    ``checkpoint`` is the newest checkpoint that this snapshot knows of; ``anchor`` proves that a log is still
    the one that the snapshot was read from. ``restores`` are those among the commits that were read, which begin
    with ``read_from``. ``domains`` maps the name of a metadata domain to its configuration. ``told_ms`` is the time of the newest
    commit that tells its time in itself, where the table's commits do. ``held_s`` is for how long the newest commit asks others to wait.
    """

    version: int
    protocol: Action
    metadata: Action
    txns: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    checkpoint: Checkpoint | None = None
    anchor: Anchor | None = None
    restores: tuple[Restore, ...] = ()
    read_from: int = 0
    domains: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    told_ms: int | None = None
    held_s: float = 0.0

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow, partition columns included, columns of types that are not known left out."""
        from safewrite.delta.log.schema import readable

        schema, self.__dict__["unread"] = readable(self.schema_string)
        return schema

    @cached_property
    def unread(self) -> Mapping[str, str]:
        """The columns of types that are not known, such as variants, with the reason: nothing is written to the table."""
        found: Mapping[str, str] = self.__dict__["unread"] if self.schema is not None else {}
        return found

    @property
    def mapping(self) -> str:
        """How files name columns otherwise than users do: ``name``, ``id``, or '' where they do not (PROTOCOL.md, "Column Mapping")."""
        return column_names.mode(self.properties)

    @cached_property
    def physical(self) -> Mapping[str, str]:
        """What files, statistics and partition values call each column; the same name where there is no mapping."""
        return {field.name: self.physical_name(field) for field in self.schema}

    def physical_name(self, field: pa.Field) -> str:
        """The same, of a field at any depth."""
        name: str = physical_name(field) if self.mapping else field.name
        return name

    @property
    def mapped(self) -> pa.Schema | None:
        """The schema, where files call its columns otherwise; None where they do not."""
        return self.schema if self.mapping else None

    @property
    def schema_string(self) -> str:
        """The schema as the log spells it, in JSON."""
        text: str = self.metadata["schemaString"]
        return text

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Names of the partition columns, in the table's order."""
        return tuple(self.metadata.get("partitionColumns") or ())

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties (``configuration``)."""
        return MappingProxyType(self.metadata.get("configuration") or {})

    @property
    def table_id(self) -> str:
        """The unique id that the table got when it was created."""
        unique: str = self.metadata["id"]
        return unique

    def advance(self, version: int, commit: Commit) -> Snapshot:
        """The snapshot after one more commit.  Raises StorageError (CORRUPT_LOG) if versions are skipped."""
        if version != self.version + 1:
            raise actions.corrupt(f"Version {version} of the log does not follow version {self.version}.")
        anchor = _anchor(version, commit.digest)
        domains = commit.domain_metadata
        others = [one for one in domains if one["domain"] != stamps.ROW_IDS] if domains else domains
        changed = commit.protocol or commit.metadata or others
        if not (changed or commit.txns or restore_of(commit)):
            # Most commits only add files, and row ids in some tables.
            if self.told_ms is None and not domains:
                return self._moved(version=version, anchor=anchor, held_s=commit.held_s)
            told = MappingProxyType(domains_after(self.domains, domains))
            told_ms, held_s = self._told(commit), commit.held_s
            return self._moved(version=version, anchor=anchor, domains=told, told_ms=told_ms, held_s=held_s)
        draft = _Partial(
            self.protocol,
            self.metadata,
            dict(self.txns),
            list(self.restores),
            self.read_from,
            self.domains,
            self.told_ms,
        )
        draft.apply(commit)
        moved = draft.state(version, self.checkpoint, anchor)
        return moved if changed else self._kept_by(moved)

    def _told(self, commit: Commit) -> int | None:
        told = stamps.time_of(commit)
        return self.told_ms if told is None else told

    def with_checkpoint(self, checkpoint: Checkpoint) -> Snapshot:
        """The same snapshot, read from a newer checkpoint next time."""
        return self._moved(checkpoint=checkpoint)

    def derived(self, make: Callable[[Snapshot], T]) -> T:
        """What follows from protocol, metadata and domains: made once for all versions that have the same."""
        known = self.__dict__.setdefault("derived_by", {})
        if make not in known:
            known[make] = make(self)
        found: T = known[make]
        return found

    def _moved(self, **changes: Any) -> Snapshot:
        """A copy of the same protocol and metadata."""
        return self._kept_by(replace(self, **changes))

    def _kept_by(self, moved: Snapshot) -> Snapshot:
        """Let a snapshot of the same protocol and metadata keep what follows from them."""
        own = moved.__dict__.keys() | {one.name for one in fields(self)}
        moved.__dict__.update({name: value for name, value in self.__dict__.items() if name not in own})
        return moved


@dataclass
class _Partial:
    """A snapshot in the making."""

    protocol: Action | None = None
    metadata: Action | None = None
    txns: dict[str, int] = field(default_factory=dict)
    restores: list[Restore] = field(default_factory=list)
    read_from: int = 0
    domains: Mapping[str, str] = field(default_factory=dict)
    told_ms: int | None = None
    held_s: float = 0.0

    def apply(self, commit: Commit) -> None:
        self.held_s = commit.held_s
        restored = restore_of(commit)
        if restored is not None:
            self.restores.append(restored)
        self.protocol = commit.protocol or self.protocol
        self.metadata = commit.metadata or self.metadata
        told = stamps.time_of(commit)
        self.told_ms = self.told_ms if told is None else told
        self.remember(commit.txns, commit.domain_metadata)

    def remember(self, txns: Sequence[Action], domains: Sequence[Action]) -> None:
        self.txns.update((txn["appId"], txn["version"]) for txn in txns)
        self.domains = domains_after(self.domains, domains)

    def state(self, version: int, checkpoint: Checkpoint | None, anchor: Anchor | None) -> Snapshot:
        if not _complete(self.protocol, "minReaderVersion", "minWriterVersion"):
            raise actions.corrupt(f"The log has no usable protocol action up to version {version}.")
        if not _complete(self.metadata, "id", "schemaString"):
            raise actions.corrupt(f"The log has no usable metaData action up to version {version}.")
        assert self.protocol is not None
        assert self.metadata is not None
        return Snapshot(
            version,
            self.protocol,
            self.metadata,
            MappingProxyType(self.txns),
            checkpoint,
            anchor,
            tuple(self.restores),
            self.read_from,
            MappingProxyType(self.domains),
            self.told_ms,
            self.held_s,
        )


def domains_after(domains: Mapping[str, str], actions: Sequence[Action]) -> Mapping[str, str]:
    """The configurations of metadata domains after some ``domainMetadata`` actions, by the names of domains."""
    if not actions:
        return domains
    told = {one["domain"]: None if one.get("removed") else one.get("configuration") or "" for one in actions}
    return {name: text for name, text in {**domains, **told}.items() if text is not None}


def _anchor(version: int, digest: str) -> Anchor:
    return Anchor(version, actions.commit_path(version), digest)


def _complete(action: Action | None, *required: str) -> bool:
    return action is not None and all(action.get(name) is not None for name in required)


def load(
    known: Snapshot | None = None, *, at: int | None = None, limits: Limits | None = None
) -> Reading[Snapshot | None]:
    """Read the snapshot of the newest version (or of version ``at``); None if there is no table.

    ``known`` is an earlier snapshot of the same table: only what came after it is read.

    Raises:
        StorageError: the store gave no answer; kind CORRUPT_LOG if the log has a hole or a torn
            entry (A19, E8).
        ConflictError: kind TABLE_REPLACED; ``at`` is beyond the newest version.
        TableNotFoundError: ``at`` is given, and there is no table.
    """
    limits = limits or Limits()
    if known is not None and (at is None or at >= known.version):
        warm = yield from _warm(known, at, limits)
        if warm is not None:
            return warm
    missing: int | None = None
    for restart in range(1, RESTARTS + 1):
        try:
            state = yield from _cold(at, limits)
        except segment.HoleError as hole:
            if hole.missing == missing:  # one that came while the folder was read is in the next listing
                raise actions.corrupt(
                    f"The log has no version {missing} although version {hole.standing} stands: it has a hole."
                ) from None
            missing = hole.missing
            yield Backoff(restart, name="state.restart")
            continue
        except _VanishedError:
            yield Backoff(restart, name="state.restart")
            continue
        if at is not None and state is None:
            raise TableNotFoundError(
                f"There is no version {at}, and no other: the table was dropped. Nothing was committed. Open it again, with create=True "
                "if the next write is to make a new one."
            )
        if state is not None and at not in {None, state.version}:
            raise replaced(at)
        return state
    raise StorageError(
        f"Files of the log went away while they were read, {RESTARTS} times over. Nothing was committed. "
        "Is log retention set to almost nothing, or the table being dropped? Call again."
    )


def load_unheld(known: Snapshot, limits: Limits) -> Reading[Snapshot | None]:
    """The newest version, once nobody holds the table any more; None where the table is gone.

    Raises:
        As ``load``.
    """
    state = yield from load(known, limits=limits)
    if state is not None and state.held_s:
        yield from let_pass(state.version, state.held_s, limits)
        state = yield from load(state, limits=limits)
    return state


def as_of(version: int, limits: Limits) -> Reading[Snapshot | None]:
    """The snapshot of a version; None where log clean-up took what it is made of.  Raises as :func:`load`."""
    try:
        return (yield from load(at=version, limits=limits))
    except StorageError as error:
        if error.kind != Kind.CORRUPT_LOG:
            raise
        return None


# --- warm -------------------------------------------------------------------------------------------
def _warm(known: Snapshot, at: int | None, limits: Limits) -> Reading[Snapshot | None]:
    """Read on from a known snapshot; None if that cannot be done and all must be read again."""
    found = yield from _list(known.version, limits)
    new = [v for v in found.commits if v > known.version]
    if (new and new[0] != known.version + 1) or not (yield from _is_same_log(known, found, limits)):
        return None  # the table was dropped, created again, or its log cleaned up to here
    newest = found.newest_checkpoint(at, ())
    if newest is not None and len(new) > STALE and newest.version > known.version:
        return None
    try:
        return (yield from _replay(known, found.commits_after(known.version, at), newest, limits))
    except (segment.HoleError, _VanishedError):
        return None


def _replay(
    state: Snapshot, versions: Sequence[int], newest: Checkpoint | None, limits: Limits
) -> Reading[Snapshot]:
    for version, body in (yield from _get_commits(versions, limits)).items():
        state = state.advance(version, actions.parse(body, version))
    if newest is not None and newest != state.checkpoint:
        state = state.with_checkpoint(newest)
    return state


def _is_same_log(known: Snapshot, found: LogSegment, limits: Limits) -> Reading[bool]:
    """Whether the log still holds what the snapshot was read from (A17)."""
    anchor = known.anchor
    item = found.files.get(anchor.path) if anchor is not None else None
    if anchor is None or item is None:
        return False
    if anchor.is_shown_by(item):
        return True
    answer = yield from fetch_one(Get(anchor.path, name="state.get_anchor"), limits)
    return isinstance(answer, Ok) and digest_of(answer.value) == anchor.digest


def _list(after: int | None, limits: Limits) -> Reading[LogSegment]:
    answer = yield from fetch_one(segment.effect(after), limits)
    return _listing(answer, whole=after is None)


def _listing(answer: Ok | Missing, *, whole: bool) -> LogSegment:
    value = answer.value if isinstance(answer, Ok) else ()
    assert isinstance(value, tuple)
    return segment.read(value, whole=whole)


def _get_commits(versions: Sequence[int], limits: Limits) -> Reading[dict[int, bytes]]:
    gets = [_get_commit(version) for version in versions]
    answers = yield from fetch(gets, limits, name="state.get_commits")
    return {version: _body(answer) for version, answer in zip(versions, answers, strict=True)}


def _get_commit(version: int) -> Get:
    return Get(actions.commit_path(version), name="state.get_commit")


def _body(answer: Ok | Missing) -> bytes:
    if isinstance(answer, Missing):
        raise _VanishedError
    assert isinstance(answer.value, bytes)
    return answer.value


# --- cold -------------------------------------------------------------------------------------------
def _cold(at: int | None, limits: Limits) -> Reading[Snapshot | None]:
    hinted = yield from _hint(at, limits)
    tails: dict[str, Tail] = {}
    if hinted is None:
        found = yield from _list(None, limits)
    else:
        parts = () if hinted.is_json else hinted.paths
        effects: list[Effect] = [segment.effect(hinted.version), *map(_get_tail, parts)]
        listed, *ends = yield from fetch(effects, limits, name="state.open")
        found = _listing(listed, whole=False)
        tails = _tails(parts, ends)
    unusable: set[Checkpoint] = set()
    while True:
        base = found.newest_checkpoint(at, unusable)
        if base is None and not found.whole:
            found = yield from _list(None, limits)
            continue
        if base is None:
            return (yield from _from_commits(found, at, limits))
        try:
            if base.is_json:
                state = yield from _from_json(base, found, at, limits)
            else:
                state = yield from _from_checkpoint(base, tails, found, at, limits)
            return (yield from _timed(state, limits))
        except (ranges.UnreadableError, ranges.HoleError):
            unusable.add(base)  # torn or garbled: an older one, or all commits, will do (B2, B3)


def _timed(state: Snapshot, limits: Limits) -> Reading[Snapshot]:
    """The snapshot with the time that its commit tells, where no commit was read: a checkpoint does not have it.

    The checksum file has it too.
    """
    if state.told_ms is not None or not stamps.stamping(state).timed:
        return state
    commit = yield from fetch_one(_get_commit(state.version), limits)
    if isinstance(commit, Ok):
        told = stamps.time_of(actions.parse(_body(commit), state.version))
        return replace(state, told_ms=told)
    get = Get(actions.checksum_path(state.version), name="state.get_checksum")
    checksum = yield from fetch_one(get, limits)
    with suppress(ValueError, AttributeError):
        told = json.loads(_body(checksum)).get("inCommitTimestampOpt") if isinstance(checksum, Ok) else None
        return replace(state, told_ms=told if type(told) is int else None)
    return state


def _hint(at: int | None, limits: Limits) -> Reading[Checkpoint | None]:
    answer = yield from fetch_one(Get(actions.LAST_CHECKPOINT, name="state.last_checkpoint"), limits)
    hinted = segment.hint(_body(answer)) if isinstance(answer, Ok) else None
    return hinted if hinted is not None and (at is None or hinted.version <= at) else None


def _get_tail(path: str) -> GetTail:
    return GetTail(path, ranges.TAIL, name="state.checkpoint_tail")


def _tails(paths: Sequence[str], ends: Sequence[Ok | Missing]) -> dict[str, Tail]:
    found: dict[str, Tail] = {}
    for path, end in zip(paths, ends, strict=True):
        if isinstance(end, Ok):
            assert isinstance(end.value, Tail)
            found[path] = end.value
    return found


def _from_commits(found: LogSegment, at: int | None, limits: Limits) -> Reading[Snapshot | None]:
    if not found.commits and not found.checkpoints:
        return None
    versions = found.commits_after(-1, at)
    if not versions:
        raise actions.corrupt("The log holds neither a usable checkpoint nor the commits before it.")
    draft = _Partial(read_from=versions[0])
    digest = ""
    for version, body in (yield from _get_commits(versions, limits)).items():
        commit = actions.parse(body, version)
        draft.apply(commit)
        digest = commit.digest
    return draft.state(versions[-1], None, _anchor(versions[-1], digest))


def _from_checkpoint(
    base: Checkpoint, tails: Mapping[str, Tail], found: LogSegment, at: int | None, limits: Limits
) -> Reading[Snapshot]:
    """Read protocol, metaData, domains and txn of a checkpoint by ranges, and the commits after it at once."""
    versions = found.commits_after(base.version, at)
    files = yield from _open_parts(base, tails, limits)
    wanted: list[Effect] = []
    for path, part in zip(base.paths, files, strict=True):
        meta = ranges.open_file(part).metadata
        wanted += [
            GetRange(path, start, length, name="state.checkpoint_range")
            for start, length in ranges.ranges(meta, ("protocol", "metaData", "txn", "domainMetadata"))
            if part.piece(start, length) is None
        ]
    gets = [*wanted, *map(_get_commit, versions)]
    answers = yield from fetch(gets, limits, name="state.read")
    parts = dict(zip(base.paths, files, strict=True))
    for effect, answer in zip(wanted, answers, strict=False):
        assert isinstance(effect, GetRange)
        parts[effect.path].add(effect.start, _body(answer))
    draft = _Partial(read_from=base.version + 1)
    for part in files:
        _read_into(draft, part)
    bodies = [_body(answer) for answer in answers[len(wanted) :]]
    return _after(base, draft, dict(zip(versions, bodies, strict=True)), found)


def _from_json(base: Checkpoint, found: LogSegment, at: int | None, limits: Limits) -> Reading[Snapshot]:
    """As :func:`_from_checkpoint`, of a V2 checkpoint in JSON: its sidecars hold files only."""
    versions = found.commits_after(base.version, at)
    gets = [Get(base.paths[0], name="state.checkpoint_json"), *map(_get_commit, versions)]
    body, *bodies = map(_body, (yield from fetch(gets, limits, name="state.read")))
    draft = _Partial(read_from=base.version + 1)
    try:
        whole = actions.parse(body, base.version)
    except StorageError as error:
        raise ranges.UnreadableError(error.message) from error
    draft.protocol, draft.metadata = whole.protocol, whole.metadata
    draft.remember(whole.txns, whole.domain_metadata)
    return _after(base, draft, dict(zip(versions, bodies, strict=True)), found)


def _after(base: Checkpoint, draft: _Partial, commits: Mapping[int, bytes], found: LogSegment) -> Snapshot:
    """The snapshot of what a checkpoint told and of the commits after it."""
    if not draft.protocol or not draft.metadata:
        raise ranges.UnreadableError("it holds no protocol or no metaData")
    versions, bodies = [*commits], [*commits.values()]
    for version, body in zip(versions, bodies, strict=True):
        draft.apply(actions.parse(body, version))
    if versions:
        return draft.state(versions[-1], base, _anchor(versions[-1], digest_of(bodies[-1])))
    # Nobody has read the commit of that version, and it may be cleaned up: its listing is the proof.
    listed = found.files.get(actions.commit_path(base.version)) or found.files[base.paths[0]]
    return draft.state(base.version, base, Anchor(base.version, listed.path, listed=listed))


def _open_parts(
    base: Checkpoint, tails: Mapping[str, Tail], limits: Limits
) -> Reading[list[ranges.RangedFile]]:
    """Files with their footers filled in."""
    unread = [path for path in base.paths if path not in tails]
    ends = yield from fetch([_get_tail(path) for path in unread], limits, name="state.checkpoint_tails")
    fresh = _tails(unread, ends)
    if len(fresh) < len(unread):
        raise _VanishedError
    files: dict[str, ranges.RangedFile] = {}
    for path in base.paths:
        tail = tails.get(path) or fresh[path]
        files[path] = ranges.RangedFile(tail.size)
        files[path].add(tail.size - len(tail.data), tail.data)
    rest = [
        GetRange(path, *missing, name="state.checkpoint_footer")
        for path, missing in ((p, ranges.missing_footer(f)) for p, f in files.items())
        if missing is not None
    ]
    for effect, answer in zip(rest, (yield from fetch(rest, limits, name="state.footers")), strict=True):
        files[effect.path].add(effect.start, _body(answer))
    return list(files.values())


def _read_into(draft: _Partial, part: ranges.RangedFile) -> None:
    file = ranges.open_file(part)
    protocols, metadata = ranges.actions(file, "protocol"), ranges.actions(file, "metaData")
    draft.protocol = protocols[-1] if protocols else draft.protocol
    draft.metadata = metadata[-1] if metadata else draft.metadata
    draft.remember(ranges.actions(file, "txn"), ranges.actions(file, "domainMetadata"))
