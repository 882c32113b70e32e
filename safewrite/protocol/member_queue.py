"""Names the members that wait in the queue of writers who share commits, and holds what a writer knows of it."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from safewrite.protocol import members
from safewrite.protocol.effects import Effect, Ok, Outcome, Put

Steps = Generator[Effect, Outcome, None]
FOLDER = "_safewrite/queue/"
SPAN = 16
"""A member may be committed at most this many versions after the last that its owner examined, if its arbiter says no other number."""
MEMBERS_MAX, BYTES_MAX = 1000, 8 * 2**20
"""How many members, and bytes of members, one commit carries at most."""
SUCCESSORS, PACES = 6, 8
"""Whoever is next after a leader that does not move leads after this part of ``lease_s``, or after so many times what its own
look at queue and log takes, if that is longer; the one after it after twice that, and so on.  So a dead leader holds all up for
a moment only, and not all lead at once."""
AGE_MS_MAX = 60_000
"""A member that came so long before ours is not carried: its files were checked too long ago."""
FORM, CHANGES_FORM = 1, 2
"""What a member brings: files of an append, or changes that whoever commits them applies."""
CHANGES = "changes"
"""The kind of members that bring changes, as their names tell it."""
_NAME = re.compile(rf"(\d{{20}})-(\d{{20}})-(?:\d{{15}}-)?(?:(.{{20}})-)?(?:({CHANGES})-)?")


@dataclass(frozen=True, slots=True)
class Terms:
    """How a write shares."""

    shares: int = 0
    """Up to how many versions after its base others may commit it; 0: it is committed alone."""
    names_max: int = 100
    """A writer that waits asks for at most this many names of the queue."""
    queue_known: bool = True
    """Whether the queue is known to be usable; else a writer asks before it waits there."""
    listens: bool = False
    """Whether a writer that did not wait looks, with its read-back, whether others do: it is quick, and might outrun them for ever."""


ALONE = Terms()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A member in the queue, as its name tells: it may be committed after version ``base``, and up to version ``through``."""

    path: str
    base: int
    through: int
    modified_ms: int
    size: int
    key_hash: str = ""
    """The hash of the key of its write."""
    kind: str = ""
    """Who leads carries members of the kind of its own."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A member as its owner wrote it."""

    path: str
    base: int
    body: bytes


class Sharer(Protocol):
    """A write as one that other writers may commit, and whose commit can carry theirs."""

    @property
    def known(self) -> Mapping[int, object]:
        """What is known of commits, by version."""

    @property
    def key(self) -> str:
        """The key of its own write."""

    @property
    def kind(self) -> str:
        """What its member brings: :data:`CHANGES`, or nothing but files."""

    @property
    def left_out(self) -> frozenset[str]:
        """Paths of members with which no plan could be made: they are not carried, and their owners go on alone."""

    def member(self, base: int) -> bytes | None:
        """The write as others may commit it; None if it must be committed alone."""

    @property
    def member_file(self) -> Put | None:
        """The list of the writes that it carries, where these are too many for the commit file."""

    def carried_by(self, version: int) -> Container[str] | None:
        """Hashes of the keys in a commit that was examined; None where they are not known."""

    def carry(self, offered: Sequence[Offer], commit_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
        """Commit these members too, as an attempt of this id.

        Returns the paths of those that it carries, and of those that no commit can carry any more.
        """


SharerT_co = TypeVar("SharerT_co", bound=Sharer, covariant=True)


@dataclass(slots=True)
class Share(Generic[SharerT_co]):
    """What a writer knows of the queue of members."""

    sharer: SharerT_co
    terms: Terms
    folder: str = FOLDER
    """Where members wait."""
    unit: str = "version"
    """What its format counts commits by."""
    path: str | None = None
    """Where our member is, as far as we know; see ``safewrite.protocol.sharing``."""
    body: bytes = b""
    """What our member holds."""
    put_ms: dict[str, int] = field(default_factory=dict)
    """When the members of the last look were put, as they were seen first."""
    through: int = -1
    """The last version in which a leader may commit a member of ours."""
    leads: bool = False
    offers: int = 0
    asked: bool = False
    """The queue can be used here, as an answer showed."""
    there: tuple[Waiting, ...] = ()
    """The members that the last look saw."""
    bodies: dict[str, bytes] = field(default_factory=dict)
    """What they hold, by path."""
    carried: tuple[str, ...] = ()
    """Paths of the members that the last try carries."""
    refused: frozenset[str] = frozenset()
    listed: bool = False
    """``there`` was seen a moment ago."""
    looked_s: float = 0.0
    waited_s: float = 0.0
    met: bool = False
    """Others waited when our commit stood."""
    denied: bool = False
    """The queue cannot be used with these permissions: the write goes on alone."""

    def leave_out(self) -> None:
        """Carry no member that the last plan was made without."""
        out = self.sharer.left_out
        self.carried = tuple(path for path in self.carried if path not in out)
        self.refused |= out

    def left(self, seen: int) -> list[Waiting]:
        """The members of the last look that no commit up to ``seen`` carries, as far as is known: some are about to be removed."""
        return self._left([keys for keys in self._carried(seen) if keys is not None])

    def leads_after(self, seen: int) -> str | None:
        """The member that is to lead after version ``seen``; None where another look must tell.

        Ours may have been refused if one that came after it was carried, and an older one may be in a commit that is not known.
        """
        of_base, *later = self._carried(seen)
        known = [keys for keys in later if keys is not None]
        if len(known) < len(later):
            return None
        left = self._left(known if of_base is None else [of_base, *known])
        paths, base = {one.path for one in left}, _base(self.path)
        carried = [one for one in self.there if one.path not in paths and one.kind == self.sharer.kind]
        passed = any(one.path > (self.path or "") for one in carried)
        if passed or self.path not in paths or (of_base is None and any(one.base < base for one in left)):
            return None
        self.there, self.listed = tuple(left), False
        return young(left, self.path)[0].path

    def _carried(self, seen: int) -> list[Container[str] | None]:
        """What commits carry, from the one that our member was made on to version ``seen``."""
        return [self.sharer.carried_by(version) for version in range(_base(self.path), seen + 1)]

    def _left(self, carried: Sequence[Container[str]]) -> list[Waiting]:
        return [
            one
            for one in self.there
            if one.path == self.path or not any(one.key_hash in keys for keys in carried)
        ]

    @property
    def place(self) -> int:
        """How many members are ahead of ours, of those that were listed."""
        paths = [one.path for one in young(self.there, self.path)]
        return paths.index(self.path) if self.path in paths else len(paths)

    def look(self, listed: Sequence[Waiting]) -> None:
        """Note the members that were listed."""
        self.there = tuple(listed)
        self.put_ms = {one.path: self.put_ms.get(one.path, one.modified_ms) for one in listed}

    def ahead(self) -> list[Waiting]:
        """Whoever leads, as far as is seen, and those between it and us: the first in the queue, or who took over from it.

        Who takes over puts its member once more, which shows by the time of the object.
        """
        before = young(self.there, self.path)[: self.place]
        shown = [
            at
            for at, one in enumerate(before)
            if one.modified_ms > self.put_ms.get(one.path, one.modified_ms)
        ]
        return before[shown[-1] :] if shown else before

    def patience_s(self, lease_s: float, slowest_s: float) -> float:
        """How long whoever leads may stand still: longer for those who are further behind.

        A plan of changes takes long, and one that is made in vain makes all others take longer: so who leads is waited for as long
        as a lease lasts, and who takes over from it shows that.
        """
        step_s, ahead = max(lease_s / SUCCESSORS, PACES * slowest_s), self.ahead()
        if self.waits_for_changes:
            return max(lease_s, step_s) + (len(ahead) - 1) * step_s
        return min(lease_s, len(ahead) * step_s)

    @property
    def waits_for_changes(self) -> bool:
        """Whether ours are changes, and what is to be committed first too."""
        return self.sharer.kind == CHANGES and [one.kind for one in self.ahead()[:1]] == [CHANGES]

    @property
    def follows(self) -> bool:
        """Whether it waits for another writer."""
        return self.path is not None and not self.leads

    @property
    def meets(self) -> bool:
        """Whether others share, as far as was seen."""
        return self.met or len(self.there) > 1

    @property
    def usable(self) -> bool | None:
        """Whether the queue can be used, as far as an answer showed."""
        return False if self.denied else (True if self.asked else None)


# --- names ----------------------------------------------------------------------------------------------
def path_of(
    folder: str, base: int, through: int, *, clock_ms: int, key: str, unique: str, kind: str = ""
) -> str:
    """Where a member of a write waits; no two have one name, so none is ever written twice.

    The order of names is the order in which members came, as far as the writers' clocks agree: one that is wrong costs a try.
    """
    name = f"{kind}-{unique}" if kind else unique
    return f"{folder}{base:020d}-{through:020d}-{clock_ms:015d}-{members.hashed(key)}-{name}"


def _base(path: str | None) -> int:
    """The version that the owner of a member knew."""
    name = _NAME.match((path or "").rpartition("/")[2])
    return int(name[1]) if name is not None else -1


def waits_through(outcome: Ok, key: str) -> int:
    """The last version in which a member with this key that is in the queue may be committed; -1 if there is none."""
    hashed = members.hashed(key)
    return max((one.through for one in waiting(outcome) if is_of(one.path, hashed)), default=-1)


def is_of(path: str, hashed: str) -> bool:
    """Whether a member is of a write whose key has this hash."""
    return f"-{hashed}-" in path


def waiting(outcome: Ok) -> list[Waiting]:
    """The members in the queue, those that came first at the front."""
    assert isinstance(outcome.value, tuple)
    found = []
    for one in outcome.value:
        name = _NAME.match(one.path.rpartition("/")[2])
        if name is not None:
            found.append(
                Waiting(
                    one.path,
                    int(name[1]),
                    int(name[2]),
                    one.modified_ms,
                    one.size,
                    name[3] or "",
                    name[4] or "",
                )
            )
    return sorted(found, key=lambda one: one.path)


def young(there: Sequence[Waiting], own: str | None) -> list[Waiting]:
    """The members that came shortly before ours or after it, by the clock of the store that has them all.

    The files of older ones were checked long ago, and their owners are dead or will offer them again.
    """
    mine = next((one for one in there if one.path == own), None)
    if mine is None:
        return list(there)
    return [one for one in there if mine.modified_ms - one.modified_ms <= AGE_MS_MAX]


def bounded(fit: Sequence[Waiting]) -> list[Waiting]:
    """The members that one commit may carry."""
    some, size = list[Waiting](), 0
    for one in fit[:MEMBERS_MAX]:
        size += one.size
        if size > BYTES_MAX and some:
            break
        some.append(one)
    return some


# --- a member as JSON -----------------------------------------------------------------------------------
def encoded(
    table_id: str,
    base: int,
    table: str,
    write: Mapping[str, Any],
    files: Mapping[str, Any],
    *,
    form: int = FORM,
) -> bytes:
    """A member; ``table`` is a digest of all that its ``files`` depend on."""
    member = {"form": form, "tableId": table_id, "base": base, "table": table, "write": write, **files}
    return json.dumps(member, separators=(",", ":"), ensure_ascii=False).encode()


def decoded(offer: Offer, table_id: str, table: str) -> Mapping[str, Any] | None:
    """What a member says; None if it is not one of this table as it is now."""
    try:
        member: dict[str, Any] = json.loads(offer.body)
        made_for = member["tableId"], member["base"], member["table"]
    except (KeyError, ValueError, TypeError):
        return None
    return member if made_for == (table_id, offer.base, table) else None


def is_of_another(body: bytes, table_id: str) -> bool:
    """Whether a member is of a table that was there before this one: its number says which, and no writer of this one takes it."""
    try:
        member = json.loads(body)
        made_for, known = member["tableId"], member["form"] in (FORM, CHANGES_FORM)
    except (KeyError, ValueError, TypeError):
        return False
    return known and isinstance(made_for, str) and made_for != table_id


def is_known(body: bytes, form: int = FORM) -> bool:
    """Whether a member is of the form that is asked for; what a later release wrote is left to others."""
    try:
        return bool(json.loads(body)["form"] == form)
    except (KeyError, ValueError, TypeError):
        return False


def write_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies a member's write, by the names of ``safewrite.protocol.members.MemberWrite``.

    Raises:
        KeyError, ValueError, TypeError: it does not say so.
    """
    txn = entry.get("txn")
    return {
        "key": str(entry["key"]),
        "fingerprint": str(entry["fingerprint"]),
        "rows": int(entry["rows"]),
        "files": int(entry["files"]),
        "txn": None if txn is None else (str(txn[0]), int(txn[1])),
        "volatile": tuple(entry.get("volatile", ())),
        "columns": str(entry.get(members.COLUMNS, "")),
        "offer": str(entry["offer"]),
    }
