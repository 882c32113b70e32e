"""Names the members of a commit: writes with keys of their own that become visible in one version.

Which writes share a commit is chance: a queue delivers messages again in other groups.  So a member is known by
its own key, never by its group.  Each attempt has examined every commit since the first attempt of each of its
members, and a commit that carries one of them takes that member out of the group.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar

from safewrite.errors import NotCommittedError, ReplayMismatchError
from safewrite.protocol import keys

COLUMNS = "columns"
"""Digests of a write's columns (``safewrite.frames.column_digests``): they explain a mismatch, and decide nothing."""
_HASH_BYTES, _HASH_CHARS = 15, 20  # 120 bits, which base64 spells without padding


@dataclass(frozen=True, slots=True)
class MemberWrite:
    """What identifies one write, in the commit that carries it.

    ``members`` are the writes of a group, which has a generated key of its own that no history shows;
    ``columns`` are digests of columns, all but the ``volatile`` ones.
    """

    key: str
    fingerprint: str
    rows: int = 0
    files: int = 0
    txn: tuple[str, int] | None = None
    members: tuple[Self, ...] = ()
    volatile: tuple[str, ...] = ()
    columns: str = ""
    changes: Mapping[str, int] | None = None
    """How many changes did what, where changes were applied."""
    offer: str = ""
    """The attempt that offered the write to others, which may carry it in their commits."""

    @classmethod
    def group(cls, key: str, members: Sequence[Self], files: int = 0) -> Self:
        """One write of many members."""
        rows = sum(write.rows for write in members)
        own = (write if write.files == files else replace(write, files=files) for write in members)
        return cls(key, "", rows, files, members=tuple(own))

    def carrying(self, others: Sequence[Self]) -> Self:
        """This write and those of others that its commit carries too."""
        if not others:
            return self
        each = (self, *others)
        rows, files = sum(write.rows for write in each), sum(write.files for write in each)
        return replace(self, rows=rows, files=files, members=each)

    def covering(self, mark: bytes) -> Self:
        """This write with a fingerprint that covers what it removes too, which ``mark`` tells: a repeat is the same operation."""
        return replace(self, fingerprint=f"{self.fingerprint}:{mark.hex()}")

    @property
    def each(self) -> tuple[Self, ...]:
        """The writes that the commit carries: the members of a group, or this one."""
        return self.members or (self,)

    def entry(self) -> dict[str, Any]:
        """How a list of writes describes it, without digests of columns."""
        named: dict[str, Any] = {"txn": list(self.txn)} if self.txn else {}
        if self.volatile:
            named["volatile"] = list(self.volatile)
        if self.changes is not None:
            named["changes"] = dict(self.changes)
        if self.offer:
            named["offer"] = self.offer
        return {
            "key": self.key,
            "fingerprint": self.fingerprint,
            "rows": self.rows,
            "files": self.files,
            **named,
        }

    def whole_entry(self) -> dict[str, Any]:
        """As :meth:`entry`, with the digests of columns."""
        return self.entry() | ({COLUMNS: self.columns} if self.columns else {})


@dataclass(frozen=True, slots=True)
class Found:
    """A commit that already carries this write."""

    version: int
    own: bool
    """True if it is this very attempt (its commit id), False if an earlier one under the same key, or another writer's that
    carries it."""
    members: int = 1
    """How many writes the commit carries."""


@dataclass(frozen=True, slots=True)
class Met:
    """A commit that carries a write already; ``entry`` is None where the history keeps its list in a file."""

    version: int
    entry: Mapping[str, Any] | None = None


class Carried(Protocol):
    """A write that another one's commit may carry."""

    @property
    def write(self) -> MemberWrite: ...


CarriedT = TypeVar("CarriedT", bound=Carried)


def abreast(own: MemberWrite, offered: Iterable[CarriedT]) -> list[CarriedT]:
    """Those that one commit can carry together with our write.

    A batch of an app whose earlier batch is among them, or a key that is, is left for the next commit.
    """
    taken, names, apps = list[CarriedT](), {own.key}, {own.txn[0]} if own.txn is not None else set[str]()
    for one in sorted(offered, key=lambda one: one.write.txn[1] if one.write.txn is not None else -1):
        app = one.write.txn and one.write.txn[0]
        if one.write.key in names or app in apps:
            continue
        names.add(one.write.key)
        if app is not None:
            apps.add(app)
        taken.append(one)
    return taken


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


class Wanted:
    """Keys that are looked for in many lists: each is hashed once, whatever the number of lists."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._by_hash: dict[str, str] | None = None

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def held(self, text: str) -> set[str]:
        """Those of the keys that a packed list holds."""
        if self._by_hash is None:
            self._by_hash = {hashed(name): name for name in self._names}
        return {self._by_hash[one] for one in unpacked(text) if one in self._by_hash}


def unpacked(text: str) -> list[str]:
    """The hashes of a packed list."""
    return [text[at : at + _HASH_CHARS] for at in range(0, len(text), _HASH_CHARS)]


def packed_count(text: str) -> int:
    """How many keys a packed list holds."""
    return len(text) // _HASH_CHARS


def by_hash(names: Iterable[str], packed_names: str = "") -> dict[str, str]:
    """Keys by their hashes, which are equal however a commit lists a key.

    A key of which a packed list is all that is known is shown as ``sha256:`` and its hash.
    """
    return {one: f"sha256:{one}" for one in unpacked(packed_names)} | {hashed(name): name for name in names}


class Places:
    """Where keys stand, in commits that list them by themselves or by their hashes."""

    def __init__(self) -> None:
        self._at: dict[str, list[int]] = {}
        self._names: dict[str, str] = {}

    def add(self, version: int, keys: Mapping[str, str]) -> None:
        """Note the keys of a commit, as :func:`by_hash` gives them."""
        for one, shown in keys.items():
            self._at.setdefault(one, []).append(version)
            if one not in self._names or hashed(shown) == one:
                self._names[one] = shown

    def __contains__(self, one: object) -> bool:
        return one in self._at

    def __iter__(self) -> Iterator[str]:
        """The hashes, in the order in which they came."""
        return iter(self._at)

    def shown(self, one: str) -> str:
        """The key with a hash, where any of the commits tells it."""
        return self._names[one]

    def repeated(self) -> dict[str, list[int]]:
        """The commits of each key that stands in more than one."""
        return {self._names[one]: versions for one, versions in self._at.items() if len(versions) > 1}


def met(write: MemberWrite, version: int, entry: Mapping[str, Any] | None) -> Met | ReplayMismatchError:
    """What a commit that carries a member's key means to it: a repeat, or a fault of the member's own."""
    try:
        if entry is not None:
            keys.must_match(write.key, str(entry["fingerprint"]), write.fingerprint, version)
    except ReplayMismatchError as error:
        return error
    return Met(version, entry)
