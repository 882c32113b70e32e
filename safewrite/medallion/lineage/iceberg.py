"""Follows an Iceberg bronze table by the ancestry of its snapshots; snapshot ids are random and order nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.errors import DataFileError
from safewrite.medallion.lineage.lineage import BronzeCommit, DataFile, Lineage

if TYPE_CHECKING:
    from pyiceberg.table import Table as PyIcebergTable
    from pyiceberg.table.snapshots import Snapshot


class IcebergLineage(Lineage):
    """The snapshots of the table's main branch, as PyIceberg reads them."""

    def __init__(self, name: str, way_out: str, table: Any) -> None:
        super().__init__(name, table.uri, way_out)
        self._safe = table
        self._table: PyIcebergTable

    def look(self) -> None:
        self._safe.refresh()
        self._table = self._safe.iceberg

    @property
    def table_id(self) -> str:
        return str(self._table.metadata.table_uuid)

    @property
    def head(self) -> int:
        current = self._table.metadata.current_snapshot_id
        return -1 if current is None else current

    def mark(self) -> str | None:
        return str(self._table.metadata_location)

    def _ancestors(self) -> list[Snapshot]:
        """From the head back, as far as metadata goes."""
        found, at = [], self._table.current_snapshot()
        while at is not None:
            found.append(at)
            parent = at.parent_snapshot_id
            at = None if parent is None else self._table.metadata.snapshot_by_id(parent)
        return found

    def since(self, position: int) -> list[BronzeCommit]:
        new: list[Snapshot] = []
        line = self._ancestors()
        if self.head != position:
            for snapshot in line:
                new.append(snapshot)
                is_first = snapshot.parent_snapshot_id is None and snapshot.sequence_number == 1
                if is_first if position == -1 else snapshot.parent_snapshot_id == position:
                    break
            else:
                raise self._lost(position)
        commits = [self._commit(snapshot) for snapshot in reversed(new)]
        return [commit for commit in commits if commit.files]

    def from_time(self, since_ms: int) -> list[BronzeCommit]:
        line = self._ancestors()
        # All from the first on: the clock of a later writer may have been behind.
        new = list(reversed([*dropwhile(lambda one: one.timestamp_ms < since_ms, reversed(line))]))
        if new and len(new) == len(line) and line[-1].parent_snapshot_id is not None:
            raise self.forgot(since_ms)
        commits = [self._commit(snapshot) for snapshot in reversed(new)]
        return [commit for commit in commits if commit.files]

    def commit(self, version: int) -> BronzeCommit:
        snapshot = self._table.metadata.snapshot_by_id(version)
        if snapshot is None:
            raise self.gap(f"snapshot {version} has expired")
        return self._commit(snapshot)

    def _lost(self, position: int) -> Exception:
        if self._table.metadata.snapshot_by_id(position) is not None:
            return self.gap(
                f"silver took snapshot {position}, which was rolled back: it is no ancestor of the newest"
            )
        return self.gap(f"silver took snapshot {position}, which has expired, and others since may have")

    def _commit(self, snapshot: Snapshot) -> BronzeCommit:
        summary = snapshot.summary
        operation = "unknown" if summary is None else str(summary.operation.value)
        counts = {} if summary is None else dict(summary.additional_properties)
        added, deleted = (int(counts.get(name, 0)) for name in ("added-records", "deleted-records"))
        if operation == "replace" and added == deleted:
            return BronzeCommit(snapshot.snapshot_id, ())
        if operation != "append" or deleted or int(counts.get("added-delete-files", 0)):
            raise self.removed(snapshot.snapshot_id, operation)
        return BronzeCommit(snapshot.snapshot_id, tuple(self._added(snapshot)), snapshot.timestamp_ms)

    def _added(self, snapshot: Snapshot) -> list[DataFile]:
        from pyiceberg.manifest import ManifestEntryStatus

        io = self._table.io
        return [
            DataFile(entry.data_file.file_path, entry.data_file.record_count, entry.data_file)
            for manifest in snapshot.manifests(io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id in {None, snapshot.snapshot_id}
        ]

    def whole(self) -> list[DataFile]:
        if self.head == -1:
            return []
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise self.gap("it has delete files, and bronze is append-only")
        return [DataFile(task.file.file_path, task.file.record_count, task.file) for task in tasks]

    def read(self, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
        from pyiceberg.table import FileScanTask

        tasks = [FileScanTask(data_file=file.handle) for file in files]
        try:
            found = list(self._safe.read_files(tasks, columns))
        except DataFileError as error:
            raise self.gap(f"a file of it is gone ({error})") from error
        if not found:
            schema = self._safe.schema
            return schema.empty_table() if columns is None else schema.empty_table().select(list(columns))
        return pa.concat_tables(found, promote_options="permissive")
