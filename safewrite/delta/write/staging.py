"""Uploads the data files of a Delta write, and checks them before each commit (B1, G5)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from safewrite.delta.data.datafiles import DataFile
from safewrite.delta.log.actions import rows_of
from safewrite.protocol import staging
from safewrite.protocol.accounts import check_added
from safewrite.protocol.ask import Limits, side_by_side
from safewrite.protocol.effects import Delete, Effect, Outcome, Put, Together
from safewrite.protocol.staging import Mark

LIGHT_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A data file, what its end must look like, and what the commit says of it.

    ``put`` uploads it, where that is still to be done.
    """

    mark: Mark
    rows: int
    action: dict[str, Any]
    put: Put | None = field(default=None, repr=False)


def stage(
    files: Iterable[DataFile | StagedFile],
    modification_time_ms: int,
    limits: Limits,
    *,
    leaves_last: bool = False,
) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
    """Upload data files, a window at a time; ``leaves_last`` leaves the last window to :func:`secure`.

    Files that tasks wrote are there already.

    Raises:
        StorageError: an upload failed for good; nothing was committed.
    """
    staged: list[StagedFile] = []

    def made() -> Iterator[DataFile]:
        for file in files:
            if isinstance(file, StagedFile):
                staged.append(file)
            else:
                yield file

    for window in staging.windows(made(), _size):
        puts = [staging.of_data(file.path, file.body) for file in window]
        is_left = leaves_last and not staging.is_full(window, _size)
        staged += [
            StagedFile(
                Mark.of_parquet(file.path, file.size, file.body),
                file.rows,
                file.add_action(modification_time_ms),
                put if is_left else None,
            )
            for file, put in zip(window, puts, strict=True)
        ]
        if not is_left:
            yield from staging.upload(puts, limits)
    return tuple(staged)


def secure(files: Sequence[StagedFile], limits: Limits) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
    """Upload what is still to be uploaded, and make sure that every file is there as it was written.

    A file is read back, but for one whose upload has just shown that the store holds these bytes: a read would tell no more
    than that answer, and what vanishes after it could vanish after the read.

    Raises:
        StorageError: an upload failed for good; or kind DATA_FILE_DAMAGED if a file is gone or differs. Nothing was committed.
    """
    before = [file.mark for file in files if file.put is None]
    puts = [file.put for file in files if file.put is not None]
    _, proved = yield from side_by_side(staging.check(before, limits), staging.upload(puts, limits))
    assert isinstance(proved, frozenset)
    left = [file.mark for file in files if file.put is not None and file.mark.path not in proved]
    yield from staging.check(left, limits)
    return tuple(replace(file, put=None) for file in files)


def are_light(files: Sequence[StagedFile]) -> bool:
    """Whether the files go out in the commit's first step, and are so small that a repeat may upload them in vain."""
    return (
        all(file.put is not None for file in files) and sum(file.mark.size for file in files) <= LIGHT_BYTES
    )


def discard(files: Sequence[StagedFile]) -> Generator[Effect, Outcome, None]:
    """Delete files that no commit names and none ever will: no attempt was begun with them, and their names do not come again."""
    if files:
        yield Together(
            tuple(Delete(file.mark.path, name="stage.discard") for file in files), name="stage.discard"
        )


def _size(file: DataFile) -> int:
    return file.size


def accounted(actions: list[dict[str, Any]], new: int, kept: int | None, key: str) -> list[dict[str, Any]]:
    """The actions of a commit, whose files have as many rows as its plan says.

    Raises:
        InternalError: they have others; nothing was committed.
    """
    check_added((rows_of(one["add"]) for one in actions if "add" in one), new, kept, key)
    return actions
