"""Holds the records of a batch as columns, and makes a ``KafkaRecord`` of one where it is looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.records.change import KafkaRecord

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    {
        "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary(),
        "headers": _HEADERS, "timestamp_ms": pa.int64(), "key_prefix": pa.int32(), "value_prefix": pa.int32(),
    }
)  # fmt: skip
"""``key_prefix`` and ``value_prefix`` are numbers of prefixes that were cut off the bytes; NULL where they are whole."""
PLACE = ("topic", "partition", "offset")
_NEVER = np.iinfo(np.int64).max
"""No record is at this offset."""
_RUNS_MAX = 1000
"""A table is put together of at most this many pieces; of more it would be slow to read."""


class KafkaRecords(Sequence[KafkaRecord]):
    """Records in the order of topic, partition and offset.

    Args:
        data: columns of ``SCHEMA``.
        prefixes: bytes that were cut off keys and values; a record has them again.
    """

    def __init__(self, data: pa.Table, prefixes: Sequence[bytes] = ()) -> None:
        self._data = data
        self.prefixes = tuple(prefixes)

    @property
    def data(self) -> pa.Table:
        """Columns of ``SCHEMA``."""
        return self._data

    @property
    def whereabouts(self) -> pa.Table:
        """Topic, partition and offset of each record."""
        return self._data

    @classmethod
    def of(cls, given: Iterable[KafkaRecord]) -> KafkaRecords:
        """Records that were made one by one, in their order."""
        rows = list(given)
        columns: dict[str, list[Any]] = {
            name: [getattr(one, name) for one in rows] for name in (*PLACE, "key", "value", "timestamp_ms")
        }
        columns["headers"] = [[{"key": key, "value": value} for key, value in one.headers] for one in rows]
        arrays = [
            pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(len(rows), one.type)
            for one in SCHEMA
        ]
        return cls(pa.Table.from_arrays(arrays, schema=SCHEMA))

    @classmethod
    def of_frame(cls, frame: pa.Table, prefixes: Sequence[bytes] = ()) -> KafkaRecords:
        """The rows of a micro-batch, put in order; columns of ``SCHEMA`` that it lacks are NULL."""
        there = frozenset(frame.column_names)
        arrays = [
            frame.column(one.name).cast(one.type) if one.name in there else pa.nulls(frame.num_rows, one.type)
            for one in SCHEMA
        ]
        data = pa.Table.from_arrays(arrays, schema=SCHEMA)
        return cls(_ordered(data), prefixes)

    def __len__(self) -> int:
        return int(self.whereabouts.num_rows)

    @overload
    def __getitem__(self, at: int) -> KafkaRecord: ...
    @overload
    def __getitem__(self, at: slice) -> KafkaRecords: ...
    def __getitem__(self, at: int | slice) -> KafkaRecord | KafkaRecords:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return KafkaRecords(self.data.slice(start, max(0, stop - start)), self.prefixes)
            return self.take(range(start, stop, step))
        place = range(len(self))[at]
        return next(self._rows(self.data.slice(place, 1)))

    def __iter__(self) -> Iterator[KafkaRecord]:
        for part in self.data.to_batches(max_chunksize=10_000):
            yield from self._rows(part)

    def take(self, places: Any) -> KafkaRecords:
        """The records at these places."""
        return KafkaRecords(self.data.take(pa.array(places, pa.int64())), self.prefixes)

    def since(self, starts: Mapping[tuple[str, int], int]) -> KafkaRecords:
        """The records from these offsets on, by topic and partition; none of a partition that is not named."""
        kept = self.is_since(starts)
        return self if kept.all() else self.take(np.flatnonzero(kept))

    def is_since(self, starts: Mapping[tuple[str, int], int], places: Any = slice(None)) -> Any:
        """Which records, of all or of those at some places, are at these offsets or behind them, as booleans of NumPy."""
        names, of = self.by_partition
        firsts = np.array([starts.get(name, _NEVER) for name in names], np.int64)
        kept: Any = self.offsets()[places] >= firsts[of[places]]
        return kept

    def are_at(self, offsets: Mapping[tuple[str, int], Collection[int]]) -> Any:
        """Which records are at one of these offsets, as booleans of NumPy."""
        own, found = self.offsets(), np.zeros(len(self), bool)
        for where, at in self.partitions().items():
            found[at] = np.isin(own[at], list(offsets.get(where, ())))
        return found

    def offsets(self) -> Any:
        """The offsets of all records, as NumPy has them."""
        return self.whereabouts.column("offset").to_numpy()

    @cached_property
    def by_partition(self) -> tuple[Sequence[tuple[str, int]], Any]:
        """The partitions of topics, and the number of each record's among them, as NumPy has it."""
        if not len(self):
            return (), np.zeros(0, np.int64)
        topics = self.whereabouts.column("topic").combine_chunks().dictionary_encode()
        names = topics.dictionary.to_pylist()
        numbers = self.whereabouts.column("partition").to_numpy()
        both, of = np.unique(topics.indices.to_numpy().astype("int64") << 32 | numbers, return_inverse=True)
        return [(names[one >> 32], one & 0xFFFFFFFF) for one in both.tolist()], of

    def partitions(self) -> dict[tuple[str, int], Any]:
        """The places of the records of each partition of a topic."""
        names, of = self.by_partition
        return {name: np.flatnonzero(of == number) for number, name in enumerate(names)}

    @property
    def cut_bytes(self) -> int:
        """Bytes that were cut off, in all."""
        numbers = pc.value_counts(
            pa.chunked_array(
                [*self.data.column("key_prefix").chunks, *self.data.column("value_prefix").chunks], pa.int32()
            )
        )
        counted = zip(numbers.field("values").to_pylist(), numbers.field("counts").to_pylist(), strict=True)
        return sum(len(self.prefixes[number]) * count for number, count in counted if number is not None)

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Topic, partition and offset of the first and the last record of each partition."""
        offsets = self.offsets()
        for (topic, number), at in self.partitions().items():
            yield topic, number, int(offsets[at].min())
            yield topic, number, int(offsets[at].max())

    def _rows(self, part: Any) -> Iterator[KafkaRecord]:
        columns = (part.column(name).to_pylist() for name in SCHEMA.names)
        for topic, number, offset, key, value, headers, at, key_prefix, value_prefix in zip(
            *columns, strict=True
        ):
            named = tuple((one["key"], one["value"]) for one in headers or ())
            yield KafkaRecord(
                topic,
                number,
                offset,
                self._whole(key, key_prefix),
                self._whole(value, value_prefix),
                named,
                at,
            )

    def _whole(self, data: bytes | None, prefix: int | None) -> bytes | None:
        return data if data is None or prefix is None else self.prefixes[prefix] + data


def _ordered(data: pa.Table) -> pa.Table:
    """The records in order.  Spark has each partition of a topic in its order, so no more than their runs are moved."""
    if data.num_rows < 2:
        return data
    topics = data.column("topic").combine_chunks().dictionary_encode()
    numbers, partitions, offsets = (
        topics.indices.to_numpy(),
        *(data.column(one).to_numpy() for one in PLACE[1:]),
    )
    breaks = (
        (numbers[1:] != numbers[:-1]) | (partitions[1:] != partitions[:-1]) | (offsets[1:] <= offsets[:-1])
    )
    starts = [0, *(np.flatnonzero(breaks)[: _RUNS_MAX + 1] + 1).tolist()]
    runs = [
        (
            topics[first].as_py(),
            int(partitions[first]),
            int(offsets[first]),
            int(offsets[end - 1]),
            first,
            end,
        )
        for first, end in pairwise([*starts, data.num_rows])
    ]
    runs.sort()
    overlap = any(one[:2] == other[:2] and one[3] >= other[2] for one, other in pairwise(runs))
    if overlap or len(runs) > _RUNS_MAX:
        return data.sort_by([(name, "ascending") for name in PLACE]).combine_chunks()
    return pa.concat_tables(data.slice(first, end - first) for *_, first, end in runs)
