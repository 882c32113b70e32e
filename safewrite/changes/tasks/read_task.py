"""Reads changes in a task: checks and conforms those of one input, and tells the driver what it must know of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.lookup.key_index import Hashes, ascending, key_hashes
from safewrite.changes.meaning.decide import ChangeBatch, ChangeOp, cuts_of
from safewrite.changes.meaning.positions import Flags, values_of
from safewrite.changes.meaning.reading import Changes, loose, read
from safewrite.changes.meaning.spec import Spec
from safewrite.engine.abc import TaskAttempt, TaskOutput
from safewrite.engine.exchange import CHUNKS, Dealt
from safewrite.frames.fingerprint import Fingerprint, Fingerprinter
from safewrite.frames.predicate import Predicate, within
from safewrite.frames.replace_where import EVERYTHING, NOWHERE

OP, PLACE, ABSENT = "_safewrite_op", "_safewrite_place", "_safewrite_absent"
OF_CHANGES = pa.schema([(OP, pa.int8()), (PLACE, pa.int64()), (ABSENT, pa.list_(pa.string()))])
"""What stands beside a change's own columns."""
CHANGES, ROWS = 0, 1
"""What a share has: changes, or rows of the table."""
PIECE_BYTES = 64 * 2**20
"""So much of a partition is read at once."""
VALUES_MAX = 10_000
"""A key column with more values is described by its lowest and its highest."""
HASHES_MAX = 4_000_000
"""Keys up to this number are looked for by their hashes; for more of them all rows come that may have one."""
PARTITION_ROWS = 2**33
"""More rows than a partition has: places of changes grow from partition to partition."""


@dataclass
class ReadReport:
    """What the driver must know of the changes of a partition.

    ``ends`` are the lowest and highest value of each key column, ``values`` all that it has, or None where they are many;
    ``hashes`` are those of whole keys, None where they are many.  In memory they take about ``nbytes``.
    """

    truncates: pa.Table
    fingerprint: Fingerprint = field(default_factory=lambda: Fingerprinter().result())
    ends: dict[str, pa.Array] = field(default_factory=dict)
    values: dict[str, pa.Array | None] = field(default_factory=dict)
    hashes: list[Hashes] | None = field(default_factory=list)
    nbytes: int = 0

    @classmethod
    def together(cls, reports: Iterable[ReadReport], spec: Spec, schema: pa.Schema) -> ReadReport:
        """What all of some reports say."""
        every = iter(reports)
        whole = next(every, None) or cls(no_truncates(spec, schema))
        for one in every:
            whole.add(one)
        return whole

    def add(self, other: ReadReport) -> None:
        """Take another report in."""
        self.fingerprint = self.fingerprint.plus(other.fingerprint)
        self.nbytes += other.nbytes
        self.truncates = pa.concat_tables([self.truncates, other.truncates])
        for name, ends in other.ends.items():
            self.ends[name] = ends_of(pa.concat_arrays([self.ends.get(name, ends), ends]))
        for name, values in other.values.items():
            known = self.values.get(name, values)
            self.values[name] = None if known is None or values is None else few_of(known, values)
        both = None if self.hashes is None or other.hashes is None else [*self.hashes, *other.hashes]
        self.hashes = both if both is None or sum(map(len, both)) <= HASHES_MAX else None

    def key_hashes(self) -> Hashes | None:
        """The hashes of all keys, ascending, each once; None where they are many."""
        return None if self.hashes is None else ascending(np.zeros(0, np.uint64), *self.hashes)


def ends_of(values: pa.Array) -> pa.Array:
    """The lowest and the highest of some values."""
    least = pc.min_max(values)
    return pa.array([least["min"], least["max"]], values.type)


def few_of(*values: pa.Array) -> pa.Array | None:
    """The values that some arrays have, once each; None if they are many."""
    found = pc.unique(pa.concat_arrays(values))
    return found if len(found) <= VALUES_MAX else None


@dataclass(frozen=True)
class ReadChanges:
    """Gives the changes of a partition under the target's schema to an exchange, by their keys and without truncates, and reports a :class:`ReadReport`."""

    spec: Spec
    schema: pa.Schema
    partition_by: tuple[str, ...]
    is_hashed: bool = True
    """Whether hashes of keys that are dealt are reported."""
    taken: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]] | None = None
    """Gives values the form that the table has for them, where the source has another."""

    @property
    def columns(self) -> pa.Schema:
        """Those of an exchange."""
        return CHUNKS

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[TaskOutput, None, ReadReport]:
        """Read the changes of a partition."""
        place, reports = at.part * PARTITION_ROWS, list[ReadReport]()
        for piece in _pieces(batches if self.taken is None else self.taken(batches)):
            changes = read(piece, self.spec, self.schema, self.partition_by)
            table, report = self.dealt(changes, place)
            place += changes.batch.table.num_rows
            reports.append(report)
            yield table
        return ReadReport.together(reports, self.spec, self.schema)

    def dealt(self, changes: Changes, place: int = 0) -> tuple[Dealt, ReadReport]:
        """Changes on their way to parts, without truncates, and what the driver must know of them."""
        batch, rows = changes.batch, changes.batch.table.num_rows
        places = pa.array(np.arange(place, place + rows))
        beside = [pa.array(batch.ops), places, lists_of(batch.absent, rows)]
        table = pa.table([*batch.table.columns, *beside], pa.schema([*loose(self.schema), *OF_CHANGES]))
        is_truncate = batch.ops == ChangeOp.TRUNCATE
        if is_truncate.any():
            table = table.filter(pa.array(~is_truncate))
        report = _reported(batch, changes.fingerprint, places, self.spec, self.schema)
        hashes = key_hashes(table, self.spec.keys)
        report.hashes = [ascending(hashes)] if self.is_hashed else None
        return Dealt(table, hashes), report


def _reported(
    batch: ChangeBatch, fingerprint: Fingerprint, places: pa.Array, spec: Spec, schema: pa.Schema
) -> ReadReport:
    truncates, is_truncate = no_truncates(spec, schema), batch.ops == ChangeOp.TRUNCATE
    if is_truncate.any():
        found = batch.table.select(spec.sequence_by).append_column(PLACE, places)
        truncates = found.filter(pa.array(is_truncate)).cast(truncates.schema)
    report = ReadReport(truncates, fingerprint, nbytes=batch.table.nbytes)
    for name, values in values_of(batch.table, spec.keys).items():
        if len(values):
            report.ends[name] = ends_of(values)
        report.values[name] = values if len(values) <= VALUES_MAX else None
    return report


def no_truncates(spec: Spec, schema: pa.Schema) -> pa.Table:
    """A table of truncates, without any."""
    fields = loose(pa.schema([schema.field(name) for name in spec.sequence_by]))
    return pa.Table.from_batches([], pa.schema([*fields, pa.field(PLACE, pa.int64())]))


def lists_of(absent: Mapping[str, Flags], rows: int) -> pa.Array:
    """For each change the columns that it does not bring."""
    kind = pa.list_(pa.string())
    if not absent:
        return pa.nulls(rows, kind)
    names = np.array([*absent], object)
    flags = np.stack([absent[name] for name in absent], axis=1)
    ends = np.concatenate([[0], np.cumsum(flags.sum(axis=1))])
    words = names[np.nonzero(flags)[1]]
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(words, pa.string())).cast(kind)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches, some at a time."""
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(one.nbytes for one in some) >= PIECE_BYTES:
            yield pa.Table.from_batches(some)
            some = []
    if some:
        yield pa.Table.from_batches(some)


# --- what the driver has of them -------------------------------------------------------------------------
@dataclass(frozen=True)
class ReadBatch:
    """Changes that tasks have read and checked, wherever they are, and what the driver knows of them."""

    spec: Spec
    schema: pa.Schema
    report: ReadReport
    fingerprint: Fingerprint
    parts: int = field(default=0, kw_only=True)
    """How many parts their keys were dealt to; 0: as many as there may be."""

    @property
    def rows(self) -> int:
        """How many changes there are."""
        return self.report.fingerprint.rows

    @cached_property
    def cuts(self) -> dict[str, pa.Array]:
        """See :attr:`ChangeBatch.cuts`."""
        return cuts_of(self.report.truncates, self.spec.tied_by)

    @cached_property
    def values(self) -> dict[str, pa.Array]:
        """See :attr:`safewrite.changes.tasks.abc.BatchWork.values`: the same for every plan, so that no file is asked about twice."""
        few = {name: values for name, values in self.report.values.items() if values is not None}
        return {} if self.cuts else few

    @property
    def bounds(self) -> Predicate:
        """See :attr:`safewrite.changes.tasks.abc.BatchWork.bounds`."""
        if self.cuts:
            return EVERYTHING
        return within(self.report.ends) if self.report.ends else NOWHERE
