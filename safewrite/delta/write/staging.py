"""Uploads the data files of a Delta write, and checks them before each commit (B1, G5, M27)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from safewrite.delta.data.datafiles import DataFile
from safewrite.delta.log.actions import rows_of
from safewrite.protocol import staging
from safewrite.protocol.accounts import check_added
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.staging import Mark


@dataclass(frozen=True, slots=True)
class StagedFile:
    """An uploaded data file, what its end must look like, and what the commit says of it."""

    mark: Mark
    rows: int
    action: dict[str, Any]


def stage(
    files: Iterable[DataFile], modification_time_ms: int, limits: Limits
) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
    """Upload data files, a window at a time.

    Raises:
        StorageError: an upload failed for good; nothing was committed.
    """
    staged: list[StagedFile] = []
    for window in staging.windows(files, lambda file: file.size):
        staged += [
            StagedFile(
                Mark.of_parquet(file.path, file.size, file.body),
                file.rows,
                file.add_action(modification_time_ms),
            )
            for file in window
        ]
        yield from staging.upload([(file.path, file.body) for file in window], limits)
    return tuple(staged)


def recheck(files: Sequence[StagedFile], limits: Limits) -> Generator[Effect, Outcome, None]:
    """Make sure that every file is still there as it was written.

    Raises:
        StorageError: kind DATA_FILE_DAMAGED if a file is gone or differs; nothing was committed.
    """
    yield from staging.check([file.mark for file in files], limits)


def accounted(actions: list[dict[str, Any]], new: int, kept: int | None, key: str) -> list[dict[str, Any]]:
    """The actions of a commit, whose files have as many rows as its plan says.

    Raises:
        InternalError: they have others; nothing was committed.
    """
    check_added((rows_of(one["add"]) for one in actions if "add" in one), new, kept, key)
    return actions
