"""Reads columns of records by their schemas: each column as its logical type, whatever is in doubt by its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.logical_types.column import ReadArray, RowFallback
from safewrite.cdc.connect.logical_types.plain import IN_JSON, Carried
from safewrite.cdc.connect.logical_types.schemas import column_of
from safewrite.cdc.connect.placeholder import Placeholder

_TEXT, _BYTES = pa.string(), pa.binary()


class UnsuitedError(Exception):
    """Records cannot be read by columns; they are read one by one."""


def flags(mask: Any) -> Any:
    """A mask as booleans of NumPy; NULL is false."""
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False).copy()


@dataclass(frozen=True, slots=True)
class ColumnReader:
    """How the values of a column come, the type that they get, and how they get it."""

    given: pa.DataType
    type: pa.DataType
    read: ReadArray


def reader_of(
    schema: Mapping[str, Any], carried: Carried = IN_JSON, placeholder: Placeholder | None = None
) -> ColumnReader:
    """The reader of a schema's values.

    Args:
        carried: how the form of the records carries values.
        placeholder: doubt the values that are it.

    Raises:
        UnsuitedError: its values cannot be read by columns.
        UndecodableError: a type that is not known.
    """
    column, given = column_of(schema), given_of(schema, carried)
    return ColumnReader(given, column.type, _doubting(placeholder, given, column.reader(given)))


def given_of(schema: Mapping[str, Any], carried: Carried) -> pa.DataType:
    """The type by which Arrow takes a schema's values as they come, and nothing else.

    Raises:
        UnsuitedError: there is none.
    """
    kind = schema.get("type")
    if kind in carried:
        return carried[kind]
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        return pa.list_(given_of(schema["items"], carried))
    if kind == "struct":
        return pa.struct(fields_of(schema, carried))
    raise UnsuitedError(f"type {kind!r}")


def fields_of(schema: Mapping[str, Any], carried: Carried) -> list[pa.Field]:
    """The fields of a struct, as Arrow takes them."""
    fields = schema.get("fields")
    if not isinstance(fields, list):
        raise UnsuitedError("a struct without fields")
    names = [str(one.get("field")) for one in fields]
    if len(set(names)) < len(names):
        raise UnsuitedError("a struct that has a field twice")
    return [pa.field(name, given_of(one, carried)) for name, one in zip(names, fields, strict=True)]


def _doubting(placeholder: Placeholder | None, given: pa.DataType, read: ReadArray) -> ReadArray:
    """Reads what is no placeholder; numbers and booleans stand in for nothing else."""
    if placeholder is None or not (given in {_TEXT, _BYTES} or pa.types.is_nested(given)):
        return read
    known = pa.array([placeholder.raw] if given == _BYTES else sorted(placeholder.texts))

    def checked(values: pa.Array, fallback: RowFallback) -> pa.Array:
        if not pa.types.is_nested(given):
            fallback.where(pc.is_in(values, known))
        elif values.null_count < len(values):
            listed = enumerate(values.to_pylist())
            fallback.at(place for place, value in listed if placeholder.may_stand_in(value))
        return read(values, fallback)

    return checked


@dataclass(frozen=True, slots=True)
class RowReader:
    """How the columns of a row are read."""

    columns: Mapping[str, ColumnReader]

    @classmethod
    def of(
        cls, schema: Mapping[str, Any], carried: Carried, placeholder: Placeholder | None = None
    ) -> RowReader:
        """The reader of a struct's schema."""
        fields_of(schema, carried)
        made = {str(one["field"]): reader_of(one, carried, placeholder) for one in schema["fields"]}
        return cls(made)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """The types that the columns get."""
        return {name: one.type for name, one in self.columns.items()}

    def read(self, rows: Any, fallback: RowFallback) -> dict[str, pa.Array]:
        """The columns of rows; NULL where a row is missing."""
        values: Sequence[pa.Array] = rows.flatten()
        if rows.null_count == len(rows):
            return {name: pa.nulls(len(rows), one.type) for name, one in self.columns.items()}
        return {
            name: one.read(column, fallback)
            for (name, one), column in zip(self.columns.items(), values, strict=True)
        }
