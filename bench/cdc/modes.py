"""Says how a table lands by its mode, and judges tables that keep each change by what the topics have of it.

A key's records are in one partition, in the order of their commits; so Kafka's offsets say which change came after which.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from bench.cdc.workload import Key, SourceTable

Mode = Literal["upsert", "append", "history", "marked"]
"""Those of the job, and upserts whose deleted rows stay."""
MODES: tuple[Mode, ...] = ("upsert", "append", "history", "marked")
PLACE = {"rec_partition": "partition", "rec_offset": "offset"}
SETTINGS: Mapping[Mode, Mapping[str, Any]] = {
    "upsert": {},
    "append": {"mode": "append", "metadata": {"rec_op": "op", "rec_position": "position", **PLACE}},
    "history": {"mode": "history", "metadata": PLACE},
    "marked": {"deleted_column": "rec_gone"},
}
"""What the configuration of a table says of its mode."""
OURS = frozenset(
    {
        "_cdc_epoch", "_cdc_sequence", "_cdc_from_time", "_cdc_until_epoch", "_cdc_until_sequence", "_cdc_until_time",
        "_cdc_revision", *PLACE, "rec_op", "rec_position", "rec_gone",
    }
)  # fmt: skip
"""Columns that are not the source's."""
_OPS = {"c": "upsert", "r": "upsert", "u": "upsert", "d": "delete", "t": "truncate"}
_EXAMPLES_MAX = 5


def modes_of(modes: Sequence[Mode], tables: Iterable[SourceTable], seed: int) -> dict[str, Mode]:
    """The mode of each table: they go round, and the seed says where they begin."""
    return {table.name: modes[(place + seed) % len(modes)] for place, table in enumerate(tables)}


def kept_by(modes: Mapping[str, Mode]) -> frozenset[str]:
    """Tables that their source is not to truncate, since their rows stay."""
    return frozenset(name for name, mode in modes.items() if mode != "upsert")


def whole_of(modes: Mapping[str, Mode]) -> frozenset[str]:
    """Tables whose rows their source is to write whole, since each change is a row and takes no value from another."""
    return frozenset(name for name, mode in modes.items() if mode in {"append", "history"})


def current(table: SourceTable, mode: Mode, data: pa.Table) -> pa.Table:
    """The rows of a table as its source has them at the end."""
    if mode == "history":
        ends = data.column("_cdc_until_sequence")
        return data.filter(ends.is_null())
    if mode == "upsert":
        return data
    if mode == "marked":
        return data.filter(pc.invert(data.column("rec_gone")))
    places: dict[Key, int] = {}
    names = [*table.key, "rec_op", "rec_position"]
    rows = enumerate(data.select(names).to_pylist())
    for place, row in sorted(rows, key=lambda one: str(one[1]["rec_position"])):
        key = tuple(row[name] for name in table.key)
        if row["rec_op"] == "truncate":
            places.clear()
        elif row["rec_op"] == "delete":
            places.pop(key, None)
        else:
            places[key] = place
    return data.take(pa.array(places.values(), pa.int64()))


@dataclass(frozen=True)
class Event:
    """A record of a row in a topic."""

    at: tuple[int, int]
    op: str
    key: Key


def events_of(
    table: SourceTable,
    topic: pa.Table,
    mode: Mode = "upsert",
    passes: Callable[[Mapping[str, Any]], bool] = lambda _: True,
) -> list[Event]:
    """The changes of a table that Debezium wrote, in the order of their partitions.

    Args:
        passes: the filter.  A row that does not pass is a delete from there on, and nothing at all of a log.
    """
    found = []
    is_its = pc.and_(
        pc.ends_with(topic.column("topic"), f".{table.name}"), pc.is_valid(topic.column("value"))
    )
    for row in topic.filter(is_its).select(["partition", "offset", "value"]).to_pylist():
        payload = json.loads(row["value"])
        payload = payload.get("payload", payload)
        if (op := _OPS.get(payload.get("op"))) is not None:
            values = (payload["before"] if op == "delete" else payload["after"]) or {}
            if op == "upsert" and not passes(values):
                if mode == "append":
                    continue
                op = "delete"
            key = tuple(values.get(name) for name in table.key)
            found.append(Event((row["partition"], row["offset"]), op, key))
    return sorted(found, key=lambda one: one.at)


def faults_of(table: SourceTable, mode: Mode, events: Sequence[Event], data: pa.Table | None) -> list[str]:
    """What a table that keeps each change has of them otherwise than the topics."""
    rows = (
        []
        if data is None
        else data.select([name for name in data.column_names if name in {*OURS, *table.key}]).to_pylist()
    )
    judge = {"append": _of_log, "history": _of_versions, "marked": _of_marks}.get(mode)
    faults = [] if judge is None else judge(table, events, rows)
    told = [f"{table.name} ({mode}): {text}" for text in faults[:_EXAMPLES_MAX]]
    return told + [f"{table.name} ({mode}): {len(faults)} faults in all"] * (len(faults) > _EXAMPLES_MAX)


def _of_log(table: SourceTable, events: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each record is one row, which says what it did, and to which key."""
    wanted = {event.at: (event.op, event.key) for event in events}
    found = [((row["rec_partition"], row["rec_offset"]), row["rec_op"], _key(table, row)) for row in rows]
    faults = _of_places(wanted, [at for at, *_ in found])
    return faults + [
        f"{at} is {op} of {key}, not {wanted[at]}" for at, op, key in found if at in wanted and (op, key) != wanted[at]
    ]  # fmt: skip


def _of_versions(table: SourceTable, events: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each upsert is one version, from its own position to that of the next change of its key."""
    wanted: dict[tuple[int, int], tuple[Key, int | None]] = {}
    of_key: dict[Key, list[Event]] = {}
    for event in events:
        of_key.setdefault(event.key, []).append(event)
    for key, changes in of_key.items():
        for place, event in enumerate(changes):
            after = changes[place + 1].at[1] if place + 1 < len(changes) else None
            if event.op == "upsert":
                wanted[event.at] = key, after
            elif not place or changes[place - 1].op != "upsert":
                wanted[event.at] = key, event.at[1]
    found, faults = [], []
    partitions = {event.key: event.at[0] for event in events}
    for row in rows:
        key, begin, end = _key(table, row), _offset(row["_cdc_sequence"]), _offset(row["_cdc_until_sequence"])
        at = partitions.get(key, -1), -1 if begin is None else begin
        found.append(at)
        if row["rec_offset"] not in (begin, None) or (row["rec_offset"] is None) != (begin == end):
            faults.append(f"{at} of {key} is of the record at {row['rec_offset']}")
        if at in wanted and (key, end) != wanted[at]:
            faults.append(f"{at} of {key} ends at {end}, not {wanted[at][1]}")
    return _of_places(wanted, found) + faults


def _of_marks(table: SourceTable, events: Sequence[Event], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each key that ever was is one row, which says whether its last change was a delete."""
    wanted = {event.key: event.op == "delete" for event in events}
    found = [(_key(table, row), row["rec_gone"]) for row in rows]
    faults = [f"lost {key}" for key in wanted if key not in {*dict(found)}]
    faults += [f"{key} has {gone} in rec_gone" for key, gone in found if wanted.get(key) is not gone]
    return faults + [f"{len(found) - len(dict(found))} rows are doubled"] * (len(found) > len(dict(found)))


def _of_places(wanted: Iterable[tuple[int, int]], found: Sequence[tuple[int, int]]) -> list[str]:
    """Places that are lost, never were, or are there more than once."""
    there = {*found}
    faults = [f"lost {at}" for at in wanted if at not in there]
    faults += [f"{at} never was" for at in sorted(there.difference(wanted))]
    return faults + [
        f"{at} is doubled" for at in sorted(there) if len(found) > len(there) and found.count(at) > 1
    ]


def _key(table: SourceTable, row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in table.key)


def _offset(position: str | None) -> int | None:
    """Kafka's offset, with which the position of a change ends."""
    return None if position is None else int(position.rpartition("-")[2])
