"""The tasks by which changes get into a table: looks keys up, decides and writes, and rewrites files that lose rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.lookup.candidate_rows import Hits
from safewrite.changes.lookup.key_index import key_hashes
from safewrite.changes.lookup.table_files import Before, LiveFile, Rest, RowsThatCame, TableFiles, WantedKeys
from safewrite.changes.meaning.positions import Flags, Numbers, meeting
from safewrite.changes.meaning.reading import loose
from safewrite.changes.tasks.by_part import FILE, KIND, POS, Answer, Question, RowKind, answered, questioned
from safewrite.engine.abc import Given, TaskAttempt
from safewrite.engine.exchange import CHUNKS, Dealt, Share
from safewrite.frames.columns import filled

GIVEN_ROWS = 100_000
"""Rows of several files are dealt together up to so many."""


@dataclass(frozen=True)
class Looked:
    """What a look-up found: by file how many live rows it has, and how many of them were given."""

    of: dict[str, int]
    given: dict[str, int]


@dataclass(frozen=True)
class LookUp:
    """Gives the rows of groups of files that have keys of a batch; its input are numbers of groups."""

    files: TableFiles
    groups: tuple[tuple[LiveFile, ...], ...]
    wanted: WantedKeys
    buckets: int
    columns: pa.Schema = CHUNKS

    def __call__(self, batches: Iterable[pa.RecordBatch], at: TaskAttempt) -> Generator[Given, None, Looked]:
        """Look through the files of these groups."""
        found = Looked({}, {})
        some: list[pa.Table] = []
        for name, hits in self._hits(batches):
            found.of[name], found.given[name] = hits.of, hits.rows.num_rows
            some.append(self._named(name, hits))
            if sum(one.num_rows for one in some) >= GIVEN_ROWS:
                yield from self._dealt(some)
                some = []
        yield from self._dealt(some)
        return found

    def _hits(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, Hits]]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.files.look_up(self.groups[number], self.wanted)

    def _named(self, name: str, hits: Hits) -> pa.Table:
        rows, wanted = hits.rows, self.wanted
        if not wanted.whole:
            rows = rows.select([*wanted.keys, *wanted.sequence_by])
        count = rows.num_rows
        for column, values in (
            (KIND, pa.repeat(pa.scalar(int(RowKind.ROW), pa.int8()), count)),
            (FILE, pa.repeat(pa.scalar(name, pa.string()), count)),
            (POS, pa.array(hits.numbers, pa.int64())),
        ):
            rows = rows.append_column(column, values)
        return rows

    def _dealt(self, some: list[pa.Table]) -> Iterator[Dealt]:
        if some:
            rows = pa.concat_tables(some)
            yield Dealt(rows, key_hashes(rows, self.wanted.keys), self.buckets)


@dataclass(frozen=True)
class AppliedPart:
    """What became of a part: what was decided, what was written, and how many changes and rows of the table came to it."""

    answer: Answer
    written: RowsThatCame
    changes: int
    rows: int


@dataclass(frozen=True)
class ApplyPart:
    """Decides about the keys of a part, and writes the rows that come; its input are shares of changes and of rows of the table.

    Rows of files in ``gone``, which were looked through and are in the table no more, do not count.
    """

    files: TableFiles
    question: Question
    gone: frozenset[str] = frozenset()
    gives_rows: bool = False
    """Whether the rows that were written are given, too."""

    @property
    def columns(self) -> pa.Schema | None:
        """Those of the target."""
        return loose(self.question.schema) if self.gives_rows else None

    def __call__(
        self, shares: Iterable[Share], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, AppliedPart]:
        """Decide about all keys of a part, and write."""
        whole = gathered(shares, questioned(self.question.schema))
        kinds = pc.fill_null(whole.column(KIND), int(RowKind.CHANGE))
        whole = whole.set_column(whole.schema.get_field_index(KIND), KIND, kinds)
        is_change = np.asarray(pc.equal(kinds, int(RowKind.CHANGE)), np.bool_)
        counts = int(is_change.sum()), int((~is_change).sum())
        decision = answered(self._asked(whole, is_change), self.question)
        schema = self.question.schema.names
        written = RowsThatCame()
        if not decision.answer.ties:
            written = self.files.write(decision.come, decision.gone.select(schema), str(at))
        if self.gives_rows:
            yield from decision.come.to_batches()
        return AppliedPart(decision.answer, written, *counts)

    def _asked(self, whole: pa.Table, is_change: Flags) -> pa.Table:
        """The changes, and those rows of live files that have a key of theirs."""
        changes, rows = (whole.filter(pa.array(flags)) for flags in (is_change, ~is_change))
        if self.gone:
            rows = rows.filter(pc.invert(pc.is_in(rows.column(FILE), pa.array([*self.gone], pa.string()))))
        keys = [*self.question.spec.keys]
        rows = rows.filter(pa.array(meeting(changes.select(keys), rows.select(keys))))
        return pa.concat_tables([changes, rows])


def gathered(shares: Iterable[Share], schema: pa.Schema) -> pa.Table:
    """All rows that came to a part under a schema, NULL in columns that a share lacks."""
    found = [filled(share.table(), schema) for share in shares]
    return pa.concat_tables([schema.empty_table(), *found]).combine_chunks()


@dataclass(frozen=True)
class Rewrite:
    """Writes the rows of files again that stay; reports by file what is left."""

    files: TableFiles
    work: tuple[tuple[LiveFile, Numbers], ...]
    before: Before | None = None
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, dict[str, Rest]]:
        """Rewrite one file after another."""
        yield from ()
        found = {}
        for number, (file, gone) in enumerate(self.work):
            found[file.name] = self.files.rewrite(file, gone, self.before, f"{at}-kept{number}")
        return found
