"""Uploads data files under names of their own, and checks them before the commit.

Nothing here is ever deleted: a file that no commit names is invisible, and one that a lost commit
may name must stay (promise 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from safewrite.delta.data.datafiles import DataFile
from safewrite.errors import InternalError, Kind, StorageError
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, GetTail, Missing, Ok, Outcome, Put, Tail, Together

WINDOW_FILES, WINDOW_BYTES = 8, 64 * 2**20
"""Bytes that are uploaded at the same time; one file at least, however large."""
TAIL_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class StagedFile:
    """An uploaded data file, and what its end must look like when the commit names it."""

    path: str
    size: int
    rows: int
    tail_bytes: int
    tail_digest: bytes
    action: dict[str, Any]


def stage(
    files: Iterable[DataFile], modification_time_ms: int, limits: Limits
) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
    """Upload data files, a window at a time, so that memory holds no more than a window.

    Raises:
        StorageError: an upload failed for good; nothing was committed.
    """
    staged: list[StagedFile] = []
    window: list[DataFile] = []
    for file in files:
        window.append(file)
        del file  # a large file must be gone before the next one is made
        if len(window) >= WINDOW_FILES or sum(f.size for f in window) >= WINDOW_BYTES:
            staged += yield from _upload(window, modification_time_ms, limits)
            window = []
    if window:
        staged += yield from _upload(window, modification_time_ms, limits)
    return tuple(staged)


def _upload(
    window: Sequence[DataFile], modification_time_ms: int, limits: Limits
) -> Generator[Effect, Outcome, list[StagedFile]]:
    puts = tuple(Put(file.path, file.body, name="stage.put_data") for file in window)
    answers = yield Together(puts, name="stage.upload")
    assert isinstance(answers, Ok)
    assert isinstance(answers.value, tuple)
    for put, first in zip(puts, answers.value, strict=True):
        outcome = first if isinstance(first, Ok) else (yield from ask(put, limits))
        if not isinstance(outcome, Ok):
            raise unanswered(put, outcome)
    return [_staged(file, modification_time_ms) for file in window]


def _staged(file: DataFile, modification_time_ms: int) -> StagedFile:
    body = file.body
    if body[-4:] != b"PAR1" or len(body) != file.size:
        raise InternalError(f"{file.path} is no whole Parquet file. Nothing was committed; please report it.")
    footer_bytes = int.from_bytes(body[-8:-4], "little") + 8
    tail = body[-min(footer_bytes, TAIL_BYTES_MAX) :]
    return StagedFile(
        path=file.path,
        size=file.size,
        rows=file.rows,
        tail_bytes=len(tail),
        tail_digest=hashlib.sha256(tail).digest(),
        action=file.add_action(modification_time_ms),
    )


def recheck(files: Sequence[StagedFile], limits: Limits) -> Generator[Effect, Outcome, None]:
    """Make sure every file is still there with the size and the footer it was written with (B1, G5, M27).

    Raises:
        StorageError: kind DATA_FILE_DAMAGED if a file is gone or differs; nothing was committed.
    """
    for start in range(0, len(files), 64):
        part = files[start : start + 64]
        tails = tuple(GetTail(file.path, file.tail_bytes, name="stage.check_data") for file in part)
        answers = yield Together(tails, name="stage.check")
        assert isinstance(answers, Ok)
        assert isinstance(answers.value, tuple)
        for file, get, first in zip(part, tails, answers.value, strict=True):
            outcome = first
            if not _intact(file, outcome):
                outcome = yield from ask(get, limits)
            if not isinstance(outcome, Ok | Missing):
                raise unanswered(get, outcome)
            if not _intact(file, outcome):
                raise _damaged(file, outcome)


def _intact(file: StagedFile, outcome: Outcome) -> bool:
    if not isinstance(outcome, Ok):
        return False
    tail = outcome.value
    assert isinstance(tail, Tail)
    return tail.size == file.size and hashlib.sha256(tail.data).digest() == file.tail_digest


def _damaged(file: StagedFile, outcome: Outcome) -> StorageError:
    found = (
        f"{outcome.value.size} bytes"
        if isinstance(outcome, Ok) and isinstance(outcome.value, Tail)
        else outcome
    )
    return StorageError(
        f"Data file {file.path} ({file.size} bytes) is not as it was uploaded (found: {found}): a vacuum or a "
        "lifecycle rule removed it, or it was damaged on its way. Nothing was committed. Call again with "
        "the same key; let vacuum keep files for longer than a write may take.",
        kind=Kind.DATA_FILE_DAMAGED,
    )
