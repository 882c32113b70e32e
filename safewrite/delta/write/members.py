"""Lists the writes of a commit in its ``commitInfo``, or in a file that it names where they are many."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from safewrite.delta.log.actions import Commit, commit_path, parse
from safewrite.delta.log.stamps import TIME
from safewrite.errors import Kind, ReplayMismatchError, SafewriteError, StorageError
from safewrite.protocol import members
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome, Put
from safewrite.protocol.fetch import fetch, fetch_one

ENGINE = "safewrite"
FOLDER = "_safewrite/members/"
"""The underscore keeps Delta's VACUUM away (PROTOCOL.md: hidden directories)."""
INLINE_BYTES_MAX = 32 * 1024
"""Longer lists are kept in a file: every reader of the log reads ``commitInfo``."""

Entry = Mapping[str, Any]


def listing(writes: Sequence[members.MemberWrite], commit_id: str) -> tuple[dict[str, Any], Put | None]:
    """What ``commitInfo`` says of a commit's writes, and the file of them that it needs, if it needs one."""
    entries = [write.whole_entry() for write in writes]
    body = _encoded(entries)
    if len(writes) == 1 or len(body) <= INLINE_BYTES_MAX:
        return {"writes": entries}, None
    without = brief({"writes": entries})
    if len(_encoded(without["writes"])) <= INLINE_BYTES_MAX:
        return without, None  # the file would cost a request more
    path = f"{FOLDER}{commit_id}.json"
    pointer = {
        "count": len(entries),
        "path": path,
        "md5": _digest(body),
        "keys": members.packed(write.key for write in writes),
    }
    return {"writes": [], "members": pointer}, Put(path, body, name="stage.put_members")


def brief(listed: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`listing` says, without the digests of columns."""
    kept = [
        {name: one for name, one in entry.items() if name != members.COLUMNS} for entry in listed["writes"]
    ]
    return {**listed, "writes": kept}


def carried(info: Mapping[str, Any], names: Collection[str]) -> dict[str, Entry | None]:
    """Those of the keys that a commit carries, with their entries; None where these are in its file."""
    return those_carried(info, members.Wanted(names))


def those_carried(info: Mapping[str, Any], wanted: members.Wanted) -> dict[str, Entry | None]:
    """As :func:`carried`, for keys that are looked for in many commits."""
    found: dict[str, Entry | None] = {
        write["key"]: write for write in info.get("writes", ()) if write["key"] in wanted
    }
    pointer = info.get("members")
    if pointer:
        found |= dict.fromkeys(wanted.held(pointer["keys"]))
    return found


def met_in(
    found: Mapping[str, Entry | None],
    writes: Sequence[members.MemberWrite],
    version: int,
    check: Callable[[Any], None],
) -> dict[str, members.Met | SafewriteError]:
    """Those of a group's writes that were ``found`` in a commit, and the errors of those that it makes invalid, as ``check`` says."""
    met = dict[str, members.Met | SafewriteError]()
    for write in writes:
        if write.key in found:
            met[write.key] = members.met(write, version, found[write.key])
            continue
        try:
            check(write)
        except ReplayMismatchError as error:
            met[write.key] = error
    return met


def write_count(info: Mapping[str, Any]) -> int:
    """How many writes a commit carries."""
    pointer = info.get("members")
    return int(pointer["count"]) if pointer else len(info.get("writes", ()))


def keys_by_hash(info: Mapping[str, Any]) -> dict[str, str]:
    """The keys that a commit carries, by their hashes, which are all that ``commitInfo`` has of a long list."""
    pointer = info.get("members")
    names = (str(write["key"]) for write in info.get("writes", ()))
    return members.by_hash(names, pointer["keys"] if pointer else "")


def own_info(body: bytes, version: int) -> Mapping[str, Any]:
    """What safewrite recorded in a commit file; empty for other engines' commits."""
    info = parse(body, version).commit_info or {}
    return info.get(ENGINE) or {}


def all_writes(info: Mapping[str, Any], limits: Limits) -> Generator[Effect, Outcome, list[Entry]]:
    """Every write that a commit carries, as safewrite records them; its file is read if it has one.

    Raises:
        StorageError: the file cannot be read, or is not the one that the commit names.
    """
    pointer = info.get("members")
    if not pointer:
        return list(info.get("writes", ()))
    got = yield from fetch_one(Get(pointer["path"], name="members.get"), limits)
    return _listed(pointer, got)


def known_writes(
    infos: Sequence[Mapping[str, Any]], limits: Limits
) -> Generator[Effect, Outcome, list[list[Entry]]]:
    """As :func:`all_writes` of each of many commits, in one round of requests; no writes where the file is not there."""
    pointers = [pointer for info in infos if (pointer := info.get("members"))]
    gets = [Get(pointer["path"], name="members.get") for pointer in pointers]
    answers = dict(zip(gets, (yield from fetch(gets, limits, name="members.get_all")), strict=True))

    def writes(info: Mapping[str, Any]) -> list[Entry]:
        pointer = info.get("members")
        if not pointer:
            return list(info.get("writes", ()))
        with suppress(StorageError):
            return _listed(pointer, answers[Get(pointer["path"], name="members.get")])
        return []

    return [writes(info) for info in infos]


def _listed(pointer: Mapping[str, Any], got: Ok | Missing) -> list[Entry]:
    if not isinstance(got, Ok):
        raise _unread(pointer["path"], "is gone")
    assert isinstance(got.value, bytes)
    if _digest(got.value) != pointer["md5"]:
        raise _unread(pointer["path"], "is not the one that was committed")
    return list(json.loads(got.value))


@dataclass
class Lists:
    """The writes that commits carry, by key: a commit is read once and its list decoded once, whoever asks for its writes."""

    _infos: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    _hashes: dict[int, frozenset[str]] = field(default_factory=dict)
    _writes: dict[int, dict[str, Entry]] = field(default_factory=dict)

    def __contains__(self, version: int) -> bool:
        """Whether a commit was read."""
        return version in self._infos

    def keep(self, version: int, body: bytes) -> Mapping[str, Any]:
        """Take note of a commit file that was read, and return what safewrite recorded in it."""
        if version not in self._infos:
            self._infos[version] = own_info(body, version)
        return self._infos[version]

    def entry(self, version: int, key: str, limits: Limits) -> Generator[Effect, Outcome, Entry | None]:
        """How a commit describes a write; None where it carries none with this key, or is gone.

        Raises:
            StorageError: the commit or its list cannot be read.
        """
        if version not in self._infos:
            got = yield from fetch_one(Get(commit_path(version), name="recall.get_commit"), limits)
            if not isinstance(got, Ok):
                return None
            assert isinstance(got.value, bytes)
            self.keep(version, got.value)
        if version not in self._writes and members.hashed(key) in self._hashes_of(version):
            writes = yield from all_writes(self._infos[version], limits)
            self._writes[version] = {str(write["key"]): write for write in writes}
        return self._writes.get(version, {}).get(key)

    def _hashes_of(self, version: int) -> frozenset[str]:
        if version not in self._hashes:
            self._hashes[version] = frozenset(keys_by_hash(self._infos[version]))
        return self._hashes[version]


def find_write(
    body: bytes, version: int, key: str, limits: Limits
) -> Generator[Effect, Outcome, Entry | None]:
    """The write with this key that a commit file carries, or None."""
    lists = Lists()
    lists.keep(version, body)
    return (yield from lists.entry(version, key, limits))


def _encoded(entries: Sequence[Entry]) -> bytes:
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()


def _digest(body: bytes) -> str:
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def _unread(path: str, why: str) -> StorageError:
    return StorageError(
        f"{path}, the list of a commit's writes, {why}. Nothing was committed by this call. Put it back from a versioned "
        "copy of the object; until then repeats of those writes are refused.",
        kind=Kind.CORRUPT_LOG,
    )


def summed_up(version: int, summary: str, digest: str) -> Commit:
    """The keys and transactions of a commit, and what it is stamped with, as its summary tells them."""
    known = json.loads(summary)
    txns = [{"txn": {"appId": name, "version": number}} for name, number in known["txns"].items()]
    time, domains = known.get(TIME), [{"domainMetadata": one} for one in known.get("domains", ())]
    info = {ENGINE: known} if time is None else {ENGINE: known, TIME: time}
    return Commit(version, ({"commitInfo": info}, *txns, *domains), digest=digest)
