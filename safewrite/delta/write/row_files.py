"""Takes rows out of data files: rewrites them a few at a time, or marks the rows as gone in deletion vectors.

In memory are the files that are worked on, those that go up and those that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import FileT, GoneRows, filtered
from safewrite.changes.meaning.positions import Flags
from safewrite.delta.data.rows import contents, size_of, whole_rows
from safewrite.delta.data.vector_files import marked
from safewrite.delta.log.actions import Action, FileKey
from safewrite.delta.log.features import feeds_changes, marks_rows
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.overwrite import FileVerdict, OverwriteTransaction
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.frames import Prepared, prepare
from safewrite.frames.parallel import Begun, Handed, given_back, windows
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.data.vector_files import Vectors


@dataclass(frozen=True, slots=True)
class FileRest:
    """What becomes of a file, how many of its rows stay, of how many, and the files that they are in then."""

    verdict: FileVerdict
    rows: int
    of: int
    files: Sequence[DataFile] = ()
    gone: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class MadeOfFile:
    """What became of a file: the uploaded files of its other rows, or its next deletion vector."""

    verdict: FileVerdict
    rows: int
    files: Sequence[StagedFile] = ()
    vector: Action | None = None
    gone: pa.Table | None = None
    """The rows that a truncate took, where the table's change data feed is on."""
    of: int = 0
    """How many rows the file had, where they were read."""


@dataclass
class RowFilesTransaction(OverwriteTransaction):
    """A write that takes single rows out of files.  What was made of a file serves every plan in which the same rows stay."""

    _made: dict[tuple[Any, ...], MadeOfFile] = field(default_factory=dict, repr=False)
    _rests: int = 0
    """How many files were rewritten so far, in all plans."""

    def _take_out(
        self, losing: Sequence[FileKey], touched: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, None]:
        """Take rows out of files: by deletion vectors where the table wants them, else by files without these rows."""
        live, staged = self.planned().adds, list[StagedFile]()
        yield from self._mark([key for key in losing if touched.mark(key) not in self._made], touched)
        yield from self._make([key for key in losing if touched.mark(key) not in self._made], touched)
        self.marked = {}
        for key in losing:
            made = self._made[touched.mark(key)]
            self.verdicts[key], self.kept[key] = made.verdict, made.rows
            staged += made.files
            if made.vector is not None:
                self.marked[key] = marked(live[key], made.vector)
        self.rewritten = tuple(staged)

    def _gone_rows(self, touched: GoneRows[FileKey]) -> pa.Table:
        """The rows that the commit takes away; all columns of them, where files were looked through so."""
        if not touched.is_cut:
            return touched.gone_rows()
        made = [self._made[touched.mark(key)] for key in self.planned().adds if touched.may_lose(key)]
        return pa.concat_tables(
            [touched.gone_rows().slice(0, 0), *(one.gone for one in made if one.gone is not None)]
        )

    def _mark(
        self, losing: Sequence[FileKey], touched: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, None]:
        """Store the next vectors of files that keep most of their rows; one that loses all goes without a look."""
        assert self.state is not None
        if touched.is_cut or not marks_rows(self.state):  # after a truncate the rows must be looked at
            return
        live, wider, rows = self.planned().adds, {}, {}
        for key in losing:
            gone = touched.gone(key)
            assert gone is not None
            rows[key] = touched.rows_of(key) - len(gone)
            vector = self.vectors.widened(live[key], gone) if rows[key] else None
            if vector is not None:
                wider[key] = vector
            elif not rows[key]:
                self._made[touched.mark(key)] = MadeOfFile(FileVerdict.REMOVE, 0)
        stored = yield from self.vectors.store(wider, self.limits)
        for key, named in stored.items():
            self._made[touched.mark(key)] = MadeOfFile(FileVerdict.MARK, rows[key], vector=named)

    def _make(
        self, losing: Sequence[FileKey], touched: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, None]:
        """Make and upload the files of rows that stay."""
        assert self.state is not None
        live, first = self.planned().adds, self._rests
        self._rests += len(losing)
        remaking = Remaking(
            self.state,
            self.vectors,
            self.limits,
            self.timestamp_ms,
            lambda add, number, kept: self.remainder(add, kept, first + number),
            keeps_gone=touched.is_cut and feeds_changes(self.state),
        )
        made = yield from remaking.made({key: live[key] for key in losing}, touched.stays, touched.kept)
        self._made |= {touched.mark(key): one for key, one in made.items()}


@dataclass(frozen=True)
class Remaking:
    """Makes and uploads the files of rows that stay: a few at a time, while those before go up and those after come.

    ``encode`` makes the files that take the place of a file, which has a number among the others.
    """

    state: Snapshot
    vectors: Vectors
    limits: Limits
    now_ms: int
    encode: Callable[[Action, int, Prepared], Iterable[DataFile]]
    keeps_gone: bool = False
    """Whether rows that go are given."""

    def made(
        self,
        files: Mapping[FileT, Action],
        stays: Callable[[FileT, pa.Table], Flags],
        kept: Callable[[FileT], bytes | None],
    ) -> Generator[Effect, Outcome, dict[FileT, MadeOfFile]]:
        """What becomes of each file; ``kept`` are the bytes of one that was read before.

        Raises:
            UnsupportedTableError: a row cannot be written again without loss.
            StorageError: a file is gone, or the store gave no answer.
        """
        found, number = dict[FileT, MadeOfFile](), 0
        before: tuple[list[FileT], Begun[FileRest]] | None = None
        try:
            for some in windows([*files], lambda key: size_of(files[key])):
                bodies = yield from self._bodies({key: files[key] for key in some}, kept)
                rests = before[1].results() if before else []
                calls = [
                    partial(
                        given_back,
                        partial(self._rest, files[key], number + place, partial(stays, key), Handed(body)),
                        size_of(files[key]),
                    )
                    for place, (key, body) in enumerate(zip(some, bodies, strict=True))
                ]
                number += len(some)
                last, before = before, (some, Begun(calls, alone=len(files) == 1))
                del bodies, calls
                if last:
                    found.update(zip(last[0], (yield from self._uploaded(rests)), strict=True))
                del rests, last
            if before:
                made = yield from self._uploaded(before[1].results())
                found.update(zip(before[0], made, strict=True))
        finally:
            if before:
                before[1].forget()
        return found

    def _bodies(
        self, some: Mapping[FileT, Action], kept: Callable[[FileT], bytes | None]
    ) -> Generator[Effect, Outcome, list[bytes]]:
        known = {key: kept(key) for key in some}
        lacking = [key for key, body in known.items() if body is None]
        adds = [some[key] for key in lacking]
        fetched = yield from contents(adds, self.limits, name="overwrite.get_data")
        asked = dict(zip(lacking, fetched, strict=True))
        return [asked[key] if body is None else body for key, body in known.items()]

    def _uploaded(self, rests: Sequence[FileRest]) -> Generator[Effect, Outcome, list[MadeOfFile]]:
        files = [file for rest in rests for file in rest.files]
        staged = iter((yield from stage(files, self.now_ms, self.limits)))
        return [
            MadeOfFile(
                rest.verdict, rest.rows, tuple(next(staged) for _ in rest.files), gone=rest.gone, of=rest.of
            )
            for rest in rests
        ]

    def _rest(
        self, add: Action, number: int, stays: Callable[[pa.Table], Flags], body: Handed[bytes]
    ) -> FileRest:
        """What becomes of a file that may lose rows.  Pure: it runs in a thread."""
        read = whole_rows(body.taken(), add, self.state, None, self.vectors.of(add))
        encode = partial(self.encode, add, number)
        return rest_of(read, add, self.state, stays, encode, keeps_gone=self.keeps_gone)


def rest_of(
    read: tuple[pa.Table, pq.FileMetaData],
    add: Action,
    state: Snapshot,
    stays_of: Callable[[pa.Table], Flags],
    encode: Callable[[Prepared], Iterable[DataFile]],
    *,
    keeps_gone: bool = False,
) -> FileRest:
    """What becomes of a file that may lose rows, of which the live ones and the footer were read.

    Raises:
        UnsupportedTableError: a row cannot be written again without loss.
    """
    from safewrite.delta.data.julian_dates import check_calendar

    table, footer = read
    stays = stays_of(table)
    if stays.all():
        return FileRest(FileVerdict.KEEP, table.num_rows, table.num_rows)
    gone = table.filter(pa.array(~stays)) if keeps_gone else None
    if not stays.any():
        return FileRest(FileVerdict.REMOVE, 0, table.num_rows, gone=gone)
    schema = pa.schema([f for f in state.schema if f.name not in state.partition_by])
    columns = [table.column(name) for name in schema.names]
    of = table.num_rows
    del read, table
    kept = filtered(columns, schema, stays)
    check_calendar(footer, kept, add["path"])
    files = tuple(encode(prepare(kept, schema, stored=True)))
    return FileRest(FileVerdict.REWRITE, kept.num_rows, of, files, gone)
