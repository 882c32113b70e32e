"""Follows an append-only bronze table, and refuses every gap with the command that mends it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import dropwhile
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.errors import ConflictError, DataFileError, HistoryGapError
from safewrite.medallion.config.stored_names import as_called, pieces_of
from safewrite.medallion.files.storage import Storage
from safewrite.medallion.lineage.delta_head import head_mark, is_of_other, stamp_of

_CLOCKS_APART = dt.timedelta(days=1)
"""By so much at most the clocks of two writers are taken to differ."""
_LOOKED_AT = 64


class BronzeGapError(ConflictError):
    """Silver cannot follow bronze from where it is; the message names the way out."""


class Lineage:
    """A table of the job as its own readers see it, at the newest state that :meth:`look` or an append saw.

    ``place`` is that of a Delta table.  ``way_out`` is the command or call that mends what silver cannot follow: refusals name it.
    """

    def __init__(self, name: str, table: sw.Table, place: Storage | None, way_out: str) -> None:
        self.name, self.way_out = name, way_out
        self._table, self._place = table, place

    def look(self) -> None:
        """Read the newest state.  Raises as ``refresh``."""
        self._table.refresh()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the table has, as it calls them."""
        return tuple(self._table.schema.names)

    @property
    def table_id(self) -> str:
        """Tells the table from one that is created again at its address."""
        return self._table.table_id

    @property
    def head(self) -> int:
        """The newest version or snapshot id; -1 for an Iceberg table without one."""
        return self._table.version

    def mark(self) -> str | None:
        """Marks this state of the table for :meth:`Places.stands`; None if there is a newer one already."""
        if self._place is not None:
            return head_mark(self._place, self.head)
        table: Any = self._table
        return str(table.iceberg.metadata_location)

    def stamp(self, version: int) -> int | None:
        """Tells a commit from another that took its number after bronze was put back; None if it needs no telling, or is gone."""
        return None if self._place is None else stamp_of(self._place, version)

    def is_same(self, version: int, stamp: int | None) -> bool:
        """Whether bronze has the commit that a stamp was made of; true where nothing tells."""
        return stamp is None or is_of_other(version, stamp) or self.stamp(version) in (None, stamp)

    @property
    def position_name(self) -> str:
        """Under this name silver keeps how far it has come."""
        return f"bronze/{self.table_id}"

    @property
    def commit_name(self) -> str:
        """Under this name silver keeps which commit of bronze it came to, where another may take its number."""
        return f"{self.position_name}/commit"

    # --- what it holds ------------------------------------------------------------------------------
    def since(self, position: int) -> list[sw.AddedRows]:
        """What the commits after a position up to the head brought (``safewrite.Table.added_since``).

        Raises:
            BronzeGapError: rows were removed, or the way from the position to the head is gone.
        """
        with self.refused():
            return self._table.added_since(position)

    def from_time(self, since_ms: int) -> list[sw.AddedRows]:
        """As :meth:`since`, of the commits that were made at a time or later, by the clocks of their writers.

        Raises:
            BronzeGapError: also where what is left of the history does not go back so far.
        """
        since = dt.datetime.fromtimestamp(since_ms / 1000, dt.UTC)
        line = self._history(since - _CLOCKS_APART)[::-1]
        # All from the first on: the clock of a later writer may have been behind.
        new = list(dropwhile(lambda one: one.timestamp is not None and one.timestamp < since, line))
        if not new:
            return []
        if len(new) < len(line):
            return self.since(line[-len(new) - 1].version)
        try:
            return self.since(-1)
        except BronzeGapError as error:
            at = since.isoformat(sep=" ", timespec="seconds")
            raise self.gap(f"its history no longer goes back to {at}") from error

    def _history(self, until: dt.datetime) -> list[sw.HistoryEntry]:
        """The commits back to one that was made before a time, or all that are left, newest first."""
        limit = _LOOKED_AT
        while True:
            found = self._table.history(limit)
            oldest = found[-1].timestamp if found else None
            if len(found) < limit or (oldest is not None and oldest < until):
                return found
            limit *= 4

    def commit(self, version: int) -> sw.AddedRows:
        """What one commit brought, whether the head still has it or not.

        Raises:
            BronzeGapError: nothing is left of it, or it is not one that only appended.
        """
        with self.refused():
            return self._table.added_by(version)

    def whole(self) -> list[sw.AddedRows]:
        """All rows of the head."""
        return self._table.added_since(None)

    def read(self, brought: Sequence[sw.AddedRows], columns: Sequence[str] | None = None) -> pa.Table:
        """Rows that commits brought.

        Raises:
            BronzeGapError: a file is gone.
        """
        nothing = as_called(self._table.schema.empty_table())
        nothing = nothing if columns is None else nothing.select(list(columns))
        return pa.concat_tables([nothing, *self.pieces(brought, columns)], promote_options="permissive")

    def pieces(
        self, brought: Sequence[sw.AddedRows], columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """As :meth:`read`, the rows of some files at a time."""
        files = tuple(file for one in brought for file in one.files)
        with self.refused():
            # As one commit's: the files of many small commits are read side by side.
            yield from (
                pieces_of(replace(brought[0], files=files).tables, self.columns, columns) if files else ()
            )

    # --- refusals -----------------------------------------------------------------------------------
    @contextmanager
    def refused(self) -> Iterator[None]:
        """Refuse what silver cannot follow: a gap, or a file of bronze that is gone.  Raises BronzeGapError."""
        try:
            yield
        except HistoryGapError as error:
            raise self.gap(error.reason) from error
        except DataFileError as error:
            raise self.gap(error.message.partition(". Nothing")[0]) from error

    def gap(self, what: str) -> BronzeGapError:
        """Refuse what silver cannot follow, and name the way out."""
        return BronzeGapError(
            f"Bronze of {self.name} ({self._table.uri}) cannot be followed: {what}. Nothing was written to silver, which is as it "
            f"was. `{self.way_out}` lands files again whose rows bronze lost, applies all that bronze "
            "holds and goes on from there; what silver took from rows that bronze no longer has stays in silver."
        )
