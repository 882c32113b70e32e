"""Applies changes by key and sequence in one commit: rows, and what must be remembered of those that went.

Copy-on-write: files that hold keys of the batch are rewritten without their old rows, and the new rows go into files of
their own.  Any commit in between that touches files makes the plan anew, so two writers never insert one key twice (C9).
The memory of deleted keys is an immutable file that a ``txn`` action names: checkpoints keep it, and no reader or
writer needs a table feature for it.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.carry import Settled, settle
from safewrite.changes.decide import check_accounts
from safewrite.changes.memory import Memory
from safewrite.changes.reading import Changes, Spec, check_late, loose
from safewrite.changes.touched import Touched, wanted
from safewrite.delta.log.actions import Action, Commit, FileKey
from safewrite.delta.log.features import check_overwrite
from safewrite.delta.log.replay import load_files
from safewrite.delta.write.overwrite import (
    OverwriteTransaction,
    Verdict,
    check_rewritable,
    damaged,
    read_rows,
)
from safewrite.delta.write.staging import StagedFile, stage
from safewrite.errors import ConflictError, InternalError
from safewrite.frames import Prepared, prepare
from safewrite.frames.predicate import partition_value
from safewrite.protocol import staging
from safewrite.protocol.effects import Effect, Get, Missing, Outcome
from safewrite.protocol.fetch import fetch_one

if TYPE_CHECKING:
    import pyarrow.parquet as pq

APP_ID = "safewrite.changes"
"""App id of the ``txn`` whose version names the file that remembers deleted keys."""
_FOLDER = "_safewrite/changes"


def memory_path(number: int) -> str:
    """The file that a ``txn`` of :data:`APP_ID` names."""
    return f"{_FOLDER}/{number:016x}.parquet"


@dataclass
class ApplyTransaction(OverwriteTransaction):
    """Changes to be applied; the plan is made once no earlier call is known to have applied them."""

    operation: str = "MERGE"
    changes: Changes | None = None
    spec: Spec | None = None
    memory_number: int = -1
    """Names the file of what is to be remembered after this commit; drawn at random."""
    settled: Settled | None = None
    remembers: bool = False
    """Whether this commit changes what is remembered."""

    # --- what is written ------------------------------------------------------------------------
    def upserts(self) -> Prepared:
        """The rows that are written: those that win."""
        assert self.state is not None
        _, settled = self._given()
        return prepare(settled.rows, self.state.schema, partition_by=self.state.partition_by)

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them for MERGE."""
        assert self.spec is not None
        on = " AND ".join(f"(target.{name} = source.{name})" for name in self.spec.keys)
        return {"predicate": json.dumps([on], ensure_ascii=False)}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for MERGE."""
        changes, settled = self._given()
        counts = settled.decision.counts
        return {
            "numSourceRows": changes.batch.table.num_rows,
            "numTargetRowsInserted": counts.inserted,
            "numTargetRowsUpdated": counts.updated,
            "numTargetRowsDeleted": counts.deleted,
            "numTargetFilesAdded": len(self.files) + len(self.rewritten),
            "numTargetFilesRemoved": len(self.replaced()),
        }

    def _txns(self, version: int) -> list[Action]:
        mine = super()._txns(version)
        if self.remembers:
            mine.append({"appId": APP_ID, "version": self.memory_number, "lastUpdated": self.timestamp_ms})
        return mine

    def _given(self) -> tuple[Changes, Settled]:
        if self.changes is None or self.settled is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        return self.changes, self.settled

    # --- the plan ---------------------------------------------------------------------------------
    def prepare(self) -> Generator[Effect, Outcome, None]:
        """Decide about every change on the files that may hold its key; rewrite those that do.

        Only now: on a table that has these changes already they would be late, and refused as such.

        Raises:
            UnsupportedTableError: append-only, or a file that cannot be rewritten without loss.
            InvalidInputError: the batch must be refused; nothing was written.
            StorageError: no answer, or a file that is not what the log says.
        """
        assert self.state is not None
        assert self.changes is not None
        assert self.spec is not None
        yield from super().prepare()
        check_overwrite(self.state)
        self.active = yield from load_files(self.state, limits=self.limits)
        memory = yield from self._recall_memory()
        touched = Touched[FileKey](self.changes.batch, self.state.schema)
        yield from self._look(touched)
        self.settled = settled = settle(self.changes.batch, touched.known(memory))
        decision = settled.decision
        check_late(self.spec, decision)
        touched.decided(decision, memory)
        yield from self._replace(touched)
        if not touched.is_cut:
            check_accounts(decision, settled.rows.num_rows, self.removed_rows())
        yield from self._remember(memory, memory.after(self.changes.batch, settled, self.timestamp_ms))
        self.write = replace(self.write, rows=settled.rows.num_rows, changes=decision.counts.to_dict())

    def _recall_memory(self) -> Generator[Effect, Outcome, Memory]:
        assert self.state is not None
        assert self.spec is not None
        columns = self.spec.keys, self.spec.sequence_by, self.state.schema
        nothing = Memory.empty(*columns, table_id=self.state.table_id)
        number = self.state.txns.get(APP_ID)
        if number is None:
            return nothing
        path = memory_path(number)
        answer = yield from fetch_one(Get(path, name="apply.get_memory"), self.limits)
        if isinstance(answer, Missing):
            raise damaged(path, "it remembers the deleted keys of the table, and is gone")
        assert isinstance(answer.value, bytes)
        return nothing.decode(answer.value, path)

    def _remember(self, before: Memory, after: Memory) -> Generator[Effect, Outcome, None]:
        assert self.state is not None
        self.remembers = APP_ID not in self.state.txns or not after.says_the_same(before)
        if self.remembers:
            yield from staging.upload([(memory_path(self.memory_number), after.encode())], self.limits)

    # --- rows that are there ----------------------------------------------------------------------
    def _look(self, touched: Touched[FileKey]) -> Generator[Effect, Outcome, None]:
        """Read the files that may have keys of the batch."""
        assert self.state is not None
        assert self.changes is not None
        keys = wanted(self.changes.batch)
        for key, add in self.planned().adds.items():
            if may_hold(add, keys, self.state.partition_by, self.state.schema):
                check_rewritable(add)
                read = yield from self._read(add)
                touched.look(key, read[0], read)

    def _read(self, add: Action) -> Generator[Effect, Outcome, tuple[pa.Table, pq.FileMetaData]]:
        """The live rows of a file with all of the table's columns."""
        assert self.state is not None
        rows, footer = read_rows((yield from self.body_of(add)), add, self.state)
        wide = loose(self.state.schema)
        table = pa.concat_tables([rows.schema.empty_table(), *rows.tables()])
        spelled = add.get("partitionValues") or {}
        columns = [
            pa.chunked_array(
                [pa.repeat(pa.scalar(partition_value(spelled.get(f.name), f), f.type), table.num_rows)],
                f.type,
            )
            if f.name in self.state.partition_by
            else table.column(f.name)
            for f in wide
        ]
        return pa.table(columns, schema=wide), footer

    # --- what goes --------------------------------------------------------------------------------
    def _replace(self, touched: Touched[FileKey]) -> Generator[Effect, Outcome, None]:
        """Rewrite the files that lose rows."""
        assert self.state is not None
        live = self.planned().adds
        self.verdicts = dict.fromkeys(live, Verdict.KEEP)
        losing = [key for key in live if touched.may_lose(key)]
        if losing:
            check_overwrite(self.state, rewrites=True)
        for key in losing:
            check_rewritable(live[key])
        staged: list[StagedFile] = []
        for number, key in enumerate(losing):
            table, footer = touched.kept(key) or (yield from self._read(live[key]))
            stays = touched.stays(key, table)
            if stays.all():
                continue
            self.verdicts[key] = Verdict.REWRITE if stays.any() else Verdict.REMOVE
            if stays.any():
                staged += yield from self._rest(live[key], table.filter(pa.array(stays)), footer, number)
        self.rewritten = tuple(staged)

    def _rest(
        self, add: Action, kept: pa.Table, footer: pq.FileMetaData, number: int
    ) -> Generator[Effect, Outcome, Sequence[StagedFile]]:
        from safewrite.delta.data.calendar import check_calendar

        assert self.state is not None
        schema = pa.schema([f for f in self.state.schema if f.name not in self.state.partition_by])
        rows = kept.select(schema.names)
        check_calendar(footer, rows, add["path"])
        files = self.remainder(add, prepare(rows, schema), number)
        return (yield from stage(files, self.timestamp_ms, self.limits))

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Plan again after any commit that touches files, or what is remembered.

        Raises:
            ConflictError: CONFLICT for those; SCHEMA_CHANGED as for appends.
        """
        super(OverwriteTransaction, self).check_conflict(version, commit)
        if commit.adds() or commit.removes() or any(txn["appId"] == APP_ID for txn in commit.txns):
            raise ConflictError(
                f"Version {version} added or removed rows, which may have keys of these changes. Nothing was committed; call "
                "again."
            )


# --- files that cannot hold a key -----------------------------------------------------------------------
def may_hold(
    add: Action, keys: Mapping[str, pa.Array], partition_by: Sequence[str], schema: pa.Schema
) -> bool:
    """Whether a file may have a row with a key of the batch, as its partition and its statistics tell."""
    stats = json.loads(add.get("stats") or "{}")
    lowest, highest = stats.get("minValues") or {}, stats.get("maxValues") or {}
    for name, values in keys.items():
        if not len(values):
            return False
        if name in partition_by:
            here = partition_value((add.get("partitionValues") or {}).get(name), schema.field(name))
            if here is None or not pc.is_in(pa.scalar(here, values.type), value_set=values).as_py():
                return False
        elif name in lowest and name in highest and not _between(values, lowest[name], highest[name]):
            return False
    return True


def _between(values: pa.Array, low: Any, high: Any) -> bool:
    """Whether a value lies in the bounds of a file; a long text's bounds are cut off, so they compare by their length."""
    if pa.types.is_integer(values.type) and isinstance(low, int) and isinstance(high, int):
        ends = values, values
    elif pa.types.is_string(values.type) and isinstance(low, str) and isinstance(high, str):
        ends = values, pc.utf8_slice_codeunits(values, 0, len(high))
    else:
        return True
    inside = pc.and_(pc.greater_equal(ends[0], low), pc.less_equal(ends[1], high))
    return bool(pc.any(inside).as_py())
