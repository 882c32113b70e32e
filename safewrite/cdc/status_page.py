"""Draws where a job stands as one HTML page, with plots of its last batches."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.ledger.ledger import NO_OFFSETS
from safewrite.cdc.status import STOPPED, Status, TableStatus
from safewrite.intake.pages import ORDER, Point, Verdict, age_or_none, counted, page, sentence, whole
from safewrite.values.limits import utc

Lines: TypeAlias = list[dict[str, Any]]
"""Lines of a ledger, all of one batch."""
BATCHES_MAX = 50
"""The page plots this many batches, the newest."""
_TEMPLATE = Path(__file__).parent / "templates" / "status.html.j2"


def render(found: Status, ledger: pa.Table, at: dt.datetime) -> str:
    """The page of a job; ``ledger`` has the lines of its ledger.  Raises MissingExtraError."""
    colours = {one.table: _colour(one) for one in found.tables}
    dead = found.dead_nowhere_waiting + sum(one.dead_waiting for one in found.tables)
    of_dead: Verdict = "warn" if dead else "good"
    return page(
        _TEMPLATE,
        verdict=min([*colours.values(), of_dead], key=ORDER.__getitem__),
        sentence=sentence(_said(found, dead)),
        about=f"change data job {found.job}",
        at=at,
        extra="cdc",
        found=found,
        tables=sorted(found.tables, key=lambda one: (ORDER[colours[one.table]], -(one.lag or 0), one.table)),
        colours=colours,
        asked=any(one.lag is not None for one in found.tables),
        plots=_plots(_last_batches(ledger.filter(pc.equal(ledger.column("job"), found.job)))),
    )


def _colour(table: TableStatus) -> Verdict:
    if table.state in STOPPED:
        return "bad"
    return "good" if table.state in ("ok", "not begun") and not table.dead_waiting else "warn"


def _said(found: Status, dead: int) -> Iterator[str]:
    """How the job stands, what is wrong first."""
    count = len(found.tables)
    stopped = sum(one.state in STOPPED for one in found.tables)
    behind = sum(one.state == "behind" for one in found.tables)
    if not stopped and not behind:
        yield (
            f"no table of {count} is behind or stopped"
            if count != 1
            else "the table is neither behind nor stopped"
        )
    if stopped:
        yield f"{counted(stopped, 'table')} of {count} {'stops' if stopped == 1 else 'stop'} the job"
    if behind:
        yield f"{counted(behind, 'table')} behind"
    if dead:
        yield f"{counted(dead, 'dead letter')} {'waits' if dead == 1 else 'wait'}"
    applied = sum(one.applied for one in found.tables)
    yield f"{counted(applied, 'change')} applied in {counted(found.batches, 'batch', 'batches')}"


def _last_batches(lines: pa.Table) -> list[Lines]:
    """The lines of the last batches, by batch; a ledger may have those of years."""
    lines = lines.filter(pc.not_equal(lines.column("offsets"), NO_OFFSETS))
    numbers = sorted(pc.unique(lines.column("batch")).to_pylist())[-BATCHES_MAX:]
    batches: dict[int, Lines] = {number: [] for number in numbers}
    for line in lines.filter(pc.is_in(lines.column("batch"), pa.array(numbers, pa.int64()))).to_pylist():
        batches[line["batch"]].append(line)
    return [*batches.values()]


def _plots(batches: Sequence[Lines]) -> list[tuple[str, list[Point]]]:
    """Plots over some batches, the oldest first."""

    def over(value: Callable[[Lines], float], text: Callable[[float], str] = whole) -> list[Point]:
        return [(_label(one), value(one), text(value(one)), bool(_sum(one, "dead"))) for one in batches]

    plots = [
        ("records of a batch; red: with dead letters", over(lambda one: _sum(one, "records"))),
        ("dead letters", over(lambda one: _sum(one, "dead"))),
        ("age of the newest change when its batch was closed", over(_lag_s, age_or_none)),
        ("longest commit of a table", over(_longest_s, "{:.1f} s".format)),
    ]
    return plots if batches else []


def _sum(lines: Lines, name: str) -> int:
    return sum(line[name] for line in lines)


def _longest_s(lines: Lines) -> float:
    return max((line["commit_ms"] or 0) / 1000 for line in lines)


def _label(some: Lines) -> str:
    closed = [line["closed_ms"] for line in some if line["closed_ms"] is not None]
    return f"batch {some[0]['batch']}" + (f", {utc(max(closed)):%Y-%m-%d %H:%M}" if closed else "")


def _lag_s(some: Lines) -> float:
    """Zero where the clocks of source and driver disagree, or one of them said nothing."""
    closed, made = (
        [line[name] for line in some if line[name] is not None] for name in ("closed_ms", "source_time_ms")
    )
    return max(0.0, (max(closed) - max(made)) / 1000) if closed and made else 0.0
