"""Says which rows a caller looks for: by keys, or by a condition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.positions import Flags, meeting, values_of
from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.predicate import Predicate, truths
from safewrite.frames.predicate import columns as columns_of
from safewrite.frames.prepare import prepare
from safewrite.frames.source import as_frame
from safewrite.table.added_rows import checked_columns, names_of
from safewrite.text.rendering import shown
from safewrite.values.unsupported import saying_why

if TYPE_CHECKING:
    from safewrite.frames.where import Where


@dataclass(frozen=True)
class RowFilter:
    """Rows that have one of ``keys``, or for which ``predicate`` is TRUE; ``columns`` are those to look at.

    ``selected`` are the columns that are asked for, in their order; None: all.
    """

    columns: tuple[str, ...]
    keys: pa.Table | None = None
    predicate: Predicate | None = None
    selected: tuple[str, ...] | None = None

    @property
    def needed(self) -> tuple[str, ...] | None:
        """The columns that are read of a file with such rows; None: all."""
        return None if self.selected is None else tuple(dict.fromkeys((*self.columns, *self.selected)))

    @cached_property
    def values(self) -> Mapping[str, pa.Array]:
        """The values of the keys, column by column."""
        return {} if self.keys is None else values_of(self.keys, self.keys.column_names)

    def flags(self, rows: pa.Table) -> Flags:
        """Which of some rows are wanted, by these columns of theirs."""
        if self.keys is not None:
            return meeting(self.keys, rows, self.values)
        assert self.predicate is not None
        return np.asarray(pc.fill_null(truths(self.predicate, rows), False), np.bool_)


class Readable(Protocol):
    """A table as far as its columns are asked for."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def unread(self) -> Mapping[str, str]: ...


def asked_of(table: Readable, keys: Any, where: Where | None, columns: object) -> RowFilter:
    """As :func:`wanted`, of a table that may have columns which cannot be read."""
    with saying_why(lambda: table.unread):
        return wanted(keys, where, table.schema, columns)


def wanted(keys: Any, where: Where | None, schema: pa.Schema, columns: object = None) -> RowFilter:
    """What ``keys`` or ``where=`` and ``columns=`` of a caller ask for in a table of this schema.

    Raises:
        InvalidInputError: neither or both are given, or they cannot be used; the table lacks one of ``columns``.
        WouldAlterError: the table lacks a column of the keys, or a value does not fit its type.
    """
    if (keys is None) == (where is None):
        raise InvalidInputError(
            'rows() takes keys, such as {"id": [1, 2]}, or where=, such as "day = \'2026-11-21\'": one of the two. Nothing was written.'
        )
    selected = checked_columns(names_of(columns), schema)
    if where is None:
        checked = checked_keys(keys, schema)
        return RowFilter(tuple(checked.column_names), keys=checked, selected=selected)
    from safewrite.frames.where import parse

    predicate = parse(where, schema)
    looked_at = tuple(sorted(columns_of(predicate))) or tuple(schema.names[:1])
    return RowFilter(looked_at, predicate=predicate, selected=selected)


_STORED = re.compile(r" cannot be stored as (.*?) unchanged")


def checked_keys(keys: object, schema: pa.Schema) -> pa.Table:
    """The keys under the types of a table's columns.

    Raises:
        InvalidInputError: they cannot be read as a frame, have no columns, or have nested ones or floats.
        WouldAlterError: the table lacks a column of theirs, or a value does not fit its type.
    """
    named = set(as_frame(keys, target=schema).column_names)
    # Without metadata: what CHAR(n) and VARCHAR(n) forbid is a matter of writes, and such a key has no row.
    mine = pa.schema([field.with_nullable(True).remove_metadata() for field in schema if field.name in named])
    unfit = [one.name for one in mine if pa.types.is_nested(one.type) or pa.types.is_floating(one.type)]
    if unfit or not named:
        raise InvalidInputError(
            f"rows() takes a frame of key columns, not of {unfit or 'none'}: floats (NaN, -0.0) and nested values cannot be keys. "
            'Nothing was read. Give other columns, such as {"id": [1, 2]}.'
        )
    if lacking := sorted(named - {*schema.names}):
        raise WouldAlterError(
            f"rows() was given keys of {', '.join(map(repr, lacking))}, which the table does not have. Nothing was read. It has: "
            f"{', '.join(map(shown, schema.names))}."
        )
    try:
        prepared = prepare(keys, mine, named=False)
    except (WouldAlterError, InvalidInputError) as error:
        text = _STORED.sub(r" is no \1, so no row can have it", str(error)).replace("was written", "was read")
        raise type(error)(f"rows() cannot look for these keys. {text}") from error
    return pa.concat_tables([mine.empty_table(), *prepared.tables()])
