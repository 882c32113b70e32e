"""Decodes and encodes vectors of rows that are gone from a data file, which Delta and Iceberg store in the same form.

A vector is a 64-bit roaring bitmap of row numbers; its length and its checksum stand around it (Delta's PROTOCOL.md, "Deletion
Vectors"; Iceberg's Puffin specification, "deletion-vector-v1").
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.errors import MissingExtraError

if TYPE_CHECKING:
    from pyroaring import BitMap64

MAGIC = 1681511377
"""Begins a vector: "portable" roaring bitmaps.  Nothing writes the other form, 1681511376, which most readers refuse."""
WORD = 4


class VectorError(Exception):
    """A vector that cannot be read, and why: part of a sentence."""


def bitmap(numbers: Numbers | None = None) -> BitMap64:
    """A bitmap of row numbers; an empty one without them.

    Raises:
        MissingExtraError: pyroaring is not installed.
    """
    try:
        from pyroaring import BitMap64
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Deletion vectors of Delta tables are read and written with pyroaring: {MissingExtraError.command('delta')}. "
            "Nothing was written."
        ) from error
    return BitMap64() if numbers is None else BitMap64(numbers.astype(np.uint64))


def live(gone: BitMap64, rows: int) -> Flags:
    """Which of so many rows of a data file are left.

    Raises:
        VectorError: the vector names rows that the file does not have.
    """
    flags = np.ones(rows, np.bool_)
    flags[numbers_in(gone, rows)] = False
    return flags


def numbers_in(gone: BitMap64, rows: int) -> Numbers:
    """The rows of a data file with so many that are gone, ascending.  Raises as :func:`live`."""
    numbers = np.frombuffer(gone.to_array(), np.uint64)
    if len(numbers) and int(numbers[-1]) >= rows:
        raise VectorError(f"it names row {numbers[-1]} of {rows}")
    return numbers.astype(np.int64)


def unframed(body: bytes, start: int, size: int) -> bytes:
    """The bytes of one vector of a file: at ``start`` are its size, ``size`` bytes and their CRC-32, numbers big-endian.

    Raises:
        VectorError: it is not there, or damaged.
    """
    end = start + WORD + size
    if start < 0 or size < 0 or len(body) < end + WORD:
        raise VectorError("its file is cut off")
    if int.from_bytes(body[start : start + WORD], "big") != size:
        raise VectorError("its file has another vector at that place")
    data = body[start + WORD : end]
    if zlib.crc32(data) != int.from_bytes(body[end : end + WORD], "big"):
        raise VectorError("its checksum is not that of its bytes")
    return data


def deserialized(data: bytes, count: int) -> BitMap64:
    """The rows that a vector takes away, of which there are so many.

    Raises:
        VectorError: it is damaged, or of another format.
    """
    if data[:WORD] != MAGIC.to_bytes(WORD, "little"):
        raise VectorError("it is of a format that is not known")
    try:
        found = bitmap().deserialize(data[WORD:])
    except ValueError as error:
        raise VectorError("its bitmap cannot be read") from error
    if len(found) != count:
        raise VectorError(f"it names {len(found)} rows, not {count}")
    return found


def serialized(gone: BitMap64) -> bytes:
    """The bytes of a vector."""
    small = gone.copy()
    small.run_optimize()
    return MAGIC.to_bytes(WORD, "little") + small.serialize()


def framed(data: bytes) -> bytes:
    """The bytes of a vector as a file has them: see :func:`unframed`."""
    return len(data).to_bytes(WORD, "big") + data + zlib.crc32(data).to_bytes(WORD, "big")
