"""Packs column batches and their records as bytes that executors send, and makes batches of them again.

The driver reads the columns.  It unpacks keys, values and headers of records only where one of them is looked at: as a dead
letter, or to be read one by one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa

from safewrite.cdc.records.change import SourceTable
from safewrite.cdc.records.change_set import PLACE, ColumnBatch
from safewrite.cdc.records.records import PLACE as WHEREABOUTS
from safewrite.cdc.records.records import SCHEMA, KafkaRecords

_LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")
_BYTES = tuple(name for name in SCHEMA.names if name not in WHEREABOUTS)


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A column batch as bytes.

    ``columns`` has the columns of the batch that have a value, and the topic, partition and offset of each record;
    ``records`` has the rest of the records.  ``empty`` are the types of the columns without a value, ``names`` those of all.
    """

    source: SourceTable
    types: Mapping[str, pa.DataType]
    keys: tuple[str, ...]
    is_inferred: bool
    rows: int
    names: tuple[str, ...]
    empty: Mapping[str, pa.DataType]
    columns: bytes
    records: bytes

    @classmethod
    def of(cls, batch: ColumnBatch) -> Self:
        """A batch, with those records that it has changes of."""
        records = batch.records.take(batch.places()).data
        data = batch.data.drop_columns([PLACE])
        empty = {one.name: one.type for one in data.schema if data.column(one.name).null_count == len(data)}
        kept = data.drop_columns([*empty])
        for name in WHEREABOUTS:
            kept = kept.append_column(name, records.column(name))
        return cls(
            batch.source, dict(batch.types), batch.keys, batch.is_inferred, len(batch), tuple(data.schema.names), empty,
            _packed(kept), _packed(records.select(_BYTES)),
        )  # fmt: skip

    @property
    def likeness(self) -> Hashable:
        """What batches have in common that one batch can be made of."""
        return self.source, tuple(self.types.items()), self.keys, self.is_inferred, self.names


class PackedRecords(KafkaRecords):
    """Records of which topic, partition and offset are known, and the rest is unpacked when it is asked for."""

    def __init__(self, whereabouts: pa.Table, packed: Sequence[bytes], prefixes: Sequence[bytes]) -> None:
        self._whereabouts, self._packed = whereabouts, packed
        self.prefixes = tuple(prefixes)

    @property
    def whereabouts(self) -> pa.Table:
        return self._whereabouts

    @property
    def data(self) -> pa.Table:
        return self._unpacked

    @cached_property
    def _unpacked(self) -> pa.Table:
        rest = pa.concat_tables(map(_unpacked, self._packed))
        columns = {name: self._whereabouts.column(name) for name in WHEREABOUTS}
        columns |= {name: rest.column(name) for name in _BYTES}
        return pa.table([columns[name] for name in SCHEMA.names], SCHEMA)


def unpacked(given: Iterable[PackedBatch], prefixes: Sequence[bytes]) -> list[ColumnBatch]:
    """Column batches; of those that are alike one is made.

    Args:
        prefixes: what was cut off the keys and values of all records.
    """
    alike: dict[tuple[Hashable, pa.Schema], list[tuple[PackedBatch, pa.Table]]] = {}
    for one in given:
        read = _unpacked(one.columns)
        for name, kind in one.empty.items():
            read = read.append_column(name, pa.nulls(one.rows, kind))
        read = read.select([*one.names, *WHEREABOUTS])
        alike.setdefault((one.likeness, read.schema), []).append((one, read))
    return [_joined(parts, prefixes) for parts in alike.values()]


def _joined(parts: Sequence[tuple[PackedBatch, pa.Table]], prefixes: Sequence[bytes]) -> ColumnBatch:
    first = parts[0][0]
    read = pa.concat_tables(data for _, data in parts)
    records = PackedRecords(read.select(WHEREABOUTS), [one.records for one, _ in parts], prefixes)
    data = read.drop_columns([*WHEREABOUTS]).append_column(PLACE, pa.array(np.arange(len(read))))
    return ColumnBatch(first.source, records, data, first.types, first.keys, first.is_inferred)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_LZ4) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def _unpacked(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
