"""Replaces the rows that match ``where`` by the rows of a frame, in one commit.

Where the partition values decide, files are removed whole.  Otherwise affected files are rewritten with the
rows for which the predicate is not TRUE.  On a concurrent commit the plan is made again for the new snapshot.
Matching rows that others appended meanwhile are replaced too, as if they had been appended just before.  A
file whose rows were not looked at yet is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from safewrite.delta.data.datafiles import DataFile, FileLayout, encoded, layout_of
from safewrite.delta.data.julian_dates import check_calendar
from safewrite.delta.data.pruning import constants, may_match
from safewrite.delta.data.rows import body_of, check_within, matching, read_rows, whole_rows, without
from safewrite.delta.data.vector_files import Vectors, marked
from safewrite.delta.log import file_properties
from safewrite.delta.log.actions import Action, Commit, FileKey, file_key
from safewrite.delta.log.features import check_overwrite, feeds_changes, marks_rows
from safewrite.delta.log.replay import LogReplay, load_files
from safewrite.delta.write.change_feed import rows_of_files, staged_feed
from safewrite.delta.write.file_changes import (
    DeltaChange,
    FileRewrite,
    FileVerdict,
    change_of,
    metrics_of,
)
from safewrite.delta.write.recalled import DeltaDone, standing
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.delta.write.transaction import OVERWRITE, Transaction, Write
from safewrite.delta.write.write import write
from safewrite.errors import ConflictError
from safewrite.frames import Prepared, prepare
from safewrite.frames.predicate import Predicate, columns, possible
from safewrite.frames.replace_where import EVERYTHING, digest
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Effect, Outcome
from safewrite.table.operation import keyed_until_landed
from safewrite.text.rendering import shortened

if TYPE_CHECKING:
    from pyroaring import BitMap64

DELETE = "DELETE"
"""The ``operation`` of an overwrite in which no rows come."""


@dataclass
class OverwriteTransaction(Transaction):
    """An overwrite, or a delete, of the rows for which ``predicate`` is TRUE; call ``plan`` before it is committed."""

    predicate: Predicate = EVERYTHING
    target_file_size: int = file_properties.TARGET_BYTES
    mode: str = OVERWRITE
    change: DeltaChange | None = None
    vectors: Vectors = field(default_factory=Vectors)
    active: LogReplay | None = None
    """The live files that the plan was made on."""
    came: Prepared | None = None
    """The rows that come, where the table's change data feed may need them; None: they are in ``files``, which are uploaded."""
    _made: dict[FileKey, FileRewrite] = field(default_factory=dict, repr=False)
    """What becomes of each file that was looked at."""
    _gone: dict[FileKey, pa.Table] = field(default_factory=dict, repr=False)
    """The rows that go of each file, where the feed may need them."""

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
    def plan(self) -> Generator[Effect, Outcome, None]:
        """Decide about every live file; read, and rewrite, those that the partition values leave open.

        Raises:
            UnsupportedTableError: append-only, or a file that cannot be rewritten without loss.
            StorageError: no answer, or a data file or deletion vector that is not what the log says.
        """
        assert self.state is not None
        check_overwrite(self.state)
        self.active = yield from load_files(self.state, limits=self.limits)
        undecided = self._undecided(self.active)
        for key in undecided:
            check_within(self.active.adds[key])
        yield from self.vectors.fetch([self.active.adds[key] for key in undecided], self.limits)
        wider: dict[FileKey, BitMap64] = {}
        for number, key in enumerate(undecided):
            self._made[key] = yield from self._rewrite(self.active.adds[key], number, wider)
        for key, vector in (yield from self.vectors.store(wider, self.limits)).items():
            self._made[key] = replace(self._made[key], marked=marked(self.active.adds[key], vector))
        self.change = change = self._changed(self.active)
        loses_marked = any(add.get("deletionVector") for add in change.removed)
        if feeds_changes(self.state) and (change.rewritten or change.marks or loses_marked):
            self.change = replace(change, feed=(yield from self._feed(change)))

    def _changed(self, active: LogReplay, feed: tuple[StagedFile, ...] = ()) -> DeltaChange:
        return change_of(((add, self._made[key]) for key, add in active.adds.items()), feed)

    def _feed(self, change: DeltaChange) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
        """Upload change files of all rows that go and come, those of files that go whole too."""
        assert self.state is not None
        whole = [add for add in change.removed if file_key(add) not in self._gone]
        self._gone |= yield from rows_of_files(whole, self.state, self.vectors, self.limits)
        return (yield from staged_feed(self, [*self._gone.values()], self.came))

    def _undecided(self, active: LogReplay) -> list[FileKey]:
        """Decide by partition values and statistics; returns the files whose rows must be looked at."""
        assert self.state is not None
        open_files: list[FileKey] = []
        for key, add in active.adds.items():
            if key in self._made:
                continue
            if possible(self.predicate, self.constants(add)) == {True}:
                self._made[key] = FileRewrite(FileVerdict.REMOVE)
            elif not may_match(self.predicate, add, state=self.state):
                self._made[key] = FileRewrite(FileVerdict.KEEP)
            else:
                open_files.append(key)
        return open_files

    def constants(self, add: Action) -> dict[str, Any]:
        """Columns of the predicate that have one value in all rows of a file: partition columns, and new ones (NULL)."""
        assert self.state is not None
        return constants(columns(self.predicate), add, self.state)

    def _rewrite(
        self, add: Action, number: int, wider: dict[FileKey, BitMap64]
    ) -> Generator[Effect, Outcome, FileRewrite]:
        """Look through a file: what becomes of it, with the files of its other rows; its next vector goes to ``wider``."""
        state = self.state
        assert state is not None
        body, gone = (yield from body_of(add, self.limits)), self.vectors.of(add)
        names = sorted(columns(self.predicate) & {*state.schema.names})
        rows, _ = read_rows(body, add, state, names, gone)
        assert self.after is not None
        goes = matching(rows, self.constants(add), self.predicate, self.after.schema)
        if not goes.any():
            return FileRewrite(FileVerdict.KEEP)
        if feeds_changes(state):
            self._gone[file_key(add)] = whole_rows(body, add, state, None, gone)[0].filter(pa.array(goes))
        if goes.all():
            return FileRewrite(FileVerdict.REMOVE)
        key, places = file_key(add), np.flatnonzero(goes)
        stay = len(goes) - len(places)
        if marks_rows(state):
            vector = self.vectors.widened(add, places)
            if vector is not None:
                wider[key] = vector
                return FileRewrite(FileVerdict.MARK, stay)
        rows, footer = read_rows(body, add, state, None, gone)
        kept = without(rows, goes)
        check_calendar(footer, kept, unquote(add["path"]))
        made = self.remainder(add, prepare(kept, rows.schema, stored=True), number)
        files = yield from stage(made, self.timestamp_ms, self.limits)
        return FileRewrite(FileVerdict.REWRITE, stay, files)

    def remainder(self, add: Action, kept: Prepared, number: int) -> Iterable[DataFile]:
        """The files that take a file's place, of its rows that stay; ``number`` makes their names unique."""
        assert self.state is not None
        name = f"{self.commit_id}-kept{number}"
        return remainder(add, kept, layout_of(self.state, kept.schema, (), name, self.target_file_size))

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Plan again for the snapshot that another commit made (C9's rule for Delta).

        Raises:
            ConflictError: CONFLICT if files must be read and rewritten; SCHEMA_CHANGED as for appends.
        """
        super().check_conflict(version, commit)
        feed = self.planned_change.feed
        assert self.active is not None
        self.active = self.active.advance(version, commit)
        undecided = self._undecided(self.active)
        live = self.active.adds
        partly = (FileVerdict.REWRITE, FileVerdict.MARK)
        gone = [key for key, one in self._made.items() if one.verdict in partly and key not in live]
        if not undecided:
            self.change = self._changed(self.active, feed)
        is_fed = not feed or self._gone.keys() == {file_key(add) for add in self.planned_change.removed}
        if undecided or gone or not is_fed:
            raise ConflictError(
                f"Version {version} added or removed files whose rows this write must look at. Nothing was "
                "committed; call again."
            )


def remainder(add: Action, kept: Prepared, layout: FileLayout) -> Iterable[DataFile]:
    """The files that take a file's place, of its rows that stay, in its folder."""
    path = unquote(add["path"])
    folder = path[: path.rfind("/") + 1]
    values = dict(add.get("partitionValues") or {})
    return (
        replace(file, path=folder + file.path, partition_values=values)
        for file in encoded(kept, layout.copying())
    )


# --- one overwrite --------------------------------------------------------------------------------------
def named(write: Write, predicate: Predicate, operation: str = "overwrite") -> Write:
    """The write with a fingerprint that covers what is removed too, so that a repeat is the same operation."""
    mark = digest(predicate, operation)
    mixed = write.fingerprint_int63 ^ (int.from_bytes(mark, "big") >> 1)
    return replace(write, fingerprint=f"{write.fingerprint}:{mark.hex()}", fingerprint_int63=mixed)


def overwrite(
    candidate: Transaction,
    encode_rows: Callable[[], Iterable[DataFile]],
    *,
    arbiter: Arbiter,
    limits: Limits,
    queue_first: bool = False,
) -> Generator[Effect, Outcome, DeltaDone]:
    """Plan and commit an overwrite once, whatever happened to earlier calls with the same key.

    A transaction that creates the table is an append, and needs no plan.

    Raises:
        ConflictError: kind CONFLICT or SCHEMA_CHANGED; make a new transaction from the newest snapshot.
        NotCommittedError, CommitUnknownError, ForeignWriterError: as ``write`` does.
    """
    if isinstance(candidate, OverwriteTransaction):
        yield from keyed_until_landed(_planned(candidate, limits), candidate)
    return (yield from write(candidate, encode_rows, arbiter=arbiter, limits=limits, queue_first=queue_first))


def _planned(candidate: OverwriteTransaction, limits: Limits) -> Generator[Effect, Outcome, None]:
    if not (yield from _known(candidate, limits)):
        yield from candidate.plan()


def _known(candidate: OverwriteTransaction, limits: Limits) -> Generator[Effect, Outcome, bool]:
    """Whether this write was settled before, so that no plan is needed: ``write`` will say how."""
    wanted = candidate.write
    if wanted.txn is not None:
        app_id, app_version = wanted.txn
        last = candidate.state.txns.get(app_id) if candidate.state is not None else None
        return last is not None and last >= app_version
    if keys.base_of_generated(wanted.key) is not None:
        return False
    record = yield from keys.recall(wanted.key, limits)
    if record is None or record.version is None or keys.is_of_another(record, candidate.table_id):
        return False
    return (yield from standing(record, record.version, limits)) is not None
