"""Merges manifests when a commit finds many of them, as Java's writers do, so that what a plan reads stays small.

Only manifests of the base are merged, those of one content and partition spec with each other: each live entry goes on as
EXISTING with the snapshot id and the sequence numbers that it has.  Merging is a kindness to later plans: what cannot be read,
or would not be rewritten as it is, stays as it is, and no commit fails for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from safewrite.errors import StorageError, UnsupportedTableError
from safewrite.iceberg.data.known_manifests import KnownManifests
from safewrite.iceberg.data.manifests import entries_of, entry, manifest_of
from safewrite.iceberg.metadata import table_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema

_Name: TypeAlias = "tuple[str, int | None]"
"""A manifest, and from where its rows have ids."""
ENABLED = "commit.manifest-merge.enabled"
COUNT_MIN = "commit.manifest.min-count-to-merge"
TARGET_BYTES = "commit.manifest.target-size-bytes"
FILES_MAX = 10_000
"""A merged manifest names no more files: a commit takes about a second to write them."""


@dataclass(frozen=True, slots=True)
class MergeRule:
    """When a table's manifests are merged, by its properties; without them as Java does."""

    enabled: bool = True
    count_min: int = 100
    target_bytes: int = 8 * 2**20

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> MergeRule:
        """The rule of a table; a property that is no number merges nothing."""
        try:
            return cls(
                properties.get(ENABLED, "true").strip().lower() == "true",
                int(properties.get(COUNT_MIN, cls().count_min)),
                int(properties.get(TARGET_BYTES, cls().target_bytes)),
            )
        except ValueError:
            return cls(enabled=False)

    def bins(
        self, manifests: Sequence[ManifestFile], new: Sequence[ManifestFile]
    ) -> list[list[ManifestFile]]:
        """Manifests of a base that belong together; ``new`` are those that come besides, which stay as they are."""
        groups: dict[tuple[int, int], list[ManifestFile]] = {}
        for one in manifests:
            groups.setdefault((int(one.content), one.partition_spec_id), []).append(one)
        found: list[list[ManifestFile]] = []
        for (content, spec_id), group in groups.items():
            more = sum((int(one.content), one.partition_spec_id) == (content, spec_id) for one in new)
            if self.enabled and len(group) + more >= self.count_min:
                found += [some for some in self._packed(group) if len(some) > 1]
        return found

    def _packed(self, group: Sequence[ManifestFile]) -> Iterable[list[ManifestFile]]:
        """Neighbours up to the size of a manifest, from the oldest on, which stand last."""
        some: list[ManifestFile] = []
        size = files = 0
        for one in reversed(group):
            if some and (size + one.manifest_length > self.target_bytes or files + _files(one) > FILES_MAX):
                yield some
                some, size, files = [], 0, 0
            some = [one, *some]
            size, files = size + one.manifest_length, files + _files(one)
        yield some


@dataclass
class Merging:
    """The merged manifests of one snapshot.  They serve each attempt whose base still has all that went into them."""

    made: dict[tuple[_Name, ...], ManifestFile] = field(default_factory=dict)
    _tried: bool = False

    def merge(
        self,
        head: TableVersion,
        manifests: Sequence[ManifestFile],
        *,
        snapshot_id: int,
        schema: Schema,
        known: KnownManifests,
        limits: Limits,
        new_location: Callable[[int], str],
    ) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...]]]:
        """A snapshot's manifests, those of its base merged, and the uploads that this needs.

        Only the first attempt reads manifests: others are late already.  From format version 3 on each entry says the row id that it has from
        its manifest, so a manifest that a rival gave ids to is another one.
        """
        puts: list[Put] = []
        if not self._tried:
            self._tried = True
            base = [
                one for one in manifests if one.added_snapshot_id != snapshot_id and _may_merge(one, head)
            ]
            new = [one for one in manifests if one.added_snapshot_id == snapshot_id]
            for some in MergeRule.of(head.properties).bins(base, new):
                entries = yield from _read(head, some, known, limits)
                location = new_location(len(self.made))
                made = None
                if entries is not None:
                    restated = _restated(entries, table_of(head).metadata.format_version)
                    made = _written(
                        head, some, restated, snapshot_id=snapshot_id, schema=schema, location=location
                    )
                if made is not None:
                    self.made[tuple(map(_name, some))] = made[0]
                    puts.append(Put(location, made[1], name="stage.put_manifest"))
        return self._applied(manifests), tuple(puts)

    def _applied(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The manifests, with merged ones in the place of those that went into them, where all of these are there."""
        found = list(manifests)
        for names, made in self.made.items():
            if {*map(_name, found)}.issuperset(names):
                place = next(at for at, one in enumerate(found) if _name(one) in names)
                found[place] = made
                found = [one for one in found if _name(one) not in names]
        return found


def _name(manifest: ManifestFile) -> _Name:
    from safewrite.iceberg.data.manifests_v3 import first_row_id

    return manifest.manifest_path, first_row_id(manifest)


def _read(
    head: TableVersion, manifests: Sequence[ManifestFile], known: KnownManifests, limits: Limits
) -> Generator[Effect, Outcome, list[Sequence[ManifestEntry]] | None]:
    """The entries of manifests; None if one of them cannot be read."""
    try:
        return (yield from entries_of(head, manifests, known, limits, "merge.get_manifest"))
    except StorageError:
        return None
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        EOFError,
        OSError,
    ):  # what PyIceberg makes of garbled Avro
        return None


def _may_merge(manifest: ManifestFile, head: TableVersion) -> bool:
    """Whether PyIceberg would write a manifest's entries as it reads them."""
    from safewrite.iceberg.data.partitions import misread_fields, typed

    metadata = table_of(head).metadata
    spec = metadata.specs()[manifest.partition_spec_id]
    try:
        typed(spec, metadata)
    except UnsupportedTableError:
        return False
    misread = any(True for schema in metadata.schemas for _ in misread_fields([spec], schema))
    return not misread and manifest.key_metadata is None and None not in _counts(manifest)


def _restated(parts: Sequence[Sequence[ManifestEntry]], version: int) -> list[ManifestEntry]:
    """Live entries of older manifests as a new one names them; none if one of them lacks what it should have inherited."""
    from pyiceberg.manifest import ManifestEntryStatus

    live = [one for part in parts for one in part]
    if version > 1 and any(None in (one.snapshot_id, one.sequence_number) for one in live):
        return []
    existing = ManifestEntryStatus.EXISTING
    return [
        entry(existing, one.snapshot_id, one.data_file, one.sequence_number, one.file_sequence_number)
        for one in live
    ]


def _written(
    head: TableVersion,
    manifests: Sequence[ManifestFile],
    entries: Sequence[ManifestEntry],
    *,
    snapshot_id: int,
    schema: Schema,
    location: str,
) -> tuple[ManifestFile, bytes] | None:
    """One manifest in the place of some, and its bytes; None if it would not name what they name."""
    from pyiceberg.manifest import ManifestContent

    content = manifests[0].content
    if content == ManifestContent.DELETES:
        from safewrite.iceberg.write import position_deletes

        if not all(position_deletes.is_plain_delete(one.data_file) for one in entries):
            return None
    if not entries:
        return None
    metadata = table_of(head).metadata
    spec = metadata.specs()[manifests[0].partition_spec_id]
    made, body = manifest_of(
        metadata, schema, entries, spec=spec, snapshot_id=snapshot_id, location=location, content=content
    )
    counted = tuple(sum(one or 0 for one in counts) for counts in zip(*map(_counts, manifests), strict=True))
    return (made, body) if _counts(made) == counted else None


def _counts(manifest: ManifestFile) -> tuple[int | None, int | None]:
    """How many live files a manifest names, and how many rows they have; None where it does not say."""
    counts = (
        (manifest.added_files_count, manifest.existing_files_count),
        (manifest.added_rows_count, manifest.existing_rows_count),
    )
    files, rows = (None if None in pair else sum(one or 0 for one in pair) for pair in counts)
    return files, rows


def _files(manifest: ManifestFile) -> int:
    return _counts(manifest)[0] or 0
