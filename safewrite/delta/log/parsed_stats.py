"""Statistics and partition values of a checkpoint in the table's own types: ``stats_parsed``, ``partitionValues_parsed``.

Where ``delta.checkpoint.writeStatsAsStruct`` asks for them (PROTOCOL.md, "Checkpoint Schema").  A value that is none of its type is
left out: a missing bound costs a reader time, a wrong one rows.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.delta.log import column_names
from safewrite.delta.log.snapshot import Snapshot
from safewrite.delta.log.stats_text import stats_text

STATS, VALUES = "stats_parsed", "partitionValues_parsed"
_BOUNDS = ("minValues", "maxValues")
_CUT = dt.timedelta(microseconds=999)


def wanted(state: Snapshot) -> bool:
    """Whether the table asks for them."""
    return state.properties.get("delta.checkpoint.writeStatsAsStruct", "false").strip().lower() == "true"


def fields(state: Snapshot) -> Iterator[pa.Field]:
    """The fields that add actions of a checkpoint have more; none where the table does not ask for them."""
    if not wanted(state):
        return
    by = {state.physical[name] for name in state.partition_by}
    every = state.schema if state.mapped is None else column_names.in_files(state.schema, state.mapped)
    data = [field for field in every if field.name not in by]
    bounded = [field for field in map(_bounded, data) if field is not None]
    parts = [pa.field("numRecords", pa.int64()), pa.field("nullCount", pa.struct(list(map(_counted, data))))]
    parts += [pa.field(name, pa.struct(bounded)) for name in _BOUNDS if bounded]
    yield pa.field(STATS, pa.struct([*parts, pa.field("tightBounds", pa.bool_())]))
    if state.partition_by:
        kinds = [pa.field(state.physical[name], state.schema.field(name).type) for name in state.partition_by]
        yield pa.field(VALUES, pa.struct(kinds))


def _counted(field: pa.Field) -> pa.Field:
    if pa.types.is_struct(field.type):
        return pa.field(field.name, pa.struct(list(map(_counted, field.type))))
    return pa.field(field.name, pa.int64())


def _bounded(field: pa.Field) -> pa.Field | None:
    """A column as bounds have it; None for a type that has none."""
    kind = field.type
    if pa.types.is_struct(kind):
        inner = [found for found in map(_bounded, kind) if found is not None]
        return pa.field(field.name, pa.struct(inner)) if inner else None
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_boolean(kind):
        return None
    return pa.field(field.name, kind)


def of_stats(texts: Sequence[str | None], kind: pa.StructType) -> pa.StructArray:
    """Statistics of files, NULL where a file has none."""
    return pa.array([None if text is None else _stats(text, kind) for text in texts], kind)


def of_values(values: Sequence[dict[str, str | None]], kind: pa.StructType) -> pa.StructArray:
    """Partition values of files."""
    columns = [[one.get(field.name) for one in values] for field in kind]
    known: list[dict[str | None, Any]] = [
        {text: _of_text(text, field.type) for text in set(column)}
        for field, column in zip(kind, columns, strict=True)
    ]
    arrays = [
        pa.array([texts[text] for text in column], field.type)
        for field, column, texts in zip(kind, columns, known, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


def completed(rows: pa.StructArray) -> pa.StructArray:
    """Add actions of an earlier checkpoint with both forms of statistics, and with their partition values in types."""
    names = [field.name for field in rows.type]
    if STATS not in names:
        return rows
    arrays = {name: rows.field(name) for name in names}
    texts, parsed = arrays["stats"], arrays[STATS]
    if parsed.null_count:
        arrays[STATS] = pc.coalesce(parsed, of_stats(texts.to_pylist(), parsed.type))
    if texts.null_count:
        told = texts.to_pylist()
        for at, text in enumerate(told):
            told[at] = stats_text(parsed[at].as_py()) if text is None else text
        arrays["stats"] = pa.array(told, pa.string())
    if VALUES in names:
        arrays[VALUES] = of_values(
            [dict(one) for one in arrays["partitionValues"].to_pylist()], arrays[VALUES].type
        )
    return pa.StructArray.from_arrays([arrays[name] for name in names], fields=list(rows.type))


# --- texts to values --------------------------------------------------------------------------------
def _stats(text: str, kind: pa.StructType) -> dict[str, Any] | None:
    try:
        told = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict):
        return None
    return {
        field.name: _tree(told.get(field.name), field.type, is_most=field.name == "maxValues")
        for field in kind
    }


def _tree(told: Any, kind: pa.DataType, *, is_most: bool = False) -> Any:
    if pa.types.is_struct(kind):
        if not isinstance(told, dict):
            return None
        return {field.name: _tree(told.get(field.name), field.type, is_most=is_most) for field in kind}
    try:
        return None if told is None else _value(told, kind, is_most)
    except (ValueError, ArithmeticError, TypeError, OverflowError, pa.ArrowException):
        return None


def _value(told: Any, kind: pa.DataType, is_most: bool) -> Any:
    if pa.types.is_boolean(kind):
        return told if isinstance(told, bool) else None
    if pa.types.is_string(kind):
        return told if isinstance(told, str) else None
    if pa.types.is_floating(kind):
        found: Any = float(told)
    elif pa.types.is_decimal(kind):
        found = Decimal(told)
    elif pa.types.is_date(kind):
        found = dt.date.fromisoformat(told)
    elif pa.types.is_timestamp(kind):
        found = dt.datetime.fromisoformat(told)
        if kind.tz is None:
            found = found.replace(tzinfo=None)
        elif found.tzinfo is None:
            found = found.replace(tzinfo=dt.UTC)
        if is_most:  # JSON has milliseconds, and engines cut the rest off
            found += _CUT
    else:
        found = int(told)
        if isinstance(told, Decimal) and found != told:
            return None
    pa.scalar(found, kind)  # what is beyond the type is left out
    return found


def _of_text(text: str | None, kind: pa.DataType) -> Any:
    """A partition value: an empty text is NULL in each type."""
    if not text:
        return None
    told: Any = text.lower() == "true" if pa.types.is_boolean(kind) else text
    return _tree(told, kind)
