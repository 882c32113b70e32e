"""Reads tables under a change log: by a library of the format, and by DuckDB over the files that log or metadata names."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from . import iceberg_readers, readers
from .change_check import Seen
from .writers.change_log import COLUMNS


def of_deltalake(place: readers.Place, *, name: str = "deltalake", final: bool = True) -> Seen:
    """Read by delta-rs."""
    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    return Seen(name, _rows(table.to_pyarrow_table(columns=list(COLUMNS))), final)


def of_log(place: readers.Place, replay: readers.Replay) -> Seen:
    """Read the files that a plain replay of the Delta log leaves, by pyarrow; partition values from the log."""
    found: list[tuple[Any, ...]] = []
    for path, add in replay.live.items():
        table = pq.ParquetFile(io.BytesIO(place.get(unquote(path)))).read()
        for name, value in add["partitionValues"].items():
            if name not in table.column_names:
                table = table.append_column(name, pa.repeat(pa.scalar(value, pa.string()), table.num_rows))
        found += _rows(table)
    return Seen("replay of the log", tuple(found))


def of_files(bodies: Sequence[tuple[bytes, dict[str, str]]], folder: Path) -> Seen:
    """Read the bodies of data files by DuckDB; each with the values that its partition gives it."""
    folder.mkdir(parents=True, exist_ok=True)
    found: list[tuple[Any, ...]] = []
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for number, (body, values) in enumerate(bodies):
            file = folder / f"{number}.parquet"
            file.write_bytes(body)
            selected = ", ".join(f'? AS "{name}"' if name in values else f'"{name}"' for name in COLUMNS)
            given = [values[name] for name in COLUMNS if name in values]
            query = f"SELECT {selected} FROM read_parquet(?, hive_partitioning = false)"
            rows = connection.sql(query, params=[*given, str(file)]).to_arrow_table()
            found += _rows(rows)
    return Seen("duckdb", tuple(found))


def of_pyiceberg(catalog: Any, table: str, *, name: str = "pyiceberg", final: bool = True) -> Seen:
    """Read by PyIceberg's scan."""
    return Seen(name, _rows(catalog.load_table(table).scan(selected_fields=COLUMNS).to_arrow()), final)


def of_specification(objects: iceberg_readers.Objects, lineage: iceberg_readers.Lineage) -> Seen:
    """Read the files that the bare metadata names, by pyarrow."""
    tables = [pq.ParquetFile(io.BytesIO(objects.get(path))).read() for path in lineage.live]
    return Seen("specification", tuple(row for table in tables for row in _rows(table)))


def _rows(table: pa.Table) -> tuple[tuple[Any, ...], ...]:
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    return tuple(zip(*columns, strict=True))
