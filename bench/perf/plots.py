"""Draws one figure per scenario as SVG text: every measurement a dot, the median a bar; or its curves."""

from __future__ import annotations

import io
import math
from typing import Any

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from .figures import Curve, Line, Scenario

INK, MUTED, GRID = "#1d2733", "#6b7682", "#e3e7eb"
_COLOURS = ("#2b6cb0", "#2f855a", "#c77700", "#6b46c1", "#c53030", "#6b7682", "#0f766e")
_STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": MUTED,
    "axes.labelcolor": INK, "text.color": INK, "xtick.color": MUTED, "ytick.color": MUTED,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID,
    "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False,
}  # fmt: skip


def strip(scenario: Scenario) -> Markup:
    """Cases from top to bottom, the arms of each together, on a logarithmic axis from one decade to the next."""
    lines = scenario.lines
    arms = list(dict.fromkeys(line.arm for line in lines))
    colours = {arm: _COLOURS[index % len(_COLOURS)] for index, arm in enumerate(arms)}
    with mpl.rc_context({**_STYLE, "svg.hashsalt": scenario.name}):
        figure = Figure(figsize=(9.2, 0.9 + 0.2 * len(lines) + 0.12 * len({line.case for line in lines})))
        axes = figure.subplots()
        centres: dict[str, list[float]] = {}
        height = 0.0
        for before, line in zip((None, *lines), lines, strict=False):
            height -= 1.6 if before is not None and before.case != line.case else 1.0
            centres.setdefault(line.case, []).append(height)
            _draw(axes, line, height, colours[line.arm])
        for arm, colour in colours.items():
            axes.plot([], [], "o", color=colour, label=arm, markersize=5)
        axes.set_yticks([sum(c) / len(c) for c in centres.values()], list(centres), fontsize=8)
        axes.set_ylim(height - 1, 0)
        if all(value > 0 for line in lines for value in line.values):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        axes.set_xlabel(f"{lines[0].unit} (dots: measurements, bars: medians)")
        axes.grid(axis="y", visible=False)
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return _svg(figure)


def curves(scenario: Scenario) -> Markup:
    """A panel for each curve, two in a row, both axes logarithmic."""
    rows = math.ceil(len(scenario.curves) / 2)
    with mpl.rc_context({**_STYLE, "svg.hashsalt": scenario.name}):
        figure = Figure(figsize=(9.6, 3.9 * rows), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False).flatten()
        for axes, curve in zip(panels, scenario.curves, strict=False):
            _panel(axes, curve)
        for axes in panels[len(scenario.curves) :]:
            axes.set_visible(False)
        return _svg(figure)


def _panel(axes: Any, curve: Curve) -> None:
    for number, (name, points) in enumerate(curve.series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(
            *zip(*sorted(points), strict=True), "o-", color=colour, label=name, markersize=4, linewidth=1.4
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    places = sorted({x for points in curve.series.values() for x, _ in points})
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.minorticks_off()
    axes.set_title(curve.title, fontsize=9, loc="left")
    axes.set_xlabel(curve.x)
    axes.set_ylabel(curve.y)
    axes.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)


def _svg(figure: Figure) -> Markup:
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return Markup(text[text.index("<svg") :])  # our own drawing, no input of others


def _draw(axes: object, line: Line, height: float, colour: str) -> None:
    values = list(line.values)
    axes.plot(values, [height] * len(values), "o", color=colour, alpha=0.35, markersize=3.5)  # type: ignore[attr-defined]
    median = line.spread.median
    axes.plot([median] * 2, [height - 0.42, height + 0.42], color=colour, linewidth=2.2)  # type: ignore[attr-defined]
