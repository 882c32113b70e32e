"""Spells partition values as Delta does, names directories after them, and groups rows by them.

Source: Delta PROTOCOL.md, "Partition Value Serialization".  Rows are grouped by the spelled values,
with NULL and NaN as groups of their own: nothing is dropped (H5, M21).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.errors import InternalError
from safewrite.frames.grouping import rows_by_code
from safewrite.frames.prepare import HIVE_NULL, Prepared
from safewrite.frames.types import NAIVE_TIMESTAMP

_NAME_LENGTH_MAX = 120
_NO_FOLDER = re.compile(r"[/\\\x00-\x1f\x7f]")
"""What cannot be part of a folder's name everywhere."""


@dataclass(frozen=True)
class Group:
    """The rows of one partition: their numbers, ascending, and their values as Delta spells them."""

    values: dict[str, str | None]
    rows: npt.NDArray[np.int64]


def spell(value: Any, *, utc: bool = False) -> str:
    """A partition value (not None) as a string of the Delta log.

    ``utc``: a time is an instant, given as its UTC clock; it is spelled in ISO 8601 with a ``Z``, so that no
    reader takes it for its local time.  Floats are spelled so that Java and Rust read back the same bits.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dt.datetime):
        clock = f"{value.hour:02}:{value.minute:02}:{value.second:02}.{value.microsecond:06}"
        day = value.date().isoformat()
        return f"{day}T{clock}Z" if utc else f"{day} {clock}"
    if isinstance(value, dt.date):
        return value.isoformat()
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def directory(values: dict[str, str | None], partition_by: Sequence[str]) -> str:
    """The directory of a partition, ``a=1/b=x/`` (or '').  Only a name: readers take values from the log.

    All but unreserved ASCII characters of a value are percent-encoded, so that no store or file system
    can take one value for another.  Long values are named by a hash, since names of files are limited.
    Column names stand unencoded, as deltalake writes them: polars looks for a partition column by
    its directory, and would not find ``w%20w`` in the schema.
    """
    parts = []
    for name in partition_by:
        value = values[name]
        text = HIVE_NULL if value is None else quote(value, safe="")
        if len(text) > _NAME_LENGTH_MAX:
            text = "long-" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        parts.append(f"{_NO_FOLDER.sub(lambda found: quote(found[0], safe=''), name)}={text}/")
    return "".join(parts)


def groups(prepared: Prepared, partition_by: Sequence[str]) -> list[Group]:
    """All rows of ``prepared`` by partition, in the order in which partitions first occur.

    Memory: some 16 bytes a row, and 4 for each partition column.
    """
    if prepared.rows == 0:
        return []
    spelled: list[dict[str | None, int]] = [{} for _ in partition_by]
    codes = [np.empty(prepared.rows, np.int32) for _ in partition_by]
    start = 0
    for table in prepared.tables(partition_by):
        for column, known, out in zip(table.columns, spelled, codes, strict=True):
            out[start : start + table.num_rows] = _codes(column, known)
        start += table.num_rows
    if start != prepared.rows:
        raise InternalError(f"{start} of {prepared.rows} rows were grouped by partition; please report this.")
    texts = [list(known) for known in spelled]
    return [
        Group({n: texts[i][codes[i][part[0]]] for i, n in enumerate(partition_by)}, part)
        for part in rows_by_code(codes, [len(known) for known in spelled])
    ]


def _codes(column: pa.ChunkedArray, known: dict[str | None, int]) -> npt.NDArray[np.int32]:
    """The number of each row's spelled value in ``known``, which grows by values not seen before."""
    utc = pa.types.is_timestamp(column.type) and column.type.tz is not None
    if utc:  # the same instants as UTC clocks: Python needs no time zone database then
        column = column.cast(NAIVE_TIMESTAMP)
    encoded = pc.dictionary_encode(pa.concat_arrays(column.chunks), null_encoding="encode")
    texts = [None if v is None else spell(v, utc=utc) for v in encoded.dictionary.to_pylist()]
    numbers = np.array([known.setdefault(text, len(known)) for text in texts], np.int32)
    found: npt.NDArray[np.int32] = numbers[encoded.indices.to_numpy(zero_copy_only=False)]
    return found
