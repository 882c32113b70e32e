"""The tasks by which changes get into a table: looks keys up, decides and writes, and rewrites files that lose rows."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.lookup.candidate_rows import (
    NO_COLUMNS,
    Before,
    FoundRows,
    beside,
    taken_along,
)
from safewrite.changes.lookup.key_index import key_hashes
from safewrite.changes.lookup.table_files import (
    LOOK_FILES,
    FileRemainder,
    FoundKeys,
    LiveFile,
    RowsThatCame,
    TableFiles,
    WantedKeys,
    of_table,
)
from safewrite.changes.meaning.positions import Numbers, among, meeting
from safewrite.changes.meaning.reading import loose
from safewrite.changes.tasks.by_part import FILE, OF_ROWS, POS, KeyDecisions, PartInput, answered
from safewrite.changes.tasks.read_task import CHANGES, OF_CHANGES, ROWS
from safewrite.engine.abc import TaskAttempt, TaskOutput
from safewrite.engine.exchange import CHUNKS, Dealt, Share
from safewrite.frames.columns import filled
from safewrite.frames.parallel import LOOKED_BYTES, windows

GIVEN_ROWS = 100_000
"""Rows of several files are dealt together up to so many."""


@dataclass(frozen=True)
class LookupReport:
    """What a look-up found: by file how many live rows it has, and the places among them of those that were given."""

    of: dict[str, int]
    given: dict[str, Numbers]


def looked_name(number: int, name: str) -> str:
    """A file's name among those of all look-ups."""
    return f"{number}/{name}"


@dataclass(frozen=True)
class LookUp:
    """Gives the rows of groups of files that have keys of a batch; its input are numbers of groups.

    ``number`` tells the files of this look-up from those of others.
    """

    files: TableFiles
    groups: tuple[tuple[LiveFile, ...], ...]
    wanted: WantedKeys
    buckets: int
    number: int = 0
    columns: pa.Schema = CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[TaskOutput, None, LookupReport]:
        """Look through the files of these groups."""
        found = LookupReport({}, {})
        some: list[tuple[str, FoundRows]] = []
        count = 0
        for name, hits in self._hits(batches):
            found.of[name], found.given[name] = hits.of, hits.numbers
            if hits.rows.num_rows:
                some.append((name, hits))
                count += hits.rows.num_rows
            if count >= GIVEN_ROWS:
                yield self._dealt(some)
                some, count = [], 0
        if some:
            yield self._dealt(some)
        return found

    def _hits(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, FoundRows]]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._found_in(self.groups[number])

    def _found_in(self, files: tuple[LiveFile, ...]) -> Iterator[tuple[str, FoundRows]]:
        """What is found in files: all rows of some, where keys are not known by their hashes."""
        bytes_max = LOOKED_BYTES * (1 if self.wanted.hashes is None else len(files))
        for some in windows(files, lambda file: file.nbytes, files=LOOK_FILES, bytes_max=bytes_max):
            found = FoundKeys(self.wanted)
            with of_table():
                self.files.run(self.files.look_up(some, found))
            yield from found.found.items()

    def _dealt(self, some: list[tuple[str, FoundRows]]) -> Dealt:
        wanted = self.wanted
        rows = pa.concat_tables([hits.rows for _, hits in some])
        if not wanted.whole:
            rows = rows.select([*wanted.keys, *wanted.sequence_by])
        counts = [hits.rows.num_rows for _, hits in some]
        files = pa.array([looked_name(self.number, name) for name, _ in some], pa.string())
        files = files.take(pa.array(np.repeat(np.arange(len(some)), counts)))
        kept = [hits.lasting for _, hits in some if hits.lasting is not None]
        rows = beside(rows, pa.concat_tables(kept)) if kept else rows
        places = pa.array(np.concatenate([hits.numbers for _, hits in some]), pa.int64())
        rows = rows.append_column(FILE, files).append_column(POS, places)
        hashes = None if self.buckets == 1 else key_hashes(rows, wanted.keys)
        return Dealt(rows, hashes, self.buckets, kind=ROWS)


@dataclass(frozen=True)
class AppliedPart:
    """What became of a part: what was decided, and how many changes and rows of the table came to it.

    ``written`` are the rows that came; None where rows of changes at the same places, which ``come`` stands for, were written before.
    """

    answer: KeyDecisions
    written: RowsThatCame | None
    come: bytes
    changes: int
    rows: int


@dataclass(frozen=True)
class ApplyPart:
    """Decides about the keys of a part, and writes the rows that come; its input are shares of changes and of rows of the table.

    Rows in ``gone`` do not count: others took them since a look-up gave them, all of a file or those at some places.
    ``written`` says of which rows there are files.
    """

    files: TableFiles
    question: PartInput
    gone: Mapping[str, Numbers | None] = field(default_factory=dict)
    written: frozenset[bytes] = frozenset()
    gives_rows: bool = False
    """Whether the rows that were written are given, too."""
    lasting: pa.Schema = NO_COLUMNS
    """The columns of which the rows that come take the values along from those of their keys."""

    @property
    def columns(self) -> pa.Schema | None:
        """Those of the target."""
        return loose(self.question.schema) if self.gives_rows else None

    def __call__(
        self, shares: Iterable[Share], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, AppliedPart]:
        """Decide about all keys of a part, and write."""
        question, found = self.question, [*shares]
        wide = loose(question.schema)
        mine = (
            wide
            if question.whole
            else [wide.field(name) for name in (*question.spec.keys, *question.spec.sequence_by)]
        )
        changes = gathered(found, CHANGES, pa.schema([*wide, *OF_CHANGES]))
        rows = gathered(found, ROWS, pa.schema([*mine, *self.lasting, *OF_ROWS]))
        del found
        counts = changes.num_rows, rows.num_rows
        decision = answered(changes, self._asked(changes, rows), question)
        keys = question.spec.keys
        names = self.lasting.names
        came = taken_along(decision.come, decision.gone.select([*keys, *names]) if names else None, keys)
        come = _digest(decision.places, came.select(names))
        written = None if come in self.written else RowsThatCame()
        if written is not None and not decision.answer.ties:
            gone = decision.gone.drop_columns(OF_ROWS.names)
            written = self.files.run(self.files.write(came, gone, str(at)))
        if self.gives_rows:
            yield from decision.come.to_batches()
        return AppliedPart(decision.answer, written, come, *counts)

    def _asked(self, changes: pa.Table, rows: pa.Table) -> pa.Table:
        """Those rows of live files that have a key of the changes, or tie with a truncate."""
        whole = [name for name, places in self.gone.items() if places is None]
        if whole:
            rows = rows.filter(pc.invert(pc.is_in(rows.column(FILE), pa.array(whole, pa.string()))))
        for name, places in self.gone.items():
            if places is not None:
                lost = pc.and_(
                    pc.equal(rows.column(FILE), name), pc.is_in(rows.column(POS), pa.array(places))
                )
                rows = rows.filter(pc.invert(lost))
        keys = [*self.question.spec.looked_up]
        asked = meeting(changes.select(keys), rows.select(keys))
        if self.question.cuts:
            asked |= among(rows, self.question.cuts)
        return rows if asked.all() else rows.filter(pa.array(asked))


def _digest(places: Numbers, lasting: pa.Table) -> bytes:
    """Stands for the rows of changes at these places, with what they take along."""
    told = blake2b(places.tobytes(), digest_size=16)
    if lasting.num_columns:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, lasting.schema) as stream:
            stream.write_table(lasting.combine_chunks())
        told.update(sink.getvalue())
    return told.digest()


def gathered(shares: Iterable[Share], kind: int, schema: pa.Schema) -> pa.Table:
    """All rows of a kind that came to a part under a schema, NULL in columns that a share lacks."""
    found = [filled(share.table(), schema) for share in shares if share.kind == kind]
    return (pa.concat_tables(found) if found else schema.empty_table()).combine_chunks()


@dataclass(frozen=True)
class Rewrite:
    """Writes the rows of files again that stay; reports by file what is left."""

    files: TableFiles
    work: tuple[tuple[LiveFile, Numbers], ...]
    before: Before | None = None
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, dict[str, FileRemainder]]:
        """Rewrite these files."""
        yield from ()
        with of_table():
            return self.files.run(self.files.rewrite(self.work, self.before, str(at)))
