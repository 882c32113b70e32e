"""Says what the shape of a table costs its readers, and the command that mends it."""

from __future__ import annotations

from safewrite.findings import INFO, Finding, Findings
from safewrite.upkeep.groups import Inventory, groups_of

SAVED_MIN = 100
"""A scan that could make fewer requests less is not worth a finding."""
TIMES_MIN = 4
"""So many times the requests that are needed are worth one."""


def examine(found: Inventory, table: str) -> Findings:
    """Find a table of which a scan makes many requests more than it would after ``maintain``."""
    groups = groups_of(found)
    now = len(found.files) + sum(one.deletes for one in found.files)
    saved = sum(one.requests_saved for one in groups)
    if saved < SAVED_MIN or now < TIMES_MIN * (now - saved):
        return
    files, size = len(found.files), found.size
    yield Finding(
        INFO, "small_files",
        f"{files:,} data files of {size // files:,} bytes on average: a scan makes {now:,} requests, and {now - saved:,} would do.",
        f"safewrite maintain {table}",
        {"files": files, "bytes": size, "requests": now, "requests_saved": saved, "groups": len(groups)},
    )  # fmt: skip
