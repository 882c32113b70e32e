"""Lists the writes of a snapshot in its summary, or in its manifest list where they are many.

Every summary is part of the table's metadata, which each writer reads, so a long list stands in the header of the
manifest list: a file that is never changed, and that lives as long as its snapshot.  Digests of columns
(``safewrite.frames.column_digests``) stand only there: they explain a mismatch, and decide nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from safewrite.errors import Kind, StorageError
from safewrite.iceberg.catalog.files import MemoryFile
from safewrite.iceberg.metadata import table_of
from safewrite.protocol import members
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome
from safewrite.protocol.fetch import fetch, fetch_one

if TYPE_CHECKING:
    from safewrite.protocol.iceberg.head import TableVersion

KEY = "safewrite.key"
FINGERPRINT = "safewrite.fingerprint"
ROWS = "safewrite.rows"
FILES = "safewrite.files"
REMOVED_ROWS = "safewrite.removed-rows"
"""Rows that the snapshot removed, where they were counted; those of files that it rewrote stay."""
TXN = "safewrite.txn"
CHANGES = "safewrite.changes"
"""How many changes did what, as JSON."""
VOLATILE = "safewrite.volatile"
"""The columns that the fingerprint leaves out, as JSON."""
MEMBERS = "safewrite.members"
"""The writes of a group as JSON, or ``{"count": n, "in": "manifest-list"}``."""
MEMBER_KEYS = "safewrite.member-keys"
"""The keys of a group's writes, hashed; see ``safewrite.protocol.members.packed``."""
WITHDRAWN = "safewrite.withdrawn"
"""The key of which no later snapshot carries what was offered before this one."""
INLINE_CHARS_MAX = 2048
LISTS_AT_ONCE = 64
"""At most this many manifest lists are in memory."""

Entry = Mapping[str, Any]


def summary(writes: Sequence[members.MemberWrite]) -> dict[str, str]:
    """Properties of the snapshot that carries a group."""
    text = _text(writes)
    if len(text) > INLINE_CHARS_MAX:
        text = json.dumps({"count": len(writes), "in": "manifest-list"})
    return {MEMBERS: text, MEMBER_KEYS: members.packed(write.key for write in writes)}


def header(writes: Sequence[members.MemberWrite]) -> dict[str, str]:
    """What the header of the snapshot's manifest list says of its writes; {} where the summary says it all."""
    has_digests = any(write.columns for write in writes)
    if not has_digests and (len(writes) == 1 or len(_text(writes)) <= INLINE_CHARS_MAX):
        return {}
    return {MEMBERS: _json([write.whole_entry() for write in writes])}


def _text(writes: Sequence[members.MemberWrite]) -> str:
    return _json([write.entry() for write in writes])


def _json(entries: Sequence[Entry]) -> str:
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


# --- reading --------------------------------------------------------------------------------------------
def named(head: TableVersion, names: Collection[str]) -> set[str]:
    """Those of the keys that any snapshot carries, one that was rolled back too."""
    wanted = members.Wanted(names)
    return {name for summary in head.summaries.values() for name in in_summary(summary, wanted)}


def carried(head: TableVersion, names: Collection[str]) -> dict[str, int]:
    """The newest snapshot of the branch that carries each of the keys, where one does."""
    wanted = members.Wanted(names)
    found: dict[str, int] = {}
    for at in head.carriers():
        for name in in_summary(head.summaries.get(at, {}), wanted):
            found.setdefault(name, at)
    return found


def in_summary(properties: Mapping[str, str], wanted: members.Wanted) -> set[str]:
    """Those of the keys that a snapshot carries by its summary."""
    own, packed = properties.get(KEY), properties.get(MEMBER_KEYS)
    found = {own} if own is not None and own in wanted else set()
    return found | wanted.held(packed) if packed else found


def keys_by_hash(properties: Mapping[str, str]) -> dict[str, str]:
    """The keys that a snapshot carries, by their hashes, which are all that its summary has of a long list."""
    listed = inline(properties)
    if listed is not None:
        return members.by_hash(str(one["key"]) for one in listed)
    return members.by_hash((), properties.get(MEMBER_KEYS, ""))


def shown_keys(properties: Mapping[str, str]) -> list[str]:
    """The keys that a snapshot carries, as far as its summary tells them."""
    return list(keys_by_hash(properties).values())


def count(properties: Mapping[str, str]) -> int:
    """How many writes a snapshot carries."""
    return members.packed_count(properties.get(MEMBER_KEYS, "")) or 1


def is_ours(properties: Mapping[str, str]) -> bool:
    """Whether a snapshot was made by a write of safewrite."""
    return KEY in properties or MEMBER_KEYS in properties


def inline(properties: Mapping[str, str]) -> list[Entry] | None:
    """The writes of a snapshot, as far as its summary lists them; None if its manifest list does."""
    if KEY in properties:
        txn, volatile, changes = (properties.get(name) for name in (TXN, VOLATILE, CHANGES))
        one = {"key": properties[KEY], "fingerprint": properties.get(FINGERPRINT, "")}
        numbers = {"rows": int(properties.get(ROWS, 0)), "files": int(properties.get(FILES, 0))}
        more = {"txn": txn, "volatile": volatile, "changes": changes}
        return [{**one, **numbers, **{name: json.loads(text) for name, text in more.items() if text}}]
    if MEMBERS not in properties:
        return []
    found = json.loads(properties[MEMBERS])
    return found if isinstance(found, list) else None


class Summaries:
    """How the summaries of a table version describe writes; each is decoded once, whoever asks for its writes."""

    def __init__(self, head: TableVersion) -> None:
        self._head = head
        self._writes: dict[int, dict[str, Entry]] = {}

    def entry(self, at: int, key: str) -> Entry | None:
        """How the summary of a snapshot describes one of its writes, if it does."""
        if at not in self._writes:
            self._writes[at] = _by_key(inline(self._head.summaries.get(at, {})) or ())
        return self._writes[at].get(key)


def _by_key(writes: Iterable[Entry]) -> dict[str, Entry]:
    return {str(write["key"]): write for write in writes}


@dataclass
class Lists:
    """The writes of snapshots, by key; each list is read and decoded once, whoever asks for its writes."""

    _writes: dict[int, dict[str, Entry]] = field(default_factory=dict)

    def entry(
        self, head: TableVersion, at: int, key: str, limits: Limits
    ) -> Generator[Effect, Outcome, Entry | None]:
        """One write of a snapshot, or None.

        Raises:
            StorageError: the manifest list that names the snapshot's writes cannot be read.
        """
        if at not in self._writes:
            self._writes[at] = _by_key((yield from entries(head, at, limits)))
        return self._writes[at].get(key)


def entries(head: TableVersion, at: int, limits: Limits) -> Generator[Effect, Outcome, list[Entry]]:
    """Every write of a snapshot.

    Raises:
        StorageError: its manifest list cannot be read.
    """
    found = inline(head.summaries.get(at, {}))
    if found is None:
        found = yield from _in_list(head, at, limits)
    if found is None:
        raise _unlisted(head, at, "does not list them")
    return found


def recorded(head: TableVersion, at: int, limits: Limits) -> Generator[Effect, Outcome, list[Entry]]:
    """As :func:`entries`, with the digests of columns where there are any; none where the snapshot was expired."""
    if at not in head.summaries:
        return []
    listed = yield from _in_list(head, at, limits)
    return (inline(head.summaries[at]) or []) if listed is None else listed


def known_writes(
    head: TableVersion, snapshots: Sequence[int], limits: Limits
) -> Generator[Effect, Outcome, dict[int, list[Entry]]]:
    """The writes of snapshots whose manifest lists name them, in one round of requests; unreadable ones are left out."""
    found: dict[int, list[Entry]] = {}
    for first in range(0, len(snapshots), LISTS_AT_ONCE):
        some = snapshots[first : first + LISTS_AT_ONCE]
        answers = yield from fetch([_get_list(head, at) for at in some], limits, name="members.get_all")
        for at, got in zip(some, answers, strict=True):
            with suppress(StorageError):
                writes = _listed(head, at, got)
                found |= {} if writes is None else {at: writes}
    return found


def _in_list(head: TableVersion, at: int, limits: Limits) -> Generator[Effect, Outcome, list[Entry] | None]:
    """The writes that the header of a snapshot's manifest list names; None if it names none."""
    return _listed(head, at, (yield from fetch_one(_get_list(head, at), limits)))


def _get_list(head: TableVersion, at: int) -> Get:
    snapshot = table_of(head).metadata.snapshot_by_id(at)
    assert snapshot is not None
    return Get(snapshot.manifest_list, name="members.get")


def _listed(head: TableVersion, at: int, got: Ok | Missing) -> list[Entry] | None:
    if not isinstance(got, Ok):
        raise _unlisted(head, at, "is gone")
    assert isinstance(got.value, bytes)
    try:
        text = _header_of(got.value, _get_list(head, at).path).get(MEMBERS)
    except Exception as error:
        raise _unlisted(head, at, f"cannot be read ({type(error).__name__})") from error
    return None if text is None else list(json.loads(text))


def _unlisted(head: TableVersion, at: int, why: str) -> StorageError:
    snapshot = table_of(head).metadata.snapshot_by_id(at)
    return StorageError(
        f"{snapshot and snapshot.manifest_list}, which lists the writes of snapshot {at}, {why}. Nothing was committed by "
        "this call. Run `safewrite doctor --deep` on the table.",
        kind=Kind.DATA_FILE_DAMAGED,
    )


def _header_of(body: bytes, location: str) -> Mapping[str, str]:
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestFile

    file = MemoryFile(location, body).to_input_file()
    with AvroFile[ManifestFile](file, MANIFEST_LIST_FILE_SCHEMAS[2], read_types={-1: ManifestFile}) as reader:
        return dict(reader.header.meta)
