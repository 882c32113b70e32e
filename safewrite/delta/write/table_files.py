"""Reads and writes the data files of a Delta table, where a plan is made or in a task."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import Before, KeySearch, cut_off, staying
from safewrite.changes.lookup.table_files import (
    FileRemainder,
    Followed,
    Gathered,
    LiveFile,
    RowsThatCame,
    SmallReads,
)
from safewrite.changes.meaning.change_types import DELETE, typed
from safewrite.changes.meaning.positions import Flags, Numbers
from safewrite.delta.data.datafiles import DataFile, FileLayout, encoded
from safewrite.delta.data.key_lookup import look_through
from safewrite.delta.data.row_ids import copied_columns, tracked, with_lasting
from safewrite.delta.data.variants import with_variants
from safewrite.delta.data.vector_files import Vectors
from safewrite.delta.log.actions import Action, file_key
from safewrite.delta.log.features import feeds_changes
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.change_feed import change_rows, staged_changes
from safewrite.delta.write.matching_files import remainder
from safewrite.delta.write.row_files import Remaking, named
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.errors import InternalError
from safewrite.frames.prepare import Prepared, prepare
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.addresses import StoreAddress
from safewrite.stores.world import run

T = TypeVar("T")


@dataclass(frozen=True)
class DeltaTableFiles:
    """See :class:`safewrite.changes.lookup.table_files.TableFiles`; files are ``StagedFile``, handles are ``add`` actions.

    ``store`` is where tasks perform their effects; None where a plan does.
    """

    version: int
    protocol: Action = field(repr=False)
    metadata: Action = field(repr=False)
    layout: FileLayout
    keys: tuple[str, ...]
    now_ms: int
    limits: Limits
    vectors: Vectors
    store: StoreAddress | None = None
    small: SmallReads = field(default_factory=SmallReads, repr=False, compare=False)

    @cached_property
    def state(self) -> Snapshot:
        """The table as it was planned on."""
        return Snapshot(self.version, self.protocol, self.metadata)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name != "state"}
        return kept | {"vectors": Vectors(self.vectors.root)}

    def named(self, write_id: str) -> DeltaTableFiles:
        """See the class."""
        return replace(self, layout=replace(self.layout, write_id=write_id))

    def run(self, steps: Generator[Effect, Outcome, T]) -> T:
        """See the class."""
        if self.store is None:
            raise InternalError(
                "A task does not know where its table is. Nothing was committed. Please report it."
            )
        return run(steps, self.store.world())

    def look_up(self, files: Sequence[LiveFile], sought: KeySearch) -> Generator[Effect, Outcome, None]:
        """See the class."""
        handles = {file.name: file.handle for file in files}
        yield from look_through(handles, sought, tracked(self.state), self.vectors, self.limits)
        self.small.keep(sought)

    def followed(
        self, before: Sequence[LiveFile], after: Sequence[LiveFile]
    ) -> Generator[Effect, Outcome, Sequence[Followed]]:
        """See the class: those that have another deletion vector now.

        Rows that the next vector takes away are found no more, so none is marked twice; our vector holds both parts.
        """
        old = {file.handle["path"]: file for file in before}
        pairs = [(old[path], file) for file in after if (path := file.handle["path"]) in old]
        both = (file.handle for pair in pairs for file in pair)  # where tasks looked, none is known here
        yield from self.vectors.fetch(both, self.limits)
        stays = [self.vectors.stays(file.handle, now.handle) for file, now in pairs]
        return [
            (file.name, now.name, one)
            for (file, now), one in zip(pairs, stays, strict=True)
            if one is not None
        ]

    def gathered(self, after: Sequence[LiveFile]) -> Sequence[Gathered]:
        """See the class: those of which the tags of a compaction say it, and that have lost no row since."""
        moved = [(file.name, self.vectors.moved.get(file_key(file.handle)[0])) for file in after]
        whole = {file.name for file in after if not file.handle.get("deletionVector")}
        return [
            (name, [(named(one.source), one.first, one.rows) for one in parts])
            for name, parts in moved
            if parts is not None and name in whole
        ]

    def write(self, come: pa.Table, gone: pa.Table, at: str) -> Generator[Effect, Outcome, RowsThatCame]:
        """See the class."""
        layout = replace(self.layout, attempt=at, schema=with_lasting(self.layout.schema, come, self.state))
        prepared = prepare(come, layout.schema, partition_by=layout.partition_by, stored=True)
        if layout.rules is not None:
            layout.rules.check(prepared.tables(), self.keys)
            prepared = replace(prepared, keeps=layout.rules)
        files = yield from stage(encoded(prepared, layout), self.now_ms, self.limits)
        changes: tuple[StagedFile, ...] = ()
        if feeds_changes(self.state) and (come.num_rows or gone.num_rows):
            names = with_variants(self.state).schema.names
            changes = yield from self._fed(change_rows(gone.select(names), come.select(names), self.keys), at)
        return RowsThatCame(prepared.rows, files, changes)

    def _fed(self, rows: pa.Table, at: str) -> Generator[Effect, Outcome, tuple[StagedFile, ...]]:
        name = f"{self.layout.write_id}-changes-{at}"
        return (yield from staged_changes(rows, self.state, name, self.now_ms, self.limits))

    def rewrite(
        self, work: Sequence[tuple[LiveFile, Numbers]], before: Before | None, at: str
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """See the class."""
        files = {file.name: file.handle for file, _ in work}
        gone = {file.name: places for file, places in work}
        yield from self.vectors.fetch(files.values(), self.limits)
        layout = replace(self.layout, schema=copied_columns(self.state), partition_by=(), room=None)

        def encode(add: Action, number: int, kept: Prepared) -> Iterable[DataFile]:
            return remainder(add, kept, replace(layout, attempt=f"{at}-kept{number}"))

        def stays(name: str, table: pa.Table) -> Flags:
            return staying(table, gone[name], before)

        def fed(name: str, table: pa.Table) -> Flags:
            """What a truncate alone took: rows that go by their keys are told with those that come."""
            assert before is not None
            flags = cut_off(table, before)
            flags[gone[name]] = np.False_
            return flags

        remaking = Remaking(
            self.state,
            self.vectors,
            self.limits,
            self.now_ms,
            encode,
            lambda rows, number: self._fed(typed(rows, DELETE), f"{at}-kept{number}"),
        )
        feeds = before is not None and feeds_changes(self.state)
        return (yield from remaking.made(files, stays, self.small.pop, fed if feeds else None))
