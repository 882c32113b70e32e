"""Puts a column batch under its table's names, keys and order: what ``safewrite.cdc.rows.rows`` does change by change.

Both have to agree.  Changes in doubt are given back, and made to rows one by one: those that move a row to another key, and
those that may be dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.own_columns import OF_FRAMES
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.columns import UnsuitedError
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.connect.misfits import text_of
from safewrite.cdc.connect.values import digits_pattern
from safewrite.cdc.records.change_set import AFTER, BEFORE, KEY, OP, POSITION, ColumnBatch
from safewrite.cdc.rows.record_metadata import metadata_columns
from safewrite.values.objects import json_of

Columns = Mapping[str, Any]
_LONG = digits_pattern(16)
"""Numbers of 16 digits; those of fewer are the shortest ones of the binary numbers next to them."""


@dataclass(frozen=True)
class Projected:
    """Changes as columns of their table, by its names: the rows, their keys, and what orders them."""

    batch: ColumnBatch
    columns: Columns
    types: Mapping[str, pa.DataType]
    """Those that schemas or the configuration name."""
    is_appended: bool = False
    left: Any = None
    """Which of them the filter does not let pass: deletes.  None where there are none."""

    @property
    def operations(self) -> Any:
        """What each change does to a row with its key: ``u`` or ``d``."""
        if self.is_appended:
            return pa.chunked_array([pa.repeat(pa.scalar("u"), len(self.batch))])
        deletes = pc.equal(self.batch.data.column(OP), "d")
        return pc.if_else(deletes if self.left is None else pc.or_(deletes, self.left), "d", "u")


def projected(
    rules: ColumnRules, batch: ColumnBatch, keys: Sequence[str]
) -> tuple[Projected | None, ColumnBatch | None]:
    """The changes of a batch that can be projected at once, and the others."""
    fallback = RowFallback(len(batch))
    try:
        columns, types = _columns(rules, batch, keys, fallback)
        for name in rules.filled & columns.keys() if batch.is_inferred else ():
            fallback.where(pc.is_null(columns[name]))  # whether the record has the column, its text tells
    except (UnsuitedError, ArithmeticError, ValueError, TypeError, pa.ArrowException):
        return None, batch
    mask = fallback.mask()
    sure, others = batch, None
    if mask.any():
        sure, others, kept = batch.where(~mask), batch.where(mask), pa.array(~mask)
        columns = {name: one.filter(kept) for name, one in columns.items()}
    if not len(sure) or (batch.is_inferred and _asks_how_values_were_written(columns, rules.schema)):
        return None, batch
    if batch.is_inferred:
        columns = {
            name: _texts(one) if pa.types.is_nested(one.type) else one for name, one in columns.items()
        }
    columns = {**columns, **metadata_columns(rules.table, sure)}
    return Projected(sure, columns, types, rules.table.is_appended), others


def _columns(
    rules: ColumnRules, batch: ColumnBatch, keys: Sequence[str], fallback: RowFallback
) -> tuple[Columns, Mapping[str, pa.DataType]]:
    table = rules.table
    after = _named(rules, batch, AFTER, batch.types, fallback)
    before = _named(rules, batch, BEFORE, batch.types, fallback)
    told = _named(rules, batch, KEY, batch.keys, fallback)
    types = (
        _declared(table, (after, before, told))
        if batch.is_inferred
        else {name: one.type for name, one in after.items()}
    )
    if batch.is_inferred and _has_binary_decimals(table, batch):
        fallback.where(pc.match_substring_regex(batch.values(), _LONG))
    deletes = pc.equal(batch.data.column(OP), "d")
    if table.is_appended:
        return {**after, **_of_deletes(after, before, told, deletes, fallback)}, types
    found = dict(after)
    for name in keys:
        found[name] = _key(
            name, pc.if_else(deletes, before[name], after[name]) if name in after else None, told
        )
        fallback.where(pc.is_null(found[name]))
    _doubt_moves(before, found, keys, deletes, fallback)
    untold = set(keys) - set(told) if batch.keys else set()
    if untold:  # the row before has to tell the key that the row had
        fallback.where(deletes)
    if untold - {table.shard_column}:
        fallback.unless(pc.equal(batch.data.column(OP), "c"))
    if table.precombine_key or table.deleted_column is not None:
        fallback.where(deletes)  # what orders them, or their row has, is looked for
    for name in table.precombine_key or ():
        if name not in after:
            raise UnsuitedError(f"nothing of {name} is known")
        if name not in keys:
            found[name] = pc.if_else(deletes, before[name], after[name])
        fallback.where(pc.is_null(found[name], nan_is_null=True))
    length = len(batch)
    found[table.own.epoch] = pa.chunked_array([pa.array([table.epoch] * length, pa.int64())])
    found[table.own.sequence] = batch.data.column(POSITION)
    return found, types


def _of_deletes(
    after: Columns, before: Columns, of_key: Columns, deletes: Any, fallback: RowFallback
) -> dict[str, Any]:
    """The columns of changes that are rows of their own, where some are deletes: what those tell of the row before them."""
    if not pc.any(deletes).as_py():
        return {}
    if {*of_key} - {*after}:
        fallback.where(deletes)
    found = {}
    for name, values in after.items():
        known = [of[name] for of in (before, of_key) if name in of]
        if any(one.type != values.type for one in known):
            fallback.where(deletes)
        elif known:
            found[name] = pc.if_else(deletes, pc.coalesce(*known), values)
    return found


def _declared(table: TargetTable, given: Sequence[Columns]) -> Mapping[str, pa.DataType]:
    """The types of columns that the configuration declares, of those that have a value."""
    names = {table.column_of(name) for name in (*table.timestamp_fields, *table.decimal_fields)}
    return {
        name: one.type
        for columns in given
        for name, one in columns.items()
        if name in names and one.null_count < len(one)
    }


def _has_binary_decimals(table: TargetTable, batch: ColumnBatch) -> bool:
    """Whether a column that is declared a decimal was read as binary numbers, which those of many digits are not."""
    return any(
        pa.types.is_floating(column.type) and column.name.partition(".")[2] in table.decimal_fields
        for column in batch.data.schema
    )


def _asks_how_values_were_written(columns: Columns, schema: pa.Schema | None) -> bool:
    """Whether numbers that were read as binary ones are for a column of another type, or decide a new one's and are whole.

    And whether lists, which become texts, are for a column that takes lists.
    """
    known = {} if schema is None else {field.name: field.type for field in schema}
    if any(name in known and pa.types.is_nested(known[name]) for name in columns):
        return True
    return any(
        name in known or pc.all(pc.equal(values, pc.floor(values))).as_py()
        for name, values in columns.items()
        if pa.types.is_floating(values.type) and known.get(name) != values.type
    )


def _key(name: str, of_row: Any, told: Columns) -> Any:
    """A column of the key: of the row, else of the record's key."""
    if of_row is None or pa.types.is_nested(of_row.type):
        raise UnsuitedError(f"the key column {name!r} is none of the rows, or nested")
    if name in told and of_row.null_count and told[name].type == of_row.type:
        return pc.coalesce(of_row, told[name])
    return of_row


def _doubt_moves(
    before: Columns, found: Columns, keys: Sequence[str], deletes: Any, fallback: RowFallback
) -> None:
    """Doubt updates that took their row from another key."""
    olds = [before[name] for name in keys]
    if all(one.null_count == len(one) for one in olds):
        return
    whole, moved = pc.invert(deletes), None
    for name, old in zip(keys, olds, strict=True):
        whole = pc.and_(whole, pc.is_valid(old))
        differs = pc.not_equal(old, found[name])
        moved = differs if moved is None else pc.or_kleene(moved, differs)
    fallback.where(pc.and_kleene(whole, moved))


# --- names, and columns that are declared ---------------------------------------------------------------
def _named(
    rules: ColumnRules,
    batch: ColumnBatch,
    of: str,
    names: Sequence[str] | Mapping[str, Any],
    fallback: RowFallback,
) -> dict[str, Any]:
    """The columns of rows, or of keys, under the table's names, its times and decimals read."""
    table = rules.table
    own, dropped = frozenset({*table.own_columns, *table.computed, *OF_FRAMES}), table.dropped
    found: dict[str, Any] = {}
    for name in names:
        if name in dropped:
            continue
        values = batch.column(of, name)
        assert values is not None
        to = table.column_of(name)
        if to in found or to in own:
            raise UnsuitedError(f"two columns of the name {to!r}, or one that the job keeps")
        declared = rules.column(name, has_schema=not batch.is_inferred)
        if rules.is_text(name):
            values = _as_texts(values, batch)
        elif declared is not None:
            values = declared.reader(values.type)(values.combine_chunks(), fallback)
        found[to] = values
    if table.shard_column is None or not table.writes_shard:
        return found
    if table.shard_column in found:
        raise UnsuitedError("a column in which the job writes the source's name")
    source = pa.repeat(pa.scalar(str(batch.source)), len(batch))
    return {table.shard_column: pa.chunked_array([source]), **found}


def _as_texts(values: Any, batch: ColumnBatch) -> Any:
    """A column as texts.

    Raises:
        UnsuitedError: binary numbers of records without a schema, which are texts as they were written.
    """
    if pa.types.is_string(values.type):
        return values
    if batch.is_inferred and not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise UnsuitedError("values that are texts as they were written")
    return pa.chunked_array(
        [pa.array([None if one is None else text_of(one) for one in values.to_pylist()], pa.string())]
    )


def _texts(lists: Any) -> Any:
    """Lists as texts of JSON."""
    return pa.chunked_array(
        [pa.array([None if one is None else json_of(one) for one in lists.to_pylist()], pa.string())]
    )
