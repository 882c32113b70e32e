"""Applies changes of many tables by the same few tasks: what their keys are, shares that name their table, look-ups, decisions.

A job of Spark's costs as much for one table as for a thousand.  So the rows of all tables are in one exchange, and a task works
on the share that each of them has in its part.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from safewrite.changes.lookup.key_index import Hashes, ascending, indexable, key_hashes
from safewrite.changes.tasks.read_task import CHANGES, ends_of, few_of
from safewrite.engine.exchange import Dealt
from safewrite.errors import NotCommittedError

HASHES_MAX = 1_000_000
"""The hashes of more keys are not sent: all rows of files that may have such a key are looked at then."""


class UnfitError(NotCommittedError):
    """Changes of a table that are not to be applied in parts, and why; whoever has all of them together can."""


# --- keys ----------------------------------------------------------------------------------------------
@dataclass
class KeyReport:
    """What the driver must know of the keys of some changes.

    ``ends`` are the lowest and highest value of each column, ``values`` all that it has, or None where they are many; so for
    ``hashes``, which ascend.
    """

    schema: pa.Schema
    is_hashed: bool = True
    """Whether equal keys have equal hashes, so that they can be dealt."""
    ends: dict[str, pa.Array] = field(default_factory=dict)
    values: dict[str, pa.Array | None] = field(default_factory=dict)
    hashes: Hashes | None = field(default_factory=lambda: np.zeros(0, np.uint64))

    @classmethod
    def of(cls, keys: pa.Table, hashes: Hashes | None) -> KeyReport:
        """Those of a table of keys, of which none is NULL."""
        report = cls(keys.schema, hashes is not None)
        for name in keys.column_names:
            column = keys.column(name).combine_chunks()
            report.ends[name], report.values[name] = ends_of(column), few_of(column)
        report.hashes = None if hashes is None else _some(ascending(hashes))
        return report

    def add(self, other: KeyReport) -> None:
        """Take in further ones, of the same columns and types."""
        for name, ends in other.ends.items():
            self.ends[name] = ends_of(pa.concat_arrays([self.ends.get(name, ends), ends]))
        for name, values in other.values.items():
            known = self.values.get(name, values)
            self.values[name] = None if known is None or values is None else few_of(known, values)
        mine, theirs = self.hashes, other.hashes
        self.hashes = None if mine is None or theirs is None else _some(ascending(mine, theirs))


def _some(hashes: Hashes) -> Hashes | None:
    return hashes if len(hashes) <= HASHES_MAX else None


def hashes_of(keys: pa.Table) -> Hashes | None:
    """The hash of each key; None for types whose equal values may have several."""
    return key_hashes(keys, keys.column_names) if indexable(keys.schema, keys.column_names) else None


# --- shares --------------------------------------------------------------------------------------------
def dealt(name: str, rows: pa.Table, hashes: Hashes | None, parts: int) -> Dealt:
    """Changes of a table on their way: dealt to so many parts by the hashes of their keys, or all to one."""
    return Dealt(rows, hashes, parts, first_part(name), name, CHANGES)


def kept_together(name: str, rows: pa.Table, task: int, parts: int) -> Dealt:
    """Rows of a table without keys on their way: those of a task go to one of so many parts."""
    return Dealt(rows, None, 1, first_part(name) + task % parts, name, CHANGES)


def first_part(name: str) -> int:
    """The part that the first share of a table goes to, modulo the number of parts: tables are spread by their names."""
    return zlib.crc32(name.encode()) >> 8
