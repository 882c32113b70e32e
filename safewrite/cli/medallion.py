"""Runs medallion jobs: raw files to bronze and silver, again from bronze, and adding up."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safewrite.cli.shared import (
    EXIT_LOST,
    EngineOption,
    HtmlOption,
    OutputOption,
    RunsOn,
    Screen,
    grid_of,
    plain,
    show_converted,
    text_of,
    write_page,
)

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.medallion.pipeline import Pipeline
    from safewrite.medallion.report.run import Run

medallion = typer.Typer(
    help="Files of AWS DMS to bronze (every change) and silver (the current state), for many tables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class FormatOption(StrEnum):
    """The format of tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        envvar="SAFEWRITE_MEDALLION_CONFIG",
        help="JSON file of the job; `medallion schema` says what is in it.",
    ),
]
TableOption = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table (schema.table); may be repeated.")
]
EmfOption = Annotated[
    bool,
    typer.Option(
        "--emf",
        help="Print a line of CloudWatch's embedded metric format for each table and write, and no report.",
    ),
]


NamespaceOption = Annotated[
    str, typer.Option(envvar="SAFEWRITE_NAMESPACE", help="CloudWatch namespace of the metrics.")
]


NamedTables = Annotated[list[str], typer.Option("--table", help="The table (schema.table); may be repeated.")]


@medallion.command("check")
def check(context: typer.Context, *, config: ConfigOption, output: OutputOption = None) -> None:
    """Check a configuration, and touch nothing."""
    screen = Screen(context, output)
    with screen.errors():
        job = pipeline_of(config)
        job.check()
    names = list(job.config.tables)
    screen.show(
        {"job": job.config.job, "tables": names},
        lambda console: console.print(
            f"{plain(job.config.job)}: {len(names)} tables, the configuration can be used."
        ),
    )


@medallion.command("from-dms")
def from_dms(
    context: typer.Context,
    endpoint: Annotated[
        Path, typer.Argument(metavar="ENDPOINT.json", help="What `aws dms describe-endpoints` says.")
    ],
    task: Annotated[
        Path,
        typer.Argument(
            metavar="TASK.json", help="What `aws dms describe-replication-tasks` says, or its table mappings."
        ),
    ],
    *,
    lake: Annotated[
        str, typer.Option("--lake", help="Where the tables are to be: s3://bucket/prefix or a folder.")
    ],
    columns: Annotated[
        Path | None,
        typer.Option(
            help="CSV of the source's columns, types and keys, which DMS does not tell; docs/medallion/from-dms.md has the query."
        ),
    ] = None,
    table_format: Annotated[
        FormatOption, typer.Option("--format", help="The format of the tables.")
    ] = FormatOption.DELTA,
    catalog: Annotated[
        str | None, typer.Option(help="Iceberg: a catalog of PyIceberg's configuration; Glue without.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="The name of the job; that of the task without.")] = None,
    endpoint_name: Annotated[
        str | None, typer.Option("--endpoint", help="The endpoint's identifier, where there are several.")
    ] = None,
    task_name: Annotated[
        str | None, typer.Option("--task", help="The task's identifier, where there are several.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="File to write; else the answer shows it.")
    ] = None,
    output: OutputOption = None,
) -> None:
    """Make a configuration of a DMS endpoint and its task, say what each setting becomes, and warn of those that lose data."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.medallion.config.from_dms import Lake
        from safewrite.medallion.config.from_dms import from_dms as made_of

        made = made_of(
            text_of(endpoint),
            text_of(task),
            Lake(lake, table_format.value, catalog),
            columns=None if columns is None else text_of(columns),
            job=job,
            names=(endpoint_name, task_name),
        )
        show_converted(screen, made.to_dict(), write, ("at DMS", "safewrite medallion check"))


@medallion.command()
def schema() -> None:
    """Print the JSON schema of a configuration."""
    from safewrite.medallion import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))


@medallion.command("run")
def run(
    context: typer.Context,
    *,
    config: ConfigOption,
    table: TableOption = None,
    html: HtmlOption = None,
    emf: EmfOption = False,
    namespace: NamespaceOption = "safewrite",
    engine: EngineOption = RunsOn.AUTO,
    output: OutputOption = None,
) -> None:
    """Land new files in bronze and bring silver to bronze's head.  Exits with 1 if a table failed."""
    _show(
        Screen(context, output),
        lambda: pipeline_of(config, namespace if emf else None, engine).run(table),
        html,
        is_quiet=emf,
    )


@medallion.command("replay")
def replay(
    context: typer.Context,
    *,
    config: ConfigOption,
    table: NamedTables,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only what bronze's commits brought from this time on (ISO 8601, UTC where it names no zone), by the clocks of "
            "their writers.",
        ),
    ] = None,
    html: HtmlOption = None,
    engine: EngineOption = RunsOn.AUTO,
    output: OutputOption = None,
) -> None:
    """Apply all that bronze holds to silver, and go on from its head: the way out where silver cannot follow bronze.

    Changes that silver knows are passed over, so it is safe while the job runs.
    """
    _show(
        Screen(context, output), lambda: pipeline_of(config, engine=engine).replay(table, since=since), html
    )


@medallion.command("reset")
def reset(
    context: typer.Context,
    *,
    config: ConfigOption,
    table: NamedTables,
    html: HtmlOption = None,
    engine: EngineOption = RunsOn.AUTO,
    output: OutputOption = None,
) -> None:
    """Fill silver from bronze again: its rows, and what it remembers of deleted keys, go first.

    For other keys, or to be rid of what bronze no longer has.  It is safe while the job runs; a table of more than a million
    rows of bronze is being filled for a while, and if that breaks off the next run does the rest.
    """
    _show(Screen(context, output), lambda: pipeline_of(config, engine=engine).reset(table), html)


@medallion.command("truncate")
def truncate(
    context: typer.Context,
    *,
    config: ConfigOption,
    table: NamedTables,
    after: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The last change file from before the TRUNCATE or DROP; without it the last of those that are gone.",
        ),
    ] = None,
    html: HtmlOption = None,
    engine: EngineOption = RunsOn.AUTO,
    output: OutputOption = None,
) -> None:
    """Follow a TRUNCATE or DROP at the source, of which DMS tells nothing but that it removes the table's files.

    All rows go that came before it, also in each later reset and replay; those of files since then stay. A table that was
    dropped for good can be taken out of the configuration then.
    """
    _show(
        Screen(context, output), lambda: pipeline_of(config, engine=engine).truncate(table, after=after), html
    )


@medallion.command("verify")
def verify(
    context: typer.Context,
    *,
    config: ConfigOption,
    table: TableOption = None,
    engine: EngineOption = RunsOn.AUTO,
    output: OutputOption = None,
) -> None:
    """Read files, bronze, quarantine and silver, and add everything up again.  Exits with 1 if something differs."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.medallion.audit.accounting import verify as audit

        with screen.progress():
            audits = audit(pipeline_of(config, engine=engine), table)

    def text(console: Console) -> None:
        grid = grid_of(
            "table", "files", "rows in files", "landed", "quarantined", "bronze", "silver", "behind", ""
        )
        for one in audits:
            counts = (
                one.files,
                one.rows_in_files,
                one.landed,
                one.put_aside,
                one.bronze_rows,
                one.silver_rows,
                one.behind,
            )
            grid.add_row(
                one.table, *map(str, counts), "[green]adds up[/]" if one.clean else "[bold red]DIFFERS[/]"
            )
        console.print(grid)
        for one in audits:
            if one.gone and not one.files:
                console.print(
                    f"{plain(one.table)}: all {one.gone} files that bronze has rows of are gone from raw.location; if the source "
                    "was truncated, run the command truncate.",
                    highlight=False,
                )
            for flaw in [*one.flaws, *([one.error] if one.error else [])]:
                console.print(f"[bold red]{plain(one.table)}[/]: {plain(flaw)}", highlight=False)

    clean = all(one.clean for one in audits)
    screen.show({"clean": clean, "tables": [one.to_dict() for one in audits]}, text)
    raise typer.Exit(0 if clean else EXIT_LOST)


def pipeline_of(config: Path, namespace: str | None = None, engine: RunsOn = RunsOn.AUTO) -> Pipeline:
    from safewrite.medallion.pipeline import Pipeline

    if namespace is None:
        return Pipeline(config, engine=engine.value)
    from safewrite.medallion.config.job import load
    from safewrite.metrics import emf

    told = emf(namespace=namespace, job=load(config).job)
    return Pipeline(config, engine=engine.value, on_event=told)


def _show(screen: Screen, run: Callable[[], Run], html: Path | None, *, is_quiet: bool = False) -> None:
    """Run, and show what was done.  Exits with 1 if a table failed."""
    with screen.errors():
        with screen.progress():
            done = run()
        _report(screen, done, html, is_quiet=is_quiet)
    raise typer.Exit(0 if done.ok else EXIT_LOST)


def _report(screen: Screen, done: Run, html: Path | None, *, is_quiet: bool = False) -> None:
    def text(console: Console) -> None:
        grid = grid_of(
            "table",
            "files",
            "rows",
            "landed",
            "quarantined",
            "silver took",
            "what became of them",
            "files behind",
            "lag, s",
            "seconds",
            "",
        )
        for one in done.tables:
            if not one.news:
                continue
            what_became = {**one.refined.changes, "late by time": one.refined.late}
            changes = ", ".join(f"{count} {what}" for what, count in what_became.items() if count)
            aside = one.landed.quarantined + one.refined.quarantined
            counts = (one.landed.files, one.landed.rows_in_files, one.landed.rows, aside, one.refined.rows)
            grid.add_row(
                one.table,
                *map(str, counts),
                changes,
                str(one.lag_files),
                f"{one.lag_s:.0f}",
                f"{one.elapsed_s:.2f}",
                "" if one.ok else "[bold red]FAILED[/]",
            )
        quiet = sum(not one.news for one in done.tables)
        if quiet < len(done.tables):
            console.print(grid)
        console.print(
            f"{len(done.tables)} tables in {done.elapsed_s:.1f} s, {quiet} without news, "
            f"{sum(not one.ok for one in done.tables)} failed.",
            highlight=False,
        )
        for warned in (one for one in done.tables if one.warning is not None):
            console.print(f"[yellow]{plain(warned.table)}[/]: {plain(warned.warning or '')}", highlight=False)
        for failed in (one for one in done.tables if not one.ok):
            console.print(f"[bold red]{plain(failed.table)}[/]: {plain(failed.error or '')}", highlight=False)
        for error in done.errors:
            console.print(f"[bold red]{plain(error)}[/]", highlight=False)

    if not is_quiet:
        screen.show(done.to_dict(), text)
    if html is not None:
        from safewrite.medallion.report.html_report import render

        write_page(html, render(done, dt.datetime.now(dt.UTC)), "The run is done")
