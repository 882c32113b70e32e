"""Deals one table's changes to parts, or says why they must all be in one: they land alike wherever they are."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.column_fit import ColumnFit, ColumnTypes, types_of
from safewrite.cdc.columns.frames import LACKS, LISTS, OP, take_misfits
from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.logical_types.declared import DecimalMode
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.batch import Partition, Ranges, by_place
from safewrite.cdc.records.change import DeadLetter, Op, SourceTable
from safewrite.cdc.records.change_set import OP as CHANGE_OP
from safewrite.cdc.records.change_set import ChangeSet, ColumnBatch
from safewrite.cdc.routing.routing import Router
from safewrite.cdc.routing.table_source import TableSource
from safewrite.cdc.rows.moved_keys import Filled, Hashes, KeyMoves
from safewrite.cdc.rows.project_columns import Projected
from safewrite.cdc.rows.ranking import needs_rank
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows, rows_of
from safewrite.cdc.rows.rows_by_key import rows_with
from safewrite.cdc.rows.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.rows.table_changes import TableChanges
from safewrite.cdc.rows.unavailable_values import Key, key_of
from safewrite.changes.members.table_chunks import KeyReport, UnfitError, dealt, hashes_of, kept_together
from safewrite.engine.exchange import Dealt
from safewrite.frames.row_rules import TableRules
from safewrite.intake.duck import duckdb_version
from safewrite.values.objects import array_of, column_of

PLACE, ROW = "_cdc_place", "_cdc_row"
"""Columns of changes besides the table's: the place among all changes of the batch; of changes that were read one by one, the values as
Python has them, in place of the table's columns."""
_TASK_PLACES = 2**40
"""More records than a task has: places grow from task to task."""
_LAST_PLACES = 2**62
"""The places from here on are of rows that the driver makes: after all changes of tasks."""
OF_SQL = "it has SQL (filter, computed)"
LETTERS_MAX = 1000
"""A report brings no more dead letters of a table from an executor; others come aside."""


class StaleViewError(UnfitError):
    """A table is not as tasks knew it when they read its records."""


@dataclass(frozen=True)
class TableView:
    """What tasks know of a table: as it was when the driver last looked at it."""

    schema: pa.Schema | None = None
    keys: tuple[str, ...] | None = None
    positions: Mapping[str, int] = field(default_factory=dict)
    """Those that this job or the table's source moves."""
    parts: int = 1
    """How many parts its changes are dealt to."""
    partition_by: tuple[str, ...] = ()
    row_rules: TableRules = field(default_factory=TableRules)
    """Conditions that each row has to keep, and what columns get that a row lacks."""


@dataclass
class ShareReport:
    """What the driver must know of the changes of a table that tasks have given to an exchange.

    ``records`` is of all records, of which ``dead`` are dead letters and ``ignored`` say nothing of a row; ``changes`` of the rest became
    ``rows`` as they went on, ``one_by_one`` of them in the slow way.
    """

    table: TargetTable
    keys: tuple[str, ...]
    records: int
    changes: int
    rows: int
    one_by_one: int
    ignored: int
    dead: list[DeadLetter]
    sources: Counter[SourceTable]
    topics: set[str]
    newest_ms: int | None
    landing_ms: int | None
    """The latest time of those that are no dead letters."""
    snapshots: dict[str, int]
    types: ColumnTypes
    key_values: KeyReport | None
    """None without rows."""
    truncates: list[tuple[int, int, str]] = field(default_factory=list)
    """Of each its place, epoch and position; ``rows`` counts them, and they did not go on."""
    moves: KeyMoves = field(default_factory=KeyMoves)
    """What is known of changed keys."""
    lacking: bool = False
    """Whether a row lacks a value that the table is to put in."""
    left_out: frozenset[str] = frozenset()
    """The columns whose values the source left out of a row."""
    narrow: frozenset[str] = frozenset()
    """Columns of the table with values that only a wider type takes."""
    earlier: int = 0
    """How many of the records the table has already, by its positions: nothing else is of them."""
    is_again: bool = False
    """Whether the table has all records of the batch by its positions: they are here to be counted again, and none went on."""
    ranked: int = 0
    """How many rows are deletes whose place was looked for then."""
    deletes: int = 0
    """How many rows are deletes, of a table that keeps versions."""
    given: ChangeSet | None = None
    """The changes, where the task was in the driver's process: what must land in one part is not decoded again."""

    def doubt(self, other: ShareReport) -> str | None:
        """Why these changes and further ones must be in one part; None if they need not."""
        if self.key_values is None or other.key_values is None:
            return None
        if self.keys != other.keys:
            return "its records' keys name several columns"
        if self.key_values.schema != other.key_values.schema:
            return "its keys have several types"
        return None

    def add(self, other: ShareReport) -> None:
        """Take in what another task says."""
        for name in ("records", "changes", "rows", "one_by_one", "ignored", "earlier", "ranked", "deletes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.dead += other.dead
        self.truncates += other.truncates
        self.moves.add(other.moves, self.key_values, other.key_values)
        self.lacking |= other.lacking
        self.left_out |= other.left_out
        self.narrow |= other.narrow
        self.sources.update(other.sources)
        self.topics |= other.topics
        self.newest_ms = _newest(self.newest_ms, other.newest_ms)
        self.landing_ms = _newest(self.landing_ms, other.landing_ms)
        for name, at in other.snapshots.items():
            self.snapshots[name] = max(at, self.snapshots.get(name, 0))
        self.types.add(other.types)
        if self.key_values is None:
            self.keys, self.key_values = other.keys, other.key_values
        elif other.key_values is not None:
            self.key_values.add(other.key_values)

    @property
    def unfit(self) -> str | None:
        """Why these changes must be in one part, as all tasks know them together; None if they need not."""
        if self.table.is_appended or not self.rows:
            return None
        if self.key_values is None:
            return "none of its records is a row"
        if self.moves.is_scattered and self.moves.asked:
            return "a key changed, and changes of the old one may be with several tasks"
        if self.table.expressions and self.moves.asked:
            return f"{OF_SQL}, and a key changed by two events that did not come together"
        return None

    def taken(self, found: sw.Table) -> int:
        """How many rows of changed keys an attempt before took to their new keys."""

        def read(wanted: Sequence[Key]) -> Sequence[Mapping[str, Any]]:
            return rows_with(found, self.keys, wanted)

        return len(self.moves.followed(self.table, self.keys, (), (), read, again=True).rows)

    def follow(self, found: sw.Table | None, parts: int) -> tuple[Mapping[int, Filled], Sequence[Dealt], int]:
        """Take in the rows that changed keys have in no task: values of inserts by their places, and rows under new keys.

        Also how many of these rows are late, for their inserts have landed before.

        Raises:
            UnfitError: all changes must be in one part.
        """
        schema = None if found is None else found.schema
        columns = dict.fromkeys(() if schema is None else schema.names)
        columns |= dict.fromkeys(self.types.of_schemas) | self.types.names
        filled, rows, late = self.moves.followed(
            self.table,
            self.keys,
            columns,
            [position for _, _, position in self.truncates],
            lambda wanted: [] if found is None else rows_with(found, self.keys, wanted),
        )
        values = [
            ChangeRow(Op.UPSERT, {**one.values}, self.moves.takers[at].change) for at, one in filled.items()
        ]
        self.types.add(ColumnTypes.of(ChangeRows(self.keys, [*values, *rows])))
        if not rows:
            return filled, [], 0
        made = ChangeRows(self.keys, [*rows])
        (part,) = _parts(made, [*enumerate(rows, _LAST_PLACES)], types_of(self.table, self.types, schema), 0)
        keys = KeyReport.of(part.keys, part.hashes)
        if self.key_values is None or keys.schema != self.key_values.schema:
            raise UnfitError("its keys have several types")
        self.key_values.add(keys)
        self.rows += len(rows)
        return filled, [dealt(self.table.name, part.rows, part.hashes, parts)], late


def _newest(*times: int | None) -> int | None:
    return max((at for at in times if at is not None), default=None)


@dataclass(frozen=True)
class Sharing:
    """Shares out the changes of a task among their tables.

    Args:
        views: the tables that are known; others are taken not to be there yet.
        unreached: the tables whose files tasks cannot reach, and why.
        duckdb: the driver's version; another may compute something else.
        parts: how many parts the changes of a table that is not known are dealt to.
    """

    router: Router
    job: str
    decimals: DecimalMode | None
    ranges: Ranges
    views: Mapping[str, TableView]
    unreached: Mapping[str, str]
    duckdb: str | None = None
    parts: int = 1
    is_alone: bool = False
    """Whether one task has all records of the batch."""
    look: Callable[[TargetTable], TableView] | None = None
    """Looks at a table of a replay, which is in this process and of few tables: records are new to them whatever their positions say."""

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, int], Partition]:
        return by_place(self.ranges)

    @cached_property
    def _names(self) -> Mapping[tuple[str, int], str]:
        """What tables call the partitions."""
        return {place: one.name(self.job) for place, one in self._by_place.items()}

    def view_of(self, table: TargetTable) -> TableView:
        """What is known of a table."""
        if self.look is not None:
            return self.look(table)
        return self.views.get(table.name) or TableView(parts=self.parts)

    def share(
        self, table: TargetTable, given: ChangeSet, task: int, decoder: Decoder
    ) -> tuple[ShareReport, Iterator[Dealt]]:
        """What the driver must know of a table's changes, and their rows.

        Raises:
            UnfitError: they must all be in one part.
        """
        view = self.view_of(table)
        is_again = self._is_again(table, view)
        new = self._new(table, view, given, is_again=is_again)
        changes, strange = self._own(table, view, new)
        boundary = SnapshotBoundary.of(self._by_place, self.job, table, view.positions)
        rules = ColumnRules(table, view.schema, self.decimals, view.row_rules.fill_names)
        made = TableChanges(changes, rules, decoder, is_whole=False).made(boundary, view.keys)
        rows = made.rows
        first = task * _TASK_PLACES - _TASK_PLACES // 2
        placed = [*zip(range(first, first + len(rows.rows)), rows.rows, strict=True)]
        ranked = sum(needs_rank(table, row) for row in rows.rows)
        if ranked and not is_again:
            raise UnfitError("the place of deletes is looked for in the table (precombine_key)")
        left_out = frozenset[str]().union(*(row.lacks for row in rows.rows))
        if table.expressions and left_out:
            raise UnfitError(f"{OF_SQL}, and its source left values out")
        if not view.row_rules.names.isdisjoint(left_out):
            raise UnfitError("its source left values out that a rule of the table reads")
        marks = table.deleted_column is not None and any(row.op is Op.DELETE for row in rows.rows)
        if marks and view.row_rules:
            raise UnfitError("its deleted rows stay, and a rule of the table reads what they were")
        if table.is_appended and table.expressions and _has_deletes(rows):
            raise UnfitError(f"{OF_SQL}, and a delete is a row that passes the filter")
        types, projected_records = ColumnTypes.of(rows), sum(len(one.batch) for one in rows.projected)
        kinds, misfits, narrow = self._misfits(table, view, rows, types)
        if misfits:
            placed = [one for one in placed if id(one[1]) in {*map(id, rows.rows)}]
        dead = [*strange, *rows.dead, *misfits]
        one_by_one = [one for one in placed if one[1].op is not Op.TRUNCATE]
        parts = [*_parts(rows, one_by_one, kinds, task)]
        by_columns = sum(len(one.batch) for one in rows.projected)
        projected = [*zip(rows.projected, parts, strict=False)]

        def again(given: ColumnBatch) -> list[ChangeRow]:
            changes = boundary.ordered(decoder.each(ChangeSet([], [given])).rows)
            return rows_of(rules, changes, rows.keys).rows

        share = ShareReport(
            table,
            rows.keys,
            given.records,
            by_columns + len({id(row.change) for row in rows.rows}),
            by_columns + len(rows.rows),
            changes.records - projected_records,
            made.ignored,
            dead,
            changes.counts(),
            changes.topics,
            changes.newest_ms if strange else given.newest_ms,
            changes.without(dead).newest_ms,
            boundary.found,
            types,
            _keys_of(parts),
            [
                (place, row.values[table.own.epoch], row.values[table.own.sequence])
                for place, row in placed
                if row.op is Op.TRUNCATE
            ],
            KeyMoves()
            if table.has_versions  # whose rows take nothing of others
            else KeyMoves.of(
                one_by_one,
                rows.keys,
                parts[-1].hashes if one_by_one else None,
                partial(_of_keys, projected, again),
            ),
            bool(left_out) or marks,
            left_out,
            earlier=given.records - new.records,
            narrow=narrow,
            is_again=is_again,
            ranked=ranked,
            deletes=_deletes_of(rows) if table.has_versions else 0,
        )
        if misfits and share.moves.takers:
            raise UnfitError("a key changed, and other values do not fit")
        if is_again:
            return share, iter(())
        if table.is_appended:  # rows have no keys: those of a task stay together
            return share, (kept_together(table.name, one.rows, task, view.parts) for one in parts)
        return share, (dealt(table.name, one.rows, one.hashes, view.parts) for one in parts)

    def _misfits(
        self, table: TargetTable, view: TableView, rows: ChangeRows, types: ColumnTypes
    ) -> tuple[Mapping[str, pa.DataType], list[DeadLetter], frozenset[str]]:
        """The types of columns, and the changes whose values do not fit those that are sure: they are taken out of the rows.

        Also the columns that are to be wider.  SQL takes values as they come.  Columns that a table lacks get their types of all tasks
        together.
        """
        fit = ColumnFit.of(table, types, None if view.schema is None else view, rows.keys)
        there = fit.types.keys() - fit.clashes
        if not self.is_alone:
            there &= frozenset(() if view.schema is None else view.schema.names)
        if table.expressions or not there or (self.is_alone and fit.clashes):
            return fit.types, [], frozenset()
        sure = replace(fit, types={name: kind for name, kind in fit.types.items() if name in there})
        found = take_misfits(table, rows, sure, is_whole=self.is_alone)
        wide = {name: fit.wider[name].type for name in found.narrow}
        return {**fit.types, **wide}, found.letters, found.narrow

    def _is_again(self, table: TargetTable, view: TableView) -> bool:
        """Whether the table has all records of the batch by its positions; what SQL makes of them is not counted again by tasks."""
        if self.look is not None or table.expressions:
            return False
        return all(
            view.positions.get(where.name(self.job), 0) >= one.end for where, one in self.ranges.items()
        )

    def _new(self, table: TargetTable, view: TableView, given: ChangeSet, *, is_again: bool) -> ChangeSet:
        """The changes that the table does not have by its positions, or all of them where they are counted again."""
        if table.name in self.unreached:
            raise UnfitError(self.unreached[table.name])
        if table.expressions and (version := duckdb_version()) != self.duckdb:
            raise UnfitError(
                f"{OF_SQL}, and executors have {'no DuckDB' if version is None else f'DuckDB {version}'}, the driver {self.duckdb}"
            )
        if self.look is not None or is_again:
            return given
        ends = {place: view.positions.get(name, 0) for place, name in self._names.items()}
        return given.since(ends)

    def _own(
        self, table: TargetTable, view: TableView, given: ChangeSet
    ) -> tuple[ChangeSet, list[DeadLetter]]:
        """The changes of the table's source, and dead letters of the others."""
        sources = given.counts()
        origin = TableSource.of(table, view.positions, sources)
        if origin.source is not None and not origin.is_recorded and {*sources} != {origin.source}:
            raise UnfitError("it has records of several sources, and none is recorded yet")
        return origin.split(given)


def _deletes_of(rows: ChangeRows) -> int:
    """How many rows are deletes."""
    by_columns = sum(pc.sum(pc.equal(one.operations, "d")).as_py() or 0 for one in rows.projected)
    return by_columns + sum(row.op is Op.DELETE for row in rows.rows)


def _has_deletes(rows: ChangeRows) -> bool:
    """Whether a change deletes a row, also where each change is a row of its own."""
    if any(row.change.op is Op.DELETE for row in rows.rows):
        return True
    return any(pc.any(pc.equal(one.batch.data.column(CHANGE_OP), "d")).as_py() for one in rows.projected)


# --- rows ----------------------------------------------------------------------------------------------
class _Part(NamedTuple):
    """Rows for an exchange, and their keys under the types of the table."""

    rows: pa.Table
    keys: pa.Table
    hashes: Any


def _parts(
    made: ChangeRows,
    one_by_one: Sequence[tuple[int, ChangeRow]],
    kinds: Mapping[str, pa.DataType],
    task: int,
) -> Iterator[_Part]:
    """Rows for an exchange; those that were made one by one come with their places: before the others, as in the driver's frames."""
    for one in made.projected:
        places = pa.chunked_array([pa.array(one.batch.places() + task * _TASK_PLACES)])
        rows = pa.table({**one.columns, OP: one.operations, PLACE: places})
        yield _part(rows, {name: column_of(one.columns[name], _kind(kinds, name)) for name in made.keys})
    if one_by_one:
        given = [row for _, row in one_by_one]
        columns = {
            ROW: pa.array([pickle.dumps(row.values) for row in given], pa.binary()),
            OP: pa.array([row.op.value for row in given], pa.string()),
            LACKS: pa.array([list(row.lacks) for row in given], LISTS),
            PLACE: pa.array([place for place, _ in one_by_one], pa.int64()),
        }
        values = {
            name: array_of([row.values[name] for row in given], _kind(kinds, name)) for name in made.keys
        }
        yield _part(pa.table(columns), values)


def _of_keys(
    projected: Sequence[tuple[Projected, _Part]],
    again: Callable[[ColumnBatch], Sequence[ChangeRow]],
    wanted: Collection[Key],
    hashes: Hashes,
) -> Iterator[ChangeRow]:
    """The changes of some keys that were read by columns; ``again`` makes them one by one."""
    for one, part in projected:
        mask = np.isin(part.hashes, hashes)
        if mask.any():
            yield from (
                row for row in again(one.batch.where(mask)) if key_of(row, part.keys.column_names) in wanted
            )


def _kind(kinds: Mapping[str, pa.DataType], name: str) -> pa.DataType:
    if name not in kinds:
        raise UnfitError("the type of its key is not known")
    return kinds[name]


def _part(rows: pa.Table, keys: Mapping[str, tuple[Any, Mapping[int, str]]]) -> _Part:
    if any(misfits for _, misfits in keys.values()):
        raise UnfitError("some of its keys do not fit the table")
    made = pa.table({name: values for name, (values, _) in keys.items()})
    return _Part(rows, made, hashes_of(made) if keys else None)


def _keys_of(parts: Sequence[_Part]) -> KeyReport | None:
    """What the driver must know of the keys of all parts."""
    if not parts or not parts[0].keys.num_columns:
        return None
    found = KeyReport(parts[0].keys.schema, parts[0].hashes is not None)
    for one in parts:
        found.add(KeyReport.of(one.keys, one.hashes))
    return found
