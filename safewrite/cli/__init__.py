"""Starts the ``safewrite`` command; what it needs beyond the library is the extra ``[cli]``."""

from __future__ import annotations

import sys

from safewrite.cli.unfit import unfit_library
from safewrite.errors import MissingExtraError

_NEEDED = frozenset({"typer", "rich", "click"})


def main() -> None:
    """Run the command line; without typer or rich, say which extra brings them, and exit with 2."""
    try:
        run()
    except MissingExtraError as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from error


def run() -> None:
    """Run the command line.  Raises MissingExtraError where the extra is not installed."""
    try:
        from safewrite.cli.app import app, show_help, spare_pandas

        if not show_help(sys.argv[1:]):
            spare_pandas(sys.argv[1:])
            app(prog_name="safewrite")
    except MissingExtraError:
        raise
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _NEEDED:
            raise unfit_library(error) from error
        raise MissingExtraError(
            f"The command line needs {error.name}, which is not installed. Nothing was written. Install it: "
            f"{MissingExtraError.command('cli')}"
        ) from error
