"""Measures what it takes to plan the upkeep of a large table: its metadata says that there are many files, and there is none.

``python -m bench.perf.upkeep_plan --format iceberg --files 200000`` prints seconds and memory of ``maintain(dry_run=True)`` in a new process.
"""

from __future__ import annotations

import argparse
import json
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.table.verbs import Table

SCHEMA = pa.schema(
    [("id", pa.int64()), ("amount", pa.float64()), ("name", pa.string()), ("day", pa.string())]
)
DAYS, COMMITS = 400, 20
ROWS, BYTES = 5_000, 500_000
"""Of each file."""


def main() -> None:
    """Make a table, and plan in a new process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--files", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.folder is not None:
        _plan(asked.format, asked.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        (_delta if asked.format == "delta" else _iceberg)(Path(folder), asked.files)
        words = ["--format", asked.format, "--folder", folder]
        subprocess.run([sys.executable, "-m", "bench.perf.upkeep_plan", *words], check=True)


def _plan(kind: str, folder: Path) -> None:
    started = time.perf_counter()
    report = _opened(kind, folder).maintain(dry_run=True)
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds, cpu_s = time.perf_counter() - started, used.ru_utime + used.ru_stime
    sys.stdout.write(f"{report}\n{seconds:.1f} s, {cpu_s:.1f} s of CPU, {used.ru_maxrss / 1024:.0f} MiB\n")


def _opened(kind: str, folder: Path) -> Table:
    return sw.open(str(folder / "t")) if kind == "delta" else sw.open("b.t", catalog=_catalog(folder))


def _catalog(folder: Path) -> dict[str, str]:
    return {
        "name": "bench", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri(),
    }  # fmt: skip


def _files(count: int) -> Iterator[tuple[int, str]]:
    for number in range(count):
        yield number, f"day=d{number % DAYS}/part-{number:06}-0d6f8f1c-6f0b-4e3c-9a55-3f1f4c9a2b7e.parquet"


def _delta(folder: Path, count: int) -> None:
    sw.create(str(folder / "t"), schema=SCHEMA, partition_by=["day"])
    files, each = [*_files(count)], -(-count // COMMITS)
    for version in range(COMMITS):
        lines = [{"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": "Append"}}}]
        lines += [_add(*one) for one in files[version * each : (version + 1) * each]]
        place = folder / "t" / "_delta_log" / f"{version + 1:020}.json"
        place.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    sw.open(str(folder / "t")).checkpoint()


def _add(number: int, path: str) -> dict[str, Any]:
    stats = {
        "numRecords": ROWS,
        "minValues": {"id": number, "amount": 0.1, "name": "a"},
        "maxValues": {"id": number + ROWS, "amount": 0.9, "name": "z"},
        "nullCount": {"id": 0, "amount": 0, "name": 0},
    }
    add = {
        "path": path, "partitionValues": {"day": f"d{number % DAYS}"}, "size": BYTES, "modificationTime": 1_790_000_000_000,
        "dataChange": True, "stats": json.dumps(stats),
    }  # fmt: skip
    return {"add": add}


def _iceberg(folder: Path, count: int) -> None:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    sw.create("b.t", SCHEMA, catalog=_catalog(folder), create_namespace=True, partition_by=["day"])
    catalog, files, each = load_catalog(**_catalog(folder)), [*_files(count)], -(-count // COMMITS)
    for start in range(0, count, each):
        table = catalog.load_table("b.t")
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number, path in files[start : start + each]:
                counts, ids = dict.fromkeys(range(1, 5), ROWS), range(number, number + ROWS + 1, ROWS)
                low, high = ({1: struct.pack("<q", one), 2: struct.pack("<d", 0.5), 3: b"a"} for one in ids)
                append.append_data_file(
                    DataFile.from_args(
                        content=DataFileContent.DATA, file_path=f"{table.location()}/data/{path}",
                        file_format=FileFormat.PARQUET, partition=Record(f"d{number % DAYS}"), record_count=ROWS,
                        file_size_in_bytes=BYTES, column_sizes=counts, value_counts=counts,
                        null_value_counts=dict.fromkeys(counts, 0), nan_value_counts={2: 0},
                        lower_bounds=low, upper_bounds=high, split_offsets=[4], spec_id=0,
                    )
                )  # fmt: skip


if __name__ == "__main__":
    main()
