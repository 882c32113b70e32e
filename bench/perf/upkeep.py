"""Measures upkeep: a table of many small appends with ``maintain`` in between, beside the same rows written at once.

``python -m bench.perf.upkeep --format delta --appends 2000 --rows 100`` prints a table; seconds are of CPU, all threads.  Appends
stand ``--minutes`` apart by the clocks of this process and of its files, so that retentions end.
``--every 0`` maintains copies of the table at the end, turn by turn with deltalake's compaction of others.  ``--spark`` reads by Spark as well
(wall), and has copies for its OPTIMIZE, or tables for ``rewrite_data_files`` (CPU of its Java).
``--executors 2`` maintains a table of ``--mb`` in one process, and one by so many executors of a core each.
"""

from __future__ import annotations

import argparse
import bisect
import math
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import safewrite as sw
from bench.perf.upkeep_executors import compared
from safewrite.protocol.values import Listed
from safewrite.stores import local
from safewrite.table.verbs import Table

from ..stress.spark_reader import JARS

Readers = Mapping[str, Callable[[], Any]]
ROUNDS = 5
AT_END = 100
"""So many more appends are compared with those to a young table."""
PROPERTIES = {
    "delta": {"delta.logRetentionDuration": "interval 15 days"},
    "iceberg": {"history.expire.max-snapshot-age-ms": str(3600 * 1000), "write.metadata.delete-after-commit.enabled": "true"},
}  # fmt: skip
"""What a table of micro-batches says: how long it keeps its log or its snapshots."""


class Clock:
    """The time of this process and of its files, which jumps forward."""

    def __init__(self) -> None:
        self._real, self._real_ns = time.time, time.time_ns
        self._jumps = [(0.0, 0.0)]
        """When, and how far the clock was ahead from then on."""
        self._listed = local._listed  # noqa: SLF001
        time.time = lambda: self._real() + self._jumps[-1][1]
        time.time_ns = lambda: self._real_ns() + int(self._jumps[-1][1] * 1e9)
        local._listed = self._aged  # noqa: SLF001

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._jumps.append((self._real(), self._jumps[-1][1] + seconds))

    def _aged(self, path: str, status: os.stat_result) -> Listed:
        """A file with its time by this clock."""
        found = self._listed(path, status)
        ahead_s = self._jumps[bisect.bisect(self._jumps, (status.st_mtime, math.inf)) - 1][1]
        return replace(found, modified_ms=found.modified_ms + int(ahead_s * 1e3))


@dataclass
class Lake:
    """A folder with tables of one format."""

    folder: Path
    kind: str
    spark: Any = None

    @property
    def catalog(self) -> dict[str, str]:
        """The catalog of Iceberg tables, under the name that Spark has for it."""
        return {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{self.folder}/catalog.db",
            "warehouse": f"file://{self.folder}/lake",
        }

    def made(self, name: str, rows: pa.Table) -> Table:
        """A new table without rows."""
        if self.kind == "delta":
            return sw.create(str(self.folder / name), schema=rows.schema, properties=PROPERTIES["delta"])
        return sw.create(
            f"bench.{name}",
            rows.schema,
            catalog=self.catalog,
            create_namespace=True,
            properties=PROPERTIES["iceberg"],
        )

    def metadata(self, name: str) -> tuple[int, int]:
        """How many files a table has that are no data, and their bytes."""
        place = (
            self.folder / name / "_delta_log"
            if self.kind == "delta"
            else self.folder / "lake" / "bench" / name / "metadata"
        )
        files = [one.stat().st_size for one in place.rglob("*") if one.is_file()]
        return len(files), sum(files)

    def readers(self, name: str) -> Readers:
        """All rows by each reader."""
        return (_of_delta if self.kind == "delta" else _of_iceberg)(self, name)


def _of_delta(lake: Lake, name: str) -> Readers:
    folder, query = str(lake.folder / name), "SELECT * FROM t"
    found: dict[str, Callable[[], Any]] = {
        "deltalake's query": lambda: (
            QueryBuilder().register("t", DeltaTable(folder)).execute(query).read_all()
        ),
        "deltalake's to_pyarrow_table": lambda: DeltaTable(folder).to_pyarrow_table(),
        "polars": lambda: pl.scan_delta(folder).collect(),
        "duckdb": lambda: _duckdb(DeltaTable(folder).file_uris()),
    }
    if lake.spark is not None:
        found["spark"] = lambda: _spark_read(lake.spark, f"delta.`{folder}`")
    return found


def _of_iceberg(lake: Lake, name: str) -> Readers:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog(**lake.catalog)

    def loaded() -> Any:
        return catalog.load_table(f"bench.{name}")

    found: dict[str, Callable[[], Any]] = {
        "pyiceberg": lambda: loaded().scan().to_arrow(),
        "polars": lambda: pl.scan_iceberg(loaded(), reader_override="native").collect(),
        "duckdb": lambda: _duckdb([task.file.file_path for task in loaded().scan().plan_files()]),
    }
    if lake.spark is not None:
        found["spark"] = lambda: _spark_read(lake.spark, f"lake.bench.{name}")
    return found


def _spark_read(spark: Any, table: str) -> None:
    spark.sql(f"SELECT * FROM {table}").write.format("noop").mode("overwrite").save()


def _duckdb(files: Sequence[str]) -> Any:
    with duckdb.connect() as connection:
        return connection.read_parquet([*files]).to_arrow_table()


def main() -> None:
    """Make tables, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument("--appends", type=int, default=2_000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--executors", type=int, default=0)
    parser.add_argument("--mb", type=int, default=300)
    parser.add_argument("--target-mb", type=int, default=32)
    asked = parser.parse_args()
    if asked.executors:
        compared(asked.format, asked.executors, asked.mb, asked.target_mb, _say)
        return
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), asked.format)
        table = lake.made("ours", _rows(0, 1))
        if asked.every:
            _between(lake, table, clock, asked)
        else:
            _at_the_end(lake, table, asked)


def _between(lake: Lake, table: Table, clock: Clock, asked: argparse.Namespace) -> None:
    """Maintain between appends, and compare with one file."""
    seconds, upkeep = 0.0, 0.0
    for number in range(asked.appends):
        seconds += _timed(partial(table.append, _rows(number, asked.rows)))[0]
        clock.jump(asked.minutes * 60)
        if (number + 1) % asked.every == 0:
            took, report = _timed(lambda: table.maintain(remove_unused=True))
            upkeep += took
            files, size = lake.metadata("ours")
            _say(f"{number + 1:,}: {files:,} metadata files of {size / 1e6:.1f} MB; {report}")
    lake.made("once", _rows(0, 1)).append(
        pa.concat_tables([_rows(number, asked.rows) for number in range(asked.appends)])
    )
    _say(f"maintain: {upkeep:.2f} s; appends: {seconds:.2f} s")
    if asked.spark:
        lake.spark = _spark(lake)
    ours, once = lake.readers("ours"), lake.readers("once")
    for name in ours:
        mine, theirs = _least(name, ours[name], once[name])
        _say(f"{name}: {mine * 1e3:.1f} ms, {theirs * 1e3:.1f} ms of one file, {mine / theirs:.2f}")
    _beside_a_young_one(lake, table, clock, asked)


def _beside_a_young_one(lake: Lake, table: Table, clock: Clock, asked: argparse.Namespace) -> None:
    """Appends to the table and to one that has few, turn by turn, so that both have the same disk; by the clock too, for an append waits for it."""
    young = lake.made("young", _rows(0, 1))
    for number in range(asked.every):
        young.append(_rows(number, asked.rows))
        clock.jump(asked.minutes * 60)
    young.maintain(remove_unused=True)
    took: dict[str, list[tuple[float, float]]] = {"old": [], "young": []}
    for number in range(asked.appends, asked.appends + AT_END):
        rows = _rows(number, asked.rows)
        for name, one in (("old", table), ("young", young))[:: 1 if number % 2 else -1]:
            before_s = time.perf_counter()
            used_s, _ = _timed(partial(one.append, rows))
            took[name].append((used_s, time.perf_counter() - before_s))
        clock.jump(asked.minutes * 60)
    for place, clocked in enumerate(("CPU", "the clock")):
        for word, of in (("median", statistics.median), ("mean", statistics.fmean)):
            old, new = (of(one[place] for one in took[name]) for name in ("old", "young"))
            _say(
                f"an append by {clocked}, {word}: {old * 1e3:.1f} ms, {new * 1e3:.1f} ms to a young table, {old / new:.2f}"
            )


def _at_the_end(lake: Lake, table: Table, asked: argparse.Namespace) -> None:
    """Maintain at the end, beside what others do to tables with the same files."""
    if asked.spark:
        lake.spark = _spark(lake)
    _fill(table, asked)
    size = sum(one.stat().st_size for one in lake.folder.rglob("*.parquet") if "_delta_log" not in one.parts)
    before = {name: _least(name, read)[0] for name, read in lake.readers("ours").items()}
    took: dict[str, list[float]] = {}
    for number in range(ROUNDS):
        for name, call in _compactions(lake, number, asked).items():
            took.setdefault(name, []).append(
                (_java_timed(lake.spark, call) if "spark" in name else _timed(call))[0]
            )
    for name, seconds in took.items():
        _say(
            f"{name}: {min(seconds):.2f} s, {size / min(seconds) / 1e6:.1f} MB/s, {min(took['maintain']) / min(seconds):.2f} of maintain's seconds"
        )
    _say(f"{table.maintain()}")
    for name, read in lake.readers("ours").items():
        _say(f"{name}: {before[name]:.2f} s before, {_least(name, read)[0]:.2f} s after")


def _fill(table: Table, asked: argparse.Namespace) -> None:
    for number in range(asked.appends):
        table.append(_rows(number, asked.rows))


def _compactions(lake: Lake, number: int, asked: argparse.Namespace) -> Mapping[str, Callable[[], Any]]:
    """What puts the files of a table together, each on one of its own."""
    if lake.kind == "delta":
        copies = {name: str(lake.folder / f"{name}{number}") for name in ("ours", "theirs", "sparks")}
        for copy in copies.values():
            shutil.copytree(lake.folder / "ours", copy)
        found: dict[str, Callable[[], Any]] = {
            "maintain": partial(_maintained, copies["ours"]),
            "deltalake": partial(_optimized, copies["theirs"]),
        }
        if lake.spark is not None:
            found["spark's OPTIMIZE"] = lambda: lake.spark.sql(
                f"OPTIMIZE delta.`{copies['sparks']}`"
            ).collect()
        return found
    names = [f"ours{number}", *([f"sparks{number}"] if lake.spark is not None else [])]
    tables = [lake.made(name, _rows(0, 1)) for name in names]
    for table in tables:
        _fill(table, asked)
    made = {"maintain": tables[0].maintain}
    if lake.spark is not None:
        call = f"CALL lake.system.rewrite_data_files(table => 'bench.{names[1]}', options => map('rewrite-all', 'true'))"
        made["spark's rewrite_data_files"] = lambda: lake.spark.sql(call).collect()
    return made


def _maintained(folder: str) -> object:
    return sw.open(folder).maintain()


def _optimized(folder: str) -> object:
    return DeltaTable(folder).optimize.compact()


def _java_timed(spark: Any, call: Callable[[], Any]) -> tuple[float, Any]:
    """As :func:`_timed`, by the clock of Spark's Java; of its first call much is compilation."""
    process = spark.sparkContext._jvm.ProcessHandle.current().pid()  # noqa: SLF001

    def used() -> float:
        ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    before = used()
    result = call()
    return used() - before, result


def _spark(lake: Lake) -> Any:
    from pyspark.sql import SparkSession

    from safewrite.spark import attach, configure

    theirs = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{lake.folder}/catalog.db",
        "warehouse": lake.catalog["warehouse"],
    }
    settings = {"delta": lake.kind == "delta", "iceberg": None if lake.kind == "delta" else {"lake": theirs}}
    jars = [*sorted(JARS.glob("*.jar")), *sorted((JARS.parent / "iceberg-rest").glob("sqlite-jdbc-*.jar"))]
    builder = SparkSession.builder.master("local[2]")
    session = configure(builder, jars=jars, local_files=True, **settings).getOrCreate()
    if lake.kind == "delta":
        attach(session)
    return session


def _rows(number: int, count: int) -> pa.Table:
    draw = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count)
    return pa.table({"id": ids, "amount": draw.random(count), "name": [f"name{one % 977}" for one in ids]})


def _least(name: str, *reads: Callable[[], Any]) -> list[float]:
    """The least seconds of each of some reads, turn by turn: of CPU, and by the wall's clock where another process works."""
    timed = _waited if name == "spark" else _timed
    rounds = [[timed(read)[0] for read in reads] for _ in range(ROUNDS)]
    return [min(each) for each in zip(*rounds, strict=True)]


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    before = _cpu_s()
    result = call()
    return _cpu_s() - before, result


def _waited(call: Callable[[], Any]) -> tuple[float, Any]:
    before = time.perf_counter()
    result = call()
    return time.perf_counter() - before, result


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
