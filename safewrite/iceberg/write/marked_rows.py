"""Tells which rows of data files are marked as gone, and keeps it from one write to the next: what is read are delete files that are new.

A delete file never changes, and a data file neither, so what was read stays true.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from safewrite.changes.lookup.key_index import ascending
from safewrite.iceberg.data.vectors import place_of, vector_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Get, GetRange, Ok, Outcome
from safewrite.protocol.fetch import fetch

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.write.position_deletes import UnmarkedRows

ROWS_MAX = 2**20
"""Of so many rows at most it is kept that they are gone: 8 MiB."""
ROWS_A_FILE = 128
"""A file is kept at the cost of so many rows besides: its entry, and those of its delete files."""


def live_of(task: FileScanTask, limits: Limits) -> Generator[Effect, Outcome, UnmarkedRows | None]:
    """Which rows of a file its delete files leave; None if one cannot be read: whoever reads its rows says why."""
    from safewrite.iceberg.write import position_deletes

    try:
        gets = [_read_of(one) for one in task.delete_files]
    except ValueError:
        return None
    answers = yield from fetch(gets, limits, name="apply.get_all_deletes")
    bodies = [one.value for one in answers if isinstance(one, Ok) and isinstance(one.value, bytes)]
    try:
        return position_deletes.live_rows(task, bodies) if len(bodies) == len(gets) else None
    except ValueError:
        return None


def _read_of(deletes: DataFile) -> Effect:
    """The request for a delete file, or for one vector: its file may have those of many data files."""
    if deletes.file_format.value != "PUFFIN":
        return Get(deletes.file_path, name="apply.get_deletes")
    _, offset, size = place_of(deletes)
    return GetRange(deletes.file_path, offset, size, name="apply.get_deletes")


def more_gone(
    had: UnmarkedRows, before: FileScanTask, after: FileScanTask, limits: Limits
) -> Generator[Effect, Outcome, UnmarkedRows | None]:
    """Which rows of a file are live that has more delete files than ``before``, by the new ones alone; None as :func:`live_of`.

    A deletion vector stands instead of the one before.  None as well where rows came back, or may have: a delete file is gone.
    """
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.write.position_deletes import UnmarkedRows

    if {*map(named, before.delete_files)} == {*map(named, after.delete_files)}:
        return had if had.in_file == after.file.record_count else None
    if vector_of(after) is not None:
        now = yield from live_of(after, limits)
        is_more = now is not None and now.in_file == had.in_file and np.isin(had.gone, now.gone).all()
        return now if is_more else None
    known = {one.file_path for one in before.delete_files}
    if not known <= {one.file_path for one in after.delete_files}:
        return None
    new = {one for one in after.delete_files if one.file_path not in known}
    live = yield from live_of(FileScanTask(after.file, new), limits)
    same = live is not None and live.in_file == had.in_file
    return UnmarkedRows(had.in_file, ascending(had.gone, live.gone)) if live is not None and same else None


def named(deletes: DataFile) -> str:
    """A delete file; a vector by its place, for many may be in one file."""
    offset = getattr(deletes, "offset", None)
    return deletes.file_path if offset is None else f"{deletes.file_path}@{offset}"


@dataclass
class KnownMarks:
    """The marked rows of the data files of one table that were asked for last, by the table's id and the path.  Safe in threads."""

    rows_max: int = ROWS_MAX
    _kept: OrderedDict[tuple[str, str], tuple[FileScanTask, UnmarkedRows]] = field(
        default_factory=OrderedDict, repr=False
    )
    _rows: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return KnownMarks, (self.rows_max,)  # what is known is of this process

    def live_of(
        self, table_id: str, task: FileScanTask, limits: Limits
    ) -> Generator[Effect, Outcome, UnmarkedRows | None]:
        """Which rows of a file its delete files leave; those that were read before are not read again.  None as :func:`live_of`."""
        had = self._kept.get((table_id, task.file.file_path))
        live = None if had is None else (yield from more_gone(had[1], had[0], task, limits))
        if live is None:
            live = yield from live_of(task, limits)
        if live is not None:
            self.keep(table_id, task, live)
        return live

    def keep(self, table_id: str, task: FileScanTask, live: UnmarkedRows) -> None:
        """Keep what is known of a file; what was asked for longest ago goes where it is too much."""
        name = (table_id, task.file.file_path)
        with self._lock:
            self._forget(name)
            self._kept[name] = task, live
            self._rows += ROWS_A_FILE + len(live.gone)
            while self._rows > self.rows_max:
                self._forget(next(iter(self._kept)))

    def _forget(self, name: tuple[str, str]) -> None:
        had = self._kept.pop(name, None)
        self._rows -= 0 if had is None else ROWS_A_FILE + len(had[1].gone)
