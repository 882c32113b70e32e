"""Lands changes in a table that keeps every version of its rows: of a frame in this process, or of tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

import safewrite as sw
from safewrite.cdc.columns.frames import OP
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.batch import Moves
from safewrite.cdc.rows.reset_guard import all_late_error
from safewrite.cdc.table.versions import REVISIONS, VersionRule
from safewrite.changes.members.shared_jobs import Doubt, SharedChanges, SharedJobs
from safewrite.changes.members.table_chunks import KeyReport, dealt, hashes_of
from safewrite.engine.abc import TaskReport
from safewrite.engine.local import LocalEngine

Apply = Callable[[Any], sw.Receipt]
"""Commits changes of keys."""
_PLACE = "_cdc_place"
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
        late, self.ends = sum(one.late for one in answers), sum(one.ends for one in answers)
        if late == self.changes and not self.may_be_late and self.table.all_late == "error":
            raise all_late_error(self.table, late, is_whole=True)

    def counts(self) -> Mapping[str, int]:
        """What became of the changes: each begins or ends a version, or is a copy of one that does."""
        return {"applied": self.changes, "inserted": self.changes - self.ends, "deleted": self.ends}


def only_versions_came(
    before: Mapping[str, int], after: Mapping[str, int], moves: Callable[[Mapping[str, int]], Moves]
) -> bool:
    """Whether others only wrote versions meanwhile, so that the same changes are to be decided about again, on those."""
    return after.get(REVISIONS) != before.get(REVISIONS) and moves(after) == moves(before)


def applied_alone(frame: pa.Table, rule: VersionRule, key: str, doubt: Doubt, apply: Apply) -> sw.Receipt:
    """The receipt of changes that begin and end versions, in this process; ``key`` names them."""
    name, of_keys = rule.table.name, frame.select([*rule.keys])
    hashes, count = hashes_of(of_keys), frame.num_rows
    rows = frame.append_column(_PLACE, pa.array(np.arange(count)))
    jobs: SharedJobs[Any] = SharedJobs(LocalEngine(), [[dealt(name, rows, hashes, 1)]], 1, 1, 1)
    columns, told = pa.schema([(OP, pa.string())]), KeyReport.of(of_keys, hashes)
    changes = SharedChanges(name, jobs, _placed, told, count, 1, columns, key, rule=rule)
    return jobs.alone(name, doubt, lambda: apply(changes))


def _placed(chunk: pa.Table) -> tuple[pa.Table, pa.ChunkedArray]:
    """Rows of a frame, which have the types of their table, and their places."""
    return chunk.drop_columns([_PLACE]), chunk.column(_PLACE)
