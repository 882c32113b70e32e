"""Takes rows out of data files: rewrites them a few at a time, or marks the rows as gone in deletion vectors.

In memory are the files that are worked on, those that go up and those that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows, filtered
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
from safewrite.protocol.effects import Effect, Outcome

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from safewrite.delta.data.datafiles import DataFile


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


@dataclass
class RowFilesTransaction(OverwriteTransaction):
    """A write that takes single rows out of files.  What was made of a file serves every plan in which the same rows stay."""

    _made: dict[tuple[Any, ...], MadeOfFile] = field(default_factory=dict, repr=False)
    _rests: int = 0
    """How many files were rewritten so far, in all plans."""

    def _contents(self, adds: Sequence[Action], name: str) -> Generator[Effect, Outcome, list[bytes]]:
        """The bytes of live data files, asked for together.

        Raises:
            StorageError: one is gone, or the store gave no answer.
        """
        return (yield from contents(adds, self.limits, name=name))

    def _rows(
        self, body: bytes, add: Action, names: Sequence[str] | None = None
    ) -> tuple[pa.Table, pq.FileMetaData]:
        """The live rows of a file with all of the table's columns, or with some."""
        assert self.state is not None
        return whole_rows(body, add, self.state, names, self.vectors.of(add))

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
        """Make and upload the files of rows that stay: a few at a time, while those before go up and those after come."""
        live = self.planned().adds
        alone = len(losing) == 1
        before: tuple[list[FileKey], Begun[FileRest]] | None = None
        try:
            for some in windows(losing, lambda key: size_of(live[key])):
                bodies = yield from self._contents_again(some, touched)
                made = before[1].results() if before else []
                calls = [
                    partial(
                        given_back,
                        partial(self._without, live[key], key, touched, Handed(body), self._rests + number),
                        size_of(live[key]),
                    )
                    for number, (key, body) in enumerate(zip(some, bodies, strict=True))
                ]
                self._rests += len(some)
                last, before = before, (some, Begun(calls, alone=alone))
                del bodies, calls
                if last:
                    yield from self._upload(last[0], made, touched)
                del made, last
            if before:
                yield from self._upload(before[0], before[1].results(), touched)
        finally:
            if before:
                before[1].forget()

    def _contents_again(
        self, some: Sequence[FileKey], touched: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, list[bytes]]:
        live = self.planned().adds
        kept = {key: touched.kept(key) for key in some}
        lacking = [key for key in some if kept[key] is None]
        fetched = yield from self._contents([live[key] for key in lacking], name="overwrite.get_data")
        kept |= dict(zip(lacking, fetched, strict=True))
        return [kept[key] for key in some]

    def _upload(
        self, some: Sequence[FileKey], made: Sequence[FileRest], touched: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, None]:
        files = [file for rest in made for file in rest.files]
        staged = iter((yield from stage(files, self.timestamp_ms, self.limits)))
        for key, rest in zip(some, made, strict=True):
            own = tuple(next(staged) for _ in rest.files)
            self._made[touched.mark(key)] = MadeOfFile(rest.verdict, rest.rows, own, gone=rest.gone)

    def _without(
        self, add: Action, key: FileKey, touched: GoneRows[FileKey], body: Handed[bytes], number: int
    ) -> FileRest:
        """What becomes of a file that may lose rows.  Pure: it runs in a thread."""
        assert self.state is not None
        stays = partial(touched.stays, key)
        encode = partial(self.remainder, add, number=number)
        keeps_gone = touched.is_cut and feeds_changes(self.state)
        return rest_of(self._rows(body.taken(), add), add, self.state, stays, encode, keeps_gone=keeps_gone)


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
