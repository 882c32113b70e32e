"""Finds rows of one full load that have one key: the source has both, so the key columns do not tell its rows apart.

A full load has each row of its table once.  Two of its rows are no changes of one another, and silver can hold one: the last stays,
and the others go to quarantine.  A load that began again is another one than the load before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.engine.abc import Engine, TaskAttempt
from safewrite.engine.local import LocalEngine
from safewrite.engine.task_files import TaskReader
from safewrite.errors import SafewriteError
from safewrite.frames.fingerprint import row_hashes
from safewrite.medallion.config.bronze_columns import LOADED_OP, SEQUENCE
from safewrite.medallion.config.full_load_epochs import truncating
from safewrite.medallion.config.stored_names import pieces_of
from safewrite.medallion.files.rows import loaded_ms
from safewrite.medallion.silver.judging import Aside, put_aside, put_aside_before, taken_out
from safewrite.medallion.silver.quality import RuleError
from safewrite.medallion.silver.unfit import Record, place_of
from safewrite.medallion.tables.job import TableJob

SHARE_ROWS = 8_000_000
"""About this many rows are looked at together: eight bytes of each are kept."""
FileOfLoad = tuple[int, str, str]
"""An epoch, a path, and the tag of its content."""
_PLACE = ("_file", "_tag", "_line")
_FILE = ("_epoch", "_file", "_tag")
Pieces = Callable[[Sequence[str]], Iterator[pa.Table]]


def load_numbers(spans: pa.Table) -> dict[FileOfLoad, int]:
    """Which load of its epoch each file is of, where that is not the first; takes ``_op``, ``_epoch``, ``_file``, ``_tag`` and ``_seq``.

    A load began again where a file comes once more with other content.
    """
    loaded = spans.filter(pc.equal(spans["_op"], LOADED_OP)).group_by(_FILE).aggregate([("_seq", "max")])
    found: dict[FileOfLoad, int] = {}
    epochs: dict[int, tuple[int, set[str]]] = {}
    rows = loaded.to_pylist()
    for row in sorted(rows, key=lambda one: (one["_epoch"], loaded_ms(one["_seq_max"]), one["_file"])):
        epoch, path, tag = (row[name] for name in _FILE)
        number, paths = epochs.setdefault(epoch, (0, set()))
        if path in paths:
            number, paths = number + 1, set()
        paths.add(path)
        epochs[epoch] = number, paths
        if number:
            found[epoch, path, tag] = number
    return found


class ReadAgainError(SafewriteError):
    """Tasks read rows of full loads before it was known which of them are not to be taken.  Nothing was committed."""


@dataclass
class SharedKeys:
    """What was found: of ``loaded`` rows of full loads so many have a key that a later one of their load has, and which they are."""

    loaded: int = 0
    shared: int = 0
    first: str | None = None
    records: set[Record] = field(default_factory=set)

    def add(self, other: SharedKeys) -> None:
        """Take in what was found of other keys."""
        self.loaded, self.shared = self.loaded + other.loaded, self.shared + other.shared
        self.first = self.first or other.first
        self.records |= other.records


@dataclass(frozen=True)
class FindSharedKeys:
    """Looks through rows of bronze, a share of the keys at a time; its input, as a task, are the numbers of shares."""

    pieces: Pieces = field(repr=False)
    keys: tuple[str, ...]
    first: int
    """Rows of earlier epochs are in silver no longer."""
    shares: int
    begins_again: bool
    """Whether loads may have begun again, as far as the configuration says."""
    share_max: float
    """Where more of the rows of loads are found, the batch is refused, and one is enough to name."""
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, SharedKeys]:
        """Look through all rows for the keys of these shares."""
        yield from ()
        found = SharedKeys()
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            found.add(self._of(number))
        return found

    def _of(self, share: int) -> SharedKeys:
        """What there is of one share."""
        numbers = self._numbers() if self.begins_again else {}
        loaded, several, shared = self._several(share, numbers)
        if shared and not self.begins_again and (numbers := self._numbers()):
            loaded, several, shared = self._several(share, numbers)
        found = SharedKeys(loaded, shared)
        if shared:
            rows = self._rows(several, numbers, is_one_enough=shared > self.share_max * loaded)
            found.first, found.records = _but_last(rows, self.keys)
        return found

    def _numbers(self) -> dict[FileOfLoad, int]:
        names = ["_op", *_FILE, "_seq"]
        sums = [
            piece.group_by(["_op", *_FILE]).aggregate([("_seq", "max")]).rename_columns(names)
            for piece in self.pieces(names)
        ]
        return load_numbers(pa.concat_tables(sums)) if sums else {}

    def _several(
        self, share: int, numbers: Mapping[FileOfLoad, int]
    ) -> tuple[int, npt.NDArray[np.uint64], int]:
        """How many rows there are, the hashes that several have, and how many are not the last of such."""
        found = [np.zeros(0, np.uint64)]
        for _, hashes in self._hashed(numbers, [*self.keys, "_op", *_FILE]):
            found.append(hashes[hashes % np.uint64(self.shares) == share])
        ordered = np.concatenate(found)
        found.clear()  # tasks of one process look through several shares at a time
        ordered.sort()
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        return len(ordered), np.unique(again), len(again)

    def _hashed(
        self, numbers: Mapping[FileOfLoad, int], columns: Sequence[str]
    ) -> Iterator[tuple[pa.Table, npt.NDArray[np.uint64]]]:
        """Rows of full loads, and hashes of their keys within their load."""
        for piece in self.pieces(columns):
            rows = piece.filter(pc.equal(piece["_op"], LOADED_OP))
            rows = rows.filter(pc.greater_equal(rows["_epoch"], self.first)) if self.first > 1 else rows
            yield rows, _hashes(rows, self.keys, numbers)

    def _rows(
        self, several: npt.NDArray[np.uint64], numbers: Mapping[FileOfLoad, int], *, is_one_enough: bool
    ) -> list[tuple[Any, dict[str, Any]]]:
        """The rows that have one of some hashes, each with its load."""
        found: list[tuple[Any, dict[str, Any]]] = []
        columns = list(dict.fromkeys([*self.keys, "_op", *SEQUENCE, *_PLACE]))
        if is_one_enough:
            several = several[:1]
        for rows, hashes in self._hashed(numbers, columns):
            for row in rows.filter(pa.array(np.isin(hashes, several))).to_pylist():
                number = numbers.get((row["_epoch"], row["_file"], row["_tag"]), 0)
                found.append(((row["_epoch"], number), row))
        return found


def _hashes(rows: pa.Table, keys: Sequence[str], numbers: Mapping[FileOfLoad, int]) -> npt.NDArray[np.uint64]:
    own = rows.select([*keys, "_epoch"])
    if numbers and rows.num_rows:
        named = pc.binary_join_element_wise(
            rows["_epoch"].cast(pa.string()), rows["_file"], rows["_tag"], "\0"
        )
        known = pa.array(["\0".join(map(str, one)) for one in numbers], pa.string())
        at = pc.index_in(named, known)
        number = pc.fill_null(pc.take(pa.array(list(numbers.values()), pa.int64()), at), 0)
        own = own.append_column("_load", number)
    return row_hashes(own)[0]


def _but_last(
    rows: Sequence[tuple[Any, dict[str, Any]]], keys: Sequence[str]
) -> tuple[str | None, set[Record]]:
    """The records of each load and key but for the last, and a word on the first."""
    groups: dict[Any, dict[Record, Any]] = {}
    for load, row in rows:
        place = (*(row[name] for name in SEQUENCE), place_of(row["_file"], row["_line"]))
        record = row["_file"], row["_tag"], row["_line"]
        groups.setdefault((load, tuple(row[key] for key in keys)), {})[record] = place
    found, first = set[Record](), None
    for (_, key), records in groups.items():
        ordered = sorted(records, key=records.__getitem__)
        found |= {*ordered[:-1]}
        if len(ordered) > 1 and first is None:
            (one, _, line), (other, _, other_line) = ordered[0], ordered[-1]
            said = ", ".join(f"{name}={value!r}" for name, value in zip(keys, key, strict=True))
            first = f"record {line} of {one} and record {other_line} of {other} have {said}"
    return first, found


@dataclass(frozen=True)
class _PiecesOf:
    brought: sw.AddedRows
    there: tuple[str, ...]

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        return pieces_of(self.brought.tables, self.there, columns)


@dataclass
class LoadKeys:
    """Says of a run's rows for silver which are not to be taken, for a later one of their load has their key.

    All of bronze is looked through, once, when the first rows of a load are met.  ``brought`` is what the run is to take,
    ``is_whole`` whether that is all of bronze.
    """

    job: TableJob
    brought: Sequence[sw.AddedRows]
    is_whole: bool
    _found: SharedKeys | None = None
    _is_told: bool = False

    @classmethod
    def of(cls, job: TableJob, brought: Sequence[sw.AddedRows], *, is_whole: bool) -> LoadKeys:
        """Of a table."""
        return cls(job, brought, is_whole)

    @property
    def records(self) -> frozenset[Record]:
        """The records that were found so far."""
        return frozenset() if self._found is None else frozenset(self._found.records)

    @property
    def is_known(self) -> bool:
        """Whether bronze was looked through."""
        return self._found is not None

    @property
    def reason(self) -> str:
        """One text for all such rows."""
        return (
            f"a later row of the same full load has its key ({', '.join(self.job.config.keys)}), and silver holds one row of a key: "
            "the columns of keys may be too few"
        )

    def bad(self, rows: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
        """Rows of a batch that are not to be taken, by reason.

        Raises:
            RuleError: they are so many that the batch is refused.
            SafewriteError: bronze cannot be read.
        """
        if not self.is_known and pc.any(pc.equal(rows["_op"], LOADED_OP)).as_py():
            is_all = self.is_whole and rows.num_rows >= sum(one.row_count for one in self.brought)
            self.look((lambda columns: iter([rows.select(columns)])) if is_all else None)
        return SharedIn(self.records, self.reason)(rows)

    def look(self, pieces: Pieces | None = None) -> SharedKeys:
        """Look through bronze, or through all its rows in memory.  Raises as :meth:`bad`."""
        if self._found is None:
            whole = self.job.lineage.whole()
            found = self._look(whole, pieces)
            self._refuse(found)
            self._found = found
        return self._found

    def _look(self, whole: Sequence[sw.AddedRows], pieces: Pieces | None) -> SharedKeys:
        config, lineage = self.job.config, self.job.lineage
        count = 1 + sum(one.row_count for one in whole) // SHARE_ROWS
        asked = (
            tuple(config.keys),
            max(truncating(config.reload, config.epoch), default=1),
            count,
            config.restarted_load == "fold",
            config.quality.quarantined_share_max,
        )
        engine: Engine[Any] = LocalEngine()
        there = self.job.places.elsewhere if pieces is None and whole else None
        way = None if there is None else self.job.bronze.in_tasks()
        if there is not None and way is not None:
            files = tuple(file for one in whole for file in one.files)
            engine, pieces = there, _PiecesOf(_read_by(whole[0], files, way.reader), lineage.columns)
        task = FindSharedKeys(pieces or (lambda columns: lineage.pieces(whole, columns)), *asked)
        found = SharedKeys()
        with engine.map(engine.numbers(count), task) as mapped:
            for one in mapped.bodies():
                found.add(one)
        return found

    def _refuse(self, found: SharedKeys) -> None:
        share_max = self.job.config.quality.quarantined_share_max
        if found.shared > share_max * found.loaded:
            raise RuleError(
                f"{found.shared} of {found.loaded} rows of full loads of {self.job.name} have the key ({', '.join(self.job.config.keys)}) "
                f"of another row of their load, and quarantined_share_max is {share_max}. The first: {found.first}. Nothing was written, "
                "neither to silver nor to quarantine; bronze has the rows. Name all columns of the source's key in keys, and run "
                f"again; where silver has rows by the old keys, `{self.job.places.command('reset', self.job.name)}` fills it again."
            )

    def earlier(self) -> tuple[int, int]:
        """Put aside what silver took in earlier runs of the records that were found; how many, and how many of them are new there.

        Raises:
            SafewriteError: as ``append_many``.
        """
        if self._is_told or self._found is None or not self._found.records:
            return 0, 0
        self._is_told = True
        if self.is_whole:
            return 0, 0
        lineage = self.job.lineage
        left = self._found.records - put_aside_before(self.job)
        for piece in lineage.pieces(self.brought, list(_PLACE)) if left else ():
            left -= set(zip(*(piece[name].to_pylist() for name in _PLACE), strict=True))
        where: Aside = {}
        for piece in lineage.pieces(lineage.whole()) if left else ():
            numbers = np.flatnonzero(among(piece, left)).tolist()
            for file, records in taken_out(piece, dict.fromkeys(numbers, self.reason))[1].items():
                where.setdefault(file, []).extend(records)
        return len(left), put_aside(self.job, where)


def warning_of_keys(job: TableJob, count: int) -> str:
    """What is to be said where so many rows of full loads have the key of a later one."""
    return (
        f"{count} rows of full loads of {job.name} have the key ({', '.join(job.config.keys)}) of a later row of their load. Silver holds the "
        "last row of each key, and the others are in quarantine. If the source's key has more columns, name all in keys and fill silver "
        f"again: `{job.places.command('reset', job.name)}`."
    )


def _read_by(one: sw.AddedRows, files: tuple[Any, ...], reader: TaskReader) -> sw.AddedRows:
    return sw.AddedRows(one.version, one.timestamp, files, reader)


@dataclass(frozen=True)
class SharedIn:
    """Says which rows are among some records, by reason."""

    records: frozenset[Record]
    reason: str

    def __call__(self, rows: pa.Table) -> dict[str, npt.NDArray[np.bool_]]:
        """Of a batch."""
        return {self.reason: among(rows, self.records)} if self.records else {}


def among(rows: pa.Table, records: Set[Record]) -> npt.NDArray[np.bool_]:
    """Which rows of bronze are some records."""
    likely = pc.is_in(rows["_file"], value_set=pa.array({file for file, _, _ in records}, pa.string()))
    found = np.zeros(rows.num_rows, np.bool_)
    at = np.flatnonzero(np.asarray(likely.to_numpy(), np.bool_))
    some = rows.select(list(_PLACE)).take(pa.array(at))
    for number, record in zip(
        at.tolist(), zip(*(some[name].to_pylist() for name in _PLACE), strict=True), strict=True
    ):
        found[number] = record in records
    return found
