"""Takes rows out of data files: rewrites them a few at a time, or marks the rows as gone in deletion vectors.

In memory are the files that are worked on, those that go up and those that come next.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.lookup.candidate_rows import GoneRows, filtered
from safewrite.changes.lookup.table_files import FileRemainder, LiveFile
from safewrite.changes.meaning.positions import Flags
from safewrite.changes.tasks.abc import between_looks
from safewrite.delta.data.row_ids import copied_columns, tracked
from safewrite.delta.data.rows import check_within, contents, size_of, whole_rows
from safewrite.delta.data.variants import with_variants
from safewrite.delta.data.vector_files import marked
from safewrite.delta.log.actions import Action, FileKey
from safewrite.delta.log.features import check_overwrite, marks_rows
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.write.file_changes import FileRewrite, FileVerdict
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.frames.parallel import Begun, Handed, given_back, windows
from safewrite.frames.prepare import Prepared, prepare
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.member_queue import Steps

if TYPE_CHECKING:
    from safewrite.changes.tasks.abc import BatchWork
    from safewrite.delta.data.datafiles import DataFile
    from safewrite.delta.data.vector_files import Vectors


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """How many rows of a file stay, of how many, and the files that they are in then; ``gone`` are rows that were asked for."""

    rows: int
    of: int
    files: Sequence[DataFile] = ()
    gone: pa.Table | None = None


def live_file(key: FileKey, add: Action) -> LiveFile:
    """A live file as it is looked through and rewritten."""
    return LiveFile(named(key), add, size_of(add))


def named(key: FileKey) -> str:
    """What a live file is called among those that are looked through."""
    return f"{key[0]}#{key[1] or ''}"


@dataclass
class RowRemoval:
    """Takes rows out of the files of a table.  What was made of a file serves every plan in which the same rows stay."""

    state: Snapshot
    work: BatchWork
    vectors: Vectors
    limits: Limits
    _made: dict[tuple[Any, ...], FileRewrite] = field(default_factory=dict, repr=False)

    def take_out(
        self,
        losing: Mapping[FileKey, Action],
        gone: GoneRows[FileKey],
        look: Callable[[], Steps] | None = None,
    ) -> Generator[Effect, Outcome, dict[FileKey, FileRewrite]]:
        """Take rows out of files: by deletion vectors where the table wants them, else by files without these rows.

        ``look`` is run wherever many files were written again and others are left.

        Raises:
            Whatever ``look`` raises.
            UnsupportedTableError: a file is of another table too, or a row cannot be written again without loss.
            StorageError: a file is gone or damaged, or the store gave no answer.
        """
        if losing:
            check_overwrite(self.state)
        for add in losing.values():
            check_within(add)
        yield from self.vectors.fetch(losing.values(), self.limits)
        if marks_rows(self.state) and not gone.is_cut:  # after a truncate the rows must be looked at
            yield from self._mark(self._lacking(losing, gone), gone)
        left = self._lacking(losing, gone)
        work = [(key, live_file(key, add)) for key, add in left.items()]
        for number, some in enumerate(between_looks(work, looks=look is not None)):
            if number and look is not None:
                yield from look()
            rests = yield from self.work.rewrite(
                [(file, gone.places(key)) for key, file in some], gone.before
            )
            for key, file in some:
                rest = rests[file.name]
                verdict = FileVerdict.REWRITE if rest.rows else FileVerdict.REMOVE
                verdict = FileVerdict.KEEP if rest.rows == rest.of else verdict
                self._made[gone.mark(key)] = FileRewrite(verdict, rest.rows, rest.files, changes=rest.changes)
        return {key: self._made[gone.mark(key)] for key in losing}

    def _lacking(self, losing: Mapping[FileKey, Action], gone: GoneRows[FileKey]) -> dict[FileKey, Action]:
        return {key: add for key, add in losing.items() if gone.mark(key) not in self._made}

    def paths(self) -> list[str]:
        """Where all files are that were made, on any base."""
        made = (file for one in self._made.values() for file in (*one.files, *one.changes))
        return [file.mark.path for file in made]

    def _mark(
        self, losing: Mapping[FileKey, Action], gone: GoneRows[FileKey]
    ) -> Generator[Effect, Outcome, None]:
        """Store the next vectors of files that keep most of their rows; one that loses all goes without a look."""
        wider, rows = {}, {}
        for key, add in losing.items():
            rows[key] = gone.counts[key] - len(gone.places(key))
            vector = self.vectors.widened(add, gone.places(key)) if rows[key] else None
            if vector is not None:
                wider[key] = vector
            elif not rows[key]:
                self._made[gone.mark(key)] = FileRewrite(FileVerdict.REMOVE)
        stored = yield from self.vectors.store(wider, self.limits)
        for key, named in stored.items():
            after = marked(losing[key], named)
            self._made[gone.mark(key)] = FileRewrite(FileVerdict.MARK, rows[key], marked=after)


@dataclass(frozen=True)
class Remaking:
    """Makes and uploads the files of rows that stay: a few at a time, while those before go up and those after come.

    ``encode`` makes the files that take the place of a file, which has a number among the others.  ``feed`` uploads rows for the change
    data feed.
    """

    state: Snapshot
    vectors: Vectors
    limits: Limits
    now_ms: int
    encode: Callable[[Action, int, Prepared], Iterable[DataFile]]
    feed: Callable[[pa.Table, int], Generator[Effect, Outcome, tuple[StagedFile, ...]]]

    def made(
        self,
        files: Mapping[str, Action],
        stays: Callable[[str, pa.Table], Flags],
        kept: Callable[[str], bytes | None],
        fed: Callable[[str, pa.Table], Flags] | None,
    ) -> Generator[Effect, Outcome, dict[str, FileRemainder]]:
        """What becomes of each file; ``kept`` are the bytes of one that was read before, ``fed`` its rows for the change data feed.

        Raises:
            UnsupportedTableError: a row cannot be written again without loss.
            StorageError: a file is gone, or the store gave no answer.
        """
        found, number = dict[str, FileRemainder](), 0
        before: tuple[list[str], Begun[RewrittenFile]] | None = None
        try:
            for some in windows([*files], lambda key: size_of(files[key])):
                bodies = yield from self._bodies({key: files[key] for key in some}, kept)
                rests = before[1].results() if before else []
                calls = [
                    partial(
                        given_back,
                        partial(
                            self._rest,
                            (files[key], number + place),
                            Handed(body),
                            partial(stays, key),
                            None if fed is None else partial(fed, key),
                        ),
                        size_of(files[key]),
                    )
                    for place, (key, body) in enumerate(zip(some, bodies, strict=True))
                ]
                number += len(some)
                last, before = before, (some, Begun(calls, alone=len(files) == 1))
                del bodies, calls
                if last:
                    made = yield from self._uploaded(rests, len(found))
                    found.update(zip(last[0], made, strict=True))
                del rests, last
            if before:
                made = yield from self._uploaded(before[1].results(), len(found))
                found.update(zip(before[0], made, strict=True))
        finally:
            if before:
                before[1].forget()
        return found

    def _bodies(
        self, some: Mapping[str, Action], kept: Callable[[str], bytes | None]
    ) -> Generator[Effect, Outcome, list[bytes]]:
        known = {key: kept(key) for key in some}
        lacking = [key for key, body in known.items() if body is None]
        adds = [some[key] for key in lacking]
        fetched = yield from contents(adds, self.limits, name="overwrite.get_data")
        asked = dict(zip(lacking, fetched, strict=True))
        return [asked[key] if body is None else body for key, body in known.items()]

    def _uploaded(
        self, rests: Sequence[RewrittenFile], first: int
    ) -> Generator[Effect, Outcome, list[FileRemainder]]:
        files = [file for rest in rests for file in rest.files]
        staged, made = iter((yield from stage(files, self.now_ms, self.limits))), []
        for number, rest in enumerate(rests, first):
            of_feed: tuple[StagedFile, ...] = ()
            if rest.gone is not None and rest.gone.num_rows:
                of_feed = yield from self.feed(rest.gone, number)
            made.append(FileRemainder(rest.rows, rest.of, tuple(next(staged) for _ in rest.files), of_feed))
        return made

    def _rest(
        self,
        file: tuple[Action, int],
        body: Handed[bytes],
        stays: Callable[[pa.Table], Flags],
        fed: Callable[[pa.Table], Flags] | None,
    ) -> RewrittenFile:
        """What becomes of a file that may lose rows.  Pure: it runs in a thread.

        Raises:
            UnsupportedTableError: a row cannot be written again without loss.
        """
        from safewrite.delta.data.julian_dates import check_calendar

        (add, number), state = file, self.state
        rows = tracked(state)
        table, footer = whole_rows(body.taken(), add, rows, None, self.vectors.of(add))
        flags, of = stays(table), table.num_rows
        gone = (
            None
            if fed is None
            else table.filter(pa.array(fed(table))).select(with_variants(state).schema.names)
        )
        if flags.all() or not flags.any():
            return RewrittenFile(int(flags.sum()), of, gone=gone)
        schema = copied_columns(state)
        columns = [table.column(name) for name in schema.names]
        del table
        kept = filtered(columns, schema, flags)
        check_calendar(footer, kept.drop_columns([*{*state.partition_by} & {*schema.names}]), add["path"])
        files = tuple(self.encode(add, number, prepare(kept, schema, stored=True)))
        return RewrittenFile(kept.num_rows, of, files, gone)
