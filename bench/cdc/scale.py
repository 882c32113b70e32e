"""Measures whether the job grows with executors: ``python -m bench.cdc.scale --json FILE``, by process and by row.

A topic is full before the job starts on a standalone cluster of one and of two executors with a core each.  From the second
commit of the ledger to the last one, CPU is counted apart: the driver's Python, its Java, the executors' Java (they fetch) and
their Python (it decodes).  What starts and compiles comes before the second commit, so it is not in the figures.  Each run is
made with batches of two sizes, but for ``--once``: what the driver's Python costs is a constant for a batch, and so much for each
record besides.  The scene ``snapshot`` is one table that Debezium reads as it is, for batches that are large;
``events`` is one of events that are appended, and ``history`` one whose rows are inserted, then updated, and keep both versions.
"""

from __future__ import annotations

import argparse
import atexit
import json
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import deltalake
import pyarrow as pa
from rich.table import Table

from bench.cdc.cluster import on_cluster
from bench.cdc.events import Events
from bench.cdc.modes import SETTINGS, Mode
from bench.cdc.producer import Producer
from bench.cdc.source_stack import DATABASE, Job
from bench.screen import screen
from bench.servers.kafka import Kafka
from bench.servers.spark import Cluster
from bench.servers.usage import KINDS, Usage, by_kind, shares_of

TOPIC = "shop.public.all"
_STUCK_S, _POLL_S = 900.0, 0.1
_WARM = 10
"""So many records of a quiet stream come before those that count: Java compiles."""
SMALLER = 4
"""Batches of the second size have so many times fewer records."""


@dataclass(frozen=True)
class Scene:
    """The tables of a topic, and the part of the records that is of the first of them; all have so many partitions.

    ``own_topics``: each table has a topic of its own, as Debezium makes them.
    """

    tables: int
    hot: float = 0.0
    partitions: int = 4
    run: int = 1000
    """So many records of a table come one after another."""
    own_topics: bool = False
    mode: Mode = "upsert"
    """The mode of the tables (``mode`` of a job's configuration)."""
    op: str = "c"
    """What records are, by Debezium's letters."""
    updates: bool = False
    """Whether the second half of the records updates the rows of the first."""

    @property
    def topics(self) -> list[str]:
        """The names of the topics."""
        if not self.own_topics:
            return [TOPIC]
        return [f"shop.public.t{number}" for number in range(self.tables)]


SCENES: Mapping[str, Scene] = {
    "hot": Scene(20, 0.9),
    "even": Scene(20),
    "snapshot": Scene(1, 1.0, op="r"),
    "events": Scene(1, 1.0, mode="append"),
    "history": Scene(1, 1.0, mode="history", updates=True),
    "forty": Scene(40, run=100),
    "topics": Scene(40, partitions=2, run=100, own_topics=True),
    "partitions": Scene(40, partitions=64, run=100),
}
"""``topics`` and ``partitions`` have the records of ``forty`` in more partitions; of ``history`` every row has two versions."""


@dataclass
class Scaled:
    """What a run did with the records between the second commit of its ledger and the last."""

    scene: str
    engine: str
    executors: int
    batch: int
    """Records in a batch, at most."""
    defaults: bool = False
    """Whether the driver has Spark's heap of 1 GB, and parts as these follow from it."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Further settings of Spark."""
    rows: int = 0
    batches: int = 0
    wall_s: float = 0.0
    cpu_us: dict[str, float] = field(default_factory=dict)
    """Microseconds of CPU for a record, by the kind of process."""
    compiling_us: dict[str, float] = field(default_factory=dict)
    """Of these, what Java's compilers took: a job that runs for long pays them once."""
    shares: list[float] = field(default_factory=list)
    """The part of the executors' CPU that each of them took."""
    driver_mib: float = 0.0
    """The most that the driver's Python had in memory."""
    chosen: list[str] = field(default_factory=list)
    """Where the batches of ``auto`` landed and why, as the ledger says."""

    @property
    def driver_ms(self) -> float:
        """Milliseconds of CPU of the driver's Python for a batch."""
        return self.cpu_us[KINDS[0]] * self.rows / max(1, self.batches) / 1000

    @property
    def size(self) -> float:
        """Records in a batch, on average."""
        return self.rows / max(1, self.batches)

    @property
    def rate(self) -> float:
        """Records a second of wall."""
        return self.rows / self.wall_s if self.wall_s else 0.0


def parted(large: Scaled, small: Scaled) -> tuple[float, float]:
    """What the driver's Python costs for a batch in milliseconds, and for each record besides in microseconds."""
    slope = (large.driver_ms - small.driver_ms) / (large.size - small.size) * 1000
    return small.driver_ms - slope * small.size / 1000, slope


class Run(NamedTuple):
    """Records of one table that come one after another, in one partition of all that the topics have."""

    table: int
    ids: range
    op: str
    partition: int


def runs_of(rows: int, scene: Scene) -> Iterator[Run]:
    """So many records of a scene; those of one key are in one partition."""
    first = -(-rows // 2 // scene.run) * scene.run if scene.updates else rows
    for at in range(0, rows, scene.run):
        is_new, end = at < first, min(rows, at + scene.run)
        ids = range(at, min(first, end)) if is_new else range(at - first, end - first)
        number = ids.start // scene.run
        table = 0 if (number % 100) < scene.hot * 100 else number % scene.tables
        of_topic = table * scene.partitions if scene.own_topics else 0
        of_table = number // scene.tables + (0 if scene.own_topics else number)
        yield Run(table, ids, scene.op if is_new else "u", of_topic + of_table % scene.partitions)


def fill(producer: Producer, rows: int, scene: str) -> None:
    """Send the records of a scene."""
    events = Events()
    for run_of in runs_of(rows, SCENES[scene]):
        for one in events.batch(0, run_of.ids, lambda _, op=run_of.op: op, run_of.table).records:
            producer.send(run_of.partition, one.key, one.value)
    if (told := producer.flush()) != rows:
        raise RuntimeError(f"{rows} records were made, and the broker took {told}")


def tables_of(scene: Scene) -> list[dict[str, Any]]:
    """The tables of a scene as a job's configuration has them; events have no key."""
    key = {} if scene.mode == "append" else {"primary_key": ["id"]}
    return [
        {"database": DATABASE, "table": f"t{number}", **key, **SETTINGS[scene.mode]}
        for number in range(scene.tables)
    ]


@contextmanager
def begun(kafka: Kafka, folder: Path, told: Scaled, batch: int, **more: Any) -> Iterator[tuple[Job, Cluster]]:
    """The job on a cluster of its own; ``more`` are settings of the job."""
    folder.mkdir()
    scene = SCENES[told.scene]
    settings = {
        "tables": tables_of(scene),
        "kafka": {"servers": kafka.endpoint_url, "topics": scene.topics, "max_offsets_per_trigger": batch},
        "engine": told.engine,
        "parallel_tables": 2,
        **more,
    }  # fmt: skip
    if not told.defaults:
        settings["parts"] = {"records": batch, "bytes": 1 << 30}
    heap = "1g" if told.defaults else "2g"
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(folder, told.executors, "2g"))
        spark = on_cluster(cluster) | {
            "spark.executor.memory": "1g", "spark.driver.memory": heap, "spark.speculation": "false",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC", "spark.locality.wait": "0", **told.conf,
        }  # fmt: skip
        job = Job(folder, "delta", kafka.endpoint_url, settings, batch, spark=spark, by_lot=False)
        stack.callback(job.kill)
        job.start()
        yield job, cluster


def run(kafka: Kafka, folder: Path, told: Scaled, rows: int, batch: int) -> Scaled:
    """Land the whole topic, and count."""
    with begun(kafka, folder, told, batch) as (job, cluster):
        _watch(job, cluster, rows, told)
    return told


def latencies_s(kafka: Kafka, producer: Producer, folder: Path, told: Scaled, sends: int) -> list[float]:
    """Seconds from a record to its line in the ledger, of so many records of one table, each sent while nothing else comes."""
    found, events, draw = list[float](), Events(), random.Random(1)
    versions = landed = 0
    with begun(kafka, folder, told, told.batch, trigger={"interval_s": 1}) as (job, _):
        for number in range(_WARM + sends):
            (one,) = events.batch(0, [number], lambda _: "c").records
            producer.send(number % SCENES["snapshot"].partitions, one.key, one.value)
            producer.flush()
            sent, deadline = time.monotonic(), time.monotonic() + _STUCK_S
            while landed <= number:
                if job.ended is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the job stopped at record {number}:\n{job.log.read_text()[-2000:]}")
                time.sleep(0.01)
                if (now := _versions(job)) != versions:
                    versions, landed = now, _landed(job)
            found.append(time.monotonic() - sent)
            time.sleep(draw.uniform(1.0, 3.0))
    return found[_WARM:]


def _versions(job: Job) -> int:
    """How many versions the ledger has: to list them costs less than to read it."""
    return sum(1 for _ in (job.lake / "cdc" / "shop-delta_ledger" / "_delta_log").glob("0*.json"))


def _watch(job: Job, cluster: Cluster, rows: int, told: Scaled) -> None:
    """Look at the processes at each commit of the ledger, until all records are in it but for a small batch.

    Spark cuts a batch by partitions, each to a whole number of records: of many partitions some records are left, which have a batch of
    their own for all tables.
    """
    deadline, seen, points = time.monotonic() + _STUCK_S, 0, list[_Point]()
    usage = Usage(job.pid, cluster)
    while rows - seen > told.batch // 10:
        if job.ended is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the job stopped at {seen} of {rows} records:\n{job.log.read_text()[-2000:]}")
        spent, now = usage.look(), _landed(job)
        told.driver_mib = usage.peaks_mib.get(job.pid, 0.0)
        if now > seen:
            seen, deadline = now, time.monotonic() + _STUCK_S
            points.append(_Point(time.monotonic(), now, spent, usage.compiling_s()))
        time.sleep(_POLL_S)
    first, last = points[1], points[-1]
    told.rows, told.wall_s, told.batches = (
        last.records - first.records,
        last.at_s - first.at_s,
        len(points) - 2,
    )
    grown, compiled = _grown(first.cpu_s, last.cpu_s), _grown(first.compiling_s, last.compiling_s)
    told.cpu_us, told.compiling_us = (
        {kind: spent / max(1, told.rows) * 1e6 for kind, spent in by_kind(usage.kinds, one).items()}
        for one in (grown, compiled)
    )
    told.shares, told.chosen = shares_of(usage.kinds, grown), _chosen(job)
    if len(told.shares) != told.executors:
        raise RuntimeError(
            f"{len(told.shares)} executors worked, not {told.executors}: the job ran elsewhere"
        )


class _Point(NamedTuple):
    """A commit of the ledger: when it was seen, how many records had landed, and seconds of CPU of each process."""

    at_s: float
    records: int
    cpu_s: dict[int, float]
    compiling_s: dict[int, float]


def _grown(before: Mapping[int, float], after: Mapping[int, float]) -> dict[int, float]:
    return {pid: spent - before.get(pid, 0.0) for pid, spent in after.items()}


def _landed(job: Job) -> int:
    return sum(line["records"] for line in _lines(job, ["records"]))


def _chosen(job: Job) -> list[str]:
    lines = _lines(job, ["batch", "table", "engine"])
    chosen = {line["batch"]: line["engine"] for line in lines if line["table"] is None and line["engine"]}
    return [chosen[batch] for batch in sorted(chosen)]


def _lines(job: Job, columns: list[str]) -> list[dict[str, Any]]:
    """These columns of the ledger."""
    place = job.lake / "cdc" / "shop-delta_ledger"
    if not (place / "_delta_log").exists():
        return []
    return pa.table(deltalake.DeltaTable(str(place)).to_pyarrow_table(columns=columns)).to_pylist()


def _quiet(
    folder: Path, engines: list[str], executors: list[int], sends: int, conf: Mapping[str, str]
) -> None:
    """Print how late records of a quiet stream are, by engine."""
    grid = Table("engine", "executors", "records", "median, s", "nine of ten, s", "most, s")
    for engine, count in product(engines, executors):
        place = folder / f"quiet-{engine}-{count}"
        place.mkdir()
        with (
            Kafka(place) as kafka,
            Producer(kafka, TOPIC, SCENES["snapshot"].partitions, folder / "producer.log") as producer,
        ):
            told = Scaled("snapshot", engine, count, 100_000, True, conf)
            late = sorted(latencies_s(kafka, producer, place / "job", told, sends))
        nine = late[min(len(late) - 1, round(len(late) * 0.9))]
        figures = (f"{one:.2f}" for one in (statistics.median(late), nine, late[-1]))
        grid.add_row(engine, str(count), str(len(late)), *figures)
    screen().print(grid)


def main() -> None:
    """Print a row for each run, and write them."""
    parser = argparse.ArgumentParser(prog="python -m bench.cdc.scale", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000, help="records in a batch")
    parser.add_argument("--once", action="store_true", help="batches of this size alone")
    parser.add_argument("--scenes", nargs="*", choices=SCENES, default=["hot", "even"])
    parser.add_argument(
        "--engines", nargs="*", choices=["auto", "local", "spark"], default=["local", "spark"]
    )
    parser.add_argument("--executors", nargs="*", type=int, default=[1, 2])
    parser.add_argument(
        "--defaults", action="store_true", help="a heap of 1 GB for the driver, and its parts"
    )
    parser.add_argument("--conf", action="append", default=[], help="a further setting of Spark: name=value")
    parser.add_argument(
        "--quiet",
        type=int,
        metavar="N",
        help="instead: how late each of N records of a quiet stream is, with a trigger of 1 s",
    )
    parser.add_argument("--json", type=Path, help="file of the figures")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="safewrite-scale-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    settings = dict(one.split("=", 1) for one in given.conf)
    told, say = list[Scaled](), screen().print
    if given.quiet is not None:
        _quiet(folder, given.engines, given.executors, given.quiet, settings)
        return
    for scene in given.scenes:
        (folder / scene).mkdir()
        with Kafka(folder / scene) as kafka:
            one = SCENES[scene]
            with Producer(kafka, ",".join(one.topics), one.partitions, folder / "producer.log") as producer:
                fill(producer, given.rows, scene)
            for engine in given.engines:
                sizes = (given.batch,) if given.once else (given.batch, given.batch // SMALLER)
                for executors, batch in product(given.executors, sizes):
                    made = Scaled(scene, engine, executors, batch, given.defaults, settings)
                    place = folder / scene / f"{engine}-{executors}-{batch}"
                    run(kafka, place, made, given.rows, batch)
                    say(json.dumps(asdict(made)))
                    told.append(made)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(one) | {"rate": one.rate} for one in told], indent=1))
    grid = Table(
        "scene",
        "engine",
        "executors",
        "batch",
        "records/s",
        *(f"{kind}, us" for kind in KINDS),
        "of it compiling",
        "shares",
        "driver, MiB",
    )
    for one in told:
        cpu = (f"{one.cpu_us[kind]:.2f}" for kind in KINDS)
        shares = " ".join(f"{share:.0%}" for share in one.shares)
        grid.add_row(
            one.scene,
            one.engine,
            str(one.executors),
            f"{one.batch:,}",
            f"{one.rate:,.0f}",
            *cpu,
            f"{sum(one.compiling_us.values()):.2f}",
            shares,
            f"{one.driver_mib:.0f}",
        )
    say(grid)
    if given.once:
        return
    grid = Table(
        "scene", "engine", "executors", "driver's Python, ms a batch", "ms a table of it", "us a record"
    )
    for large, small in zip(told[::2], told[1::2], strict=True):
        whole, slope = parted(large, small)
        of_table = whole / SCENES[large.scene].tables
        grid.add_row(
            large.scene, large.engine, str(large.executors), f"{whole:.0f}", f"{of_table:.1f}", f"{slope:.2f}"
        )
    say(grid)


if __name__ == "__main__":
    main()
