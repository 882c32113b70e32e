"""Takes the rows for which a predicate is TRUE out of the files of a table, on one base after another.

Data files never change: what was found in one holds however often others mark rows of it as gone, less the rows that went.  Only
files that came are read (decision 0068).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import filtered
from safewrite.changes.meaning.positions import Flags
from safewrite.delta.data.datafiles import DataFile, FileLayout, encoded, layout_of
from safewrite.delta.data.julian_dates import check_calendar
from safewrite.delta.data.pruning import constants, may_match
from safewrite.delta.data.row_ids import copied_columns, tracked
from safewrite.delta.data.rows import body_of, check_within, matching, read_rows, whole_rows
from safewrite.delta.data.variants import with_variants
from safewrite.delta.data.vector_files import Vectors, marked
from safewrite.delta.log.actions import Action, FileKey, file_key
from safewrite.delta.log.features import feeds_changes, marks_rows
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.change_feed import rows_of_files
from safewrite.delta.write.file_changes import DeltaChange, FileRewrite, FileVerdict, change_of
from safewrite.delta.write.staging import stage
from safewrite.frames.predicate import Predicate, columns, possible
from safewrite.frames.prepare import Prepared, prepare
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome

if TYPE_CHECKING:
    from pyroaring import BitMap64


@dataclass(frozen=True, slots=True)
class _Matches:
    """Which of the live rows of a file match, a bit for each."""

    add: Action
    bits: npt.NDArray[np.uint8]
    rows: int

    @classmethod
    def of(cls, add: Action, goes: Flags) -> _Matches:
        return cls(add, np.packbits(goes), len(goes))

    @property
    def goes(self) -> Flags:
        return np.unpackbits(self.bits, count=self.rows).view(np.bool_)


@dataclass
class MatchingFiles:
    """The files of a table as a predicate takes rows out of them; ``write_id`` is in the names of those in their place.

    ``made`` says what becomes of each file that was seen, by its path and vector: it serves every base that has this file.
    """

    predicate: Predicate
    write_id: str
    target_file_size: int
    timestamp_ms: int
    vectors: Vectors
    limits: Limits
    made: dict[FileKey, FileRewrite] = field(default_factory=dict, repr=False)
    _looked: dict[str, _Matches] = field(default_factory=dict, repr=False)
    """What was found last in a file that was read, by its path."""
    _gone: dict[FileKey, pa.Table] = field(default_factory=dict, repr=False)
    """The rows that go of each file, where the change data feed may need them."""
    _rewrites: int = 0

    def change(
        self, live: Mapping[FileKey, Action], state: Snapshot, schema: pa.Schema
    ) -> Generator[Effect, Outcome, DeltaChange]:
        """What becomes of these live files; ``schema`` is that of the table after the write.

        Raises:
            UnsupportedTableError: a file cannot be rewritten without loss.
            StorageError: no answer, or a data file or deletion vector that is not what the log says.
        """
        undecided = self._undecided(live, state)
        for key in undecided:
            check_within(live[key])
        yield from self.vectors.fetch([live[key] for key in undecided], self.limits)
        found: dict[FileKey, FileRewrite] = {}
        wider: dict[FileKey, BitMap64] = {}
        for key in undecided:
            found[key] = yield from self._rewrite(live[key], state, schema, wider)
        for key, vector in (yield from self.vectors.store(wider, self.limits)).items():
            found[key] = replace(found[key], marked=marked(live[key], vector))
        self.made |= found  # nothing is known of a file before its vector is there
        return change_of((add, self.made[key]) for key, add in live.items())

    def rows_that_go(
        self, removed: Sequence[Action], state: Snapshot
    ) -> Generator[Effect, Outcome, list[pa.Table]]:
        """The rows that go of files, for the change data feed; those of files that go unread are read.

        Raises:
            StorageError: as :meth:`change`.
        """
        unread = [add for add in removed if file_key(add) not in self._gone]
        self._gone |= yield from rows_of_files(unread, state, self.vectors, self.limits)
        return [self._gone[file_key(add)] for add in removed]

    # --- one file -----------------------------------------------------------------------------------
    def _undecided(self, live: Mapping[FileKey, Action], state: Snapshot) -> list[FileKey]:
        """Decide by partition values and statistics; returns the files whose rows must be looked at."""
        found: list[FileKey] = []
        for key, add in live.items():
            if key in self.made:
                continue
            if possible(self.predicate, self._constants(add, state)) == {True}:
                self.made[key] = FileRewrite(FileVerdict.REMOVE)
            elif not may_match(self.predicate, add, state=state):
                self.made[key] = FileRewrite(FileVerdict.KEEP)
            else:
                found.append(key)
        return found

    def _constants(self, add: Action, state: Snapshot) -> dict[str, Any]:
        """Columns of the predicate that have one value in all rows of a file: partition columns, and new ones (NULL)."""
        return constants(columns(self.predicate), add, state)

    def _rewrite(
        self, add: Action, state: Snapshot, schema: pa.Schema, wider: dict[FileKey, BitMap64]
    ) -> Generator[Effect, Outcome, FileRewrite]:
        """What becomes of a file, with the files of its other rows; its next vector goes to ``wider``."""
        before, body = self._looked.get(add["path"]), None
        goes = None if before is None else self._followed(before, add)
        if goes is None:
            before, body = None, (yield from body_of(add, self.limits))
            goes = self._matching(body, add, state, schema)
        self._looked[add["path"]] = _Matches.of(add, goes)
        if not goes.any():
            return FileRewrite(FileVerdict.KEEP)
        if goes.all():
            return FileRewrite(FileVerdict.REMOVE)
        places = np.flatnonzero(goes)
        stay = len(goes) - len(places)
        vector = self.vectors.widened(add, places) if marks_rows(state) else None
        if vector is not None:
            wider[file_key(add)] = vector
            return FileRewrite(FileVerdict.MARK, stay)
        made = None if before is None else self.made.get(file_key(before.add))
        if made is not None and made.verdict is FileVerdict.REWRITE and made.rows == stay:
            return made  # others took away nothing but rows that go
        body = body or (yield from body_of(add, self.limits))
        rows, footer = whole_rows(body, add, tracked(state), None, self.vectors.of(add))
        schema = copied_columns(state)
        kept = filtered([rows.column(name) for name in schema.names], schema, ~goes)
        check_calendar(
            footer, kept.drop_columns([*{*state.partition_by} & {*schema.names}]), unquote(add["path"])
        )
        rest = self._remainder(add, prepare(kept, schema, stored=True), state)
        files = yield from stage(rest, self.timestamp_ms, self.limits)
        return FileRewrite(FileVerdict.REWRITE, stay, files)

    def _followed(self, before: _Matches, add: Action) -> Flags | None:
        """Which rows match of a file that others marked rows of since; None where it must be looked at again."""
        left = self.vectors.stays(before.add, add)
        if left is None or len(left) != before.rows:
            return None
        was = before.goes
        if (gone := self._gone.get(file_key(before.add))) is not None:
            self._gone[file_key(add)] = gone.filter(pa.array(left[was]))
        return was[left]

    def _matching(self, body: bytes, add: Action, state: Snapshot, schema: pa.Schema) -> Flags:
        """Which live rows of a file match."""
        names = sorted(columns(self.predicate) & {*state.schema.names})
        rows, _ = read_rows(body, add, state, names, self.vectors.of(add))
        goes = matching(rows, self._constants(add, state), self.predicate, schema)
        if feeds_changes(state) and goes.any():
            whole, _ = whole_rows(body, add, with_variants(state), None, self.vectors.of(add))
            self._gone[file_key(add)] = whole.filter(pa.array(goes))
        return goes

    def _remainder(self, add: Action, kept: Prepared, state: Snapshot) -> Iterable[DataFile]:
        self._rewrites += 1
        name = f"{self.write_id}-kept{self._rewrites}"
        return remainder(add, kept, layout_of(state, kept.schema, (), name, self.target_file_size))


def remainder(add: Action, kept: Prepared, layout: FileLayout) -> Iterable[DataFile]:
    """The files that take a file's place, of its rows that stay, in its folder."""
    path = unquote(add["path"])
    folder = path[: path.rfind("/") + 1]
    values = dict(add.get("partitionValues") or {})
    return (
        replace(file, path=folder + file.path, partition_values=values)
        for file in encoded(kept, layout.copying())
    )
