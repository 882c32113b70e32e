"""Draws a run as one HTML page."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from safewrite.intake.pages import Point, Verdict, age, counted, page, points

if TYPE_CHECKING:
    from safewrite.medallion.report.run import PastRun, Run, TableRun

WORDS = ("inserted", "updated", "deleted", "tombstoned", "late", "duplicate", "superseded")
"""What becomes of a change, in the order of a report."""
_TEMPLATE = Path(__file__).parent / "templates" / "run.html.j2"


def render(run: Run, at: dt.datetime) -> str:
    """The page of a run that ended at a time.  Raises MissingExtraError."""
    states = {one.table: _state(one) for one in run.tables}
    order = {"bad": 0, "warn": 1, "good": 2}
    tables = sorted(run.tables, key=lambda one: (order[states[one.table][1]], -one.lag_s, one.table))
    return page(
        _TEMPLATE,
        verdict=_verdict(run, states),
        sentence=_sentence(run),
        about=f"medallion job {run.job}",
        at=at,
        extra="medallion",
        run=run,
        words=WORDS,
        states=states,
        tables=tables,
        plots=_plots(run, at),
    )


def _state(table: TableRun) -> tuple[str, Verdict]:
    if table.error is not None:
        return "failed", "bad"
    if table.warning is not None:
        return "look at it", "warn"
    return ("behind", "warn") if table.lag_s else ("fresh", "good")


def _verdict(run: Run, states: dict[str, tuple[str, Verdict]]) -> Verdict:
    if not run.ok:
        return "bad"
    return "warn" if _aside(run) or any(verdict != "good" for _, verdict in states.values()) else "good"


def _aside(run: Run) -> int:
    return run.put_aside + sum(one.landed.quarantined + one.refined.quarantined for one in run.tables)


def _sentence(run: Run) -> str:
    """What the run came to, what is wrong first."""
    failed, behind = sum(not one.ok for one in run.tables), sum(bool(one.lag_s) for one in run.tables)
    landed, taken = (
        (
            sum(counts)
            for counts in zip(*((one.landed.rows, one.refined.rows) for one in run.tables), strict=True)
        )
        if run.tables
        else (0, 0)
    )
    said = [f"{counted(failed, 'table')} of {len(run.tables)} failed"] if failed else []
    said += [f"{counted(len(run.errors), 'error')} about files of no table"] if run.errors else []
    said += [f"{counted(behind, 'table')} behind"] if behind else []
    aside = _aside(run)
    said += [f"{counted(aside, 'record')} in quarantine"] if aside else []
    said.append(f"{counted(landed, 'row')} landed in bronze, {taken:,} taken by silver")
    if not (failed or run.errors):
        said.insert(
            0, f"all {len(run.tables)} tables went well" if len(run.tables) != 1 else "the table went well"
        )
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}."


def _plots(run: Run, at: dt.datetime) -> list[tuple[str, list[Point]]]:
    """Plots over this run and those before it, the oldest first."""
    if not run.earlier:
        return []
    now = (at.isoformat(sep=" ", timespec="minutes")[:16], run)
    past: list[PastRun] = [*reversed(run.earlier)]

    def over(of_past: object, of_now: float, text: object = None) -> list[Point]:
        values = [(one.at[:16], float(getattr(one, str(of_past))), bool(one.failures)) for one in past]
        values.append((now[0], of_now, not run.ok))
        return points(values, text) if text else points(values)

    return [
        ("rows landed in bronze", over("landed", sum(one.landed.rows for one in run.tables))),
        ("records put into quarantine", over("quarantined", _aside(run))),
        (
            "age of the oldest file or commit that is left",
            over("lag_s", max((one.lag_s for one in run.tables), default=0.0), lambda s: age(s) or "none"),
        ),
        ("seconds of a run", over("elapsed_s", run.elapsed_s, "{:.1f} s".format)),
    ]
