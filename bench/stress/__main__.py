"""``python -m bench.stress`` runs many writers on one table, under faults; exit 0 only if no row was lost."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from safewrite.errors import MissingExtraError

from ..servers import catalogs, servers
from ..servers.catalogs import CatalogKind
from .plans import menu, plan

# The modules that run the load and read it back (report, run, stage, progress) are imported once it is known
# what to do: `--help` and wrong usage need none of it.

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def stress(  # noqa: PLR0917 - typer calls it, by name
    seed: Annotated[
        int | None, typer.Option(envvar="SAFEWRITE_SEED", help="Replays the plan of a run.")
    ] = None,
    writers: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_WRITERS",
            min=2,
            max=64,
            help="Processes on one table; some arms run fewer, as many as the report says.",
        ),
    ] = 16,
    appends: Annotated[
        int, typer.Option(envvar="SAFEWRITE_APPENDS", min=2, help="Appends of each writer.")
    ] = 14,
    rows: Annotated[
        int, typer.Option(envvar="SAFEWRITE_ROWS", min=1, max=10_000, help="Rows of each append.")
    ] = 400,
    table_format: Annotated[
        menu.Format | None,
        typer.Option(
            "--format",
            help="Left out: Delta, and a short run of Iceberg on PostgreSQL at its end.",
        ),
    ] = None,
    catalog: Annotated[
        CatalogKind | None,
        typer.Option(
            envvar="SAFEWRITE_STRESS_CATALOG", help="One catalog of Iceberg; left out: all, each shorter."
        ),
    ] = None,
    arbiter: Annotated[
        Literal["dynamodb", "object-store", "both"],
        typer.Option(
            envvar="SAFEWRITE_STRESS_ARBITER", help="Which safewrite arms run, unless --arms says so."
        ),
    ] = "both",
    store: Annotated[
        Literal["ministack", "seaweed"],
        typer.Option(envvar="SAFEWRITE_STORE", help="The local S3 that is started."),
    ] = "ministack",
    arms: Annotated[
        str, typer.Option(envvar="SAFEWRITE_ARMS", help=f"Comma-separated, of: {', '.join(menu.ARMS)}.")
    ] = "",
    table: Annotated[
        str | None,
        typer.Option(
            help="s3://bucket/path of your own, where Delta tables are made and left; no server is started.",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            "--endpoint-url",
            envvar="SAFEWRITE_ENDPOINT_URL",
            help="Your store's URL; AWS itself if left out.",
        ),
    ] = None,
    lock_table: Annotated[
        str, typer.Option(envvar="SAFEWRITE_LOCK_TABLE", help="DynamoDB table.")
    ] = "delta_log",
    proxy: Annotated[
        bool | None, typer.Option(help="Faults by the HTTP proxy (default: yes with local servers).")
    ] = None,
    min_rows: Annotated[
        int | None,
        typer.Option(envvar="SAFEWRITE_MIN_ROWS", help="Acked rows below which the verdict is unknown."),
    ] = None,
    pause_s: Annotated[
        float, typer.Option(envvar="SAFEWRITE_PAUSE_S", min=0, help="How long a SIGSTOP lasts.")
    ] = 5.0,
    lease_s: Annotated[
        float,
        typer.Option(
            envvar="SAFEWRITE_LEASE_S",
            min=0,
            help="How long an unmoving queue is watched; kept short, as every kill in a turn costs it.",
        ),
    ] = 1.0,
    limit_s: Annotated[
        float,
        typer.Option(
            envvar="SAFEWRITE_LIMIT_S",
            min=1,
            help="Patience with one arm; each life of a Spark driver adds a minute.",
        ),
    ] = 300.0,
    steps: Annotated[
        str, typer.Option(envvar="SAFEWRITE_STEPS", help="Kill at these steps only, comma-separated.")
    ] = "",
    leader_kills: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_LEADER_KILLS",
            min=0,
            help="Kills of writers that commit for others, where writers share commits (left out: 8, soak 160).",
        ),
    ] = 0,
    soak: Annotated[
        bool, typer.Option(help="The long form: 100 times the appends, every kill point 20 times.")
    ] = False,
    spark: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_SPARK",
            min=0,
            max=4,
            help="Spark streams next to the writers, on Delta as many plain Spark writers too; needs make jars.",
        ),
    ] = 0,
    spark_kills: Annotated[
        int | None,
        typer.Option(
            envvar="SAFEWRITE_SPARK_KILLS",
            min=0,
            help=f"Kills of each Spark driver with its JVM (default {plan.SPARK_KILLS}, soak {plan.SPARK_KILLS_SOAK}).",
        ),
    ] = None,
    log_store: Annotated[
        Path | None,
        typer.Option(
            envvar="SAFEWRITE_LOG_STORE",
            exists=True,
            file_okay=False,
            help="Folder with the jars of delta-storage-s3-dynamodb and AWS's SDK 1: in arms with a lock table a plain Spark "
            "driver commits by that log store, as a peer.",
        ),
    ] = None,
    lambda_: Annotated[
        int,
        typer.Option(
            "--lambda",
            envvar="SAFEWRITE_STRESS_LAMBDA",
            min=0,
            max=64,
            help="Also run the arms in Lambda, with so many environments of a function fed by SQS; needs awslambdaric.",
        ),
    ] = 0,
    changes: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_CHANGES",
            min=0,
            max=200_000,
            help="Also run the arms under a change log of so many changes: apply_changes, and upserts of other libraries.",
        ),
    ] = 0,
    change_keys: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_CHANGE_KEYS", min=0, help="Keys of that log (left out: a tenth of its changes)."
        ),
    ] = 0,
    change_batch: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_CHANGE_BATCH",
            min=0,
            max=20_000,
            help="Mean changes of a batch of it (left out: 4 to 40, by its length).",
        ),
    ] = 0,
    change_writers: Annotated[
        int,
        typer.Option(
            envvar="SAFEWRITE_CHANGE_WRITERS",
            min=1,
            max=64,
            help="The most processes of safewrite that apply it, besides Spark's streams: each commit rewrites files, so "
            "many mostly wait for each other.",
        ),
    ] = 6,
    spark_reader: Annotated[
        bool | None,
        typer.Option(
            help="Read by Spark too, what Spark can write (default: where its jars are, by make jars)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(envvar="SAFEWRITE_OUT", help="Folder of the reports.")] = Path(
        "out/stress"
    ),
    output: Annotated[
        Literal["text", "json"],
        typer.Option(
            envvar="SAFEWRITE_OUTPUT", help="text (default), or json: the report as JSON, nothing else."
        ),
    ] = "text",
) -> None:
    """Run writers under faults, read the table back by three readers, and judge.

    Exit code: 0 valid; 1 invalid, or unknown because the run proves nothing; 2 wrong usage; 130 ended by Ctrl-C.
    """
    json_output = output == "json"
    chosen = _choose(
        arms, table_format, arbiter, catalog, own=table is not None, spark=spark > 0, in_lambda=lambda_ > 0,
        changes=changes > 0,
    )  # fmt: skip
    gap = "" if arms or table_format or catalog else _iceberg_gap()
    if gap:
        chosen = tuple(name for name in chosen if not menu.is_iceberg(name))
    if (spark or log_store or set(chosen) & set(menu.SPARK_ARMS)) and not _has_spark():
        raise typer.BadParameter("Spark as a writer needs PySpark and its jars: make jars")
    if set(chosen) & set(menu.LAMBDA_ARMS) and importlib.util.find_spec("awslambdaric") is None:
        raise typer.BadParameter("functions in Lambda need its Python runtime: pip install awslambdaric")
    factor = plan.SOAK_FACTOR if soak else 1
    if spark_kills is None:
        spark_kills = plan.SPARK_KILLS_SOAK if soak else plan.SPARK_KILLS
    lives_s = plan.SPARK_LIFE_MAX_S * (spark_kills + 1) if spark else 0.0
    settings = plan.Settings(
        seed=random.SystemRandom().randrange(2**31) if seed is None else seed,
        writers=writers, appends=appends * factor, rows=rows, store=store, arms=chosen, pause_s=pause_s, lease_s=lease_s,
        arm_limit_s=limit_s * factor + lives_s, out=out, table=table, endpoint=endpoint, lock_table=lock_table,
        proxy=table is None if proxy is None else proxy, kills_per_step=20 if soak else 1,
        leader_kills=leader_kills, log_store=str(log_store.resolve()) if log_store else "",
        steps=_names(steps), spark=spark, spark_reader=_has_spark() if spark_reader is None else spark_reader,
        spark_kills=spark_kills, lambda_=lambda_, changes=changes * factor,
        change_keys=change_keys, change_batch=change_batch, change_writers=change_writers,
    )  # fmt: skip
    settings = replace(settings, acked_rows_min=_rows_wanted(settings) if min_rows is None else min_rows)
    console = _needed("..screen").screen(stderr=json_output)
    if gap:
        console.print(f"[yellow]Iceberg is left out: {gap}[/yellow]")
    run, report, stage, progress = map(_needed, (".run", ".report", ".stage", ".progress"))
    folder = _folder(out, settings.seed)
    console.print(f"seed {settings.seed}, arms {', '.join(chosen)}, files in {folder}", highlight=False)
    try:
        with progress.Progress(console, quiet=json_output) as shown:
            result = run.run(settings, folder, shown.tick)
    except stage.UsageError as error:
        console.print(f"[red]{error}[/red]")
        raise typer.Exit(2) from error
    summary = report.to_dict(result)
    report.write(result, summary, folder)
    if json_output:
        print(json.dumps(summary, indent=1))
    else:
        report.show(result, summary, console, folder)
    raise typer.Exit(0 if result.judgement.valid else 1)


def _needed(name: str) -> Any:
    """A module of the run or beside it, which may need packages that are not installed."""
    try:
        return importlib.import_module(name, __package__)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(str(__package__).partition(".")[0]):
            raise
        raise typer.BadParameter(
            f"the stress run needs {error.name}, which is not installed; nothing was written: "
            f"{MissingExtraError.command('cli,stress')}",
            param_hint="installation",
        ) from error


def _jars() -> Path:
    """Where Spark's jars are: ``make jars`` copies them."""
    own = Path(__file__).resolve().parents[2] / "jars"
    return Path(os.environ.get("SAFEWRITE_JARS", own)).resolve() / "spark"


def _choose(
    arms: str,
    table_format: menu.Format | None,
    arbiter: str,
    catalog: CatalogKind | None,
    *,
    own: bool,
    spark: bool,
    in_lambda: bool,
    changes: bool,
) -> tuple[str, ...]:
    if table_format == "delta" and catalog is not None:
        raise typer.BadParameter("--catalog is for Iceberg tables: leave out --format delta")
    named = _names(arms)
    unknown = [name for name in named if name not in menu.ARMS]
    if unknown:
        raise typer.BadParameter(f"no arm is named {', '.join(unknown)}; there are {', '.join(menu.ARMS)}")
    chosen = named or menu.choose(
        table_format,
        arbiter=arbiter,
        catalog=catalog,
        own=own,
        spark=spark,
        lambda_=in_lambda,
        changes=changes,
    )
    local = [name for name in chosen if menu.is_iceberg(name) or name in menu.LAMBDA_ARMS]
    if own and local:
        raise typer.BadParameter(f"--table is for Delta tables; {', '.join(local)} need the local servers")
    return chosen


def _iceberg_gap() -> str:
    """What is missing for the short run of Iceberg on PostgreSQL that a usual run ends with."""
    if importlib.util.find_spec("pyiceberg") is None or importlib.util.find_spec("psycopg2") is None:
        return f"{MissingExtraError.command('iceberg')} psycopg2-binary"
    try:
        catalogs.postgres_programs()
    except servers.ServerError as error:
        return str(error)
    return ""


def _has_spark() -> bool:
    jars = _jars().glob("iceberg-spark-runtime-*.jar")
    return importlib.util.find_spec("pyspark") is not None and any(jars)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _rows_wanted(settings: plan.Settings) -> int:
    """75 % of the rows that safewrite's writers are to append: those without a key never ack after a kill."""
    arms = [menu.make_arm(name, settings) for name in settings.arms]
    planned = [writer for arm in arms if arm.log is None for writer in arm.writers if writer.judged]
    return int(0.75 * sum(writer.appends * writer.rows for writer in planned))


def _folder(out: Path, seed: int) -> Path:
    folder = out.resolve() / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{seed}"
    folder.mkdir(parents=True)
    return folder


if __name__ == "__main__":
    sys.exit(app())
