"""Draws a run as one HTML page, without scripts and without links to anything outside."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from safewrite.errors import MissingExtraError

if TYPE_CHECKING:
    from safewrite.medallion.report.run import Run

WORDS = ("inserted", "updated", "deleted", "tombstoned", "late", "duplicate", "superseded")
"""What becomes of a change, in the order of a report."""


def render(run: Run, at: dt.datetime) -> str:
    """The page of a run that ended at a time.  Raises MissingExtraError."""
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"The page needs Jinja: {MissingExtraError.command('medallion')}. The run itself is done."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    failed = sum(not table.ok for table in run.tables)
    return environment.get_template("run.html.j2").render(
        run=run,
        words=WORDS,
        failed=failed,
        age=_age,
        tables=sorted(run.tables, key=lambda one: (one.ok, one.warning is None, -one.lag_s, one.table)),
        at=at.isoformat(sep=" ", timespec="seconds"),
    )


def _age(seconds: float) -> str:
    """An age in its greatest unit; empty for none."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds else ""
