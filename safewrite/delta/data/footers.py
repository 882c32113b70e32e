"""Reads the footers of data files: their columns, the marks of their writer, the range of each date and instant."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.delta.data.julian_dates import leaves as arrays_of
from safewrite.delta.log.actions import Action, stats_of
from safewrite.delta.log.ranges import (
    TAIL,
    RangedFile,
    UnreadableError,
    missing_footer,
    open_file,
    ranges,
)
from safewrite.errors import StorageError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import GetRange, GetTail, Ok, Outcome, Together
from safewrite.protocol.fetch import fetch
from safewrite.protocol.values import Tail
from safewrite.stores.world import Performer, run

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ASKS = Limits(asks=6)
BATCH = 64
"""Files whose ends are held in memory at once."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_US = dt.timedelta(microseconds=1)
DAY_US = 24 * 3600 * 10**6
_PER_US = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


@dataclass(slots=True)
class Leaf:
    """A column of dates or instants, nested ones included, and its least and greatest value in a file.

    Dates count as their midnights; times are in microseconds since 1970.  ``known`` without ``span`` is a column
    without values.
    """

    path: str
    is_date: bool
    int96: bool
    known: bool = False
    span: tuple[int, int] | None = None

    def widen(self, least: int, greatest: int) -> None:
        """Take in more values."""
        before = self.span or (least, greatest)
        self.span = min(before[0], least), max(before[1], greatest)


@dataclass
class Footer:
    """What the end of one data file says."""

    path: str
    metadata: pq.FileMetaData
    columns: list[str]
    leaves: list[Leaf]
    file: RangedFile = field(repr=False)

    def unknown(self) -> list[Leaf]:
        """INT96 columns whose range neither Parquet's statistics nor the log tell."""
        return [leaf for leaf in self.leaves if leaf.int96 and not leaf.known]


def tails(world: Performer, paths: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    """The end of each file, many at a time; an answer may be ``Missing``, or none."""
    for start in range(0, len(paths), BATCH):
        part = paths[start : start + BATCH]
        together = world.perform(
            Together(tuple(GetTail(path, TAIL, name="footers.get_tail") for path in part))
        )
        answers = together.value if isinstance(together, Ok) else (together,) * len(part)
        assert isinstance(answers, tuple)
        yield from zip(part, answers, strict=True)


def footer(world: Performer, path: str, tail: Tail, add: Action) -> Footer | None:
    """The footer of a file whose end was read; None if it is no Parquet file, or the store does not give the rest."""
    file = RangedFile(tail.size)
    file.add(tail.size - len(tail.data), tail.data)
    try:
        rest = missing_footer(file)
        if rest is not None and not _fill(world, path, file, [rest]):
            return None
        parquet = open_file(file)
        columns = parquet.schema_arrow.names
    except (UnreadableError, pa.ArrowException):
        return None
    metadata = parquet.metadata
    return Footer(path, metadata, columns, _leaves(metadata, stats_of(add)), file)


def read_instants(world: Performer, found: Footer, bytes_max: int) -> int:
    """Read the INT96 columns whose ranges are unknown; returns how many bytes that took.

    0: they stay unknown, for too many bytes, no answer, or an unreadable column.
    """
    import pyarrow.parquet as pq

    wanted = found.unknown()
    roots = sorted({leaf.path.partition(".")[0] for leaf in wanted})
    spans = ranges(found.metadata, roots)
    size = sum(length for _, length in spans)
    if size > bytes_max or not _fill(world, found.path, found.file, spans):
        return 0
    try:
        file = pq.ParquetFile(
            cast("IO[bytes]", found.file), pre_buffer=False, coerce_int96_timestamp_unit="us"
        )
        for leaf in wanted:
            _read(file, leaf)
    except (pa.ArrowException, OSError):
        return 0
    return size


def _read(file: pq.ParquetFile, leaf: Leaf) -> None:
    rows = file.read(columns=[leaf.path], use_threads=False)
    for array in (array for column in rows.columns for array in arrays_of(column)):
        if pa.types.is_timestamp(array.type):
            found = pc.min_max(array.view(pa.int64())).as_py()
            if found["min"] is not None:
                leaf.widen(found["min"], found["max"])
    leaf.known = True


def _fill(world: Performer, path: str, file: RangedFile, wanted: Sequence[tuple[int, int]]) -> bool:
    """Fetch byte ranges; False if the file is gone, or the store does not answer."""
    missing = [(start, length) for start, length in wanted if file.piece(start, length) is None]
    gets = [GetRange(path, start, length, name="footers.get_range") for start, length in missing]
    try:
        answers = run(fetch(gets, ASKS, name="footers.get_ranges"), world)
    except StorageError:
        return False
    for (start, _), answer in zip(missing, answers, strict=True):
        if not isinstance(answer, Ok):
            return False
        assert isinstance(answer.value, bytes)
        file.add(start, answer.value)
    return True


# --- ranges of values ---------------------------------------------------------------------------------
def _leaves(metadata: pq.FileMetaData, stats: Mapping[str, Any]) -> list[Leaf]:
    found = []
    for at in range(metadata.num_columns):
        column = metadata.schema.column(at)
        kind = json.loads(column.logical_type.to_json() or "{}")
        leaf = Leaf(column.path, kind.get("Type") == "Date", column.physical_type == "INT96")
        if not (leaf.is_date or leaf.int96 or kind.get("Type") == "Timestamp"):
            continue
        if leaf.int96 or not _from_groups(leaf, metadata, at, kind.get("timeUnit")):
            _from_log(leaf, stats)
        found.append(leaf)
    return found


def _from_groups(leaf: Leaf, metadata: pq.FileMetaData, at: int, unit: str | None) -> bool:
    """Take the range from the statistics of the row groups; False if one has none."""
    up, down = (DAY_US, 1) if leaf.is_date else _PER_US.get(unit or "", (1, 1))
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(at)
        statistics = chunk.statistics
        if statistics is not None and statistics.has_min_max:
            leaf.widen(statistics.min_raw * up // down, statistics.max_raw * up // down)
        elif statistics is None or statistics.null_count != chunk.num_values:
            leaf.span = None
            return False
    leaf.known = True
    return True


def _from_log(leaf: Leaf, stats: Mapping[str, Any]) -> None:
    """Take the range from the log's statistics, which know single columns and the fields of structs."""
    least, greatest, nulls = (
        _at(stats.get(name), leaf.path) for name in ("minValues", "maxValues", "nullCount")
    )
    span = _instant_us(least), _instant_us(greatest)
    if span[0] is not None and span[1] is not None:
        leaf.span, leaf.known = (span[0], span[1]), True
    elif nulls is not None and nulls == stats.get("numRecords"):
        leaf.known = True


def _at(values: Any, path: str) -> Any:
    if isinstance(values, dict) and path in values:
        return values[path]
    for name in path.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _instant_us(text: Any) -> int | None:
    try:
        value = dt.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH) // _US
