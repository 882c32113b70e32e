"""``python -m bench.crosscheck`` runs the differential machine; exit 0 only if nothing is unexplained."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import sys
import tempfile
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

from safewrite.testing.crosscheck.draw import Format, peers
from safewrite.testing.crosscheck.machine import Tally, summary
from safewrite.testing.crosscheck.runs import FailedSeed, SeedReport, check
from safewrite.testing.crosscheck.sessions import VERBS
from safewrite.testing.crosscheck.wide import check_wide

from .screen import screen
from .servers import catalogs, servers

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
Drawn = Literal["plain", "changes", "kept", "features"]
CHUNK = 20
"""This many seeds are one task of a process."""


@app.command()
def crosscheck(  # noqa: PLR0917 - typer calls it, by name
    seeds: Annotated[int, typer.Option(help="Seeds of each format without Spark.")] = 1000,
    spark: Annotated[int, typer.Option(help="Seeds of each format through Spark.")] = 75,
    changes: Annotated[int, typer.Option(help="Seeds of each format under a change log.")] = 200,
    kept: Annotated[int, typer.Option(help="Seeds of each format of what other makers set.")] = 200,
    features: Annotated[int, typer.Option(help="Seeds of Delta tables with sets of features.")] = 200,
    wide: Annotated[int, typer.Option(help="Seeds of each format on tables of 1,000 columns.")] = 10,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    table_format: Annotated[Literal["delta", "iceberg", "both"], typer.Option("--format")] = "both",
    processes: Annotated[int, typer.Option(help="Processes for the seeds without Spark.")] = 2,
    failures_max: Annotated[int, typer.Option(help="So many failing seeds of a task end it.")] = 5,
    shrink: Annotated[
        bool, typer.Option(help="Look for smaller programs that fail; takes minutes each.")
    ] = True,
) -> None:
    """Draw programs from seeds, run them on real tables, and compare every reader with the oracle."""
    console = screen()
    formats: list[Format] = ["delta", "iceberg"] if table_format == "both" else [table_format]
    began_s = time.monotonic()
    whole = SeedReport()
    drawn: list[tuple[int, Drawn]] = [
        (seeds, "plain"),
        (changes, "changes"),
        (kept, "kept"),
        (features, "features"),
    ]
    for count, what in drawn:
        asked: list[Format] = [one for one in formats if one == "delta" or what != "features"]
        for verdict in _without_spark(asked, first, count, processes, failures_max, shrink=shrink, what=what):
            _add(whole, verdict, console)
    for format_ in formats:
        _add(whole, check_wide(format_, seeds=range(first, first + wide)), console)
    if spark:
        with with_spark() as homes:
            for format_ in formats:
                others = {**peers(format_), "spark": VERBS[format_]}
                for start in range(first, first + spark, CHUNK):
                    some = range(start, min(start + CHUNK, first + spark))
                    _add(
                        whole,
                        check(
                            format_,
                            seeds=some,
                            homes=homes,
                            others=others,
                            shrink=shrink,
                            failures_max=failures_max,
                        ),
                        console,
                    )
    for line in summary(whole.tally):
        console.print(line)
    took_s = time.monotonic() - began_s
    console.print(
        f"{whole.seeds} seeds in {took_s:.0f} s: {len(whole.failed)} with an unexplained disagreement"
    )
    raise typer.Exit(1 if whole.failed else 0)


def _add(whole: SeedReport, part: SeedReport, console: Console) -> None:
    whole.seeds += part.seeds
    whole.tally.update(part.tally)
    whole.failed += part.failed
    for failed in part.failed:
        console.print(str(failed), markup=False)
    console.print(f"{whole.seeds} seeds, {len(whole.failed)} failed")


def _without_spark(
    formats: list[Format],
    first: int,
    seeds: int,
    processes: int,
    failures_max: int,
    *,
    shrink: bool,
    what: Drawn,
) -> Iterator[SeedReport]:
    tasks = [
        (format_, start, min(start + CHUNK, first + seeds), failures_max, shrink, what)
        for format_ in formats
        for start in range(first, first + seeds, CHUNK)
    ]
    if not tasks:
        return
    # multiprocessing's Pool waits for ever for a process that Arrow aborts.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(_task, task) for task in tasks]):
            yield SeedReport(*done.result())


def _task(task: tuple[Format, int, int, int, bool, Drawn]) -> tuple[int, Tally, list[FailedSeed]]:
    format_, start, end, failures_max, shrink, what = task
    warnings.simplefilter("ignore")
    verdict = check(
        format_,
        seeds=range(start, end),
        failures_max=failures_max,
        shrink=shrink,
        changes=what == "changes",
        kept=what == "kept",
        features=what == "features",
    )
    return verdict.seeds, Counter(verdict.tally), verdict.failed


# --- Spark ---------------------------------------------------------------------------------------------
@contextmanager
def with_spark() -> Iterator[Callable[[str], Any]]:
    """Homes that Spark reaches: starts a store, a REST catalog and a session."""
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="crosscheck-", ignore_cleanup_errors=True))
        )
        store = stack.enter_context(servers.Ministack(folder / "store"))
        bucket = f"crosscheck-{uuid.uuid4().hex[:8]}"
        store.boto3_client("s3").create_bucket(Bucket=bucket)
        rest = stack.enter_context(
            catalogs.IcebergRest(folder / "rest", s3=store, warehouse=f"s3://{bucket}/lake")
        )
        properties = catalogs.catalog_properties(
            "rest", uri=rest.uri, s3_url=store.endpoint_url, warehouse=f"s3://{bucket}/lake"
        )
        session = stack.enter_context(_session(folder, properties, store))
        yield homes_of(session, bucket, store, properties)


def homes_of(
    session: Any, bucket: str, store: servers.Endpoint, properties: dict[str, str], *, name: str = "lab"
) -> Callable[[str], Any]:
    """Homes in a bucket and a catalog that a session reaches; ``name`` is the session's name for the catalog."""
    from safewrite.spark import attach
    from safewrite.stores import lock_table as lock_tables
    from safewrite.testing.crosscheck.spark import SparkDeltaHome, SparkIcebergHome

    options = servers.storage_options(store.endpoint_url)
    attach(session, storage_options=options, arbiter="object-store")
    catalog = catalogs.load(properties, name=name)
    catalog.create_namespace_if_not_exists("db")
    numbers = itertools.count()
    lock_table = f"keys-{uuid.uuid4().hex[:8]}"
    lock_tables.ensure(store.boto3_client("dynamodb"), lock_table)
    settings = {"lock_table": lock_table, "storage_options": options}

    @contextmanager
    def home(format_: str) -> Iterator[Any]:
        if format_ == "delta":
            uri = f"s3://{bucket}/crosscheck/t{next(numbers)}"
            yield SparkDeltaHome(uri, options, {"arbiter": "object-store"}, session=session)
        else:
            table = f"db.t{next(numbers)}"
            yield SparkIcebergHome(
                lambda: catalog, table, {**properties, "name": name}, settings, session=session, known_as=name
            )

    return home


@contextmanager
def _session(folder: Path, properties: dict[str, str], store: servers.Endpoint) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    from safewrite.spark import conf

    from .stress import spark_reader

    jars = sorted(spark_reader.JARS.glob("*.jar"))
    ours = conf(jars=jars)
    settings = {
        **ours,
        **spark_reader.session_settings(folder),
        **spark_reader.s3a_settings(servers.storage_options(store.endpoint_url)),
        **spark_reader.catalog_settings("lab", properties),
        "spark.sql.extensions": f"{ours['spark.sql.extensions']},{spark_reader.EXTENSIONS}",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # Spark's own files are not judged: most other readers misread its INT96.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else executors take the Python of the path
    builder = SparkSession.builder.master("local[1]").appName("crosscheck")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()


if __name__ == "__main__":
    app()
