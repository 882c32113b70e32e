"""Reads a Delta table by deltalake, by DuckDB over its file list, and by a plain replay of the log.

They read the store itself, past the fault proxy.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from safewrite.testing.checker import Read, ReplayedLog
from safewrite.testing.history import COLUMNS

from .target import UnreadableTableError


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is, and how to reach it without the fault proxy."""

    uri: str
    storage_options: Mapping[str, str]
    s3: Any

    @property
    def bucket(self) -> str:
        """The bucket of the URI."""
        return urlsplit(self.uri).netloc

    @property
    def prefix(self) -> str:
        """The key prefix of the table, with a slash at its end."""
        return urlsplit(self.uri).path.strip("/") + "/"

    def get(self, path: str) -> bytes:
        """One object of the table, by its path relative to the root."""
        body: bytes = self.s3.get_object(Bucket=self.bucket, Key=self.prefix + path)["Body"].read()
        return body

    def list(self, folder: str) -> list[str]:
        """Paths under a folder, relative to the root, in name order."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=self.prefix + folder
        )
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return sorted(key.removeprefix(self.prefix) for key in keys)


def read_deltalake(place: Place, *, began_at: float = math.inf, name: str = "deltalake") -> Read:
    """Read by delta-rs."""
    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    return Read.of(name, _columns(table.to_pyarrow_table(columns=list(COLUMNS))), began_at=began_at)


def read_now(place: Place) -> Read:
    """Read by delta-rs while writers are at work."""
    began_at = time.time()
    return read_deltalake(place, began_at=began_at, name=f"deltalake at {time.strftime('%H:%M:%S')}")


def read_spark(place: Place) -> Read:
    """Read by Spark, with Delta's own Java library."""
    from .spark_reader import SparkReadError, delta_rows

    try:
        return Read.of("spark", _columns(delta_rows(place.uri, place.storage_options)))
    except SparkReadError as error:
        raise UnreadableTableError(str(error)) from error


def read_change_feed(place: Place) -> Read:
    """Read the whole change feed by delta-rs: the input of a downstream job."""
    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    feed = pa.table(table.load_cdf(starting_version=0).read_all())
    return Read.of("change feed", _columns(feed.select(list(COLUMNS))))


def read_duckdb(place: Place, folder: Path) -> Read:
    """Read delta-rs's file list by DuckDB, from downloaded copies; partition values from the log."""
    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    adds = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    folder.mkdir(parents=True, exist_ok=True)
    paths = [add["path"] for add in adds]
    with ThreadPoolExecutor(4) as pool:
        bodies = pool.map(lambda path: place.get(unquote(path)), paths)
        files = []
        for index, body in enumerate(bodies):
            files.append(folder / f"{index}.parquet")
            files[-1].write_bytes(body)
    if not files:
        return Read.of("duckdb", {column: [] for column in COLUMNS})
    days = pa.table(
        {"file": [str(file) for file in files], "day": [add.get("partition.day") for add in adds]}
    )
    with duckdb.connect() as connection:
        connection.register("days", days)
        stored = [column for column in COLUMNS if column != "day"]
        selected = ", ".join(f'r."{column}"' for column in stored)
        rows = connection.sql(
            f"SELECT {selected}, d.day FROM read_parquet(?, filename = true, hive_partitioning = false) r"
            " JOIN days d ON r.filename = d.file",
            params=[[str(file) for file in files]],
        ).to_arrow_table()
    return Read.of("duckdb", _columns(rows))


@dataclass(slots=True)
class Replay:
    """The log read action by action, without any Delta library, and the files that it leaves."""

    versions: int = 0
    adds: list[tuple[int, str]] = field(default_factory=list)
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    commit_ms: dict[int, int] = field(default_factory=dict)
    engines: dict[int, str] = field(default_factory=dict)


def replay_log(place: Place) -> Replay:
    """Replay every ``N.json`` from 0 on; checkpoints are not looked at.

    Raises:
        UnreadableTableError: a version is missing, or an entry is not JSON lines of actions.
    """
    names = [path for path in place.list("_delta_log/") if _version(path) is not None]
    replay = Replay(versions=len(names))
    for expected, path in enumerate(names):
        if _version(path) != expected:
            raise UnreadableTableError(f"version {expected} is missing from the log: {path} follows")
    with ThreadPoolExecutor(4) as pool:
        for version, body in enumerate(pool.map(place.get, names)):
            _apply(replay, version, body)
    return replay


def _version(path: str) -> int | None:
    name = path.removeprefix("_delta_log/")
    return int(name[:20]) if len(name) == 25 and name.endswith(".json") and name[:20].isdigit() else None


def _apply(replay: Replay, version: int, body: bytes) -> None:
    actions = list(_actions(version, body))
    for action in actions:
        if "remove" in action:
            replay.live.pop(action["remove"]["path"], None)
    for action in actions:
        if "add" in action:
            add = action["add"]
            if add.get("deletionVector"):
                raise UnreadableTableError(
                    f"version {version} uses deletion vectors, which this replay does not"
                )
            replay.adds.append((version, add["path"]))
            replay.live[add["path"]] = replay.seen[add["path"]] = add
        elif "commitInfo" in action:
            info = action["commitInfo"]
            replay.commit_ms[version] = int(info.get("timestamp", 0))
            replay.engines[version] = str(info.get("engineInfo") or info.get("clientVersion") or "?")


def _actions(version: int, body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode().splitlines():
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise UnreadableTableError(f"version {version} is torn: {line[:80]!r}") from error


def read_replay(place: Place, replay: Replay) -> tuple[Read, ReplayedLog]:
    """The rows of the replayed table by pyarrow, and the log with the ids of every file it ever added."""

    def load(add: dict[str, Any]) -> dict[str, list[Any]]:
        rows = pq.ParquetFile(io.BytesIO(place.get(unquote(add["path"])))).read()
        day = pa.scalar(add["partitionValues"].get("day") or None, pa.string()).cast(pa.date32())
        if "day" in rows.column_names:
            rows = rows.drop_columns(["day"])
        return _columns(rows.append_column("day", pa.repeat(day, rows.num_rows)))

    paths = list(replay.seen)
    with ThreadPoolExecutor(4) as pool:
        tables = dict(zip(paths, pool.map(load, replay.seen.values()), strict=True))
    live = [tables[path] for path in replay.live]
    columns = {column: [value for table in live for value in table[column]] for column in COLUMNS}
    log = ReplayedLog(tuple(replay.adds), {path: table["id"] for path, table in tables.items()})
    return Read.of("replay", columns), log


def _columns(table: pa.Table) -> dict[str, list[Any]]:
    return {column: table[column].to_pylist() for column in COLUMNS}
