"""Finds rows of others' bronze that have one key and sequence but unequal values, so that nothing orders them.

Where silver has one of these rows, it stays.  Else the first by ``sync.time`` is taken; of rows with equal times none is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.medallion.files.text_parsing import plain
from safewrite.medallion.tables.job import TableJob

_MARK = " #"
_DELETED = "deleted"
_Place = tuple[Any, ...]


def unordered(job: TableJob, changes: pa.Table, times: pa.Array) -> dict[int, str]:
    """Rows of a batch that are to be put aside before it is applied, by number, and why.

    ``changes`` have silver's columns and ``_op``; ``times`` count microseconds, NULL where there is none.

    Raises:
        SafewriteError: silver cannot be read.
    """
    names = _names(job)
    if changes.group_by(names).aggregate([]).num_rows == changes.num_rows:
        return {}
    unequal = dict(_unequal(job, changes))
    if not unequal:
        return {}
    known = _silver(job, set(unequal))
    found: dict[int, str] = {}
    for place, rows in unequal.items():
        stays = known.get(place) or _first(rows, times)
        found |= {number: _why(job) for number, says in rows.items() if says != stays}
    return found


def tied_with_silver(job: TableJob, changes: pa.Table, tied: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Rows of a batch that silver refused, by number, and why; ``tied`` are the keys and sequences that it named.

    Raises:
        SafewriteError: silver cannot be read.
    """
    names = _names(job)
    wanted = {tuple(one[name] for name in names) for one in tied}
    known = _silver(job, wanted)
    return {
        number: _why(job)
        for number, (place, says) in enumerate(_said(job, changes))
        if place in wanted
        and says != known.get(place, _DELETED)  # without a row it is a deletion that silver remembers
    }


def tag_of(named: str, row: Mapping[str, Any], columns: Iterable[str], *, is_delete: bool) -> str:
    """What such a row is known by in quarantine: others have the same key and sequence.

    A column that was added since changes nothing.
    """
    values = [] if is_delete else sorted((name, repr(row[name])) for name in columns if row[name] is not None)
    return f"{named}{_MARK}{hashlib.sha256(repr((is_delete, values)).encode()).hexdigest()[:16]}"


def named_in(tags: Iterable[str]) -> set[str]:
    """The keys and sequences, as they are named, of rows that are in quarantine because nothing orders them."""
    return {tag.rpartition(_MARK)[0] for tag in tags if _MARK in tag}


def _names(job: TableJob) -> list[str]:
    return list(dict.fromkeys([*job.config.keys, *job.sync.sequence]))


def _unequal(job: TableJob, changes: pa.Table) -> Iterator[tuple[_Place, dict[int, str]]]:
    """Places of several rows that do not say the same, and what each says, unless the batch has a later row of the key."""
    names, keys = _names(job), job.config.keys
    numbered = changes.select(names).append_column("$row", pa.array(np.arange(changes.num_rows)))
    groups = numbered.group_by(names).aggregate([("$row", "list")])
    several = groups.filter(pc.greater(pc.list_value_length(groups["$row_list"]), 1))
    shared = {tuple(row[key] for key in keys) for row in several.select(keys).to_pylist()}
    last: dict[_Place, tuple[_Place, list[int]]] = {}
    likely = groups.filter(pc.is_in(groups[keys[0]], value_set=pc.unique(several[keys[0]])))
    for row in likely.to_pylist():
        key, at = tuple(row[name] for name in keys), tuple(row[name] for name in job.sync.sequence)
        if key in shared and (key not in last or last[key][0] < at):
            last[key] = at, row["$row_list"]
    for _, numbers in last.values():
        said = list(_said(job, changes.take(pa.array(numbers))))
        if len({says for _, says in said}) > 1:
            yield said[0][0], {number: says for number, (_, says) in zip(numbers, said, strict=True)}


def _said(job: TableJob, changes: pa.Table) -> Iterator[tuple[_Place, str]]:
    """The place of each row, and what it says there."""
    columns = job.silver_schema.names
    rows = changes.select(columns)
    with suppress(pa.ArrowInvalid):  # what does not fit is refused when it is applied
        rows = rows.cast(pa.schema([job.silver.schema.field(name) for name in columns]))
    names = _names(job)
    for row, op in zip(plain(rows), changes["_op"].to_pylist(), strict=True):
        yield (
            tuple(row[name] for name in names),
            _DELETED if op == "D" else repr(sorted(row.items(), key=_name)),
        )


def _name(item: tuple[str, Any]) -> str:
    return item[0]


def _silver(job: TableJob, places: Set[_Place]) -> dict[_Place, str]:
    """What silver's rows of some places say."""
    silver = job.places.foreign(job.config.silver, job.config.format)
    silver.look()
    rows = silver.read(job.silver_schema.names)
    first = job.config.keys[0]
    wanted = pa.array([place[0] for place in places], rows.schema.field(first).type)
    near = rows.filter(pc.is_in(rows[first], value_set=wanted))
    near = near.append_column("_op", pa.array(["U"] * near.num_rows, pa.string()))
    return {place: says for place, says in _said(job, near) if place in places}


def _first(rows: Mapping[int, str], times: pa.Array) -> str | None:
    """What the first of some rows says by their times, if that is one thing."""
    at = {number: times[number].as_py() for number in rows}
    known = [one for one in at.values() if one is not None]
    first = {rows[number] for number, one in at.items() if known and one == min(known)}
    return first.pop() if len(first) == 1 else None


def _why(job: TableJob) -> str:
    """One text for all such rows, so that quarantine has each of them once."""
    how = job.sync
    return (
        f"another row of its key has the same {', '.join(how.sequence)} and other values: what silver has of them stays, else the "
        f"first by {how.time}, and of equal times none"
    )
