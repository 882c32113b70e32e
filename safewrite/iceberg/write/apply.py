"""Applies changes by key and sequence in one snapshot: rows, and what must be remembered of those that went.

The plan is made on the snapshot that the new one follows, so two writers never insert one key twice (C9).  Copy-on-write:
files that hold keys of the batch are rewritten without their old rows; where the table is merge-on-read their old rows
are marked as gone in position delete files instead.  The memory of deleted keys is a Puffin file; a
table property, set in the same commit, names it.  A tag keeps the snapshot that registers the file as its statistics, so
that neither expiry of snapshots nor removal of orphan files, by whatever engine, takes it away.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.carry import Settled, settle
from safewrite.changes.memory import Memory
from safewrite.changes.positions import Flags, Numbers
from safewrite.changes.reading import Changes, Spec, loose
from safewrite.changes.result import check_accounts, check_result
from safewrite.changes.touched import Touched
from safewrite.errors import InternalError, Kind, StorageError
from safewrite.frames import prepare
from safewrite.frames.predicate import Both, Compare, Predicate
from safewrite.frames.replace_where import EVERYTHING
from safewrite.iceberg.catalog.effects import PlanFiles, ReadRows
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import MEMORY, MEMORY_OF, memory_of
from safewrite.iceberg.write import puffin
from safewrite.iceberg.write.expressions import may_match
from safewrite.iceberg.write.overwrite import ReplacePlan, refuse_misread, unplanned
from safewrite.iceberg.write.staging import Staging
from safewrite.protocol.ask import ask, unanswered
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome, Put, WallClock
from safewrite.protocol.fetch import fetch
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Operation

    from safewrite.iceberg.catalog.commit_request import CommitRequest

TAG = "safewrite-changes"
"""The tag that keeps the snapshot whose statistics that file is."""
BLOB = "safewrite-changes-v1"
FOREVER_MS = 2**63 - 1
Mark = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Loss:
    """What becomes of a file: how many rows it loses, whether it goes, the files of its other rows or of its deletions."""

    rows: int = 0
    removes: bool = False
    rest: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    kept: int = 0
    """How many rows ``rest`` has."""


@dataclass
class ApplyPlan(ReplacePlan):
    """Changes to be applied.  Files that were rewritten serve every attempt in which the same rows stay."""

    changes: Changes | None = None
    spec: Spec | None = None
    _memory: puffin.Puffin | None = field(default=None, repr=False)
    _memory_location: str = ""
    _touched: Touched[Mark] | None = field(default=None, repr=False)
    _losses: dict[tuple[Any, ...], _Loss] = field(default_factory=dict, repr=False)
    _deletes: list[DataFile] = field(default_factory=list, repr=False)
    """Delete files that the snapshot adds."""
    _inserted: dict[bytes | None, Sequence[DataFile]] = field(default_factory=dict, repr=False)
    _stores: int = 0
    _known: tuple[str, Memory] | None = field(default=None, repr=False)
    """What a file of what is remembered says; none is ever changed."""
    _dropped_rows: int = 0

    def removed_rows(self) -> int | None:
        """How many rows the snapshot removes."""
        return self._dropped_rows

    @property
    def operation(self) -> Operation:
        """The snapshot's ``operation``."""
        from pyiceberg.table.snapshots import Operation

        return Operation.OVERWRITE

    # --- the plan -----------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Decide about every change on the files of the base that may hold its key."""
        if self.changes is None or self.spec is None:
            raise InternalError("Changes were committed before they were read. Please report it.")
        schema = arrow_schema(table_of(head).metadata.schema())
        memory = yield from self._recalled(head, self.spec, schema)
        tasks = yield from self._tasks(head, _bounds(self.changes))
        touched = self._touched = self._touched or Touched[Mark](self.changes.batch, schema)
        for file in touched.unseen(tasks):
            table = yield from self._rows(head, tasks[file], schema)
            touched.look(file, table, table)
        settled = settle(self.changes.batch, touched.known(memory))
        decision = settled.decision
        check_result(self.spec, decision, settled.rows)
        touched.decided(decision, memory)
        if touched.is_cut:
            tasks = yield from self._tasks(head, EVERYTHING)
        self._removed, self._rewritten, self._deletes, self._dropped_rows, self._kept = [], [], [], 0, 0
        yield from self._replace(head, tasks, touched, schema)
        yield from self._insert(head, settled, schema)
        if not touched.is_cut:
            check_accounts(decision, settled.rows.num_rows, self._dropped_rows)
        clock = yield WallClock()
        assert isinstance(clock, Ok)
        assert isinstance(clock.value, int)
        yield from self._remember(head, memory, memory.after(self.changes.batch, settled, clock.value))
        self.write = replace(
            self.write,
            rows=settled.rows.num_rows,
            files=len(self._rewritten),
            changes=decision.counts.to_dict(),
        )

    def _tasks(
        self, head: TableVersion, predicate: Predicate
    ) -> Generator[Effect, Outcome, dict[Mark, FileScanTask]]:
        schema = arrow_schema(table_of(head).metadata.schema())
        effect = PlanFiles(head, may_match(predicate, schema), name="apply.plan_files")
        outcome = yield from ask(effect, self.limits)
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        assert isinstance(outcome.value, tuple)
        return {
            (task.file.file_path, *sorted(d.file_path for d in task.delete_files)): task
            for task in outcome.value
        }

    def _rows(
        self, head: TableVersion, task: FileScanTask, schema: pa.Schema
    ) -> Generator[Effect, Outcome, pa.Table]:
        effect = ReadRows(head, task, name="apply.read_rows")
        outcome = yield from ask(effect, self.limits)
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        rows = prepare(outcome.value, schema, named=False)
        wide = loose(schema)
        return pa.concat_tables([wide.empty_table(), *(part.cast(wide) for part in rows.tables())])

    # --- what goes and what comes --------------------------------------------------------------------
    def _replace(
        self,
        head: TableVersion,
        tasks: dict[Mark, FileScanTask],
        touched: Touched[Mark],
        schema: pa.Schema,
    ) -> Generator[Effect, Outcome, None]:
        """Rewrite the files that lose rows."""
        for file, task in tasks.items():
            if not touched.may_lose(file):
                continue
            mark = touched.mark(file)
            if mark not in self._losses:
                self._losses[mark] = yield from self._without(head, file, task, touched, schema)
            loss = self._losses[mark]
            self._dropped_rows += loss.rows
            self._rewritten += loss.rest
            self._kept += loss.kept
            self._deletes += loss.deletes
            if loss.removes:
                self._removed.append(task.file)

    def _without(
        self,
        head: TableVersion,
        file: Mark,
        task: FileScanTask,
        touched: Touched[Mark],
        schema: pa.Schema,
    ) -> Generator[Effect, Outcome, _Loss]:
        """What becomes of a file that may lose rows."""
        table = touched.kept(file)
        if table is None:
            table = yield from self._rows(head, task, schema)
        stays = touched.stays(file, table)
        if stays.all() and table.num_rows:
            return _Loss()
        if not stays.any():
            return _Loss(table.num_rows, removes=True)
        goes = int((~stays).sum())
        deletes = yield from self._marked(head, task, stays)
        if deletes:
            return _Loss(goes, deletes=deletes)
        refuse_misread(task, schema)
        rest = yield from self._stored(head, table.filter(pa.array(stays)), schema)
        return _Loss(goes, True, rest, kept=len(stays) - goes)

    def _marked(
        self, head: TableVersion, task: FileScanTask, stays: Flags
    ) -> Generator[Effect, Outcome, Sequence[DataFile]]:
        """A delete file of the rows that go, where the table is merge-on-read; nothing where the file must be rewritten."""
        from safewrite.iceberg.write import position_deletes

        if not position_deletes.is_asked(table_of(head).metadata) or not position_deletes.is_plain(task):
            return ()
        gets = [Get(one.file_path, name="apply.get_deletes") for one in task.delete_files]
        answers = yield from fetch(gets, self.limits, name="apply.get_all_deletes")
        bodies = [one.value for one in answers if isinstance(one, Ok) and isinstance(one.value, bytes)]
        live = position_deletes.live_positions(task, bodies)
        if len(bodies) != len(gets) or len(live) != len(stays):
            return ()
        return ((yield from self.marked_as_gone(head, task, live[~stays])),)

    def marked_as_gone(
        self, head: TableVersion, task: FileScanTask, positions: Numbers
    ) -> Generator[Effect, Outcome, DataFile]:
        """Upload a delete file of some rows of a data file."""
        from safewrite.iceberg.write import position_deletes

        self._stores += 1
        name = f"{self.write_id}-d{self._stores}-deletes.parquet"
        path = table_of(head).location_provider().new_data_location(name)
        staged = position_deletes.encoded(task.file, positions, path)
        staging = Staging(self.limits)
        yield from staging.upload([staged])
        yield from staging.complete(())
        return staged.data_file

    def _insert(
        self, head: TableVersion, settled: Settled, schema: pa.Schema
    ) -> Generator[Effect, Outcome, None]:
        """Upload the rows that win; they serve every attempt in which the same changes win as they came."""
        rows = settled.rows
        if not rows.num_rows:
            return
        wins = settled.decision.upserts.tobytes() if settled.is_as_it_came else None
        if wins is None or wins not in self._inserted:
            files = yield from self._stored(head, rows, schema)
            self._inserted = {wins: files}
        self._rewritten += self._inserted[wins]

    def _stored(
        self, head: TableVersion, rows: pa.Table, schema: pa.Schema
    ) -> Generator[Effect, Outcome, Sequence[DataFile]]:
        """Data files of rows."""
        self._stores += 1
        staging = Staging(self.limits)
        yield from staging.upload(self.encoded(rows, head, schema, self._stores))
        yield from staging.complete(())
        return tuple(staging.data_files)

    # --- manifests ------------------------------------------------------------------------------------
    @property
    def counted(self) -> Sequence[DataFile]:
        """Every file that the summary counts as added."""
        return [*self.added, *self._deletes]

    def new_manifests(
        self, head: TableVersion
    ) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...]]]:
        """The manifests of the snapshot on this base, those of delete files last."""
        from safewrite.iceberg.write import position_deletes

        manifests, puts = yield from super().new_manifests(head)
        for spec_id in sorted({one.spec_id for one in self._deletes}):
            location = self.new_location(head, f"{self.write_id}-{self.attempt}-d{spec_id}.avro")
            files = [one for one in self._deletes if one.spec_id == spec_id]
            made, body = position_deletes.manifest(
                table_of(head).metadata, self.schema, self.snapshot_id, files, location
            )
            manifests.append(made)
            puts = (*puts, Put(location, body, name="stage.put_manifest"))
        return manifests, puts

    # --- what is remembered ---------------------------------------------------------------------------
    def _recalled(
        self, head: TableVersion, spec: Spec, schema: pa.Schema
    ) -> Generator[Effect, Outcome, Memory]:
        nothing = Memory.empty(spec.keys, spec.sequence_by, schema)
        location = memory_of(head)
        if location is None:
            return nothing
        if self._known is not None and self._known[0] == location:
            return self._known[1]
        get = Get(location, name="apply.get_memory")
        outcome = yield from ask(get, self.limits)
        if isinstance(outcome, Missing):
            raise _forgotten(location, "it is gone")
        if not isinstance(outcome, Ok):
            raise unanswered(get, outcome)
        assert isinstance(outcome.value, bytes)
        try:
            body = puffin.decoded(outcome.value)
        except (ValueError, KeyError) as error:
            raise _forgotten(location, str(error)) from error
        self._known = location, nothing.decode(body, location)
        return self._known[1]

    def _remember(
        self, head: TableVersion, before: Memory, after: Memory
    ) -> Generator[Effect, Outcome, None]:
        self._memory = None
        if memory_of(head) is not None and after.says_the_same(before):
            return
        sequence = table_of(head).metadata.next_sequence_number()
        self._memory = puffin.encoded(after.encode(), BLOB, self.snapshot_id, sequence)
        self._memory_location = self.new_location(
            head, f"safewrite-changes-{self.write_id}-{self.attempt}.puffin"
        )
        put = Put(self._memory_location, self._memory.body, name="apply.put_memory")
        outcome = yield from ask(put, self.limits)
        if not isinstance(outcome, Ok):
            raise unanswered(put, outcome)

    def _change(self, head: TableVersion, location: str, now_ms: int) -> CommitRequest:
        request = super()._change(head, location, now_ms)
        if self._memory is None:
            return request
        from pyiceberg.table.statistics import StatisticsFile
        from pyiceberg.table.update import SetPropertiesUpdate, SetSnapshotRefUpdate, SetStatisticsUpdate

        statistics = StatisticsFile.model_validate(
            {
                "snapshot-id": self.snapshot_id,
                "statistics-path": self._memory_location,
                "file-size-in-bytes": len(self._memory.body),
                "file-footer-size-in-bytes": self._memory.footer_bytes,
                "blob-metadata": [],
            }
        )
        tag = {
            "ref-name": TAG,
            "type": "tag",
            "snapshot-id": self.snapshot_id,
            "max-ref-age-ms": FOREVER_MS,
        }
        more = (
            SetPropertiesUpdate(updates={MEMORY: self._memory_location, MEMORY_OF: head.table_id}),
            SetSnapshotRefUpdate.model_validate(tag),
            SetStatisticsUpdate.model_validate({"statistics": statistics}),
        )
        return replace(
            request,
            updates=(*request.updates, *more),
            written=(*request.written, self._memory_location),
        )


def _forgotten(location: str, why: str) -> StorageError:
    return StorageError(
        f"{location}, which remembers the deleted keys of the table, cannot be read: {why}. Nothing was committed. Restore the "
        "file, or the table could not tell late changes from new ones.",
        kind=Kind.DATA_FILE_DAMAGED,
    )


def _bounds(changes: Changes) -> Predicate:
    """A condition that rows with keys of the batch satisfy, by the lowest and highest value of each key column."""
    parts: list[Predicate] = []
    for name in changes.batch.keys:
        values = pc.drop_null(changes.batch.table.column(name))
        if len(values):
            ends = pc.min_max(values)
            parts += [Compare(name, ">=", ends["min"].as_py()), Compare(name, "<=", ends["max"].as_py())]
    return Both(tuple(parts)) if parts else EVERYTHING
