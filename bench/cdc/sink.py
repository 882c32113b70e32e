"""Lands the same topics by Iceberg's sink for Kafka Connect, its worker killed once, and reads what is in its tables."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.cdc.check import Difference, compare, lake_rows, source_rows
from bench.cdc.producer import Producer
from bench.cdc.workload import TABLES
from bench.servers.connect import IcebergSink
from bench.servers.kafka import Kafka

NAME = "iceberg-sink"
_STILL_S = 60.0
"""Nothing more comes after so long."""


def land(kafka: Kafka, topics: Sequence[str], folder: Path, records: int) -> tuple[Path, str | None]:
    """Let the sink land the topics; its catalog, and why it stopped before the end, if it did.

    Its worker is killed once its first files are there, and started again.

    Args:
        records: rows that its tables are to have: events without truncates.
    """
    folder.mkdir()
    control = f"control-{NAME}"
    with Producer(kafka, control, 1, folder / "control.log"):
        pass
    # Its transform cannot take a truncate and ends its task, unless it may pass over what it cannot take.
    passing = {"errors.tolerance": "all", "errors.log.enable": "true"}
    server = IcebergSink(folder, kafka=kafka.endpoint_url, topics=topics, control=control, settings=passing)
    try:
        server.start()
        _wait(lambda: any(folder.rglob("*.parquet")) or bool(failure(server)))
        os.kill(server.pid, signal.SIGKILL)
        server.restart()
        seen, deadline = 0, time.monotonic() + 2 * _STILL_S
        while time.monotonic() < deadline and not failure(server):
            if (now := sum(rows(server.catalog, table.name) for table in TABLES)) != seen:
                seen, deadline = now, time.monotonic() + _STILL_S
            if seen >= records:
                deadline = min(deadline, time.monotonic() + 10.0)  # what comes twice comes soon
            time.sleep(0.5)
        return server.catalog, failure(server) or (f"{seen} of {records} rows" if seen < records else None)
    finally:
        server.stop()


def differences(address: str, catalog: Path) -> list[Difference]:
    """All tables of the sink behind PostgreSQL, by their columns of plain types."""
    made = []
    for table in TABLES:
        data = read(catalog, table.name)
        found = {} if data is None else lake_rows(table, data)
        made.append(compare(table, source_rows(address, table), found, table.plain))
    return made


def is_row(value: bytes | None) -> bool:
    """Whether a record is the change of a row: no tombstone, and no truncate."""
    return value is not None and json.loads(value)["payload"]["op"] != "t"


def failure(server: IcebergSink) -> str | None:
    """The error that ended its connector or a task."""
    bad = [one for one in server.states() if one.startswith("FAILED")]
    causes = [line for line in bad[0].splitlines() if "Caused by" in line] if bad else []
    return (causes or bad)[-1][:300] if bad else None


def rows(catalog: Path, table: str) -> int:
    """Rows of a table's newest snapshot, by its summary; 0 before it is made."""
    if (place := _metadata(catalog, table)) is None:
        return 0
    content: dict[str, Any] = json.loads(place.read_text())
    current = content.get("current-snapshot-id")
    found = [one for one in content.get("snapshots", []) if one["snapshot-id"] == current]
    return int(found[0]["summary"]["total-records"]) if found else 0


def read(catalog: Path, table: str, columns: tuple[str, ...] = ("*",)) -> pa.Table | None:
    """A table by PyIceberg, from its metadata file; None before it is made."""
    from pyiceberg.table import StaticTable

    if (place := _metadata(catalog, table)) is None:
        return None
    return StaticTable.from_metadata(str(place)).scan(selected_fields=columns).to_arrow()


def _metadata(catalog: Path, table: str) -> Path | None:
    """A table's newest metadata file, as the catalog's database in SQLite has it."""
    if not catalog.exists():
        return None
    with closing(sqlite3.connect(f"file:{catalog}?mode=ro", uri=True, timeout=30.0)) as connection:
        try:
            asked = "SELECT metadata_location FROM iceberg_tables WHERE table_name = ?"
            found = connection.execute(asked, (table,)).fetchone()
        except sqlite3.OperationalError:  # the catalog makes its tables later, or just now
            return None
    return Path(found[0].removeprefix("file:")) if found and found[0] else None


def _wait(done: Any) -> None:
    deadline = time.monotonic() + 2 * _STILL_S
    while not done() and time.monotonic() < deadline:
        time.sleep(0.1)
