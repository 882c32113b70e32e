"""Declares how a task reads and writes the data files of one table, whatever its format, and what it says of them."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import (
    KEPT_BYTES,
    NO_COLUMNS,
    Before,
    FoundRows,
    KeySearch,
)
from safewrite.changes.lookup.key_index import Hashes, HashSet, KeyIndex, key_hashes
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.errors import InvalidInputError, UnsupportedTableError, WouldAlterError
from safewrite.protocol.effects import Effect, Outcome

T = TypeVar("T")

LOOK_FILES = 64
"""How many files a task looks through at most, or writes again."""


@contextmanager
def of_table() -> Iterator[None]:
    """Say of what is refused that it is the table's own rows.

    Raises:
        UnsupportedTableError: nothing was committed.
    """
    try:
        yield
    except (WouldAlterError, InvalidInputError, UnsupportedTableError) as error:
        raise UnsupportedTableError(error.message) from error


@dataclass(frozen=True)
class LiveFile:
    """A live data file, as a task is given it: ``handle`` is what the format knows of it, picklable."""

    name: str
    handle: Any
    nbytes: int


@dataclass(frozen=True)
class WantedKeys:
    """The keys of a batch: their hashes, which ascend; None where they are too many to be sent.

    ``whole``: rows that have them come with all columns, not with keys and sequence alone.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    schema: pa.Schema
    hashes: Hashes | None
    whole: bool = False
    lasting: pa.Schema = NO_COLUMNS
    """The columns of which the next row of a key takes the values along."""
    cuts: Mapping[str, pa.Array] = field(default_factory=dict)
    """See :attr:`safewrite.changes.meaning.decide.ChangeBatch.cuts`."""

    @cached_property
    def hash_set(self) -> HashSet | None:
        """The hashes as they are looked for."""
        return None if self.hashes is None else HashSet(self.hashes)


class FoundKeys(KeySearch):
    """Looks for keys by their hashes, without the batch: what is found may have other keys, of the same hash."""

    def __init__(self, wanted: WantedKeys) -> None:
        super().__init__(wanted.keys, wanted.sequence_by, wanted.schema, wanted.lasting, wanted.cuts)
        self.wanted = wanted

    def search(self, table: pa.Table) -> FoundRows:
        """See :class:`KeySearch`."""
        if self.wanted.hash_set is None:
            return self._hits(table, np.arange(table.num_rows), table.num_rows)
        return super().search(table)

    def _with_keys(self, table: pa.Table) -> Flags:
        flags, known = np.zeros(table.num_rows, np.bool_), self.wanted.hash_set
        assert known is not None
        flags[known.among(key_hashes(table, self.wanted.keys))] = True
        return flags

    def _in_index(self, index: KeyIndex, gone: Numbers | None) -> tuple[pa.Table, Numbers]:
        known = self.wanted.hash_set
        return index.living(gone) if known is None else known.rows_in(index, gone)

    def suffices(self, hits: FoundRows) -> bool:
        """See :class:`KeySearch`."""
        return hits.is_whole or not self.wanted.whole


@dataclass
class SmallReads:
    """What look-ups read of small files in this process, so that few files of a small table are read twice; it is not sent."""

    read: dict[str, tuple[Any, int]] = field(default_factory=dict)

    def keep(self, sought: KeySearch) -> None:
        """Take what was read of files while there is room."""
        left = KEPT_BYTES - sum(size for _, size in self.read.values())
        for name, (read, size) in sought.read.items():
            if size <= left:
                self.read[name] = (read, size)
                left -= size
        sought.read.clear()

    def follow(self, name: str, after: str) -> None:
        """A file with the same data has another name now."""
        if name in self.read:
            self.read[after] = self.read.pop(name)

    def pop(self, name: str) -> Any:
        """What was read of a file, once; None if it has to be read again."""
        return self.read.pop(name, (None, 0))[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return SmallReads, ()


@dataclass(frozen=True)
class RowsThatCame:
    """The files of new rows, as the format's commit takes them, and how many rows they hold.

    ``changes`` are those of the table's change data feed.
    """

    rows: int = 0
    files: tuple[Any, ...] = ()
    changes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class FileRemainder:
    """What is left of a file: so many rows of those that it had, and the files that have them now, if it lost any.

    ``changes`` are files of the table's change data feed: the rows that a truncate took.
    """

    rows: int
    of: int
    files: tuple[Any, ...] = ()
    changes: tuple[Any, ...] = ()


Followed: TypeAlias = tuple[str, str, Flags]
"""The names of a file before and after rows were taken from it, and which of its rows stay."""

Gathered: TypeAlias = tuple[str, Sequence[tuple[str, int, int]]]
"""A file that has all live rows of others in their order, and nothing else: their names, the number of the first of each in it, how many."""


class TableFiles(Protocol):
    """Reads and writes the data files of a table, where a plan is made or in a task; picklable.  It decides nothing about the table's log.

    What it does are effects: a plan performs them among its own, and a task by :meth:`run`.
    """

    @property
    def small(self) -> SmallReads:
        """What look-ups read of small files."""

    def named(self, write_id: str) -> TableFiles:
        """The same under another name of the write: no file of the one has the name of a file of the other."""

    def run(self, steps: Generator[Effect, Outcome, T]) -> T:
        """Perform the effects of a task in its process."""

    def look_up(self, files: Sequence[LiveFile], sought: KeySearch) -> Generator[Effect, Outcome, None]:
        """Note the rows of each file that have keys of a batch; their numbers are those among its live rows.

        Raises:
            UnsupportedTableError: a row cannot be read as the table has it.
            StorageError: a file is gone or not what the log says, or the store gave no answer.
        """

    def followed(
        self, before: Sequence[LiveFile], after: Sequence[LiveFile]
    ) -> Generator[Effect, Outcome, Sequence[Followed]]:
        """The files that have the data of one before, less some rows.

        Raises:
            StorageError: as :meth:`look_up`.
        """

    def gathered(self, after: Sequence[LiveFile]) -> Sequence[Gathered]:
        """Of some files those whose rows were moved there from others, as far as their commits say it of all rows."""

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> Generator[Effect, Outcome, RowsThatCame]:
        """Write rows to new files; ``gone`` are the rows that they take the place of, and those that are deleted.

        ``at`` is in the names of files: no other call has the same.

        Raises:
            StorageError: an upload failed for good.
        """

    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None, at: str
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """Write the rows of files again that stay, by name: of each those at some places go, and those whose sequence is ``before``.

        Raises:
            UnsupportedTableError: a row cannot be written again without loss.
            StorageError: as the other two.
        """
