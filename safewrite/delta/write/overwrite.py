"""Replaces the rows that match ``where`` by the rows of a frame, in one commit.

Where the partition values decide, files are removed whole.  Otherwise affected files are rewritten with the
rows for which the predicate is not TRUE.  On a concurrent commit the plan is made again for the new snapshot.
Matching rows that others appended meanwhile are replaced too, as if they had been appended just before.  A
file whose rows were not looked at yet is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from safewrite.delta.data.datafiles import DataFile, FileLayout, encoded, layout_of
from safewrite.delta.data.julian_dates import check_calendar
from safewrite.delta.data.pruning import constants, may_match
from safewrite.delta.data.rows import check_within, damaged, matching, read_rows, whole_rows, without
from safewrite.delta.data.vector_files import Vectors, marked
from safewrite.delta.log import file_properties
from safewrite.delta.log.actions import Action, Commit, FileKey, file_key, rows_of
from safewrite.delta.log.features import check_overwrite, feeds_changes, marks_rows
from safewrite.delta.log.replay import LogReplay, load_files
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.change_feed import staged_feed
from safewrite.delta.write.recalled import DeltaDone, standing
from safewrite.delta.write.staging import StagedFile, secure, stage
from safewrite.delta.write.transaction import Transaction, Write
from safewrite.delta.write.write import write
from safewrite.errors import (
    ConflictError,
    InternalError,
)
from safewrite.frames import Prepared, prepare
from safewrite.frames.predicate import Predicate, columns, possible
from safewrite.frames.replace_where import EVERYTHING, digest
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch_one
from safewrite.protocol.staging import check
from safewrite.table.operation import keyed_until_landed
from safewrite.text.rendering import shortened

if TYPE_CHECKING:
    from pyroaring import BitMap64


class FileVerdict(Enum):
    """What an overwrite does to a live file."""

    KEEP = "keep"
    REMOVE = "remove"
    REWRITE = "rewrite"
    MARK = "mark"
    """Its deletion vector takes rows away; the file stays."""


@dataclass
class OverwriteTransaction(Transaction):
    """An overwrite of the rows for which ``predicate`` is TRUE; call ``plan`` before it is committed."""

    predicate: Predicate = EVERYTHING
    target_file_size: int = file_properties.TARGET_BYTES
    mode: str = "Overwrite"
    rewritten: tuple[StagedFile, ...] = ()
    active: LogReplay | None = None
    vectors: Vectors = field(default_factory=Vectors)
    verdicts: dict[FileKey, FileVerdict] = field(default_factory=dict, repr=False)
    kept: dict[FileKey, int] = field(default_factory=dict, repr=False)
    """How many rows stay of each file that is rewritten, or gets another deletion vector."""
    came: Prepared | None = None
    """The rows that come, where the table's change data feed may need them; None: they are in ``files``, which are uploaded."""
    _gone: dict[FileKey, pa.Table] = field(default_factory=dict, repr=False)
    """The rows that go of each file, where the feed may need them."""
    change_files: tuple[StagedFile, ...] = ()
    """What the table's change data feed gets."""
    marked: dict[FileKey, Action] = field(default_factory=dict, repr=False)
    """The ``add`` of each file that gets another deletion vector."""

    # --- what is written ------------------------------------------------------------------------
    def file_actions(self) -> list[dict[str, Any]]:
        """``add`` actions of the new rows and of files in place of others, ``remove`` actions of what they replace."""
        removes = [removal(add, self.timestamp_ms) for add in self.replaced()]
        marked = [{"add": self.marked[key]} for key in self.vectored()]
        files = (*self.files, *self.rewritten, *self.change_files)
        return [file.action for file in files] + marked + removes

    def vectored(self) -> list[FileKey]:
        """The live files that stay under another deletion vector."""
        verdicts, mark = self.verdicts, FileVerdict.MARK
        return [key for key in self.planned().adds if verdicts[key] is mark]

    def replaced(self) -> list[Action]:
        """The live files that this commit removes; one whose vector changes is another logical file afterwards."""
        verdicts, keep = self.verdicts, FileVerdict.KEEP
        return [add for key, add in self.planned().adds.items() if verdicts[key] is not keep]

    def removed_rows(self) -> int | None:
        """The rows of the removed files, without those that were kept; None where a file has no row count."""
        counts = [rows_of(add) for add in self.replaced()]
        if None in counts:
            return None
        stay = sum(file.rows for file in self.rewritten)
        stay += sum(self.kept[key] for key in self.vectored())
        return sum(count for count in counts if count is not None) - stay

    def copied_bytes(self) -> int | None:
        """The bytes of new files that hold rows of replaced ones."""
        return sum(file.mark.size for file in self.rewritten)

    def kept_rows(self) -> int | None:
        """How many rows of replaced files the new files have, by the plan."""
        stay = (FileVerdict.REWRITE, FileVerdict.MARK)
        return sum(self.kept[key] for key, verdict in self.verdicts.items() if verdict in stay)

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for replaceWhere, without numbers that were not counted."""
        counted = self.removed_rows()
        rows = {} if counted is None else {"numDeletedRows": counted}
        return {**super().metrics(), **self.file_metrics(), **rows}

    def file_metrics(self) -> dict[str, int]:
        """How many files go, and how many get a deletion vector, as Spark names them."""
        marked = self.vectored()
        removed = {"numRemovedFiles": len(self.replaced()) - len(marked)}
        if not marked:
            return removed
        updated = sum(1 for _, vector in marked if vector is not None)
        return removed | {
            "numDeletionVectorsAdded": len(marked),
            "numDeletionVectorsRemoved": updated,
            "numDeletionVectorsUpdated": updated,
        }

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark and deltalake write them."""
        shown = super().parameters(partition_by)
        return (
            shown if self.predicate == EVERYTHING else {**shown, "predicate": shortened(str(self.predicate))}
        )

    def suffices(self, summary: str) -> bool:
        """An overwrite must know the files of every commit."""
        return False

    def recheck(self) -> Generator[Effect, Outcome, None]:
        """See ``safewrite.protocol.delta.commit.Candidate.recheck``."""
        yield from super().recheck()
        yield from secure((*self.rewritten, *self.change_files), self.limits)
        yield from check(self.vectors.marks(self.marked.values()), self.limits)

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
        undecided = self._undecided()
        for key in undecided:
            check_within(self.active.adds[key])
        yield from self.vectors.fetch([self.active.adds[key] for key in undecided], self.limits)
        staged: list[StagedFile] = []
        wider: dict[FileKey, BitMap64] = {}
        for number, key in enumerate(undecided):
            verdict, files = yield from self._rewrite(self.active.adds[key], number, wider)
            self.verdicts[key] = verdict
            staged += yield from stage(files, self.timestamp_ms, self.limits)
        self.rewritten = tuple(staged)
        stored = yield from self.vectors.store(wider, self.limits)
        self.marked = {key: marked(self.active.adds[key], vector) for key, vector in stored.items()}
        if feeds_changes(self.state) and (self.rewritten or self.marked or self.loses_marked()):
            yield from self._feed()

    def _feed(self) -> Generator[Effect, Outcome, None]:
        """Upload change files of all rows that go and come, those of files that go whole too."""
        assert self.state is not None
        whole = [add for add in self.replaced() if file_key(add) not in self._gone]
        self._gone |= yield from self.rows_of_files(whole)
        self.change_files = yield from staged_feed(self, [*self._gone.values()], self.came)

    def loses_marked(self) -> bool:
        """Whether a file with a deletion vector goes whole: without change files, deltalake's feed has the rows of its vector."""
        return any(add.get("deletionVector") for add in self.replaced())

    def rows_of_files(
        self, adds: Sequence[Action], state: Snapshot | None = None
    ) -> Generator[Effect, Outcome, dict[FileKey, pa.Table]]:
        """The live rows of some files, as the table is or will be.  Raises as :meth:`body_of`."""
        state = state or self.state
        assert state is not None
        yield from self.vectors.fetch(adds, self.limits)
        found = {}
        for add in adds:
            check_within(add)
            body = yield from self.body_of(add)
            found[file_key(add)] = whole_rows(body, add, state, None, self.vectors.of(add))[0]
        return found

    def _undecided(self) -> list[FileKey]:
        """Decide by partition values and statistics; returns the files whose rows must be looked at."""
        assert self.state is not None
        open_files: list[FileKey] = []
        for key, add in self.planned().adds.items():
            if key in self.verdicts:
                continue
            if possible(self.predicate, self.constants(add)) == {True}:
                self.verdicts[key] = FileVerdict.REMOVE
            elif not may_match(self.predicate, add, state=self.state):
                self.verdicts[key] = FileVerdict.KEEP
            else:
                open_files.append(key)
        return open_files

    def constants(self, add: Action) -> dict[str, Any]:
        """Columns of the predicate that have one value in all rows of a file: partition columns, and new ones (NULL)."""
        assert self.state is not None
        return constants(columns(self.predicate), add, self.state)

    def planned(self) -> LogReplay:
        """The live files that the plan was made on."""
        if self.active is None:
            raise InternalError("A write was committed before it was planned. Please report it.")
        return self.active

    def _rewrite(
        self, add: Action, number: int, wider: dict[FileKey, BitMap64]
    ) -> Generator[Effect, Outcome, tuple[FileVerdict, Iterable[DataFile]]]:
        """Look through a file: what becomes of it, and the files of its other rows or its next vector."""
        state = self.state
        assert state is not None
        body, gone, marks = (yield from self.body_of(add)), self.vectors.of(add), marks_rows(state)
        names = sorted(columns(self.predicate) & {*state.schema.names})
        rows, _ = read_rows(body, add, state, names, gone)
        assert self.after is not None
        goes = matching(rows, self.constants(add), self.predicate, self.after.schema)
        if not goes.any():
            return FileVerdict.KEEP, ()
        if feeds_changes(state):
            self._gone[file_key(add)] = whole_rows(body, add, state, None, gone)[0].filter(pa.array(goes))
        if goes.all():
            return FileVerdict.REMOVE, ()
        key, places = file_key(add), np.flatnonzero(goes)
        self.kept[key] = len(goes) - len(places)
        if marks:
            vector = self.vectors.widened(add, places)
            if vector is not None:
                wider[key] = vector
                return FileVerdict.MARK, ()
        rows, footer = read_rows(body, add, state, None, gone)
        kept = without(rows, goes)
        check_calendar(footer, kept, unquote(add["path"]))
        return FileVerdict.REWRITE, self.remainder(add, prepare(kept, rows.schema, stored=True), number)

    def remainder(self, add: Action, kept: Prepared, number: int) -> Iterable[DataFile]:
        """The files that take a file's place, of its rows that stay; ``number`` makes their names unique."""
        assert self.state is not None
        name = f"{self.commit_id}-kept{number}"
        return remainder(add, kept, layout_of(self.state, kept.schema, (), name, self.target_file_size))

    def body_of(self, add: Action) -> Generator[Effect, Outcome, bytes]:
        """The bytes of a live data file.

        Raises:
            StorageError: it is gone, or the store gave no answer.
        """
        path = unquote(add["path"])
        answer = yield from fetch_one(Get(path, name="overwrite.get_data"), self.limits)
        if isinstance(answer, Missing):
            raise damaged(path, "it is gone")
        assert isinstance(answer.value, bytes)
        return answer.value

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Plan again for the snapshot that another commit made (C9's rule for Delta).

        Raises:
            ConflictError: CONFLICT if files must be read and rewritten; SCHEMA_CHANGED as for appends.
        """
        super().check_conflict(version, commit)
        self.active = self.planned().advance(version, commit)
        undecided = self._undecided()
        live = self.active.adds
        partly = (FileVerdict.REWRITE, FileVerdict.MARK)
        gone = [key for key, verdict in self.verdicts.items() if verdict in partly and key not in live]
        is_fed = not self.change_files or self._gone.keys() == {file_key(add) for add in self.replaced()}
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
    return (replace(file, path=folder + file.path, partition_values=values) for file in encoded(kept, layout))


def removal(add: Action, deletion_timestamp_ms: int) -> dict[str, Any]:
    """The ``remove`` action of a live file, its deletion vector included."""
    names = ("size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion")
    return {
        "remove": {
            "path": add["path"],
            "deletionTimestamp": deletion_timestamp_ms,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": add.get("partitionValues") or {},
            **{name: add[name] for name in names if add.get(name) is not None},
        }
    }


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
