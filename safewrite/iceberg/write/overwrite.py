"""Replaces the rows for which ``where`` is true by the rows of a frame, in one snapshot.

The plan is made on the same snapshot that the new one follows: a catalog that accepts the commit attests that
nothing happened in between.  After a conflict the plan is brought to the new base (C9): files that came, or that others took rows
of, are looked at; what became of the others stands (decision 0068).  Copy-on-write: a file with only matching rows is removed, a
file with some is rewritten without them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.lookup.candidate_rows import filtered
from safewrite.changes.meaning.positions import Flags
from safewrite.frames import prepare
from safewrite.frames.predicate import Predicate, columns, truths
from safewrite.frames.replace_where import EVERYTHING, digest
from safewrite.iceberg.catalog.effects import PlanFiles
from safewrite.iceberg.data.expressions import may_match
from safewrite.iceberg.data.manifests import entries_of, entry, manifest_of
from safewrite.iceberg.data.pruning import Pruning
from safewrite.iceberg.data.reading import WHOLE_BYTES, rows_of, unplanned
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.members import REMOVED_ROWS
from safewrite.iceberg.write.row_files import Mark, mark_of
from safewrite.iceberg.write.staging import Staging
from safewrite.iceberg.write.summary import Write
from safewrite.protocol.ask import ask
from safewrite.protocol.effects import Effect, Ok, Outcome, Put
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Operation

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

    ``deletes`` says that no rows come.  Decisions about data files are kept over attempts, for data files
    never change: only files that came since the last attempt are looked at, or whose rows others marked as gone.
    """

    predicate: Predicate = EVERYTHING
    deletes: bool = False
    target_file_size: int = 0
    _rests: dict[tuple[str, ...], _RewrittenFile] = field(default_factory=dict, repr=False)
    """What becomes of each file, by its path and those of its delete files."""
    _staying: dict[str, Mark] = field(default_factory=dict, repr=False)
    """Files, by their paths, in which no row matched: none does once others marked rows as gone."""
    _planned_on: int | None = None
    """The snapshot that the last plan was made on."""
    _removed: list[DataFile] = field(default_factory=list, repr=False)
    _counts: list[int | None] = field(default_factory=list, repr=False)
    _rewritten: list[DataFile] = field(default_factory=list, repr=False)
    _kept: int = 0

    def new_manifests(
        self, head: TableVersion
    ) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...]]]:
        """The manifests of the snapshot on this base."""
        yield from self._plan(head)
        kept = yield from self.kept_manifests(head)
        changed, puts = yield from self._without_removed(head, kept)
        added, more = self.added_manifests(head, f"{self.write_id}-{self.attempt}")
        return [*added, *changed], (*puts, *more)

    @property
    def added(self) -> Sequence[DataFile]:
        """Data files that the snapshot adds."""
        return [*self.staging.data_files, *self._rewritten]

    @property
    def removed(self) -> Sequence[DataFile]:
        """Data files that the snapshot removes."""
        return self._removed

    @property
    def operation(self) -> Operation:
        """The snapshot's ``operation``."""
        from pyiceberg.table.snapshots import Operation

        return Operation.DELETE if self.deletes and not self._rewritten else Operation.OVERWRITE

    def kept_rows(self) -> int:
        """How many rows of removed files the new files have, by the plan."""
        return self._kept

    def removed_rows(self) -> int | None:
        """How many rows the snapshot removes; None where nobody counted them."""
        counts = [count for count in self._counts if count is not None]
        return sum(counts) if len(counts) == len(self._counts) else None

    def removals(self) -> dict[str, str]:
        """What the snapshot says of rows that it removes."""
        removed = self.removed_rows()
        return {} if removed is None else {REMOVED_ROWS: str(removed)}

    # --- what goes ------------------------------------------------------------------------------------
    def _plan(self, head: TableVersion) -> Generator[Effect, Outcome, None]:
        """Decide about every file of the base."""
        schema = arrow_schema(table_of(head).metadata.schema())
        effect = PlanFiles(head, may_match(self.predicate, schema), self.known, name="replace.plan_files")
        outcome = yield from ask(effect, self.limits)
        if not isinstance(outcome, Ok):
            raise unplanned(effect, outcome)
        self._removed, self._rewritten, self._counts, self._kept = [], [], [], 0
        assert isinstance(outcome.value, tuple)
        pruning = Pruning(self.predicate, table_of(head).metadata, schema)
        for task in outcome.value:
            mark = mark_of(task)
            rest = self._rests.get(mark)
            if rest is None:
                rest = self._rests[mark] = yield from self._rest(head, task, schema, pruning)
            if rest.removed:
                self._removed.append(task.file)
                self._counts.append(rest.removed_rows)
                self._rewritten += rest.files
                self._kept += rest.kept
            else:
                self._staying[mark[0]] = mark
        self.rebased += self.attempt > 0 and self._planned_on != head.current
        self._planned_on = head.current

    def unused(self) -> list[DataFile]:
        """Uploaded files that the last plan has no use for."""
        used = {file.file_path for file in self.counted}
        made = [file for rest in self._rests.values() for file in rest.files]
        return [file for file in made if file.file_path not in used]

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
        yield from staging.upload(self.encoded(rest, head, schema, len(self._rests)))
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

    def encoded(self, rest: pa.Table, head: TableVersion, schema: pa.Schema, number: int) -> Iterable[Any]:
        """Files of rows that the plan itself writes; ``number`` makes their names unique."""
        from safewrite.iceberg.data.datafiles import encode

        table = table_of(head)
        return encode(
            prepare(rest, schema, stored=True),
            metadata=table.metadata,
            location=table.location_provider(),
            write_id=f"{self.write_id}-r{number}",
            target_file_size=self.target_file_size,
        )

    # --- manifests ------------------------------------------------------------------------------------
    def _without_removed(
        self, head: TableVersion, manifests: list[ManifestFile]
    ) -> Generator[Effect, Outcome, tuple[list[ManifestFile], tuple[Put, ...]]]:
        """The base's manifests, those with removed files rewritten, and a record of what was removed."""
        from pyiceberg.manifest import ManifestContent, ManifestEntryStatus

        gone = {file.file_path for file in self._removed}
        if not gone:
            return manifests, ()
        kept: list[ManifestFile] = []
        puts: list[Put] = []
        data = [m for m in manifests if m.content == ManifestContent.DATA]
        kept += [m for m in manifests if m.content != ManifestContent.DATA]
        entries = yield from entries_of(head.table_id, data, self.known, self.limits, "replace.get_manifest")
        for number, (manifest, found) in enumerate(zip(data, entries, strict=True)):
            if not any(one.data_file.file_path in gone for one in found):
                kept.append(manifest)
                continue
            rewritten = [
                self._restated(
                    one,
                    ManifestEntryStatus.DELETED
                    if one.data_file.file_path in gone
                    else ManifestEntryStatus.EXISTING,
                )
                for one in found
            ]
            spec = table_of(head).metadata.specs()[manifest.partition_spec_id]
            location = self.new_location(head, f"{self.write_id}-{self.attempt}-m{number + 1}.avro")
            made, body = manifest_of(
                table_of(head).metadata,
                self.schema,
                rewritten,
                spec=spec,
                snapshot_id=self.snapshot_id,
                location=location,
            )
            kept.append(made)
            puts.append(Put(location, body, name="stage.put_manifest"))
        return kept, tuple(puts)

    def _restated(self, one: ManifestEntry, status: Any) -> ManifestEntry:
        """An entry of an older manifest in a new one; a removal names the snapshot that makes it."""
        from pyiceberg.manifest import ManifestEntryStatus

        signed = self.snapshot_id if status == ManifestEntryStatus.DELETED else one.snapshot_id
        return entry(status, signed, one.data_file, one.sequence_number, one.file_sequence_number)


def named_replace(named: Write, predicate: Predicate, operation: str = "overwrite") -> Write:
    """The write with a fingerprint that covers what is removed too, so that a repeat is the same operation."""
    return replace(named, fingerprint=f"{named.fingerprint}:{digest(predicate, operation).hex()}")
