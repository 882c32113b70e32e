"""Replaces the rows that match ``where`` by the rows of a frame, in one commit.

Where the partition values decide, files are removed whole.  Otherwise affected files are rewritten with the
rows for which the predicate is not TRUE, or these are marked as gone.  On a concurrent commit the plan is brought to the new
snapshot: matching rows that others appended meanwhile are replaced too, as if they had been appended just before.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace

from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log import file_properties
from safewrite.delta.log.actions import Commit
from safewrite.delta.log.features import check_overwrite, feeds_changes
from safewrite.delta.log.replay import LogReplay, load_files
from safewrite.delta.write.change_feed import staged_feed
from safewrite.delta.write.file_changes import DeltaChange, metrics_of
from safewrite.delta.write.matching_files import MatchingFiles
from safewrite.delta.write.transaction import OVERWRITE, Transaction
from safewrite.frames.predicate import Predicate
from safewrite.frames.prepare import Prepared
from safewrite.frames.replace_where import EVERYTHING
from safewrite.protocol.effects import Effect, Outcome
from safewrite.text.rendering import shortened

DELETE = "DELETE"
"""The ``operation`` of an overwrite in which no rows come."""


@dataclass
class OverwriteTransaction(Transaction):
    """An overwrite, or a delete, of the rows for which ``predicate`` is TRUE; it is planned once no earlier call is known to have written it."""

    predicate: Predicate = EVERYTHING
    target_file_size: int = file_properties.TARGET_BYTES
    mode: str = OVERWRITE
    rebases: bool = True
    change: DeltaChange | None = None
    vectors: Vectors = field(default_factory=Vectors)
    came: Prepared | None = None
    """The rows that come, where the table's change data feed may need them; None: they are in ``files``, which are uploaded."""
    _active: LogReplay | None = field(default=None, repr=False)
    """The live files of the newest version that was examined."""
    _matching: MatchingFiles | None = field(default=None, repr=False)
    _is_stale: bool = False
    """Whether commits came since the plan that add or remove files."""
    _plans: int = 0

    # --- what is written ------------------------------------------------------------------------
    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for replaceWhere or a delete, without numbers that were not counted."""
        change = self.planned_change
        rows = {} if change.removed_rows is None else {"numDeletedRows": change.removed_rows}
        if self.operation == DELETE:
            return {**metrics_of(change), "numAddedFiles": len(change.rewritten), **rows}
        return {**super().metrics(), **metrics_of(change), **rows}

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark and deltalake write them; of a delete a list of one predicate."""
        predicate = shortened(str(self.predicate))
        if self.operation == DELETE:
            return {"predicate": json.dumps([predicate], ensure_ascii=False)}
        shown = super().parameters(partition_by)
        return shown if self.predicate == EVERYTHING else {**shown, "predicate": predicate}

    # --- the plan ---------------------------------------------------------------------------------
    def prepare(self) -> Generator[Effect, Outcome, None]:
        """Decide about every live file; read, and rewrite, those that the partition values leave open.

        Raises:
            UnsupportedTableError: append-only, or a file that cannot be rewritten without loss.
            StorageError: no answer, or a data file or deletion vector that is not what the log says.
        """
        assert self.state is not None
        yield from super().prepare()
        check_overwrite(self.state)
        self._active = yield from load_files(self.state, limits=self.limits)
        yield from self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Bring the plan to the base that commits of others made: what was decided about files that stayed holds.

        Raises:
            As :meth:`prepare`.
        """
        if self._is_stale:
            self.leave()
            yield from self._plan()
            self.rebased += 1

    def _plan(self) -> Generator[Effect, Outcome, None]:
        state, after = self.state, self.after
        assert state is not None
        assert after is not None
        assert self._active is not None
        self._is_stale, self._plans = False, self._plans + 1
        self._matching = self._matching or MatchingFiles(
            self.predicate,
            self.commit_id,
            self.target_file_size,
            self.timestamp_ms,
            self.vectors,
            self.limits,
        )
        change = yield from self._matching.change(self._active.adds, state, after.schema)
        loses_marked = any(add.get("deletionVector") for add in change.removed)
        if feeds_changes(state) and (change.rewritten or change.marks or loses_marked):
            gone = yield from self._matching.rows_that_go(change.removed, state)
            change = replace(change, feed=(yield from staged_feed(self, gone, self.came, self._plans)))
        self.change = change

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Note that a commit touches files: then :meth:`renew` goes on from them.

        Raises:
            ConflictError: SCHEMA_CHANGED as for appends.
        """
        super().check_conflict(version, commit)
        self._is_stale |= bool(commit.adds() or commit.removes())
        if self._active is not None:
            self._active = self._active.advance(version, commit)
