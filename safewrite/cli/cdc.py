"""Runs the commands of ``safewrite cdc``: run, check, convert, schema, status, plan, verify, restart."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safewrite import InvalidInputError
from safewrite.cli.shared import (
    EXIT_LOST,
    HtmlOption,
    OutputOption,
    Screen,
    grid_of,
    pairs,
    plain,
    show_converted,
    text_of,
    write_page,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from rich.console import Console

    from safewrite import Event
    from safewrite.cdc import Pipeline, Verdict
    from safewrite.cdc.status import Status
    from safewrite.metrics import OnEvent

cdc = typer.Typer(
    help="Land change data of Kafka (Debezium, AWS DMS) in many Delta and Iceberg tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
ConfigFile = Annotated[
    Path,
    typer.Option(
        "--config", envvar="SAFEWRITE_CONFIG", help="JSON file of the job; `cdc schema` says what is in it."
    ),
]
JarsOption = Annotated[
    Path | None,
    typer.Option("--jars", help="Folder with Spark's jars for Kafka; leave it out under spark-submit."),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of a new Spark session; may be repeated."),
]


@cdc.command()
def run(
    context: typer.Context,
    *,
    config: ConfigFile,
    jars: JarsOption = None,
    conf: ConfOption = None,
    emf: Annotated[
        bool, typer.Option("--emf", help="Print metrics as lines of CloudWatch's embedded metric format.")
    ] = False,
    namespace: Annotated[
        str, typer.Option(envvar="SAFEWRITE_NAMESPACE", help="CloudWatch namespace of the metrics.")
    ] = "safewrite",
    otel: Annotated[
        bool, typer.Option("--otel", help="Record metrics with OpenTelemetry's global meter.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Land batches until the query is stopped, or until all is landed (trigger available_now).

    On SIGTERM the batch that is under way lands, and the job ends with 0.
    """
    with Screen(context, output).errors():
        from safewrite.cdc.config import load

        found = load(config)
        pipeline = pipeline_of(config, _exporters(found.job, namespace if emf else None, is_otel=otel))
        spark = _session(pipeline.config.job, jars, conf)
        pipeline.wait(pipeline.start(spark))


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


@cdc.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def convert(
    context: typer.Context,
    *,
    tables: Annotated[
        str, typer.Option("--tablejsonfile", "--tableconffile", help="The recipe's table file: a JSON list.")
    ],
    arguments: Annotated[
        Path | None,
        typer.Option(
            "--arguments", help="JSON file of the job's arguments: an object, or `aws glue get-job`."
        ),
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="File to write; else the answer shows it.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Make a configuration of a Glue or EMR recipe's table file and arguments, and say what each setting becomes.

    Takes the recipe's own arguments as they are: --jobname, --topics, --kafkaserver, --icebergdb, --warehouse ...
    """
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.config.recipe import convert as made_of

        given = _arguments_in(arguments) | _extra(context.args)
        found = made_of(text_of(tables), given)
        show_converted(screen, found.to_dict(), write, ("in the recipe", "safewrite cdc check"))


def _arguments_in(path: Path | None) -> dict[str, str]:
    """The arguments in a file; Glue's answer has them inside."""
    if path is None:
        return {}
    text = text_of(path)
    try:
        found = json.loads(text)
        found = found.get("Job", found)
        found = found.get("DefaultArguments", found)
        if all(isinstance(one, str) for one in found.values()):
            return dict(found)
    except (ValueError, AttributeError, RecursionError):
        pass
    raise InvalidInputError(
        f"{path} is not a JSON object of arguments and texts. Nothing was written. Give one, or what `aws glue get-job` says."
    )


def _extra(given: Sequence[str]) -> dict[str, str]:
    """Arguments of the command line that are the recipe's: ``--name value`` or ``--name=value``."""
    found, left = dict[str, str](), list(given)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("--") or not (equals or left):
            raise InvalidInputError(
                f"{name} is not an argument with a value. Nothing was written. Write --name value."
            )
        found[name] = value if equals else left.pop(0)
    return found


@cdc.command()
def schema() -> None:
    """Print the JSON schema of a configuration."""
    from safewrite.cdc import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@cdc.command()
def status(
    context: typer.Context,
    *,
    config: ConfigFile,
    kafka: Annotated[
        bool,
        typer.Option(
            "--kafka",
            help="Ask Kafka how far its topics are, for the lag: takes a Spark session (spark-submit, or --jars).",
        ),
    ] = False,
    jars: JarsOption = None,
    conf: ConfOption = None,
    html: HtmlOption = None,
    output: OutputOption = None,
) -> None:
    """Say where each table stands; commits nothing, also while the job runs.

    Exits with 1 if a table stops the job until somebody does something.
    """
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.kafka.source import Source
        from safewrite.cdc.status import status as look

        pipeline = pipeline_of(config)
        reach = None
        if kafka or jars is not None:
            given = pipeline.config
            reach = Source(given.kafka, given.job).reach(_session(given.job, jars, conf))
        elif conf:
            raise InvalidInputError(
                "--conf is a setting of the Spark session that asks Kafka, and without --kafka there is none. Nothing was read. "
                "Give --kafka too, or leave it out."
            )
        ledger, letters = _rows(pipeline)
        found = look(pipeline.landing, ledger, reach, letters)
        screen.show(found.to_dict(), lambda console: _print_status(console, found))
        if html is not None:
            from safewrite.cdc.status_page import render

            write_page(html, render(found, ledger, dt.datetime.now(dt.UTC)), "The status is above")
    if found.stopped:
        raise typer.Exit(EXIT_LOST)


@cdc.command()
def plan(context: typer.Context, config: ConfigFile, output: OutputOption = None) -> None:
    """Say what a configuration will do to the tables of its job as they are now; commits nothing, also while the job runs.

    Exits with 1 if the job would stop at a table.
    """
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.landing.job_plan import plan as made_of

        pipeline = pipeline_of(config)
        found = made_of(pipeline.landing, _rows(pipeline)[1])

        def text(console: Console) -> None:
            for one in found.tables:
                colour = "red" if one.what == "is refused" else "green"
                console.print(f"[bold]{plain(one.table)}[/] [{colour}]{one.what}[/]", highlight=False)
                for note in one.notes:
                    console.print(f"  {plain(note)}", highlight=False)
            for note in found.notes:
                console.print(plain(note), highlight=False)

        screen.show(found.to_dict(), text)
    if found.is_refused:
        raise typer.Exit(EXIT_LOST)


@cdc.command()
def verify(context: typer.Context, config: ConfigFile, output: OutputOption = None) -> None:
    """Add the job's ledger up again: every record that came in landed or is a dead letter, and each table is there.  Exits with 1
    if one is not, and with 2 if no batch of the job is there: it may be the ledger of another place.
    """
    screen = Screen(context, output)
    with screen.errors():
        pipeline = pipeline_of(config)
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
    """Declare that a table that was dropped, or dropped and created again, begins with the next batch."""
    screen = Screen(context, output)
    with screen.errors():
        pipeline_of(config).restart(table)
        screen.show(
            {"restarted": table}, lambda console: console.print(f"{plain(table)} begins with the next batch.")
        )


def pipeline_of(config: Path, on_event: OnEvent | None = None) -> Pipeline:
    from safewrite.cdc import Pipeline

    return Pipeline(config, on_event=on_event)


def _exporters(job: str, namespace: str | None, *, is_otel: bool) -> OnEvent | None:
    """What makes metrics of events; None where nothing is asked for."""
    from safewrite import metrics

    tell: list[OnEvent] = []
    if namespace is not None:
        tell.append(metrics.emf(namespace=namespace, job=job))
    if is_otel:
        tell.append(metrics.otel())
    if len(tell) < 2:
        return tell[0] if tell else None

    def both(event: Event) -> None:
        for one in tell:
            one(event)

    return both


def _session(job: str, jars: Path | None, conf: list[str] | None) -> SparkSession:
    from safewrite.cdc.kafka.session import session

    settings = pairs(conf, "--conf")
    if jars is not None:
        from safewrite.spark.jars import jars_from

        found = jars_from(jars, delta=False, iceberg=False, s3=False, kafka=True)
        settings["spark.jars"] = ",".join(map(str, found))
    return session(job, settings)


def _rows(pipeline: Pipeline) -> tuple[pa.Table, pa.Table | None]:
    """The rows of the ledger, and those of the dead letters without what their records hold."""
    from safewrite.cdc.ledger.accounting import BRIEF
    from safewrite.cdc.ledger.ledger import LEDGER_SCHEMA
    from safewrite.testing.reading import rows_of

    own, targets = pipeline.landing.ledger, pipeline.landing.targets
    options = pipeline.config.options()
    ledger = targets.find(own.table)
    kept = targets.find(own.letters)
    return (
        LEDGER_SCHEMA.empty_table() if ledger is None else rows_of(ledger, options),
        None if kept is None else rows_of(kept, options, BRIEF),
    )


def _verdict(pipeline: Pipeline) -> Verdict:
    from safewrite.cdc.ledger.accounting import verify
    from safewrite.cdc.status import tables_gone

    verdict = verify(pipeline.config.job, *_rows(pipeline))
    if not verdict.batches:
        raise InvalidInputError(
            f"The ledger {pipeline.landing.ledger.table.name} has no batch of the job {pipeline.config.job!r}, so there is nothing to "
            "add up. Nothing was written. Correct job, database, warehouse or catalog if the job has landed something; else run it."
        )
    return replace(verdict, faults=(*verdict.faults, *tables_gone(pipeline.landing)))


_COLOURS = {"ok": "green", "behind": "yellow", "not begun": "dim"}


def _print_status(console: Console, found: Status) -> None:
    grid = grid_of(
        "table", "format", "state", "batch", "lag", "rows", "applied", "dead", "last commit", "valid through"
    )
    places: dict[str, list[str]] = {}
    for one in found.tables:
        times = (
            None if at is None else at[:19].replace("T", " ") for at in (one.last_commit, one.valid_through)
        )
        cells = (one.last_batch, one.lag, one.rows, one.applied, one.dead_waiting, *times)
        shown = ("" if cell is None else plain(str(cell)) for cell in cells)
        grid.add_row(
            plain(one.table), one.format, f"[{_COLOURS.get(one.state, 'bold red')}]{one.state}[/]", *shown
        )
        positions = ", ".join(f"{where}: {at}" for where, at in one.positions.items())
        places.setdefault(positions, []).append(one.table)
    console.print(grid)
    for positions, tables in places.items():  # tables share them, but for one that is ahead of its job
        if positions:
            names = "all tables" if len(places) == 1 else ", ".join(tables)
            console.print(f"{plain(names)} landed up to {plain(positions)}", highlight=False)
    if found.engine:
        console.print(f"the last batch: {plain(found.engine)}", highlight=False)
    for one in found.tables:
        if one.what:
            console.print(f"[bold]{plain(one.table)}[/]: {plain(one.what)}", highlight=False)
    if found.dead_nowhere_waiting:
        console.print(
            f"{found.dead_nowhere_waiting} dead letters are of records that name no table of the job.",
            highlight=False,
        )


COLUMNS = ("records", "earlier", "ignored", "dead", "split", "applied", "late", "duplicate", "superseded")


def _print(console: Console, verdict: Verdict) -> None:
    grid = grid_of("table", *COLUMNS)
    for one in verdict.accounts:
        numbers: Sequence[str] = [str(one.totals[name]) for name in COLUMNS]
        grid.add_row(plain(one.table or "(no table)"), *numbers)
    console.print(grid)
    for note in verdict.notes:
        console.print(plain(note), highlight=False)
    for fault in verdict.faults:
        console.print(plain(fault), style="bold red", highlight=False)
    if not verdict.faults:
        console.print(f"Every record of {verdict.batches} batches is accounted for.", highlight=False)
