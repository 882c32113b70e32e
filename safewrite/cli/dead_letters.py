"""Runs the commands of ``safewrite cdc dead-letters``: list, show, replay, retire."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite import InvalidInputError
from safewrite.cli.cdc import ConfigFile, pipeline_of
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

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.cdc.landing.replay import ReplayedLetters
    from safewrite.cdc.ledger.dead_letters import DeadLetters, KeptLetter, LetterFilter

dead_letters = typer.Typer(
    help="See the records that could not land, land them again, or put them aside.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
Names = Annotated[
    list[str] | None, typer.Argument(help="Letters, as topic/partition/offset.", show_default=False)
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Those that the job met from this time on, such as 2026-11-26T10:00 (UTC)."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Those that it met before this time.")]
_MISSING = (
    "The job has no dead letter {}. Nothing was written. `dead-letters list --state all` has their names."
)
_NONE = "No dead letter that is meant waits."


@dead_letters.command("list")
def list_(
    context: typer.Context,
    names: Names = None,
    *,
    config: ConfigFile,
    table: TablesOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    state: Annotated[
        str,
        typer.Option(
            "--state", help="waiting (with those of a replay that broke off), replayed, retired or all."
        ),
    ] = "waiting",
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List dead letters and why they did not land."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.ledger.dead_letters import LEFT, STATES, DeadLetters

        states = states_of(state, STATES, {"waiting": LEFT, "all": STATES})
        letters = DeadLetters(pipeline_of(config).landing.ledger)
        found = letters.find(_filter(names, table, reason, since, until), states)
        shown = found[:limit]

        def text(console: Console) -> None:
            grid = grid_of("letter", "table", "state", "seen", "reason")
            for one in shown:
                cells = (one.name, one.row["table"] or "", one.state, _seen(one), one.row["reason"])
                grid.add_row(*map(plain, cells))
            console.print(grid)
            console.print(
                f"{len(found)} dead letters" + (f", {limit} of them shown" if len(found) > limit else "")
            )

        screen.show({"count": len(found), "letters": [_brief(one) for one in shown]}, text)


@dead_letters.command()
def show(context: typer.Context, name: str, config: ConfigFile, output: OutputOption = None) -> None:
    """Show one dead letter whole: its record, its reason, and what became of it."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.ledger.dead_letters import STATES, DeadLetters

        letters = DeadLetters(pipeline_of(config).landing.ledger)
        found = letters.find(_filter([name], None, None, None, None), STATES)
        if not found:
            raise InvalidInputError(_MISSING.format(name))
        show_whole(screen, "letters", [_brief(one) | _content(one) for one in found])


@dead_letters.command()
def replay(
    context: typer.Context,
    names: Names = None,
    *,
    config: ConfigFile,
    table: TablesOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: AllOption = False,
    dry_run: DryRun = False,
    output: OutputOption = None,
) -> None:
    """Land dead letters through the configuration of today, each once; the job may run meanwhile.

    A replay that broke off is finished first.  Exits with 1 if a letter still cannot land.
    """
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.landing.replay import replay as replayed
        from safewrite.cdc.ledger.dead_letters import DeadLetters

        wanted = _narrowed(names, table, reason, since, until, every=every)
        landing = pipeline_of(config).landing
        letters = DeadLetters(landing.ledger)
        gone = _settled(letters, names)
        if dry_run:
            chosen = letters.find(wanted)
            answer = {"would_replay": [one.name for one in chosen]}
            screen.say(
                with_settled(answer, gone),
                said_of(f"{len(chosen)} would be replayed.", gone, None if chosen else _NONE),
            )
            return
        found = replayed(landing, wanted)
        screen.show(
            with_settled(found.to_dict(), gone), lambda console: _print_replayed(console, found, gone)
        )
    if found.dead:
        raise typer.Exit(EXIT_LOST)


@dead_letters.command()
def retire(
    context: typer.Context,
    names: Names = None,
    *,
    config: ConfigFile,
    note: Annotated[str, typer.Option("--note", help="Why their rows are not needed; it is kept with them.")],
    table: TablesOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: AllOption = False,
    dry_run: DryRun = False,
    output: OutputOption = None,
) -> None:
    """Put dead letters aside whose rows are not needed: they stay in the table, with the note."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.cdc.ledger.dead_letters import DeadLetters

        wanted = _narrowed(names, table, reason, since, until, every=every)
        letters = DeadLetters(pipeline_of(config).landing.ledger)
        gone = _settled(letters, names)
        chosen = letters.find(wanted, {"waiting"})
        closed = letters.closed(chosen)
        if dry_run:
            answer = {"would_retire": [one.name for one in closed]}
            screen.say(
                with_settled(answer, gone),
                said_of(f"{len(closed)} would be retired.", gone, None if chosen else _NONE),
            )
            return
        letters.retire(closed, note)
        left = len(chosen) - len(closed)
        screen.say(
            with_settled({"retired": len(closed), "open_batch": left}, gone),
            said_of(f"{len(closed)} are retired.{_left(left)}", gone, None if chosen else _NONE),
        )


def _settled(letters: DeadLetters, names: Sequence[str] | None) -> dict[str, str]:
    """What became of the letters that are named and wait no longer; refuses a name that no letter has."""
    from safewrite.cdc.ledger.dead_letters import LEFT, STATES

    found = letters.find(_filter(names, None, None, None, None), STATES) if names else []
    return settled(names, ((one.name, one.state) for one in found), LEFT, _MISSING)


def _filter(
    names: Sequence[str] | None,
    tables: Sequence[str] | None,
    reason: str | None,
    since: str | None,
    until: str | None,
) -> LetterFilter:
    from safewrite.cdc.ledger.dead_letters import LetterFilter

    return LetterFilter(
        tables or (), reason, _ns(since, "--since"), _ns(until, "--until"), frozenset(names or ())
    )


def _narrowed(
    names: Sequence[str] | None,
    tables: Sequence[str] | None,
    reason: str | None,
    since: str | None,
    until: str | None,
    *,
    every: bool,
) -> LetterFilter:
    """The letters that are meant; all only where that was said."""
    given = {"names": names, "--table": tables, "--reason": reason, "--since": since, "--until": until}
    must_mean("dead letters", given, every=every)
    return _filter(names, tables, reason, since, until)


def _ns(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{option} {text!r} is not a time of ISO 8601. Nothing was read. Give one such as 2026-11-26T10:00."
        ) from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) * 1_000_000_000


def _seen(letter: KeptLetter) -> str:
    return datetime.fromtimestamp(letter.row["seen_ns"] // 1_000_000_000, UTC).isoformat()


def _brief(letter: KeptLetter) -> dict[str, Any]:
    row = letter.row
    found = {
        "letter": letter.name,
        "table": row["table"],
        "state": letter.state,
        "seen": _seen(letter),
        "reason": row["reason"],
    }
    return found | ({"note": row["note"]} if row.get("note") else {})


def _content(letter: KeptLetter) -> dict[str, Any]:
    row = letter.row
    headers = {name: _text(value) for name, value in letter.headers}
    return {
        "key": _text(row["key"]),
        "value": _text(row["value"]),
        "headers": headers,
        "timestamp_ms": row["timestamp_ms"],
    }


def _text(data: bytes | None) -> str | None:
    """Bytes as the text that they are, else in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"


def _print_replayed(console: Console, found: ReplayedLetters, gone: Mapping[str, str]) -> None:
    count = found.landed + len(found.dead) + found.open_batch
    text = f"{found.landed} landed, {len(found.dead)} still cannot.{_left(found.open_batch)}"
    console.print(said_of(text, gone, None if count else _NONE), highlight=False)
    for name, why in found.dead.items():
        console.print(f"[bold]{plain(name)}[/]: {plain(why)}", highlight=False)


def _left(count: int) -> str:
    return f" {count} are of a batch that the job has not closed: they were left alone." if count else ""
