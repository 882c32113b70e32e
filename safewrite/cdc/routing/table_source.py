"""Keeps a table to the rows of one source table, which its first commit records, also for the next driver and another job.

Two databases or schemas may each have a table of one name, and the configuration may name the table only.  Their keys are
the same numbers: each source's rows would overwrite and delete the other's.  The record is two positions of the table,
moved in the commit of the rows: the one names the source, the other lets only one commit of an epoch do so.  A third names
the topic, for a tombstone names no database.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import quote, unquote

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.change import DeadLetter, SourceTable
from safewrite.cdc.records.change_set import ChangeSet

_PREFIX, _TOPIC = "cdc.source/", "cdc.topic/"
"""What the names of these positions begin with; no job has a point in its name."""


@dataclass(frozen=True)
class TableSource:
    """The source whose rows a table takes."""

    table: TargetTable
    source: SourceTable | None
    """None where the table takes rows of several, or none has come."""
    is_recorded: bool
    topics: frozenset[str] = frozenset()
    """The topics that its rows are recorded to come from."""

    @classmethod
    def of(cls, table: TargetTable, positions: Mapping[str, int], counts: Mapping[SourceTable, int]) -> Self:
        """The source of a table: the recorded one; before there is one, that of most records of its first batch.

        ``counts`` says how many records of a batch each source has.

        A new epoch may have another source, for one that was restored may have another name.
        """
        topics = frozenset(unquote(one.removeprefix(_TOPIC)) for one in positions if one.startswith(_TOPIC))
        if table.shard_column is not None:
            return cls(table, None, False, topics)
        recorded = recorded_source(positions)
        if recorded is not None and recorded[0] >= table.epoch:
            return cls(table, recorded[1], True, topics)
        if recorded is not None and recorded[1] in counts:
            return cls(table, recorded[1], False, topics)
        most = max(counts, key=lambda one: (counts[one], str(one)), default=None)
        return cls(table, most, False, topics)

    def split(self, given: ChangeSet) -> tuple[ChangeSet, list[DeadLetter]]:
        """The changes of the source, and dead letters of the others."""
        if self.source is None:
            return given, []
        own = self.source
        parts = given.grouped(lambda source, is_tombstone: None if _is(own, source, is_tombstone) else source)
        if set(parts) == {None}:
            return given, []
        letters = [
            letter
            for source, part in parts.items()
            if source is not None
            for letter in part.letters(self._reason(source), self.table.name)
        ]
        return parts.get(None, ChangeSet()), letters

    def _reason(self, source: SourceTable) -> str:
        return (
            f"the table {self.table.name} takes the rows of {self.source}, and this record is of {source}: rows of both with one key "
            "would overwrite each other. Name the source of the table in full, and give each source a table; set shard_column if one "
            "table is to hold both; raise epoch if the source has another name now"
        )

    def moves(self, topics: Collection[str]) -> dict[str, tuple[int | None, int]]:
        """How the first commit of a source's rows records it, and that of a topic's rows the topic."""
        topics = {f"{_TOPIC}{quote(one, safe='')}": (None, 1) for one in sorted({*topics} - self.topics)}
        if self.source is None or self.is_recorded:
            return dict[str, tuple[int | None, int]](topics)
        of_epoch = f"{_PREFIX}{self.table.epoch}"
        return {**topics, of_epoch: (None, 1), f"{of_epoch}/{_coded(self.source)}": (None, 1)}


def _is(own: SourceTable, told: SourceTable, is_tombstone: bool) -> bool:
    """Whether changes are of the table's own source.  A tombstone may name no database."""
    if not is_tombstone or told.database:
        return told == own
    return (told.schema, told.table) == (own.schema or own.database, own.table)


def is_source_position(name: str) -> bool:
    """Whether a position of a table records its source, or a topic of it."""
    return name.startswith((_PREFIX, _TOPIC))


def recorded_source(positions: Mapping[str, int]) -> tuple[int, SourceTable] | None:
    """The newest epoch of a table whose source is recorded, and the source; None if there is none."""
    return max(_recorded(positions), key=lambda one: one[0], default=None)


def _recorded(positions: Mapping[str, int]) -> Iterator[tuple[int, SourceTable]]:
    for name in positions:
        if not name.startswith(_PREFIX):
            continue
        epoch, slash, coded = name.removeprefix(_PREFIX).partition("/")
        if slash and epoch.isdecimal():
            yield (
                int(epoch),
                SourceTable(*(unquote(part, errors="surrogatepass") for part in coded.split("."))),
            )


def _coded(source: SourceTable) -> str:
    parts = (source.database, source.schema, source.table)
    return ".".join(quote(part, safe="", errors="surrogatepass").replace(".", "%2E") for part in parts)
