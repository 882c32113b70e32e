"""Lists the files that a snapshot names, and which of them the store has; reads only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.iceberg.catalog.files import MemoryIO
from safewrite.iceberg.data.manifests import live_manifests
from safewrite.progress import watched
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Get, GetTail, Ok
from safewrite.protocol.fetch import fetch
from safewrite.protocol.values import Tail
from safewrite.stores.world import run

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table.snapshots import Snapshot

    from safewrite.stores.world import Performer

ASKS = Limits(asks=6)
BATCH = 64
"""How many manifests are held in memory at once."""
LOOKS = 1_000
"""How many data files are looked for before it is told how far that has come."""


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data or delete file as a manifest names it; ``snapshot_id`` is the snapshot that added it."""

    path: str
    size: int
    sequence: int
    snapshot_id: int | None
    holds_rows: bool


@dataclass
class Inventory:
    """The files that one snapshot names.  ``missing`` and ``garbled`` are its manifest list and manifests
    that cannot be read.
    """

    snapshot_id: int
    manifests: list[ManifestFile] = field(default_factory=list)
    files: list[NamedFile] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    garbled: list[str] = field(default_factory=list)

    @property
    def twice(self) -> list[str]:
        """Data files that are named more than once, so that their rows are read more than once."""
        counts = Counter(file.path for file in self.files if file.holds_rows)
        return [path for path, count in counts.items() if count > 1]


class SnapshotFiles:
    """The files of a table's snapshots; each is read or looked for once."""

    def __init__(self, world: Performer) -> None:
        self._world = world
        self._entries: dict[str, list[NamedFile] | None] = {}
        self._garbled: set[str] = set()
        self._sizes: dict[str, int | None] = {}

    def inventory(self, snapshot: Snapshot) -> Inventory:
        """Read the snapshot's manifest list and manifests.

        Raises:
            StorageError: the store gave no answer.
        """
        found = Inventory(snapshot.snapshot_id)
        (answer,) = run(
            fetch([Get(snapshot.manifest_list)], ASKS, name="inventory.get_manifest_list"), self._world
        )
        if not isinstance(answer, Ok):
            found.missing.append(snapshot.manifest_list)
            return found
        assert isinstance(answer.value, bytes)
        try:
            found.manifests = list(live_manifests(answer.value, snapshot.manifest_list))
        except Exception:  # noqa: BLE001 - cut or garbled Avro fails in many ways
            found.garbled.append(snapshot.manifest_list)
            return found
        self._read([m for m in found.manifests if m.manifest_path not in self._entries])
        for manifest in found.manifests:
            path = manifest.manifest_path
            entries = self._entries[path]
            if entries is not None:
                found.files += entries
            else:
                (found.garbled if path in self._garbled else found.missing).append(path)
        return found

    def damaged(self, files: Iterable[NamedFile]) -> tuple[list[str], list[str]]:
        """The files that the store does not have, and those with another size than the manifests say.

        Raises:
            StorageError: the store gave no answer.
        """
        named = {file.path: file.size for file in files}
        asked = [path for path in named if path not in self._sizes]
        starts = range(0, len(asked), LOOKS)
        for start in watched(starts, "data files", len(asked), each=LOOKS):
            part = asked[start : start + LOOKS]
            effects = [GetTail(path, 8, name="inventory.check_data") for path in part]
            answers = run(fetch(effects, ASKS, name="inventory.check_data"), self._world)
            for path, answer in zip(part, answers, strict=True):
                self._sizes[path] = (
                    answer.value.size if isinstance(answer, Ok) and isinstance(answer.value, Tail) else None
                )
        missing = [path for path in named if self._sizes[path] is None]
        changed = [path for path, size in named.items() if self._sizes[path] not in (None, size)]
        return missing, changed

    def whole(self, snapshot: Snapshot) -> bool:
        """Whether every file that the snapshot names is there."""
        found = self.inventory(snapshot)
        return not (found.missing or found.garbled) and self.damaged(found.files) == ([], [])

    def _read(self, manifests: Sequence[ManifestFile]) -> None:
        starts = range(0, len(manifests), BATCH)
        for start in watched(starts, "manifests", len(manifests), each=BATCH):
            part = manifests[start : start + BATCH]
            gets = [Get(one.manifest_path, name="inventory.get_manifest") for one in part]
            answers = run(fetch(gets, ASKS, name="inventory.get_manifests"), self._world)
            for manifest, answer in zip(part, answers, strict=True):
                body = answer.value if isinstance(answer, Ok) else None
                self._entries[manifest.manifest_path] = (
                    self._parsed(manifest, body) if isinstance(body, bytes) else None
                )

    def _parsed(self, manifest: ManifestFile, body: bytes) -> list[NamedFile] | None:
        try:
            return [_named(entry) for entry in manifest.fetch_manifest_entry(MemoryIO(body))]
        except Exception:  # noqa: BLE001 - as above
            self._garbled.add(manifest.manifest_path)
            return None


def _named(entry: ManifestEntry) -> NamedFile:
    from pyiceberg.manifest import DataFileContent

    file = entry.data_file
    return NamedFile(
        path=file.file_path,
        size=file.file_size_in_bytes,
        sequence=entry.sequence_number or 0,
        snapshot_id=entry.snapshot_id,
        holds_rows=file.content == DataFileContent.DATA,
    )
