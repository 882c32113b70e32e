"""Draws the report's figures as SVG text."""

from __future__ import annotations

import io
from collections import Counter

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from .arm import ArmResult

INK, MUTED, GRID = "#1d2733", "#6b7682", "#e3e7eb"
BLUE, RED, AMBER, GREEN, PURPLE = "#2b6cb0", "#c53030", "#c77700", "#2f855a", "#6b46c1"
_VARIABLES = {
    INK: "ink", MUTED: "muted", GRID: "line", BLUE: "blue", RED: "bad", AMBER: "warn", GREEN: "good", PURPLE: "purple",
}  # fmt: skip
_KINDS = (BLUE, GREEN, PURPLE, MUTED, AMBER)
_STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "axes.edgecolor": MUTED,
    "axes.labelcolor": INK, "text.color": INK, "xtick.color": MUTED, "ytick.color": MUTED,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID,
    "grid.linewidth": 0.6, "axes.axisbelow": True, "legend.frameon": False,
}  # fmt: skip


def _svg(figure: Figure, salt: str) -> Markup:
    out = io.StringIO()
    # The salt keeps ids of several figures on one page apart, and the bytes the same each time.
    with mpl.rc_context({**_STYLE, "svg.hashsalt": salt}):
        figure.savefig(
            out, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None, "Creator": None}
        )
    text = out.getvalue()
    for colour, name in _VARIABLES.items():  # the page sets them, and sets others in the dark
        text = text.replace(f": {colour}", f": var(--{name})")
    return Markup(text[text.index("<svg") :])


def _colours(arm: ArmResult) -> dict[str, str]:
    kinds = list(dict.fromkeys(writer.kind for writer in arm.plan.writers if not writer.chores))
    return {kind: _KINDS[index % len(_KINDS)] for index, kind in enumerate(kinds)}


def timeline(arm: ArmResult) -> Markup:
    """One line per writer: acked commits, kills, pauses; below, every fault that the proxy injected."""
    with mpl.rc_context(_STYLE):
        writers = [writer.number for writer in arm.plan.writers if not writer.chores]
        line = {number: len(writers) - index for index, number in enumerate(writers)}
        faults = [event for event in arm.events if event["source"] == "proxy"]
        kinds = sorted({event["kind"] for event in faults}, reverse=True)
        heights = [1.0 + 0.19 * len(writers), 0.35 + 0.19 * max(1, len(kinds))]
        figure = Figure(figsize=(10, sum(heights)))
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=heights)
        start = arm.started_at
        for kind, colour in _colours(arm).items():
            acks = [w for w in arm.verdict.writes if w.kind == kind and w.acked_at is not None]
            for write in acks:
                upper.plot(
                    [write.invoked_at - start, (write.acked_at or start) - start], [line[write.writer]] * 2,
                    color=colour, alpha=0.35, linewidth=2.2, solid_capstyle="butt",
                )  # fmt: skip
            times = [(w.acked_at or start) - start for w in acks]
            upper.plot(times, [line[w.writer] for w in acks], "|", color=colour, markersize=6, label=kind)
        _marks(arm, upper, line, start)
        upper.set_yticks([])
        upper.set_ylabel("writers")
        upper.grid(False)
        if upper.get_legend_handles_labels()[0]:  # else nothing was acknowledged, killed or paused
            upper.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, fontsize=8)
        for row, kind in enumerate(kinds):
            times = [event["t"] / 1000 - start for event in faults if event["kind"] == kind]
            lower.plot(times, [row] * len(times), "|", color=RED, markersize=8, alpha=0.8)
        lower.set_yticks(range(len(kinds)), kinds, fontsize=8)
        lower.set_ylim(-0.8, max(0.8, len(kinds) - 0.2))
        lower.set_xlabel("seconds since the first call (before 0 they open the table)")
        return _svg(figure, f"timeline-{arm.plan.name}")


def _marks(arm: ArmResult, axes: object, line: dict[int, int], start: float) -> None:
    events = [event for event in arm.events if event["source"] == "ledger"]
    kills = [(event["t"] - start, line[event["writer"]]) for event in events if event["event"] == "kill"]
    if kills:
        axes.plot(*zip(*kills, strict=True), "x", color=RED, markersize=5, label="SIGKILL")  # type: ignore[attr-defined]
    label = "SIGSTOP to SIGCONT"
    for event in events:
        if event["event"] != "pause":
            continue
        ends = [
            e["t"]
            for e in events
            if e["event"] == "resume" and e["pid"] == event["pid"] and e["t"] > event["t"]
        ]
        until = min(ends, default=event["t"])
        place = [line[event["writer"]]] * 2
        axes.plot(
            [event["t"] - start, until - start], place, color=AMBER, linewidth=4, alpha=0.8, label=label
        )  # type: ignore[attr-defined]
        label = "_"


def latency(arm: ArmResult) -> Markup:
    """How long an append took until its ack, retries of the caller included, as a cumulative share."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 2.7))
        axes = figure.subplots()
        for kind, colour in _colours(arm).items():
            times = sorted(
                w.acked_at - w.invoked_at
                for w in arm.verdict.writes
                if w.kind == kind and w.acked_at is not None
            )
            if times:
                share = [(index + 1) / len(times) for index in range(len(times))]
                axes.step(times, share, where="post", color=colour, label=kind, linewidth=1.6)
        axes.set_xscale("log")
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("seconds from call to ack (log)")
        axes.set_ylabel("share of acked appends")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7.5, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, columnspacing=1.0)
        return _svg(figure, f"latency-{arm.plan.name}")


def tries(arm: ArmResult) -> Markup:
    """How many versions an acked append had to try."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(4.8, 2.7))
        axes = figure.subplots()
        counts = Counter(
            min(w.tries, 10) for w in arm.verdict.writes if w.outcome == "ok" and w.tries is not None
        )
        axes.bar(list(counts), list(counts.values()), color=BLUE, width=0.7)
        for tries, count in counts.items():
            axes.text(tries, count, str(count), ha="center", va="bottom", fontsize=8)
        axes.set_xticks(range(max(counts, default=1) + 1))
        axes.set_xlabel("tries at a version (0: found already committed; 10: or more)")
        axes.set_ylabel("acked appends")
        axes.grid(axis="x", visible=False)
        return _svg(figure, f"tries-{arm.plan.name}")
