"""``python -m bench.medallion.scale``: one large table on clusters of one and of two executors, and plain Spark code that does the same.

Each run is a process of its own on a standalone cluster of executors with one core.  CPU and peak memory are counted by process,
what starts and compiles included.  Exit 0 only if plain code ends with as many rows of silver, and the same sum of their keys.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import typer
from rich.table import Table

from bench.cdc.cluster import on_cluster
from bench.medallion.spark import PlainSpark, session
from bench.medallion.speed import OURS, SPARK, config
from bench.screen import screen
from bench.servers.spark import Cluster
from bench.servers.usage import KINDS, Usage, by_kind, shares_of
from safewrite.medallion import Pipeline

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
TABLE = "t0"
ROOT = Path(__file__).resolve().parents[2]
_POLL_S = 0.2
_PARTITIONS = "32"
_MASTER, _WORK = "SCALE_MASTER", "--work"
_BATCH = 1_000_000
HEAPS = {OURS: "512m", SPARK: "2g"}
"""The memory that Spark has in an executor; ours has Python processes besides."""
JAVA = {OURS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1", SPARK: "-XX:+UseSerialGC"}
"""Options of the executors' Java: it computes plain Spark's rows, and hands ours over, so that compiling it well gains nothing."""


@dataclass
class Scaled:
    """What a run took."""

    code: str
    files: int
    executors: int
    rows: int
    wall_s: float = 0.0
    silver: tuple[int, int] = (0, 0)
    """Its rows, and the sum of their keys."""
    cpu_s: dict[str, float] = field(default_factory=dict)
    peaks_mib: dict[str, float] = field(default_factory=dict)
    """The most that one process of each kind had in memory."""
    shares: list[float] = field(default_factory=list)
    """The part of each executor in their CPU."""

    @property
    def cpu(self) -> float:
        """Seconds of CPU of all processes."""
        return sum(self.cpu_s.values())


def raw_files(folder: Path, rows: int, files: int) -> Path:
    """Changes of one table, of random keys, in so many CSV files: three of twenty are deletes or inserts."""
    place = folder / "db" / TABLE
    place.mkdir(parents=True)
    draw = np.random.default_rng(1)
    for number in range(files):
        with pacsv.CSVWriter(
            place / f"20261101-{number:09}.csv", _changes(draw, 0, 0, rows).schema
        ) as writer:
            first, end = rows * number // files, rows * (number + 1) // files
            for start in range(first, end, _BATCH):
                writer.write(_changes(draw, start, min(end, start + _BATCH), rows))
    return folder


def _changes(draw: np.random.Generator, start: int, end: int, keys: int) -> pa.Table:
    count = end - start
    cents = draw.integers(1000, 10**8, count)
    return pa.table({
        "Op": pa.array(np.array(["U"] * 17 + ["D", "D", "I"])[draw.integers(0, 20, count)], pa.string()),
        "id": draw.integers(0, keys, count),
        "name": pc.binary_join_element_wise("name", pa.array(draw.integers(0, 10**6, count)).cast(pa.string()), " "),
        "price": pa.array(cents / 100).cast(pa.decimal128(12, 2), safe=False),
        "at": pa.array(1_793_491_200_000_000 + draw.integers(0, 10**12, count), pa.timestamp("us")),
        "seq": np.arange(start, end),
    })  # fmt: skip


# --- a run ------------------------------------------------------------------------------------------------
def work(code: str, raw: Path, folder: Path) -> None:
    """Bring all files to silver, in the process of a driver."""
    if code == OURS:
        run = Pipeline(config(folder, str(raw), "delta", 1), engine="spark").run()
        assert run.ok, [one.error for one in run.tables]
        return
    settings = {"spark.master": os.environ[_MASTER], "spark.sql.shuffle.partitions": _PARTITIONS}
    with session(folder, 2, settings) as spark:
        PlainSpark(spark, folder, "delta").table(TABLE, sorted((raw / "db" / TABLE).iterdir()))


def measured(folder: Path, raw: Path, told: Scaled) -> Scaled:
    """Run a driver on a cluster of its own, and watch all processes."""
    folder.mkdir(parents=True)
    with Cluster(folder, told.executors, "3g") as cluster:
        settings = on_cluster(cluster) | {
            "spark.executor.memory": HEAPS[told.code],
            "spark.executor.extraJavaOptions": JAVA[told.code],
            "spark.speculation": "false",
            "spark.locality.wait": "0",
            "spark.sql.shuffle.partitions": _PARTITIONS,
        }
        given = " ".join(f'--conf "{name}={value}"' for name, value in settings.items())
        env = os.environ | {
            "PYSPARK_SUBMIT_ARGS": f"{given} pyspark-shell",
            _MASTER: cluster.master.endpoint_url,
        }
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "bench.medallion.scale",
            _WORK,
            told.code,
            str(raw),
            str(folder),
        ]
        with (folder / "driver.log").open("wb") as log:
            began_s = time.monotonic()
            driver = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
            usage = Usage(driver.pid, cluster)
            while driver.poll() is None:
                usage.look()
                time.sleep(_POLL_S)
            told.wall_s = time.monotonic() - began_s
    if driver.returncode:
        raise RuntimeError((folder / "driver.log").read_text()[-3000:])
    told.cpu_s, told.shares = by_kind(usage.kinds, usage.cpu_s), shares_of(usage.kinds, usage.cpu_s)
    told.peaks_mib = {
        kind: max(
            (one for pid, one in usage.peaks_mib.items() if usage.kinds[pid].startswith(kind)), default=0.0
        )
        for kind in KINDS
    }
    ids = deltalake.DeltaTable(folder / "silver" / TABLE).to_pyarrow_table(columns=["id"]).column("id")
    told.silver = len(ids), pc.sum(ids).as_py()
    return told


@app.command()
def scale(
    rows: Annotated[int, typer.Option(help="Changes of the table.")] = 2_000_000,
    files: Annotated[list[int] | None, typer.Option(help="They come in so many files (1, 8).")] = None,
    executors: Annotated[list[int] | None, typer.Option(help="With a core each (1, 2).")] = None,
    codes: Annotated[list[str] | None, typer.Option("--code", help="safewrite, plain Spark (both).")] = None,
    figures: Annotated[Path | None, typer.Option("--json", help="A file of the figures.")] = None,
) -> None:
    """CPU, memory and shares of one large table; options of several values are given again for each."""
    console, folder = screen(), Path(tempfile.mkdtemp(prefix="medallion-scale-"))
    told: list[Scaled] = []
    for count in files or (1, 8):
        raw = raw_files(folder / f"raw-{count}", rows, count)
        for code, number in product(codes or (OURS, SPARK), executors or (1, 2)):
            one = Scaled(code, count, number, rows)
            told.append(measured(folder / f"{code}-{count}-{number}".replace(" ", "-"), raw, one))
            console.print(json.dumps(asdict(one)))
            shutil.rmtree(folder / f"{code}-{count}-{number}".replace(" ", "-"))
        shutil.rmtree(raw)
    if figures is not None:
        figures.write_text(json.dumps([asdict(one) for one in told], indent=1))
    grid = Table(
        "files",
        "code",
        "executors",
        "s",
        "CPU, s",
        *(f"{kind}, s" for kind in KINDS),
        "shares",
        *(f"{kind}, MiB" for kind in KINDS),
    )
    for one in told:
        grid.add_row(
            str(one.files), one.code, str(one.executors), f"{one.wall_s:.0f}", f"{one.cpu:.0f}",
            *(f"{one.cpu_s[kind]:.0f}" for kind in KINDS), " ".join(f"{share:.0%}" for share in one.shares),
            *(f"{one.peaks_mib[kind]:.0f}" for kind in KINDS),
        )  # fmt: skip
    console.print(grid)
    unlike = {
        one.files
        for one in told
        if one.silver != next(other.silver for other in told if other.files == one.files)
    }
    if unlike:
        console.print(f"silver differs where the changes came in so many files: {sorted(unlike)}")
    sys.exit(1 if unlike else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == [_WORK]:
        work(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        app()
