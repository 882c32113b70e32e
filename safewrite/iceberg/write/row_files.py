"""Looks through the data files that a batch of changes touches, and rewrites them or marks their rows as gone.

Files are read, and made, a few at a time: in memory are those that are worked on, those that go up and those that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import FileT, GoneRows, Touched, filtered
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.frames.parallel import Begun, given_back, windows
from safewrite.iceberg.data.reading import fetched
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.key_lookup import Looking, live_of, marks, size_of
from safewrite.iceberg.write.overwrite import ReplacePlan
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.position_deletes import UnmarkedRows

_MARKED_AT_ONCE = 64
StoredT = TypeVar("StoredT")
_Left: TypeAlias = "tuple[Loss, Sequence[StagedFile]]"
Mark = tuple[str, ...]
"""A data file and its delete files."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What becomes of a file: how many rows it loses, whether it goes, the files of its other rows or of its deletions."""

    rows: int = 0
    removes: bool = False
    rest: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    kept: int = 0
    """How many rows ``rest`` has."""
    of: int = 0
    """How many rows the file had, where they were read."""


@dataclass
class RowFilesPlan(ReplacePlan):
    """A plan that takes single rows out of files.  What was made of a file serves every attempt in which the same rows stay."""

    _losses: dict[tuple[Any, ...], Loss] = field(default_factory=dict, repr=False)
    _deletes: list[DataFile] = field(default_factory=list, repr=False)
    """Delete files that the snapshot adds."""
    _live: dict[Mark, UnmarkedRows | None] = field(default_factory=dict, repr=False)
    """Which rows of a file are live, where rows of it are marked as gone; None where that is not known."""
    _stores: int = 0
    _dropped_rows: int | None = 0
    _copied_bytes: int | None = None

    def removed_rows(self) -> int | None:
        """How many rows the snapshot removes; None where a file that goes whole has delete files."""
        return self._dropped_rows

    def copied_bytes(self) -> int | None:
        """The bytes of new files that hold rows of replaced ones."""
        return self._copied_bytes

    def _remove_all(self, tasks: Mapping[Mark, FileScanTask]) -> None:
        """Let files go, with their rows unread."""
        self._removed = [task.file for task in tasks.values()]
        unsure = any(task.delete_files for task in tasks.values())
        self._dropped_rows = None if unsure else sum(file.record_count for file in self._removed)

    # --- rows that are there ----------------------------------------------------------------------
    def _look(
        self,
        head: TableVersion,
        tasks: dict[Mark, FileScanTask],
        touched: Touched[Mark],
        memory: Memory,
    ) -> Generator[Effect, Outcome, None]:
        """Look through those of these files that were not looked through before."""
        new = {file: tasks[file] for file in touched.unseen(tasks, memory)}
        yield from Looking(head, self.limits, self._live).look(new, touched)

    # --- what goes and what comes --------------------------------------------------------------------
    def _replace(
        self,
        head: TableVersion,
        tasks: dict[Mark, FileScanTask],
        touched: GoneRows[Mark],
        schema: pa.Schema,
    ) -> Generator[Effect, Outcome, None]:
        """Rewrite the files that lose rows, or mark these as gone."""
        losing = {file: touched.mark(file) for file in tasks if touched.may_lose(file)}
        new = [file for file, mark in losing.items() if mark not in self._losses]
        yield from self._mark_all(head, [file for file in new if marks(head, tasks[file])], tasks, touched)
        left = [file for file in new if losing[file] not in self._losses]
        yield from self._rewrite_all(head, left, tasks, touched, schema)
        dropped, self._copied_bytes = 0, 0
        for file, mark in losing.items():
            loss = self._losses[mark]
            dropped += loss.rows
            self._copied_bytes += sum(one.file_size_in_bytes for one in loss.rest)
            self._rewritten += loss.rest
            self._kept += loss.kept
            self._deletes += loss.deletes
            if loss.removes:
                self._removed.append(tasks[file].file)
        self._dropped_rows = dropped

    def _mark_all(
        self,
        head: TableVersion,
        files: Sequence[Mark],
        tasks: dict[Mark, FileScanTask],
        touched: GoneRows[Mark],
    ) -> Generator[Effect, Outcome, None]:
        """Upload delete files of the rows that go; a file that loses all goes itself."""
        for some in windows(files, lambda file: 0, files=_MARKED_AT_ONCE):
            marked: list[tuple[Mark, int, StagedFile]] = []
            for file in some:
                gone = touched.gone(file)
                if gone is None:
                    continue  # after a truncate its rows must be looked at
                if len(gone) == touched.rows_of(file):
                    self._losses[touched.mark(file)] = Loss(len(gone), removes=True)
                    continue
                live = self._live.get(file)
                if (
                    live is None and file not in self._live and tasks[file].delete_files
                ):  # tasks looked through it
                    live = self._live[file] = yield from live_of(tasks[file], self.limits)
                if live is not None and len(live) == touched.rows_of(file):
                    places = live.places(gone)
                elif tasks[file].delete_files or touched.rows_of(file) != tasks[file].file.record_count:
                    continue
                else:
                    places = gone
                marked.append((file, len(gone), self._delete_file(head, tasks[file], places)))
            staging = Staging(self.limits)
            yield from staging.upload([staged for _, _, staged in marked])
            yield from staging.complete(())
            for file, rows, staged in marked:
                self._losses[touched.mark(file)] = Loss(rows, deletes=(staged.data_file,))

    def _rewrite_all(
        self,
        head: TableVersion,
        files: Sequence[Mark],
        tasks: dict[Mark, FileScanTask],
        touched: GoneRows[Mark],
        schema: pa.Schema,
    ) -> Generator[Effect, Outcome, None]:
        """Make and upload the files of rows that stay."""
        encoders = (self._encoder(head, schema) for _ in files)

        def store(made: Sequence[StagedFile]) -> Generator[Effect, Outcome, Sequence[DataFile]]:
            staging = Staging(self.limits)
            yield from staging.upload(made)
            yield from staging.complete(())
            return [one.data_file for one in made]

        remaking = Remaking(head, schema, self.limits, encoders, store)
        made = yield from remaking.made({file: tasks[file] for file in files}, touched.stays, touched.kept)
        for file, (loss, rest) in made.items():
            self._losses[touched.mark(file)] = replace(loss, rest=rest)

    def _encoder(self, head: TableVersion, schema: pa.Schema) -> Callable[[pa.Table], Iterable[StagedFile]]:
        number = self._next()  # now, and not in a thread: names go by the order of files
        return lambda rows: self.encoded(rows, head, schema, number)

    def _next(self) -> int:
        self._stores += 1
        return self._stores

    def marked_as_gone(
        self, head: TableVersion, task: FileScanTask, positions: Numbers
    ) -> Generator[Effect, Outcome, DataFile]:
        """Upload a delete file of some rows of a data file."""
        staged = self._delete_file(head, task, positions)
        staging = Staging(self.limits)
        yield from staging.upload([staged])
        yield from staging.complete(())
        return staged.data_file

    def _delete_file(self, head: TableVersion, task: FileScanTask, positions: Numbers) -> StagedFile:
        from safewrite.iceberg.write import position_deletes

        name = f"{self.write_id}-d{self._next()}-deletes.parquet"
        path = table_of(head).location_provider().new_data_location(name)
        return position_deletes.encoded(task.file, positions, path)

    def _stored(
        self, head: TableVersion, rows: pa.Table, schema: pa.Schema
    ) -> Generator[Effect, Outcome, Sequence[DataFile]]:
        """Data files of rows."""
        staging = Staging(self.limits)
        yield from staging.upload(self._encoder(head, schema)(rows))
        yield from staging.complete(())
        return tuple(staging.data_files)

    # --- manifests ------------------------------------------------------------------------------------
    @property
    def counted(self) -> Sequence[DataFile]:
        """Every file that the summary counts as added."""
        return [*self.added, *self._deletes]

    def new_manifests(
        self, head: TableVersion
    ) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...]]]:
        """The manifests of the snapshot on this base, those of delete files last."""
        from safewrite.iceberg.write import position_deletes

        manifests, puts = yield from super().new_manifests(head)
        for spec_id in sorted({one.spec_id for one in self._deletes}):
            location = self.new_location(head, f"{self.write_id}-{self.attempt}-d{spec_id}.avro")
            files = [one for one in self._deletes if one.spec_id == spec_id]
            made, body = position_deletes.manifest(
                table_of(head).metadata, self.schema, self.snapshot_id, files, location
            )
            manifests.append(made)
            puts = (*puts, Put(location, body, name="stage.put_manifest"))
        return manifests, puts


@dataclass(frozen=True)
class Remaking(Generic[StoredT]):
    """Makes and uploads the files of rows that stay: a few at a time, while those before go up and those after come.

    ``encoders`` make the files that take the place of one after another; ``store`` uploads files.
    """

    head: TableVersion
    schema: pa.Schema
    limits: Limits
    encoders: Iterator[Callable[[pa.Table], Iterable[StagedFile]]]
    store: Callable[[Sequence[StagedFile]], Generator[Effect, Outcome, Sequence[StoredT]]]

    def made(
        self,
        files: Mapping[FileT, FileScanTask],
        stays: Callable[[FileT, pa.Table], Flags],
        kept: Callable[[FileT], pa.Table | None],
    ) -> Generator[Effect, Outcome, dict[FileT, tuple[Loss, Sequence[StoredT]]]]:
        """What becomes of each file, and the files of its other rows; ``kept`` are the rows of one that was read before.

        Raises:
            StorageError: a file is gone, or the store gave no answer.
        """
        found: dict[FileT, tuple[Loss, Sequence[StoredT]]] = {}
        before: tuple[list[FileT], Begun[_Left]] | None = None
        try:
            for some in windows([*files], lambda file: size_of(files[file])):
                asked = {file: files[file] for file in some}
                reads = yield from fetched(self.head, asked, kept, self.schema, self.limits)
                left = before[1].results() if before else []
                calls = [
                    partial(
                        given_back,
                        partial(_left, reads.pop(file), partial(stays, file), next(self.encoders)),
                        size_of(files[file]),
                    )
                    for file in some
                ]
                last, before = before, (some, Begun(calls, alone=len(files) == 1))
                del reads, calls
                if last:
                    found.update(zip(last[0], (yield from self._uploaded(left)), strict=True))
                del left, last
            if before:
                made = yield from self._uploaded(before[1].results())
                found.update(zip(before[0], made, strict=True))
        finally:
            if before:
                before[1].forget()
        return found

    def _uploaded(
        self, left: Sequence[_Left]
    ) -> Generator[Effect, Outcome, list[tuple[Loss, Sequence[StoredT]]]]:
        stored = iter((yield from self.store([file for _, files in left for file in files])))
        return [(loss, tuple(next(stored) for _ in files)) for loss, files in left]


def _left(
    read: Callable[[], pa.Table],
    stays_of: Callable[[pa.Table], Flags],
    encoded: Callable[[pa.Table], Iterable[StagedFile]],
) -> _Left:
    """What becomes of a file that may lose rows, and the files of its other rows.  Pure: it runs in a thread."""
    table = read()
    stays = stays_of(table)
    if stays.all() and table.num_rows:
        return Loss(of=len(stays)), ()
    if not stays.any():
        return Loss(len(stays), removes=True, of=len(stays)), ()
    columns, schema = table.columns, table.schema
    del table
    rows = filtered(columns, schema, stays)
    loss = Loss(len(stays) - rows.num_rows, removes=True, kept=rows.num_rows, of=len(stays))
    return loss, tuple(encoded(rows))
