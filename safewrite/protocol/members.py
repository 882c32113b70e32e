"""Names the members of a commit: writes with keys of their own that become visible in one version.

Which writes share a commit is chance: a queue delivers messages again in other groups.  So a member is known by
its own key, never by its group.  Each attempt has examined every commit since the first attempt of each of its
members, and a commit that carries one of them takes that member out of the group.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from safewrite.errors import NotCommittedError, ReplayMismatchError
from safewrite.protocol import keys

_HASH_BYTES, _HASH_CHARS = 15, 20  # 120 bits, which base64 spells without padding


class Member(Protocol):
    """A write that can share a commit with others."""

    @property
    def key(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Met:
    """A commit that carries a write already; ``entry`` is None where the history keeps its list in a file."""

    version: int
    entry: Mapping[str, Any] | None = None


class MembersMetError(NotCommittedError):
    """Some members of the group were found in other commits; the others can be committed without them."""


@lru_cache(maxsize=20_000)
def hashed(key: str) -> str:
    """A key as a list of keys spells it: 20 characters."""
    digest = hashlib.sha256(key.encode()).digest()[:_HASH_BYTES]
    return base64.urlsafe_b64encode(digest).decode()


def packed(names: Iterable[str]) -> str:
    """A list of keys in one text, 20 characters each: it says whether a key is in it, not which keys are."""
    return "".join(map(hashed, names))


def held(text: str, names: Collection[str]) -> set[str]:
    """Those of the names that a packed list holds."""
    known = set(unpacked(text))
    return {name for name in names if hashed(name) in known}


def unpacked(text: str) -> list[str]:
    """The hashes of a packed list."""
    return [text[at : at + _HASH_CHARS] for at in range(0, len(text), _HASH_CHARS)]


def met(write: Member, version: int, entry: Mapping[str, Any] | None) -> Met | ReplayMismatchError:
    """What a commit that carries a member's key means to it: a repeat, or a fault of the member's own."""
    try:
        if entry is not None:
            keys.must_match(write.key, str(entry["fingerprint"]), write.fingerprint, version)
    except ReplayMismatchError as error:
        return error
    return Met(version, entry)
