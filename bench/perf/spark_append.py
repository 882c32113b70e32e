"""``python -m bench.perf.spark_append`` measures appends of Spark frames by tasks beside the writers of Delta and Iceberg.

CPU of all processes, the driver's JVM, its Python workers and this one, for rows read from Parquet and written again; the
writers of Delta and Iceberg fingerprint nothing and know no replay.  ``by library`` is safewrite where tasks cannot run.  One session, tables of their own on local disk, in turn.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from unittest import mock

import typer

import safewrite as sw
from safewrite.delta.connect import Connection
from safewrite.spark import attach, configure

from ..stress.spark_reader import JARS, session_settings
from .figures import Spread, in_turn

RATIO_MAX = 1.05
WARM_UPS = 2
CORES = 2
CATALOG = "local"
COLUMNS = (
    "id", "CAST(id % 100 AS INT) AS part", "CAST(id * 0.5 AS DECIMAL(12, 2)) AS amount", "concat('customer-', id % 1000) AS who",
    "rand(7) AS score", "timestamp_micros(1700000000000000 + id * 1000) AS at",
)  # fmt: skip
CASES = ("delta", "delta-parted", "iceberg", "iceberg-parted")


def main(
    rows: Annotated[int, typer.Option(help="Rows of an append.")] = 4_000_000,
    rounds: Annotated[int, typer.Option(help="Appends of each arm.")] = 5,
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(CASES)}, by commas.")] = ",".join(CASES),
) -> None:
    """Measure appends in turn; exits with 1 if a row is lost or doubled."""
    asked = only.split(",")
    if not set(asked) <= set(CASES):
        raise typer.BadParameter(f"--only is of {', '.join(CASES)}, not {only!r}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-append-")))
        session = _session(folder)
        stack.callback(session.stop)
        given = str(folder / "given")
        session.range(0, rows, 1, CORES).selectExpr(*COLUMNS).write.parquet(given)
        whole = [_compare(session, folder, case, given, rows, rounds) for case in asked]
    sys.exit(0 if all(whole) else 1)


def _session(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = [*sorted(JARS.glob("*.jar")), *sorted((JARS.parent / "iceberg-rest").glob("sqlite-jdbc-*.jar"))]
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("safewrite-bench")
    for name, value in session_settings(folder, memory="3g", jvm="").items():
        builder = builder.config(name, value)
    jdbc = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder}/lake.db",
        "warehouse": str(folder / "lake"),
        "jdbc.schema-version": "V1",
    }
    session = configure(builder, jars=jars, local_files=True, iceberg={CATALOG: jdbc}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return attach(session)


def _compare(  # noqa: PLR0917 - one caller, just above
    session: Any, folder: Path, case: str, given: str, rows: int, rounds: int
) -> bool:
    kind, _, parted = case.partition("-")
    parts = ["part"] if parted else []
    frame = session.read.parquet(given)
    schema = frame.limit(0).toArrow().schema
    make = _delta if kind == "delta" else _iceberg
    arms, read = make(session, folder, case, schema, parts)
    took: dict[str, list[tuple[float, float]]] = {arm: [] for arm in arms}
    for number in range(WARM_UPS + rounds):
        timed = {arm: measured(partial(act, frame, number)) for arm, act in arms.items()}
        for arm, figures in in_turn(timed, number).items():
            took[arm].append(figures)
    print(f"\n{case}: {rows:,} rows of {len(COLUMNS)} columns an append, {CORES} cores")
    spreads = {}
    for arm, found in took.items():
        spreads[arm] = cpu = Spread.of([one for one, _ in found[WARM_UPS:]])
        wall = Spread.of([one for _, one in found[WARM_UPS:]])
        print(
            f"{arm:<10} CPU {cpu.median:.2f} s (min {cpu.min:.2f}, max {cpu.max:.2f}): {rows / cpu.median:,.0f} rows/s a core; "
            f"wall {wall.median:.2f} s"
        )
    ours, *others = arms
    for other in others:
        ratio = spreads[ours].median / spreads[other].median
        print(f"ratio of CPU to {other}: {ratio:.3f} (aim: at most {RATIO_MAX})")
    counts = read()
    print(f"rows in the tables: {counts}")
    return all(count == rows * (WARM_UPS + rounds) for count in counts.values())


Arms = dict[str, Callable[[Any, int], object]]


def _delta(
    session: Any, folder: Path, case: str, schema: Any, parts: list[str]
) -> tuple[Arms, Callable[[], dict[str, int]]]:
    ours, library, plain = (folder / f"{case}-{arm}" for arm in ("ours", "library", "plain"))
    for one in (ours, library, plain):
        sw.create(one, schema, partition_by=parts)
    table, by_library = sw.open(ours), sw.open(library)

    def append_by_library(frame: Any, number: int) -> None:
        with mock.patch.object(Connection, "store", return_value=None):
            by_library.append(frame, key=f"event-{number}")

    arms: Arms = {
        "safewrite": lambda frame, number: table.append(frame, key=f"event-{number}"),
        "by library": append_by_library,
        "delta": lambda frame, number: frame.write.format("delta").mode("append").save(str(plain)),
    }
    return arms, lambda: {
        str(one.name): session.read.format("delta").load(str(one)).count() for one in (ours, library, plain)
    }


def _iceberg(
    session: Any, folder: Path, case: str, schema: Any, parts: list[str]
) -> tuple[Arms, Callable[[], dict[str, int]]]:
    catalog = {
        "name": CATALOG, "type": "sql", "uri": f"sqlite:///{folder}/lake.db", "warehouse": f"file://{folder}/lake",
    }  # fmt: skip
    name = case.replace("-", "_")
    names = {arm: f"db.{name}_{arm}" for arm in ("ours", "plain")}
    tables = {
        arm: sw.create(one, schema, catalog=catalog, partition_by=parts, create_namespace=True)
        for arm, one in names.items()
    }
    arms: Arms = {
        "safewrite": lambda frame, number: tables["ours"].append(frame, key=f"event-{number}"),
        "iceberg": lambda frame, number: frame.writeTo(f"{CATALOG}.{names['plain']}").append(),
    }
    return arms, lambda: {one: session.table(f"{CATALOG}.{one}").count() for one in names.values()}


# --- CPU -------------------------------------------------------------------------------------------------
def measured(act: Callable[[], object]) -> Callable[[], tuple[float, float]]:
    """Gives the CPU of all processes, and the wall time, of an act."""

    def timed() -> tuple[float, float]:
        before, began_s = cpu_of_all_s(), time.perf_counter()
        act()
        wall_s = time.perf_counter() - began_s
        return cpu_of_all_s() - before, wall_s

    return timed


def cpu_of_all_s() -> float:
    """CPU of this process and all below it, those that ended with them."""
    ticks, children = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        ticks[pid] = sum(map(int, words[11:15]))
        children.setdefault(int(words[1]), []).append(pid)
    found, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        found += ticks.get(pid, 0)
        left += children.get(pid, [])
    return found / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    typer.run(main)
