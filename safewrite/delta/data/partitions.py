"""Spells partition values as Delta does, names directories after them, and groups rows by them.

Source: Delta PROTOCOL.md, "Partition Value Serialization".  Rows are grouped by the spelled values,
with NULL and NaN as groups of their own: nothing is dropped (H5).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.errors import InternalError, WouldAlterError
from safewrite.frames.grouping import rows_by_code
from safewrite.frames.prepare import HIVE_NULL, Prepared
from safewrite.values import compute as pc
from safewrite.values.types import NAIVE_TIMESTAMP

_FOLDER_BYTES_MAX = 255
_KEY_BYTES_MAX = 1024
_FILE_BYTES_MAX = 160
"""The longest name of a data file, with some room: it has the id of its write and its number."""
_SHORT_BYTES_MAX = 64
"""The longest name of a value that is no text."""
_NO_FOLDER = re.compile(r"[/\\\x00-\x1f\x7f]")
"""What cannot be part of a folder's name everywhere."""


@dataclass(frozen=True)
class PartitionRows:
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
    """The directory of a partition, ``a=1/b=x/`` (or ''), spelled as deltalake spells it.

    The values are in the log; polars takes them from here all the same, so no shorter name may stand for a long value:
    see :class:`Room`.  All but unreserved ASCII characters of a value are percent-encoded, so that no store or file
    system can take one value for another.  Column names stand unencoded, as deltalake writes them: polars looks for a partition column by
    its directory, and would not find ``w%20w`` in the schema.
    """
    parts = []
    for name in partition_by:
        value = values[name]
        text = HIVE_NULL if value is None else quote(value, safe="")
        parts.append(f"{_NO_FOLDER.sub(lambda found: quote(found[0], safe=''), name)}={text}/")
    return "".join(parts)


@dataclass(frozen=True)
class Room:
    """How long the directories of a table may be: a local folder's name has 255 bytes, a key of S3 has 1,024 in all."""

    prefix: str | None = None
    """What comes before the directory in a key of S3; None for a local table."""

    def holds(self, folder: str) -> bool:
        """Whether a directory of partitions, or one that is as long, can be made there."""
        if self.prefix is None:
            return all(len(part.encode()) <= _FOLDER_BYTES_MAX for part in folder.split("/"))
        return len(self.prefix.encode()) + len(folder.encode()) + _FILE_BYTES_MAX <= _KEY_BYTES_MAX

    def check(self, tables: Iterable[pa.Table], partition_by: Sequence[str]) -> None:
        """Refuse rows whose directory is too long.

        Raises:
            WouldAlterError: names the first one.
        """
        first = 0
        for table in tables:
            if not self.holds(_longest(table, partition_by)):
                rows = zip(*(table.column(name).to_pylist() for name in partition_by), strict=True)
                for number, row in enumerate(rows, first):
                    spelled = {
                        name: None if value is None else spell(value)
                        for name, value in zip(partition_by, row, strict=True)
                    }
                    self.check_folder(directory(spelled, partition_by), f", row {number}")
            first += table.num_rows

    def check_folder(self, folder: str, where: str = "") -> None:
        """Refuse one directory.

        Raises:
            WouldAlterError: it is too long.
        """
        if self.holds(folder):
            return
        names = ", ".join(repr(unquote(part.partition("=")[0])) for part in folder.split("/")[:-1])
        most = (
            f"the key of a file in S3 has at most {_KEY_BYTES_MAX} bytes"
            if self.prefix is not None
            else f"the name of a folder has at most {_FOLDER_BYTES_MAX} bytes"
        )
        raise WouldAlterError(
            f"Column {names}{where}: its folder {folder[:60]!r}... would have {len(folder.encode())} bytes, and {most}. Readers "
            "such as polars take partition values from the folder, so a shorter name would be another value. Nothing was "
            "written. Shorten the value, or do not partition by this column."
        )


def _longest(table: pa.Table, partition_by: Sequence[str]) -> str:
    """A directory that is as long as the longest that the rows may have."""
    longest = {}
    for name in partition_by:
        column = table.column(name)
        values = (
            pc.unique(column).to_pylist() if pa.types.is_string(column.type) else ["x" * _SHORT_BYTES_MAX]
        )
        longest[name] = max(
            (v for v in values if v is not None), key=lambda v: len(quote(v, safe="")), default=None
        )
    return directory(longest, partition_by)


def groups(prepared: Prepared, partition_by: Sequence[str]) -> list[PartitionRows]:
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
        PartitionRows({n: texts[i][codes[i][part[0]]] for i, n in enumerate(partition_by)}, part)
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
