"""Looks through data files of an Iceberg table for the rows that have keys of a batch, a few files at a time."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import KeySearch
from safewrite.changes.lookup.key_index import IndexName
from safewrite.frames.parallel import windows
from safewrite.iceberg.data.lineage import first_id, kept_columns, kept_schema
from safewrite.iceberg.data.reading import WHOLE_BYTES, rows_of
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.marked_rows import KnownMarks, live_of
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.head import TableVersion

if TYPE_CHECKING:
    from pyiceberg.table import FileScanTask

    from safewrite.iceberg.write.position_deletes import UnmarkedRows

_LOOKED_AT_ONCE = 8
LOOKED_BYTES = 8 * 2**20
"""How many bytes of files one look-up takes together; in memory whole files take some five times as much."""


@dataclass
class Looking:
    """One look at files of a table version.

    ``live`` takes, of each file that has rows which are marked as gone, which are live; None where that is not known.
    """

    head: TableVersion
    limits: Limits
    live: dict[str, UnmarkedRows | None] = field(default_factory=dict)
    known: KnownMarks | None = None
    """What earlier writes knew of it."""

    def look(self, tasks: Mapping[str, FileScanTask], sought: KeySearch) -> Generator[Effect, Outcome, None]:
        """Look through files: keys and sequences first, of small files all columns at once."""
        new = yield from self._not_indexed(tasks, sought)
        small = {
            file: task
            for file, task in new.items()
            if task.file.file_size_in_bytes <= WHOLE_BYTES and not marks(self.head, task)
        }
        large = {file: task for file, task in new.items() if file not in small}
        for columns, files in ((None, small), (sought.columns, large)):
            yield from self._read(files, columns, sought)

    def _read(
        self, tasks: Mapping[str, FileScanTask], columns: tuple[str, ...] | None, sought: KeySearch
    ) -> Generator[Effect, Outcome, None]:
        bytes_max = LOOKED_BYTES // 4 if columns is None else LOOKED_BYTES
        for some in windows(
            [*tasks], lambda file: size_of(tasks[file]), files=_LOOKED_AT_ONCE, bytes_max=bytes_max
        ):
            tables = yield from self._live_rows({file: tasks[file] for file in some}, columns, sought)
            found = [sought.search(table) for table in tables]
            for file, hits, table in zip(some, found, tables, strict=True):
                if sought.suffices(hits):
                    sought.note(file, hits, *((table, table.nbytes) if columns is None else ()))
                else:
                    (whole,) = yield from rows_of(self.head, [tasks[file]], self._schema, self.limits)
                    sought.note(file, sought.search(whole), whole, whole.nbytes)
            del tables

    def _live_of(self, task: FileScanTask) -> Generator[Effect, Outcome, UnmarkedRows | None]:
        if self.known is None:
            return (yield from live_of(task, self.limits))
        return (yield from self.known.live_of(self.head.table_id, task, self.limits))

    @property
    def _schema(self) -> pa.Schema:
        return kept_columns(table_of(self.head).metadata)

    def _not_indexed(
        self, tasks: Mapping[str, FileScanTask], sought: KeySearch
    ) -> Generator[Effect, Outcome, dict[str, FileScanTask]]:
        """Note what kept indexes tell of files; those that must be read are left."""
        left = {}
        for file, task in tasks.items():
            gone = None
            index = sought.known_index(_index_name(self.head, task, sought.columns))
            if index is not None and task.delete_files:
                live = (yield from self._live_of(task)) if marks(self.head, task) else None
                if live is None or live.in_file != index.rows.num_rows:
                    index = None
                else:
                    self.live[file], gone = live, live.gone
            if index is not None and sought.suffices(hits := sought.search_index(index, gone)):
                sought.note(file, hits)
            else:
                left[file] = task
        return left

    def _live_rows(
        self, tasks: Mapping[str, FileScanTask], columns: tuple[str, ...] | None, sought: KeySearch
    ) -> Generator[Effect, Outcome, list[pa.Table]]:
        """As ``rows_of``; where rows are marked as gone we leave them out, for PyIceberg takes longer to do so than to read."""
        from pyiceberg.table import FileScanTask

        head, schema = self.head, self._schema
        for file, task in tasks.items():
            if task.delete_files and marks(head, task):
                self.live[file] = yield from self._live_of(task)
        bare = [
            task if self.live.get(file) is None else FileScanTask(task.file) for file, task in tasks.items()
        ]
        tables = yield from rows_of(head, bare, schema, self.limits, columns)
        for number, (file, task) in enumerate(tasks.items()):
            live = self.live.get(file)
            is_whole = not bare[number].delete_files and tables[number].num_rows == task.file.record_count
            if is_whole:
                name = _index_name(head, task, sought.columns)
                if sought.wants_index(name, task.file.record_count):
                    sought.kept_index(name, tables[number])
            if live is not None and live.in_file == tables[number].num_rows:
                tables[number] = tables[number].filter(pa.array(live.flags()))
            elif live is not None:  # the file has other rows than its entry says
                self.live[file] = None
                (tables[number],) = yield from rows_of(head, [task], schema, self.limits, columns)
        return tables


def marks(head: TableVersion, task: FileScanTask) -> bool:
    """Whether rows of a file are marked as gone, for the table is merge-on-read."""
    from safewrite.iceberg.write import position_deletes

    return position_deletes.is_asked(table_of(head).metadata) and position_deletes.is_plain(task)


def _index_name(head: TableVersion, task: FileScanTask, columns: tuple[str, ...]) -> IndexName:
    """Binds an index to one file of one table, to the ids of its rows, and to the columns, by their ids, as the table has them now."""
    file, schema = task.file, kept_schema(table_of(head).metadata)
    fields = [schema.find_field(name) for name in columns]
    kinds = tuple((field.field_id, field.name, str(field.field_type)) for field in fields)
    return (
        head.table_id,
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        first_id(file),
        kinds,
    )


def size_of(task: FileScanTask) -> int:
    """The bytes of a data file."""
    return int(task.file.file_size_in_bytes)
