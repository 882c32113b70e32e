"""Judges and counts changes of a table that keeps every version of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.batch import Moves
from safewrite.cdc.rows.reset_guard import all_late_error
from safewrite.cdc.table.ledger_counts import counts_of_versions
from safewrite.cdc.table.versions import REVISIONS
from safewrite.engine.abc import TaskReport

Apply = Callable[..., sw.Receipt]
"""Commits changes of keys."""
REPLANS_MAX = 5
"""Changes are decided about again this many times at most, where others write versions meanwhile."""


@dataclass
class VersionDoubt:
    """Refuses changes that are all older than what the table has of their keys, unless all of them may be; counts what lands."""

    table: TargetTable
    changes: int
    may_be_late: bool
    ends: int = 0

    def __call__(self, reports: Sequence[TaskReport]) -> None:
        """See ``safewrite.changes.members.shared_jobs.Doubt``."""
        answers = [report.body.answer for report in reports if report.error is None]
        self.take(sum(one.late for one in answers), sum(one.ends for one in answers))

    def take(self, late: int, ends: int) -> None:
        """Take in how many changes are late, and how many end a version.

        Raises:
            InvalidInputError: all are late, and may not be.
        """
        self.ends = ends
        if late == self.changes and not self.may_be_late and self.table.all_late == "error":
            raise all_late_error(self.table, late, is_whole=True)

    def counts(self) -> Mapping[str, int]:
        """What became of the changes."""
        return counts_of_versions(self.changes, self.ends)


def only_versions_came(
    before: Mapping[str, int], after: Mapping[str, int], moves: Callable[[Mapping[str, int]], Moves]
) -> bool:
    """Whether others only wrote versions meanwhile, so that the same changes are to be decided about again, on those."""
    return after.get(REVISIONS) != before.get(REVISIONS) and moves(after) == moves(before)
