"""Follows a Delta bronze table by the actions of its log (PROTOCOL.md, "Action Reconciliation")."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from safewrite.errors import MissingExtraError, StorageError, TableNotFoundError, UnsupportedTableError
from safewrite.medallion.files.storage import Storage, storage
from safewrite.medallion.lineage.lineage import BronzeCommit, DataFile, Lineage, stamped

_LOG = "_delta_log"
CLOCKS_APART_MS = 86_400_000
"""By so much at most the clocks of two writers are taken to differ."""


class DeltaLineage(Lineage):
    """A Delta table's log, read without its writer's code."""

    def __init__(self, name: str, uri: str, way_out: str, options: Mapping[str, str]) -> None:
        super().__init__(name, uri, way_out)
        self._options = dict(options)
        self._storage: Storage = storage(uri, options)
        self._table: Any = None

    def look(self) -> None:
        self._table = newest(self.uri, self._storage, self._options)
        metadata = self._table.metadata()
        if (
            metadata.partition_columns
            or metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
        ):
            raise UnsupportedTableError(
                f"{self.uri} has partitions or column mapping, and bronze is read without. Nothing was written. Let "
                "safewrite make the bronze table."
            )

    @property
    def table_id(self) -> str:
        return str(self._table.metadata().id)

    @property
    def head(self) -> int:
        return int(self._table.version())

    def mark(self) -> str | None:
        return head_mark(self._storage, self.head)

    def since(self, position: int) -> list[BronzeCommit]:
        if position > self.head:
            raise self.gap(f"silver took version {position}, and bronze has only {self.head}")
        commits = [self.commit(version) for version in range(position + 1, self.head + 1)]
        return [commit for commit in commits if commit.files]

    def from_time(self, since_ms: int) -> list[BronzeCommit]:
        read: list[tuple[int, Sequence[Mapping[str, Any]], int | None]] = []
        for version in range(self.head, -1, -1):
            actions = self._log(version)
            if actions is None:
                if any(at is not None and at < since_ms for _, _, at in read):
                    break
                raise self.forgot(since_ms)
            at_ms = _info(actions).get("timestamp")
            if at_ms is not None and at_ms < since_ms - CLOCKS_APART_MS:
                break
            read.append((version, actions, at_ms))
        # All from the first on that says so: the clock of a later writer may have been behind, or have said nothing.
        while read and read[-1][2] is not None and read[-1][2] < since_ms:
            read.pop()
        commits = [self._commit(version, actions) for version, actions, _ in reversed(read)]
        return [commit for commit in commits if commit.files]

    def stamp(self, version: int) -> int | None:
        actions = self._log(version) if version >= 0 else None
        if actions is None:
            return None
        files = [one[kind]["path"] for one in actions for kind in ("add", "remove") if kind in one]
        return stamped(version, "\n".join(files).encode())

    def commit(self, version: int) -> BronzeCommit:
        return self._commit(version, self._log(version))

    def _log(self, version: int) -> list[Mapping[str, Any]] | None:
        """The actions of a commit; None if its file is gone."""
        content = self._storage.get(f"{_LOG}/{version:020}.json")
        if content is None:
            return None
        return [json.loads(line) for line in content.decode().split("\n") if line.strip()]

    def _commit(self, version: int, actions: Sequence[Mapping[str, Any]] | None) -> BronzeCommit:
        if actions is None:
            raise self.gap(
                f"the log no longer has version {version}, which silver did not take: it was cleaned up"
            )
        info = _info(actions)
        if any(one["remove"].get("dataChange", True) for one in actions if "remove" in one):
            raise self.removed(version, str(info.get("operation")))
        for one in actions:
            if one.get("metaData", {}).get("id", self.table_id) != self.table_id:
                raise self.gap(f"version {version} made another table of it")
        adds = [one["add"] for one in actions if "add" in one and one["add"].get("dataChange", True)]
        return BronzeCommit(version, tuple(self._file(version, add) for add in adds), info.get("timestamp"))

    def _file(self, version: int, add: Mapping[str, Any]) -> DataFile:
        if add.get("deletionVector") or add.get("partitionValues"):
            raise self.removed(version, "a deletion vector or a partition")
        stats = json.loads(add.get("stats") or "{}")
        return DataFile(unquote(add["path"]), int(stats.get("numRecords", 0)))

    def whole(self) -> list[DataFile]:
        adds = pa.table(self._table.get_add_actions(flatten=True))
        if "deletion_vector.storageType" in adds.column_names and adds[
            "deletion_vector.storageType"
        ].null_count < len(adds):
            raise UnsupportedTableError(
                f"{self.uri} has deletion vectors, and bronze is read without. Nothing was written. Let Spark purge them: "
                "REORG TABLE ... APPLY (PURGE)."
            )
        rows = adds["num_records"].to_pylist() if "num_records" in adds.column_names else [0] * len(adds)
        return [
            DataFile(path, count or 0) for path, count in zip(adds["path"].to_pylist(), rows, strict=True)
        ]

    def read(self, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> pa.Table:
        schema = pa.schema(self._table.schema().to_arrow())
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return pa.concat_tables([schema.empty_table(), *(self._read(file, schema) for file in files)])

    def _read(self, file: DataFile, schema: pa.Schema) -> pa.Table:
        content = self._storage.get(file.path)
        if content is None:
            raise self.gap(f"its file {file.path} is gone (vacuum, after a compaction)")
        opened = pq.ParquetFile(io.BytesIO(content))
        there = frozenset(opened.schema_arrow.names)
        rows = opened.read(columns=[name for name in schema.names if name in there])
        arrays = [
            rows[one.name].cast(one.type) if one.name in there else pa.nulls(rows.num_rows, one.type)
            for one in schema
        ]
        return pa.table(arrays, schema=schema)


def _info(actions: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((one["commitInfo"] for one in actions if "commitInfo" in one), {})


def head_mark(place: Storage, version: int) -> str | None:
    """Marks a table whose newest version is this one; None if it has another.  One request.

    A commit's file is never changed, and that of a table made anew has another mark.
    """
    name = f"{version:020}.json"
    listed = [
        (found, mark)
        for found, mark in place.after(_LOG, f"{version - 1:020}.json" if version else "")
        if len(found) == len(name) and found.endswith(".json")
    ]
    return listed[0][1] if len(listed) == 1 and listed[0][0] == name else None


def newest(uri: str, where: Storage, options: dict[str, str]) -> Any:
    """The table as deltalake loads it now.

    Raises:
        MissingExtraError: deltalake is not installed.
        TableNotFoundError: there is no table.
        StorageError: it cannot be read.
    """
    try:
        import deltalake
        from deltalake.exceptions import DeltaError
        from deltalake.exceptions import TableNotFoundError as MissingTableError
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Delta tables of a medallion job are read by deltalake: {MissingExtraError.command('medallion')}. Nothing was written."
        ) from error
    try:
        return deltalake.DeltaTable(where.uri, storage_options=options)
    except MissingTableError as error:
        raise TableNotFoundError(f"There is no Delta table at {uri}. Nothing was written.") from error
    except (DeltaError, OSError) as error:
        raise StorageError(f"{uri} cannot be read: {error}. Nothing was written. Run again.") from error
