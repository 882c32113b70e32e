"""Turns what users hold (pandas, Arrow, polars, dicts) into columns that can be read again and again.

A write may have to be repeated, so its rows must be there a second time: generators, iterators and Arrow
streams are refused, because a drained stream appends nothing on a retry, unnoticed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from safewrite.arguments.reading import reading
from safewrite.errors import InvalidInputError
from safewrite.frames.columns import (
    ArrowColumn,
    CategoryColumn,
    ExtensionColumn,
    FrameColumn,
    Indices,
    NumpyColumn,
    ObjectColumn,
    PolarsColumn,
    is_sparse,
)
from safewrite.text.rendering import kind, said, shown
from safewrite.values.types import check_names

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class Frame:
    """Rows that can be read any number of times, a slice at a time.

    ``nbytes`` is the memory of the source in bytes (an estimate for Python objects).  ``ragged`` is
    the path of a key that some dicts have and others lack, or None.
    """

    def __init__(
        self, columns: Sequence[FrameColumn], rows: int, nbytes: int, *, ragged: str | None = None
    ) -> None:
        check_names([c.name for c in columns], where="the data")
        self._columns = {c.name: c for c in columns}
        self.rows = rows
        self.nbytes = nbytes
        self.ragged = ragged

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names in the order of the source."""
        return tuple(self._columns)

    def arrow_schema(self) -> pa.Schema:
        """The Arrow types as found, over all rows."""
        return pa.schema([pa.field(c.name, c.kind, nullable=c.nullable) for c in self._columns.values()])

    def piece(self, start: int, stop: int, *, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows ``start`` to ``stop`` of all columns, or of those named."""
        chosen = [self._columns[name] for name in (self._columns if columns is None else columns)]
        return _table(chosen, [c.piece(start, stop) for c in chosen])

    def take(self, rows: Indices) -> pa.Table:
        """The rows with these numbers, in this order."""
        chosen = list(self._columns.values())
        return _table(chosen, [c.take(rows) for c in chosen])


def _table(columns: Sequence[FrameColumn], arrays: Sequence[pa.ChunkedArray]) -> pa.Table:
    return pa.table(list(arrays), names=[c.name for c in columns])


@reading("The data")
def as_frame(data: object, *, target: pa.Schema | None = None) -> Frame:
    """``data`` as a Frame.

    Takes a pandas DataFrame, a pyarrow Table or RecordBatch, a list of RecordBatches, a polars
    DataFrame or LazyFrame (collected), a list of dicts, a dict of columns, and any other table that
    exports Arrow streams repeatedly.

    Missing values: None, pandas.NA, NaT and masks are NULL.  NaN is a number: a column of floats keeps it, and any
    other refuses it, whatever the other rows hold.  In a pandas column of dtype ``object`` NaN is pandas' own mark
    of a missing value, and is NULL in a column that holds no numbers.  A pandas index is left out as deltalake and PyIceberg leave it out, but a *named* one is refused,
    since it holds data.  Names are case-sensitive; names that differ in case alone are refused.

    ``target`` only tells how to read Python objects that can be
    two things (a dict is a struct or a map).  Raises InvalidInputError for anything else.
    """
    if isinstance(data, Frame):
        return data
    if isinstance(data, pa.Table):
        return _from_arrow(data)
    if isinstance(data, pa.RecordBatch):
        return _from_arrow(pa.Table.from_batches([data]))
    if isinstance(data, Mapping):
        return _from_columns(data, target)
    if isinstance(data, (list, tuple)):
        return _from_list(data, target)
    if is_spark(data):
        raise InvalidInputError(
            "A Spark DataFrame is written by Spark, with append(), overwrite() or a sink of the table. Nothing was "
            "written here. For another call, collect it first if it is small: frame.toArrow()."
        )
    if issubclass(type(data), type):
        raise InvalidInputError(
            f"{shown(data)} is a class, and no table. Nothing was written. Pass an object of it: is '()' missing?"
        )
    module = kind(data).partition(".")[0]
    name = type(data).__name__
    if module == "pandas" and name == "DataFrame":
        return _from_pandas(data, target)
    if module == "polars" and name in ("DataFrame", "LazyFrame"):
        return _from_polars(data)
    if isinstance(data, (pa.RecordBatchReader, Iterator)) or hasattr(data, "__next__"):
        raise InvalidInputError(
            f"A {name} can be read only once, so a retry would append nothing. Nothing was written. "
            "Read it into a table first: reader.read_all(), list(...), or pandas.DataFrame(...)."
        )
    if hasattr(data, "__arrow_c_stream__"):
        return _from_stream(data)
    raise InvalidInputError(
        f"{_named(data)} is no table. Nothing was written. Pass a pandas, pyarrow or "
        "polars table, a list of dicts, or a dict of columns."
    )


def _named(data: object) -> str:
    """What was given instead of a table, by its type."""
    if data is None:
        return "None"
    name = kind(data).removeprefix("builtins.")
    return f"{'An' if name[:1].lower() in 'aeiou' else 'A'} {name}"


def is_spark(data: object) -> bool:
    """Whether ``data`` is a Spark DataFrame, which only Spark itself can write."""
    return kind(data).startswith("pyspark.sql.") and type(data).__name__ == "DataFrame"


def refuse_stream(data: Any) -> None:
    """Refuse a Spark frame whose rows come batch by batch.

    Raises:
        InvalidInputError: it is one.
    """
    if getattr(data, "isStreaming", False) is True:
        raise InvalidInputError(
            "This Spark DataFrame is a stream: its rows come batch by batch. Nothing was written. Give its batches to a sink: "
            "stream.writeStream.foreachBatch(table.sink('append', app_id='the-name-of-the-stream')).start()"
        )


def _from_arrow(table: pa.Table) -> Frame:
    check_names(table.column_names, where="the data")
    if any(map(pa.types.is_nested, table.schema.types)):
        from safewrite.boundary.absent_offsets import with_offsets

        table = with_offsets(table)
    columns = [ArrowColumn(f.name, table.column(i), nullable=f.nullable) for i, f in enumerate(table.schema)]
    return Frame(columns, table.num_rows, table.nbytes)


def _from_stream(data: Any) -> Frame:
    """Columns of a foreign table; it is exported twice, to check that the second export gives the rows again."""
    try:
        table = pa.table(data)
    except (pa.ArrowException, RuntimeError, ValueError, TypeError, OSError) as error:
        raise InvalidInputError(
            f"A {kind(data)} is no table ({said(error)}). Nothing was written. Pass a "
            "DataFrame or table with named columns; a single column as {'name': column}."
        ) from error
    try:
        again = sum(batch.num_rows for batch in pa.RecordBatchReader.from_stream(data))
    except (pa.ArrowException, RuntimeError, ValueError, OSError) as error:
        again = -1
        reason = str(error)
    else:
        reason = f"{table.num_rows} rows the first time, {again} the second"
    if again != table.num_rows:
        raise InvalidInputError(
            f"A {type(data).__name__} cannot be read twice ({reason}), so a retry would not append the "
            "same rows. Nothing was written. Read it into a pyarrow Table first: pyarrow.table(data)."
        )
    return _from_arrow(table)


def _from_pandas(data: Any, target: pa.Schema | None) -> Frame:
    check_names(list(data.columns), where="the data")
    if data.index.nlevels > 1 or data.index.name is not None:
        names = list(data.index.names)
        raise InvalidInputError(
            f"The DataFrame has the index {names}, which would not be written. Nothing was written. "
            "Call df.reset_index() to write it as columns, or df.reset_index(drop=True) to leave it out."
        )
    each = list(data.items())  # by position, as iloc gives them, which takes three times as long
    columns = [_pandas_column(name, series, target) for name, series in each]
    nbytes = sum(_bytes_of(series) for _, series in each)
    return Frame(columns, len(data), nbytes, ragged=_ragged(columns))


def _bytes_of(series: Any) -> int:
    """What a column takes in memory; pandas 2 cannot say it of the texts of a sparse one."""
    return int(series.memory_usage(index=False, deep=not is_sparse(series.dtype)))


def _pandas_column(name: str, series: Any, target: pa.Schema | None) -> FrameColumn:
    if series.dtype == object:
        return ObjectColumn(name, series.to_numpy(), _hint(target, name), of_pandas=True)
    if is_sparse(series.dtype) and np.dtype(object) == series.dtype.subtype:
        dense = series.sparse.to_dense().to_numpy()
        return ObjectColumn(name, dense, _hint(target, name), of_pandas=True)
    if isinstance(series.dtype, np.dtype):
        return NumpyColumn(name, series.to_numpy())
    categories = getattr(series.dtype, "categories", None)
    if categories is not None and categories.dtype == object:
        return CategoryColumn(name, series, _hint(target, name))
    return ExtensionColumn(name, series)


def _from_polars(data: Any) -> Frame:
    if hasattr(data, "collect"):
        data = data.collect()
    columns = [PolarsColumn(series.name, series) for series in data.get_columns()]
    return Frame(columns, data.height, int(data.estimated_size()))


def _from_list(data: Sequence[Any], target: pa.Schema | None) -> Frame:
    if data and all(isinstance(item, pa.RecordBatch) for item in data):
        try:
            return _from_arrow(pa.Table.from_batches(list(data)))
        except pa.ArrowInvalid as error:
            raise InvalidInputError(
                f"The record batches have different schemas ({said(error)}). Nothing was written. Cast them to one."
            ) from error
    for row, item in enumerate(data):
        if not isinstance(item, Mapping):
            raise InvalidInputError(
                f"Row {row} is of type {type(item).__name__}, not a dict. Nothing was written. "
                "Pass a list of dicts (or of pyarrow RecordBatches)."
            )
    return _from_dicts(data, target)


def _from_dicts(rows: Sequence[Mapping[Any, Any]], target: pa.Schema | None) -> Frame:
    """Columns from the keys of *all* rows: pyarrow itself looks at the first row only (H1)."""
    counts: dict[Any, int] = {}
    for row in rows:
        for key in row:
            counts[key] = counts.get(key, 0) + 1
    check_names(list(counts), where="the dicts")
    columns = [ObjectColumn(name, [row.get(name) for row in rows], _hint(target, name)) for name in counts]
    ragged = next((name for name, count in counts.items() if count < len(rows)), None)
    return Frame(columns, len(rows), 64 * len(rows) * max(len(columns), 1), ragged=ragged or _ragged(columns))


def _ragged(columns: Sequence[FrameColumn]) -> str | None:
    shapes = (c.shape.ragged() for c in columns if isinstance(c, ObjectColumn))
    return next((path for path in shapes if path is not None), None)


def _from_columns(data: Mapping[Any, Any], target: pa.Schema | None) -> Frame:
    check_names(list(data), where="the data")
    columns: list[FrameColumn] = []
    lengths: dict[str, int] = {}
    for name, values in data.items():
        if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
            raise InvalidInputError(
                f"Column {name!r} is of type {type(values).__name__}; a dict of columns needs a sequence for each. "
                "Nothing was written. Pass lists or arrays of one length (or a list of dicts for rows)."
            )
        lengths[name] = len(values)
        columns.append(_any_column(name, values, target))
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"The columns differ in length: {lengths}. Nothing was written.")
    _refuse_other_index(data)
    nbytes = sum(int(getattr(v, "nbytes", 0)) or 64 * len(v) for v in data.values())
    rows = next(iter(lengths.values()), 0)
    return Frame(columns, rows, nbytes, ragged=_ragged(columns))


def _refuse_other_index(data: Mapping[Any, Any]) -> None:
    """Refuse Series of several indexes, which pandas would join by label; those of one index go by position."""
    labels = [v.index for v in data.values() if _is_series(v, "pandas")]
    if not all(labels[0].equals(other) for other in labels[1:]):
        raise InvalidInputError(
            "The Series have different indexes, so it is not clear which values make a row. Nothing was "
            "written. Build a DataFrame of them, or call reset_index(drop=True) on each."
        )


def _any_column(name: str, values: Any, target: pa.Schema | None) -> FrameColumn:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return ArrowColumn(
            name, values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        )
    if _is_series(values, "pandas"):
        return _pandas_column(name, values, target)
    if _is_series(values, "polars"):
        return PolarsColumn(name, values)
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype != object:
        return NumpyColumn(name, values)
    if isinstance(values, (list, tuple)) or (isinstance(values, np.ndarray) and values.ndim == 1):
        return ObjectColumn(
            name, values if isinstance(values, np.ndarray) else list(values), _hint(target, name)
        )
    raise InvalidInputError(
        f"Column {name!r} is of type {type(values).__name__}, which is no one-dimensional column. Nothing was "
        "written. Pass a list, a numpy array, an Arrow array or a Series."
    )


def _is_series(values: object, library: str) -> bool:
    # By name: neither library is imported for a user who has none of its data.
    return kind(values).partition(".")[0] == library and type(values).__name__ == "Series"


def _hint(target: pa.Schema | None, name: str) -> pa.DataType | None:
    at = -1 if target is None else target.get_field_index(name)
    return None if target is None or at < 0 else target.field(at).type


_inherited: list[object] = []
"""The Spark that a forked child has of its parent: it must not use its connection."""


def spark_context() -> SparkContext | None:
    """The Spark that was started in this process; None without one."""
    known = sys.modules.get("pyspark")
    found = None if known is None else known.SparkContext._active_spark_context  # noqa: SLF001 - PySpark has no other way
    return None if found is None or any(found is one for one in _inherited) else found


def _note_inherited() -> None:
    found = spark_context()
    _inherited[:] = [] if found is None else [found]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_inherited)


def check_running(session: object) -> None:
    """Refuse what is not a running session of this process.

    Raises:
        InvalidInputError: says what it is.
    """
    from safewrite.engine.spark import is_connect

    if is_connect(session):
        return
    context: Any = getattr(session, "sparkContext", None)
    if context is None:
        raise InvalidInputError(
            f"A running SparkSession is needed here, not {shown(session)}. Nothing was done. Start it first: "
            "builder.getOrCreate()."
        )
    if getattr(context, "_jsc", context) is None:
        raise InvalidInputError(
            "This Spark session was stopped. Nothing was done. Start one, and make the DataFrame in it."
        )


def check_classic(session: SparkSession, what: str = "Spark's own commits") -> None:
    """Refuse a session whose Java process is elsewhere, where that is needed for ``what``.

    Raises:
        InvalidInputError: this is a Spark Connect session.
    """
    from safewrite.engine.spark import is_connect

    if is_connect(session):
        raise InvalidInputError(
            f"This is a Spark Connect session: its driver runs elsewhere and cannot call this Python, as {what} must. Nothing was "
            "written. Run the job in the driver itself (spark-submit, a Glue or EMR job, a classic cluster), or bring the rows "
            "here: table.append(frame.toArrow(), key=...), and in foreachBatch append(batch.toArrow(), txn=(app_id, epoch))."
        )


def check_serves(session: SparkSession) -> None:
    """Refuse a session of Spark Connect before 4.0, which cannot keep what it has computed.

    Raises:
        InvalidInputError: this is one.
    """
    from safewrite.engine.spark import is_connect

    if is_connect(session):
        from pyspark import __version__

        if int(__version__.partition(".")[0]) < 4:
            raise InvalidInputError(
                f"Spark Connect writes tables from Spark 4.0 on, and this is {__version__}: it cannot keep the rows that it has "
                "computed. Nothing was written. Bring the rows here: frame.toPandas(), with key= or txn= as for the frame."
            )
