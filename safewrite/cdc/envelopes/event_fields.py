"""Reads fields of many events at once, and what all envelopes make of them: positions and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import RowReader, UnsuitedError, fields_of
from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.envelopes.envelope import KeyReader, Tombstone
from safewrite.cdc.envelopes.position import OFFSET_WIDTH
from safewrite.cdc.records.change import KafkaRecord, SourceTable
from safewrite.values.limits import DAY_US, span_of

_TABLES_MAX = 16
_MS_MAX = span_of(DAY_US // 1000)[1]
"""The end of the year 9999."""
Fields = Mapping[str, pa.Array]
"""The fields of a struct, each as a column."""


def with_offsets(core: pa.Array, offsets: pa.Array) -> pa.Array:
    """Positions with Kafka's offsets behind them."""
    return pc.binary_join_element_wise(core, padded(offsets, OFFSET_WIDTH), "-")


def fields(struct: Any) -> dict[str, pa.Array]:
    """The fields of a struct; NULL where there is none.

    Raises:
        UnsuitedError: it is none.
    """
    if struct is None or struct.null_count == len(struct):
        return {}
    if not pa.types.is_struct(struct.type):
        raise UnsuitedError("no struct")
    return dict(zip((one.name for one in struct.type), struct.flatten(), strict=True))


def text_of(found: Fields, name: str, length: int) -> pa.Array:
    """A field of texts; NULL everywhere if there is none."""
    if name not in found or found[name].null_count == length:
        return pa.nulls(length, pa.string())
    if found[name].type != pa.string():
        raise UnsuitedError(f"{name} is not a text")
    return found[name]


def number_of(found: Fields, name: str, length: int) -> pa.Array:
    """A field of whole numbers; NULL everywhere if there is none."""
    if name not in found or found[name].null_count == length:
        return pa.nulls(length, pa.int64())
    if found[name].type != pa.int64():
        raise UnsuitedError(f"{name} is not a whole number")
    return found[name]


def padded(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def checked(numbers: pa.Array, width: int, fallback: RowFallback) -> pa.Array:
    """Numbers with zeros in front; what is none, or too long, is doubted."""
    fits = pc.greater_equal(numbers, 0)
    if width < 19:
        fits = pc.and_(fits, pc.less(numbers, 10**width))
    fallback.unless(fits)
    return padded(pc.if_else(pc.fill_null(fits, False), numbers, 0), width)


def tables_of(
    databases: pa.Array, schemas: pa.Array, tables: pa.Array, fallback: RowFallback
) -> Iterator[tuple[Any, SourceTable]]:
    """The source tables of these names, and which records are theirs.

    Raises:
        UnsuitedError: there are too many.
    """
    told = {"database": databases, "schema": schemas, "table": tables}
    fallback.where(pc.is_null(tables))
    fallback.where(pc.equal(tables, ""))
    found = pa.table(told).group_by(list(told)).aggregate([])
    if found.num_rows > _TABLES_MAX:
        raise UnsuitedError("records of many tables")
    for row in found.to_pylist():
        chosen = np.ones(len(tables), bool)
        for name in told if found.num_rows > 1 else ():
            chosen &= _equal(told[name], row[name])
        yield chosen, SourceTable(**{name: value or "" for name, value in row.items()})


def _equal(values: pa.Array, one: str | None) -> Any:
    found = pc.is_null(values) if one is None else pc.fill_null(pc.equal(values, one), False)
    return found.to_numpy(zero_copy_only=False)


@dataclass(frozen=True, slots=True)
class SchemaReader:
    """How records of one schema are read: their bytes as structs, and the columns of their rows."""

    converter: Converter
    given: pa.Schema
    rows: RowReader

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """The types that the columns of the rows get."""
        return self.rows.types

    def fields(self, payloads: Any) -> dict[str, pa.Array]:
        """The fields of payloads."""
        return fields(self.converter.parsed(payloads, self.given))


def given_by(schema: Mapping[str, Any], converter: Converter) -> pa.Schema:
    """The type of a schema's payloads, as the converter carries their values.

    Raises:
        UnsuitedError: Arrow takes them by none.
    """
    return pa.schema(fields_of(schema, converter.carried))


class NoKeys:
    """What envelopes have in common whose records have no key of columns, and no tombstones."""

    row_headers: Sequence[str] = ()
    delete_headers: Sequence[str] = ()
    tombstone: Callable[[KafkaRecord, bool], Tombstone] | None = None

    def key_reader(self, schema: Mapping[str, Any]) -> KeyReader:
        raise UnsuitedError("no key of columns")


def clock(times: pa.Array) -> pa.Array:
    """Those that are times of a clock, as :func:`milliseconds`."""
    is_time = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, _MS_MAX))
    return pc.if_else(is_time, times, None)


def milliseconds(*values: Any) -> int | None:
    """The first that is a time of a clock; it orders nothing, so other values are passed over."""
    return next((value for value in values if type(value) is int and 0 <= value <= _MS_MAX), None)
