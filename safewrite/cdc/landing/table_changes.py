"""Holds the changes that a batch has of one table: those that were read by columns, and those that were read one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow.compute as pc

from safewrite.cdc.config.table_config import Table
from safewrite.cdc.envelopes.column_batch import TIME, Block
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.records.change import Change, DeadLetter

Place = tuple[str, int]


@dataclass
class Given:
    """Changes of one table.  A record has one in a block, or all of its changes in the list."""

    changes: list[Change] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    @property
    def records(self) -> int:
        """How many records they come from."""
        return len({id(one.record) for one in self.changes}) + sum(len(block) for block in self.blocks)

    @property
    def newest_ms(self) -> int | None:
        """The latest time of a change by the source's clock."""
        times = [one.source_time_ms for one in self.changes]
        times += [pc.max(block.data.column(TIME)).as_py() for block in self.blocks]
        return max((at for at in times if at is not None), default=None)

    @property
    def topics(self) -> set[str]:
        """The topics that events of the table came in."""
        found = {one.record.topic for one in self.changes if not one.is_tombstone}
        return found.union(*(block.topics() for block in self.blocks))

    def keys(self, table: Table) -> tuple[str, ...]:
        """The key of a table that has none yet, as the records' keys name it; none where they have to be read in their order."""
        named = {block.keys for block in self.blocks}
        if len(named) != 1 or self.changes:
            return ()
        first = (table.shard_column,) if table.shard_column is not None and table.writes_shard else ()
        names = (table.name_mapping.get(name, name) for name in named.pop() if name not in table.leave_out)
        return (*first, *names)

    def since(self, starts: Mapping[Place, int]) -> Given:
        """The changes from these offsets on, by topic and partition."""
        changes = [
            one for one in self.changes if one.record.offset >= starts[one.record.topic, one.record.partition]
        ]
        blocks = []
        for block in self.blocks:
            kept = block.records.is_since(starts)[block.places()]
            if kept.any():
                blocks.append(block.where(kept))
        return Given(changes, blocks)

    def letters(self, reason: str, table: str) -> list[DeadLetter]:
        """All records as dead letters, for a reason that is that of their table."""
        records = {id(one.record): one.record for one in self.changes}
        found = list(records.values())
        for block in self.blocks:
            found += block.records.take(block.places())
        return [DeadLetter(record, reason, table) for record in found]

    def each(self, decoder: Decoder) -> Decoded:
        """The same, read one by one, in the order of their records."""
        found = Decoded(list(self.changes))
        for block in self.blocks:
            read = decoder.decode_each(block.records.take(block.places()))
            found.changes += read.changes
            found.dead += read.dead
            found.ignored += read.ignored
        found.changes.sort(key=_place)
        return found


def _place(change: Change) -> tuple[str, int, int]:
    record = change.record
    return record.topic, record.partition, record.offset
