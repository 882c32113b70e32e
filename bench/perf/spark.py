"""``python -m bench.perf.spark``: plain Delta appends of Spark, through safewrite and through Delta's own log store.

One session, one S3, tables of their own, in turn.  Delta's ``S3SingleDriverLogStore`` is what a single driver
may use without any arbiter: it asks nobody, so it is the least that a commit can cost.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from safewrite.spark import attach, configure

from .. import servers
from ..stress.spark_reader import JARS
from .figures import Spread, interleave
from .lab import LOCK_TABLE, Lab

RATIO_MAX = 1.05
_SCHEMES = {"safewrite": "s3a", "delta": "plain"}
"""One bucket under two schemes: the log store goes by the scheme."""


def _session(lab: Lab, folder: Path) -> Any:
    from pyspark.sql import SparkSession

    assert lab.cloud is not None
    servers.create_lock_table(lab.cloud.boto3_client("dynamodb"), LOCK_TABLE)
    options = lab.place("any").storage_options
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.delta.logStore.plain.impl": "io.delta.storage.S3SingleDriverLogStore",
        "spark.hadoop.fs.plain.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.s3a.endpoint": options["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": options["AWS_REGION"],
        "spark.hadoop.fs.s3a.access.key": options["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": options["AWS_SECRET_ACCESS_KEY"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("safewrite-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = configure(builder, jars=JARS, lock_table=LOCK_TABLE).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return attach(session, storage_options=options)


def _append(frame: Any, uri: str) -> float:
    """Seconds of one append."""
    started_s = time.perf_counter()
    frame.write.format("delta").mode("append").save(uri)
    return time.perf_counter() - started_s


def main(
    rows: Annotated[int, typer.Option(help="Rows of a batch.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Batches for each log store.")] = 9,
) -> None:
    """Time batches in turn; exits with 1 if a row is lost or doubled."""
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as folder, Lab(folder, seaweed=True) as lab:
        session = _session(lab, Path(folder))
        try:
            whole = _compare(session, lab, rows, rounds)
        finally:
            session.stop()
    sys.exit(0 if whole else 1)


def _compare(session: Any, lab: Lab, rows: int, rounds: int) -> bool:
    frame = session.range(rows).selectExpr(
        "id", "id * 0.5 AS amount", "concat('customer-', id % 1000) AS who"
    )
    frame = frame.coalesce(2).persist()
    frame.count()
    uris = {arm: lab.place(arm).uri.replace("s3://", f"{scheme}://") for arm, scheme in _SCHEMES.items()}
    for uri in uris.values():
        _append(frame, uri)  # makes the table, and warms up
    took = interleave({arm: lambda uri=uri: _append(frame, uri) for arm, uri in uris.items()}, rounds)
    for arm, values in took.items():
        spread = Spread.of(values)
        print(
            f"{arm:<10} {rows:,} rows: median {spread.median:.3f} s, min {spread.min:.3f}, max {spread.max:.3f}"
        )
    ratio = Spread.of([ours / theirs for ours, theirs in zip(*took.values(), strict=True)])
    print(f"ratio of each round: median {ratio.median:.3f} (aim: at most {RATIO_MAX})")
    counts = {arm: session.read.format("delta").load(uri).count() for arm, uri in uris.items()}
    print(f"rows in the tables: {counts}")
    return all(count == rows * (rounds + 1) for count in counts.values())


if __name__ == "__main__":
    typer.run(main)
