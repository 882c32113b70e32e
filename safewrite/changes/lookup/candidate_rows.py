"""Gathers the rows of data files that have keys of a batch, and tells which rows of a file stay.

Of most rows the key and the sequence decide; the other columns of a file are decoded only where a row may tie with a
change, where values are carried on, or where the file is rewritten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.key_index import IndexName, KeyIndex, KeyLookup, indexable, known_keys
from safewrite.changes.meaning.decide import ChangeBatch
from safewrite.changes.meaning.positions import (
    Flags,
    Numbers,
    Position,
    among,
    compared,
    groups,
    meeting,
    values_of,
)
from safewrite.changes.meaning.reading import loose
from safewrite.frames.columns import filled

NO_COLUMNS = pa.schema([])
KEPT_BYTES = 8 * 2**20
"""At most this many bytes of what was read of files are kept, so that few files of a small table are read twice."""
_JOINED_BYTES = 2**30
"""Columns up to this size are kept in one piece; a text column of one piece ends at 2 GiB."""
FileT = TypeVar("FileT", bound=Hashable)
Before: TypeAlias = tuple[tuple[str, ...], Position]
"""The columns of a sequence, and a position: rows before it go."""


@dataclass(frozen=True, slots=True)
class FoundRows:
    """The rows of a file that have keys of a batch, their numbers in it, and how many rows it has.

    ``is_whole`` says that ``rows`` have all columns of the table; else those besides keys and sequence are NULL.  ``lasting`` has what
    the next row of each key takes along, where the table has such columns.
    """

    rows: pa.Table
    numbers: Numbers
    of: int
    is_whole: bool
    lasting: pa.Table | None = None


def filtered(columns: list[pa.ChunkedArray], schema: pa.Schema, stays: Flags) -> pa.Table:
    """The rows that stay.  ``columns`` is used up: each is let go once it is copied, so that no file is in memory twice.

    Chunks are joined here, column by column: who slices the rows anew would join all of them at once.
    """
    kept = pa.array(stays)
    for at in range(len(columns)):
        column = columns[at].filter(kept)
        columns[at] = column.combine_chunks() if column.nbytes <= _JOINED_BYTES else column
        del column
    return pa.table(columns, schema=schema)


class KeySearch(ABC):
    """Looks for the rows of data files that have keys of a batch, and keeps what was found, by the names of files.

    A data file never changes, so an index of its keys may serve many batches.
    """

    def __init__(
        self,
        keys: Sequence[str],
        sequence_by: Sequence[str],
        schema: pa.Schema,
        lasting: pa.Schema = NO_COLUMNS,
        cuts: Mapping[str, pa.Array] | None = None,
    ) -> None:
        self._keys, self._names = tuple(keys), (*keys, *sequence_by)
        self._lasting = lasting
        self.cuts = cuts or {}
        self._columns = (*self._names, *lasting.names)
        self._nothing = loose(schema).empty_table()
        is_small = all(pa.types.is_int64(one.type) for one in lasting)
        self._has_indexes = is_small and indexable(schema, keys)
        self.found: dict[str, FoundRows] = {}
        self.read: dict[str, tuple[Any, int]] = {}
        """What was read of some files that may be rewritten, and its size."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to look at first."""
        return self._columns

    def search(self, table: pa.Table) -> FoundRows:
        """The rows that have keys of the batch or may tie with a truncate, of a table with some columns at least.  Safe in threads."""
        flags = self._with_keys(table)
        if self.cuts:
            flags = flags | among(table, self.cuts)
        numbers = np.flatnonzero(flags)
        return self._hits(table.take(pa.array(numbers)), numbers, table.num_rows)

    def search_index(self, index: KeyIndex, gone: Numbers | None = None) -> FoundRows:
        """As :meth:`search`, by the index of a file of which the rows at ``gone``, which ascend, are deleted.  Safe in threads."""
        if self.cuts:
            return self.search(index.living(gone)[0])
        found = self._in_index(index, gone)
        return self._hits(*found, index.rows.num_rows - (0 if gone is None else len(gone)))

    @abstractmethod
    def _with_keys(self, table: pa.Table) -> Flags:
        """Which rows have keys of the batch."""

    @abstractmethod
    def _in_index(self, index: KeyIndex, gone: Numbers | None) -> tuple[pa.Table, Numbers]:
        """The live rows that have keys of the batch, and their numbers among all live rows."""

    @abstractmethod
    def suffices(self, hits: FoundRows) -> bool:
        """Whether these columns are enough to decide by."""

    def note(self, file: str, hits: FoundRows, read: object = None, size: int = 0) -> None:
        """Keep what was found in a file; ``read``, of ``size`` bytes, may serve again."""
        self.found[file] = hits
        if len(hits.numbers) and size and size + sum(each for _, each in self.read.values()) <= KEPT_BYTES:
            self.read[file] = (read, size)

    def wants_index(self, name: IndexName, rows: int | None) -> bool:
        """Whether a file that must be read is worth an index: see :meth:`KnownKeys.is_worth`."""
        return self._has_indexes and known_keys.is_worth(name, rows)

    def kept_index(self, name: IndexName, rows: pa.Table) -> KeyIndex:
        """The index of a file, by all of its rows; it is kept.  Safe in threads."""
        index = KeyIndex.of(rows.select(self._columns), self._keys)
        known_keys.put(name, index)
        return index

    def known_index(self, name: IndexName) -> KeyIndex | None:
        """The index of a file, if it is kept."""
        return known_keys.get(name) if self._has_indexes else None

    def _hits(self, rows: pa.Table, numbers: Numbers, of: int) -> FoundRows:
        lasting = rows.select(self._lasting.names) if self._lasting.names else None
        if not len(numbers):
            return FoundRows(self._nothing, numbers, of, is_whole=True, lasting=lasting)
        is_whole = set(self._nothing.column_names) <= set(rows.column_names)
        return FoundRows(filled(rows, self._nothing.schema), numbers, of, is_whole, lasting)


@dataclass(frozen=True)
class GoneRows(Generic[FileT]):
    """The rows of a table that go by their places in files, and all before ``cut`` where a truncate came.

    ``counts`` has, by file that was looked through, how many rows it has.
    """

    sequence_by: tuple[str, ...]
    goes: Mapping[FileT, Numbers] = field(default_factory=dict)
    cut: Position | None = None
    counts: Mapping[FileT, int] = field(default_factory=dict)

    @property
    def is_cut(self) -> bool:
        """Whether a truncate came: then any file of the table may lose rows."""
        return self.cut is not None

    @property
    def before(self) -> Before | None:
        """The columns of a sequence and the position before which all rows go, where a truncate came."""
        return None if self.cut is None else (self.sequence_by, self.cut)

    def may_lose(self, file: FileT) -> bool:
        """Whether a file may lose rows."""
        return self.is_cut or file in self.goes

    def mark(self, file: FileT) -> tuple[Any, ...]:
        """Says which rows of a file go: files that were made of the others serve every plan with the same mark."""
        return file, self.places(file).tobytes(), self.cut

    def places(self, file: FileT) -> Numbers:
        """The numbers of the rows of a file that go by their keys, ascending."""
        return self.goes.get(file, np.zeros(0, np.int64))

    def loses_all(self, file: FileT) -> bool:
        """Whether all rows of a file go that was looked through."""
        return len(self.places(file)) == self.counts[file]


def staying(table: pa.Table, gone: Numbers, before: Before | None) -> Flags:
    """Which rows of a file stay, when those at ``gone`` go, and those before a position.  Safe in threads."""
    stays = np.ones(table.num_rows, np.bool_)
    stays[gone] = False
    if before is not None:
        stays &= ~cut_off(table, before)
    return stays


def cut_off(table: pa.Table, before: Before) -> Flags:
    """Which rows of a file are before a position."""
    names, cut = before
    return compared([table.column(name) for name in names], cut) < 0


class BatchKeys(KeySearch):
    """Looks for the keys of a batch that is at hand; what was found in a file serves every plan of one write."""

    def __init__(
        self,
        batch: ChangeBatch,
        schema: pa.Schema,
        *,
        needs_whole: bool = False,
        lasting: pa.Schema = NO_COLUMNS,
    ) -> None:
        super().__init__(batch.keys, batch.sequence_by, schema, lasting, batch.cuts)
        self.values = values_of(batch.table, batch.keys)
        """The values that each key column has."""
        self._changed = batch.table.select(self._names)
        self._changed_values = self.values | values_of(self._changed, batch.sequence_by)
        self._always_whole = self._needs_whole = needs_whole or bool(batch.absent)
        self.lookup = KeyLookup.of(batch.table.select(batch.keys)) if self._has_indexes else None
        """The keys of the batch as they are looked for in indexes; None for types that have none."""

    def unseen(self, files: Collection[str], *, carries: bool) -> list[str]:
        """Begin a plan on these files: those that must be looked through; what is known of others is forgotten.

        ``carries``: values may be carried on, so all columns are needed.
        """
        self._needs_whole = whole = self._always_whole or carries
        self.found = {
            file: hits for file, hits in self.found.items() if file in files and (hits.is_whole or not whole)
        }
        return [file for file in files if file not in self.found]

    def follow(self, file: str, after: str, stays: Flags) -> None:
        """Take what was found in a file over to the one that it is now, by another name, with those of its rows that stay.

        ``stays`` has a flag for each row that the file had.  A row that went is found no more: whoever took it says so.
        """
        hits = self.found[file]
        left, went = stays[hits.numbers], np.flatnonzero(~stays)
        places = hits.numbers[left] - np.searchsorted(went, hits.numbers[left])
        rows = hits.rows if left.all() else hits.rows.filter(pa.array(left))
        lasting = None if hits.lasting is None else hits.lasting.filter(pa.array(left))
        self.found[after] = FoundRows(rows, places, len(stays) - len(went), hits.is_whole, lasting)

    def gather(self, after: str, parts: Sequence[tuple[str, int, int]]) -> None:
        """Take what was found in files over to the one that has all of their rows now, where all of them were looked through.

        ``parts`` are the files, the number of the first row of each in that one, and how many live rows each had.
        """
        known = [self.found.get(name) for name, _, _ in parts]
        was = [one for one in known if one is not None]
        if self._lasting.names or len(was) < len(parts):
            return
        if any(one.of != rows for one, (_, _, rows) in zip(was, parts, strict=True)):
            return
        rows = pa.concat_tables([self._nothing, *(one.rows for one in was)]).combine_chunks()
        places = [one.numbers + first for one, (_, first, _) in zip(was, parts, strict=True)]
        numbers = np.concatenate([np.zeros(0, np.int64), *places])
        self.found[after] = FoundRows(
            rows, numbers, sum(one.of for one in was), all(one.is_whole for one in was)
        )

    def _with_keys(self, table: pa.Table) -> Flags:
        return among(table, self.values)

    def _in_index(self, index: KeyIndex, gone: Numbers | None) -> tuple[pa.Table, Numbers]:
        assert self.lookup is not None
        return self.lookup.rows_in(index, gone)

    def suffices(self, hits: FoundRows) -> bool:
        """See :class:`KeySearch`: no row ties with a change, and none carries values on."""
        if hits.is_whole:
            return True
        if self._needs_whole:
            return False
        return not meeting(self._changed, hits.rows.select(self._names), self._changed_values).any()

    def rows(self, files: Collection[str]) -> pa.Table:
        """The rows of these files that have such keys, one file after another."""
        return pa.concat_tables([self._nothing, *(self.found[file].rows for file in files)]).combine_chunks()

    def lasting(self, files: Collection[str], goes: Numbers) -> pa.Table | None:
        """Keys of those of these rows that go, with the values that the next rows of these keys take along; None where there are none."""
        if not self._lasting.names:
            return None
        every = pa.concat_tables([self._lasting.empty_table(), *map(self._kept, files)])
        return beside(self.rows(files).select(self._keys), every).take(pa.array(goes, pa.int64()))

    def _kept(self, file: str) -> pa.Table:
        found = self.found[file].lasting
        assert found is not None
        return found


def taken_along(come: pa.Table, gone: pa.Table | None, keys: Sequence[str]) -> pa.Table:
    """Rows that come with what ``gone`` has besides keys: of the row of the key that goes, NULL where none does.

    Of several the one with the least number counts where the first column has numbers, else the first.
    """
    if gone is None:
        return come
    taken = gone.select([one for one in gone.column_names if one not in keys])
    both = pa.concat_tables([gone.select(keys), come.select(keys)], promote_options="permissive")
    ids, count = groups(both), gone.num_rows
    order = np.arange(count)
    if pa.types.is_int64(taken.schema[0].type):
        numbers = taken.column(0).fill_null(np.iinfo(np.int64).max)
        order = np.argsort(numbers.to_numpy(), kind="stable")
    first = np.full(both.num_rows, count)
    np.minimum.at(first, ids[:count][order], np.arange(count))
    found = first[ids[count:]]
    none = found == count
    places = pa.array(np.append(order, 0)[found], pa.int64(), mask=none)
    return beside(come, taken.take(places))


def beside(rows: pa.Table, others: pa.Table | None) -> pa.Table:
    """Rows with the columns of as many others that they lack."""
    if others is None:
        return rows
    there = frozenset(rows.column_names)
    for name in others.column_names:
        if name not in there:
            rows = rows.append_column(others.schema.field(name), others.column(name))
    return rows
