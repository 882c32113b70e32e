"""Gathers the rows of data files that have keys of a batch, and tells which rows of a file stay.

Of most rows the key and the sequence decide; the other columns of a file are decoded only where a row may tie with a
change, where values are carried on, or where the file is rewritten.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.key_index import IndexName, KeyIndex, KeyLookup, indexable, known_keys
from safewrite.changes.meaning.decide import ChangeBatch, Decision, KnownRows
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.positions import Flags, Numbers, Position, among, compared, meeting, values_of
from safewrite.changes.meaning.reading import loose
from safewrite.errors import InternalError
from safewrite.frames.columns import filled

KEPT_BYTES = 8 * 2**20
"""At most this many bytes of what was read of files are kept, so that few files of a small table are read twice."""
_JOINED_BYTES = 2**30
"""Columns up to this size are kept in one piece; a text column of one piece ends at 2 GiB."""
FileT = TypeVar("FileT", bound=Hashable)


def wanted(batch: ChangeBatch) -> dict[str, pa.Array]:
    """The values that each key column has in a batch."""
    return values_of(batch.table, batch.keys)


@dataclass(frozen=True, slots=True)
class Hits:
    """The rows of a file that have keys of a batch, their numbers in it, and how many rows it has.

    ``is_whole`` says that ``rows`` have all columns of the table; else those besides keys and sequence are NULL.
    """

    rows: pa.Table
    numbers: Numbers
    of: int
    is_whole: bool


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


class Sought(ABC, Generic[FileT]):
    """Looks for the rows of data files that have keys of a batch, and keeps what was found; files are named as a format likes.

    A data file never changes, so an index of its keys may serve many batches.
    """

    def __init__(self, keys: Sequence[str], sequence_by: Sequence[str], schema: pa.Schema) -> None:
        self._keys, self._names = tuple(keys), (*keys, *sequence_by)
        self._nothing = loose(schema).empty_table()
        self._has_indexes = indexable(schema, keys)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to look at first."""
        return self._names

    @abstractmethod
    def search(self, table: pa.Table) -> Hits:
        """The rows that have keys of the batch, of a table with some columns at least.  Safe in threads."""

    @abstractmethod
    def search_index(self, index: KeyIndex, gone: Numbers | None = None) -> Hits:
        """As :meth:`search`, by the index of a file of which the rows at ``gone``, which ascend, are deleted.  Safe in threads."""

    @abstractmethod
    def suffices(self, hits: Hits) -> bool:
        """Whether these columns are enough to decide by."""

    @abstractmethod
    def note(self, file: FileT, hits: Hits, read: object = None, size: int = 0) -> None:
        """Keep what was found in a file; ``read``, of ``size`` bytes, may serve again."""

    def asks_again(self, name: IndexName) -> bool:
        """Whether a file that must be read is worth an index: its keys are asked for a second time."""
        return self._has_indexes and known_keys.is_worth(name)

    def kept_index(self, name: IndexName, rows: pa.Table) -> KeyIndex:
        """The index of a file, by all of its rows; it is kept.  Safe in threads."""
        index = KeyIndex.of(rows.select(self._names), self._keys)
        known_keys.put(name, index)
        return index

    def known_index(self, name: IndexName) -> KeyIndex | None:
        """The index of a file, if it is kept."""
        return known_keys.get(name) if self._has_indexes else None

    def _hits(self, rows: pa.Table, numbers: Numbers, of: int) -> Hits:
        is_whole = not len(numbers) or set(self._nothing.column_names) <= set(rows.column_names)
        return Hits(filled(rows, self._nothing.schema), numbers, of, is_whole)

    def _indexed_hits(self, found: tuple[pa.Table, Numbers], index: KeyIndex, gone: Numbers | None) -> Hits:
        return self._hits(*found, index.rows.num_rows - (0 if gone is None else len(gone)))


class GoneRows(Generic[FileT]):
    """The rows of a table that go by their places in files, and all before a position where a truncate came."""

    def __init__(
        self,
        sequence_by: Sequence[str],
        goes: dict[FileT, Numbers] | None = None,
        cut: Position | None = None,
        counts: Mapping[FileT, int] | None = None,
    ) -> None:
        self._sequence_by, self._goes, self._cut = tuple(sequence_by), goes or {}, cut
        self._counts = counts or {}

    @property
    def is_cut(self) -> bool:
        """Whether a truncate came: then any file of the table may lose rows."""
        return self._cut is not None

    @property
    def cut(self) -> Position | None:
        """The position of that truncate."""
        return self._cut

    def may_lose(self, file: FileT) -> bool:
        """Whether a file may lose rows."""
        return self.is_cut or file in self._goes

    def mark(self, file: FileT) -> tuple[Any, ...]:
        """Says which rows of a file go: files that were made of the others serve every plan with the same mark."""
        return file, self.places(file).tobytes(), self._cut

    def places(self, file: FileT) -> Numbers:
        """The numbers of the rows of a file that go by their keys, ascending."""
        return self._goes.get(file, np.zeros(0, np.int64))

    def gone(self, file: FileT) -> Numbers | None:
        """The numbers of the rows of a file that go; None if only its rows can tell."""
        return None if self.is_cut else self.places(file)

    def rows_of(self, file: FileT) -> int:
        """How many rows a file has that was looked through."""
        return self._counts[file]

    def stays(self, file: FileT, table: pa.Table) -> Flags:
        """Which rows of a file stay.  Safe in threads."""
        return staying(table, self.places(file), self._sequence_by, self._cut)

    def kept(self, file: FileT) -> Any:
        """What was read of a file, once; None if it has to be read again."""
        return None

    def gone_rows(self) -> pa.Table:
        """The rows that go, with all columns if files were looked through so; a truncate takes more."""
        raise InternalError("The rows that go were asked for where they are not. Please report it.")


def staying(table: pa.Table, gone: Numbers, sequence_by: Sequence[str], cut: Position | None) -> Flags:
    """Which rows of a file stay, when those at ``gone`` go, and those before a position."""
    stays = np.ones(table.num_rows, np.bool_)
    stays[gone] = False
    if cut is not None:
        stays &= compared([table.column(name) for name in sequence_by], cut) >= 0
    return stays


class Touched(Sought[FileT], GoneRows[FileT]):
    """The rows of a table that a batch may change, and where each lies.

    A data file never changes, so what was found in it serves every plan of one write.
    """

    def __init__(self, batch: ChangeBatch, schema: pa.Schema, *, needs_whole: bool = False) -> None:
        Sought.__init__(self, batch.keys, batch.sequence_by, schema)
        GoneRows.__init__(self, batch.sequence_by)
        self._batch = batch
        self._always_whole = needs_whole
        self._wanted = wanted(batch)
        self._changed = batch.table.select(self._names)
        self._changed_values = self._wanted | values_of(self._changed, batch.sequence_by)
        self._found: dict[FileT, Hits] = {}
        self._owners: list[FileT] = []
        self._numbers = np.zeros(0, np.int64)
        self._dropped = np.zeros(0, np.int64)
        self._kept: dict[FileT, tuple[Any, int]] = {}
        self._needs_whole = needs_whole or bool(batch.absent)
        self.lookup = KeyLookup.of(batch.table.select(batch.keys)) if self._has_indexes else None
        """The keys of the batch as they are looked for in indexes; None for types that have none."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._batch.keys

    def unseen(self, files: Collection[FileT], memory: Memory) -> list[FileT]:
        """Begin a plan on these files: those that must be looked through; what is known of others is forgotten."""
        carries = bool(self._batch.absent) or bool(memory.carried.num_rows)
        self._needs_whole = self._always_whole or carries
        self._found = {
            file: hits
            for file, hits in self._found.items()
            if file in files and (hits.is_whole or not self._needs_whole)
        }
        self._kept = {file: kept for file, kept in self._kept.items() if file in files}
        self._goes, self._cut = {}, None
        return [file for file in files if file not in self._found]

    def found_in(self, file: FileT) -> bool:
        """Whether a file was looked through."""
        return file in self._found

    def follow(self, file: FileT, after: FileT, stays: Flags) -> None:
        """Take what was found in a file over to the one that it is now, by another name, with those of its rows that stay.

        ``stays`` has a flag for each row that the file had.  A row that went is found no more: whoever took it says so.
        """
        hits = self._found[file]
        left = stays[hits.numbers]
        places = (np.cumsum(stays) - 1)[hits.numbers[left]]
        rows = hits.rows.filter(pa.array(left))
        self._found[after] = Hits(rows, places, int(stays.sum()), hits.is_whole)
        if file in self._kept:
            self._kept[after] = self._kept.pop(file)

    def search(self, table: pa.Table) -> Hits:
        """The rows that have keys of the batch, of a table with some columns at least.  Safe in threads."""
        numbers = np.flatnonzero(among(table, self._wanted))
        return self._hits(table.take(pa.array(numbers)), numbers, table.num_rows)

    def search_index(self, index: KeyIndex, gone: Numbers | None = None) -> Hits:
        """As :meth:`search`, by the index of a file of which the rows at ``gone``, which ascend, are deleted.  Safe in threads."""
        assert self.lookup is not None
        return self._indexed_hits(self.lookup.rows_in(index, gone), index, gone)

    def suffices(self, hits: Hits) -> bool:
        """Whether these columns are enough to decide by: no row ties with a change, and none carries values on."""
        if hits.is_whole:
            return True
        if self._needs_whole:
            return False
        return not meeting(self._changed, hits.rows.select(self._names), self._changed_values).any()

    def note(self, file: FileT, hits: Hits, read: object = None, size: int = 0) -> None:
        """Keep what was found in a file; ``read``, of ``size`` bytes, is what :meth:`kept` gives back."""
        self._found[file] = hits
        if len(hits.numbers) and sum(kept for _, kept in self._kept.values()) + size <= KEPT_BYTES:
            self._kept[file] = (read, size)

    def kept(self, file: FileT) -> Any:
        """What was read of a file, once; None if it has to be read again."""
        read, _ = self._kept.pop(file, (None, 0))
        return read

    def known(self, memory: Memory) -> KnownRows:
        """What the table holds and remembers of the keys."""
        batch, found = self._batch, self._found
        self._owners = [file for file, hits in found.items() for _ in range(len(hits.numbers))]
        self._numbers = np.concatenate([np.zeros(0, np.int64), *(hits.numbers for hits in found.values())])
        return KnownRows(
            pa.concat_tables([self._nothing, *(hits.rows for hits in found.values())]).combine_chunks(),
            memory.tombstones.select([*batch.keys, *batch.sequence_by]),
            memory.floor,
            memory.forgotten,
            memory.carried,
        )

    def decided(self, decision: Decision, memory: Memory) -> None:
        """Take what was decided: which rows go, and up to where everything does."""
        self._cut = decision.floor if decision.floor != memory.floor else None
        self._dropped = decision.dropped
        goes: dict[FileT, list[int]] = {}
        for place in decision.dropped.tolist():
            goes.setdefault(self._owners[place], []).append(int(self._numbers[place]))
        self._goes = {file: np.sort(np.array(places, np.int64)) for file, places in goes.items()}

    def gone_rows(self) -> pa.Table:
        """The rows that go, with all columns if files were looked through so; a truncate takes more."""
        rows = pa.concat_tables([self._nothing, *(hits.rows for hits in self._found.values())])
        return rows.take(pa.array(self._dropped))

    def rows_of(self, file: FileT) -> int:
        """How many rows a file has that was looked through."""
        return self._found[file].of
