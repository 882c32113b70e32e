"""Runs the command maintain: small data files of a table, or of all tables of a job, are put together beside their writers."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from safewrite.cli.shared import EXIT_LOST, DryRun, EngineOption, RunsOn, Screen, check_above_zero, plain
from safewrite.cli.target import Target, on_table
from safewrite.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.intake.upkeep import TablesMaintained


@partial(on_table, required=False)
def maintain(
    screen: Screen,
    target: Target,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="All tables of this job of change data or medallion, in the place of TABLE; it says how they are reached.",
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", metavar="N", help="Begin no group of files after N seconds (default: no limit)."
        ),
    ] = None,
    gb: Annotated[
        float | None,
        typer.Option(
            "--gb",
            metavar="N",
            help="Read and write again at most N gigabytes of data files (default: no limit).",
        ),
    ] = None,
    remove_unused: Annotated[
        bool,
        typer.Option(
            "--remove-unused",
            help="Also remove files that no version needs which the table keeps: those that a run of an earlier day has listed. The rest is listed.",
        ),
    ] = False,
    engine: EngineOption = RunsOn.AUTO,
    dry_run: DryRun = False,
) -> None:
    """Put small data files together, and those with many deleted rows, beside the table's writers.  No row changes.

    It commits group by group, cold partitions first.  A group of which others took files first is left out, and the rest goes on.
    Exits with 1 if a commit is in doubt: the rows are the same whether it landed or not, and the next run decides.
    """
    with screen.errors():
        check_above_zero("seconds", seconds=seconds)
        check_above_zero("gigabytes", gb=gb)
        if (config is None) == (not target.table):
            raise InvalidInputError("Give a TABLE, or --config of a job, one of them. Nothing was written.")
        budget: dict[str, Any] = {
            "budget_s": seconds,
            "budget_bytes": None if gb is None else int(gb * 10**9),
            "remove_unused": remove_unused,
        }
        if config is not None:
            _maintain_job(screen, _maintained(config, engine, {"dry_run": dry_run, **budget}))
        report = target.open().maintain(dry_run=dry_run, engine=engine.value, **budget)
    screen.show(report.to_dict(), lambda console: console.print(plain(str(report)), highlight=False))
    raise typer.Exit(0 if report.in_doubt is None else EXIT_LOST)


def _maintained(config: Path, engine: RunsOn, how: dict[str, Any]) -> TablesMaintained:
    """What was done to the tables of the job of a configuration; only one of change data reads Kafka."""
    from safewrite import cdc, medallion

    try:
        is_cdc = "kafka" in json.loads(config.read_text("utf-8-sig"))
    except (OSError, ValueError, TypeError):
        is_cdc = False  # its reader says what is wrong
    if is_cdc:
        return cdc.Pipeline(config).maintain(engine=engine.value, **how)
    return medallion.Pipeline(config, engine=engine.value).maintain(**how)


def _maintain_job(screen: Screen, done: TablesMaintained) -> NoReturn:
    """Show what was done to the tables of a job, a line for each."""

    def text(console: Console) -> None:
        lines = [str(one) for one in done.reports.values()]
        lines += [f"{name}: {why}" for name, why in done.failed.items()]
        lines += [f"{name}: not begun: the budget was used up" for name in done.left]
        for line in lines:
            console.print(plain(line), highlight=False)

    screen.show(done.to_dict(), text)
    raise typer.Exit(0 if done.ok else EXIT_LOST)
