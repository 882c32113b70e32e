"""Reads rows of Parquet files, whoever wrote them: INT96 in full, and each layout of a type as the one that all of Arrow's functions know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from safewrite.values.limits import span_of

_NS_PER_S = 10**9


class ParquetRows:
    """The rows of a Parquet file; ``source`` opens it, once for each way of reading it.

    Raises:
        ArrowException, OSError: it is none, also from its methods.
    """

    def __init__(self, source: Callable[[], IO[bytes] | pa.NativeFile], *, pre_buffer: bool = True) -> None:
        self._source, self._pre_buffer = source, pre_buffer
        self._file = self._opened("ns")
        self._int96 = _int96(self._file)

    def _opened(self, int96_unit: str) -> pq.ParquetFile:
        return pq.ParquetFile(
            self._source(), pre_buffer=self._pre_buffer, coerce_int96_timestamp_unit=int96_unit
        )

    @property
    def metadata(self) -> pq.FileMetaData:
        return self._file.metadata

    def none(self) -> pa.Table:
        """No rows, with the file's columns."""
        return _plain(self._file.schema_arrow.empty_table())

    def read(self) -> pa.Table:
        """All rows."""
        return _plain(self._exact(self._file.read(), self._seconds(range(self._file.num_row_groups)), 0))

    def batches(self, rows: int, groups: Sequence[int]) -> Iterator[pa.Table]:
        """The rows of some row groups, so many at a time."""
        seconds, at = self._seconds(groups), 0
        for batch in self._file.iter_batches(rows, row_groups=[*groups], use_threads=False):
            yield _plain(self._exact(pa.Table.from_batches([batch]), seconds, at))
            at += batch.num_rows

    def _seconds(self, groups: Sequence[int]) -> pa.Table | None:
        """The INT96 columns in whole seconds, which hold each of them; None where there is none."""
        return (
            self._opened("s").read_row_groups([*groups], self._int96, use_threads=False)
            if self._int96
            else None
        )

    def _exact(self, rows: pa.Table, seconds: pa.Table | None, at: int) -> pa.Table:
        if seconds is None:
            return rows
        for name in self._int96:
            column = _time(rows[name], seconds[name].slice(at, rows.num_rows))
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows


def _int96(file: pq.ParquetFile) -> list[str]:
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    return [leaf.name for leaf in leaves if leaf.physical_type == "INT96" and leaf.path == leaf.name]


def _time(wrapped: pa.ChunkedArray, seconds: pa.ChunkedArray) -> pa.ChunkedArray:
    """INT96 as microseconds, or where one has more digits as texts.

    It holds a day and nanoseconds.  Nanoseconds since 1970 have 64 bits for the years 1677 to 2262 only, and other years wrap around:
    what they are beyond whole seconds is right all the same.
    """
    first, last = span_of(86_400)
    whole, low = (_numbers(one) for one in (seconds, wrapped))
    below = (low - whole * _NS_PER_S) % _NS_PER_S
    micros = np.clip(whole, first - 1, last + 1) * 10**6 + below // 1000
    zone = wrapped.type.tz
    times = pa.array(micros, pa.timestamp("us"), mask=np.asarray(seconds.is_null()))
    rest = pa.array(below % 1000)
    if not pc.any(pc.greater(rest, 0)).as_py():
        return pa.chunked_array([times.cast(pa.timestamp("us", zone)) if zone else times])
    digits = pc.utf8_lpad(rest.cast(pa.string()), 3, "0")
    return pa.chunked_array([pc.binary_join_element_wise(times.cast(pa.string()), digits, "")])


def _numbers(column: pa.ChunkedArray) -> Any:
    return pc.fill_null(column.cast(pa.int64()), 0).to_numpy()


def _plain(rows: pa.Table) -> pa.Table:
    columns = [_known(column) for column in rows.columns]
    return pa.table(columns, names=rows.column_names)


def _known(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without dictionary, views, half floats and narrow decimals, which not all functions take."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _known(column.cast(kind.value_type))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal(kind) and kind.bit_width < 128:
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    return column
