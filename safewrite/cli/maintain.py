"""Runs the command maintain: small data files of a table are put together, beside its writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from safewrite.cli.shared import EXIT_LOST, DryRun, Screen, check_above_zero, connect_to, plain
from safewrite.cli.target import Target, on_table

if TYPE_CHECKING:
    from safewrite.table.verbs import Table


@on_table
def maintain(
    screen: Screen,
    target: Target,
    *,
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
    dry_run: DryRun = False,
) -> None:
    """Put small data files together, and those with many deleted rows, beside the table's writers.  No row changes.

    It commits group by group, cold partitions first.  A group of which others took files first is left out, and the rest goes on.
    Exits with 1 if a commit is in doubt: the rows are the same whether it landed or not, and the next run decides.
    """
    with screen.errors():
        check_above_zero("seconds", seconds=seconds)
        check_above_zero("gigabytes", gb=gb)
        report = _opened(target).maintain(
            dry_run=dry_run, budget_s=seconds, budget_bytes=None if gb is None else int(gb * 10**9)
        )
    screen.show(report.to_dict(), lambda console: console.print(plain(str(report)), highlight=False))
    raise typer.Exit(0 if report.in_doubt is None else EXIT_LOST)


def _opened(target: Target) -> Table:
    """The table, as a writer opens it."""
    import safewrite

    if target.catalog is not None:
        return safewrite.open(
            target.table,
            catalog=dict(target.catalog),
            branch=target.branch,
            lock_table=target.lock_table,
            storage_options=target.options,
        )
    found = connect_to(target.table, target.lock_table, target.arbiter, target.options)
    return safewrite.open(
        target.table,
        lock_table=found.lock_table,
        arbiter=cast("Any", found.arbiter_name),
        storage_options=target.options,
    )
