"""Replaces the rows for which ``where`` is true by the rows of a frame, in one snapshot.

The plan is made on the same snapshot that the new one follows: a catalog that accepts the commit attests that
nothing happened in between.  After a conflict the plan is brought to the new base (C9).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from safewrite.frames.predicate import Predicate
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.matching_files import MatchingFiles
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion


@dataclass
class ReplacePlan(AppendPlan):
    """A write that removes rows as well."""

    operation: str = "overwrite"
    rebases: bool = True
    predicate: Predicate = EVERYTHING
    target_file_size: int = 0
    _matching: MatchingFiles | None = field(default=None, repr=False)
    _planned_on: int | None = None
    """The snapshot that the last plan was made on."""

    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Decide about every file of the base; what was decided about files of the last one holds."""
        self._matching = self._matching or MatchingFiles(
            self.predicate, self.write_id, self.target_file_size, self.limits, self.known
        )
        self.change = yield from self._matching.change(head)
        self.rebased += self.attempt > 0 and self._planned_on != head.current
        self._planned_on = head.current
