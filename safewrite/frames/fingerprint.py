"""Fingerprints rows by their values alone: order, chunks and kind of frame do not matter.

A repeat of a key is compared by it (promise 6, E2), so it must be equal for equal rows and differ otherwise.
Version 1:

* cell: two 64-bit hashes of the value's canonical bits (integers, dates, timestamps as int64; floats
  as float64 with one NaN and one zero, so that -0.0 equals 0.0 and NaN equals NaN as they do in Delta;
  decimals as 128-bit integers; strings and bytes by 8-byte words with their positions and length),
  mixed with a seed of the column's name and kind;
* row: the sum of its cells that are not NULL, mixed again.  A NULL adds nothing, so a nullable column
  added later leaves old fingerprints as they were; NULL, ``''`` and ``'NULL'`` differ;
* rows: the sum of the row hashes in each of the two lanes, modulo 2^64, and the number of rows.

A list adds its elements by position, a map its entries without regard to order, a struct its fields
by name.  Columns that are left out (``volatile=``) take part by their names only, which are mixed into the
result.  This guards against mistakes, not against collisions made on purpose.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.errors import InternalError, InvalidInputError
from safewrite.frames.column_digests import packed
from safewrite.frames.conform import entries_of
from safewrite.values import compute as pc

Lane: TypeAlias = npt.NDArray[np.uint64]
Pair: TypeAlias = tuple[Lane, Lane]
Lanes = TypeVar("Lanes", bound=tuple[Lane, ...])

_BLOCK_ROWS = 32_768  # lanes of this length stay in the processor's cache
_M1, _M2, _M3, _M4 = (
    np.uint64(n) for n in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD)
)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_TEXT = re.compile(r"(v1|spark1|offsets1):(\d+):([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Number of rows and 128-bit digest; ``str()`` gives ``v1:<rows>:<hex>``.

    ``kind`` says what the digest covers: ``v1``, the rows, by this module; ``spark1``, the rows, by Spark;
    ``offsets1``, the origin of a stream's batch.  Fingerprints of two kinds are never equal.
    """

    rows: int
    digest: str
    kind: str = "v1"

    def __str__(self) -> str:
        if not self.digest:
            raise InternalError("Rows without a fingerprint were to name a write. Please report it.")
        return f"{self.kind}:{self.rows}:{self.digest}"

    @classmethod
    def parse(cls, text: str) -> Fingerprint:
        """The fingerprint that ``str()`` wrote; raises InvalidInputError for other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise InvalidInputError(f"{text!r} is no fingerprint of the form v1:<rows>:<32 hex digits>.")
        return cls(int(match[2]), match[3], match[1])

    def leaving_out(self, volatile: Sequence[str]) -> Fingerprint:
        """The same rows without these columns: equal only to what leaves out the same ones (promise 6).

        A ledger and a stream's last batch hold nothing else than this text, so the names must be in it.
        """
        if not volatile:
            return self
        names = json.dumps(sorted(set(volatile))).encode()
        mark = int.from_bytes(hashlib.blake2b(names, digest_size=16).digest(), "big")
        return replace(self, digest=f"{int(self.digest, 16) ^ mark:032x}")

    def plus(self, other: Fingerprint) -> Fingerprint:
        """The fingerprint of the rows of both, which leave out no columns."""
        high, low = (
            (int(self.digest[part], 16) + int(other.digest[part], 16)) % 2**64
            for part in (slice(16), slice(16, None))
        )
        return Fingerprint(self.rows + other.rows, f"{high:016x}{low:016x}", self.kind)

    @property
    def int63(self) -> int:
        """A stable number of 63 bits made of rows and digest, for places that hold an integer."""
        hashed = hashlib.blake2b(str(self).encode(), digest_size=8).digest()
        return int.from_bytes(hashed, "big") >> 1


class Fingerprinter:
    """Adds up the fingerprint of conformed tables, in any order and cut anywhere; columns can be left out."""

    def __init__(self, volatile: Sequence[str] = ()) -> None:
        self.rows = 0
        self._sums = [0, 0]
        self._volatile = tuple(volatile)
        self._columns: dict[str, int] = {}

    def update(self, conformed: pa.Table) -> None:
        """Add the rows of a table that has canonical types (as ``conform`` returns it)."""
        self.rows += conformed.num_rows
        for batch in conformed.to_batches(max_chunksize=_BLOCK_ROWS):
            rows = _fields(_hashed(batch, self._volatile), batch.num_rows, "row", self._note)
            for lane, values in enumerate(rows):
                self._sums[lane] = (self._sums[lane] + int(values.sum(dtype=np.uint64))) % 2**64

    def add(self, other: Fingerprinter) -> None:
        """Add the rows that another one counted, with the same columns left out."""
        self.rows += other.rows
        self._sums = [(own + theirs) % 2**64 for own, theirs in zip(self._sums, other._sums, strict=True)]
        for name, total in other._columns.items():
            self._columns[name] = (self._columns.get(name, 0) + total) % 2**64

    def _note(self, name: str, cells: Lane) -> None:
        self._columns[name] = (self._columns.get(name, 0) + int(cells.sum(dtype=np.uint64))) % 2**64

    def result(self) -> Fingerprint:
        """The fingerprint of all rows so far."""
        rows = Fingerprint(self.rows, f"{self._sums[0]:016x}{self._sums[1]:016x}")
        return rows.leaving_out(self._volatile)

    def column_digests(self) -> str:
        """Short digests of the columns so far; see ``safewrite.frames.column_digests``."""
        return packed(self._columns)


class PartsFingerprinter:
    """Adds up the fingerprint of each of many parts in one pass; each is what the part has alone.

    ``rows`` are the numbers of rows of the parts, which follow one another in the tables.
    """

    def __init__(self, rows: Sequence[int], volatile: Sequence[str] = ()) -> None:
        self._rows = list(rows)
        self._ends = np.cumsum(self._rows, dtype=np.int64)
        self._seen = 0
        self._sums = np.zeros(len(rows), np.uint64), np.zeros(len(rows), np.uint64)
        self._volatile = tuple(volatile)
        self._columns: dict[str, Lane] = {}

    def update(self, conformed: pa.Table) -> None:
        """Add the next rows; see :class:`Fingerprinter`."""
        for batch in conformed.to_batches(max_chunksize=_BLOCK_ROWS):
            ends = np.clip(self._ends - self._seen, 0, batch.num_rows)
            starts = np.concatenate(([0], ends[:-1]))
            cut = partial(_summed, starts=starts, counts=ends - starts)
            rows = _fields(_hashed(batch, self._volatile), batch.num_rows, "row", partial(self._note, cut))
            for total, part in zip(self._sums, cut(rows), strict=True):
                total += part  # noqa: PLW2901 - in place
            self._seen += batch.num_rows

    def _note(self, cut: Callable[[tuple[Lane, ...]], tuple[Lane, ...]], name: str, cells: Lane) -> None:
        (sums,) = cut((cells,))
        self._columns[name] = sums + self._columns.get(name, np.uint64(0))

    def results(self) -> list[Fingerprint]:
        """The fingerprints of the parts, in their order.

        Raises:
            InternalError: the tables had another number of rows.
        """
        if self._seen != sum(self._rows):
            raise InternalError(f"{self._seen} rows came of {sum(self._rows)}; please report this.")
        lanes = zip(self._rows, *(lane.tolist() for lane in self._sums), strict=True)
        alone = [Fingerprint(rows, f"{first:016x}{second:016x}") for rows, first, second in lanes]
        return [one.leaving_out(self._volatile) for one in alone]

    def column_digests(self) -> list[str]:
        """Short digests of the columns of each part; see ``safewrite.frames.column_digests``."""
        columns = {name: sums.tolist() for name, sums in self._columns.items()}
        return [
            packed({name: sums[part] for name, sums in columns.items()}) for part in range(len(self._rows))
        ]


def _hashed(batch: pa.RecordBatch, volatile: Sequence[str]) -> list[tuple[str, pa.Array]]:
    """The columns that take part."""
    left_out = frozenset(volatile)
    return [(name, batch.column(i)) for i, name in enumerate(batch.schema.names) if name not in left_out]


def row_hashes(conformed: pa.Table) -> Pair:
    """Two 64-bit hashes of each row of a table that has canonical types: equal for equal rows."""
    lanes: tuple[list[Lane], list[Lane]] = ([np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)])
    for batch in conformed.to_batches(max_chunksize=_BLOCK_ROWS):
        columns = [(name, batch.column(i)) for i, name in enumerate(batch.schema.names)]
        for lane, values in zip(lanes, _fields(columns, batch.num_rows, "row"), strict=True):
            lane.append(values)
    return np.concatenate(lanes[0]), np.concatenate(lanes[1])


def _seed(*parts: str) -> tuple[np.uint64, np.uint64]:
    hashed = hashlib.blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return np.uint64(int.from_bytes(hashed[:8], "big")), np.uint64(int.from_bytes(hashed[8:], "big"))


def _mix(x: Lane, factor_1: np.uint64 = _M1, factor_2: np.uint64 = _M2) -> Lane:
    """The finaliser of splitmix64, in place: a bijection in which every bit changes half of the others."""
    x ^= x >> np.uint64(30)
    x *= factor_1
    x ^= x >> np.uint64(27)
    x *= factor_2
    x ^= x >> np.uint64(31)
    return x


def _pair(bits: Lane, name: str) -> Pair:
    """Two hashes of 64-bit values."""
    seed_1, seed_2 = _seed(name)
    first = _mix(bits + seed_1)
    return first, _mix(first + seed_2, _M3, _M4)


def _seeded(pair: Pair, name: str) -> Pair:
    """Hashes mixed with a name."""
    seed_1, seed_2 = _seed(name)
    return _mix(pair[0] + seed_1), _mix(pair[1] + seed_2, _M3, _M4)


def _fields(
    columns: list[tuple[str, pa.Array]],
    rows: int,
    kind: str,
    note: Callable[[str, Lane], None] | None = None,
) -> Pair:
    """The hashes of rows (or structs): the sum of the cells that are not NULL, mixed.

    ``note`` gets the cells of each column.
    """
    first, second = np.zeros(rows, np.uint64), np.zeros(rows, np.uint64)
    for name, values in columns if rows else ():
        cells = _values(values, name)
        if values.null_count:
            valid = pc.is_valid(values).to_numpy(zero_copy_only=False)
            cells = cells[0] * valid, cells[1] * valid
        first += cells[0]
        second += cells[1]
        if note is not None:
            note(name, cells[0])
    return _seeded((first, second), kind)


def _values(values: pa.Array, name: str) -> Pair:
    """The hashes of a column's values; bytes beneath a NULL do not matter."""
    kind = values.type
    if pa.types.is_fixed_size_binary(kind):
        values, kind = values.cast(pa.binary()), pa.binary()
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _seeded(_bytes(values), f"{name}\x1f{'s' if pa.types.is_string(kind) else 'x'}")
    if pa.types.is_struct(kind):
        children = values.flatten()
        inner = [(kind.field(i).name, children[i]) for i in range(kind.num_fields)]
        return _seeded(_fields(inner, len(values), "struct"), name)
    if pa.types.is_map(kind):
        return _seeded(_elements(entries_of(values), "entry", ordered=False), name)
    if pa.types.is_list(kind):
        return _seeded(_elements(values, "element", ordered=True), name)
    if pa.types.is_decimal(kind):
        return _seeded(_decimals(values), f"{name}\x1fd{kind.scale}")
    return _pair(*_bits(values, name))


def _bits(values: pa.Array, name: str) -> tuple[Lane, str]:
    """The canonical 64 bits of simple values (anything where NULL), and the name mixed with their kind."""
    kind = values.type
    if pa.types.is_boolean(kind):
        return _filled(values).astype(np.uint64), f"{name}\x1fb"
    if pa.types.is_floating(kind):
        numbers = _filled(values).astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
        numbers[np.isnan(numbers)] = np.nan
        return numbers.view(np.uint64), f"{name}\x1ff"
    tag = "i"  # one kind for all widths: widening a column changes nothing
    if pa.types.is_date(kind):
        values, tag = values.view(pa.int32()), "D"
    elif pa.types.is_timestamp(kind):
        values, tag = values.view(pa.int64()), "T" if kind.tz else "t"
    elif pa.types.is_time(kind):
        values, tag = values.view(pa.int64()), "c"
    return _filled(values).astype(np.int64).view(np.uint64), f"{name}\x1f{tag}"


def _filled(values: pa.Array) -> npt.NDArray[np.generic]:
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    if values.null_count:
        values = pc.fill_null(
            values, pa.scalar(False if pa.types.is_boolean(values.type) else 0, values.type)
        )
    array: npt.NDArray[np.generic] = values.to_numpy(zero_copy_only=False)
    return array


def _decimals(values: pa.Array) -> Pair:
    words = np.frombuffer(values.buffers()[1], np.uint64)[
        2 * values.offset : 2 * (values.offset + len(values))
    ]
    low, high = _pair(words[0::2], "low"), _pair(words[1::2], "high")
    return low[0] + high[0], low[1] + high[1]


def _bytes(values: pa.Array) -> Pair:
    """Hashes of strings: every 8-byte word is mixed with its position, then summed with the length."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    data = _padded(values.buffers()[2], int(offsets[0]) if len(offsets) else 0, int(offsets[-1]))
    # A turn of its loop is for a word of all rows: few rows of long values would take many turns.
    if len(lengths) and 0 < lengths[0] <= 8 * len(lengths) and (lengths == lengths[0]).all():
        return _equal_lengths(data[:-8].reshape(len(lengths), int(lengths[0])))
    starts -= offsets[0]
    counts = (lengths + 7) >> 3
    ends = np.cumsum(counts)
    place = np.arange(int(ends[-1]) if len(ends) else 0, dtype=np.int64) - np.repeat(ends - counts, counts)
    # every byte offset as the start of an (unaligned) 8-byte word
    windows = np.lib.stride_tricks.as_strided(
        data[:8].view(np.uint64), shape=(len(data) - 7,), strides=(1,), writeable=False
    )
    words = windows[np.repeat(starts, counts) + (place << 3)]
    rest = np.repeat(lengths, counts) - (place << 3)
    short = rest < 8
    words[short] &= (np.uint64(1) << (rest[short].astype(np.uint64) << np.uint64(3))) - np.uint64(1)
    words += (place.astype(np.uint64) + np.uint64(1)) * _GOLDEN
    sums = _summed(_pair(words, "word"), ends - counts, counts)
    size = lengths.astype(np.uint64)
    return sums[0] + size, sums[1] + size


def _equal_lengths(data: npt.NDArray[np.uint8]) -> Pair:
    """As :func:`_bytes` for strings of one length, a row for each: uuids, hexadecimal digests."""
    length = data.shape[1]
    whole = np.zeros((len(data), (length + 7) // 8 * 8), np.uint8)
    whole[:, :length] = data
    first = second = np.full(len(data), length, np.uint64)
    for place, words in enumerate(whole.view(np.uint64).T):
        one = _pair(words + np.uint64((place + 1) * int(_GOLDEN) % 2**64), "word")
        first, second = first + one[0], second + one[1]
    return first, second


def _padded(buffer: pa.Buffer | None, start: int, stop: int) -> npt.NDArray[np.uint8]:
    data = np.zeros(stop - start + 8, np.uint8)
    if buffer is not None and stop > start:
        data[: stop - start] = np.frombuffer(buffer, np.uint8)[start:stop]
    return data


def _elements(values: pa.ListArray, kind: str, *, ordered: bool) -> Pair:
    """Hashes of lists: elements mixed with their position (or not, for maps), summed with the length."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    inner = pc.list_flatten(values)
    hashed = _fields([(kind, inner)], len(inner), "element")  # a NULL element is an element too
    starts = np.cumsum(lengths) - lengths
    if ordered:
        place = (np.arange(len(inner), dtype=np.int64) - np.repeat(starts, lengths)).astype(np.uint64)
        shift = (place + np.uint64(1)) * _GOLDEN
        hashed = _mix(hashed[0] + shift), _mix(hashed[1] + shift, _M3, _M4)
    sums = _summed(hashed, starts, lengths)
    size = lengths.astype(np.uint64)
    return sums[0] + size, sums[1] + size


def _summed(lanes: Lanes, starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> Lanes:
    """Sums of the consecutive runs that lanes consist of; a run without members sums to 0."""
    some = counts > 0
    result = tuple(np.zeros(len(counts), np.uint64) for _ in lanes)
    if some.any():
        for lane, values in zip(result, lanes, strict=True):
            lane[some] = np.add.reduceat(values, starts[some])
    return cast(Lanes, result)


class Counted(Protocol):
    """Rows that were counted and fingerprinted: a prepared frame, or a batch of Spark's."""

    @property
    def rows(self) -> int: ...

    @property
    def fingerprint(self) -> Fingerprint: ...

    @property
    def volatile(self) -> tuple[str, ...]:
        """Columns that the fingerprint leaves out."""

    @property
    def column_digests(self) -> str:
        """Short digests of the columns; empty where there are none."""
