"""``python -m bench.perf`` compares safewrite with deltalake or PyIceberg; exit 1 only if a row was not safe."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..screen import screen
from ..stress.run import facts
from . import (
    changes,
    contention,
    curves,
    functions,
    group,
    imports,
    log_length,
    lone,
    members,
    memory,
    report,
    updates,
)
from .contest import Contest, iceberg
from .figures import Scenario
from .scale import FULL, QUICK, Scale

SCENARIOS: dict[str, Callable[[Scale, Path], Scenario]] = {
    "lone": lone.run,
    "contention": contention.run,
    "group": group.run,
    "log-length": log_length.run,
    "memory": memory.run,
    "imports": imports.run,
    "members": members.run,
    "changes": changes.run,
    "updates": updates.run,
    "lambda": functions.run,
    "curves": curves.run,
}
ICEBERG: dict[str, Callable[[Scale, Path, Contest], Scenario]] = {
    "lone": lone.run,
    "contention": contention.run,
    "group": group.run,
    "members": members.run,
}


class Format(StrEnum):
    """The format of the tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"


class CatalogKind(StrEnum):
    """The catalog of the Iceberg tables."""

    SQL = "sql"
    REST = "rest"
    GLUE = "glue"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def perf(
    *,
    only: Annotated[str, typer.Option(help=f"Comma-separated, of: {', '.join(SCENARIOS)}.")] = "",
    format: Annotated[Format, typer.Option(help="Whose tables are written.")] = Format.DELTA,  # noqa: A002
    catalog: Annotated[
        CatalogKind,
        typer.Option(
            help="Of --format iceberg, which has the scenarios lone, contention, group and members."
        ),
    ] = CatalogKind.SQL,
    quick: Annotated[bool, typer.Option(help="A short form; its figures are coarse.")] = False,
    frame_gb: Annotated[float | None, typer.Option(min=0.001, help="Size of the frame of `memory`.")] = None,
    processes: Annotated[
        str,
        typer.Option(
            help="Comma-separated numbers of processes of `contention`, `group` and `curves`, then without windows."
        ),
    ] = "",
    out: Annotated[Path, typer.Option(help="Folder of the reports.")] = Path("out/perf"),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the figures to this file, too.")
    ] = None,
) -> None:
    """Measure, print a table per scenario, and close with the aims."""
    known = SCENARIOS if format is Format.DELTA else ICEBERG
    names = _choose(only, known)
    scale = QUICK if quick else FULL
    if frame_gb is not None:
        scale = replace(scale, frame_bytes=int(frame_gb * 1e9))
    if processes:
        numbers = _numbers(processes)
        scale = replace(
            scale,
            processes=numbers,
            processes_slow=numbers,
            group_processes=numbers,
            curve_writers=numbers,
            curve_every_s=(),
        )
    folder = out.resolve() / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder.mkdir(parents=True)
    console = screen()
    started, began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), time.monotonic()
    found = []
    for name in names:
        found.append(measure(name, scale, None if format is Format.DELTA else catalog))
        report.show(found[-1], console)
    elapsed = f"{time.monotonic() - began:.0f} s"
    command = shlex.join(["python", "-m", __package__ or "bench.perf", *sys.argv[1:]])
    plain = report.summary({"started": started, "elapsed": elapsed, **facts()}, command, found)
    page = report.write(plain, found, folder)
    if json_file is not None:
        json_file.write_text(json.dumps(plain, indent=1))
    console.print(f"{elapsed}; {command}; report: {page}", highlight=False, soft_wrap=True)
    report.show_aims(found, console)
    raise typer.Exit(1 if any(scenario.broken for scenario in found) else 0)


def measure(name: str, scale: Scale, catalog: CatalogKind | None = None) -> Scenario:
    """Run one scenario on servers of its own, whose files are thrown away afterwards; Iceberg's with ``catalog``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="safewrite-perf-") as folder:
        if catalog is None:
            scenario = SCENARIOS[name](scale, Path(folder))
        else:
            small = replace(scale, lone_rows=scale.lone_rows_iceberg)
            scenario = ICEBERG[name](small, Path(folder), iceberg(catalog.value))
            scenario = replace(scenario, title=f"{scenario.title} (Iceberg, {catalog} catalog)")
    return replace(scenario, elapsed_s=time.monotonic() - began)


def _choose(only: str, known: Iterable[str]) -> list[str]:
    named = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in named if name not in known]
    if unknown:
        raise typer.BadParameter(f"no scenario is named {', '.join(unknown)}; there are {', '.join(known)}")
    return named or list(known)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"--processes takes numbers such as 4,16,32, not {text!r}") from error
    if min(numbers) < 1:
        raise typer.BadParameter("--processes takes numbers from 1")
    return numbers


if __name__ == "__main__":
    app()
