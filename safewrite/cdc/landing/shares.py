"""Makes chunks of a table's changes in a task, where all of them are sure to land alike wherever they are; else says why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.logical_types.declared import DecimalMode
from safewrite.cdc.landing.column_fit import ColumnTypes
from safewrite.cdc.landing.origin import TableSource
from safewrite.cdc.landing.project_columns import Projected, projected
from safewrite.cdc.landing.routing import Router
from safewrite.cdc.landing.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.landing.table_changes import named_keys
from safewrite.cdc.records.batch import Partition
from safewrite.cdc.records.change import SourceTable
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.changes.many_tables import CHANGES, KeysTold, dealt, hashes_of
from safewrite.values.objects import column_of

OP, PLACE = "_cdc_op", "_cdc_place"
"""Columns of a chunk besides the table's: what a change does, and its place among all changes of the batch."""
BY_TASKS = ("delta",)
"""The formats whose files tasks read and write."""
_TASK_PLACES = 2**40
"""More records than a task has: places grow from task to task."""


@dataclass(frozen=True)
class TableView:
    """What tasks know of a table: as it was when the driver last looked at it."""

    schema: pa.Schema | None = None
    keys: tuple[str, ...] | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    """Those that this job or the table's source moves."""
    parts: int = 1
    """To so many parts its changes are dealt."""


@dataclass
class ShareTold:
    """What the driver must know of the changes of a table that tasks have made chunks of."""

    table: TargetTable
    keys: tuple[str, ...]
    changes: int
    sources: Counter[SourceTable]
    topics: set[str]
    newest_ms: int | None
    snapshots: dict[str, int]
    types: ColumnTypes
    key_values: KeysTold

    def doubt(self, other: ShareTold) -> str | None:
        """Why these changes and further ones cannot land as chunks together; None if they can."""
        if self.keys != other.keys:
            return "its records' keys name several columns"
        if self.key_values.schema != other.key_values.schema:
            return "its keys have several types"
        return None

    def add(self, other: ShareTold) -> None:
        """Take in what another task says."""
        self.changes += other.changes
        self.sources.update(other.sources)
        self.topics |= other.topics
        times = [at for at in (self.newest_ms, other.newest_ms) if at is not None]
        self.newest_ms = max(times, default=None)
        for name, at in other.snapshots.items():
            self.snapshots[name] = max(at, self.snapshots.get(name, 0))
        self.types.add(other.types)
        self.key_values.add(other.key_values)


class DriverLandsError(Exception):
    """Changes of a table that the driver has to land, and why."""


@dataclass(frozen=True)
class Sharing:
    """Shares out the changes of a task among their tables.

    Args:
        views: the tables that are known; others are taken not to be there yet.
        by_driver: the tables that the driver lands, and why.
        parts: to so many parts the changes of a table are dealt that is not known.
    """

    router: Router
    job: str
    decimals: DecimalMode | None
    partitions: tuple[Partition, ...]
    views: Mapping[str, TableView]
    by_driver: Mapping[str, str]
    parts: int = 1

    def view_of(self, table: TargetTable) -> TableView:
        """What is known of a table."""
        return self.views.get(table.name) or TableView(parts=self.parts)

    def share(
        self, table: TargetTable, given: ChangeSet, task: int
    ) -> tuple[ShareTold, Iterator[pa.RecordBatch]]:
        """What the driver must know of a table's changes, and their chunks.

        Raises:
            DriverLandsError: the driver has to land them.
        """
        view = self.view_of(table)
        keys, sources = self._checked(table, view, given)
        boundary = SnapshotBoundary.of(self.partitions, self.job, table, view.positions)
        columns = boundary.ordered_columns(given)
        if columns is None:
            raise DriverLandsError("it has rows of a snapshot and the first changes after it")
        rules = ColumnRules(table, view.schema, self.decimals)
        made = [projected(rules, batch, keys) for batch in columns]
        if any(one is None or others is not None for one, others in made):
            raise DriverLandsError("some of its changes are read one by one")
        parts = [one for one, _ in made if one is not None]
        types = ColumnTypes()
        for one in parts:
            types.learn(one.types)
        for one in parts:
            types.see(one)
        keyed = [_keys(one, keys, view.schema) for one in parts]
        if any(one.schema != keyed[0].schema for one in keyed):
            raise DriverLandsError("its keys have several types")
        hashes = [hashes_of(one) for one in keyed]
        key_report = KeysTold(keyed[0].schema, hashes[0] is not None)
        for one, hashed in zip(keyed, hashes, strict=True):
            key_report.add(KeysTold.of(one, hashed))
        share = ShareTold(
            table,
            keys,
            given.by_columns,
            sources,
            given.topics,
            given.newest_ms,
            boundary.found,
            types,
            key_report,
        )
        return share, _chunks(table.name, parts, hashes, task, view.parts)

    def _checked(
        self, table: TargetTable, view: TableView, given: ChangeSet
    ) -> tuple[tuple[str, ...], Counter[SourceTable]]:
        """The key of a table, and how many changes each source has."""
        if table.name in self.by_driver:
            raise DriverLandsError(self.by_driver[table.name])
        if given.rows:
            raise DriverLandsError("some of its records are read one by one")
        if table.format not in BY_TASKS:
            raise DriverLandsError(f"its format is {table.format}")
        if table.precombine_key:
            raise DriverLandsError("columns of its rows order them")
        sources = given.counts()
        own = TableSource.of(table, view.positions, sources).source
        if own is not None and {*sources} != {own}:
            raise DriverLandsError("it has records of several sources")
        ends = {(one.topic, one.number): view.positions.get(one.name(self.job), 0) for one in self.partitions}
        if given.since(ends).by_columns != given.by_columns:
            raise DriverLandsError("some of its records have landed before")
        keys = view.keys or table.key or named_keys(given.keys, table)
        if not keys:
            raise DriverLandsError("its key is not known")
        return keys, sources


def _keys(part: Projected, keys: Sequence[str], schema: pa.Schema | None) -> pa.Table:
    """The keys of changes, under the types of the table if it has them."""
    there = frozenset(() if schema is None else schema.names)
    found = {}
    for name in keys:
        values, misfits = part.columns[name], dict[int, str]()
        if schema is not None and name in there:
            values, misfits = column_of(values, schema.field(name).type)
        if misfits:
            raise DriverLandsError("some of its keys do not fit the table")
        found[name] = values
    return pa.table(found)


def _chunks(
    name: str, made: Sequence[Projected], hashes: Sequence[Any], task: int, parts: int
) -> Iterator[pa.RecordBatch]:
    for one, hashed in zip(made, hashes, strict=True):
        places = pa.chunked_array([pa.array(one.batch.places() + task * _TASK_PLACES)])
        rows = pa.table({**one.columns, OP: one.operations, PLACE: places})
        yield from dealt(name, CHANGES, rows, hashed, parts)
