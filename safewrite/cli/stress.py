"""Hands over to the stress run of the checkout or of the wheel."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import safewrite
from safewrite.cli.shared import Output, Screen
from safewrite.errors import MissingExtraError


def stress(context: typer.Context) -> None:
    """Run many writer processes on one table, under faults, and judge; `safewrite stress --help` lists its options."""
    screen = Screen(context, None)
    with screen.errors():
        bench = bench_app()
    args = list(context.args)
    if screen.json and not any(arg.partition("=")[0] == "--output" for arg in args):
        args += ["--output", Output.JSON.value]
    raise typer.Exit(bench(args=args, prog_name="safewrite stress", standalone_mode=False) or 0)


def bench_app() -> Callable[..., Any]:
    """The stress run's own command, from the wheel's package or from the checkout that safewrite runs from."""
    checkout = Path(safewrite.__file__).resolve().parent.parent / "bench" / "stress" / "__main__.py"
    name = "bench" if checkout.exists() else "safewrite_bench"
    if name == "safewrite_bench" and importlib.util.find_spec(name) is None:
        raise MissingExtraError(
            "The stress run is not part of this installation. Nothing was written. Install it: "
            f"{MissingExtraError.command('cli,stress')}, or run from a checkout."
        )
    if name == "bench" and str(checkout.parents[2]) not in sys.path:
        sys.path.insert(0, str(checkout.parents[2]))
    try:
        module = importlib.import_module(f"{name}.stress.__main__")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The stress run needs {error.name}, which is not installed. Nothing was written. Install it: "
            f"{MissingExtraError.command('cli,stress')}"
        ) from error
    command: Callable[..., Any] = module.app
    return command
