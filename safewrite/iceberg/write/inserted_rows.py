"""Writes the rows that come by changes by key; from format version 3 on with the ids of the rows that they take the place of."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.lookup.table_files import LiveFile
from safewrite.changes.tasks.abc import AppliedBatch, BatchWork
from safewrite.changes.tasks.one_part import OnePart
from safewrite.errors import InternalError
from safewrite.frames.parallel import windows
from safewrite.iceberg.data.lineage import ROW_ID, kept_columns, taking_place
from safewrite.iceberg.data.manifests_v3 import VERSION
from safewrite.iceberg.data.reading import ids_of
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.file_changes import encoded_rows
from safewrite.iceberg.write.staging import Staging, seen
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile


@dataclass
class InsertedRows:
    """The files of rows that win.  They serve every plan in which the same changes win as they came, of rows with the same ids."""

    write_id: str
    target_file_size: int
    limits: Limits
    stored: list[DataFile] = field(default_factory=list)
    """All files that were uploaded, on any base."""
    _last: tuple[AppliedBatch, pa.ChunkedArray | None, tuple[DataFile, ...]] | None = field(
        default=None, repr=False
    )
    """What came last, the row ids where it has some, and its files."""
    _stores: int = 0

    def files(
        self, head: TableVersion, work: BatchWork, applied: AppliedBatch, looked: Iterable[LiveFile]
    ) -> Generator[Effect, Outcome, tuple[DataFile, ...]]:
        """The files of the rows that win; ``looked`` are those that were looked through.

        Raises:
            StorageError: a file is gone, or the store gave no answer.
        """
        has_ids = table_of(head).metadata.format_version >= VERSION
        if has_ids and not isinstance(work, OnePart):
            raise InternalError(
                "Tasks applied changes to a table whose rows have ids. Nothing was committed. Please report it."
            )
        if applied.come is None:
            return tuple((yield from seen(applied.files, self.limits)))
        if not applied.rows:
            return ()
        metadata = table_of(head).metadata
        come = applied.come
        if isinstance(work, OnePart) and has_ids:
            come = yield from self._with_ids(head, work, applied, looked)
        ids = None if come is applied.come else come[ROW_ID.name]
        known = self._last
        if known is None or ids != known[1] or not applied.comes_as(known[0]):
            self._stores += 1
            staging = Staging(self.limits)
            name = f"{self.write_id}-r{self._stores}"
            schema = arrow_schema(metadata.schema()) if ids is None else kept_columns(metadata)
            yield from staging.upload(encoded_rows(come, head, schema, name, self.target_file_size))
            yield from staging.complete(())
            self._last = known = applied, ids, tuple(staging.data_files)
            self.stored += staging.data_files
        return known[2]

    def _with_ids(
        self, head: TableVersion, work: OnePart, applied: AppliedBatch, looked: Iterable[LiveFile]
    ) -> Generator[Effect, Outcome, pa.Table]:
        """The rows, with the ids of those that they take the place of, if there are any."""
        went = []
        losing = [file for file in looked if len(applied.goes.get(file.name, ()))]
        for some in windows(losing, lambda file: file.nbytes):
            found = yield from ids_of(head, [file.handle for file in some], self.limits)
            for file, ids in zip(some, found, strict=True):
                places = applied.goes[file.name]
                keys = work.keys_at(file.name, places)
                went.append(keys.append_column(ROW_ID.name, ids[ROW_ID.name].take(pa.array(places))))
        assert applied.come is not None
        return taking_place(applied.come, pa.concat_tables(went), work.spec.keys) if went else applied.come
