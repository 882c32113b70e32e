"""Reads an Iceberg table by PyIceberg's scan, and by a reader that knows the specification alone.

The second reads metadata as JSON and manifests by polars' Avro reader, and hands the list of data
files to pyarrow and to DuckDB.  It also follows the metadata back to the table's beginning: every
snapshot that ever was, and the files that each added.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from safewrite.testing.checker import Read, ReplayedLog
from safewrite.testing.history import COLUMNS

from .target import UnreadableTableError

ADDED, DELETED = 1, 2
"""Status of a manifest's entry."""


# --- PyIceberg ------------------------------------------------------------------------------------
def read_pyiceberg(catalog: Any, name: str) -> Read:
    """Read by PyIceberg's scan."""
    return Read.of("pyiceberg", _scan(catalog, name))


def read_now(catalog: Any, name: str) -> Read:
    """Read by PyIceberg while writers are at work."""
    began_at = time.time()
    return Read.of(f"pyiceberg at {time.strftime('%H:%M:%S')}", _scan(catalog, name), began_at=began_at)


def _scan(catalog: Any, name: str) -> dict[str, list[Any]]:
    return _columns(catalog.load_table(name).scan(selected_fields=COLUMNS).to_arrow())


# --- the specification alone ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Objects:
    """The store, by full locations; no file of a table changes, so each is fetched once."""

    s3: Any
    kept: dict[str, bytes] = field(default_factory=dict)

    def get(self, location: str) -> bytes:
        """One object; ``UnreadableTableError`` where it is not there."""
        if location not in self.kept:
            parts = urlsplit(location)
            try:
                answer = self.s3.get_object(Bucket=parts.netloc, Key=parts.path.lstrip("/"))
            except self.s3.exceptions.NoSuchKey:
                raise UnreadableTableError(
                    f"{location} is missing, and the table's metadata names it"
                ) from None
            self.kept[location] = answer["Body"].read()
        return self.kept[location]

    def get_all(self, locations: Iterable[str]) -> list[bytes]:
        """Several objects, in order."""
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(self.get, locations))


@dataclass(slots=True)
class Lineage:
    """All that a table's metadata ever held.

    ``live`` are the data files of the current snapshot, as often as it lists them; ``added`` those that
    snapshots of appends brought, with their snapshot's id.
    """

    states: int = 0
    snapshots: dict[int, dict[str, Any]] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)
    added: list[tuple[int, str]] = field(default_factory=list)


def follow(objects: Objects, location: str) -> Lineage:
    """Read the metadata at ``location`` and all that came before it.

    Raises:
        UnreadableTableError: a file that the metadata names is missing, or does not follow the specification.
    """
    lineage = Lineage()
    current = _metadata(objects, location)
    names = [*_earlier(current), location]
    while True:  # metadata names a limited number of earlier files, the oldest of them names more
        older = _earlier(_metadata(objects, names[0]))
        if not older:
            break
        names = [*older, *names]
    objects.get_all(names)
    for name in names:
        for snapshot in _metadata(objects, name).get("snapshots", []):
            lineage.snapshots.setdefault(snapshot["snapshot-id"], snapshot)
    lineage.states = len(names)
    now = lineage.snapshots.get(current.get("current-snapshot-id") or -1)
    lineage.live = [] if now is None else [path for path, _ in _entries(objects, now, live=True)]
    appends = [s for s in lineage.snapshots.values() if s["summary"]["operation"] == "append"]
    objects.get_all(snapshot["manifest-list"] for snapshot in appends)
    for snapshot in appends:
        own = snapshot["snapshot-id"]
        lineage.added += [(own, path) for path, by in _entries(objects, snapshot, live=False) if by == own]
    return lineage


def _metadata(objects: Objects, location: str) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = json.loads(objects.get(location))
    except ValueError as error:
        raise UnreadableTableError(f"{location} is not JSON: {error}") from error
    return plain


def _earlier(metadata: dict[str, Any]) -> list[str]:
    return [entry["metadata-file"] for entry in metadata.get("metadata-log", [])]


def _entries(objects: Objects, snapshot: dict[str, Any], *, live: bool) -> list[tuple[str, int]]:
    """Paths and snapshot ids of a snapshot's entries: those that are live, or those that it added itself."""
    own = snapshot["snapshot-id"]
    manifests = [
        row for row in _avro(objects, snapshot["manifest-list"]) if live or row["added_snapshot_id"] == own
    ]
    if any(row["content"] for row in manifests):
        raise UnreadableTableError("the table has delete files, which this reader does not apply")
    paths = [row["manifest_path"] for row in manifests]
    objects.get_all(paths)
    return [
        (entry["data_file"]["file_path"], entry["snapshot_id"] or row["added_snapshot_id"])
        for row, path in zip(manifests, paths, strict=True)
        for entry in _avro(objects, path)
        if (entry["status"] != DELETED if live else entry["status"] == ADDED)
    ]


def _avro(objects: Objects, location: str) -> list[dict[str, Any]]:
    try:
        return pl.read_avro(io.BytesIO(objects.get(location))).to_dicts()
    except pl.exceptions.PolarsError as error:
        raise UnreadableTableError(f"{location} is not Avro: {error}") from error


def repeated_files(lineage: Lineage) -> list[str]:
    """Data files that the current snapshot lists more than once (C10)."""
    return [f"{path} is listed {times} times" for path, times in Counter(lineage.live).items() if times > 1]


def read_lineage(objects: Objects, lineage: Lineage) -> tuple[Read, ReplayedLog]:
    """The current snapshot's rows by pyarrow, and the history with the ids of every file ever appended."""
    paths = list(dict.fromkeys([*lineage.live, *(path for _, path in lineage.added)]))
    bodies = objects.get_all(paths)
    tables = {path: _columns(_parquet(path, body)) for path, body in zip(paths, bodies, strict=True)}
    live = [tables[path] for path in lineage.live]
    columns = {column: [value for table in live for value in table[column]] for column in COLUMNS}
    log = ReplayedLog(tuple(lineage.added), {path: table["id"] for path, table in tables.items()})
    return Read.of("specification", columns), log


def _parquet(path: str, body: bytes) -> pa.Table:
    try:
        return pq.ParquetFile(io.BytesIO(body)).read(columns=list(COLUMNS))
    except pa.ArrowInvalid as error:
        raise UnreadableTableError(f"{path} is not Parquet: {error}") from error


def read_duckdb(objects: Objects, lineage: Lineage, folder: Path) -> Read:
    """The same list of files read by DuckDB, from downloaded copies."""
    if not lineage.live:
        return Read.of("duckdb", {column: [] for column in COLUMNS})
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for index, body in enumerate(objects.get_all(lineage.live)):
        files.append(str(folder / f"{index}.parquet"))
        Path(files[-1]).write_bytes(body)
    selected = ", ".join(f'"{column}"' for column in COLUMNS)
    try:
        with duckdb.connect() as connection:
            rows = connection.sql(
                f"SELECT {selected} FROM read_parquet(?, hive_partitioning = false)", params=[files]
            ).to_arrow_table()
    except duckdb.Error as error:
        raise UnreadableTableError(f"DuckDB: {error}") from error
    return Read.of("duckdb", _columns(rows))


def read_spark(catalog: Mapping[str, str], name: str) -> Read:
    """Read by Spark, with Iceberg's own Java library."""
    from .spark_reader import SparkReadError, iceberg_rows

    try:
        return Read.of("spark", _columns(iceberg_rows(catalog, name)))
    except SparkReadError as error:
        raise UnreadableTableError(str(error)) from error


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    return {column: table[column].to_pylist() for column in COLUMNS}
