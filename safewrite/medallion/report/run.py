"""Holds what a run did, for each table and as a whole."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, field
from typing import Any

from safewrite.medallion.bronze.landing import LandedFiles
from safewrite.medallion.silver.apply import Refined

_COUNTED = ("files", "rows_in_files", "rows", "quarantined", "overwritten")
_FAILED_MAX = 20
_NOT_TOLD = ("resets", "stamp", "truncated", "by_executors")


@dataclass
class TableRun:
    """What a run did for one table; ``error`` says why it stopped, and what was committed before it stays."""

    table: str
    news: bool = True
    landed: LandedFiles = field(default_factory=LandedFiles)
    refined: Refined = field(default_factory=Refined)
    elapsed_s: float = 0.0
    warning: str | None = None
    """What is to be looked at though nothing failed: all files of the table are gone, or rows of a full load share a key."""
    error: str | None = None
    error_kind: str | None = None
    lag_files: int = 0
    """Raw files that are still to be landed."""
    lag_commits: int | None = 0
    """Commits of bronze that silver has yet to take; None if they could not be counted."""
    lag_s: float = 0.0
    """Age of the oldest of these files and commits; 0 if there is none."""

    @property
    def ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class PastRun:
    """What is kept of a run: sums over its tables, and which of them failed by which kind of error."""

    at: str
    elapsed_s: float
    tables: int
    landed: int
    quarantined: int
    applied: int
    lag_s: float
    """The greatest of its tables."""
    failed: dict[str, str]
    """The first tables that failed, and the kinds of their errors."""
    failures: int


@dataclass
class Run:
    """What a run did: one entry for each table, and what concerns none."""

    job: str
    tables: list[TableRun]
    elapsed_s: float
    files_listed: int
    errors: list[str] = field(default_factory=list)
    """Files and records of tables that are not configured, where ``unknown_tables`` is ``raise``."""
    put_aside: int = 0
    """Records of them that went to quarantine."""
    engine: str = ""
    """Where work was done, and why, as it was chosen last."""
    earlier: list[PastRun] = field(default_factory=list)
    """Runs before this one that had news or a failure, newest first."""

    @property
    def ok(self) -> bool:
        """Whether all went well."""
        return not self.errors and all(one.ok for one in self.tables)

    def summed(self, at: dt.datetime) -> PastRun:
        """What is kept of the run, which ended at a time."""
        failed = {one.table: one.error_kind or "" for one in self.tables if not one.ok}
        return PastRun(
            at=at.isoformat(sep=" ", timespec="seconds"),
            elapsed_s=round(self.elapsed_s, 2),
            tables=len(self.tables),
            landed=sum(one.landed.rows for one in self.tables),
            quarantined=sum(one.landed.quarantined + one.refined.quarantined for one in self.tables)
            + self.put_aside,
            applied=sum(one.refined.rows for one in self.tables),
            lag_s=round(max((one.lag_s for one in self.tables), default=0.0), 1),
            failed=dict(list(failed.items())[:_FAILED_MAX]),
            failures=len(failed) + len(self.errors),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        plain = asdict(self) | {"ok": self.ok}
        del plain["earlier"]
        for table in plain["tables"]:
            landed, applied = (table[name]["by_executors"] for name in ("landed", "refined"))
            table["by_executors"] = {"landed": landed, "applied": applied}
            table["landed"] = {name: table["landed"][name] for name in _COUNTED}
            for name in _NOT_TOLD:
                del table["refined"][name]
        return plain
