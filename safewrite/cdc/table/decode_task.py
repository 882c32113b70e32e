"""Decodes the records of a Kafka partition on an executor, and puts together what all partitions came to.

Changes that are sure to land alike in any number of parts go from task to task (``safewrite.cdc.table.shares``).  The others come whole
to the process that commits: column batches packed; changes that were read one by one, dead letters and tombstones as they are.  The
report has counts, so that nothing that a task read is missed.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.envelopes.envelope import Tombstone
from safewrite.cdc.records.change import DeadLetter, SourceChange
from safewrite.cdc.records.change_set import ChangeSet, ColumnBatch, Place
from safewrite.cdc.records.packed import PackedBatch, unpacked
from safewrite.cdc.records.prefixes import Prefixes
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.table.shares import LETTERS_MAX, ShareReport, Sharing
from safewrite.changes.members.table_chunks import UnfitError
from safewrite.engine.abc import TaskAttempt, TaskOutput
from safewrite.engine.exchange import CHUNKS, Aside

_CODEC, _SIZE = "lz4", struct.Struct(">q")
_PREFIXES_MAX = 64
_CHANGES = 5000
"""About this many changes that were read one by one come in one row."""


@dataclass(frozen=True, slots=True)
class LettersOfTable:
    """Some dead letters of a table whose changes are shared out."""

    table: str
    dead: Sequence[DeadLetter]


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """What a task read.

    ``by_columns`` and ``others`` are how many records came whole, ``passed`` those that say nothing about a row;
    ``shares`` tell of the others, by table; ``letters`` is how many dead letters of these came aside.  ``size`` are the bytes of the records, and ``cut`` those of prefixes that were
    cut off before.
    """

    records: int = 0
    by_columns: int = 0
    others: int = 0
    letters: int = 0
    passed: int = 0
    size: int = 0
    cut: int = 0
    places: Sequence[Place] = ()
    endings: Mapping[Place, int] = field(default_factory=dict)
    prefixes: tuple[Sequence[bytes], Sequence[bytes]] = ((), ())
    """What precedes the payloads of keys and values that were met."""
    shares: Mapping[str, ShareReport] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    """The tables whose changes came whole, and why."""


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """Decodes the records of one partition, which come in the columns of ``safewrite.cdc.records.records.SCHEMA``.

    Args:
        prefixes: what was cut off keys and values.
        starts: the offsets from which records are wanted, by partition, and none of others; None: all.
        ended: the deletes that partitions ended with in the batch before.
        sharing: shares changes out among tables; None: all of them come whole.
        only: the tables whose changes come, whole, and nothing else does; None: all that there is.
    """

    decoder: Decoder
    prefixes: tuple[bytes, ...] = ()
    starts: Mapping[Place, int] | None = None
    ended: Mapping[Place, int] = field(default_factory=dict)
    sharing: Sharing | None = None
    only: frozenset[str] | None = None

    @property
    def columns(self) -> pa.Schema:
        """Those of an exchange; what goes aside is a ``ColumnBatch``, or a ``Decoded`` without any."""
        return CHUNKS

    def __call__(
        self, given: Iterable[pa.RecordBatch] | KafkaRecords, at: TaskAttempt
    ) -> Generator[TaskOutput, None, DecodeReport]:
        """Decode records: those of batches, or as this process has them.

        Raises:
            StorageError: the schema registry is away.
        """
        is_here = isinstance(given, KafkaRecords)
        records = given if isinstance(given, KafkaRecords) else self._of_batches(given)
        del given
        if not len(records):
            return DecodeReport()
        if self.starts is not None:
            records = records.since(self.starts)
        decoder = self.decoder
        found = decoder.decode(records, self.ended)
        if self.only is not None:
            found = self._of_only(found)
            yield from _whole(found)
            return DecodeReport(
                found.records, found.by_columns, _records_in(found), places=[*records.partitions()]
            )
        shares, doubts, ignored = yield from self._shared(found, at, decoder, is_here=is_here)
        yield from _whole(found)
        letters = 0 if is_here else (yield from _many_letters(shares))
        cut = records.cut_bytes
        return DecodeReport(
            len(records), found.by_columns, _records_in(found), letters, len(found.ignored) + found.tombstones + ignored,
            records.data.nbytes + cut, cut,
            [*records.partitions()], found.endings,
            (self._new(decoder.keys), self._new(decoder.values)), shares, doubts,
        )  # fmt: skip

    def _of_batches(self, given: Iterable[pa.RecordBatch]) -> KafkaRecords:
        parts = [pa.Table.from_batches([one]) for one in given]
        return KafkaRecords.of_frame(pa.concat_tables(parts), self.prefixes) if parts else KafkaRecords.of([])

    def _of_only(self, found: Decoded) -> Decoded:
        """The changes of the tables that are asked for."""
        assert self.sharing is not None
        tables = self.sharing.router.route(ChangeSet(found.rows, found.columns)).tables
        given = [one for name, (_, one) in tables.items() if name in (self.only or ())]
        return Decoded(
            [row for one in given for row in one.rows], [batch for one in given for batch in one.columns]
        )

    def _shared(
        self, found: Decoded, at: TaskAttempt, decoder: Decoder, *, is_here: bool
    ) -> Generator[TaskOutput, None, tuple[dict[str, ShareReport], dict[str, str], int]]:
        """Give the rows of all tables that can have some, and take their changes out of what was found, and those passed over."""
        shares: dict[str, ShareReport] = {}
        doubts: dict[str, str] = {}
        if self.sharing is None:
            return shares, doubts, 0
        routing = self.sharing.router.route(ChangeSet(found.rows, found.columns))
        shared = {id(one) for one in (*routing.ignored.columns, *routing.ignored.rows)}
        for name, (table, given) in routing.tables.items():
            try:
                report, rows = self.sharing.share(table, given, at.part, decoder)
                yield from rows
            except UnfitError as error:
                doubts[name] = str(error)
            else:
                report.given = given if is_here else None
                shares[name] = report
                shared |= {id(one) for one in (*given.columns, *given.rows)}
        found.columns = [batch for batch in found.columns if id(batch) not in shared]
        found.rows = [one for one in found.rows if id(one) not in shared]
        return shares, doubts, routing.ignored.records

    def _new(self, met: Prefixes) -> list[bytes]:
        """Prefixes that were not cut off."""
        return [one for one in met.newest(_PREFIXES_MAX) if one not in self.prefixes]


def _whole(found: Decoded) -> Iterator[Aside]:
    """What comes whole to the process that commits."""
    for one in (*found.columns, *_pieces(found)):
        yield Aside(one, _sent)


def _many_letters(shares: Mapping[str, ShareReport]) -> Generator[Aside, None, int]:
    """Give the letters of tables that have too many for a report; how many these are."""
    count = 0
    for name, share in shares.items():
        if len(share.dead) <= LETTERS_MAX:
            continue
        for start in range(0, len(share.dead), _CHANGES):
            yield Aside(LettersOfTable(name, share.dead[start : start + _CHANGES]), _sent)
        count += len(share.dead)
        share.dead = []
    return count


def _sent(one: ColumnBatch | Decoded | LettersOfTable) -> bytes:
    data = pickle.dumps(PackedBatch.of(one) if isinstance(one, ColumnBatch) else one)
    # Records that were read one by one have their schemas around them again, each the same text.
    packed = b"" if isinstance(one, ColumnBatch) else pa.compress(data, _CODEC, asbytes=True)
    return _SIZE.pack(len(data)) + packed if packed else _SIZE.pack(0) + data


def _of_piece(sent: bytes) -> PackedBatch | Decoded | LettersOfTable:
    (size,) = _SIZE.unpack_from(sent)
    rest = memoryview(sent)[_SIZE.size :]
    made: PackedBatch | Decoded | LettersOfTable = pickle.loads(
        pa.decompress(rest, size, _CODEC) if size else rest
    )
    return made


def _pieces(found: Decoded) -> Iterator[Decoded]:
    """What was not read by columns, some at a time; the changes of one record stay together."""
    for start in range(0, max(len(found.dead), len(found.unmet)), _CHANGES):
        yield Decoded(dead=found.dead[start : start + _CHANGES], unmet=found.unmet[start : start + _CHANGES])
    rest = Decoded()
    for _, changes in groupby(found.rows, key=lambda change: id(change.record)):
        rest.rows += changes
        if len(rest.rows) >= _CHANGES:
            yield rest
            rest = Decoded()
    if rest.rows:
        yield rest


def _records_in(found: Decoded) -> int:
    """How many records are among changes that were read one by one, dead letters and tombstones whose delete did not come."""
    left: list[SourceChange | DeadLetter | Tombstone] = [*found.rows, *found.dead, *found.unmet]
    return len({id(one.record) for one in left})


def union(pieces: Iterable[Any], reports: Sequence[DecodeReport], prefixes: Sequence[bytes]) -> Decoded:
    """What all tasks decoded, in the order of the records; letters of shares are added to these.

    Raises:
        InternalError: what the tasks sent is not what they say that they read.
    """
    found, packed, others, letters = Decoded(), list[PackedBatch](), 0, 0
    for given in pieces:
        piece = _of_piece(given) if isinstance(given, bytes) else given
        if isinstance(piece, ColumnBatch):
            found.columns.append(piece)
            continue
        if isinstance(piece, PackedBatch):
            packed.append(piece)
            continue
        if isinstance(piece, LettersOfTable):
            next(one.shares[piece.table] for one in reports if piece.table in one.shares).dead += piece.dead
            letters += len(piece.dead)
            continue
        others += _records_in(piece)
        found.rows += piece.rows
        found.dead += piece.dead
        found.unmet += piece.unmet
    found.columns += unpacked(packed, prefixes)
    found.tombstones = sum(one.passed for one in reports)
    for report in reports:
        found.endings.update(report.endings)
    _check(reports, found.by_columns, others, letters)
    for left in (found.rows, found.dead, found.unmet):
        left.sort(key=lambda one: one.record.place)
    return found


def _check(reports: Sequence[DecodeReport], by_columns: int, others: int, letters: int) -> None:
    read = sum(one.records for one in reports)
    counted = [sum(one.by_columns for one in reports), sum(one.others for one in reports)]
    aside = sum(one.letters for one in reports)
    shared = sum(share.records for one in reports for share in one.shares.values())
    passed = sum(one.passed for one in reports)
    if [by_columns, others, letters] != [*counted, aside] or read != sum(counted) + shared + passed:
        raise sw.InternalError(
            f"Executors read {read} records, kept {shared} and sent {by_columns} in columns, {others} one by one and "
            f"{letters} dead letters, where they tell of {counted} and {aside}. Nothing of the batch was committed. Please report this."
        )
    twice = [
        place
        for place, times in Counter(one for report in reports for one in report.places).items()
        if times > 1
    ]
    if twice:
        raise sw.InternalError(
            f"Spark gave records of the partition {twice[0][0]}/{twice[0][1]} to more than one task, and a delete and its tombstone have to "
            "be in one. Nothing of the batch was committed. Set engine to local, and please report this."
        )
