"""Marks rows of one data file of an Iceberg table as gone, in Puffin files, with safewrite's own code, as processes of the explorer do.

A data file has one vector: that of the newest snapshot stands instead of those before, and must have all that these took.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask
from pyiceberg.typedef import Record

from safewrite.changes.lookup.candidate_rows import GoneRows
from safewrite.changes.tasks.one_part import OnePart
from safewrite.errors import StorageError
from safewrite.iceberg.catalog.commit_request import CommitRequest
from safewrite.iceberg.data.manifests_v3 import VERSION, NumberedFile
from safewrite.iceberg.data.vectors import gone_rows, place_of
from safewrite.iceberg.write import position_deletes
from safewrite.iceberg.write.marked_rows import live_of
from safewrite.iceberg.write.row_files import Mark, RowRemoval, change_of, mark_of
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.testing.explorer.catalogs import Catalog, Metadata, Vector, adding
from safewrite.testing.explorer.snapshots import LIMITS, RowPlan
from safewrite.testing.explorer.unions import COUNT, Rows, gone_among, unequal

FILE = NumberedFile.from_args(
    _table_format_version=VERSION,
    content=DataFileContent.DATA,
    file_path="f.parquet",
    file_format=FileFormat.PARQUET,
    partition=Record(),
    record_count=COUNT,
    file_size_in_bytes=1,
)
FILE.spec_id = 0


@dataclass(frozen=True)
class _Folder:
    """Where new files of the table go."""

    def new_data_location(self, name: str) -> str:
        return name


@dataclass(frozen=True)
class _Table:
    """As much of a table object as marks of rows ask for; it is its own metadata."""

    format_version: int = VERSION
    properties: Mapping[str, str] = field(default_factory=lambda: {"write.merge.mode": "merge-on-read"})

    @property
    def metadata(self) -> _Table:
        return self

    def location_provider(self) -> _Folder:
        return _Folder()


@dataclass(slots=True)
class MarkingPlan(RowPlan):
    """A deletion of some rows as a plan; its snapshot also says which, and where the file's next vector is."""

    rows: Rows = ()
    removal: RowRemoval | None = None
    vector: Vector | None = None

    def stage(self, head: TableVersion) -> Generator[Effect, Outcome, CommitRequest]:
        """By the code of ``apply_changes``, but for the look-up: it takes the vector of the base, and makes one more."""
        table = replace(head, raw=_Table())
        nothing = OnePart(None, None, None)  # type: ignore[arg-type]  # it rewrites no file here
        self.removal = self.removal or RowRemoval(nothing, self.attempt, LIMITS, {})
        self.vector = vector_in(head)
        task = FileScanTask(FILE, set() if self.vector is None else {described(self.vector)})
        rows = yield from live_of(task, LIMITS)
        if rows is None:
            raise StorageError("The vector could not be read.")
        mark, places = mark_of(task), gone_among(rows.flags(), self.rows)
        taken = GoneRows[Mark]((), {mark: places}, counts={mark: len(rows)})
        losses = yield from self.removal.take_out(table, {mark: task} if len(places) else {}, taken)
        self.change = change_of(((FILE, loss) for loss in losses.values()), self.removal.made())
        for made in self.change.marks:
            self.vector = Vector(made.file_path, *place_of(made)[1:], made.record_count)
        return (yield from RowPlan.stage(self, head))

    def adding(
        self, head: TableVersion, snapshot_id: int, key: str, attempt: str, path: str
    ) -> CommitRequest:
        marks = self.rows, self.vector
        return adding(head, snapshot_id, key, attempt, path, ordered=self.ordered, marks=marks)


def vector_in(head: TableVersion) -> Vector | None:
    """The vector of the file as a table version has it."""
    assert isinstance(head.raw, Metadata)
    known = {one.id: one.marks for one in head.raw.snapshots}
    return next((marks[1] for at in head.ancestors() if (marks := known[at]) is not None), None)


def described(vector: Vector) -> DataFile:
    """A vector as a manifest names it."""
    there = position_deletes.Vector(FILE, vector.rows, bytes(vector.size))
    return position_deletes.described(there, vector.path, vector.offset, vector.offset + vector.size)


def unequal_in(catalog: Catalog) -> str:
    """As ``safewrite.testing.explorer.unions.unequal``, of the snapshots of the main branch."""
    files = dict(catalog.store.objects)
    line = [(f"snapshot {one.id}", one.marks) for one in reversed(catalog.branch()) if one.marks is not None]
    return unequal((name, marks[0], _gone_in(marks[1], files)) for name, marks in line)


def _gone_in(vector: Vector | None, files: Mapping[str, bytes]) -> Rows | str:
    if vector is None:
        return ()
    if vector.path not in files:
        return f"{vector.path} is gone"
    blob = files[vector.path][vector.offset : vector.offset + vector.size]
    try:
        return tuple(gone_rows(described(vector), blob, COUNT).tolist())
    except ValueError as error:
        return str(error)
