"""Keeps an index of the keys of data files in this process, so that a look-up costs by its keys, not by the table's rows.

An index has the keys and sequences of all rows that one file holds, with a 64-bit hash of each key in ascending order.  A data
file never changes, so an index is true for as long as its file is live; its name binds it to one file of one table and to
the types of its columns.  Hashes only lead to rows: whether a key is equal is decided by its value.  No other process can
write what is kept: it is in memory, or in a temporary file that has no name.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.changes.meaning.positions import Flags, Numbers, among, values_of
from safewrite.frames.fingerprint import row_hashes

if TYPE_CHECKING:
    from collections.abc import Iterable

Hashes: TypeAlias = npt.NDArray[np.uint64]
Ordered = TypeVar("Ordered", np.uint64, np.int64)
IndexName: TypeAlias = tuple[Hashable, ...]
"""Names one file of one table, and the columns of the index with their types."""

MEMORY_BYTES = 64 * 2**20
"""So much is kept in memory; the rest in temporary files."""
DISK_BYTES = 2**30
"""The temporary files take so much at most, and no more than a quarter of what is free."""
OLD_S = 900.0
"""An index that was not used for so long gives way to another.  If a younger one did, tables that are too many for the room would
take it from each other with every batch, and make all indexes each time."""
_SEEN_MAX = 50_000
SMALL_ROWS = 4096
"""The index of a file of so few rows is made when it is read first: it takes less than to read the file again."""
_BITS_WITHIN = 2
"""About so many bits tell the hashes apart that begin with the same ones."""
_ROW, _HASH = "safewrite.row", "safewrite.hash"


def indexable(schema: pa.Schema, keys: Sequence[str]) -> bool:
    """Whether equal keys of these columns have equal hashes, whatever file they are read from.

    All are brought to the table's type before they are compared.  Floats have several bits for one value, and types that are
    not listed were never tried.
    """
    kinds = [schema.field(name).type for name in keys]
    return bool(kinds) and all(any(is_kind(kind) for is_kind in _KINDS) for kind in kinds)


_KINDS = (
    pa.types.is_integer,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_boolean,
    pa.types.is_date32,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)


def ascending(*some: npt.NDArray[Ordered]) -> npt.NDArray[Ordered]:
    """All of these values, once each; several arrays are merged, and quickest where each of them ascends.

    ``np.unique`` puts them into a hash table since NumPy 2.3, and takes ten times as long for a hundred thousand.
    """
    whole = np.sort(some[0]) if len(some) == 1 else np.sort(np.concatenate(some), kind="stable")
    is_new = np.ones(len(whole), np.bool_)
    np.not_equal(whole[1:], whole[:-1], out=is_new[1:])
    return whole[is_new]


def key_hashes(table: pa.Table, keys: Sequence[str]) -> Hashes:
    """The hash of each row's key."""
    return row_hashes(table.select(keys))[0]


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The keys and sequences of the rows of a file, in its order; ``hashes`` ascend, ``numbers`` are the rows they are of.

    ``starts`` says where the hashes with the same first bits begin, and last where all end.
    """

    rows: pa.Table
    hashes: Hashes
    numbers: npt.NDArray[np.uint32]
    starts: npt.NDArray[np.uint32]

    @classmethod
    def of(cls, rows: pa.Table, keys: Sequence[str]) -> KeyIndex:
        """The index of all rows of a file, deleted ones too."""
        hashes = key_hashes(rows, keys)
        order = np.argsort(hashes).astype(np.uint32)
        ascend = hashes[order]
        bits = max(1, len(ascend).bit_length() - _BITS_WITHIN)
        starts = np.searchsorted(_first_bits(ascend, bits), np.arange(2**bits + 1, dtype=np.uint64))
        return cls(rows.combine_chunks(), ascend, order, starts.astype(np.uint32))

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return int(self.rows.nbytes + self.hashes.nbytes + self.numbers.nbytes + self.starts.nbytes)

    def find(self, hashes: Hashes) -> tuple[Numbers, Flags]:
        """The rows that have one of some hashes, which ascend, each once; and which of the hashes a row has."""
        if len(self.hashes) <= len(hashes):
            return self._found_in(hashes)
        first = self._first(hashes)
        first[first == len(self.hashes)] = 0
        found = self.hashes[first] == hashes
        at, sought, rows = first[found], hashes[found], [np.zeros(0, np.int64)]
        while len(at):
            rows.append(self.numbers[at].astype(np.int64))
            after = at + 1 < len(self.hashes)  # a file may hold a key twice
            at, sought = at[after] + 1, sought[after]
            same = self.hashes[at] == sought
            at, sought = at[same], sought[same]
        return np.sort(np.concatenate(rows)), found

    def _found_in(self, hashes: Hashes) -> tuple[Numbers, Flags]:
        """As :meth:`find`: each row is looked for among the hashes, where these are more."""
        at, found = np.searchsorted(hashes, self.hashes), np.zeros(len(hashes), np.bool_)
        at[at == len(hashes)] = 0
        has = hashes[at] == self.hashes if len(hashes) else found
        found[at[has]] = True
        return np.sort(self.numbers[has].astype(np.int64)), found

    def _first(self, hashes: Hashes) -> Numbers:
        """As ``np.searchsorted``, which misses the processor's caches at nearly each step in a large file."""
        bits = (len(self.starts) - 1).bit_length() - 1
        alike = _first_bits(hashes, bits).astype(np.int64)
        low, high, last = self.starts[alike].astype(np.int64), self.starts[alike + 1], len(self.hashes) - 1
        while (low < high).any():
            middle = (low + high) >> 1
            is_less = (low < high) & (self.hashes[np.minimum(middle, last)] < hashes)
            low, high = np.where(is_less, middle + 1, low), np.where(is_less, high, middle)
        return low

    def living(self, gone: Numbers | None = None) -> tuple[pa.Table, Numbers]:
        """All live rows, and their numbers among themselves; ``gone`` are those that are deleted, ascending."""
        return _living(self.rows, np.arange(self.rows.num_rows), gone)

    # --- on disk ------------------------------------------------------------------------------------
    def on_disk(self) -> KeyIndex:
        """The same index in a temporary file without a name: it goes with the process.

        Raises:
            OSError: there is no room, or no place for temporary files.
        """
        columns = [*self.rows.columns, pa.array(self.hashes), pa.array(self.numbers)]
        table = pa.table(columns, [*self.rows.column_names, _HASH, _ROW])
        with tempfile.TemporaryFile(prefix="safewrite-keys-") as file:
            with pa.ipc.new_file(pa.PythonFile(file, mode="w"), table.schema) as writer:
                writer.write_table(table)
            end = file.tell()
            file.write(self.starts.tobytes())
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        read = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)[:end])).read_all()
        rows = pa.table(read.columns[:-2], schema=self.rows.schema)
        hashes, numbers = (read.column(name).chunk(0).to_numpy() for name in (_HASH, _ROW))
        return KeyIndex(rows, hashes, numbers, np.frombuffer(mapped, np.uint32, offset=end))


def _first_bits(hashes: Hashes, bits: int) -> Hashes:
    return hashes >> np.uint64(64 - bits)


def _living(rows: pa.Table, numbers: Numbers, gone: Numbers | None) -> tuple[pa.Table, Numbers]:
    """Of rows with these numbers in a file those that live, and their numbers among all that do."""
    if gone is None or not len(gone):
        return rows, numbers
    before = np.searchsorted(gone, numbers)
    lives = gone[np.minimum(before, len(gone) - 1)] != numbers
    return rows.filter(pa.array(lives)), (numbers - before)[lives]


_BITS_LEAST, _BITS_MOST = 16, 26


class HashSet:
    """The hashes of keys that are looked for in many files; a table of bits tells most others at once."""

    def __init__(self, hashes: Hashes) -> None:
        """``hashes`` ascend, each once."""
        self.hashes = hashes
        bits = min(_BITS_MOST, max(_BITS_LEAST, len(hashes).bit_length() + 6))
        self._mask = np.uint64(2**bits - 1)
        self._near = np.zeros(2**bits, np.bool_)
        self._near[hashes & self._mask] = True

    def among(self, hashes: Hashes) -> Numbers:
        """The places of those that are in the set."""
        places = np.flatnonzero(self._near[hashes & self._mask])
        if not len(places):
            return places
        at = np.minimum(np.searchsorted(self.hashes, hashes[places]), len(self.hashes) - 1)
        return np.asarray(places[self.hashes[at] == hashes[places]])

    def rows_in(self, index: KeyIndex, gone: Numbers | None = None) -> tuple[pa.Table, Numbers]:
        """As :meth:`KeyLookup.rows_in`, by hashes alone."""
        numbers, _ = index.find(self.hashes)
        if not len(numbers):
            return index.rows.slice(0, 0), numbers
        return _living(index.rows.take(pa.array(numbers)), numbers, gone)


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The keys of one batch, to be looked for in many indexes; ``hashes`` ascend, each once, and ``counts`` keys have each."""

    keys: pa.Table
    hashes: Hashes
    counts: Numbers

    @classmethod
    def of(cls, keys: pa.Table) -> KeyLookup:
        """Those of a table of keys."""
        hashes = key_hashes(keys, keys.column_names)
        each, counts = np.unique(hashes, return_counts=True)
        return cls(keys.take(pa.array(np.argsort(hashes))), each, counts)

    def rows_in(self, index: KeyIndex, gone: Numbers | None = None) -> tuple[pa.Table, Numbers]:
        """The live rows that have such keys, and their numbers among all live rows of the file.

        ``gone`` are the numbers of the rows that are deleted, ascending.
        """
        numbers, found = index.find(self.hashes)
        if not len(numbers):  # as in most files that came of small batches
            return index.rows.slice(0, 0), numbers
        alike = self.keys.filter(pa.array(np.repeat(found, self.counts)))
        rows = index.rows.take(pa.array(numbers))
        equal = among(rows, values_of(alike, alike.column_names))
        if not equal.all():
            numbers, rows = numbers[equal], rows.filter(pa.array(equal))
        return _living(rows, numbers, gone)


@dataclass
class _Kept:
    index: KeyIndex
    nbytes: int
    is_in_memory: bool
    used_s: float


@dataclass
class KnownKeys:
    """The indexes that a process keeps, up to a number of bytes in memory and on disk."""

    memory_bytes: int = MEMORY_BYTES
    disk_bytes: int = DISK_BYTES
    _kept: OrderedDict[IndexName, _Kept] = field(default_factory=OrderedDict, repr=False)
    _seen: OrderedDict[IndexName, None] = field(default_factory=OrderedDict, repr=False)
    now_s: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def get(self, name: IndexName) -> KeyIndex | None:
        """The index of a file, if it is kept."""
        with self._lock:
            kept = self._kept.get(name)
            if kept is None:
                return None
            kept.used_s = self.now_s()
            self._kept.move_to_end(name)
            return kept.index

    def is_worth(self, name: IndexName, rows: int | None = None) -> bool:
        """Whether to make the index of a file that must be read now: its keys are asked for a second time, or it has few ``rows``.

        A process that looks once pays for no large index.
        """
        if rows is not None and rows <= SMALL_ROWS:
            return True
        with self._lock:
            if name in self._seen:
                return True
            self._seen[name] = None
            if len(self._seen) > _SEEN_MAX:
                self._seen.popitem(last=False)
            return False

    def put(self, name: IndexName, index: KeyIndex) -> None:
        """Keep an index if there is room."""
        size = index.nbytes
        if not index.rows.num_rows:
            return  # it is read soon enough
        with self._lock:
            in_memory = self._has_room(size, self.memory_bytes, is_in_memory=True)
            on_disk = not in_memory and index.rows.num_rows > SMALL_ROWS
            on_disk = on_disk and self._has_room(size, self._disk_bytes(), is_in_memory=False)
        if not in_memory and not on_disk:
            return
        if on_disk:
            try:
                index = index.on_disk()
            except OSError:
                return
        with self._lock:
            self._kept[name] = _Kept(index, size, in_memory, self.now_s())
            self._kept.move_to_end(name)

    def _has_room(self, size: int, limit: int, *, is_in_memory: bool) -> bool:
        """Make room by giving up what was not used for long; whether there is enough."""
        mine = [(name, kept) for name, kept in self._kept.items() if kept.is_in_memory == is_in_memory]
        used = sum(kept.nbytes for _, kept in mine)
        old = [(name, kept) for name, kept in mine if kept.used_s < self.now_s() - OLD_S]
        if used - sum(kept.nbytes for _, kept in old) + size > limit:
            return False
        for name, kept in old:
            if used + size <= limit:
                break
            del self._kept[name]
            used -= kept.nbytes
        return True

    def _disk_bytes(self) -> int:
        """How much the temporary files may take in all."""
        used = sum(kept.nbytes for kept in self._kept.values() if not kept.is_in_memory)
        try:
            free = shutil.disk_usage(tempfile.gettempdir()).free
        except OSError:
            return 0
        return min(self.disk_bytes, (free + used) // 4)

    def forget(self, names: Iterable[IndexName] | None = None) -> None:
        """Give up some indexes, or all."""
        with self._lock:
            for name in [*self._kept] if names is None else names:
                self._kept.pop(name, None)
            if names is None:
                self._seen.clear()

    def __len__(self) -> int:
        return len(self._kept)


known_keys = KnownKeys()
"""The indexes of this process; a forked child begins with those of its parent."""
