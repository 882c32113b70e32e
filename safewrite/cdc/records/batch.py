"""Defines a batch of records, and which of them are new to a table by its positions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import safewrite as sw
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.records.records import KafkaRecords


class Partition(NamedTuple):
    """A partition of a topic; ``topic_id`` tells it from one of a topic that was created again under the name."""

    topic: str
    number: int
    topic_id: str = ""

    def name(self, job: str) -> str:
        """What a table calls how far a job took it."""
        return f"{job}/{self.topic}/{self.topic_id}/{self.number}"


class Range(NamedTuple):
    """Offsets from ``start``, before ``end``."""

    start: int
    end: int


def by_place(partitions: Iterable[Partition]) -> dict[tuple[str, int], Partition]:
    """Partitions by what their records name."""
    return {(one.topic, one.number): one for one in partitions}


Ranges = Mapping[Partition, Range]
Moves = dict[str, tuple[int | None, int]]
"""How a commit moves positions: from where, and to where."""


@dataclass(frozen=True)
class Batch:
    """Records, and the offsets that they cover: some offsets have no record (compaction, transactions).

    ``joined`` tells that the batch follows one before it, so that a gap between them would be records that were never read.
    ``replay`` names a replay of dead letters: its records are behind the positions of the job, and move none of them.
    ``engine`` says where it is landed, and why.
    """

    number: int
    records: KafkaRecords
    ranges: Ranges
    joined: bool = False
    replay: str = ""
    engine: str | None = None

    def starts(self, job: str, positions: Mapping[str, int]) -> dict[tuple[str, int], int]:
        """The first offset of each partition that a table with these positions does not have."""
        ends = {} if self.replay else positions
        return {(where.topic, where.number): ends.get(where.name(job), 0) for where in self.ranges}

    def moves(self, job: str, positions: Mapping[str, int]) -> Moves:
        """How a commit of it moves a table's positions."""
        if not self.replay:
            return moves(self.ranges, job, positions)
        name = f"{job}//replay"  # a table that a replay made knows the job by it
        return {name: (positions.get(name), positions.get(name, 0) + 1)}

    def key(self, job: str, table: str) -> str:
        """The name of a table's share of it."""
        return f"cdc:{job}:{table}:replay:{self.replay}" if self.replay else key_of(job, table, self.ranges)

    @classmethod
    def of_records(
        cls, number: int, records: Iterable[KafkaRecord], topic_ids: Mapping[str, str] | None = None
    ) -> Batch:
        """A batch that covers its records and no more."""
        found = records if isinstance(records, KafkaRecords) else KafkaRecords.of(records)
        return cls(number, found, ranges_of(found.places(), topic_ids))


def ranges_of(
    places: Iterable[tuple[str, int, int]], topic_ids: Mapping[str, str] | None = None
) -> dict[Partition, Range]:
    """The offsets from the first to the last of these places (topic, partition, offset), by partition."""
    ranges: dict[Partition, Range] = {}
    for topic, number, offset in places:
        where = Partition(topic, number, (topic_ids or {}).get(topic, ""))
        known = ranges.get(where, Range(offset, offset + 1))
        ranges[where] = Range(min(known.start, offset), max(known.end, offset + 1))
    return ranges


def remaining(batch: Batch, job: str, positions: Mapping[str, int]) -> Batch:
    """What of a batch is not behind positions: partitions that are done are left out.

    Raises:
        ConflictError: records between a position and the batch were never read, or belong to another topic.
    """
    if batch.joined and batch.ranges and not any(name.startswith(f"{job}/") for name in positions):
        raise sw.ConflictError(
            f"The checkpoint of the job {job!r} goes on after batch {batch.number - 1}, and its ledger knows of none: the ledger "
            "was dropped, or this is another lake. Nothing of the batch was committed. Restore the ledger; or delete the "
            "checkpoint, and the job begins at starting_offsets.",
            kind=sw.Kind.TABLE_REPLACED,
        )
    ranges: dict[Partition, Range] = {}
    for where, given in batch.ranges.items():
        known = positions.get(where.name(job))
        if known is None and batch.joined:
            _refuse_other_topic(where, job, positions)
        if known is not None and batch.joined and given.start > known:
            raise sw.ConflictError(
                f"The job {job!r} took {where.topic}/{where.number} up to {known}, and this batch begins at {given.start}: the "
                "records between were never landed. Nothing of the batch was committed. Delete the checkpoint; the job then "
                "starts from the positions of its tables.",
                kind=sw.Kind.POSITION_MOVED,
            )
        # Offsets between a position and the first record have none (compaction, aborted transactions): Spark reads from the
        # position on, and fails where records are gone.
        start = given.start if known is None else known
        if start < given.end:
            ranges[where] = Range(start, given.end)
    starts = {(where.topic, where.number): one.start for where, one in ranges.items()}
    return Batch(batch.number, batch.records.since(starts), ranges, batch.joined, engine=batch.engine)


def _refuse_other_topic(where: Partition, job: str, positions: Mapping[str, int]) -> None:
    head, tail = f"{job}/{where.topic}/", f"/{where.number}"
    others = [name for name in positions if name.startswith(head) and name.endswith(tail)]
    if others:
        raise sw.ConflictError(
            f"The topic {where.topic!r} was deleted and created again (its id is {where.topic_id or 'unknown'}), and the checkpoint "
            "counts the offsets of the old one. Nothing of the batch was committed. Delete the checkpoint; the job then reads "
            "the new topic from its beginning. If its source's positions start again too, raise epoch.",
            kind=sw.Kind.POSITION_MOVED,
        )


def moves(ranges: Ranges, job: str, positions: Mapping[str, int]) -> dict[str, tuple[int | None, int]]:
    """How a commit of these offsets moves a table's positions."""
    found: dict[str, tuple[int | None, int]] = {}
    for where, given in ranges.items():
        name = where.name(job)
        known = positions.get(name)
        if known is None or known < given.end:
            found[name] = (known, given.end)
    return found


def key_of(job: str, table: str, ranges: Ranges) -> str:
    """The name of a table's share of a batch: the same offsets have the same."""
    listed = [[*where, *given] for where, given in sorted(ranges.items())]
    digest = hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:32]
    return f"cdc:{job}:{table}:{digest}"


def topic_partition(name: str, job: str) -> str | None:
    """``topic/partition`` of a position's name; None of others."""
    parts = name.split("/")
    if len(parts) != 4 or parts[0] != job or not parts[3].isdecimal():
        return None
    return f"{parts[1]}/{parts[3]}"
