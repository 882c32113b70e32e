"""Uploads data files before a commit, and checks them again when the commit names them (B1, G5).

Nothing here is ever deleted: a file that no commit names is invisible, and one that a lost commit
may name must stay (promise 7).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from safewrite.errors import InternalError, Kind, StorageError
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import PROVED, Effect, GetTail, Missing, Ok, Outcome, Put, Together
from safewrite.protocol.values import Tail

T = TypeVar("T")

WINDOW_FILES, WINDOW_BYTES = 8, 64 * 2**20
"""How much is uploaded at once; one file at least, however large."""
TAIL_BYTES_MAX = 64 * 1024
_CHECKED_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Mark:
    """What the end of an uploaded file must look like; what another library uploaded has no digest until it is seen."""

    path: str
    size: int
    tail_bytes: int
    tail_digest: bytes | None = None
    ending: bytes = b""

    @classmethod
    def of(cls, path: str, size: int, tail: bytes) -> Mark:
        """The mark of a file of ``size`` bytes with this end."""
        return cls(path, size, len(tail), hashlib.sha256(tail).digest())

    @classmethod
    def of_parquet(cls, path: str, size: int, body: bytes) -> Mark:
        """The mark of a Parquet file that is to be uploaded: its footer.

        Raises:
            InternalError: it is not a whole Parquet file of ``size`` bytes.
        """
        if body[-4:] != b"PAR1" or len(body) != size:
            raise InternalError(
                f"{path} is not a whole Parquet file. Nothing was committed; please report it."
            )
        footer_bytes = int.from_bytes(body[-8:-4], "little") + 8
        return cls.of(path, size, body[-min(footer_bytes, TAIL_BYTES_MAX) :])

    def seen(self, outcome: Outcome) -> Mark | None:
        """The mark after a look at the file; None if it is gone or another."""
        tail = outcome.value if isinstance(outcome, Ok) else None
        if not isinstance(tail, Tail) or tail.size != self.size or not tail.data.endswith(self.ending):
            return None
        digest = hashlib.sha256(tail.data).digest()
        return replace(self, tail_digest=digest) if self.tail_digest in (None, digest) else None


def of_data(path: str, body: bytes) -> Put:
    """The effect that uploads a file."""
    return Put(path, body, name="stage.put_data")


def is_full(window: Sequence[T], size_of: Callable[[T], int]) -> bool:
    """Whether a window is uploaded before the next file is made; one that is not full is the last."""
    return len(window) >= WINDOW_FILES or sum(map(size_of, window)) >= WINDOW_BYTES


def windows(files: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """The files a window at a time, so that memory holds no more than a window."""
    window: list[T] = []
    for file in files:
        window.append(file)
        del file  # a large file must be gone before the next one is made
        if is_full(window, size_of):
            full, window = window, []
            yield full
            del full
    if window:
        yield window


def upload(puts: Iterable[Put], limits: Limits) -> Generator[Effect, Outcome, frozenset[str]]:
    """Put files under names of their own; returns the paths of those that the store's own answers show to be whole.

    Raises:
        StorageError: an upload failed for good; nothing was committed.
    """
    effects = tuple(puts)
    answers = yield from perform_all(effects, limits, "stage.upload")
    return proved(effects, answers)


def proved(puts: Sequence[Put], answers: Sequence[Outcome]) -> frozenset[str]:
    """The paths of those uploads whose answers show that the store holds their bytes."""
    return frozenset(put.path for put, answer in zip(puts, answers, strict=False) if answer == Ok(PROVED))


def check(marks: Sequence[Mark], limits: Limits) -> Generator[Effect, Outcome, list[Mark]]:
    """Make sure that every file is still there with the size and the end that it was written with.

    Raises:
        StorageError: kind DATA_FILE_DAMAGED if a file is gone or differs; nothing was committed.
    """
    found: list[Mark] = []
    for start in range(0, len(marks), _CHECKED_AT_ONCE):
        part = marks[start : start + _CHECKED_AT_ONCE]
        answers = yield from perform_all(tails(part), limits, "stage.check")
        found += yield from judge(part, answers, limits)
    return found


def tails(marks: Sequence[Mark]) -> tuple[GetTail, ...]:
    """The effects that read the ends of the files."""
    return tuple(GetTail(mark.path, mark.tail_bytes, name="stage.check_data") for mark in marks)


def judge(
    marks: Sequence[Mark], answers: Sequence[Outcome], limits: Limits
) -> Generator[Effect, Outcome, list[Mark]]:
    """Compare files with their marks; one that differs is read a second time, for the answer may have been damaged.

    Raises:
        StorageError: kind DATA_FILE_DAMAGED if a file is gone or differs; nothing was committed.
    """
    found: list[Mark] = []
    for mark, first in zip(marks, answers, strict=True):
        seen, outcome = mark.seen(first), first
        if seen is None:
            (look,) = tails([mark])
            outcome = yield from ask(look, limits)
            seen = mark.seen(outcome)
        if seen is None:
            raise _damaged(mark, outcome)
        found.append(seen)
    return found


def perform_all(
    effects: tuple[Effect, ...], limits: Limits, name: str
) -> Generator[Effect, Outcome, list[Outcome]]:
    """Perform effects at once, each again until it has an answer.

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


def _damaged(mark: Mark, outcome: Outcome) -> StorageError:
    tail = outcome.value if isinstance(outcome, Ok) else None
    found = f"{tail.size} bytes" if isinstance(tail, Tail) else "nothing"
    return StorageError(
        f"Data file {mark.path} ({mark.size} bytes) is not as it was uploaded (found: {found}): a vacuum, a clean-up of "
        "orphan files or a lifecycle rule removed it, or it was damaged on its way. Nothing was committed. "
        "Call again with the same key; let clean-ups spare files that are younger than a write may take.",
        kind=Kind.DATA_FILE_DAMAGED,
    )
