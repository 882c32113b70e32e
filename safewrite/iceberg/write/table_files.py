"""Reads and writes the data files of an Iceberg table in a task, by the code that does so in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import Hits, staying
from safewrite.changes.lookup.table_files import (
    LOOK_FILES,
    Before,
    FoundKeys,
    LiveFile,
    Rest,
    RowsThatCame,
    SmallReads,
    WantedKeys,
    of_table,
)
from safewrite.changes.meaning.positions import Numbers
from safewrite.frames import prepare
from safewrite.frames.parallel import windows
from safewrite.iceberg.catalog.travel import OpenedTable, TableAddress
from safewrite.iceberg.data.datafiles import StagedFile, encode
from safewrite.iceberg.data.schema import arrow_schema
from safewrite.iceberg.metadata import table_of
from safewrite.iceberg.write.key_lookup import LOOKED_BYTES, Looking
from safewrite.iceberg.write.row_files import Remaking
from safewrite.iceberg.write.staging import UploadedFile, uploaded
from safewrite.protocol.ask import Limits
from safewrite.stores.world import run


@dataclass(frozen=True)
class IcebergTableFiles:
    """See :class:`safewrite.changes.lookup.table_files.TableFiles`; files are ``UploadedFile``, handles are ``FileScanTask``."""

    table: TableAddress
    write_id: str
    target_file_size: int
    limits: Limits
    small: SmallReads = field(default_factory=SmallReads, repr=False, compare=False)

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
            self.small.keep(found)
            yield from found.found

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> RowsThatCame:
        """See the class."""
        return RowsThatCame(come.num_rows, self._stored(self.table.open(), come, at))

    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None, at: str
    ) -> dict[str, Rest]:
        """See the class."""
        opened, (names, cut) = self.table.open(), before or ((), None)
        gone = {file.name: places for file, places in work}
        with of_table():
            made = run(
                Remaking(
                    opened.head,
                    self._schema(opened),
                    self.limits,
                    (partial(self._encoded, opened, at=f"{at}-kept{number}") for number in range(len(work))),
                    partial(uploaded, limits=self.limits),
                ).made(
                    {file.name: file.handle for file, _ in work},
                    lambda name, rows: staying(rows, gone[name], names, cut),
                    self.small.pop,
                ),
                opened.world,
            )
        return {
            name: Rest(loss.of - loss.rows, loss.of, tuple(files)) for name, (loss, files) in made.items()
        }

    def _stored(self, opened: OpenedTable, rows: pa.Table, at: str) -> tuple[UploadedFile, ...]:
        if not rows.num_rows:
            return ()
        return run(uploaded(self._encoded(opened, rows, at=at), self.limits), opened.world)

    def _encoded(self, opened: OpenedTable, rows: pa.Table, *, at: str) -> Iterable[StagedFile]:
        table = table_of(opened.head)
        return encode(
            prepare(rows, self._schema(opened), stored=True),
            metadata=table.metadata,
            location=table.location_provider(),
            write_id=f"{self.write_id}-{at}",
            target_file_size=self.target_file_size,
        )

    @staticmethod
    def _schema(opened: OpenedTable) -> pa.Schema:
        return arrow_schema(table_of(opened.head).metadata.schema())
