"""Gives a table the columns that the rows of a batch bring; what it cannot have makes dead letters of the rows that need it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.columns.column_fit import ColumnFit, ColumnTypes
from safewrite.cdc.columns.frames import take_misfits
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.ledger.target_tables import TargetTables
from safewrite.cdc.records.change import DeadLetter
from safewrite.cdc.rows.rows import ChangeRows
from safewrite.intake.partitioning import partition_columns

log = logging.getLogger("safewrite")
_REFUSALS = (sw.InvalidInputError, sw.WouldAlterError)


@dataclass(frozen=True)
class Fitted:
    """Rows that fit, their table with the columns that they bring, and the columns that it cannot have, and why."""

    frame: pa.Table
    found: sw.Table | None
    letters: Sequence[DeadLetter]
    refused: Mapping[str, str] | None = None


def fitted(
    targets: TargetTables,
    table: TargetTable,
    made: ChangeRows,
    found: sw.Table | None,
    refused: Mapping[str, str] | None = None,
) -> Fitted:
    """The frame of rows, once the table has the columns that they bring; those that do not fit are taken out.

    Args:
        refused: columns that the table cannot have, and why.

    Raises:
        InvalidInputError: the table is to be partitioned by a column whose type nothing tells yet.
    """
    fit = ColumnFit.of(table, ColumnTypes.of(made), found, made.keys, refused)
    rows = take_misfits(table, made, fit, is_whole=True)
    added = fit.added(None if found is None else found.schema)
    wider, frame = [fit.wider[name] for name in sorted(rows.narrow)], rows.frame()
    if not frame.num_rows:  # letters bring no columns: the table may be somebody else's
        return Fitted(frame, found, rows.letters, refused)
    if found is None:
        refuse_unknown_partitions(table, added)
    try:
        found = with_columns(targets, table, made.keys, found, added, wider=wider)
    except (*_REFUSALS, sw.UnsupportedTableError):
        if refused is not None:
            raise
    else:
        return Fitted(frame, found, rows.letters, refused)
    # One of the columns is at fault, so each is tried alone.
    refused = {}
    first = _first_columns(made.keys, table, added)
    if found is None and first:
        found = with_columns(targets, table, made.keys, None, first)
    for one in added:
        try:
            if found is None or found.schema.get_field_index(one.name) < 0:
                found = with_columns(targets, table, made.keys, found, [one])
        except _REFUSALS as error:
            refused[one.name] = str(error)
    for one in wider:
        assert found is not None
        try:
            found = targets.widen(table, found, [], [one])
        except (*_REFUSALS, sw.UnsupportedTableError) as error:
            log.warning("table %s: column %s stays as narrow as it is: %s", table.name, one.name, error)
            refused[one.name] = str(error)
    left = fitted(targets, table, made, found, refused)
    return replace(left, letters=[*rows.letters, *left.letters])


def with_columns(
    targets: TargetTables,
    table: TargetTable,
    keys: Sequence[str],
    found: sw.Table | None,
    fields: Sequence[pa.Field],
    *,
    wider: Sequence[pa.Field] = (),
) -> sw.Table:
    """The table with these columns besides its own, some of which are wider then; a new one if there is none.

    Raises:
        InvalidInputError, WouldAlterError, UnsupportedTableError: it cannot have them.
    """
    if found is None:
        return targets.create(table, keys, fields)
    return targets.widen(table, found, fields, wider) if fields or wider else found


def _first_columns(keys: Sequence[str], table: TargetTable, fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The columns that a table cannot be created without."""
    needed = {
        *keys,
        *table.own_columns,
        *(table.precombine_key or ()),
        *_dividing(table),
    }
    return [one for one in fields if one.name in needed]


def refuse_unknown_partitions(table: TargetTable, fields: Sequence[pa.Field]) -> None:
    known = {one.name for one in fields}
    unknown = [name for name in _dividing(table) if name.partition(".")[0] not in known]
    if unknown:
        sorted_by = f" and sort_by {table.sort_by}" if table.sort_by else ""
        raise sw.InvalidInputError(
            f"The table {table.name} is to be made with partition_by {table.partition_by}{sorted_by}, and nothing tells the type of "
            f"{', '.join(unknown)} yet: no row of this batch has a value there, and no schema names it. Nothing of the batch was "
            "committed. Declare its type in column_types, timestamp_fields or decimal_fields; or correct partition_by and sort_by."
        )


def _dividing(table: TargetTable) -> list[str]:
    """The columns that divide or sort a table, which it cannot be created without."""
    return partition_columns([*table.partition_by, *table.sort_terms])
