"""Makes Parquet files in memory, one at a time, the way both table formats need them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from safewrite.errors import InternalError
from safewrite.frames.required import has_required, without_gaps
from safewrite.values import compute as pc
from safewrite.values.types import is_bytes, is_text, is_uuid

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
K = TypeVar("K")


_SAMPLES, _SAMPLE_ROWS = 4, 512
_DISTINCT = 0.9
"""The part of a sample's values that differ from each other where a dictionary is not worth its time."""


class FileDraft(Protocol[T_co]):
    """A file that is being written."""

    @property
    def size(self) -> int:
        """Bytes so far."""

    def write(self, table: pa.Table) -> None:
        """Append rows."""

    def close(self) -> T_co:
        """Finish the file, and return it."""


class Roll(Generic[T]):
    """Files of rows that come one after another; a new file is begun once the last has ``target`` bytes."""

    def __init__(self, target: int, begin: Callable[[], FileDraft[T]]) -> None:
        self._target, self._begin = target, begin
        self._current: FileDraft[T] | None = None

    @property
    def size(self) -> int:
        """Bytes of the file that is open."""
        return 0 if self._current is None else self._current.size

    def write(self, table: pa.Table) -> Iterator[T]:
        """Append rows; the files that are full now."""
        for part in _parts(table, self._target):
            if self._current is None:
                self._current = self._begin()
            self._current.write(part)
            if self._current.size >= self._target:
                yield from self.close()

    def close(self) -> Iterator[T]:
        """The file that is open, if there is one."""
        full, self._current = self._current, None
        if full is not None:
            yield full.close()


def rolled(tables: Iterable[pa.Table], target: int, begin: Callable[[], FileDraft[T]]) -> Iterator[T]:
    """Closed files of the rows; a new one is begun once the last has ``target`` bytes."""
    roll = Roll(target, begin)
    for table in tables:
        yield from roll.write(table)
    yield from roll.close()


OPEN_BYTES = 256 * 2**20
"""The limit for the sum of the bytes in all files that are open at once, one for each partition."""


def dealt(
    groups: Iterable[tuple[K, pa.Table]], target: int, begin: Callable[[], FileDraft[T]]
) -> Iterator[tuple[K, T]]:
    """Closed files of rows that come by partition, in any order; each partition has a file open, as far as memory allows."""
    rolls: dict[K, Roll[T]] = {}
    for key, table in groups:
        roll = rolls.setdefault(key, Roll(target, begin))
        for made in roll.write(table):
            yield key, made
        if sum(one.size for one in rolls.values()) > OPEN_BYTES:
            largest = max(rolls, key=lambda one: rolls[one].size)
            for made in rolls.pop(largest).close():
                yield largest, made
    for key in [*rolls]:
        for made in rolls.pop(key).close():
            yield key, made


def _parts(table: pa.Table, target: int) -> Iterator[pa.Table]:
    """A slice in row groups of at most about ``target`` bytes before encoding."""
    rows = table.num_rows
    step = max(min(rows, rows * target // max(table.nbytes, 1)), 1)
    for start in range(0, rows, step):
        yield table.slice(start, step)


class ParquetDraft:
    """One Parquet file in memory: microseconds, standard list names, no Arrow schema of its own.

    Columns of floats have no statistics and no dictionary there: Spark skips row groups by them as if none
    had NaN and as if -0.0 were not 0.0, and so loses rows of ``WHERE x > 5`` and ``WHERE x = 0`` (H7).  UUIDs
    have no statistics either: Java compares them as signed numbers.  Bounds for whole files are in the
    table's log or manifests, where they are right.
    """

    def __init__(self, schema: pa.Schema, compression: str, **options: Any) -> None:
        self._sink = io.BytesIO()
        self._rows = 0
        self._schema, self._compression, self._options = schema, compression, options
        self._writer: pq.ParquetWriter | None = None

    def _begun(self, first: pa.Table) -> pq.ParquetWriter:
        """The writer; its first rows tell which columns are worth a dictionary."""
        leaves = [leaf for field in self._schema for leaf in _leaves(field.name, field.type)]
        distinct = _mostly_distinct(first)
        return pq.ParquetWriter(
            self._sink,
            self._schema,
            compression=self._compression,
            # Numbers are mostly distinct in small appends, where a dictionary costs more than it saves.
            use_dictionary=[
                path for path, kind in leaves if (is_text(kind) or is_bytes(kind)) and path not in distinct
            ],
            write_statistics=[p for p, kind in leaves if not (pa.types.is_floating(kind) or is_uuid(kind))],
            version="2.6",
            store_schema=False,
            use_compliant_nested_type=True,
            **self._options,
        )

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._sink.tell()

    def write(self, table: pa.Table) -> None:
        """Append rows as a row group."""
        if self._writer is None:
            self._writer = self._begun(table)
        for at, field in enumerate(table.schema):
            if has_required(field.type):
                column = table.column(at)
                chunks = [without_gaps(chunk) for chunk in column.chunks]
                table = table.set_column(at, field, pa.chunked_array(chunks, column.type))
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows

    def close(self) -> tuple[bytes, pq.FileMetaData]:
        """The finished file and its footer, which was read back; raises InternalError if rows are missing."""
        writer = self._writer or self._begun(self._schema.empty_table())
        writer.close()
        footer = pq.read_metadata(self._sink)
        if footer.num_rows != self._rows:
            raise InternalError(
                f"A Parquet footer counts {footer.num_rows} rows of the {self._rows} written; please report this."
            )
        return self._sink.getvalue(), footer


def _mostly_distinct(table: pa.Table) -> set[str]:
    """Columns of texts or bytes of which hardly a value comes twice in a sample: a dictionary takes a third of the time to
    write them, and is given up in the end.  Values that come again far apart are not seen; compression does not see them either.
    """
    found: set[str] = set()
    if table.num_rows < _SAMPLES * _SAMPLE_ROWS:
        return found
    starts = [number * (table.num_rows - _SAMPLE_ROWS) // (_SAMPLES - 1) for number in range(_SAMPLES)]
    sample = pa.concat_tables([table.slice(start, _SAMPLE_ROWS) for start in starts])
    for field, column in zip(sample.schema, sample.columns, strict=True):
        if is_text(field.type) or is_bytes(field.type):
            values = len(column) - column.null_count
            if values and pc.count_distinct(column).as_py() >= _DISTINCT * values:
                found.add(field.name)
    return found


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """Parquet's names and types of the leaf columns."""
    if pa.types.is_struct(kind):
        for field in (kind.field(i) for i in range(kind.num_fields)):
            yield from _leaves(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path, kind
