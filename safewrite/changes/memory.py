"""Keeps what a table must remember of changes besides its rows: tombstones, the floor, what was forgotten.

One immutable Parquet file, which a commit names: it becomes true with the rows, or not at all.  A tombstone is given up
once it is older than the horizon; what is older than those given up is then refused, for nobody can tell whether its key
was deleted.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.carry import COLUMN, Settled, nothing_carried
from safewrite.changes.decide import Batch
from safewrite.changes.positions import Position, in_order, later, position_of
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
    """``tombstones`` has keys, sequence and the wall time of their commit; positions are as in ``Known``.

    ``carried`` has the values that rows carry on from older changes, as long as these rows stay (``safewrite.changes.carry``).
    ``table_id`` is the table whose rows went, where a format carries this on to another one.
    """

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    tombstones: pa.Table
    carried: pa.Table
    floor: Position | None = None
    forgotten: Position | None = None
    table_id: str | None = None

    @classmethod
    def empty(
        cls,
        keys: tuple[str, ...],
        sequence_by: tuple[str, ...],
        schema: pa.Schema,
        *,
        table_id: str | None = None,
    ) -> Memory:
        """What a table remembers before its first change."""
        nothing = _schema(keys, sequence_by, schema).empty_table()
        return cls(keys, sequence_by, nothing, nothing_carried(keys, sequence_by, schema), table_id=table_id)

    def _check_declared(self, keys: tuple[str, ...], sequence_by: tuple[str, ...]) -> None:
        if (self.keys, self.sequence_by) != (keys, sequence_by):
            raise InvalidInputError(
                f"Changes were applied to this table with keys={list(keys)} and sequence_by={list(sequence_by)}, now they come "
                f"with keys={list(self.keys)} and sequence_by={list(self.sequence_by)}: deleted keys could not be told from "
                "new ones. Nothing was written. Give the same columns in the same order."
            )

    def after(self, batch: Batch, settled: Settled, now_ms: int) -> Memory:
        """What is to be remembered after a batch."""
        return self.with_batch(batch, settled, now_ms).without_old(now_ms - HORIZON_MS)

    def with_batch(self, batch: Batch, settled: Settled, now_ms: int) -> Memory:
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
        said = {"keys": self.keys, "sequence_by": self.sequence_by, "table_id": self.table_id}
        whole = pa.concat_tables(rows, promote_options="default").replace_schema_metadata(
            {_META: json.dumps(said).encode()}
        )
        sink = io.BytesIO()
        pq.write_table(whole, sink, compression="zstd")
        return sink.getvalue()

    def decode(self, body: bytes, path: str) -> Memory:
        """The memory that ``encode`` wrote, under the columns of this one, whose types may be wider by now.

        Raises:
            StorageError: the file is none of these.
            InvalidInputError: it is of other columns, or of such whose types do not hold what is remembered.
        """
        import pyarrow.parquet as pq

        try:
            whole = pq.read_table(io.BytesIO(body))
            said = json.loads((whole.schema.metadata or {})[_META])
            keys, sequence_by = tuple(said["keys"]), tuple(said["sequence_by"])
            kinds = np.asarray(whole.column(_KIND).to_numpy())
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise StorageError(
                f"{path}, which remembers the deleted keys of the table, cannot be read: {error}. Nothing was committed. "
                "Run `safewrite doctor` on the table.",
                kind=Kind.DATA_FILE_DAMAGED,
            ) from error
        if said.get("table_id") != self.table_id:
            return self  # it was carried on from a table that this one replaced
        self._check_declared(keys, sequence_by)
        whole = whole.replace_schema_metadata(None)
        rows = self._widened(whole, self.tombstones.schema)
        sequence = [rows.column(name) for name in sequence_by]

        def only(kind: int) -> Position | None:
            found = np.flatnonzero(kinds == kind)
            return position_of(sequence, int(found[0])) if len(found) else None

        tombstones, carried = rows.filter(pa.array(kinds == _TOMBSTONE)), self.carried
        if COLUMN in whole.column_names:
            carried = self._widened(whole.filter(pa.array(kinds == _CARRIED)), carried.schema)
        positions = only(_FLOOR), only(_FORGOTTEN)
        return Memory(keys, sequence_by, tombstones, carried, *positions, said.get("table_id"))

    def _widened(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        try:
            return conform(rows.select(schema.names), schema)
        except WouldAlterError as error:
            raise InvalidInputError(
                f"The types of keys= or sequence_by= were changed, and what is remembered of deleted keys does not fit them: "
                f"{error}"
            ) from error


def _schema(keys: tuple[str, ...], sequence_by: tuple[str, ...], schema: pa.Schema) -> pa.Schema:
    named = [schema.field(name).with_nullable(True).remove_metadata() for name in (*keys, *sequence_by)]
    return pa.schema([*named, pa.field(AT, pa.int64())])


def _kinds(kind: int, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(kind, pa.int8()), rows)
