"""Writes the rows that come by changes by key; from format version 3 on with the ids of the rows that they take the place of."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from safewrite.changes.tasks.abc import AppliedBatch
from safewrite.iceberg.data.lineage import as_written
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
    _last: tuple[AppliedBatch, tuple[DataFile, ...]] | None = field(default=None, repr=False)
    """What came last, and its files."""
    _stores: int = 0

    def files(
        self, head: TableVersion, applied: AppliedBatch
    ) -> Generator[Effect, Outcome, tuple[DataFile, ...]]:
        """The files of the rows that win.

        Raises:
            StorageError: the store gave no answer.
        """
        if applied.come is None:
            return tuple((yield from seen(applied.files, self.limits)))
        if not applied.rows:
            return ()
        known = self._last
        if known is None or not applied.comes_as(known[0]):
            self._stores += 1
            staging = Staging(self.limits)
            name = f"{self.write_id}-r{self._stores}"
            rows, schema = as_written(applied.come, table_of(head).metadata)
            yield from staging.upload(encoded_rows(rows, head, schema, name, self.target_file_size))
            yield from staging.complete(())
            self._last = known = applied, tuple(staging.data_files)
            self.stored += staging.data_files
        return known[1]
