"""Reads and writes the data files of a Delta table in a task, by the code that does so in this process."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

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
from safewrite.delta.data.datafiles import DataFile, FileLayout, encoded
from safewrite.delta.data.key_lookup import KEY_BYTES, look_through
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action
from safewrite.delta.log.features import feeds_changes
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.change_feed import change_rows, staged_changes
from safewrite.delta.write.overwrite import remainder
from safewrite.delta.write.row_files import Remaking
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.frames import Prepared, prepare
from safewrite.frames.parallel import windows
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.travel import StoreAddress
from safewrite.stores.world import run


@dataclass(frozen=True)
class DeltaTableFiles:
    """See :class:`safewrite.changes.lookup.table_files.TableFiles`; files are ``StagedFile``, handles are ``add`` actions."""

    store: StoreAddress
    version: int
    protocol: Action = field(repr=False)
    metadata: Action = field(repr=False)
    layout: FileLayout
    keys: tuple[str, ...]
    now_ms: int
    limits: Limits
    small: SmallReads = field(default_factory=SmallReads, repr=False, compare=False)

    @cached_property
    def state(self) -> Snapshot:
        """The table as it was planned on."""
        return Snapshot(self.version, self.protocol, self.metadata)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "state"}

    def named(self, write_id: str) -> DeltaTableFiles:
        """See the class."""
        return replace(self, layout=replace(self.layout, write_id=write_id))

    def look_up(self, files: Sequence[LiveFile], wanted: WantedKeys) -> Iterator[tuple[str, Hits]]:
        """See the class."""
        bytes_max = KEY_BYTES if wanted.hashes is None else len(files) * KEY_BYTES
        vectors = Vectors(self.store.root)
        for some in windows(files, lambda file: file.nbytes, files=LOOK_FILES, bytes_max=bytes_max):
            found = FoundKeys(wanted)
            with of_table():
                run(
                    self._looked({file.name: file.handle for file in some}, found, vectors),
                    self.store.world(),
                )
            self.small.keep(found)
            yield from found.found

    def _looked(
        self, files: dict[str, Action], found: FoundKeys, vectors: Vectors
    ) -> Generator[Effect, Outcome, None]:
        yield from vectors.fetch(files.values(), self.limits)
        yield from look_through(files, found, self.state, vectors, self.limits)

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> RowsThatCame:
        """See the class."""
        return run(self._written(come, gone, at), self.store.world())

    def _written(self, come: pa.Table, gone: pa.Table, at: str) -> Generator[Effect, Outcome, RowsThatCame]:
        layout = replace(self.layout, attempt=at)
        prepared = prepare(come, layout.schema, partition_by=layout.partition_by, stored=True)
        files = yield from stage(encoded(prepared, layout), self.now_ms, self.limits)
        changes: tuple[StagedFile, ...] = ()
        if feeds_changes(self.state) and (come.num_rows or gone.num_rows):
            rows, name = change_rows(gone, come, self.keys), f"{layout.write_id}-changes-{at}"
            changes = yield from staged_changes(rows, self.state, name, self.now_ms, self.limits)
        return RowsThatCame(prepared.rows, files, changes)

    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None, at: str
    ) -> dict[str, Rest]:
        """See the class."""
        with of_table():
            return run(self._rewritten(work, before, at), self.store.world())

    def _rewritten(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None, at: str
    ) -> Generator[Effect, Outcome, dict[str, Rest]]:
        files, gone = (
            {file.name: file.handle for file, _ in work},
            {file.name: places for file, places in work},
        )
        vectors, (names, cut) = Vectors(self.store.root), before or ((), None)
        yield from vectors.fetch(files.values(), self.limits)
        schema = pa.schema([one for one in self.state.schema if one.name not in self.state.partition_by])
        layout = replace(self.layout, schema=schema, partition_by=(), room=None)

        def encode(add: Action, number: int, kept: Prepared) -> Iterator[DataFile]:
            return iter(remainder(add, kept, replace(layout, attempt=f"{at}-kept{number}")))

        made = yield from Remaking(self.state, vectors, self.limits, self.now_ms, encode).made(
            files,
            lambda name, table: staying(table, gone[name], names, cut),
            self.small.pop,
        )
        return {name: Rest(one.rows, one.of, tuple(one.files)) for name, one in made.items()}
