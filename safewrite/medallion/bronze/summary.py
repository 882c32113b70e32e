"""Sums bronze up, some data files at a time: the contents of raw files that it has, and the records of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite import AddedRows
from safewrite.medallion.config.bronze_columns import BRONZE_COLUMNS
from safewrite.medallion.files.file_versions import Contents, contents
from safewrite.medallion.tables.job import TableJob

ROWS = "rows"
_CONTENT = ["_file", "_tag"]
_ORDER = ["_epoch", "_seq"]
_SPANS = ["_op", "_epoch", *_CONTENT]


def contents_of(job: TableJob, brought: Sequence[AddedRows]) -> pa.Table:
    """The contents of files that commits brought rows of: how many, and the greatest ``_epoch`` and ``_seq`` of each.

    Raises:
        BronzeGapError: a file of bronze is gone.
    """
    named = [*_CONTENT, *_ORDER]
    found = _summed(BRONZE_COLUMNS.empty_table().select(named).append_column(ROWS, pa.array([], pa.int64())))
    for piece in job.lineage.pieces(brought, named):
        ones = pa.repeat(pa.scalar(1, pa.int64()), piece.num_rows)
        found = _summed(pa.concat_tables([found, _summed(piece.append_column(ROWS, ones))]))
    return found


class Spans:
    """The least and greatest ``_seq`` of rows of bronze, as ``_first`` and ``_seq``, by operation, epoch and content.

    A truncate is alone under its tag.
    """

    def __init__(self) -> None:
        fields = [BRONZE_COLUMNS.field(name).with_nullable(True) for name in [*_SPANS, "_seq"]]
        self.table = pa.schema([*fields, fields[-1].with_name("_first")]).empty_table()

    def add(self, rows: pa.Table) -> None:
        """Take in some rows, with columns or more than these: ``_op``, ``_epoch``, ``_file``, ``_tag``, ``_seq``."""
        own = rows.select([*_SPANS, "_seq", "_seq"]).rename_columns(self.table.column_names)
        self.table = _spans(pa.concat_tables([self.table, _spans(own).cast(self.table.schema)]))


def _spans(rows: pa.Table) -> pa.Table:
    found = rows.group_by(_SPANS).aggregate([("_seq", "max"), ("_first", "min")])
    return found.rename_columns([*_SPANS, "_seq", "_first"])


def _summed(rows: pa.Table) -> pa.Table:
    sums = [*((name, "max") for name in _ORDER), (ROWS, "sum")]
    found = rows.group_by(_CONTENT).aggregate(sums)
    columns = {name: found[name] for name in _CONTENT} | {name: found[f"{name}_{how}"] for name, how in sums}
    return pa.table(columns)


def contents_in_bronze(job: TableJob) -> dict[str, Contents]:
    """The contents of each file that bronze holds rows of now.  Raises StorageError."""
    job.lineage.look()
    return contents(contents_of(job, job.lineage.whole()))


# --- records ----------------------------------------------------------------------------------------
@dataclass
class Lines:
    """Which records of files there are, by path and tag, as the first and last of each run."""

    _runs: dict[tuple[str, str], list[npt.NDArray[np.int64]]] = field(default_factory=dict)
    _twice: list[tuple[str, str, int]] = field(default_factory=list)

    def add(self, rows: pa.Table) -> None:
        """Take in ``_file``, ``_tag`` and ``_line`` of some rows."""
        found = rows.group_by(_CONTENT).aggregate([("_line", "list")])
        columns: Iterator[Any] = zip(
            *(found[name].to_pylist() for name in _CONTENT), found["_line_list"], strict=True
        )
        for path, tag, lines in columns:
            ordered = np.sort(np.asarray(lines.values.to_numpy(), np.int64))
            steps = np.diff(ordered)
            self._twice += [(path, tag, line) for line in np.unique(ordered[1:][steps == 0]).tolist()]
            ends = np.flatnonzero(steps > 1)
            runs = np.stack([ordered[[0, *(ends + 1)]], ordered[[*ends, -1]]])
            self._runs.setdefault((path, tag), []).append(runs)

    def __contains__(self, content: object) -> bool:
        return content in self._runs

    def lacks(self, content: tuple[str, str], lines: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of some records are not there."""
        starts, ends, before = self._ordered(content)
        # Of the runs that begin at a record or before it, one reaches it if the farthest does.
        farthest = np.append(np.maximum(ends, before), -1)
        at = np.searchsorted(starts, lines, side="right") - 1
        return (at < 0) | (farthest[at] < lines)

    def count(self, content: tuple[str, str]) -> int:
        """How many records of a content are there, each counted once."""
        starts, ends, before = self._ordered(content)
        return int(np.maximum(ends - np.maximum(starts - 1, before), 0).sum())

    def twice(self) -> list[tuple[str, str, int]]:
        """The records that are there more often than once."""
        found = {*self._twice}
        for path, tag in self._runs:
            starts, ends, before = self._ordered((path, tag))
            for number in np.flatnonzero(starts <= before).tolist():
                last = min(ends[number], before[number])
                found |= {(path, tag, line) for line in range(starts[number], last + 1)}
        return sorted(found)

    def _ordered(self, content: tuple[str, str]) -> tuple[npt.NDArray[np.int64], ...]:
        """The runs of a content by their first records: the first and the last of each, and the last of all that come before it."""
        starts, ends = np.concatenate([np.zeros((2, 0), np.int64), *self._runs.get(content, [])], axis=1)
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
        return starts, ends, np.append(-1, np.maximum.accumulate(ends))[: len(ends)]


def lines_in_bronze(job: TableJob, paths: Collection[str] | None = None) -> Lines:
    """Every record that bronze holds now, of all files or of some.  Raises StorageError."""
    job.lineage.look()
    found = Lines()
    for piece in job.lineage.pieces(job.lineage.whole(), [*_CONTENT, "_line"]):
        is_asked = (
            None if paths is None else pc.is_in(piece["_file"], value_set=pa.array([*paths], pa.string()))
        )
        found.add(piece if is_asked is None else piece.filter(is_asked))
    return found
