"""Measures the job's own work: ``python -m bench.cdc.throughput``; rows by second of CPU, and what idle tables cost.

Batches go to the job's ``Landing`` without Kafka and Spark, on local Delta tables.  CPU seconds of the process are counted,
all threads, so a busy machine tells nearly the same as an idle one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyiceberg.catalog import load_catalog
from rich.table import Table

from bench.cdc.events import AVRO, Events, in_avro, in_bare_json, in_dms
from bench.screen import screen
from safewrite.cdc.config.job import load
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.records.batch import Batch
from safewrite.stores.local import LocalObjects

_EXPIRED_EVERY = 25
"""Batches from one expiry of snapshots to the next."""


def landing(folder: Path, tables: int = 1, form: str = "delta", **more: Any) -> Landing:
    """A job of so many tables of one format."""
    catalog = _catalog(folder)
    given = {
        "job": "bench",
        "kafka": {"servers": "none", "topics": ["topic"]},
        "envelope": "debezium-json",
        "checkpoint": "none",
        "job_tables": {"format": form},
        "tables": [
            {"database": "db", "table": f"t{number}", "format": form, "primary_key": ["id"]}
            for number in range(tables)
        ],
        **({"warehouse": str(folder)} if form == "delta" else {"catalog": catalog}),
        **more,
    }
    return Landing(load(given))


def _catalog(folder: Path) -> dict[str, str]:
    return {
        "name": "local",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}",
    }


def append_only(rows: int, size: int, form: str = "json") -> float:
    """Rows for a second of CPU, of inserts of new keys."""
    with tempfile.TemporaryDirectory() as folder:
        job, events = landing(Path(folder)), Events()
        if form == "avro":
            job.decoder = Decoder("debezium-avro", schema_of=lambda number: json.dumps(AVRO[number]))
            events = Events(coded=in_avro)
        elif form == "bare-json":
            events = Events(coded=in_bare_json)
        elif form == "dms":
            job.decoder, events = Decoder("dms-json"), Events(coded=in_dms)
        job.land(events.batch(0, range(10), lambda _: "c"))
        batches = [
            events.batch(1 + place, range(10 + start, 10 + start + size), lambda _: "c")
            for place, start in enumerate(range(0, rows, size))
        ]
        return rows / _cpu_s(lambda: [job.land(batch) for batch in batches])


def half_updates(rows: int, size: int) -> float:
    """Rows for a second of CPU, of batches of which every other row is there."""
    with tempfile.TemporaryDirectory() as folder:
        job, events = landing(Path(folder)), Events()
        job.land(events.batch(0, range(size), lambda _: "c"))
        batches = []
        for place, start in enumerate(range(0, rows, size)):
            first = start + size // 2
            batches.append(
                events.batch(1 + place, range(first, first + size), lambda key, end=start + size: "u" if key < end else "c")
            )  # fmt: skip
        return rows / _cpu_s(lambda: [job.land(batch) for batch in batches])


def idle_table_ms(tables: int, rounds: int) -> float:
    """Milliseconds of CPU that a table without changes adds to a batch."""
    costs = []
    for count in (1, tables):
        with tempfile.TemporaryDirectory() as folder:
            job, events = landing(Path(folder), count), Events()
            for table in range(count):
                job.land(events.batch(0, range(10), lambda _: "c", table))
            batches = [
                events.batch(1 + n, range(100 * n, 100 * n + 100), lambda _: "c") for n in range(rounds)
            ]
            costs.append(_cpu_s(lambda job=job, batches=batches: [job.land(one) for one in batches]))
    return (costs[1] - costs[0]) / rounds / (tables - 1) * 1000


def growth(
    batches: int, size: int, *, tables: int = 1, form: str = "delta", updates: float = 0.0, keep: int = 0
) -> list[float]:
    """Milliseconds of CPU of each batch of a run.

    Args:
        size: rows of each table in a batch.
        updates: part of them that change a row of one of the ten batches before.
        keep: so many snapshots of each Iceberg table are left by somebody else's job, whose CPU is not counted; 0 is all.
    """
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        job, events = landing(Path(folder), tables, form), Events()
        costs = []
        for number in range(batches):
            first, old = size * number, round(size * updates) if number else 0
            ids = [*range(first, first + size - old)]
            ids += draw.sample(range(max(0, first - 10 * size), first), old)
            records = [
                one
                for table in range(tables)
                for one in events.batch(
                    number, ids, lambda key, first=first: "u" if key < first else "c", table
                ).records
            ]
            batch = Batch.of_records(number, records, {"topic": "id-1"})
            costs.append(_cpu_s(lambda batch=batch: job.land(batch)) * 1000)
            if keep and number % _EXPIRED_EVERY == 0:
                _expire(Path(folder), keep)
        return costs


def far_away_s(tables: int, rounds: int, latency_s: float, parallel: int) -> float:
    """Seconds of a batch with changes for so many tables, where each request to the store takes that long besides."""
    with tempfile.TemporaryDirectory() as folder, _far_away(latency_s):
        job, events = landing(Path(folder), tables, parallel_tables=parallel), Events()
        batches = []
        for number in range(rounds + 1):
            ids = range(20 * number, 20 * number + 20)
            records = [
                one
                for table in range(tables)
                for one in events.batch(number, ids, lambda _: "c", table).records
            ]
            batches.append(Batch.of_records(number, records, {"topic": "id-1"}))
        job.land(batches[0])
        started_s = time.monotonic()
        for batch in batches[1:]:
            job.land(batch)
        return (time.monotonic() - started_s) / rounds


@contextmanager
def _far_away(latency_s: float) -> Iterator[None]:
    """Let each request to a local folder take as long as one to a store behind a network."""
    names = ("get", "get_range", "get_tail", "list", "put", "put_if_absent", "delete")
    near = {name: getattr(LocalObjects, name) for name in names}

    def slow(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*given: Any) -> Any:
            time.sleep(latency_s)
            return ask(*given)

        return asked

    for name, ask in near.items():
        setattr(LocalObjects, name, slow(ask))
    try:
        yield
    finally:
        for name, ask in near.items():
            setattr(LocalObjects, name, ask)


def tenths(costs: list[float]) -> list[float]:
    """The average of each tenth of a run."""
    cuts = [len(costs) * part // 10 for part in range(11)]
    return [statistics.mean(costs[start:end] or [0.0]) for start, end in pairwise(cuts)]


def flatness(costs: list[float]) -> float:
    """The last 50 batches' average by that of batches 20 to 70, when caches are warm."""
    return statistics.mean(costs[-50:]) / statistics.mean(costs[20:70] or [math.nan])


def _expire(folder: Path, keep: int) -> None:
    """Expire all snapshots but the last ones of each table, as PyIceberg does; those that a tag names stay."""
    catalog = load_catalog(**_catalog(folder))
    for namespace in catalog.list_namespaces():
        for name in catalog.list_tables(namespace):
            table = catalog.load_table(name)
            named = {ref.snapshot_id for ref in table.metadata.refs.values()}
            old = [one.snapshot_id for one in table.metadata.snapshots[:-keep]]
            table.maintenance.expire_snapshots().by_ids([one for one in old if one not in named]).commit()
    catalog.close()


def _cpu_s(what: Callable[[], object]) -> float:
    started = time.process_time()
    what()
    return time.process_time() - started


def main() -> None:
    """Print one row for each figure."""
    parser = argparse.ArgumentParser(prog="python -m bench.cdc.throughput", description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=20_000, help="rows in a batch")
    parser.add_argument("--batches", type=int, default=200, help="batches, to see what one costs later")
    parser.add_argument("--tables", type=int, default=3, help="tables of these batches, 20 rows each")
    parser.add_argument("--format", choices=["delta", "iceberg"], default="delta", help="of these tables")
    parser.add_argument("--updates", type=float, default=0.0, help="part of their rows that are there")
    parser.add_argument(
        "--keep", type=int, default=0, help="snapshots that another job leaves of each Iceberg table; 0: all"
    )
    parser.add_argument("--only-batches", action="store_true", help="leave out the other figures")
    parser.add_argument(
        "--latency-ms", type=float, default=30.0, help="of each request to a store behind a network"
    )
    given = parser.parse_args()
    grid = Table("what", "figure", "unit")
    if not given.only_batches:
        grid.add_row("append-only", f"{append_only(given.rows, given.size):,.0f}", "rows/s of CPU")
        for form, what in (("bare-json", "JSON without schemas"), ("avro", "Avro"), ("dms", "AWS DMS")):
            rate = append_only(given.rows, given.size, form)
            grid.add_row(f"append-only, {what}", f"{rate:,.0f}", "rows/s of CPU")
        grid.add_row("half updates", f"{half_updates(given.rows, given.size):,.0f}", "rows/s of CPU")
        grid.add_row("an idle table, of 50", f"{idle_table_ms(50, 20):.2f}", "ms of CPU for a batch")
        for parallel in (4, 16):
            far_s = far_away_s(50, 5, given.latency_ms / 1000, parallel)
            what = f"50 tables with changes, requests of {given.latency_ms:g} ms, {parallel} at once"
            grid.add_row(what, f"{far_s:.2f}", "s for a batch")
    costs = growth(
        given.batches, 20, tables=given.tables, form=given.format, updates=given.updates, keep=given.keep
    )
    parts = tenths(costs)
    title = f"{given.batches} batches of {given.tables} {given.format} tables, by tenths"
    grid.add_row(title, " ".join(f"{part:.0f}" for part in parts), "ms of CPU for a batch")
    grid.add_row("the last tenth to the first", f"{parts[-1] / parts[0]:.2f}", "")
    grid.add_row("the last 50 to batches 20 to 70", f"{flatness(costs):.2f}", "")
    screen().print(grid)


if __name__ == "__main__":
    main()
