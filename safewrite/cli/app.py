"""Runs the commands of ``safewrite``: doctor, resolve, history, changes, repair, maintain, adopt, checkpoint, fast-forward, locks,
verify, dashboard, cdc, medallion, stress.

Exit codes: 0 all is well, 1 rows are lost, doubled or unknown (doctor: a danger was found), 2 wrong
usage or settings.  Options that say where tables are and how commands look at them can be set as
``SAFEWRITE_<NAME>`` in the environment; what one call decides is not read there.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

import safewrite
from safewrite.cli.adopt import adopt
from safewrite.cli.cdc import cdc
from safewrite.cli.changes import changes
from safewrite.cli.dashboard import dashboard
from safewrite.cli.fast_forward import fast_forward
from safewrite.cli.history import history
from safewrite.cli.letters import CDC, MEDALLION, commands
from safewrite.cli.locks import locks
from safewrite.cli.maintain import maintain
from safewrite.cli.medallion import medallion
from safewrite.cli.shared import EXIT_USAGE, Output, OutputOption, answering, filled
from safewrite.cli.stress import bench_app, stress
from safewrite.cli.tables import checkpoint, doctor, repair, resolve
from safewrite.cli.verify import verify


class Answered(TyperGroup):
    """The command whose every error is answered in the form that was asked for, also where its words cannot be read."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Read the words before the command."""
        if extra.get("resilient_parsing"):  # the tab key
            return super().make_context(info_name, args, parent=parent, **extra)
        words = list(args)
        with answering(is_json=_wants_json(words)):
            context = super().make_context(info_name, args, parent=parent, **extra)
        context.meta["safewrite.words"] = words
        return context

    def invoke(self, ctx: Any) -> Any:
        """Read the other words, and run the command that they name."""
        with answering(is_json=_wants_json(ctx.meta["safewrite.words"])):
            return super().invoke(ctx)


def _wants_json(words: Sequence[str]) -> bool:
    found = os.environ.get("SAFEWRITE_OUTPUT", "")
    for before, word in pairwise(["", *words]):
        if before == "--output":
            found = word
        elif word.startswith("--output="):
            found = word.removeprefix("--output=")
    return found == Output.JSON


app = typer.Typer(
    name="safewrite",
    cls=Answered,
    help="Look after Delta and Iceberg tables with many writers: find what is unsafe, resolve, repair, verify, stress.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["--help", "-h"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: rich's costs more than all else of it, and so does each press of the tab key
)


class Level(StrEnum):
    """Least severe log line that is shown, on standard error."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    output: OutputOption = None,
    log_level: Annotated[Level, typer.Option(envvar="SAFEWRITE_LOG_LEVEL")] = Level.WARNING,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)
    ] = False,
) -> None:
    if version:
        typer.echo(f"safewrite {safewrite.__version__}")
        raise typer.Exit
    context.obj = output
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_USAGE)
    _log(log_level)


class _Lines(logging.Formatter):
    """A line of the log: when (UTC), how severe, of which table or job, what."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record; its table stands before the text, unless the text names it."""
        text = super().format(record)
        table = getattr(record, "table", None)
        head, separator, rest = text.partition(": ")
        return filled(text if not table or str(table) in rest else f"{head}{separator}{table}: {rest}")


def _log(level: Level) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.value.upper(), handlers=[handler])
    if level is not Level.DEBUG:
        # It tells of each call between Python and Java, and prints the stack of what a batch raised, which the command tells.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        handler.addFilter(
            lambda record: "py4j" not in record.pathname
        )  # some of it under the name of no logger


HELP = {"--help", "-h"}
"""Options that ask for help."""


def show_help(words: Sequence[str]) -> bool:
    """Print the help of the command that the words name, if they ask for help; whether they do.

    Typer would read the options before the command first, and loads pydantic for it: that takes longer than all of the help.
    """
    if not HELP.intersection(words):
        return False
    command: Any = get_command(app)
    context = command.context_class(command, info_name="safewrite", help_option_names=sorted(HELP))
    for before, word in pairwise(["", *words]):
        commands = getattr(command, "commands", {})
        if word in HELP:
            break
        if word in commands:
            command = commands[word]
            context = command.context_class(command, info_name=word, parent=context)
        elif commands and not (word.startswith("-") or before.startswith("-")):
            return False  # Typer says that the command does not exist
    if not command.add_help_option:
        bench_app()(args=["--help"], prog_name=context.command_path)
    else:
        typer.echo(command.get_help(context))
    return True


BY_FILES = frozenset({"changes", "checkpoint", "doctor", "maintain"})
"""Commands that read and write files of tables, and take no data of pandas."""


class _NoPandas:
    """Finds no pandas, as where it is not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """As ``importlib`` calls it."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def command_of(words: Sequence[str]) -> str | None:
    """The command that words name: the first that is neither an option nor its value."""
    for before, word in pairwise(["", *words]):
        is_value = before.startswith("-") and "=" not in before  # all options before a command have one
        if not (is_value or word.startswith("-")):
            return word
    return None


def spare_pandas(words: Sequence[str]) -> None:
    """Let pyarrow believe that there is no pandas, where a command begins that has no data of pandas.

    It would import pandas with the first array that it makes, which takes as long as all else that such a command imports.  It looks
    for pandas once; others may import it still.
    """
    if command_of(words) not in BY_FILES or "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(_NoPandas)


app.command()(doctor)
app.command()(resolve)
app.command()(history)
app.command()(changes)
app.command()(repair)
app.command()(maintain)
app.command()(adopt)
app.command()(checkpoint)
app.command()(fast_forward)
app.add_typer(locks, name="locks")
medallion.add_typer(commands(MEDALLION), name="quarantine")
app.add_typer(medallion, name="medallion")
app.command()(verify)
app.command()(dashboard)
cdc.add_typer(commands(CDC), name="dead-letters")
app.add_typer(cdc, name="cdc")
app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False
)(stress)
