"""Measures upkeep: many small appends, what a scan costs before and after ``maintain``, and deltalake's compaction beside it.

``python -m bench.perf.upkeep --appends 2000 --rows 100`` prints a table; seconds are of CPU, all threads.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import safewrite as sw


def main() -> None:
    """Make a table, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--appends", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=100)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "ours", Path(folder) / "theirs"
        table = sw.open(str(ours), create=True)
        for number in range(asked.appends):
            table.append(_rows(number, asked.rows))
        shutil.copytree(ours, theirs)
        before, took = _scans(ours), _size(ours)
        maintained, report = _timed(table.maintain)
        compacted, _ = _timed(DeltaTable(theirs).optimize.compact)
        after = _scans(ours)
    _say(f"{report}")
    _say(
        f"maintain {maintained:.2f} s, {took / maintained / 1e6:.1f} MB/s; deltalake {compacted:.2f} s, {took / compacted / 1e6:.1f} MB/s"
    )
    for name, seconds in before.items():
        _say(f"{name}: {seconds:.2f} s before, {after[name]:.2f} s after")


def _rows(number: int, count: int) -> pa.Table:
    draw = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    return pa.table({"id": ids, "amount": draw.random(count), "name": [f"name{one % 977}" for one in ids]})


def _size(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.glob("*.parquet"))


def _scans(folder: Path) -> dict[str, float]:
    """Seconds of a sum by each reader."""
    query = "SELECT sum(amount) FROM t"
    readers: dict[str, Callable[[], Any]] = {
        "deltalake's query": lambda: (
            QueryBuilder().register("t", DeltaTable(folder)).execute(query).read_all()
        ),
        "deltalake's to_pyarrow_table": lambda: DeltaTable(folder).to_pyarrow_table(),
        "polars": lambda: pl.scan_delta(str(folder)).select(pl.col("amount").sum()).collect(),
    }
    return {name: min(_timed(read)[0] for _ in range(2)) for name, read in readers.items()}


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    before = _cpu_s()
    result = call()
    return _cpu_s() - before, result


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    main()
