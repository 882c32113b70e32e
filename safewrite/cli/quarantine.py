"""Runs the commands of ``safewrite medallion quarantine``: list, show, replay, retire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.cli.medallion import ConfigOption, EngineOption, RunsOn, pipeline_of
from safewrite.cli.shared import (
    EXIT_LOST,
    AllOption,
    DryRun,
    LimitOption,
    OutputOption,
    ReasonOption,
    Screen,
    TablesOption,
    grid_of,
    must_mean,
    plain,
    said_of,
    settled,
    show_whole,
    states_of,
    with_settled,
)
from safewrite.errors import InvalidInputError

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.medallion.audit.quarantine import AsideRecord, Quarantine

quarantine = typer.Typer(
    help="See the records that could not be taken, take them again, or say that they are not needed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_MISSING = "{} is not in quarantine. Nothing was written. `quarantine list --state all` has their names."
_NONE = "No record that is meant waits."
Names = Annotated[list[str] | None, typer.Argument(help="Records, as file#number.", show_default=False)]


@quarantine.command("list")
def list_(
    context: typer.Context,
    names: Names = None,
    *,
    config: ConfigOption,
    table: TablesOption = None,
    reason: ReasonOption = None,
    state: Annotated[
        str, typer.Option("--state", help="waiting, replayed, overtaken (by a later change), retired or all.")
    ] = "waiting",
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List records in quarantine and why they are there."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.medallion.audit.quarantine import STATES, Quarantine

        states = states_of(state, STATES, {"all": STATES})
        found = Quarantine(pipeline_of(config)).find(states, tables=table, reason=reason, names=names or ())
        shown = found[:limit]

        def text(console: Console) -> None:
            grid = grid_of("record", "table", "stage", "state", "reason")
            for one in shown:
                grid.add_row(*map(plain, (one.name, one.table, one.stage, one.state, one.reason)))
            console.print(grid)
            console.print(
                f"{len(found)} records" + (f", {limit} of them shown" if len(found) > limit else "")
            )

        screen.show({"count": len(found), "records": [_brief(one) for one in shown]}, text)


@quarantine.command()
def show(context: typer.Context, name: str, *, config: ConfigOption, output: OutputOption = None) -> None:
    """Show one record whole: its text, its reason, and what became of it."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.medallion.audit.quarantine import STATES, Quarantine

        found = Quarantine(pipeline_of(config)).find(STATES, names=[name])
        if not found:
            raise InvalidInputError(_MISSING.format(name))
        show_whole(screen, "records", [one.to_dict() for one in found])


@quarantine.command()
def replay(
    context: typer.Context,
    names: Names = None,
    *,
    config: ConfigOption,
    table: TablesOption = None,
    reason: ReasonOption = None,
    every: AllOption = False,
    dry_run: DryRun = False,
    engine: EngineOption = RunsOn.LOCAL,
    output: OutputOption = None,
) -> None:
    """Take records again through the configuration of today, each once; the job may run meanwhile.

    It replays their tables, from files that are still there and from bronze.  Exits with 1 if a record still cannot be taken.
    """
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.medallion.audit.quarantine import Quarantine, Replayed

        where = Quarantine(pipeline_of(config, engine=engine))
        chosen = where.find(**_narrowed(names, table, reason, every=every))
        gone = _settled(where, names)
        if dry_run:
            names_of = [one.name for one in chosen]
            said = said_of(f"{len(chosen)} would be replayed.", gone, None if chosen else _NONE)
            screen.say(with_settled({"would_replay": names_of}, gone), said)
            return
        found = where.replay(chosen) if chosen else Replayed([], [], {})

        def text(console: Console) -> None:
            said = (
                f"{len(found.taken)} are taken, {len(found.left)} still cannot be, or their files are gone."
            )
            console.print(said_of(said, gone, None if chosen else _NONE), highlight=False)
            for one in found.left:
                console.print(f"[bold]{plain(one.name)}[/]: {plain(one.reason)}", highlight=False)
            for failed, why in found.failed.items():
                console.print(f"[bold red]{plain(failed)}[/]: {plain(why)}", highlight=False)

        screen.show(with_settled(found.to_dict(), gone), text)
    if found.left or found.failed:
        raise typer.Exit(EXIT_LOST)


@quarantine.command()
def retire(
    context: typer.Context,
    names: Names = None,
    *,
    config: ConfigOption,
    note: Annotated[str, typer.Option("--note", help="Why they are not needed; it is kept with them.")],
    table: TablesOption = None,
    reason: ReasonOption = None,
    every: AllOption = False,
    dry_run: DryRun = False,
    output: OutputOption = None,
) -> None:
    """Say of records that they are not needed: they stay in quarantine, with the note, and wait no longer."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.medallion.audit.quarantine import Quarantine

        where = Quarantine(pipeline_of(config))
        chosen = where.find(**_narrowed(names, table, reason, every=every))
        gone = _settled(where, names)
        if dry_run:
            names_of = [one.name for one in chosen]
            said = said_of(f"{len(chosen)} would be retired.", gone, None if chosen else _NONE)
            screen.say(with_settled({"would_retire": names_of}, gone), said)
            return
        count = where.retire(chosen, note)
        screen.say(
            with_settled({"retired": count}, gone),
            said_of(f"{count} are retired.", gone, None if chosen else _NONE),
        )


def _settled(where: Quarantine, names: list[str] | None) -> dict[str, str]:
    """What became of the records that are named and wait no longer; refuses a name that no record has."""
    from safewrite.medallion.audit.quarantine import STATES

    found = where.find(STATES, names=names) if names else []
    return settled(names, ((one.name, one.state) for one in found), ("waiting",), _MISSING)


def _narrowed(
    names: list[str] | None, table: list[str] | None, reason: str | None, *, every: bool
) -> dict[str, Any]:
    """The records that are meant; all only where that was said."""
    must_mean("records", {"names": names, "--table": table, "--reason": reason}, every=every)
    return {"names": names or (), "tables": table, "reason": reason}


def _brief(one: AsideRecord) -> dict[str, Any]:
    found = {
        "record": one.name,
        "table": one.table,
        "stage": one.stage,
        "state": one.state,
        "reason": one.reason,
    }
    return found | ({"note": one.note} if one.note else {})
