"""Keeps what a table must remember of changes besides its rows: tombstones, the floor, what was forgotten.

One immutable Parquet file, which a commit names: it becomes true with the rows, or not at all.  A tombstone is given up
once it is older than the horizon; what is older than those given up is then refused, for nobody can tell whether its key
was deleted.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.meaning.decide import ChangeBatch
from safewrite.changes.meaning.positions import Position, in_order, later, position_of
from safewrite.changes.meaning.unchanged_values import COLUMN, TableEffect, nothing_carried
from safewrite.errors import InvalidInputError, Kind, StorageError, WouldAlterError
from safewrite.frames.conform import conform

HORIZON_MS = 14 * 24 * 3600 * 1000
"""How long a tombstone is kept at least."""
AT = "safewrite.at_ms"
_META = b"safewrite.changes"
_KIND = "safewrite.kind"
_TOMBSTONE, _FLOOR, _FORGOTTEN, _CARRIED = 0, 1, 2, 3


@dataclass(frozen=True)
class Memory:
    """``tombstones`` has keys, sequence and the wall time of their commit; positions are as in ``KnownRows``.

    ``carried`` has the values that rows carry on from older changes, as long as these rows stay (``safewrite.changes.meaning.unchanged_values``).
    ``table_id`` is the table whose rows went, where a format carries this on to another one.  ``ids`` has the id of each
    column of the table, by which a column is the same one under another name, and another one under the same name; it is
    empty where a format knows columns by their names alone.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    tombstones: pa.Table
    carried: pa.Table
    floor: Position | None = None
    forgotten: Position | None = None
    table_id: str | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    has_ids: bool = True
    """Whether the file that this was read of has these ids."""

    @classmethod
    def empty(
        cls,
        keys: tuple[str, ...],
        sequence_by: tuple[str, ...],
        schema: pa.Schema,
        *,
        table_id: str | None = None,
        ids: Mapping[str, int] | None = None,
    ) -> Memory:
        """What a table remembers before its first change."""
        nothing = _schema(keys, sequence_by, schema).empty_table()
        carried = nothing_carried(keys, sequence_by, schema)
        return cls(keys, sequence_by, nothing, carried, table_id=table_id, ids=ids or {})

    def _check_declared(
        self, keys: tuple[str, ...], sequence_by: tuple[str, ...], names: Mapping[str, str]
    ) -> None:
        """Refuse other columns than those that the deleted keys are of; ``names`` has what these are called now."""
        now = tuple(names.get(one) for one in keys), tuple(names.get(one) for one in sequence_by)
        if (self.keys, self.sequence_by) == now:
            return
        notes = {one: names.get(one) for one in (*keys, *sequence_by) if names.get(one) != one}
        told = "; ".join(
            f"{one!r} is not in the table any more" if new is None else f"{one!r} is called {new!r} now"
            for one, new in notes.items()
        )
        cure = f"Give keys={list(now[0])} and sequence_by={list(now[1])} again. " * (
            None not in notes.values()
        )
        raise InvalidInputError(
            f"Changes were applied to this table with keys={list(keys)} and sequence_by={list(sequence_by)}"
            f"{told and f' ({told})'}. This batch has keys={list(self.keys)} and sequence_by={list(self.sequence_by)}, which are "
            f"other columns: deleted keys could not be told from new ones. Nothing was written. {cure}To begin anew with other "
            "columns, apply one batch that has all rows, with full_refresh=True."
        )

    def after(self, batch: ChangeBatch, settled: TableEffect, now_ms: int) -> Memory:
        """What is to be remembered after a batch."""
        return self.with_batch(batch, settled, now_ms).without_old(now_ms - HORIZON_MS)

    def with_batch(self, batch: ChangeBatch, settled: TableEffect, now_ms: int) -> Memory:
        """As :meth:`after`, and no tombstone is given up."""
        decision = settled.decision
        kept = self.tombstones.take(pa.array(decision.kept, pa.int64()))
        new = batch.table.take(pa.array(decision.deletes, pa.int64())).select([*self.keys, *self.sequence_by])
        new = new.append_column(AT, pa.repeat(pa.scalar(now_ms, pa.int64()), new.num_rows))
        return replace(
            self,
            tombstones=pa.concat_tables([kept, new.cast(kept.schema)]).combine_chunks(),
            carried=settled.carried.combine_chunks(),  # each batch of a group would double the number of chunks
            floor=decision.floor,
        )

    def without_old(self, before_ms: int) -> Memory:
        """Give up tombstones from before a wall time; no decision rests on the clock, only how long memory lasts."""
        old = np.asarray(pc.less(self.tombstones.column(AT), before_ms).to_numpy(), np.bool_)
        if not old.any():
            return self
        gone = self.tombstones.filter(pa.array(old))
        places = np.arange(gone.num_rows)
        last = in_order(gone, self.sequence_by, places, places)[-1]
        newest = position_of([gone.column(name) for name in self.sequence_by], int(last))
        left = self.tombstones.filter(pa.array(~old))
        return replace(self, tombstones=left, forgotten=later(self.forgotten, newest))

    def says_the_same(self, other: Memory) -> bool:
        """Whether nothing that must be remembered differs."""
        if self is other:
            return True
        tables = ((self.tombstones, other.tombstones), (self.carried, other.carried))
        positions = (self.floor, self.forgotten) == (other.floor, other.forgotten)
        return positions and all(mine.equals(theirs) for mine, theirs in tables)

    def encode(self) -> bytes:
        """The bytes of the file."""
        import pyarrow.parquet as pq

        schema = self.tombstones.schema
        rows = [self.tombstones.append_column(_KIND, _kinds(_TOMBSTONE, self.tombstones.num_rows))]
        for kind, position in ((_FLOOR, self.floor), (_FORGOTTEN, self.forgotten)):
            if position is not None:
                named = dict(zip(self.sequence_by, position, strict=True))
                row = pa.Table.from_pylist([named], schema=pa.schema([schema.field(n) for n in named]))
                full = [
                    row.column(n) if n in named else pa.nulls(1, schema.field(n).type) for n in schema.names
                ]
                rows.append(pa.table(full, schema=schema).append_column(_KIND, _kinds(kind, 1)))
        if self.carried.num_rows:  # a column that files of tables without such values do not have
            rows.append(self.carried.append_column(_KIND, _kinds(_CARRIED, self.carried.num_rows)))
        said: dict[str, object] = {
            "keys": self.keys,
            "sequence_by": self.sequence_by,
            "table_id": self.table_id,
        }
        if self.ids:
            carried = pc.unique(self.carried.column(COLUMN)).to_pylist()
            said["ids"] = {name: self.ids[name] for name in (*self.keys, *self.sequence_by, *carried)}
        whole = pa.concat_tables(rows, promote_options="default").replace_schema_metadata(
            {_META: json.dumps(said).encode()}
        )
        sink = io.BytesIO()
        pq.write_table(whole, sink, compression="zstd")
        return sink.getvalue()

    def decode(self, body: bytes, path: str, then: Mapping[str, int] | None = None) -> Memory:
        """The memory that ``encode`` wrote, under the columns of this one, which may have other names and wider types by now.

        ``then`` has the ids of the table's columns when the file was written, which older files do not tell.

        Raises:
            StorageError: the file is none of these.
            InvalidInputError: it is of other columns, or of such whose types do not hold what is remembered.
        """
        import pyarrow.parquet as pq

        try:
            whole = pq.read_table(io.BytesIO(body))
            said = _said(whole.schema)
            keys, sequence_by = tuple(said["keys"]), tuple(said["sequence_by"])
            kinds = np.asarray(whole.column(_KIND).to_numpy())
        except _UNREADABLE as error:
            raise _unreadable(path, error) from error
        if said.get("table_id") != self.table_id:
            return self  # it was carried on from a table that this one replaced
        whole = whole.replace_schema_metadata(None)
        names = {name: name for name in (*keys, *sequence_by)}
        if self.ids:
            names = self._names_now(said.get("ids", then or {}))
            whole = _renamed(whole, kinds, names)
            kinds = np.asarray(whole.column(_KIND).to_numpy())
        self._check_declared(keys, sequence_by, names)
        keys, sequence_by = self.keys, self.sequence_by
        rows = self._widened(whole, self.tombstones.schema)
        sequence = [rows.column(name) for name in sequence_by]

        def only(kind: int) -> Position | None:
            found = np.flatnonzero(kinds == kind)
            return position_of(sequence, int(found[0])) if len(found) else None

        tombstones, carried = rows.filter(pa.array(kinds == _TOMBSTONE)), self.carried
        if COLUMN in whole.column_names:
            carried = self._widened(whole.filter(pa.array(kinds == _CARRIED)), carried.schema)
        positions = only(_FLOOR), only(_FORGOTTEN)
        known = Memory(keys, sequence_by, tombstones, carried, *positions, said.get("table_id"), self.ids)
        return replace(known, has_ids="ids" in said or not self.ids)

    def _names_now(self, then: Mapping[str, int]) -> dict[str, str]:
        """What the columns of a file are called now; those that are gone are left out."""
        by_id = {number: name for name, number in self.ids.items()}
        return {name: by_id[number] for name, number in then.items() if number in by_id}

    def _widened(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        try:
            return conform(rows.select(schema.names), schema)
        except WouldAlterError as error:
            raise InvalidInputError(
                f"The types of keys= or sequence_by= were changed, and what is remembered of deleted keys does not fit them: "
                f"{error}"
            ) from error


def recorded_keys(
    body: bytes, path: str, table_id: str | None, ids: Mapping[str, int], then: Mapping[str, int]
) -> tuple[str, ...]:
    """The key columns that a file is of, by their names of now; none where one is gone, or where another table's rows are meant.

    ``ids`` and ``then`` are as for :meth:`Memory.decode`.

    Raises:
        StorageError: the file cannot be read.
    """
    import pyarrow.parquet as pq

    try:
        said = _said(pq.read_schema(io.BytesIO(body)))
        keys = [str(name) for name in said["keys"]]
    except _UNREADABLE as error:
        raise _unreadable(path, error) from error
    if said.get("table_id") != table_id:
        return ()
    if ids:
        by_id, known = {number: name for name, number in ids.items()}, said.get("ids") or then
        keys = [by_id.get(known.get(name, -1), "") for name in keys]
    return tuple(keys) if all(keys) else ()


_UNREADABLE = (pa.ArrowException, KeyError, ValueError, OSError, RecursionError)


def _said(schema: pa.Schema) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((schema.metadata or {})[_META])
    return said


def _unreadable(path: str, error: Exception) -> StorageError:
    return StorageError(
        f"{path}, which remembers the deleted keys of the table, cannot be read: {error}. Nothing was committed. "
        "Run `safewrite doctor` on the table.",
        kind=Kind.DATA_FILE_DAMAGED,
    )


def _schema(keys: tuple[str, ...], sequence_by: tuple[str, ...], schema: pa.Schema) -> pa.Schema:
    named = [schema.field(name).with_nullable(True).remove_metadata() for name in (*keys, *sequence_by)]
    return pa.schema([*named, pa.field(AT, pa.int64())])


def _renamed(rows: pa.Table, kinds: npt.NDArray[np.int8], names: Mapping[str, str]) -> pa.Table:
    """What a file has under the names that its columns have now, without values of columns that are gone."""
    if COLUMN in rows.column_names:
        column = rows.column(COLUMN)
        known = pc.unique(column)
        now = pa.array([names.get(one) for one in known.to_pylist()], pa.string())
        renamed = now.take(pc.index_in(column, value_set=known).combine_chunks())
        rows = rows.set_column(rows.schema.get_field_index(COLUMN), COLUMN, renamed)
        rows = rows.filter(pc.or_(pc.is_valid(renamed), pa.array(kinds != _CARRIED)))
    return rows.rename_columns([names.get(name, name) for name in rows.column_names])


def _kinds(kind: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(kind, pa.int8()), rows)
