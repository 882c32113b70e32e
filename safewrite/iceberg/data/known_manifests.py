"""Keeps what a table's manifests say from one write to the next, so that a write decodes those that are new and no more.

A manifest never changes, so what was decoded stays true.  What is kept goes by the table's id, the manifest's
name and length, and what its entries inherit of the manifest list; it is what one snapshot names, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.types import PrimitiveType

    Key: TypeAlias = tuple[str, str, int, int | None, int | None, int, int | None]

FILES_MAX = 20_000
"""The entries of at most this many files are kept: each file's take a few kilobytes of memory."""


@dataclass(frozen=True, slots=True)
class FilterSpan:
    """Rows that a filter is TRUE for have this value or more in a column (``at_least``), or this value or less."""

    field_id: int
    kind: PrimitiveType
    value: Any
    at_least: bool


class Manifest:
    """The live entries of one manifest.  Nobody may alter them."""

    __slots__ = ("_ends", "entries")

    def __init__(self, entries: Sequence[ManifestEntry]) -> None:
        self.entries = tuple(entries)
        self._ends: dict[tuple[int, str, bool], list[Any]] = {}

    def within(self, spans: Sequence[FilterSpan]) -> Sequence[ManifestEntry]:
        """The entries that no span rules out by a bound; PyIceberg judges those by the whole filter."""
        left: Iterable[int] = range(len(self.entries))
        for span in spans:
            ends = self._ends_of(span)
            if span.at_least:
                left = [at for at in left if ends[at] is None or ends[at] >= span.value]
            else:
                left = [at for at in left if ends[at] is None or ends[at] <= span.value]
        return [self.entries[at] for at in left]

    def _ends_of(self, span: FilterSpan) -> list[Any]:
        """The bounds of a column, decoded once; None where a file has none, or its count is not to be trusted."""
        key = (span.field_id, str(span.kind), span.at_least)
        if key not in self._ends:
            self._ends[key] = [_end(entry, span) for entry in self.entries]
        return self._ends[key]


@dataclass
class KnownManifests:
    """The manifests of one table's snapshot; empty at first.

    It holds no lock: a thread replaces all of it at once, so another sees this or that snapshot's, each of them true.
    """

    files_max: int = FILES_MAX
    statistics: bool = True
    """Whether entries say what is in columns; without that they take a tenth of the memory, and serve no condition and no new manifest."""
    _manifests: Mapping[Key, Manifest] = field(default_factory=dict, repr=False)
    _list: tuple[str, str, tuple[ManifestFile, ...]] | None = field(default=None, repr=False)

    def listed(self, table_id: str, location: str) -> tuple[ManifestFile, ...] | None:
        """What a manifest list says, if it is the one that was read or uploaded last: no file is ever written twice under one name."""
        known = self._list
        return known[2] if known is not None and known[:2] == (table_id, location) else None

    def note_list(self, table_id: str, location: str, manifests: Sequence[ManifestFile]) -> None:
        """Keep what a manifest list says, for those who ask next."""
        self._list = (table_id, location, tuple(manifests))

    def get(self, table_id: str, manifest: ManifestFile, *, with_ids: bool) -> Manifest | None:
        """The entries of a manifest, if they are kept; ``with_ids``: as format version 3 has them, also where the table was upgraded since."""
        from safewrite.iceberg.data.manifests_v3 import NumberedFile

        found = self._manifests.get(_key(table_id, manifest))
        if found is not None and with_ids:
            return found if all(isinstance(one.data_file, NumberedFile) for one in found.entries) else None
        return found

    def keep(self, table_id: str, snapshot: Iterable[ManifestFile], found: Mapping[str, Manifest]) -> None:
        """Keep the entries that are known of a snapshot's manifests; ``found`` has those that were decoded now, by path."""
        before, kept, files = self._manifests, {}, 0
        for manifest in snapshot:
            key = _key(table_id, manifest)
            known = found.get(manifest.manifest_path) or before.get(key)
            if known is not None and files + len(known.entries) <= self.files_max:
                kept[key] = known
                files += len(known.entries)
        self._manifests = kept

    def __iter__(self) -> Iterator[Manifest]:
        return iter(self._manifests.values())


def _key(table_id: str, manifest: ManifestFile) -> Key:
    from safewrite.iceberg.data.manifests_v3 import first_row_id

    return (
        table_id,
        manifest.manifest_path,
        manifest.manifest_length,
        manifest.sequence_number,
        manifest.added_snapshot_id,
        manifest.partition_spec_id,
        first_row_id(manifest),
    )


def _end(entry: ManifestEntry, span: FilterSpan) -> Any:
    return bound_of(entry.data_file, span.field_id, span.kind, upper=span.at_least)


def bound_of(file: DataFile, field_id: int, kind: PrimitiveType, *, upper: bool) -> Any:
    """The greatest or least value that a file may have in a column; None if nothing tells, or its count is not to be trusted."""
    from pyiceberg.conversions import from_bytes

    bound = ((file.upper_bounds if upper else file.lower_bounds) or {}).get(field_id)
    if not bound or file.record_count < 0:
        return None
    try:
        return from_bytes(kind, bound)
    except Exception:  # noqa: BLE001 - whoever judges this file finds out what its bound is
        return None
