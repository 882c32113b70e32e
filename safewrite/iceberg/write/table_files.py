"""Reads and writes the data files of an Iceberg table in a task, by the code that does so in this process."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.table import FileScanTask

from safewrite.changes.lookup.candidate_rows import Hits, filtered, staying
from safewrite.changes.lookup.table_files import (
    LOOK_FILES,
    Before,
    FoundKeys,
    LiveFile,
    Rest,
    RowsThatCame,
    WantedKeys,
    of_table,
)
from safewrite.changes.meaning.positions import Numbers
from safewrite.frames import prepare
from safewrite.frames.parallel import windows
from safewrite.iceberg.catalog.travel import OpenedTable, TableAddress
from safewrite.iceberg.data.datafiles import encode
from safewrite.iceberg.data.reading import rows_of
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.key_lookup import LOOKED_BYTES, Looking
from safewrite.iceberg.write.staging import UploadedFile, uploaded
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.world import run


@dataclass(frozen=True)
class IcebergTableFiles:
    """See :class:`safewrite.changes.lookup.table_files.TableFiles`; files are ``UploadedFile``, handles are ``FileScanTask``."""

    table: TableAddress
    write_id: str
    target_file_size: int
    limits: Limits

    def named(self, write_id: str) -> IcebergTableFiles:
        """See the class."""
        return replace(self, write_id=write_id)

    def look_up(self, files: Sequence[LiveFile], wanted: WantedKeys) -> Iterator[tuple[str, Hits]]:
        """See the class."""
        opened = self.table.open()
        for some in windows(files, lambda file: file.nbytes, files=LOOK_FILES, bytes_max=LOOKED_BYTES):
            found = FoundKeys(wanted)
            looking = Looking[str](opened.head, self.limits)
            with of_table():
                run(looking.look({file.name: file.handle for file in some}, found), opened.world)
            yield from found.found

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> RowsThatCame:
        """See the class."""
        return RowsThatCame(come.num_rows, self._stored(self.table.open(), come, at))

    def rewrite(self, file: LiveFile, gone: Numbers, before: Before | None, at: str) -> Rest:
        """See the class."""
        opened = self.table.open()
        with of_table():
            (rows,) = run(self._read(opened, file.handle), opened.world)
            names, cut = before or ((), None)
            stays = staying(rows, gone, names, cut)
            left = int(np.count_nonzero(stays))
            if left in (0, rows.num_rows):
                return Rest(left, rows.num_rows)
            columns, schema = rows.columns, rows.schema
            del rows
            rest = filtered(columns, schema, stays)
            return Rest(left, len(stays), self._stored(opened, rest, at))

    def _read(self, opened: OpenedTable, task: FileScanTask) -> Generator[Effect, Outcome, list[pa.Table]]:
        return (yield from rows_of(opened.head, [task], self._schema(opened), self.limits))

    def _stored(self, opened: OpenedTable, rows: pa.Table, at: str) -> tuple[UploadedFile, ...]:
        if not rows.num_rows:
            return ()
        table = table_of(opened.head)
        files = encode(
            prepare(rows, self._schema(opened), stored=True),
            metadata=table.metadata,
            location=table.location_provider(),
            write_id=f"{self.write_id}-{at}",
            target_file_size=self.target_file_size,
        )
        return run(uploaded(files, self.limits), opened.world)

    @staticmethod
    def _schema(opened: OpenedTable) -> pa.Schema:
        return arrow_schema(table_of(opened.head).metadata.schema())
