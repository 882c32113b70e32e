"""Replaces the rows for which ``where`` is true by the rows of a frame, in one snapshot.

The plan is made on the same snapshot that the new one follows: a catalog that accepts the commit attests that
nothing happened in between.  After a conflict the plan is brought to the new base (C9): files that came, or that others took rows
of, are looked at; what became of the others stands (decision 0068).  Copy-on-write: a file with only matching rows is removed, a
file with some is rewritten without them.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.lookup.candidate_rows import filtered
from safewrite.changes.meaning.positions import Flags
from safewrite.frames.predicate import Predicate, columns, truths
from safewrite.frames.replace_where import EVERYTHING, digest
from safewrite.iceberg.catalog.effects import PlanFiles
from safewrite.iceberg.data.expressions import may_match
from safewrite.iceberg.data.pruning import Pruning
from safewrite.iceberg.data.reading import WHOLE_BYTES, rows_of, unplanned
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.file_changes import encoded_rows
from safewrite.iceberg.write.row_files import Mark, mark_of
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.summary import Write
from safewrite.protocol.accounts import total
from safewrite.protocol.ask import ask
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.change import TableChange

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask

_READ = "replace.read_rows"


@dataclass(frozen=True)
class _RewrittenFile:
    """What a data file becomes: kept, or removed with these files in its place."""

    removed: bool
    removed_rows: int | None = None
    """How many of its rows go; None where nobody counted them."""
    files: tuple[DataFile, ...] = ()
    kept: int = 0
    """How many rows these have."""


@dataclass
class ReplacePlan(AppendPlan):
    """A write that removes rows as well.

    Decisions about data files are kept over attempts, for data files
    never change: only files that came since the last attempt are looked at, or whose rows others marked as gone.
    """

    operation: str = "overwrite"
    predicate: Predicate = EVERYTHING
    target_file_size: int = 0
    _rests: dict[tuple[str, ...], _RewrittenFile] = field(default_factory=dict, repr=False)
    """What becomes of each file, by its path and those of its delete files."""
    _staying: dict[str, Mark] = field(default_factory=dict, repr=False)
    """Files, by their paths, in which no row matched: none does once others marked rows as gone."""
    _planned_on: int | None = None
    """The snapshot that the last plan was made on."""

    # --- what goes ------------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Decide about every file of the base."""
        schema = arrow_schema(table_of(head).metadata.schema())
        effect = PlanFiles(head, may_match(self.predicate, schema), self.known, name="replace.plan_files")
        outcome = yield from ask(effect, self.limits)
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        assert isinstance(outcome.value, tuple)
        pruning = Pruning(self.predicate, table_of(head).metadata, schema)
        gone: list[tuple[DataFile, _RewrittenFile]] = []
        for task in outcome.value:
            mark = mark_of(task)
            rest = self._rests.get(mark)
            if rest is None:
                rest = self._rests[mark] = yield from self._rest(head, task, schema, pruning)
            if rest.removed:
                gone.append((task.file, rest))
            else:
                self._staying[mark[0]] = mark
        rewritten = tuple(file for _, rest in gone for file in rest.files)
        used = {file.file_path for file in rewritten}
        made = (file for rest in self._rests.values() for file in rest.files)
        self.change = TableChange(
            removed=tuple(file for file, _ in gone),
            rewritten=rewritten,
            kept_rows=sum(rest.kept for _, rest in gone),
            removed_rows=total(rest.removed_rows for _, rest in gone),
            copied_bytes=sum(file.file_size_in_bytes for file in rewritten),
            unused=tuple(file for file in made if file.file_path not in used),
        )
        self.rebased += self.attempt > 0 and self._planned_on != head.current
        self._planned_on = head.current

    def _rest(
        self, head: TableVersion, task: FileScanTask, schema: pa.Schema, pruning: Pruning
    ) -> Generator[Effect, Outcome, _RewrittenFile]:
        """Decide what one data file becomes, and upload its remaining rows."""
        before = self._staying.get(task.file.file_path)
        if not pruning.may_match(task.file) or (before is not None and {*before} <= {*mark_of(task)}):
            return _RewrittenFile(False)
        if pruning.must_match(task.file):
            # A file with delete files has fewer live rows than its count says.
            return _RewrittenFile(True, None if task.delete_files else task.file.record_count)
        looked_at = self._looked_at(task, schema)
        (rows,) = yield from rows_of(head, [task], schema, self.limits, looked_at, name=_READ)
        stays = self._stays(rows)
        left = int(stays.sum())
        if left == rows.num_rows:
            return _RewrittenFile(False, 0)
        if left == 0:
            return _RewrittenFile(True, rows.num_rows)
        if looked_at is not None:
            (rows,) = yield from rows_of(head, [task], schema, self.limits, name=_READ)
            stays = self._stays(rows)
        read, wide = rows.columns, rows.schema
        del rows  # so that each column is let go once it is copied
        rest = filtered(read, wide, stays)
        staging = Staging(self.limits)
        name = f"{self.write_id}-r{len(self._rests)}"
        yield from staging.upload(encoded_rows(rest, head, schema, name, self.target_file_size))
        yield from staging.complete(())
        return _RewrittenFile(True, len(stays) - left, tuple(staging.data_files), left)

    def _looked_at(self, task: FileScanTask, schema: pa.Schema) -> tuple[str, ...] | None:
        """The columns to look at before the others are read; None: all at once, which takes one request."""
        named = columns(self.predicate)
        if not named or not named < {*schema.names} or task.file.file_size_in_bytes <= WHOLE_BYTES:
            return None
        return tuple(name for name in schema.names if name in named)

    def _stays(self, rows: pa.Table) -> Flags:
        """Which rows the condition leaves: those for which it is not TRUE."""
        return ~np.asarray(pc.fill_null(truths(self.predicate, rows), False), np.bool_)


def named_replace(named: Write, predicate: Predicate, operation: str = "overwrite") -> Write:
    """The write with a fingerprint that covers what is removed too, so that a repeat is the same operation."""
    return replace(named, fingerprint=f"{named.fingerprint}:{digest(predicate, operation).hex()}")
