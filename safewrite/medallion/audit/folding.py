"""Folds bronze by other code than what makes silver, and compares shares of the keys with silver: here, or in tasks."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.engine.abc import TaskAttempt
from safewrite.medallion.audit.dealt_rows import DealtRows, Shares
from safewrite.medallion.audit.table_audit import EXAMPLES_MAX, TableAudit
from safewrite.medallion.config.bronze_columns import LOADED_OP, OLD, SEQUENCE, TRUNCATED_OP
from safewrite.medallion.config.commit_columns import with_commit_columns
from safewrite.medallion.config.job import Config, TableConfig
from safewrite.medallion.files.unavailable_values import names_of
from safewrite.medallion.silver.load_keys import FileOfLoad
from safewrite.medallion.silver.unfit import Record, place_of
from safewrite.medallion.tables.job import JobPlaces

Key = tuple[Any, ...]
"""The values of a row's key columns."""
_SAME_KEY = "keys have several rows of one full load, of which silver holds one and quarantine none (replay puts them there)"
Place = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a key: its place in the order, its values (None for a deletion), and the places of those that it lacks."""

    place: Place
    values: list[str] | None
    is_aside: bool
    lacking: frozenset[int] = frozenset()
    load: tuple[int, int] | None = None
    """Of a row of a full load: its epoch, and the number of the load within it."""


@dataclass
class Unlike:
    """Keys of which silver is not what bronze says: how many, and the first of them."""

    twice: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, list[str]] = field(default_factory=dict)

    def compare(self, wanted: Mapping[Key, list[str]], have: Mapping[Key, list[str]], rows: int) -> None:
        """Compare the keys of a share, of which silver has so many rows."""
        last = {key for key in wanted.keys() & have.keys() if have[key] != wanted[key]}
        for what, keys in (
            ("rows are missing in silver", wanted.keys() - have.keys()),
            ("rows should not be in silver", have.keys() - wanted.keys()),
            ("rows of silver are not the last", last),
        ):
            self.add(Unlike(0, Counter({what: len(keys)}), {what: [*map(str, keys)]}))
        self.twice += rows - len(have)

    def add(self, other: Unlike) -> None:
        """Take in what was found of other shares."""
        self.twice += other.twice
        self.counts.update(other.counts)
        for what, keys in other.first.items():
            self.first[what] = sorted([*self.first.get(what, ()), *keys])[:EXAMPLES_MAX]

    def tell(self, audit: TableAudit) -> None:
        """Note the flaws."""
        if self.twice:
            audit.flaws.append(f"{self.twice} rows of silver have a key that another row has")
        for what, examples in self.first.items():
            audit.tell(what, examples, self.counts[what])


def summed(found: Iterable[Unlike]) -> Unlike:
    """What was found of all shares."""
    whole = Unlike()
    for one in found:
        whole.add(one)
    return whole


@dataclass(frozen=True)
class KeyShares:
    """Deals keys to so many shares, equal ones to one in every process; ``schema`` is of the keys, as silver has them."""

    count: int
    schema: pa.Schema

    def of(self, columns: Sequence[pa.ChunkedArray]) -> Shares:
        """The share of each key."""
        whole = [column.cast(one.type) for column, one in zip(columns, self.schema, strict=True)]
        keys = zip(*(column.to_pylist() for column in whole), strict=True)
        # Python's own hash is another one in each process.
        return np.fromiter(
            (zlib.crc32(repr(key).encode()) % self.count for key in keys), np.int64, len(columns[0])
        )

    def having(self, keys: Iterable[Key], number: int) -> set[Key]:
        """Those of some keys that are of a share."""
        found = [*keys]
        columns = [
            pa.chunked_array([pa.array([key[at] for key in found], one.type)])
            for at, one in enumerate(self.schema)
        ]
        return {key for key, share in zip(found, self.of(columns).tolist(), strict=True) if share == number}


@dataclass(frozen=True)
class Comparison:
    """Compares silver with bronze folded: of each key the change that is last by its sequence.

    ``own`` are the columns that are compared, ``aside`` the rows of bronze in quarantine; rows of epochs before ``first``, and from before a
    truncate, are gone.  ``loads`` tells of files of full loads that began again which load they are of.
    """

    table: TableConfig
    own: tuple[str, ...]
    shares: KeyShares
    aside: frozenset[Record]
    first: Place
    loads: Mapping[FileOfLoad, int]

    def of(self, bronze: Iterable[pa.Table], silver: Iterable[pa.Table], numbers: range) -> Unlike:
        """What is unlike in some shares, of all rows of both tables."""
        unlike, keys = Unlike(), self.table.keys
        with DealtRows() as changes, DealtRows() as rows:
            for piece in bronze:
                _deal(changes, *self._both(piece), numbers)
            for piece in silver:
                _deal(rows, piece, self.shares.of([piece[key] for key in keys]), numbers)
            for number in numbers:
                wanted, taken_later, doubled = self._folded(changes.share(number))
                found = rows.share(number)
                have = {
                    tuple(row[key] for key in keys): [_exact(row[column]) for column in self.own]
                    for row in found
                }
                mine = self.shares.having(wanted.keys() | taken_later.keys(), number)
                for key in mine & taken_later.keys():
                    if have.get(key) in taken_later[key]:
                        wanted.pop(key, None)
                        wanted |= {key: have[key]} if key in have else {}
                unlike.add(
                    Unlike(0, Counter({_SAME_KEY: len(doubled)}), {_SAME_KEY: sorted(map(str, doubled))})
                )
                unlike.compare({key: row for key, row in wanted.items() if key in mine}, have, len(found))
        return unlike

    def _both(self, piece: pa.Table) -> tuple[pa.Table, Shares]:
        """Rows of bronze with their shares: an update that says which key its row had is of the shares of both keys."""
        rows, keys = with_commit_columns(piece, self.table.commit_fields), self.table.keys
        there = frozenset(rows.column_names)
        shares = self.shares.of([rows[key] for key in keys])
        olds = [pc.coalesce(rows[OLD + key], rows[key]) if OLD + key in there else rows[key] for key in keys]
        before = self.shares.of(olds)
        both = np.flatnonzero(np.asarray(pc.equal(rows["_op"], "U"), np.bool_) & (before != shares))
        return pa.concat_tables([rows, rows.take(pa.array(both))]), np.concatenate([shares, before[both]])

    def _folded(
        self, rows: Iterable[dict[str, Any]]
    ) -> tuple[dict[Key, list[str]], dict[Key, list[list[str] | None]], list[Key]]:
        """What bronze says of each key, and what keys may be instead: a replay under other rules takes rows that were put aside before.

        Last come the keys of which a full load has several rows that are not in quarantine.
        """
        keys, own = self.table.keys, self.own
        changes: dict[Key, list[_Change]] = {}
        for row in rows:
            place = (*(row[name] for name in SEQUENCE), place_of(row["_file"], row["_line"]))
            if row["_op"] == TRUNCATED_OP:
                continue
            is_aside = (row["_file"], row["_tag"], row["_line"]) in self.aside
            key = tuple(row[key] for key in keys)
            old = tuple(row[key] if row.get(OLD + key) is None else row[OLD + key] for key in keys)
            if row["_op"] == "U" and old != key:
                changes.setdefault(old, []).append(_Change(place, None, is_aside))
            values = None if row["_op"] == "D" else [_exact(row[name]) for name in own]
            lacking = frozenset(own.index(name) for name in names_of(row) if name in own)
            epoch, path, tag = row["_epoch"], row["_file"], row["_tag"]
            load = (epoch, self.loads.get((epoch, path, tag), 0)) if row["_op"] == LOADED_OP else None
            changes.setdefault(key, []).append(_Change(place, values, is_aside, lacking, load))
        folded: dict[Key, list[str]] = {}
        maybe: dict[Key, list[list[str] | None]] = {}
        doubled: list[Key] = []
        for key, found in changes.items():
            standing = sorted((one for one in found if one.place >= self.first), key=lambda one: one.place)
            taken = [one for one in standing if not one.is_aside]
            loaded = {one.place: one.load for one in taken if one.load is not None}
            if len(loaded) > len({*loaded.values()}):
                doubled.append(key)
            if (state := _last(taken)) is not None:
                folded[key] = state
            if len(taken) < len(standing):
                newest = taken[-1].place if taken else self.first
                # Of one sequence silver has the last of the batch that came first, and batches are not known here.
                tied = {one.place[:2] for one in standing if one.is_aside}
                alone = [
                    one.values
                    for one in standing
                    if one.place[:2] >= newest[:2] and (one.is_aside or one.place[:2] in tied)
                ]
                maybe[key] = [_last(standing), *alone]
        return folded, maybe, doubled


def _deal(dealt: DealtRows, rows: pa.Table, shares: Shares, numbers: range) -> None:
    """Keep the rows of some shares."""
    if numbers.step > 1:
        mine = np.flatnonzero(shares % numbers.step == numbers.start)
        rows, shares = rows.take(pa.array(mine)), shares[mine]
    dealt.add(rows, shares)


def _last(changes: Iterable[_Change]) -> list[str] | None:
    """The values of a key after changes in their order; what one lacks is carried on."""
    state: list[str] | None = None
    for one in changes:
        values = one.values
        if values is not None and one.lacking:
            if state is None:
                continue
            values = [state[at] if at in one.lacking else value for at, value in enumerate(values)]
        state = values
    return state


def _exact(value: Any) -> str:
    """A value to the last bit: NaN is NaN, and -0.0 is not 0.0."""
    return repr(value)


@dataclass(frozen=True)
class CompareShares:
    """Compares in each task every so manieth share; reports None where bronze or silver is no longer the version that is meant."""

    config: Config
    name: str
    comparison: Comparison
    heads: tuple[int, int]
    tasks: int
    columns: None = None

    def __call__(
        self, batches: Iterable[pa.RecordBatch], at: TaskAttempt
    ) -> Generator[pa.RecordBatch, None, Unlike | None]:
        """Read both tables, and keep the rows of these shares."""
        yield from ()
        unlike = Unlike()
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            places, table = JobPlaces(self.config, read_only=True), self.config.tables[self.name]
            both = [places.foreign(address, table.format) for address in (table.bronze, table.silver)]
            for one in both:
                one.look()
            if (both[0].head, both[1].head) != self.heads:
                return None
            mine = range(number, self.comparison.shares.count, self.tasks)
            unlike.add(self.comparison.of(both[0].pieces_of_bronze(), both[1].pieces(), mine))
        return unlike
