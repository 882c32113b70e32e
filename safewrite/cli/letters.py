"""Runs the commands on records that a job could not take: list, show, replay, retire.

They are ``safewrite cdc dead-letters`` and ``safewrite medallion quarantine``, which differ in what :class:`JobWords` says.
"""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.cli import cdc, medallion
from safewrite.cli.shared import (
    EXIT_LOST,
    AllOption,
    DryRun,
    EngineOption,
    LimitOption,
    OutputOption,
    ReasonOption,
    RunsOn,
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

    from safewrite.intake.letters import Letter, LetterFilter, Letters, Replayed

SinceOption = Annotated[
    str | None,
    typer.Option("--since", help="Those that the job met from this time on, such as 2026-11-26T10:00 (UTC)."),
]
UntilOption = Annotated[str | None, typer.Option("--until", help="Those that it met before this time.")]
StateOption = Annotated[
    str,
    typer.Option(
        "--state",
        help="waiting (with those of a replay that broke off), replayed, overtaken (by a later change), retired or all.",
    ),
]
NoteOption = Annotated[
    str, typer.Option("--note", help="Why their rows are not needed; it is kept with them.")
]
_DONE = {"replay": "replayed", "retire": "retired"}
_SPECIAL = frozenset({"names", "name", "config", "engine"})
"""The parameters that each job describes for itself, or does not have."""


@dataclass(frozen=True)
class JobWords:
    """What differs between jobs: how they call a letter, how their letters are reached, and options of their own."""

    noun: str
    help: str
    letters: Callable[..., Letters[Any]]
    parameters: Mapping[str, Any]


def _dead_letters(config: Path) -> Letters[Any]:
    from safewrite.cdc.landing.dead_letters import DeadLetters

    return DeadLetters(cdc.pipeline_of(config).landing)


def _quarantine(config: Path, engine: RunsOn = RunsOn.AUTO) -> Letters[Any]:
    from safewrite.medallion.audit.quarantine import Quarantine

    return Quarantine(medallion.pipeline_of(config, engine=engine))


def _named(how: str) -> dict[str, Any]:
    many = Annotated[list[str] | None, typer.Argument(help=f"Letters, as {how}.", show_default=False)]
    return {"names": many, "name": Annotated[str, typer.Argument(help=f"The letter, as {how}.")]}


CDC = JobWords(
    "dead letter",
    "See the records that could not land, land them again, or put them aside.",
    _dead_letters,
    {**_named("topic/partition/offset"), "config": cdc.ConfigFile},
)
MEDALLION = JobWords(
    "quarantined record",
    "See the records that could not be taken, take them again, or put them aside.",
    _quarantine,
    {**_named("file#number"), "config": medallion.ConfigOption, "engine": EngineOption},
)


def commands(job: JobWords) -> typer.Typer:
    """The group of these commands for a job."""
    group = typer.Typer(help=job.help, no_args_is_help=True, rich_markup_mode=None)
    runs: dict[str, Callable[..., None]] = {
        "list": _list,
        "show": _show,
        "replay": _replay,
        "retire": _retire,
    }
    for name, run in runs.items():
        group.command(name)(_of_job(run, job))
    return group


def _of_job(run: Callable[..., None], job: JobWords) -> Callable[..., None]:
    """A command of one job, with the parameters that the job describes."""
    given = list(inspect.signature(run, eval_str=True).parameters.values())[1:]
    described = [
        one.replace(annotation=job.parameters[one.name]) if one.name in _SPECIAL else one
        for one in given
        if one.name not in _SPECIAL or one.name in job.parameters
    ]

    @functools.wraps(run)
    def command(*args: Any, **options: Any) -> None:
        run(job, *args, **options)

    command.__signature__ = inspect.Signature(described)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in described}
    return command


def _list(
    job: JobWords,
    context: typer.Context,
    names: list[str] | None = None,
    *,
    config: Path,
    table: TablesOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    state: StateOption = "waiting",
    limit: LimitOption = 100,
    output: OutputOption = None,
) -> None:
    """List records that could not be taken, and why."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.intake.letters import LEFT, STATES

        states = states_of(state, STATES, {"waiting": LEFT, "all": STATES})
        every = job.letters(config).find(_filter(names, table, reason, since, until), STATES)
        found = [one for one in every if one.state in states]
        counted = Counter(one.state for one in every)
        counts = {one: counted[one] for one in STATES if counted[one]}
        shown = found[:limit]

        def text(console: Console) -> None:
            grid = grid_of("letter", "table", "stage", "state", "seen", "reason")
            for one in (letter.brief() for letter in shown):
                cells = (one[name] or "" for name in ("letter", "table", "stage", "state", "seen", "reason"))
                grid.add_row(*map(plain, cells))
            console.print(grid)
            more = f", {limit} of them shown" if len(found) > limit else ""
            each = ", ".join(f"{count} {one}" for one, count in counts.items())
            of_all = f" (of all that are meant: {each})" if len(every) > len(found) else ""
            console.print(f"{len(found)} letters{more}{of_all}", highlight=False)

        answer = {"count": len(found), "states": counts, "letters": [one.brief() for one in shown]}
        screen.show(answer, text)


def _show(
    job: JobWords, context: typer.Context, name: str, *, config: Path, output: OutputOption = None
) -> None:
    """Show one record whole: what it holds, its reason, and what became of it."""
    screen = Screen(context, output)
    with screen.errors():
        from safewrite.intake.letters import STATES

        found = job.letters(config).find(_filter([name]), STATES)
        if not found:
            raise InvalidInputError(_missing(job).format(name))
        show_whole(screen, "letters", [one.brief() | one.content() for one in found])


def _replay(
    job: JobWords,
    context: typer.Context,
    names: list[str] | None = None,
    *,
    config: Path,
    table: TablesOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: AllOption = False,
    dry_run: DryRun = False,
    engine: RunsOn = RunsOn.AUTO,
    output: OutputOption = None,
) -> None:
    """Take records again through the configuration of today, each once; the job may run meanwhile.

    What a replay that broke off had begun is finished.  Exits with 1 if a record still cannot be taken.
    """
    screen = Screen(context, output)
    with screen.errors():
        wanted = _narrowed(job, (names, table, reason, since, until), every=every)
        letters = job.letters(config, **({"engine": engine} if "engine" in job.parameters else {}))
        gone, chosen = _chosen(job, letters, names, wanted)
        if dry_run:
            _would(screen, job, "replay", chosen, gone)
            return
        found = letters.replay(wanted)
        screen.show(
            with_settled(found.to_dict(), gone), lambda console: _print_replayed(console, job, found, gone)
        )
    if not found.ok:
        raise typer.Exit(EXIT_LOST)


def _retire(
    job: JobWords,
    context: typer.Context,
    names: list[str] | None = None,
    *,
    config: Path,
    note: NoteOption,
    table: TablesOption = None,
    reason: ReasonOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    every: AllOption = False,
    dry_run: DryRun = False,
    output: OutputOption = None,
) -> None:
    """Put records aside whose rows are not needed: they stay in their table, with the note, and wait no longer."""
    screen = Screen(context, output)
    with screen.errors():
        wanted = _narrowed(job, (names, table, reason, since, until), every=every)
        letters = job.letters(config)
        gone, chosen = _chosen(job, letters, names, wanted)
        waiting = [one for one in chosen if one.state == "waiting"]
        ready = letters.ready(waiting)
        if dry_run:
            _would(screen, job, "retire", ready, gone)
            return
        count, left = letters.retire(ready, note), len(waiting) - len(ready)
        screen.say(
            with_settled({"retired": count, "open_batch": left}, gone),
            said_of(f"{count} are retired.{_left(left)}", gone, None if waiting else _none(job)),
        )


def _chosen(
    job: JobWords, letters: Letters[Any], names: Collection[str] | None, wanted: LetterFilter
) -> tuple[dict[str, str], list[Letter]]:
    """What became of the letters that are named and wait no longer, and those that are meant and do; refuses a name that none has."""
    from safewrite.intake.letters import LEFT, STATES

    named = _filter(names)
    found = letters.find(named, STATES) if names else []
    gone = settled(names, ((one.name, one.state) for one in found), LEFT, _missing(job))
    alone = bool(names) and wanted == named
    return gone, [one for one in found if one.state in LEFT] if alone else letters.find(wanted)


def _would(
    screen: Screen, job: JobWords, verb: str, letters: Sequence[Letter], gone: Mapping[str, str]
) -> None:
    text = f"{len(letters)} would be {_DONE[verb]}."
    answer = {f"would_{verb}": [one.name for one in letters]}
    screen.say(with_settled(answer, gone), said_of(text, gone, None if letters else _none(job)))


def _missing(job: JobWords) -> str:
    return f"The job has no {job.noun} {{}}. Nothing was written. `list --state all` has their names."


def _none(job: JobWords) -> str:
    return f"No {job.noun} that is meant waits."


def _filter(
    names: Collection[str] | None,
    tables: Collection[str] | None = None,
    reason: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> LetterFilter:
    from safewrite.intake.letters import LetterFilter

    return LetterFilter(
        tables or (), reason, _ns(since, "--since"), _ns(until, "--until"), frozenset(names or ())
    )


def _narrowed(job: JobWords, given: tuple[Any, ...], *, every: bool) -> LetterFilter:
    """The letters that are meant; all only where that was said."""
    options = ("names", "--table", "--reason", "--since", "--until")
    must_mean(f"{job.noun}s", dict(zip(options, given, strict=True)), every=every)
    return _filter(*given)


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


def _print_replayed(console: Console, job: JobWords, found: Replayed, gone: Mapping[str, str]) -> None:
    count = found.landed + len(found.dead) + found.open_batch + len(found.failed)
    text = f"{found.landed} landed, {len(found.dead)} still cannot.{_left(found.open_batch)}"
    console.print(said_of(text, gone, None if count else _none(job)), highlight=False)
    for name, why in found.dead.items():
        console.print(f"[bold]{plain(name)}[/]: {plain(why)}", highlight=False)
    for table, why in found.failed.items():
        console.print(f"[bold red]{plain(table)}[/]: {plain(why)}", highlight=False)


def _left(count: int) -> str:
    return f" {count} are of a batch that the job has not closed: they were left alone." if count else ""
