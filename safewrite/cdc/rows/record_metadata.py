"""Tells what a record was besides its row (topic, offset, key, ...), as the columns that a table asks for by ``metadata``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.config.table_config import METADATA, MetadataKind, TargetTable
from safewrite.cdc.records.change import Op, SourceChange
from safewrite.cdc.records.change_set import OP, PLACE, POSITION, TIME, ColumnBatch
from safewrite.values.limits import DAY_US, span_of, utc

OPS: Mapping[Op, str] = {Op.UPSERT: "upsert", Op.DELETE: "delete", Op.TRUNCATE: "truncate"}
"""How a column of metadata names what a change does."""
_MS_MAX = span_of(DAY_US // 1000)[1]


def metadata_of(table: TargetTable, change: SourceChange) -> dict[str, Any]:
    """The values of one change, by their columns."""
    return {name: _OF_CHANGE[kind](change) for name, kind in table.of_records.items()}


def metadata_columns(table: TargetTable, batch: ColumnBatch) -> dict[str, Any]:
    """The columns of a batch, which have what ``metadata_of`` says of each change."""
    if not table.of_records:
        return {}
    needed = {*table.of_records.values()}
    source = batch.records.data if needed & {"key", "headers", "timestamp"} else batch.records.whereabouts
    records = source.take(batch.data.column(PLACE))
    return {
        name: _OF_BATCH[kind](batch, records).cast(METADATA[kind]) for name, kind in table.of_records.items()
    }


def _time(at_ms: int | None) -> datetime | None:
    """A time; NULL where the producer gave none, or none that a calendar has."""
    return None if at_ms is None or at_ms < 0 else utc(at_ms)


def _times(values: Any) -> Any:
    is_time = pc.and_(pc.greater_equal(values, 0), pc.less_equal(values, _MS_MAX))
    return pc.if_else(is_time, values, None).cast(pa.timestamp("ms", "UTC"))


def _key_column(batch: ColumnBatch, records: pa.Table) -> Any:
    """The keys of records, with the prefixes that were cut off."""
    keys, number = records.column("key"), records.column("key_prefix")
    if number.null_count == len(number):
        return keys
    prefixes = pa.array(batch.records.prefixes, pa.binary()).take(number.combine_chunks())
    return pc.binary_join_element_wise(pc.fill_null(prefixes, b""), keys, b"")


def _header_column(records: pa.Table) -> Any:
    headers = records.column("headers")
    return headers if headers.null_count == 0 else pc.fill_null(headers, pa.scalar([], headers.type))


_OF_CHANGE: Mapping[MetadataKind, Callable[[SourceChange], Any]] = {
    "topic": lambda change: change.record.topic,
    "partition": lambda change: change.record.partition,
    "offset": lambda change: change.record.offset,
    "timestamp": lambda change: _time(change.record.timestamp_ms),
    "key": lambda change: change.record.key,
    "headers": lambda change: [{"key": name, "value": value} for name, value in change.record.headers],
    "op": lambda change: OPS[change.op],
    "position": lambda change: change.position,
    "source_time": lambda change: _time(change.source_time_ms),
}
_OF_BATCH: Mapping[MetadataKind, Callable[[ColumnBatch, pa.Table], Any]] = {
    "topic": lambda _, records: records.column("topic"),
    "partition": lambda _, records: records.column("partition"),
    "offset": lambda _, records: records.column("offset"),
    "timestamp": lambda _, records: _times(records.column("timestamp_ms")),
    "key": _key_column,
    "headers": lambda _, records: _header_column(records),
    "op": lambda batch, _: pc.if_else(pc.equal(batch.data.column(OP), "d"), OPS[Op.DELETE], OPS[Op.UPSERT]),
    "position": lambda batch, _: batch.data.column(POSITION),
    "source_time": lambda batch, _: _times(batch.data.column(TIME)),
}
