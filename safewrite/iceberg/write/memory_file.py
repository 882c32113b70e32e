"""Keeps what a table remembers of deleted keys in a Puffin file; a table property, set in the same commit, names it.

A tag keeps the snapshot that registers the file as its statistics, so that neither expiry of snapshots nor removal of orphan files, by
whatever engine, takes it away.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.meaning import memory
from safewrite.changes.meaning.memory import Memory
from safewrite.changes.meaning.spec import Spec
from safewrite.errors import Kind, StorageError
from safewrite.iceberg import branch_properties
from safewrite.iceberg.branch_properties import MAIN
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.own_properties import MEMORY, MEMORY_OF, memory_of
from safewrite.iceberg.write import puffin
from safewrite.protocol.ask import Limits, ask, unanswered
from safewrite.protocol.effects import Effect, Get, Missing, Ok, Outcome, Put
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from safewrite.iceberg.catalog.commit_request import CommitRequest

BLOB = "safewrite-changes-v1"


def recorded_keys(
    head: TableVersion, branch: str, limits: Limits
) -> Generator[Effect, Outcome, tuple[str, ...]]:
    """The key columns that changes were applied by; none where none were.  Raises StorageError as :meth:`MemoryFile.recall`."""
    metadata, location = table_of(head).metadata, memory_of(head)
    if location is None:
        return ()
    ids = {column.name: column.field_id for column in metadata.schema().fields}
    body = yield from _body(location, limits)
    return memory.recorded_keys(body, location, None, ids, _ids_of_then(metadata, location, branch))


def _body(location: str, limits: Limits) -> Generator[Effect, Outcome, bytes]:
    get = Get(location, name="apply.get_memory")
    outcome = yield from ask(get, limits)
    if isinstance(outcome, Missing):
        raise _forgotten(location, "it is gone")
    if not isinstance(outcome, Ok):
        raise unanswered(get, outcome)
    assert isinstance(outcome.value, bytes)
    try:
        return puffin.decoded(outcome.value)
    except (ValueError, KeyError) as error:
        raise _forgotten(location, str(error)) from error


@dataclass
class MemoryFile:
    """What a table remembers, as a write finds it on each base, and the file that the write's snapshot names."""

    branch: str = MAIN
    location: str = ""
    """Where the file is of what is to be remembered after this commit."""
    _file: puffin.Puffin | None = field(default=None, repr=False)
    """The file; None where nothing else is to be remembered."""
    _known: tuple[str, Memory] | None = field(default=None, repr=False)
    """What a file says that was read; none is ever changed."""

    def recall(
        self, head: TableVersion, spec: Spec, schema: pa.Schema, limits: Limits
    ) -> Generator[Effect, Outcome, Memory]:
        """What the table remembers; nothing where the changes take the place of all that.

        Raises:
            StorageError: the file is gone or damaged, or the store gave no answer.
        """
        metadata = table_of(head).metadata
        ids = {column.name: column.field_id for column in metadata.schema().fields}
        nothing = Memory.empty(spec.keys, spec.sequence_by, schema, ids=ids)
        location = memory_of(head)
        if location is None or spec.full_refresh:
            return nothing
        if self._known is not None and self._known[0] == location:
            return self._known[1]
        body = yield from _body(location, limits)
        self._known = location, nothing.decode(body, location, _ids_of_then(metadata, location, self.branch))
        return self._known[1]

    def remember(
        self,
        head: TableVersion,
        before: Memory,
        after: Memory,
        limits: Limits,
        *,
        snapshot_id: int,
        location: str,
        refreshes: bool,
    ) -> Generator[Effect, Outcome, None]:
        """Upload what is to be remembered, where that is not what the table remembers."""
        self._file = None
        same = not refreshes and before.has_ids and after.says_the_same(before)
        if memory_of(head) is not None and same:
            return
        sequence = table_of(head).metadata.next_sequence_number()
        self._file = puffin.encoded([puffin.Blob(after.encode(), BLOB, snapshot_id, sequence)])
        self.location = location
        put = Put(location, self._file.body, name="apply.put_memory")
        outcome = yield from ask(put, limits)
        if not isinstance(outcome, Ok):
            raise unanswered(put, outcome)

    def table_properties(self, head: TableVersion) -> dict[str, str]:
        """The properties that name the file."""
        return {} if self._file is None else {MEMORY: self.location, MEMORY_OF: head.table_id}

    def registered(self, request: CommitRequest, snapshot_id: int) -> CommitRequest:
        """The request of a commit that registers the file, and tags its snapshot."""
        if self._file is None:
            return request
        from pyiceberg.table.statistics import StatisticsFile
        from pyiceberg.table.update import SetStatisticsUpdate

        statistics = StatisticsFile.model_validate(
            {
                "snapshot-id": snapshot_id,
                "statistics-path": self.location,
                "file-size-in-bytes": len(self._file.body),
                "file-footer-size-in-bytes": self._file.footer_bytes,
                "blob-metadata": [],
            }
        )
        more = (
            branch_properties.tag(self.branch, snapshot_id),
            SetStatisticsUpdate.model_validate({"statistics": statistics}),
        )
        return replace(request, updates=(*request.updates, *more), written=(*request.written, self.location))


def _ids_of_then(metadata: TableMetadata, location: str, branch: str) -> Mapping[str, int]:
    """The ids of the table's columns when a file of what is remembered was written: its snapshot says under which schema.

    Where another engine took the snapshot away, names tell that only ever one column had.
    """
    tagged = metadata.refs.get(branch_properties.tag_of(branch))
    of_file = [one.snapshot_id for one in metadata.statistics if one.statistics_path == location]
    for at in (*of_file, *([tagged.snapshot_id] if tagged else [])):
        snapshot = metadata.snapshot_by_id(at)
        for schema in metadata.schemas:
            if snapshot is not None and schema.schema_id == snapshot.schema_id:
                return {column.name: column.field_id for column in schema.fields}
    ever: dict[str, set[int]] = {}
    for schema in metadata.schemas:
        for column in schema.fields:
            ever.setdefault(column.name, set()).add(column.field_id)
    return {name: ids.pop() for name, ids in ever.items() if len(ids) == 1}


def _forgotten(location: str, why: str) -> StorageError:
    return StorageError(
        f"{location}, which remembers the deleted keys of the table, cannot be read: {why}. Nothing was committed. Restore the "
        "file, or the table could not tell late changes from new ones.",
        kind=Kind.DATA_FILE_DAMAGED,
    )
