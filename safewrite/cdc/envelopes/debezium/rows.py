"""Reads the rows and keys of Debezium: the values of each column under its schema, one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from safewrite.cdc.connect.json import ConnectValue
from safewrite.cdc.connect.logical_types.column import UNREADABLE, LogicalColumn
from safewrite.cdc.connect.logical_types.schemas import row_of
from safewrite.cdc.connect.misfits import Misfit, shortened, text_of
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.records.change import UNAVAILABLE, AmbiguousError, UndecodableError

ROUTED = "__dbz__"
"""What names begin with that routing of many tables into one topic adds to keys."""
_SAME_MAX = 1000
_NUMBERS = frozenset({int, float, bool, Decimal})
"""Types of values that stand in for no other."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """The columns of a schema, made once for all events that have it."""

    columns: Mapping[str, LogicalColumn]
    types: Mapping[str, pa.DataType]


NO_SHAPE = RowShape({}, {})


class DebeziumRows:
    """Reads rows and keys.  Not for several threads at once: it remembers schemas."""

    def __init__(self, placeholder: Placeholder | None) -> None:
        self._placeholder = placeholder
        self._shapes: dict[str, RowShape] = {}
        self._same: dict[int, tuple[Mapping[str, Any], RowShape]] = {}
        """The shape of a schema that is the same object as before; it is kept, so that no other gets its id."""

    def columns_of_key(self, key: ConnectValue) -> dict[str, Any]:
        """The columns of a key that is a struct."""
        columns = {} if key.schema is None else self.shape(key.schema, key.version).columns
        return {
            name: value if value is None else _read(name, value, columns.get(name))
            for name, value in key.payload.items()
            if not name.startswith(ROUTED)
        }

    def key_of(self, key: ConnectValue | None) -> tuple[dict[str, Any] | None, str | None]:
        """The columns of a key, or why there are none."""
        if key is None:
            return None, None
        if not isinstance(key.payload, dict):
            return None, (
                f"the record's key is no struct but {type(key.payload).__name__}; set key.converter to the converter of the values, "
                "or name the table's primary_key"
            )
        try:
            return self.columns_of_key(key), None
        except UNREADABLE as error:
            return None, f"the schema of the record's key cannot be read: {error}"

    def row(self, row: Any, shape: RowShape, connector: object) -> dict[str, Any] | None:
        """A row of an event.  A value that cannot be read is a ``Misfit``: it matters only to a table that needs it."""
        if row is None:
            return None
        if not isinstance(row, dict):
            raise UndecodableError(
                f"a row of the connector {connector!r} is no struct but {type(row).__name__}: its events are not "
                "understood here"
            )
        placeholder, columns = self._placeholder, shape.columns
        found: dict[str, Any] = {}
        for name, value in row.items():
            if value is None:
                found[name] = None
                continue
            column = columns.get(name)
            try:
                if placeholder is not None and type(value) not in _NUMBERS and placeholder.stands_in(value):
                    found[name] = UNAVAILABLE
                else:
                    found[name] = value if column is None else column.read(value)
            except UNREADABLE as error:
                found[name] = _misfit(name, value, column, error)
        return found

    # --- schemas ----------------------------------------------------------------------------------
    def shape(self, schema: Mapping[str, Any], version: str | None) -> RowShape:
        """The columns of a struct's schema."""
        return self.once(schema, lambda: self._shape_of(schema, version))

    def once(self, schema: Mapping[str, Any], make: Callable[[], RowShape]) -> RowShape:
        """What is made of a schema, once for each object: a batch has few of them, and many records."""
        same = self._same.get(id(schema))
        if same is not None and same[0] is schema:
            return same[1]
        if len(self._same) > _SAME_MAX:
            self._same.clear()
        made = make()
        self._same[id(schema)] = (schema, made)
        return made

    def _shape_of(self, schema: Mapping[str, Any], version: str | None) -> RowShape:
        known = version if version is not None else json.dumps(schema, sort_keys=True, separators=(",", ":"))
        known = f"{schema.get('name')}:{known}"
        if known not in self._shapes:
            columns = row_of(schema)
            types = {
                name: column.type for name, column in columns.items() if not pa.types.is_null(column.type)
            }
            self._shapes[known] = RowShape(columns, types)
        return self._shapes[known]


def _read(name: str, value: Any, column: LogicalColumn | None) -> Any:
    try:
        return value if column is None else column.read(value)
    except UNREADABLE as error:
        return _misfit(name, value, column, error)


def _misfit(name: str, value: Any, column: LogicalColumn | None, error: Exception) -> Misfit:
    """What stands for a value that cannot be read: it matters only to a table that needs it."""
    why = str(error)
    if isinstance(error, AmbiguousError):
        return Misfit(value, f"column {name!r}: {why}", None)
    if column is not None and not isinstance(error, UndecodableError):
        why = f"{shortened(value)} is no {column.type} ({error})"
    if column is None or pa.types.is_null(column.type):
        return Misfit(value, f"column {name!r}: {why}", text_of)
    return Misfit(value, f"column {name!r}: {why}", column.text_of, column.floor)
