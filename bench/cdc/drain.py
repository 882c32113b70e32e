"""Drains one topic of inserts by the job and by Iceberg's sink for Kafka Connect: ``python -m bench.cdc.drain``.

The topic is full before the first of them starts, and each drains all of it, one after another.  Rows a second are those from
the first commit to the last, of wall and of CPU (all of a drainer's processes): starting is not in it.  Java compiles for the
first minute or two, so the rates of the second half of the rows are printed beside them.  Then each drains the topic again
while it is killed, and the ids are counted in the table's files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

import deltalake
import pyarrow as pa
from rich.table import Table

from bench.cdc import sink
from bench.cdc.inserts import PARTITIONS, TABLE, TOPIC, fill
from bench.cdc.producer import Producer
from bench.cdc.source_stack import DATABASE, SMALL_SPARK, Form, Job
from bench.screen import screen
from bench.servers.connect import IcebergSink
from bench.servers.kafka import Kafka

NAMES = ("delta", "iceberg", "iceberg-sink")
"""The job in both formats, and Iceberg's sink."""
_COMMIT_S = 5.0
_STUCK_S = 240.0
_POLL_S = 0.2
SPARK = {
    **SMALL_SPARK,
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xms1g",
}
"""As many tasks as the sink has; for both Java's whole compiler, and a heap that does not shrink."""
_BARE = {
    f"{one}.converter{more}": value
    for one in ("key", "value")
    for more, value in (("", "org.apache.kafka.connect.json.JsonConverter"), (".schemas.enable", "false"))
}
"""Converters of the sink for records without schemas."""


class Drainer(Protocol):
    """Something that lands the topic."""

    @property
    def pid(self) -> int: ...

    def start(self) -> None:
        """Start it, or start it again."""

    def kill(self) -> None:
        """SIGKILL."""

    def failed(self) -> str | None:
        """Why it ended by itself."""

    def rows(self) -> int:
        """Rows that its table tells to have."""

    def ids(self) -> list[int]:
        """The ids in its table."""


@dataclass
class Ours:
    """The job, in one format."""

    job: Job

    @property
    def pid(self) -> int:
        return self.job.pid

    def start(self) -> None:
        self.job.start()

    def kill(self) -> None:
        self.job.kill()

    def failed(self) -> str | None:
        code = self.job.ended
        return None if code is None else f"exit code {code}; see {self.job.log}"

    def rows(self) -> int:
        if self.job.form == "iceberg":
            return sink.rows(self.job.folder / "catalog.db", TABLE)
        place = self.job.lake / DATABASE / TABLE
        if not (place / "_delta_log").exists():
            return 0
        files = pa.table(deltalake.DeltaTable(str(place)).get_add_actions(flatten=True))
        return sum(files.column("num_records").to_pylist())

    def ids(self) -> list[int]:
        if self.job.form == "iceberg":
            return _ids(sink.read(self.job.folder / "catalog.db", TABLE, ("id",)))
        place = str(self.job.lake / DATABASE / TABLE)
        return _ids(pa.table(deltalake.DeltaTable(place).to_pyarrow_table(columns=["id"])))


@dataclass
class Sink:
    """Iceberg's sink."""

    server: IcebergSink
    has_run: bool = False

    @property
    def pid(self) -> int:
        return self.server.pid

    def start(self) -> None:
        if self.has_run:
            self.server.restart()
        else:
            self.server.start()
            self.has_run = True

    def kill(self) -> None:
        os.kill(self.server.pid, signal.SIGKILL)

    def failed(self) -> str | None:
        return sink.failure(self.server)

    def rows(self) -> int:
        return sink.rows(self.server.catalog, TABLE)

    def ids(self) -> list[int]:
        return _ids(sink.read(self.server.catalog, TABLE, ("id",)))


@dataclass
class Drained:
    """What a drainer did."""

    name: str
    rows: int
    wall_rate: float = 0.0
    """Rows a second of wall, from the first commit to the last."""
    cpu_rate: float = 0.0
    """Rows a second of CPU, in the same time."""
    late_wall_rate: float = 0.0
    late_cpu_rate: float = 0.0
    """The same of the second half of the rows."""
    start_s: float = 0.0
    """Seconds from its start to its first commit."""
    commits: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    stopped: str = ""
    points: list[tuple[float, float, int]] = field(default_factory=list)
    """Seconds, seconds of CPU and rows after each commit."""


def drain(name: str, made: Drainer, rows: int) -> Drained:
    """Let it land the whole topic."""
    told, began = Drained(name, rows), time.monotonic()
    made.start()
    _watch(made, rows, told, began)
    if len(told.points) > 1:
        told.start_s = told.points[0][0]
        told.wall_rate, told.cpu_rate = _rates(told.points)
        late = [point for point in told.points if point[2] >= rows / 2]
        told.late_wall_rate, told.late_cpu_rate = _rates(late) if len(late) > 1 else (0.0, 0.0)
    told.commits = len(told.points)
    return _counted(made, told)


def _rates(points: list[tuple[float, float, int]]) -> tuple[float, float]:
    """Rows a second of wall and of CPU, from the first of these commits to the last."""
    (first_s, first_cpu, first), (last_s, last_cpu, last) = points[0], points[-1]
    return (last - first) / (last_s - first_s), (last - first) / max(1e-9, last_cpu - first_cpu)


def drain_killed(name: str, made: Drainer, rows: int, kills: int, seed: int) -> Drained:
    """The same, killed so many times at random: in turn soon after it runs, and after its next commit."""
    told, draw = Drained(name, rows), random.Random(seed)
    for number in range(kills):
        before = made.rows()
        if before >= rows:
            break
        made.start()
        deadline = time.monotonic() + _STUCK_S
        while number % 2 and made.rows() == before and made.failed() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        time.sleep(draw.uniform(0.0, 1.5 * _COMMIT_S))
        made.kill()
        told.kills += 1
    made.start()
    _watch(made, rows, told, time.monotonic())
    return _counted(made, told)


def _watch(made: Drainer, rows: int, told: Drained, began: float) -> None:
    """Note each commit until the table has all rows, nothing more comes, or it fails."""
    deadline, seen = time.monotonic() + _STUCK_S, 0
    while seen < rows and time.monotonic() < deadline:
        if (now := made.rows()) != seen:
            seen, deadline = now, time.monotonic() + _STUCK_S
            told.points.append((time.monotonic() - began, cpu_s(made.pid), now))
        if (why := made.failed()) is not None:
            told.stopped = why
            return
        time.sleep(_POLL_S)
    if seen < rows:
        told.stopped = f"no commit for {_STUCK_S:g} s"


def _counted(made: Drainer, told: Drained) -> Drained:
    """The ids in the table, once a commit that may still be under way is over."""
    time.sleep(2 * _COMMIT_S)
    made.kill()
    found = Counter(made.ids())
    told.lost = sum(1 for number in range(told.rows) if number not in found)
    told.doubled = sum(times - 1 for times in found.values())
    return told


def cpu_s(pid: int) -> float:
    """Seconds of CPU of a process and of those that it started and that run."""
    parents, spent = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parts = place.read_text().rpartition(")")[2].split()
        except OSError:  # it ended just now
            continue
        parents[int(place.parent.name)] = int(parts[1])
        spent[int(place.parent.name)] = int(parts[11]) + int(parts[12])
    family = {pid}
    while more := {one for one, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(spent.get(one, 0) for one in family) / os.sysconf("SC_CLK_TCK")


def _ids(data: pa.Table | None) -> list[int]:
    found: list[int] = [] if data is None else data.column("id").to_pylist()
    return found


@contextmanager
def drainer(name: str, folder: Path, kafka: Kafka, batch: int, *, schemas: bool = True) -> Iterator[Drainer]:
    """One of ``NAMES``, with nothing landed; it is ended at the end."""
    folder.mkdir()
    if name == "iceberg-sink":
        control = f"control-{folder.name}"
        with Producer(kafka, control, 1, folder / "control.log"):
            pass
        server = IcebergSink(
            folder,
            kafka=kafka.endpoint_url,
            topics=[TOPIC],
            control=control,
            commit_s=_COMMIT_S,
            settings={"name": folder.name} | ({} if schemas else _BARE),
        )
        try:
            yield Sink(server)
        finally:
            server.stop()
        return
    form: Form = "delta" if name == "delta" else "iceberg"
    tables = [{"database": DATABASE, "table": TABLE, "source": f"public.{TABLE}", "format": form}]
    job = Job(folder, form, kafka.endpoint_url, {"tables": tables}, batch, spark=SPARK)
    try:
        yield Ours(job)
    finally:
        job.kill()


def run(
    names: list[str], rows: int, kills: int, *, batch: int, seed: int, folder: Path, schemas: bool = True
) -> list[Drained]:
    """Fill a topic, and drain it by each of them: first in peace, then killed."""
    told = []
    with Kafka(folder) as kafka:
        with Producer(kafka, TOPIC, PARTITIONS, folder / "producer.log") as producer:
            print(
                f"{rows} records of {fill(kafka, producer, rows, schemas=schemas)} bytes are in the topic",
                flush=True,
            )
        for name in names:
            for times in sorted({0, kills}):
                with drainer(name, folder / f"{name}-{times}", kafka, batch, schemas=schemas) as made:
                    told.append(
                        drain_killed(name, made, rows, times, seed) if times else drain(name, made, rows)
                    )
                print(json.dumps({**asdict(told[-1]), "points": len(told[-1].points)}), flush=True)
    return told


def main() -> None:
    """Print a row for each run, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m bench.cdc.drain", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_500_000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--batch", type=int, default=100_000, help="records in a batch of the job")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-schemas", action="store_true", help="records without their schema around them")
    parser.add_argument("--only", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--out", type=Path, default=Path("out/cdc"), help="folder of the report")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="safewrite-drain-"))
    print(f"files of the run: {folder}")
    told = run(
        given.only, given.rows, given.kills,
        batch=given.batch, seed=given.seed, folder=folder, schemas=not given.no_schemas,
    )  # fmt: skip
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "drain.json").write_text(json.dumps([asdict(one) for one in told], indent=1))
    grid = Table(
        "what",
        "kills",
        "rows/s",
        "rows/s of CPU",
        "second half",
        "of CPU",
        "start, s",
        "commits",
        "lost",
        "doubled",
        "stopped",
    )
    for one in told:
        rates = (
            ("",) * 5
            if one.kills
            else (
                *(
                    f"{rate:,.0f}"
                    for rate in (one.wall_rate, one.cpu_rate, one.late_wall_rate, one.late_cpu_rate)
                ),
                f"{one.start_s:.0f}",
            )
        )
        grid.add_row(
            one.name,
            str(one.kills),
            *rates,
            str(one.commits),
            str(one.lost),
            str(one.doubled),
            one.stopped[:200],
        )
    screen().print(grid)


if __name__ == "__main__":
    main()
