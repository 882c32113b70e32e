"""Writes what a run found: one JSON file, one self-contained HTML page, tables on the terminal."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .figures import Aim, Line, Scenario, Spread

_HEAD = ("case", "arm", "min", "median", "max", "n", "to its peer: min / median / max")


def number(value: float | None) -> str:
    """A number in three significant digits; nothing for what was not measured."""
    if value is None:
        return ""
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def summary(facts: dict[str, str], command: str, scenarios: Sequence[Scenario]) -> dict[str, Any]:
    """Everything that the report says, as plain values."""
    return {
        "command": command,
        "facts": facts,
        "scenarios": [scenario.to_dict() for scenario in scenarios],
    }


# --- terminal -----------------------------------------------------------------------------------------
def show(scenario: Scenario, console: Console) -> None:
    """One scenario's table."""
    names = extras(scenario)
    table = Table(
        title=f"{scenario.title} ({scenario.lines[0].unit}; {scenario.elapsed_s:.0f} s)", title_justify="left"
    )
    for name in (*_HEAD, *names):
        table.add_column(name, justify="left" if name in _HEAD[:2] else "right")
    for before, line in zip((None, *scenario.lines), scenario.lines, strict=False):
        if before is not None and before.case != line.case:
            table.add_section()
        table.add_row(*cells(line, names))
    console.print(table)
    for text in (scenario.measures, *scenario.notes):
        console.print(f"  {text}", style="dim", highlight=False, markup=False)
    for text in scenario.broken:
        console.print(f"  BROKEN: {text}", style="bold red", highlight=False, markup=False)
    console.print()


def show_aims(scenarios: Sequence[Scenario], console: Console) -> None:
    """The closing table: aim, measured, met or missed."""
    table = Table(title="Aims", title_justify="left")
    for name in ("aim", "bound", "measured", ""):
        table.add_column(name, justify="left" if name in ("aim", "") else "right")
    for aim in (aim for scenario in scenarios for aim in scenario.aims):
        verdict = "met" if aim.met else "MISSED"
        table.add_row(aim.text, bound(aim), number(aim.measured), verdict, style="" if aim.met else "yellow")
    console.print(table)


def bound(aim: Aim) -> str:
    """The bound of an aim, such as ``<= 1.1``."""
    return f"{aim.bound} {aim.limit:g}"


def extras(scenario: Scenario) -> list[str]:
    """Names of other counts that fit into a column."""
    found = dict.fromkeys(name for line in scenario.lines for name in line.extra)
    return [
        name for name in found if not any(isinstance(line.extra.get(name), dict) for line in scenario.lines)
    ]


def cells(line: Line, names: Sequence[str]) -> list[str]:
    """A row of the table."""
    spread, ratio = line.spread, line.ratio
    values = [number(spread.min), number(spread.median), number(spread.max), str(spread.n)]
    return [
        line.case,
        line.arm,
        *values,
        _ratio(line, ratio),
        *(number(line.extra.get(name)) for name in names),
    ]


def _ratio(line: Line, ratio: Spread | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio.min:.2f} / {ratio.median:.2f} / {ratio.max:.2f}  : {line.peer}"


# --- files --------------------------------------------------------------------------------------------
def write(plain: dict[str, Any], scenarios: Sequence[Scenario], folder: Path) -> Path:
    """Write ``report.json``, ``report.html`` and an SVG file of each scenario's curves; returns the page."""
    (folder / "report.json").write_text(json.dumps(plain, indent=1))
    page = folder / "report.html"
    page.write_text(render(plain, scenarios))
    for scenario in scenarios:
        if scenario.curves:
            from . import plots

            (folder / f"{scenario.name}.svg").write_text(plots.curves(scenario))
    return page


def render(plain: dict[str, Any], scenarios: Sequence[Scenario]) -> str:
    """The page: no script, no link to anything outside."""
    import jinja2

    from . import plots

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    sections = [
        {
            "scenario": scenario,
            "figure": plots.curves(scenario) if scenario.curves else plots.strip(scenario),
            "head": (*_HEAD, *extras(scenario)),
            "rows": [(line, cells(line, extras(scenario))) for line in scenario.lines],
        }
        for scenario in scenarios
    ]
    aims = [
        {"text": aim.text, "bound": bound(aim), "measured": number(aim.measured), "met": aim.met}
        for scenario in scenarios
        for aim in scenario.aims
    ]
    return environment.get_template("report.html.j2").render(run=plain, sections=sections, aims=aims)
