"""``python -m bench.perf.spark`` times Spark's appends through safewrite, each against the same without it.

Plain Delta writes go through safewrite's log store and through Delta's own for a single driver; batches of an
Iceberg sink stand against ``writeTo().append()``, once of a frame whose rows must be hashed, once of a stream
that is recognised by its offsets.  One session, one S3, tables of their own, in turn.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from safewrite.spark import attach, configure

from ..servers import servers
from ..servers.catalogs import IcebergRest, Postgres, catalog_properties
from ..stress.spark_reader import JARS, catalog_settings, s3a_settings, session_settings
from . import spark_pairs
from .figures import Spread, in_turn
from .harness import LOCK_TABLE, Harness
from .spark_pairs import CATALOG, RATIO_MAX, Feed, Pair

PAIRS = ("delta", "iceberg", "stream")
WARM_UPS = 3
_PART_MIN_S = 0.001


def _session(lab: Harness, folder: Path, catalog: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    assert lab.cloud is not None
    servers.create_lock_table(lab.cloud.boto3_client("dynamodb"), LOCK_TABLE)
    options = lab.place("any").storage_options
    settings = {
        **session_settings(folder, memory="2g", jvm=""),
        "spark.delta.logStore.plain.impl": "io.delta.storage.S3SingleDriverLogStore",
        "spark.hadoop.fs.plain.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        **s3a_settings(options),
        **catalog_settings(CATALOG, catalog),
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "true",  # the default
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else executors take the Python of the path
    builder = SparkSession.builder.master("local[2]").appName("safewrite-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure(builder, jars=JARS, lock_table=LOCK_TABLE, iceberg={CATALOG: {}}).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return attach(session, storage_options=options)


def _catalog(lab: Harness, folder: Path, stack: ExitStack) -> dict[str, str]:
    """A REST catalog whose tables are on the lab's S3; PyIceberg's properties for it."""
    assert lab.cloud is not None
    warehouse = f"s3://{servers.SEAWEED_BUCKET}/rest"
    database = stack.enter_context(Postgres(folder)).jdbc_database()
    rest = IcebergRest(folder, s3=lab.cloud.s3, warehouse=warehouse, jdbc_uri=database)
    uri = stack.enter_context(rest).uri
    return catalog_properties("rest", uri=uri, s3_url=lab.cloud.endpoint_url, warehouse=warehouse)


def main(
    rows: Annotated[int, typer.Option(help="Rows of a batch.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Batches for each arm.")] = 9,
    only: Annotated[str, typer.Option(help="Some of delta, iceberg and stream, by commas.")] = ",".join(
        PAIRS
    ),
) -> None:
    """Time batches in turn; exits with 1 if a row is lost or doubled."""
    asked = only.split(",")
    if not set(asked) <= set(PAIRS):
        raise typer.BadParameter(f"--only is of {', '.join(PAIRS)}, not {only!r}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-spark-")))
        lab = stack.enter_context(Harness(folder, seaweed=True))
        catalog = _catalog(lab, folder, stack)
        session = _session(lab, folder, catalog)
        stack.callback(session.stop)
        frame = _frame(session, rows)
        kept, whole = spark_pairs.kept(frame), []
        if "delta" in asked:
            whole.append(_compare(spark_pairs.delta(session, lab, frame), kept, rows, rounds))
        if "iceberg" in asked:
            pair = spark_pairs.iceberg(session, catalog, frame, "Iceberg sink, a frame")
            whole.append(_compare(pair, kept, rows, rounds))
        if "stream" in asked:
            pair = spark_pairs.iceberg(session, catalog, frame, "Iceberg sink, a stream over a Delta table")
            whole.append(_compare(pair, spark_pairs.streamed(session, lab, frame, folder), rows, rounds))
    sys.exit(0 if all(whole) else 1)


def _frame(session: Any, rows: int) -> Any:
    frame = session.range(rows).selectExpr(
        "id", "CAST(id * 0.5 AS DECIMAL(12, 2)) AS amount", "concat('customer-', id % 1000) AS who"
    )
    frame = frame.coalesce(2).persist()
    frame.count()
    return frame


def _compare(pair: Pair, feed: Feed, rows: int, rounds: int) -> bool:
    took: dict[str, list[float]] = {arm: [] for arm in pair.arms}

    def take(frame: Any, number: int) -> None:
        if number == WARM_UPS:
            pair.forget()
        timed = {arm: _seconds(act, frame, number) for arm, act in pair.arms.items()}
        for arm, seconds in in_turn(timed, number).items():
            took[arm].append(seconds)

    feed(take, WARM_UPS + rounds)
    took = {arm: values[WARM_UPS:] for arm, values in took.items()}
    print(f"\n{pair.name}")
    for arm, values in took.items():
        spread = Spread.of(values)
        print(
            f"{arm:<10} {rows:,} rows: median {spread.median:.3f} s, min {spread.min:.3f}, max {spread.max:.3f}"
        )
    ratio = Spread.of([ours / theirs for ours, theirs in zip(*took.values(), strict=True)])
    print(f"ratio of each round: median {ratio.median:.3f} (aim: at most {RATIO_MAX})")
    parts = sorted(pair.parts().items(), key=lambda part: -part[1])
    listed = ", ".join(f"{name} {took_s * 1000:.0f}" for name, took_s in parts if took_s >= _PART_MIN_S)
    print(f"milliseconds of one append in Python, by step: {listed}")
    counts = pair.count()
    print(f"rows in the tables: {counts}")
    return all(count == rows * (WARM_UPS + rounds) for count in counts.values())


def _seconds(act: Callable[[Any, int], object], frame: Any, number: int) -> Callable[[], float]:
    def timed() -> float:
        started_s = time.perf_counter()
        act(frame, number)
        return time.perf_counter() - started_s

    return timed


if __name__ == "__main__":
    typer.run(main)
