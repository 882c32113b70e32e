"""Brings a table's columns to those that are declared, or refuses what cannot be followed without loss."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.errors import ConflictError, InvalidInputError, StorageError


def fit(table: sw.Table, wanted: pa.Schema, name: str, *, read_only: bool) -> sw.Table:
    """The table with all columns that are declared, each wide enough.

    New columns are added and Iceberg's are widened, for the configuration says so; rows that are there have NULL in new ones.

    Raises:
        InvalidInputError: a column is missing that needs a value, is not declared, or cannot be widened.
        StorageError: the table's schema cannot be changed now.
        SafewriteError: as ``append``.
    """
    have = table.schema
    undeclared = sorted(set(have.names) - set(wanted.names))
    if undeclared:
        raise InvalidInputError(
            f"{table.uri} of {name} has the columns {undeclared}, which are not declared, and rows would have NULL there. "
            "Nothing was written. Declare them in columns; if files bring them no longer, name them in files.optional. Those that "
            "begin with _old_ come from files.before_image, _unchanged from files.no_sup_value."
        )
    there = frozenset(have.names)
    lacking = [one for one in wanted if one.name not in there]
    unfit = [one.name for one in lacking if not one.nullable]
    if unfit or (lacking and read_only):
        raise InvalidInputError(
            f"{table.uri} of {name} lacks the columns {[one.name for one in lacking]}. Nothing was written. "
            + ("Drop it, and the next run creates it." if unfit else "The next run adds them.")
        )
    wider = [one for one in wanted if one.name in there and is_wider(have.field(one.name).type, one.type)]
    if wider and not read_only:
        _widen(table, wider, name)
    if lacking:
        both = pa.schema([*table.refresh().schema, *lacking])
        table.append(both.empty_table(), schema_mode="merge")
    return table.refresh() if wider or lacking else table


def is_wider(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a declared type takes more values than a column of the same kind."""
    if pa.types.is_integer(have) and pa.types.is_integer(want):
        return bool(want.bit_width > have.bit_width)
    if pa.types.is_floating(have) and pa.types.is_floating(want):
        return bool(want.bit_width > have.bit_width)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(want.precision > have.precision or want.scale > have.scale)
    return False


def _widen(table: Any, fields: list[pa.Field], name: str) -> None:
    wanted = ", ".join(f"{one.name} to {one.type}" for one in fields)
    if not hasattr(table, "iceberg"):
        raise InvalidInputError(
            f"{table.uri} of {name} cannot be widened ({wanted}): Delta needs a table feature for that which readers lack. Nothing "
            "was written. Give bronze and silver of the table new addresses, and all files that are still there land again with "
            "the wider type; or keep the type, and values that do not fit go to quarantine."
        )
    from pyiceberg.exceptions import CommitFailedException, ValidationError

    try:
        with table.refresh().iceberg.update_schema() as update:
            for one in fields:
                update.update_column(one.name, field_type=_iceberg_type(one.type))
    except ValidationError as error:
        raise InvalidInputError(
            f"{table.uri} of {name} cannot be widened ({wanted}): {error}. Nothing was written. Give bronze and silver of the table "
            "new addresses, and all files that are still there land again; or keep the type."
        ) from error
    except CommitFailedException as error:
        raise ConflictError(
            f"{table.uri} of {name} could not be widened ({wanted}): another commit came first. Nothing was written. Run again."
        ) from error
    except OSError as error:
        raise StorageError(
            f"{table.uri} of {name} could not be widened ({wanted}): {error}. No rows were written. Run again."
        ) from error


def _iceberg_type(kind: pa.DataType) -> Any:
    from pyiceberg.types import DecimalType, DoubleType, LongType

    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    return LongType() if pa.types.is_integer(kind) else DoubleType()
