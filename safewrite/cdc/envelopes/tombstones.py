"""Finds tombstones whose delete did not come: what Kafka's log compaction leaves of a deletion.

Debezium writes the event of a delete and then a tombstone, a record without a value, under the same key.  Compaction keeps
the last record of a key, which is the tombstone.  A job that was away meets no more than that, and the row has to go.  A
tombstone names its table by the topic, the schema of its key, or a field of it, and no database.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import flags
from safewrite.cdc.records.change_set import Place
from safewrite.cdc.records.records import KafkaRecords

TABLE_FIELD = "__dbz__physicalTableIdentifier"
"""The field of a key by which routing of many tables into one topic tells them apart: the name of the table's own topic."""
_OF_KEY = (".Key", "-key")


def unmet(records: KafkaRecords, deletes: Any, ended: Mapping[Place, int]) -> Iterator[tuple[int, bool]]:
    """The places of tombstones whose delete did not come, and whether the batch has another record of their key before them.

    Args:
        deletes: which records tell of a delete.
        ended: the deletes that partitions ended with in the batch before, as ``endings`` tells them.
    """
    empty = flags(records.data.column("value").is_null()) & ~deletes if len(records) else np.zeros(0, bool)
    if not empty.any():
        return
    ids = _partition_of_each(records)
    follows = np.zeros(len(records), bool)
    follows[1:] = ids[1:] == ids[:-1]
    before = np.roll(deletes, 1) & follows & _same_key(records)
    if not (empty & ~before).any():  # each comes right after its delete, as a connector writes them
        return
    last: dict[tuple[Any, ...], bool] = {}
    whole = (records.data.column(name).to_pylist() for name in ("key_prefix", "key"))
    firsts = {int(at[0]): place for place, at in records.partitions().items()}
    for place, key in enumerate(zip(ids.tolist(), *whole, strict=True)):
        if not empty[place]:
            last[key] = bool(deletes[place])
        elif key in last:
            if not last[key]:
                yield place, True
        elif place not in firsts or ended.get(firsts[place], 0) != _digest(records[place].key):
            yield place, False


def endings(records: KafkaRecords, deletes: Any) -> dict[Place, int]:
    """What each partition ends with: the digest of a delete's key, whose tombstone may come in the next batch; else 0."""
    return {
        place: _digest(records[int(at[-1])].key) if deletes[int(at[-1])] else 0
        for place, at in records.partitions().items()
    }


def _digest(key: bytes | None) -> int:
    """A whole number of 63 bits, and not 0."""
    return int.from_bytes(hashlib.sha256(key or b"").digest()[:8], "big") >> 1 | 1


def _partition_of_each(records: KafkaRecords) -> Any:
    ids = np.zeros(len(records), "int64")
    for number, at in enumerate(records.partitions().values()):
        ids[at] = number
    return ids


def _same_key(records: KafkaRecords) -> Any:
    """Which records have the key of the one before them."""
    found = np.zeros(len(records), bool)
    if len(records) > 1:
        whole = records.data.column("key"), pc.fill_null(records.data.column("key_prefix"), -1)
        same = [flags(pc.equal(one.slice(1), one.slice(0, len(one) - 1))) for one in whole]
        found[1:] = same[0] & same[1]
    return found


def names_of(topic: str, payload: Any, name: str | None) -> tuple[str, ...]:
    """What a tombstone's table may be called, by its key and its topic, the surest first."""
    found = []
    if isinstance(payload, dict) and isinstance(payload.get(TABLE_FIELD), str):
        found.append(payload[TABLE_FIELD])
    if name is not None:
        found += [name.removesuffix(end) for end in _OF_KEY if name.endswith(end)]
    return (*found, topic)
