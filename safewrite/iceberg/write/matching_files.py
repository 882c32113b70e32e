"""Takes the rows for which a predicate is TRUE out of the data files of a table, on one base after another.

Copy-on-write: a file with only matching rows is removed, a file with some is rewritten without them; where ``write.delete.mode`` is
merge-on-read these are marked as gone instead.  Data files never change: files that came, or that others took rows of, are looked
at, and what became of the others stands (decision 0068).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.lookup.candidate_rows import filtered
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.frames.predicate import Predicate, columns, truths
from safewrite.iceberg.catalog.effects import PlanFiles
from safewrite.iceberg.data.expressions import may_match
from safewrite.iceberg.data.lineage import kept_columns
from safewrite.iceberg.data.pruning import Pruning
from safewrite.iceberg.data.reading import WHOLE_BYTES, rows_of, unplanned
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.delete_files import DeleteFiles, Gone
from safewrite.iceberg.write.file_changes import IcebergChange, encoded_rows
from safewrite.iceberg.write.marked_rows import live_of, more_gone
from safewrite.iceberg.write.row_files import FileRewrite, Mark, change_of, mark_of
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol.ask import Limits, ask
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.data.known_manifests import KnownManifests
    from safewrite.iceberg.write.position_deletes import UnmarkedRows

_READ = "replace.read_rows"


@dataclass(frozen=True)
class _Matches:
    """What was found in a file: the places of the rows that match, where it is known which of its rows were ``live``."""

    task: FileScanTask
    matches: bool
    live: UnmarkedRows | None = None
    places: Numbers = field(default_factory=lambda: np.zeros(0, np.int64))

    def holds_in(self, task: FileScanTask) -> bool:
        """Whether no row matched, and others only took rows away since."""
        return not self.matches and {*mark_of(self.task)} <= {*mark_of(task)}


@dataclass
class MatchingFiles:
    """The data files of a table as a predicate takes rows out of them; ``write_id`` is in the names of new ones.

    What became of a file serves every base that has it with the same delete files.
    """

    predicate: Predicate
    write_id: str
    target_file_size: int
    limits: Limits
    known: KnownManifests
    _losses: dict[Mark, FileRewrite] = field(default_factory=dict, repr=False)
    _looked: dict[str, _Matches] = field(default_factory=dict, repr=False)
    """What was found last in a file that was read, by its path."""
    _deletes: DeleteFiles = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._deletes = DeleteFiles(self.write_id, self.limits)

    def change(self, head: TableVersion) -> Generator[Effect, Outcome, IcebergChange]:
        """What becomes of the files of a base.

        Raises:
            UnsupportedTableError: rows cannot be read, or not be written again without loss.
            StorageError: a file is gone, or the store gave no answer.
        """
        metadata = table_of(head).metadata
        schema = arrow_schema(metadata.schema())
        effect = PlanFiles(head, may_match(self.predicate, schema), self.known, name="replace.plan_files")
        outcome = yield from ask(effect, self.limits)
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        assert isinstance(outcome.value, tuple)
        tasks: dict[Mark, FileScanTask] = {mark_of(task): task for task in outcome.value}
        pruning = Pruning(self.predicate, metadata, schema)
        marked: dict[Mark, tuple[Gone, int]] = {}
        for mark, task in tasks.items():
            if mark in self._losses:
                continue
            loss = self._foreseen(task, pruning)
            if loss is None and (found := (yield from self._places(head, task, schema))) is not None:
                loss, named = self._marked(head, task, found)
                if named is not None:  # nothing is known of a file before its delete file is there
                    marked[mark] = named, len(found.places)
                    continue
            if loss is None:
                loss = yield from self._rest(head, task, kept_columns(metadata))
            self._losses[mark] = loss
        yield from self._deletes.upload(head)
        for mark, (named, rows) in marked.items():
            self._losses[mark] = FileRewrite(rows, deletes=(self._deletes[named],))
        made = [file for loss in self._losses.values() for file in (*loss.rest, *loss.deletes)]
        return change_of(((task.file, self._losses[mark]) for mark, task in tasks.items()), made)

    # --- one file -----------------------------------------------------------------------------------
    def _foreseen(self, task: FileScanTask, pruning: Pruning) -> FileRewrite | None:
        """What becomes of a file whose rows need not be looked at."""
        before = self._looked.get(task.file.file_path)
        if not pruning.may_match(task.file) or (before is not None and before.holds_in(task)):
            return FileRewrite()
        if not pruning.must_match(task.file):
            return None
        # A file with delete files has fewer live rows than its count says.
        return FileRewrite(None if task.delete_files else task.file.record_count, removes=True)

    def _places(
        self, head: TableVersion, task: FileScanTask, schema: pa.Schema
    ) -> Generator[Effect, Outcome, _Matches | None]:
        """The places of the rows that match, where these are to be marked as gone; None where the file is rewritten."""
        from safewrite.iceberg.write import position_deletes

        if not position_deletes.is_asked(table_of(head).metadata, position_deletes.DELETE_MODE):
            return None
        if not position_deletes.is_plain(task):
            return None
        before = self._looked.get(task.file.file_path)
        if before is not None and before.live is not None:
            live = yield from more_gone(before.live, before.task, task, self.limits)
            if live is not None:
                places = np.setdiff1d(before.places, live.gone, assume_unique=True)  # else both are hashed
                return self._noted(replace(before, task=task, live=live, places=places))
        rows = yield from self._rows(head, task, schema, self._looked_at(task, schema))
        counted = yield from live_of(task, self.limits)
        if counted is None or len(counted) != rows.num_rows:
            return None  # the file has other rows than its entry says
        places = counted.places(np.flatnonzero(~self._stays(rows)))
        return self._noted(_Matches(task, bool(len(places)), counted, places))

    def _noted(self, found: _Matches) -> _Matches:
        self._looked[found.task.file.file_path] = found
        return found

    def _marked(
        self, head: TableVersion, task: FileScanTask, found: _Matches
    ) -> tuple[FileRewrite, Gone | None]:
        """What becomes of a file of which these rows are marked as gone, and the name of its delete file, which may not be there yet."""
        count = len(found.places)
        assert found.live is not None
        if not count or count == len(found.live):
            return FileRewrite(count, removes=bool(count)), None
        return FileRewrite(count), self._deletes.note(head, task, found.places, found.live)

    def _rest(
        self, head: TableVersion, task: FileScanTask, schema: pa.Schema
    ) -> Generator[Effect, Outcome, FileRewrite]:
        """Decide what one data file becomes, and upload its remaining rows."""
        looked_at = self._looked_at(task, schema)
        rows = yield from self._rows(head, task, schema, looked_at)
        stays = self._stays(rows)
        left = int(stays.sum())
        self._noted(_Matches(task, left < rows.num_rows))
        if left == rows.num_rows:
            return FileRewrite()
        if left == 0:
            return FileRewrite(rows.num_rows, removes=True)
        if looked_at is not None:
            rows = yield from self._rows(head, task, schema, None)
            stays = self._stays(rows)
        read, wide = rows.columns, rows.schema
        del rows  # so that each column is let go once it is copied
        rest = filtered(read, wide, stays)
        staging = Staging(self.limits)
        name = f"{self.write_id}-r{len(self._losses)}"
        yield from staging.upload(encoded_rows(rest, head, schema, name, self.target_file_size))
        yield from staging.complete(())
        return FileRewrite(len(stays) - left, removes=True, rest=tuple(staging.data_files), kept=left)

    def _rows(
        self, head: TableVersion, task: FileScanTask, schema: pa.Schema, names: tuple[str, ...] | None
    ) -> Generator[Effect, Outcome, pa.Table]:
        (rows,) = yield from rows_of(head, [task], schema, self.limits, names, name=_READ)
        return rows

    def _looked_at(self, task: FileScanTask, schema: pa.Schema) -> tuple[str, ...] | None:
        """The columns to look at before the others are read; None: all at once, which takes one request."""
        named = columns(self.predicate)
        if not named or not named < {*schema.names} or task.file.file_size_in_bytes <= WHOLE_BYTES:
            return None
        return tuple(name for name in schema.names if name in named)

    def _stays(self, rows: pa.Table) -> Flags:
        """Which rows the condition leaves: those for which it is not TRUE."""
        return ~np.asarray(pc.fill_null(truths(self.predicate, rows), False), np.bool_)
