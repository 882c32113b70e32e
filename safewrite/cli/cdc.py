"""Runs the commands of ``safewrite cdc``: run, check, schema, verify, restart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from safewrite.cli.shared import EXIT_LOST, OutputOption, Screen, grid_of, pairs, plain

if TYPE_CHECKING:
    from safewrite.cdc import Pipeline, Verdict

cdc = typer.Typer(
    help="Land change data of Kafka (Debezium, AWS DMS) in many Delta and Iceberg tables.",
    no_args_is_help=True,
)
ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config", envvar="SAFEWRITE_CONFIG", help="JSON file of the job; `cdc schema` says what is in it."
    ),
]


@cdc.command()
def run(
    context: typer.Context,
    config: ConfigFile,
    jars: Annotated[
        Path | None,
        typer.Option("--jars", help="Folder with Spark's jars for Kafka; leave it out under spark-submit."),
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            "--conf", metavar="KEY=VALUE", help="A setting of a new Spark session; may be repeated."
        ),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Land batches until the query is stopped, or until all is landed (trigger available_now)."""
    with Screen(context, output).errors():
        from safewrite.cdc.session import session

        pipeline = _pipeline(config)
        settings = pairs(conf, "--conf")
        if jars is not None:
            from safewrite.spark.jars import jars_from

            found = jars_from(jars, delta=False, iceberg=False, s3=False, kafka=True)
            settings["spark.jars"] = ",".join(map(str, found))
        pipeline.start(session(pipeline.config.job, settings)).awaitTermination()


@cdc.command()
def check(context: typer.Context, config: ConfigFile, output: OutputOption = None) -> None:
    """Check a configuration, and read nothing but it."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc import load

        found = load(config)
        tables = [
            {"table": one.name, "source": one.source or one.table, "format": one.format}
            for one in found.tables
        ]

        def text(console: Console) -> None:
            grid = grid_of("table", "source", "format")
            for one in tables:
                grid.add_row(*(plain(str(value)) for value in one.values()))
            console.print(grid)

        screen.show({"job": found.job, "tables": tables}, text)


@cdc.command()
def schema() -> None:
    """Print the JSON schema of a configuration."""
    from safewrite.cdc import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@cdc.command()
def verify(context: typer.Context, config: ConfigFile, output: OutputOption = None) -> None:
    """Add the job's ledger up again: every record that came in landed or is a dead letter.  Exits with 1 if one is not."""
    screen = Screen(context, output)
    with screen.errors():
        pipeline = _pipeline(config)
        verdict = _verdict(pipeline)
        screen.show(
            {"job": pipeline.config.job, **verdict.to_dict()}, lambda console: _print(console, verdict)
        )
    if verdict.faults:
        raise typer.Exit(EXIT_LOST)


@cdc.command()
def restart(
    context: typer.Context,
    config: ConfigFile,
    table: Annotated[str, typer.Option("--table", help="The table, as database.table.")],
    output: OutputOption = None,
) -> None:
    """Declare that a table that was dropped, or made anew, begins with what comes now."""
    screen = Screen(context, output)
    with screen.errors():
        _pipeline(config).restart(table)
        screen.show(
            {"restarted": table}, lambda console: console.print(f"{plain(table)} begins with the next batch.")
        )


def _pipeline(config: Path) -> Pipeline:
    from safewrite.cdc import Pipeline

    return Pipeline(config)


def _verdict(pipeline: Pipeline) -> Verdict:
    import pyarrow as pa

    from safewrite.cdc.accounting import verify
    from safewrite.cdc.ledger import LEDGER_SCHEMA
    from safewrite.testing.reading import rows_of

    books = pipeline.landing.books
    found: list[Any] = [pipeline.landing.lake.find(one) for one in (books.ledger, books.letters)]
    options = pipeline.config.storage_options
    ledger, letters = (None if one is None else rows_of(one, options) for one in found)
    empty: pa.Table = LEDGER_SCHEMA.empty_table()
    return verify(pipeline.config.job, empty if ledger is None else ledger, letters)


COLUMNS = ("records", "earlier", "ignored", "dead", "split", "applied", "late", "duplicate", "superseded")


def _print(console: Console, verdict: Verdict) -> None:
    grid = grid_of("table", *COLUMNS)
    for one in verdict.accounts:
        numbers: Sequence[str] = [str(one.totals[name]) for name in COLUMNS]
        grid.add_row(plain(one.table or "(no table)"), *numbers)
    console.print(grid)
    for fault in verdict.faults:
        console.print(plain(fault), style="bold red", highlight=False)
    if not verdict.faults:
        console.print(f"Every record of {verdict.batches} batches is accounted for.", highlight=False)
