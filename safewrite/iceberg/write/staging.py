"""Uploads the data files of an Iceberg write, and checks them before each commit (B1)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.protocol import staging, ticket_queue
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome, Put
from safewrite.protocol.staging import Mark

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from safewrite.iceberg.data.datafiles import StagedFile


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A data file that is in the store, and what its end must look like; picklable.

    ``is_seen``: this process has seen it there.
    """

    mark: Mark
    data_file: DataFile
    is_seen: bool = False

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return int(self.data_file.record_count)


def secured(
    files: Iterable[StagedFile], limits: Limits
) -> Generator[Effect, Outcome, tuple[UploadedFile, ...]]:
    """As :func:`uploaded`, and make sure that they are there.

    Raises:
        StorageError: as :meth:`Staging.complete`.
    """
    made, marks = Staging(limits), list[Mark]()

    def marked() -> Iterator[StagedFile]:
        for file in files:
            marks.append(_mark(file))
            yield file

    yield from made.upload(marked())
    yield from made.complete(())
    return tuple(
        UploadedFile(mark, file, is_seen=True) for mark, file in zip(marks, made.data_files, strict=True)
    )


def seen(files: Iterable[UploadedFile], limits: Limits) -> Generator[Effect, Outcome, tuple[DataFile, ...]]:
    """What manifests say of files, once all of them were seen in the store.

    Raises:
        StorageError: as :meth:`Staging.complete`.
    """
    files, staging = [*files], Staging(limits)
    staging.take(file for file in files if not file.is_seen)
    if staging.data_files:
        yield from staging.complete(())
    return tuple(file.data_file for file in files)


def uploaded(
    files: Iterable[StagedFile], limits: Limits
) -> Generator[Effect, Outcome, tuple[UploadedFile, ...]]:
    """Upload data files, a window at a time; who commits them checks them.

    Raises:
        StorageError: an upload failed for good; nothing was committed.
    """
    found: list[UploadedFile] = []
    for window in staging.windows(files, _size):
        found += [UploadedFile(_mark(file), file.data_file) for file in window]
        yield from staging.upload([staging.of_data(file.path, file.body) for file in window], limits)
    return tuple(found)


@dataclass
class Staging:
    """The data files of one write."""

    limits: Limits
    data_files: list[DataFile] = field(default_factory=list)
    _marks: list[Mark] = field(default_factory=list, repr=False)
    _left: list[tuple[Put, Mark]] = field(default_factory=list, repr=False)
    """Files that are still to be uploaded."""
    _checked_s: float | None = None

    def upload(self, files: Iterable[StagedFile]) -> Generator[Effect, Outcome, None]:
        """Upload data files, a window at a time, and leave the last one to :meth:`complete`.

        Raises:
            StorageError: an upload failed for good; nothing was committed.
        """
        for window in staging.windows(files, _size):
            puts = [staging.of_data(file.path, file.body) for file in window]
            marks = [_mark(file) for file in window]
            self.data_files += [file.data_file for file in window]
            if staging.is_full(window, _size):
                self._marks += marks
                yield from staging.upload(puts, self.limits)
            else:
                self._left += zip(puts, marks, strict=True)

    def take(self, files: Iterable[UploadedFile]) -> None:
        """Take over files that tasks uploaded; they are checked before the first commit."""
        for file in files:
            self._marks.append(file.mark)
            self.data_files.append(file.data_file)

    def complete(self, puts: tuple[Put, ...]) -> Generator[Effect, Outcome, None]:
        """Upload what is left and an attempt's own files, and check the data files unless that was done lately.

        One whose upload has just shown that the store holds its bytes is not read back, as in
        ``safewrite.delta.write.staging.secure``.

        Raises:
            StorageError: kind DATA_FILE_DAMAGED if a data file is gone or differs; nothing was committed.
        """
        now_s = yield from ticket_queue.now()
        due = self._checked_s is None or now_s - self._checked_s > self.limits.recheck_s
        marks = self._marks if due else []
        left = [put for put, _ in self._left]
        effects = (*left, *puts, *staging.tails(marks))
        answers = yield from staging.perform_all(effects, self.limits, "stage.complete")
        seen = yield from staging.judge(marks, answers[len(left) + len(puts) :], self.limits)
        proved = staging.proved(left, answers)
        unproved = [mark for put, mark in self._left if put.path not in proved]
        new = [mark for put, mark in self._left if put.path in proved]
        new += yield from staging.check(unproved, self.limits)
        self._left = []
        self._marks = [*(seen if due else self._marks), *new]
        if due:
            self._checked_s = now_s


def _mark(file: StagedFile) -> Mark:
    size = file.data_file.file_size_in_bytes
    if file.data_file.file_format.value == "PUFFIN":
        return Mark.of(file.path, size, file.body[-staging.TAIL_BYTES_MAX :])
    return Mark.of_parquet(file.path, size, file.body)


def _size(file: StagedFile) -> int:
    return len(file.body)
