"""Keeps the entries of manifests that were read, for a manifest never changes: the next plan reads only new ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

COLUMNS_MAX = 100_000
"""So many columns of data files are kept with their bounds, some 50 MB: 10,000 files of ten columns."""
_Key = tuple[str, int]


class KnownManifests:
    """Entries by manifest, those that were used last; of one table, and safe in threads."""

    def __init__(self, columns_max: int = COLUMNS_MAX) -> None:
        self._columns_max, self._columns = columns_max, 0
        self._lock = threading.Lock()
        self._found: OrderedDict[_Key, tuple[int, list[ManifestEntry]]] = OrderedDict()

    def entries(self, manifest: ManifestFile) -> list[ManifestEntry] | None:
        """The live entries of a manifest; None if they are not known."""
        key = _key(manifest)
        with self._lock:
            if key not in self._found:
                return None
            self._found.move_to_end(key)
            return list(self._found[key][1])

    def note(self, manifest: ManifestFile, entries: Iterable[ManifestEntry]) -> None:
        """Remember the live entries of a manifest."""
        key, found = _key(manifest), list(entries)
        columns = 1 + sum(1 + len(one.data_file.value_counts or ()) for one in found)
        with self._lock:
            if key in self._found or columns > self._columns_max:
                return
            self._found[key] = columns, found
            self._columns += columns
            while self._columns > self._columns_max:
                self._columns -= self._found.popitem(last=False)[1][0]

    def known(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot, whose manifests are read only where their entries are not known."""
        found = _KnownSnapshot.model_construct(**dict(snapshot))
        found._known = self  # noqa: SLF001 - our own class
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownManifests, (self._columns_max,)


class _KnownSnapshot(Snapshot):
    _known: KnownManifests

    def manifests(self, io: Any) -> list[ManifestFile]:
        return [_KnownManifest(self._known, one) for one in super().manifests(io)]


class _KnownManifest(ManifestFile):
    __slots__ = ("_known",)

    def __init__(self, known: KnownManifests, manifest: ManifestFile) -> None:
        super().__init__(*manifest._data)  # noqa: SLF001 - all that a record is
        self._known = known

    def fetch_manifest_entry(self, io: Any, discard_deleted: bool = True) -> list[ManifestEntry]:
        found = self._known.entries(self) if discard_deleted else None
        if found is None:
            found = super().fetch_manifest_entry(io, discard_deleted)
            if discard_deleted:
                self._known.note(self, found)
        return found


def _key(manifest: ManifestFile) -> _Key:
    return manifest.manifest_path, manifest.manifest_length
