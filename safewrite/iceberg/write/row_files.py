"""Looks through the data files that a batch of changes touches, and rewrites them or marks their rows as gone.

Files are read, and made, a few at a time: in memory are those that are worked on, those that go up and those that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows, filtered
from safewrite.changes.lookup.table_files import FileRemainder, LiveFile
from safewrite.changes.meaning.positions import Flags
from safewrite.changes.tasks.abc import between_looks
from safewrite.frames.parallel import Begun, given_back, windows
from safewrite.iceberg.data.reading import fetched
from safewrite.iceberg.write.delete_files import DeleteFiles, Gone
from safewrite.iceberg.write.file_changes import IcebergChange
from safewrite.iceberg.write.key_lookup import marks, size_of
from safewrite.iceberg.write.marked_rows import live_of, named
from safewrite.iceberg.write.staging import UploadedFile, seen
from safewrite.protocol.accounts import total
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.protocol.member_queue import Steps
from safewrite.table.change import TableChange

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

    from safewrite.changes.tasks.abc import BatchWork
    from safewrite.iceberg.data.datafiles import StagedFile
    from safewrite.iceberg.write.position_deletes import UnmarkedRows

_Left: TypeAlias = "tuple[int, int, Sequence[StagedFile]]"
Mark = tuple[str, ...]
"""A data file and its delete files."""


@dataclass(frozen=True, slots=True)
class FileRewrite:
    """What becomes of a file: how many rows it loses, whether it goes, the files of its other rows or of its deletions.

    ``rows`` is None where nobody counted them.
    """

    rows: int | None = 0
    removes: bool = False
    rest: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    kept: int = 0
    """How many rows ``rest`` has."""


def change_of(files: Iterable[tuple[DataFile, FileRewrite]], made: Iterable[DataFile] = ()) -> IcebergChange:
    """What a write does that data files lose this; ``made`` are the files that were uploaded for it on any base."""
    lost = [(file, loss) for file, loss in files if loss.removes or loss.deletes]
    rewritten = tuple(file for _, loss in lost for file in loss.rest)
    marks = tuple(file for _, loss in lost for file in loss.deletes)
    used = {file.file_path for file in (*rewritten, *marks)}
    unused = {file.file_path: file for file in made if file.file_path not in used}
    return TableChange(
        removed=tuple(file for file, loss in lost if loss.removes),
        rewritten=rewritten,
        marks=marks,
        kept_rows=sum(loss.kept for _, loss in lost),
        removed_rows=total(loss.rows for _, loss in lost),
        copied_bytes=sum(file.file_size_in_bytes for file in rewritten),
        unused=tuple(unused.values()),
    )


@dataclass
class RowRemoval:
    """Takes rows out of the files of a table.  What was made of a file serves every attempt in which the same rows stay.

    ``write_id`` makes the names of delete files unique; of rows that are marked as gone already ``live`` says which others are live.
    """

    work: BatchWork
    write_id: str
    limits: Limits
    live: dict[str, UnmarkedRows | None]
    _losses: dict[tuple[Any, ...], FileRewrite] = field(default_factory=dict, repr=False)
    _deletes: DeleteFiles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._deletes = DeleteFiles(self.write_id, self.limits)

    def take_out(
        self,
        head: TableVersion,
        losing: Mapping[Mark, FileScanTask],
        gone: GoneRows[Mark],
        look: Callable[[], Steps] | None = None,
    ) -> Generator[Effect, Outcome, dict[Mark, FileRewrite]]:
        """Rewrite the files that lose rows, or mark these as gone.

        ``look`` is run wherever many files were written again and others are left.

        Raises:
            Whatever ``look`` raises.
        """
        new = self._lacking(losing, gone)
        if not gone.is_cut:  # after a truncate the rows must be looked at
            yield from self._mark_all(
                head, {file: task for file, task in new.items() if marks(head, task)}, gone
            )
        left = self._lacking(losing, gone)
        work = [(file, live_file(file, task)) for file, task in left.items()]
        for number, some in enumerate(between_looks(work, looks=look is not None)):
            if number and look is not None:
                yield from look()
            rests = yield from self.work.rewrite(
                [(live, gone.places(file)) for file, live in some], gone.before
            )
            yield from seen([one for rest in rests.values() for one in rest.files], self.limits)
            for file, live in some:
                rest = rests[live.name]
                files = tuple(one.data_file for one in rest.files)
                loss = FileRewrite(rest.of - rest.rows, removes=True, rest=files, kept=rest.rows)
                self._losses[gone.mark(file)] = loss if not rest.of or rest.rows < rest.of else FileRewrite()
        return {file: self._losses[gone.mark(file)] for file in losing}

    def _lacking(self, losing: Mapping[Mark, FileScanTask], gone: GoneRows[Mark]) -> dict[Mark, FileScanTask]:
        return {file: task for file, task in losing.items() if gone.mark(file) not in self._losses}

    def _mark_all(
        self, head: TableVersion, tasks: Mapping[Mark, FileScanTask], gone: GoneRows[Mark]
    ) -> Generator[Effect, Outcome, None]:
        """Upload delete files of the rows that go; a file that loses all goes itself."""
        marked: list[tuple[Mark, Gone, int]] = []
        for file, task in tasks.items():
            places = gone.places(file)
            if gone.loses_all(file):
                self._losses[gone.mark(file)] = FileRewrite(len(places), removes=True)
                continue
            name = live_file(file, task).name
            if name not in self.live and task.delete_files:  # tasks looked through it
                self.live[name] = yield from live_of(task, self.limits)
            live = self.live.get(name)
            if live is not None and len(live) == gone.counts[file]:
                in_file = live.places(places)
            elif task.delete_files or gone.counts[file] != task.file.record_count:
                continue
            else:
                in_file = places
            marked.append((file, self._deletes.note(head, task, in_file, live), len(places)))
            if self._deletes.is_due(head):
                yield from self._deletes.upload(head)
        yield from self._deletes.upload(head)
        for file, made, rows in marked:
            self._losses[gone.mark(file)] = FileRewrite(rows, deletes=(self._deletes[made],))

    def made(self) -> Iterable[DataFile]:
        """All files that were uploaded, on any base."""
        return [*(file for loss in self._losses.values() for file in loss.rest), *self._deletes.made()]


def mark_of(task: FileScanTask) -> Mark:
    """The file, its delete files, and from where its rows have ids, which files of an upgraded table get with its next commit."""
    first = getattr(task.file, "first_row_id", None)
    ids = () if first is None else (f"ids={first}",)
    return (task.file.file_path, *ids, *sorted(map(named, task.delete_files)))


def live_file(file: Mark, task: FileScanTask) -> LiveFile:
    """A live file as it is looked through and rewritten."""
    from pyiceberg.table import FileScanTask

    return LiveFile("#".join(file), FileScanTask(task.file, task.delete_files), size_of(task))


@dataclass(frozen=True)
class Remaking:
    """Makes and uploads the files of rows that stay: a few at a time, while those before go up and those after come.

    ``encoders`` make the files that take the place of one after another; ``store`` uploads files.
    """

    head: TableVersion
    schema: pa.Schema
    limits: Limits
    encoders: Iterator[Callable[[pa.Table], Iterable[StagedFile]]]
    store: Callable[[Sequence[StagedFile]], Generator[Effect, Outcome, Sequence[UploadedFile]]]

    def made(
        self,
        files: Mapping[str, FileScanTask],
        stays: Callable[[str, pa.Table], Flags],
        kept: Callable[[str], pa.Table | None],
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """What is left of each file; ``kept`` are the rows of one that was read before.

        Raises:
            StorageError: a file is gone, or the store gave no answer.
        """
        found: dict[str, FileRemainder] = {}
        before: tuple[list[str], Begun[_Left]] | None = None
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

    def _uploaded(self, left: Sequence[_Left]) -> Generator[Effect, Outcome, list[FileRemainder]]:
        stored = iter((yield from self.store([file for _, _, files in left for file in files])))
        return [FileRemainder(rows, of, tuple(next(stored) for _ in files)) for rows, of, files in left]


def _left(
    read: Callable[[], pa.Table],
    stays_of: Callable[[pa.Table], Flags],
    encoded: Callable[[pa.Table], Iterable[StagedFile]],
) -> _Left:
    """How many rows of a file stay, of how many, and the files of these.  Pure: it runs in a thread."""
    table = read()
    stays = stays_of(table)
    if stays.all() or not stays.any():
        return int(stays.sum()), len(stays), ()
    columns, schema = table.columns, table.schema
    del table
    rows = filtered(columns, schema, stays)
    return rows.num_rows, len(stays), tuple(encoded(rows))
