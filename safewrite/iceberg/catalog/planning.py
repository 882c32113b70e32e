"""Finds a snapshot's data files by a filter, from manifests that were decoded before as far as they are known.

PyIceberg judges files and pairs them with their delete files; its own planner decodes all manifests for each plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from pyiceberg.expressions import (
    And,
    BooleanExpression,
    BoundGreaterThanOrEqual,
    BoundLessThanOrEqual,
    BoundLiteralPredicate,
    BoundReference,
)
from pyiceberg.expressions.visitors import bind
from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, _min_sequence_number
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, IntegerType, LongType, StringType, TimestampType, TimestamptzType
from pyiceberg.utils.concurrent import ExecutorFactory

from safewrite.iceberg.data.known_manifests import FilterSpan, KnownManifests, Manifest
from safewrite.iceberg.data.manifests_v3 import VERSION, live_entries, read_list
from safewrite.iceberg.data.vectors import sequence_of, vectors_in

_ORDERED = (IntegerType, LongType, DateType, TimestampType, TimestamptzType, StringType)
"""Types whose bounds are in the order of their values; floats have NaN, and others are left to PyIceberg."""

_STATISTICS = slice(6, 12)
"""Where a data file's record has sizes, counts and bounds of columns, in each format version."""


def planned(scan: DataScan, table_id: str, known: KnownManifests) -> Iterable[FileScanTask]:
    """The files of a scan; ``known`` takes what was decoded for it.  A server that plans decodes for itself.

    Raises:
        Exception: whatever PyIceberg and its files raise.
    """
    snapshot = scan.snapshot()
    if snapshot is None or scan._should_use_server_side_planning():  # noqa: SLF001 - as its plan_files asks
        return scan.plan_files()
    manifests = known.listed(table_id, snapshot.manifest_list)
    if manifests is None:
        manifests = _listed(scan, snapshot)
        known.note_list(table_id, snapshot.manifest_list, manifests)
    planner = _Planner(scan, table_id, known)
    tasks = planner.plan_files(manifests)
    known.keep(table_id, manifests, planner.found)
    return tasks


def _listed(scan: DataScan, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot.  From format version 3 on with their row ids, which the next commit carries on."""
    if scan.table_metadata.format_version < VERSION:
        return tuple(snapshot.manifests(scan.io))
    return tuple(read_list(scan.io.new_input(snapshot.manifest_list)))


class _Planner(ManifestGroupPlanner):
    """PyIceberg's planner (0.12.0), which takes entries that are known and decodes the others; ``found`` are those, by path.

    It pairs data files with position delete files.  Deletion vectors are paired here, by the data file that each names.
    """

    def __init__(self, scan: DataScan, table_id: str, known: KnownManifests) -> None:
        super().__init__(scan.table_metadata, scan.io, scan.row_filter, scan.case_sensitive, scan.options)
        self.found: dict[str, Manifest] = {}
        self._table_id = table_id
        self._known = known
        self._vectors: list[ManifestEntry] = []
        self._data_sequences: dict[str, int] = {}

    def plan_files(
        self,
        manifests: Iterable[ManifestFile],
        manifest_entry_filter: Callable[[ManifestEntry], bool] = lambda _: True,
    ) -> list[FileScanTask]:
        """Raises ValueError for deletes that nobody could apply, besides what PyIceberg raises."""
        tasks = list(super().plan_files(manifests, manifest_entry_filter))
        vectors = vectors_in(self._vectors)
        for task in tasks:
            one = vectors.get(task.file.file_path)
            # A vector has all rows that position delete files took from its data file, and stands instead of them.
            if one is not None and sequence_of(one) >= self._data_sequences[task.file.file_path]:
                task.delete_files = {one.data_file}
        return tasks

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:
        manifests = list(manifests)
        specs = {one.partition_spec_id for one in manifests}  # others may be of columns that are gone
        judged = {spec_id: self._build_manifest_evaluator(spec_id) for spec_id in specs}
        left = [one for one in manifests if judged[one.partition_spec_id](one)]
        oldest = _min_sequence_number(left)
        left = [one for one in left if self._check_sequence_number(oldest, one)]
        in_partition = {
            one: self._build_partition_evaluator(one) for one in {m.partition_spec_id for m in left}
        }
        may_match = self._build_metrics_evaluator()
        spans = tuple(self._spans())
        for manifest, entries in zip(left, self._decoded(left), strict=True):
            inside = in_partition[manifest.partition_spec_id]
            if manifest.content == ManifestContent.DATA:
                data = [
                    one for one in entries.within(spans) if inside(one.data_file) and may_match(one.data_file)
                ]
                if self._has_vectors:
                    self._data_sequences.update((one.data_file.file_path, sequence_of(one)) for one in data)
                yield data
                continue
            # Bounds of a delete file are of the rows that it names, which need not be like those that go: a condition rules out none.
            deletes = [one for one in entries.entries if inside(one.data_file)]
            self._vectors += [one for one in deletes if one.data_file.file_format == FileFormat.PUFFIN]
            yield [one for one in deletes if one.data_file.file_format != FileFormat.PUFFIN]

    def _decoded(self, manifests: Sequence[ManifestFile]) -> list[Manifest]:
        """The entries of manifests, those that are new decoded side by side."""
        known = [self._known.get(self._table_id, one, with_ids=self._has_vectors) for one in manifests]
        new = [one for one, there in zip(manifests, known, strict=True) if there is None]
        if new:
            bodies = ExecutorFactory.get_or_create().map(self._entries_of, new)
            self.found = {one.manifest_path: Manifest(found) for one, found in zip(new, bodies, strict=True)}
        return [
            self.found[one.manifest_path] if there is None else there
            for one, there in zip(manifests, known, strict=True)
        ]

    def _entries_of(self, manifest: ManifestFile) -> list[ManifestEntry]:
        found = (
            live_entries(manifest, self.io) if self._has_vectors else manifest.fetch_manifest_entry(self.io)
        )
        if not self._known.statistics and manifest.content == ManifestContent.DATA:
            for one in found:
                one.data_file._data[_STATISTICS] = [None] * 6  # noqa: SLF001 - there are no setters
        return found

    @property
    def _has_vectors(self) -> bool:
        """Whether the table's format version has deletion vectors."""
        return int(self.table_metadata.format_version) >= VERSION

    def _spans(self) -> Iterator[FilterSpan]:
        """What all parts of the filter, joined by AND, demand of the bounds of a column."""
        parts = [bind(self.table_metadata.schema(), self.row_filter, self.case_sensitive)]
        while parts:
            part = parts.pop()
            if isinstance(part, And):
                parts += [part.left, part.right]
            elif (span := _span(part)) is not None:
                yield span


def _span(part: BooleanExpression) -> FilterSpan | None:
    if not isinstance(part, BoundLiteralPredicate) or not isinstance(part.term, BoundReference):
        return None
    if not isinstance(part, BoundGreaterThanOrEqual | BoundLessThanOrEqual):
        return None
    column = part.term.ref().field
    if not isinstance(column.field_type, _ORDERED):
        return None
    at_least = isinstance(part, BoundGreaterThanOrEqual)
    return FilterSpan(column.field_id, column.field_type, part.literal.value, at_least)
