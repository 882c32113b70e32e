"""Reads one state of a table that any engine may write and rewrite.

By deltalake and PyIceberg: ``safewrite.open`` refuses tables whose features only a writer must know, and ``verify`` is not to read by
the code that wrote.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from safewrite.errors import MissingExtraError, StorageError, TableNotFoundError, UnsupportedTableError
from safewrite.medallion.config.stored_names import pieces_of
from safewrite.medallion.files.storage import Storage, storage
from safewrite.medallion.lineage.delta_head import head_mark

MILLISECOND_US = 1000
_AHEAD = 1
"""This many files and pieces are read before they are asked for: Arrow's 4 and 16 took 700 MB where 1 takes 390, and more CPU."""


class Foreign(ABC):
    """A table at the newest state that :meth:`look` saw."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    @abstractmethod
    def look(self) -> None:
        """Read the newest state.  Raises StorageError, TableNotFoundError."""

    @property
    @abstractmethod
    def head(self) -> int:
        """The newest version or snapshot id; -1 for an Iceberg table without one."""

    @abstractmethod
    def mark(self) -> str | None:
        """Marks this state for :meth:`Places.stands`; None if there is a newer one already."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns."""

    @abstractmethod
    def batches(
        self, columns: Sequence[str], *, time: str | None = None, since_us: int = 0
    ) -> pa.RecordBatchReader:
        """Rows of this state, piece by piece; with ``time`` files of which all rows are older than ``since_us`` may be left out.

        Rows of other files come too.  ``since_us`` counts microseconds since 1970.

        Raises:
            StorageError: a file cannot be read.
            UnsupportedTableError: the table has what its reader does not know.
        """

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Columns of all rows.  Raises as :meth:`batches`."""
        return self.batches(columns).read_all()

    def pieces(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All rows, or some columns of them; at least one piece.  Raises as :meth:`batches`."""
        reader = self.batches(self.schema.names if columns is None else columns)
        yield reader.schema.empty_table()
        for batch in reader:
            yield pa.Table.from_batches([batch])

    def pieces_of_bronze(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """As :meth:`pieces`, of a bronze that the job writes: by the code's names."""
        return pieces_of(self.pieces, self.schema.names, columns)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """What readers raise, as errors of safewrite."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise StorageError(
                f"{self.uri} cannot be read: {error}. Nothing more was written. Run again; files of the state that was read "
                "may have been removed meanwhile."
            ) from error


class ForeignDelta(Foreign):
    """A Delta table as deltalake reads it, partitions and later columns included."""

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        super().__init__(uri)
        self._options, self._storage = dict(options), storage(uri, options)
        self._table: Any = None

    def look(self) -> None:
        self._table = newest(self.uri, self._storage, self._options)

    @property
    def head(self) -> int:
        return int(self._table.version())

    def mark(self) -> str | None:
        return head_mark(self._storage, self.head)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def batches(
        self, columns: Sequence[str], *, time: str | None = None, since_us: int = 0
    ) -> pa.RecordBatchReader:
        import deltalake.exceptions

        try:
            if self._table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
                raise deltalake.exceptions.DeltaProtocolError("it has column mapping")
            if time is None and "deletionVectors" in (self._table.protocol().reader_features or ()):
                with self.translated():  # its dataset does not read them
                    return _asked(self._table, columns, self.schema)
            dataset = self._table.to_pyarrow_dataset()
        except deltalake.exceptions.DeltaProtocolError as error:
            raise UnsupportedTableError(
                f"{self.uri} cannot be read: {error}. Nothing was written. Let Spark purge deletion vectors (REORG TABLE ... "
                "APPLY (PURGE)) and drop the table feature, or write a table without column mapping."
            ) from error
        except (ValueError, OverflowError):
            with self.translated():
                return _asked(self._table, columns, self.schema)
        with self.translated():
            wanted = None if time is None else _not_before(time, self.schema.field(time).type, since_us)
            scanner = dataset.scanner(
                columns=list(columns), filter=wanted, batch_readahead=_AHEAD, fragment_readahead=_AHEAD
            )
            found: pa.RecordBatchReader = scanner.to_reader()
        return found


def _asked(table: Any, columns: Sequence[str], schema: pa.Schema) -> pa.RecordBatchReader:
    """All rows by deltalake's own engine: its dataset knows neither deletion vectors nor dates that Python has none of, such as the year 0."""
    import deltalake

    wanted = pa.schema([schema.field(name) for name in columns])
    names = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    found = deltalake.QueryBuilder().register("bronze", table).execute(f"SELECT {names} FROM bronze")
    batches = (
        pa.RecordBatch.from_arrays(
            [column.cast(one.type) for column, one in zip(batch.columns, wanted, strict=True)], schema=wanted
        )
        for batch in pa.RecordBatchReader.from_stream(found)
    )
    return pa.RecordBatchReader.from_batches(wanted, batches)


class ForeignIceberg(Foreign):
    """An Iceberg table as PyIceberg reads it, with position deletes."""

    def __init__(self, table: Any) -> None:
        super().__init__(table.uri)
        self._safe, self._table = table, table.iceberg

    def look(self) -> None:
        self._safe.refresh()
        self._table = self._safe.iceberg

    @property
    def head(self) -> int:
        current = self._table.metadata.current_snapshot_id
        return -1 if current is None else int(current)

    def mark(self) -> str | None:
        return str(self._table.metadata_location)

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema().as_arrow()

    def batches(
        self, columns: Sequence[str], *, time: str | None = None, since_us: int = 0
    ) -> pa.RecordBatchReader:
        from pyiceberg.expressions import AlwaysTrue, GreaterThanOrEqual

        wanted: Any = AlwaysTrue()
        if time is not None:
            bound = _scalar(self.schema.field(time).type, since_us).as_py()
            not_before: Any = GreaterThanOrEqual  # its type says other arguments than it takes
            wanted = not_before(time, bound.isoformat())
        try:
            with self.translated():
                scan = self._table.scan(row_filter=wanted, selected_fields=tuple(columns))
                tables = self._safe.read_files(list(scan.plan_files()), list(columns))
                first = next(tables, None)
        except (ValueError, NotImplementedError) as error:
            raise UnsupportedTableError(
                f"{self.uri} cannot be read: {error}. Nothing was written. Let the engine that writes it rewrite its data files."
            ) from error
        plain = pa.schema([field for field in self.schema if field.name in columns])
        if first is None:
            return pa.RecordBatchReader.from_batches(plain, [])
        # What files have under nested columns may be NULL at every depth.
        schema = pa.schema(
            [first.schema.field(one.name) if pa.types.is_nested(one.type) else one for one in plain]
        )
        pieces = (batch for table in chain([first], tables) for batch in table.cast(schema).to_batches())
        return pa.RecordBatchReader.from_batches(schema, pieces)


def _not_before(time: str, kind: pa.DataType, since_us: int) -> Any:
    import pyarrow.dataset as ds

    return ds.field(time) >= _scalar(kind, since_us)


def _scalar(kind: pa.DataType, at_us: int) -> pa.Scalar:
    """A time as a column's type, rounded down: statistics of files may be cut to milliseconds, the greatest too."""
    floor = pa.scalar(at_us - at_us % MILLISECOND_US, pa.timestamp("us"))
    if pa.types.is_timestamp(kind):
        return floor.cast(pa.timestamp("us", kind.tz)).cast(kind, safe=False)
    return floor.cast(kind, safe=False)


def newest(uri: str, where: Storage, options: dict[str, str]) -> Any:
    """The table as deltalake loads it now.

    Raises:
        MissingExtraError: deltalake is not installed.
        TableNotFoundError: there is no table.
        StorageError: it cannot be read.
    """
    try:
        import deltalake
        from deltalake.exceptions import DeltaError
        from deltalake.exceptions import TableNotFoundError as MissingTableError
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Delta tables of a medallion job are read by deltalake: {MissingExtraError.command('medallion')}. Nothing was written."
        ) from error
    try:
        return deltalake.DeltaTable(where.uri, storage_options=options)
    except MissingTableError as error:
        raise TableNotFoundError(f"There is no Delta table at {uri}. Nothing was written.") from error
    except (DeltaError, OSError) as error:
        raise StorageError(f"{uri} cannot be read: {error}. Nothing was written. Run again.") from error
