"""Draws a run as one HTML page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from safewrite.intake.pages import ORDER, Point, Verdict, age_or_none, counted, page, sentence, whole

if TYPE_CHECKING:
    from safewrite.medallion.report.run import PastRun, Run, TableRun

WORDS = ("inserted", "updated", "deleted", "tombstoned", "late", "duplicate", "superseded")
"""What becomes of a change, in the order of a report."""
_TEMPLATE = Path(__file__).parent / "templates" / "run.html.j2"


def render(run: Run, at: dt.datetime) -> str:
    """The page of a run that ended at a time.  Raises MissingExtraError."""
    states = {one.table: _state(one) for one in run.tables}
    now = run.summed(at)
    return page(
        _TEMPLATE,
        verdict=_verdict(run, now, states),
        sentence=sentence(_said(run, now)),
        about=f"medallion job {run.job}",
        at=at,
        extra="medallion",
        run=run,
        words=WORDS,
        states=states,
        tables=sorted(run.tables, key=lambda one: (ORDER[states[one.table][1]], -one.lag_s, one.table)),
        plots=_plots([*reversed(run.earlier), now]) if run.earlier else [],
    )


def _state(table: TableRun) -> tuple[str, Verdict]:
    if table.error is not None:
        return "failed", "bad"
    if table.warning is not None:
        return "look at it", "warn"
    return ("behind", "warn") if table.lag_s else ("fresh", "good")


def _verdict(run: Run, now: PastRun, states: dict[str, tuple[str, Verdict]]) -> Verdict:
    if not run.ok:
        return "bad"
    return "warn" if now.quarantined or any(verdict != "good" for _, verdict in states.values()) else "good"


def _said(run: Run, now: PastRun) -> Iterator[str]:
    """What the run came to, what is wrong first."""
    failed, behind = sum(not one.ok for one in run.tables), sum(bool(one.lag_s) for one in run.tables)
    if run.ok:
        yield f"all {now.tables} tables went well" if now.tables != 1 else "the table went well"
    if failed:
        yield f"{counted(failed, 'table')} of {now.tables} failed"
    if run.errors:
        yield f"{counted(len(run.errors), 'error')} about files of no table"
    if behind:
        yield f"{counted(behind, 'table')} behind"
    if now.quarantined:
        yield f"{counted(now.quarantined, 'record')} in quarantine"
    yield f"{counted(now.landed, 'row')} landed in bronze, {now.applied:,} taken by silver"


def _plots(runs: Sequence[PastRun]) -> list[tuple[str, list[Point]]]:
    """Plots over some runs, the oldest first."""

    def over(value: Callable[[PastRun], float], text: Callable[[float], str] = whole) -> list[Point]:
        return [(one.at[:16], value(one), text(value(one)), bool(one.failures)) for one in runs]

    return [
        ("rows landed in bronze", over(lambda one: one.landed)),
        ("records put into quarantine", over(lambda one: one.quarantined)),
        ("age of the oldest file or commit that is left", over(lambda one: one.lag_s, age_or_none)),
        ("seconds of a run", over(lambda one: one.elapsed_s, "{:.1f} s".format)),
    ]
