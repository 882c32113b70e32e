"""Defines what the commands share: options, the screen that answers go to, exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from safewrite.cli.unfit import unfit_library
from safewrite.errors import (
    InternalError,
    InvalidInputError,
    MissingExtraError,
    SafewriteError,
    TableNotFoundError,
    UnsafeConfigError,
)
from safewrite.findings import Finding, Severity, Step
from safewrite.protocol.ask import unanswered
from safewrite.protocol.effects import Missing, NewestEntry, Ok
from safewrite.stores.settings import storage_options
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from rich.console import Console

    from safewrite.cli.grid import Grid
    from safewrite.delta.connect import Connection

log = logging.getLogger("safewrite")

UsageError: Any = typer.BadParameter.__mro__[1]
"""Wrong usage, as typer finds it; it has no name of typer's."""

USAGE = (InvalidInputError, UnsafeConfigError, TableNotFoundError, MissingExtraError)
EXIT_LOST, EXIT_USAGE = 1, 2


class Output(StrEnum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


LockTable = Annotated[
    str | None,
    typer.Option(
        "--lock-table",
        envvar="SAFEWRITE_LOCK_TABLE",
        help="DynamoDB lock table (default: what a Delta table records; none for Iceberg).",
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        "--endpoint-url", envvar="SAFEWRITE_ENDPOINT_URL", help="URL of the S3 and DynamoDB to talk to."
    ),
]
Region = Annotated[str | None, typer.Option("--region", envvar="SAFEWRITE_REGION", help="AWS region.")]


class RunsOn(StrEnum):
    """What reads and writes data files."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


EngineOption = Annotated[
    RunsOn,
    typer.Option(
        help="What reads and writes tables: this process (local), or the executors of Spark, each with Python and safewrite (spark). auto: executors, "
        "where this is a job of a Spark that has some of its own, and this process what takes less here."
    ),
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option", metavar="KEY=VALUE", envvar="SAFEWRITE_STORAGE_OPTION",
        help="A storage option, such as AWS_ENDPOINT_URL_DYNAMODB=...; may be repeated.",
    ),
]  # fmt: skip
OutputOption = Annotated[
    Output | None, typer.Option("--output", envvar="SAFEWRITE_OUTPUT", help="text (default) or json.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Those whose reason has this text in it.")]
AllOption = Annotated[bool, typer.Option("--all", help="All that wait.")]
TablesOption = Annotated[
    list[str] | None,
    typer.Option("--table", help="Those of a table, by its full name with a point; may be repeated."),
]


def can_be_written(path: Path | None) -> Path | None:
    """A page is written last; that its folder is not there is said first."""
    if path is not None and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise typer.BadParameter(
            f"{path} cannot be written: {'it is a folder' if path.is_dir() else f'there is no folder {path.parent} to write to'}. "
            "Nothing was read or written."
        )
    return path


HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", callback=can_be_written, help="Write a page of what was found to this file."),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Show no more than this number.")]


def write_page(path: Path, page: str, done: str) -> None:
    """Write a page; that it cannot be written is said, for all else is ``done``."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        typer.echo(f"{done}, but its page could not be written: {error}", err=True)


def must_mean(what: str, options: Mapping[str, object], *, every: bool) -> None:
    """Refuse a command that says of nothing which are meant, or all and some.

    Args:
        options: what was given, by the name that the user knows.
    """
    if every is any(options.values()):
        raise InvalidInputError(
            f"Say which {what} are meant: {', '.join(options)}, or --all alone. Nothing was written."
        )


def states_of(state: str, states: Sequence[str], groups: Mapping[str, Collection[str]]) -> Collection[str]:
    """The states that a user means: one, or a group of them such as all.

    Raises:
        InvalidInputError: it is neither.
    """
    known = {**{one: (one,) for one in states}, **groups}
    if state not in known:
        raise InvalidInputError(
            f"{state!r} is not a state. Nothing was read. Give one of {', '.join(known)}."
        )
    return known[state]


def show_whole(screen: Screen, what: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Show all that is known of a few things."""

    def text(console: Console) -> None:
        for one in found:
            for name, value in one.items():
                console.print(f"[bold]{name}[/]: {plain(str(value))}", highlight=False)

    screen.show({what: [dict(one) for one in found]}, text)


def settled(
    names: Collection[str] | None, states: Iterable[tuple[str, str]], left: Collection[str], missing: str
) -> dict[str, str]:
    """What became of the names that wait no longer, of which no state is one that is left.

    Raises:
        InvalidInputError: nothing has one of the names; ``missing`` says so, with the name put in.
    """
    found: dict[str, set[str]] = {name: set() for name in names or ()}
    for name, state in states:
        if name in found:
            found[name].add(state)
    if unknown := [name for name, of_name in found.items() if not of_name]:
        raise InvalidInputError(missing.format(", ".join(unknown)))
    return {name: ", ".join(sorted(of_name)) for name, of_name in found.items() if of_name.isdisjoint(left)}


def with_settled(answer: Mapping[str, Any], gone: Mapping[str, str]) -> dict[str, Any]:
    """An answer that says in ``already`` what became of the names that wait no longer."""
    return {**answer, **({"already": gone} if gone else {})}


def said_of(text: str, gone: Mapping[str, str], none: str | None) -> str:
    """What was done of those that wait, ``none`` where none did, and what became of those that wait no longer."""
    already = [f"{plain(name)} is {state} already." for name, state in gone.items()]
    return " ".join(already if none and already else [none or text, *already])


class Screen:
    """Shows answers as rich text, or as one JSON document."""

    def __init__(self, context: typer.Context, output: Output | None) -> None:
        from safewrite.cli.grid import console

        self.json = (output or context.find_root().obj or Output.TEXT) is Output.JSON
        self.console = console()

    def show(self, answer: Mapping[str, Any], text: Callable[[Console], None]) -> None:
        """Print the answer, as JSON or by ``text``."""
        if self.json:
            typer.echo(json.dumps(answer, indent=1, default=str))
        else:
            text(self.console)

    def say(self, answer: Mapping[str, Any], text: str) -> None:
        """Print the answer, as JSON or as one sentence."""
        self.show(answer, lambda console: console.print(text, highlight=False))

    @contextlib.contextmanager
    def progress(self) -> Iterator[None]:
        """Show on standard error how far what is done within has come, if that is a terminal; else show nothing."""
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            yield
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        from safewrite.progress import watching

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            tasks: dict[str, Any] = {}

            def watch(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = shown.add_task(what, total=total)
                shown.update(tasks[what], completed=done, total=total)

            with watching(watch):
                yield

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Turn errors into an answer and an exit code."""
        return answering(is_json=self.json)


@contextlib.contextmanager
def answering(*, is_json: bool) -> Iterator[None]:
    """Answer every error with what happened, what is safe and what to do, as text or as JSON; then exit.

    One that nothing foresaw is kind ``internal``; ``--log-level debug`` shows where it came from.
    """
    try:
        with _extras():
            yield
        return
    except (typer.Exit, typer.Abort):
        raise
    except SafewriteError as error:
        found = error
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            raise  # who reads has seen enough; typer ends without a word
        if isinstance(error, UsageError):
            if not is_json:
                raise _on_whole_words(error) from None
            found = _wrong_usage(error)
        else:
            log.debug("where this error came from", exc_info=error)
            found = _unforeseen(error)
    if is_json:
        told = {"error": {"kind": found.kind.value, "message": found.message, "key": found.key}}
        typer.echo(json.dumps(told))
    else:
        typer.echo(filled(f"{type(found).__name__} ({found.kind.value}): {found.message}"), err=True)
    raise typer.Exit(EXIT_USAGE if isinstance(found, USAGE) else EXIT_LOST) from found


def _wrong_usage(error: Any) -> InvalidInputError:
    path = error.ctx.command_path if error.ctx is not None else "safewrite"
    what = "A command is missing" if _is_help(error) else error.format_message().rstrip(".")
    return InvalidInputError(f"{what}. Nothing was read or written. `{path} --help` says what it takes.")


def _is_help(error: Exception) -> bool:
    """Whether it is no error but what typer shows where no command was given."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _unforeseen(error: Exception) -> InternalError:
    return InternalError(
        f"{type(error).__name__}: {said(error)}. Nothing here foresaw it, so how far the command came is not known; every table is "
        "whole, as its last commit left it. If the machine or the network failed, run the same command again; else please report "
        "it with what SAFEWRITE_LOG_LEVEL=debug shows."
    )


def _on_whole_words(error: Any) -> Any:
    """The same, in lines that a terminal need not break."""
    if _is_help(error):
        return error
    text = filled(f"Error: {error.format_message()}").removeprefix("Error: ")
    return UsageError(text, ctx=error.ctx)


def filled(text: str) -> str:
    """A text for standard error, whose lines a terminal would break within words."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    )


_EXTRAS = {
    "pyiceberg": "iceberg",
    "sqlglot": "delta",
    "pyroaring": "delta",
    "pyspark": "spark",
    "deltalake": "stress",
    "rich": "cli",
}


@contextlib.contextmanager
def _extras() -> Iterator[None]:
    """Raise MissingExtraError for a package that is not installed, and that an extra brings."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name == "sqlalchemy":
            command = "pip install 'pyiceberg[sql-postgres]' 'pyiceberg[sql-sqlite]'"
        elif name in _EXTRAS:
            command = MissingExtraError.command(_EXTRAS[name])
        else:
            raise unfit_library(error) from error
        raise MissingExtraError(
            f"This needs {error.name}, which is not installed. Nothing was written. Install it: {command}"
        ) from error
    except ImportError as error:
        raise unfit_library(error) from error


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """The values of a repeated option that takes KEY=VALUE."""
    found = {}
    for text in texts or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            # Not the text itself: it may be a secret whose name was left out.
            raise typer.BadParameter("a value is not KEY=VALUE", param_hint=option)
        found[name] = value
    return found


def options_of(
    endpoint_url: str | None, region: str | None, storage_option: Sequence[str] | None
) -> dict[str, str]:
    options = pairs(storage_option, "--storage-option")
    if endpoint_url:
        options["AWS_ENDPOINT_URL"] = endpoint_url
    if region:
        options["AWS_REGION"] = region
    return storage_options(options) or {}


def connect_to(
    table: str, lock_table: str | None, arbiter: str | None, options: Mapping[str, str]
) -> Connection:
    from safewrite.delta.arbiter import check_arbiter, choose_spelling
    from safewrite.delta.connect import connect
    from safewrite.delta.maintenance.inspection import settle

    settled, name, recorded = settle(table, lock_table=lock_table, arbiter=arbiter, storage_options=options)
    connection = connect(table, lock_table=name, arbiter=settled, storage_options=options, boto3_session=None)
    check_arbiter(connection, recorded)
    if connection.arbiter.lock_table:
        ours, others = (_newest(connection, other_spelling=other) for other in (False, True))
        choose_spelling(connection, recorded, ours=ours, others=others)
    return connection


def _newest(connection: Connection, *, other_spelling: bool) -> bool:
    """Whether the lock table has entries under a spelling of the path."""
    effect = NewestEntry(other_spelling=other_spelling, name="cli.newest")
    answer = connection.world.perform(effect)
    if not isinstance(answer, Ok | Missing):
        raise unanswered(effect, answer)
    return isinstance(answer, Ok)


def grid_of(*columns: str) -> Grid:
    """A table that breaks no word; rich is loaded by it, and help needs none."""
    from safewrite.cli.grid import Grid

    return Grid(*columns)


def plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def show_findings(
    screen: Screen, answer: Mapping[str, Any], findings: Sequence[Finding], head: str, foot: str = ""
) -> None:
    """Show findings with their cures, and exit: with 1 if there is a danger."""
    counts = {str(level): sum(f.severity is level for f in findings) for level in Severity}

    def text(console: Console) -> None:
        console.print(plain(head), highlight=False)
        _print_findings(console, findings)
        if foot:
            console.print(plain(foot), style="dim", highlight=False)

    screen.show({**answer, "counts": counts, "findings": [finding.to_dict() for finding in findings]}, text)
    raise typer.Exit(EXIT_LOST if counts["danger"] else 0)


def _print_findings(console: Console, findings: Sequence[Finding]) -> None:
    if not findings:
        console.print("[green]Nothing unsafe was found.[/green]")
        return
    colours = {Severity.DANGER: "bold red", Severity.WARNING: "yellow", Severity.INFO: "dim"}
    grid = grid_of("severity", "code", "what was found", "how to repair it")
    for finding in findings:
        level = f"[{colours[finding.severity]}]{finding.severity}[/]"
        grid.add_row(level, finding.code, plain(finding.message), plain(finding.mend))
    console.print(grid)


def show_steps(screen: Screen, table: str, steps: Sequence[Step], nothing: str) -> None:
    def text(console: Console) -> None:
        if not steps:
            console.print(nothing)
            return
        grid = grid_of("action", "status", "target", "version", "rows", "detail")
        for step in steps:
            numbers = ("" if number is None else str(number) for number in (step.version, step.rows))
            grid.add_row(step.action, step.status, plain(step.target), *numbers, plain(step.detail))
        console.print(grid)

    screen.show({"table": table, "steps": [step.to_dict() for step in steps]}, text)
    unmended = any(
        step.status == "failed" or (step.status == "skipped" and step.action == "rescue") for step in steps
    )
    raise typer.Exit(EXIT_LOST if unmended else 0)


def text_of(path: Path | str) -> str:
    """The text of a file of another tool's settings.

    Raises:
        InvalidInputError: it is in a bucket, cannot be read, or is empty.
    """
    if "://" in str(path):
        raise InvalidInputError(
            f"The file {path} is in a bucket. Nothing was written. Copy it first: `aws s3 cp {path} {Path(path).name}`."
        )
    try:
        found = Path(path).read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"The file {path} cannot be read ({error}). Nothing was written. Give a file of text."
        ) from error
    if not found.strip():
        raise InvalidInputError(f"The file {path} is empty. Nothing was written. Give one with its settings.")
    return found


def show_converted(
    screen: Screen, made: Mapping[str, Any], write: Path | None, words: tuple[str, str]
) -> None:
    """Show a configuration that was made of another tool's settings, or write it, and what became of each setting.

    ``words``: where the settings are from, and the command that checks the configuration.
    """
    text = json.dumps(made["config"], indent=2) + "\n"
    if write is not None:
        _write_new(write, text)
    where, check = words

    def show(console: Console) -> None:
        grid = grid_of(where, "here", "what changes")
        for one in made["settings"]:
            grid.add_row(plain(one["name"]), plain(one["becomes"]), plain(one["changes"]))
        console.print(grid)
        for warning in made["warnings"]:
            console.print(f"[yellow]Look at this[/]: {plain(warning)}", highlight=False)
        if write is None:
            typer.echo(text, nl=False)
        else:
            console.print(f"{plain(str(write))} is written. `{check} --config {plain(str(write))}` reads it.")

    screen.show(made, show)


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written ({error}). Name a new file.") from error


def check_above_zero(unit: str, **given: float | None) -> None:
    """Refuse options that are no numbers of a unit above 0; None is an option that was not given."""
    for name, value in given.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidInputError(
                f"--{name.replace('_', '-')} is a number of {unit} above 0, not {value}. Nothing was written."
            )
