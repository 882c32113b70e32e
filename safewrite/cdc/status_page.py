"""Draws where a job stands as one HTML page, with plots of its last batches."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.ledger.ledger import NO_OFFSETS
from safewrite.cdc.status import STOPPED, Status, TableStatus
from safewrite.intake.pages import Point, Verdict, age, counted, page, points
from safewrite.values.limits import utc

BATCHES_MAX = 50
"""The page plots this many batches, the newest."""
_TEMPLATE = Path(__file__).parent / "templates" / "status.html.j2"


def render(found: Status, ledger: pa.Table, at: dt.datetime) -> str:
    """The page of a job; ``ledger`` has the lines of its ledger.  Raises MissingExtraError."""
    colours = {one.table: _colour(one) for one in found.tables}
    order: dict[Verdict, int] = {"bad": 0, "warn": 1, "good": 2}
    dead = found.dead_nowhere_waiting + sum(one.dead_waiting for one in found.tables)
    of_dead: Verdict = "warn" if dead else "good"
    worst = min([*colours.values(), of_dead], key=order.__getitem__)
    return page(
        _TEMPLATE,
        verdict=worst,
        sentence=_sentence(found, dead),
        about=f"change data job {found.job}",
        at=at,
        extra="cdc",
        found=found,
        tables=sorted(found.tables, key=lambda one: (order[colours[one.table]], -(one.lag or 0), one.table)),
        colours=colours,
        asked=any(one.lag is not None for one in found.tables),
        plots=_plots(ledger.filter(pc.equal(ledger.column("job"), found.job))),
    )


def _colour(table: TableStatus) -> Verdict:
    if table.state in STOPPED:
        return "bad"
    return "good" if table.state in ("ok", "not begun") and not table.dead_waiting else "warn"


def _sentence(found: Status, dead: int) -> str:
    """How the job stands, what is wrong first."""
    stopped = sum(one.state in STOPPED for one in found.tables)
    behind = sum(one.state == "behind" for one in found.tables)
    said = (
        [f"{counted(stopped, 'table')} of {len(found.tables)} {'stops' if stopped == 1 else 'stop'} the job"]
        if stopped
        else []
    )
    said += [f"{counted(behind, 'table')} behind"] if behind else []
    said += [f"{counted(dead, 'dead letter')} {'waits' if dead == 1 else 'wait'}"] if dead else []
    said.append(
        f"{counted(sum(one.applied for one in found.tables), 'change')} applied in {counted(found.batches, 'batch', 'batches')}"
    )
    if not stopped and not behind:
        said.insert(
            0,
            f"no table of {len(found.tables)} is behind or stopped"
            if len(found.tables) != 1
            else "the table is neither behind nor stopped",
        )
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _plots(lines: pa.Table) -> list[tuple[str, list[Point]]]:
    """Plots over the last batches, the oldest first."""
    batches: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for line in lines.filter(pc.not_equal(lines.column("offsets"), NO_OFFSETS)).to_pylist():
        batches[line["batch"]].append(line)
    last = [batches[number] for number in sorted(batches)[-BATCHES_MAX:]]
    if not last:
        return []
    dead = [sum(line["dead"] for line in some) for some in last]
    labels = [_label(some) for some in last]

    def over(values: list[float], text: Any = None) -> list[Point]:
        given = zip(labels, values, map(bool, dead), strict=True)
        return points(given, text) if text else points(given)

    return [
        (
            "records of a batch; red: with dead letters",
            over([sum(line["records"] for line in some) for some in last]),
        ),
        ("dead letters", over([*map(float, dead)])),
        (
            "age of the newest change when its batch was closed",
            over([*map(_lag_s, last)], lambda s: age(s) or "none"),
        ),
        (
            "longest commit of a table",
            over([max((line["commit_ms"] or 0) / 1000 for line in some) for some in last], "{:.1f} s".format),
        ),
    ]


def _label(some: list[dict[str, Any]]) -> str:
    closed = [line["closed_ms"] for line in some if line["closed_ms"] is not None]
    return f"batch {some[0]['batch']}" + (f", {utc(max(closed)):%Y-%m-%d %H:%M}" if closed else "")


def _lag_s(some: list[dict[str, Any]]) -> float:
    """Zero where the clocks of source and driver disagree, or one of them said nothing."""
    closed, made = (
        [line[name] for line in some if line[name] is not None] for name in ("closed_ms", "source_time_ms")
    )
    return max(0.0, (max(closed) - max(made)) / 1000) if closed and made else 0.0
