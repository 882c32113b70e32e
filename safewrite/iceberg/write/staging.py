"""Uploads the data files of one write once, and checks them before each commit (B1, M27).

Nothing here is ever deleted: a file that no snapshot names is invisible, and one that a lost commit
may name must stay (promise 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from safewrite.errors import InternalError, Kind, StorageError
from safewrite.protocol import ticket_queue
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, GetTail, Missing, Ok, Outcome, Put, Tail, Together

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile

    from safewrite.iceberg.data.datafiles import StagedFile

WINDOW_FILES, WINDOW_BYTES = 8, 64 * 2**20
"""Bytes that are uploaded at the same time; one file at least, however large."""
TAIL_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Mark:
    """What the end of an uploaded file must look like; another library's file has no digest until it is seen."""

    path: str
    size: int
    tail_bytes: int
    tail_digest: bytes | None = None
    ending: bytes = b""

    @classmethod
    def of(cls, path: str, size: int, tail: bytes) -> Mark:
        """The mark of a file of ``size`` bytes that ends with these."""
        return cls(path, size, len(tail), hashlib.sha256(tail).digest())

    def seen(self, outcome: Outcome) -> Mark | None:
        """The mark after a look at the file; None if the file is gone or differs."""
        tail = outcome.value if isinstance(outcome, Ok) else None
        if not isinstance(tail, Tail) or tail.size != self.size or not tail.data.endswith(self.ending):
            return None
        digest = hashlib.sha256(tail.data).digest()
        return replace(self, tail_digest=digest) if self.tail_digest in (None, digest) else None


@dataclass
class Staging:
    """The data files of one write."""

    limits: Limits
    data_files: list[DataFile] = field(default_factory=list)
    _marks: list[Mark] = field(default_factory=list, repr=False)
    _checked_s: float | None = None

    def upload(self, files: Iterable[StagedFile]) -> Generator[Effect, Outcome, None]:
        """Upload data files, a window at a time, so that memory holds no more than a window.

        Raises:
            StorageError: an upload failed for good; nothing was committed.
        """
        window: list[StagedFile] = []
        for file in files:
            window.append(file)
            del file  # a large file must be gone before the next one is made
            if len(window) >= WINDOW_FILES or sum(len(f.body) for f in window) >= WINDOW_BYTES:
                yield from self._upload(window)
                window = []
        if window:
            yield from self._upload(window)

    def _upload(self, window: list[StagedFile]) -> Generator[Effect, Outcome, None]:
        for file in window:
            self._marks.append(_mark(file))
            self.data_files.append(file.data_file)
        puts = tuple(Put(file.path, file.body, name="stage.put_data") for file in window)
        yield from perform_all(puts, self.limits, "stage.upload")

    def complete(self, puts: tuple[Put, ...]) -> Generator[Effect, Outcome, None]:
        """Upload an attempt's own files, and check the data files unless that was done lately.

        Raises:
            StorageError: kind DATA_FILE_DAMAGED if a data file is gone or differs; nothing was committed.
        """
        now_s = yield from ticket_queue.now()
        due = self._checked_s is None or now_s - self._checked_s > self.limits.recheck_s
        marks = self._marks if due else []
        tails = tuple(GetTail(mark.path, mark.tail_bytes, name="stage.check_data") for mark in marks)
        answers = yield from perform_all((*puts, *tails), self.limits, "stage.complete")
        for number, (mark, outcome) in enumerate(zip(marks, answers[len(puts) :], strict=True)):
            seen = mark.seen(outcome)
            if seen is None:
                raise _damaged(mark, outcome)
            self._marks[number] = seen
        self._checked_s = now_s if due else self._checked_s


def perform_all(
    effects: tuple[Effect, ...], limits: Limits, name: str
) -> Generator[Effect, Outcome, list[Outcome]]:
    """Perform effects in parallel, each again until it has an answer.

    Raises:
        StorageError: one of them got none; nothing was committed.
    """
    if not effects:
        return []
    answers = yield Together(effects, name=name)
    assert isinstance(answers, Ok)
    assert isinstance(answers.value, tuple)
    found: list[Outcome] = []
    for effect, first in zip(effects, answers.value, strict=True):
        outcome = first if isinstance(first, Ok) else (yield from ask(effect, limits))
        if not isinstance(outcome, Ok | Missing):
            raise unanswered(effect, outcome)
        found.append(outcome)
    return found


def _mark(file: StagedFile) -> Mark:
    body = file.body
    if body[-4:] != b"PAR1" or len(body) != file.data_file.file_size_in_bytes:
        raise InternalError(f"{file.path} is no whole Parquet file. Nothing was committed; please report it.")
    footer_bytes = int.from_bytes(body[-8:-4], "little") + 8
    tail = body[-min(footer_bytes, TAIL_BYTES_MAX) :]
    return Mark.of(file.path, len(body), tail)


def _damaged(mark: Mark, outcome: Outcome) -> StorageError:
    tail = outcome.value if isinstance(outcome, Ok) else None
    found = f"{tail.size} bytes" if isinstance(tail, Tail) else "nothing"
    return StorageError(
        f"Data file {mark.path} ({mark.size} bytes) is not as it was uploaded (found: {found}): a clean-up of "
        "orphan files or a lifecycle rule removed it, or it was damaged on its way. Nothing was committed. "
        "Call again with the same key; let clean-ups spare files that are younger than a write may take.",
        kind=Kind.DATA_FILE_DAMAGED,
    )
