"""``python -m bench.medallion`` compares silver with the truth of a source; exit 0 only if every table is right."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table

from bench.medallion.engines import ON_CLUSTERS, Together, killing
from bench.medallion.truth import Verdict, tell_story
from bench.screen import screen

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
MIXED_SHARE = 4
"""One table of so many has its changes in files of all tables."""


@app.command()
def medallion(  # noqa: PLR0917 - typer calls it, by name
    tables: Annotated[int, typer.Option(help="Tables of each format.", min=2)] = 80,
    files: Annotated[int, typer.Option(help="Raw files of each format, at least.")] = 3000,
    kills: Annotated[int, typer.Option(help="Runs of each format that are killed, at least.")] = 20,
    seed: Annotated[int, typer.Option(help="The same seed tells the same story.")] = 1,
    table_format: Annotated[Literal["delta", "iceberg", "both"], typer.Option("--format")] = "both",
    engine: Annotated[
        Literal["local", "tasks", "spark", "auto"],
        typer.Option(
            help="tasks: in threads; spark: on a cluster of two executors; auto: by lot on these or in a process."
        ),
    ] = "local",
    executor_kills: Annotated[int, typer.Option(help="Executors that are killed (spark).")] = 20,
    rounds: Annotated[int, typer.Option(help="So often the source writes between two runs.", min=1)] = 1,
    folder: Annotated[Path | None, typer.Option(help="Keep files and tables here.")] = None,
) -> None:
    """Full loads and changes late, twice, out of order, begun again and overwritten; the job is killed again and again."""
    console, errors = screen(), screen(stderr=True)
    place = folder or Path(tempfile.mkdtemp(prefix="medallion-"))
    began_s = time.monotonic()
    formats = ("delta", "iceberg") if table_format == "both" else (table_format,)
    verdicts, stack, together = [], ExitStack(), Together()
    killed = (
        stack.enter_context(killing(place / "cluster", executor_kills, seed))
        if engine in ON_CLUSTERS
        else None
    )
    for each in formats:
        mixed = max(1, tables // MIXED_SHARE)
        for is_mixed, count in ((False, tables - mixed), (True, mixed)):
            share = count / tables
            verdicts.append(
                tell_story(
                    place / f"{each}-{'mixed' if is_mixed else 'single'}", each, mixed=is_mixed, tables=count,
                    files=round(files * share), kills=max(1, round(kills * share)), seed=seed, tell=errors.print, engine=engine,
                    rounds=rounds,
                )
            )  # fmt: skip
            errors.print(f"{each}: {verdicts[-1].wrong_tables} wrong tables, {len(verdicts[-1].flaws)} flaws")
    stack.close()
    _show(console, verdicts)
    if killed is not None:
        console.print(f"killed meanwhile: {dict(killed)}")
    console.print(f"together in one task: {dict(together.found)}")
    console.print(f"seed {seed}, {time.monotonic() - began_s:.0f} s")
    clean = not any(one.flaws or one.wrong_tables for one in verdicts)
    if folder is None and clean:
        shutil.rmtree(place)
    elif not clean:
        console.print(f"Files and tables are in {place}.")
    raise typer.Exit(0 if clean else 1)


def _show(console: Console, verdicts: Sequence[Verdict]) -> None:
    grid = Table(title="silver against the truth")
    for name in (
        "format", "change files", "tables", "files", "deliveries", "runs", "killed", "rows in files", "landed", "put aside",
        "silver", "truth", "wrong tables", "recipe: lost, ghosts, stale", "its MERGE alone",
    ):  # fmt: skip
        grid.add_column(name)
    for one in verdicts:
        counts = (
            one.tables, one.files, one.deliveries, one.runs, one.killed, one.rows_in_files, one.landed, one.put_aside,
            one.silver_rows, one.truth_rows, one.wrong_tables,
        )  # fmt: skip
        harms = [
            "" if harm is None else f"{harm.lost}, {harm.ghosts}, {harm.stale}"
            for harm in (one.recipe, one.recipe_each_round)
        ]
        grid.add_row(one.table_format, one.layout, *map(str, counts), *harms)
    console.print(grid)
    for one in verdicts:
        points = ", ".join(f"{point} {count}" for point, count in sorted(one.kills.items()))
        console.print(f"{one.table_format}, {one.layout}: killed {points}")
        for flaw in one.flaws:
            console.print(f"  FLAW {flaw}")


if __name__ == "__main__":
    app()
