"""Applies what the configuration says of a table's source columns: times, decimals, and values that do not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.connect.logical_types.column import LogicalColumn
from safewrite.cdc.connect.logical_types.declared import DecimalMode, declared_decimal, declared_time
from safewrite.cdc.connect.misfits import Misfit, OnMisfit, text_of
from safewrite.cdc.records.change import UndecodableError

_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """How values of a table's source columns are read.

    ``schema`` is the table's; None before it is made.  ``decimals`` says how texts of decimal_fields are written that came
    without a schema; None where it is not known.  ``filled`` are the table's columns that get a value where a row lacks them, which is
    another than NULL.
    """

    table: TargetTable
    schema: pa.Schema | None = None
    decimals: DecimalMode | None = None
    filled: frozenset[str] = frozenset()

    def declared(self, name: str) -> pa.DataType | None:
        """The type that the configuration gives a source column."""
        if name in self.table.timestamp_fields:
            return _INSTANT
        if name in self.table.decimal_fields:
            return pa.decimal128(*self.table.decimal_fields[name])
        return pa.string() if self.is_text(name) else None

    def is_text(self, name: str) -> bool:
        """Whether values of a source column become texts, so that those which do not fit land too.

        A column that the table has with another type stays what it is: then a misfit is a dead letter.
        """
        table = self.table
        if not table.has_misfits or table.on_misfit_of(name) != "text":
            return False
        if name in table.timestamp_fields or name in table.decimal_fields:
            return False
        kind = self._kind(name)
        return kind is None or pa.types.is_string(kind) or pa.types.is_large_string(kind)

    def read(self, name: str, value: Any, *, is_key: bool, has_schema: bool) -> Any:
        """A value as the configuration says how its column is read, or what becomes of one that does not fit.

        Raises:
            UndecodableError: it is a dead letter.
        """
        mode = self.table.on_misfit_of(name)
        if mode in {"null", "floor"} and is_key:
            mode = "dead-letter"  # two rows would become one
        if isinstance(value, Misfit):
            value = self._misfit(name, value, mode, is_key=is_key)
            if mode != "floor":
                return value
        elif mode == "text" and self.is_text(name):
            return text_of(value)
        column = self.column(name, has_schema=has_schema)
        if column is None:
            return value
        try:
            return column.floor(value) if mode == "floor" and column.floor else column.read(value)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            if mode == "null":
                return None
            raise UndecodableError(f"column {name!r}: {error}") from error

    def _misfit(self, name: str, misfit: Misfit, mode: OnMisfit, *, is_key: bool) -> Any:
        if not misfit.is_value:
            raise misfit.refused()
        if mode == "null":
            return None
        if mode == "floor" and misfit.floored is not None:
            return misfit.floor()
        if mode == "text" and self.is_text(name):
            return misfit.text
        if mode == "text":
            raise UndecodableError(
                f"{misfit.why}; on_misfit text needs a column of texts, and the table's is {self._kind(name)}: map the source "
                "column to a new name (name_mapping)"
            )
        hint = (
            "text lands it" if is_key else "lands it as NULL or as a text, or a time without what is too fine"
        )
        raise UndecodableError(f"{misfit.why}; on_misfit {hint}")

    def column(self, name: str, *, has_schema: bool) -> LogicalColumn | None:
        """How values of a source column are read that the configuration declares; None for others."""
        table = self.table
        if name in table.timestamp_fields:
            return declared_time(table.timestamp_fields[name])
        if name in table.decimal_fields:
            return declared_decimal(*table.decimal_fields[name], "string" if has_schema else self.decimals)
        return None

    def _kind(self, name: str) -> pa.DataType | None:
        to = self.table.column_of(name)
        return None if self.schema is None or to not in self.schema.names else self.schema.field(to).type
