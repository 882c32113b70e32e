"""Applies changes by key and sequence in one commit: rows, and what must be remembered of those that went.

Copy-on-write: files that hold keys of the batch are rewritten without their old rows, and the new rows go into files of
their own.  After any commit in between that touches files the plan is made anew before the next try, within the writer's
turn where there is one, so two writers never insert one key twice (C9); data files never change, so only new ones are read.
The memory of deleted keys is an immutable file that a ``txn`` action names: checkpoints keep it, and no reader or
writer needs a table feature for it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.changes.carry import Settled, settle
from safewrite.changes.memory import Memory
from safewrite.changes.reading import Changes, Spec, loose
from safewrite.changes.result import check_accounts, check_result
from safewrite.changes.touched import Touched, wanted
from safewrite.delta.data.spans import spans
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
from safewrite.errors import InternalError
from safewrite.frames import Prepared, prepare
from safewrite.frames.predicate import partition_value
from safewrite.protocol import staging
from safewrite.protocol.effects import Effect, Get, Missing, NewId, Ok, Outcome
from safewrite.protocol.fetch import fetch, fetch_one
from safewrite.protocol.keys import MEMORY_APP

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from safewrite.delta.data.datafiles import DataFile

APP_ID = MEMORY_APP
"""App id of the ``txn`` whose version names the file that remembers deleted keys."""
_FOLDER = "_safewrite/changes"
READ_BYTES = 32 * 2**20
"""Small files are fetched together, up to so many bytes of them."""


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
    encode: Callable[[Prepared, str], Iterable[DataFile]] | None = None
    """Makes files of rows; its text makes their names unique."""
    is_stale: bool = False
    """Whether commits came since the plan that add or remove rows, or change what is remembered."""
    plans: int = 0
    _touched: Touched[FileKey] | None = field(default=None, repr=False)
    _made: dict[tuple[Any, ...], tuple[Verdict, Sequence[StagedFile], int]] = field(
        default_factory=dict, repr=False
    )
    _memory: Memory | None = field(default=None, repr=False)
    _memory_of: int | None = None
    """Which file ``_memory`` is of."""

    # --- what is written ------------------------------------------------------------------------
    def upserts(self) -> Prepared:
        """The rows that are written: those that win."""
        assert self.state is not None
        _, settled = self._given()
        return prepare(settled.rows, self.state.schema, partition_by=self.state.partition_by, named=False)

    def parameters(self, partition_by: Sequence[str]) -> dict[str, str]:
        """``operationParameters`` as Spark writes them for MERGE."""
        assert self.spec is not None
        on = " AND ".join(f"(target.{name} = source.{name})" for name in self.spec.keys)
        return {"predicate": json.dumps([on], ensure_ascii=False)}

    def metrics(self) -> dict[str, int]:
        """``operationMetrics`` as Spark names them for MERGE."""
        assert self.settled is not None
        counts = self.settled.decision.counts
        return {
            "numSourceRows": counts.changes,
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
        yield from super().prepare()
        check_overwrite(self.state)
        self.active = yield from load_files(self.state, limits=self.limits)
        yield from self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """Plan again after commits of others: only files that are new since the last plan are read.

        Raises:
            As :meth:`prepare`.
        """
        if not self.is_stale:
            return
        before = self.settled
        yield from self._plan()
        _, settled = self._given()
        if before is None or self.encode is None:
            raise InternalError("Changes were committed before they were planned. Please report it.")
        if not settled.has_rows_of(before):
            files = self.encode(self.upserts(), f"{self.commit_id}-plan{self.plans}")
            self.files = yield from stage(files, self.timestamp_ms, self.limits)
            self.write = replace(self.write, files=len(self.files))

    def _plan(self) -> Generator[Effect, Outcome, None]:
        assert self.state is not None
        assert self.changes is not None
        assert self.spec is not None
        self.is_stale, self.plans = False, self.plans + 1
        memory = yield from self._recall_memory()
        touched = self._touched or Touched[FileKey](self.changes.batch, self.state.schema)
        self._touched = touched
        yield from self._look(touched)
        self.settled = settled = settle(self.changes.batch, touched.known(memory))
        decision = settled.decision
        check_result(self.spec, decision, settled.rows)
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
        if number == self._memory_of and self._memory is not None:
            return self._memory
        path = memory_path(number)
        answer = yield from fetch_one(Get(path, name="apply.get_memory"), self.limits)
        if isinstance(answer, Missing):
            raise damaged(path, "it remembers the deleted keys of the table, and is gone")
        assert isinstance(answer.value, bytes)
        self._memory, self._memory_of = nothing.decode(answer.value, path), number
        return self._memory

    def _remember(self, before: Memory, after: Memory) -> Generator[Effect, Outcome, None]:
        assert self.state is not None
        self.remembers = APP_ID not in self.state.txns or not after.says_the_same(before)
        if self.remembers:
            if self.plans > 1:  # an immutable file may not be written twice
                drawn = yield NewId(name="apply.id")
                assert isinstance(drawn, Ok)
                self.memory_number = uuid.UUID(str(drawn.value)).int >> 65
            yield from staging.upload([(memory_path(self.memory_number), after.encode())], self.limits)

    # --- rows that are there ----------------------------------------------------------------------
    def _look(self, touched: Touched[FileKey]) -> Generator[Effect, Outcome, None]:
        """Read the files that may have keys of the batch."""
        assert self.state is not None
        assert self.changes is not None
        keys, live = wanted(self.changes.batch), self.planned().adds
        new = [
            key
            for key in touched.unseen(live)
            if may_hold(live[key], keys, self.state.partition_by, self.state.schema)
        ]
        for key in new:
            check_rewritable(live[key])
        for some in _together(new, live):
            gets = [Get(unquote(live[key]["path"]), name="apply.get_data") for key in some]
            answers = yield from fetch(gets, self.limits, name="apply.get_all_data")
            for key, get, answer in zip(some, gets, answers, strict=True):
                if isinstance(answer, Missing):
                    raise damaged(get.path, "it is gone")
                assert isinstance(answer.value, bytes)
                read = self._rows(answer.value, live[key])
                touched.look(key, read[0], read)

    def _rows(self, body: bytes, add: Action) -> tuple[pa.Table, pq.FileMetaData]:
        """The live rows of a file with all of the table's columns."""
        assert self.state is not None
        rows, footer = read_rows(body, add, self.state)
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
        for key in losing:
            mark = touched.mark(key)
            if mark not in self._made:
                self._made[mark] = yield from self._without(live[key], key, touched)
            self.verdicts[key], files, self.kept[key] = self._made[mark]
            staged += files
        self.rewritten = tuple(staged)

    def _without(
        self, add: Action, key: FileKey, touched: Touched[FileKey]
    ) -> Generator[Effect, Outcome, tuple[Verdict, Sequence[StagedFile], int]]:
        """What becomes of a file that may lose rows, and how many stay."""
        table, footer = touched.kept(key) or self._rows((yield from self.body_of(add)), add)
        stays = touched.stays(key, table)
        if stays.all():
            return Verdict.KEEP, (), table.num_rows
        if not stays.any():
            return Verdict.REMOVE, (), 0
        kept = table.filter(pa.array(stays))
        rest = yield from self._rest(add, kept, footer, len(self._made))
        return Verdict.REWRITE, rest, kept.num_rows

    def _rest(
        self, add: Action, kept: pa.Table, footer: pq.FileMetaData, number: int
    ) -> Generator[Effect, Outcome, Sequence[StagedFile]]:
        from safewrite.delta.data.calendar import check_calendar

        assert self.state is not None
        schema = pa.schema([f for f in self.state.schema if f.name not in self.state.partition_by])
        rows = kept.select(schema.names)
        check_calendar(footer, rows, add["path"])
        files = self.remainder(add, prepare(rows, schema, named=False), number)
        return (yield from stage(files, self.timestamp_ms, self.limits))

    # --- what others wrote --------------------------------------------------------------------------
    def check_conflict(self, version: int, commit: Commit) -> None:
        """Note that a commit touches files, or what is remembered: then :meth:`renew` plans again.

        Raises:
            ConflictError: SCHEMA_CHANGED as for appends.
        """
        super(OverwriteTransaction, self).check_conflict(version, commit)
        if commit.adds() or commit.removes() or any(txn["appId"] == APP_ID for txn in commit.txns):
            self.is_stale = True
        if self.active is not None:
            self.active = self.active.advance(version, commit)


def _together(files: Sequence[FileKey], live: Mapping[FileKey, Action]) -> Iterator[list[FileKey]]:
    """Files that are in memory together while they are looked through: small ones, or one that is large."""
    some: list[FileKey] = []
    left_bytes = READ_BYTES
    for key in files:
        size = int(live[key].get("size") or 0)
        if some and size > left_bytes:
            yield some
            some, left_bytes = [], READ_BYTES
        some.append(key)
        left_bytes -= size
    if some:
        yield some


# --- files that cannot hold a key -----------------------------------------------------------------------
def may_hold(
    add: Action, keys: Mapping[str, pa.Array], partition_by: Sequence[str], schema: pa.Schema
) -> bool:
    """Whether a file may have a row with a key of the batch, as its partition and its statistics tell."""
    bounds = spans(add, schema, keys)
    for name, values in keys.items():
        if not len(values):
            return False
        if name in partition_by:
            here = partition_value((add.get("partitionValues") or {}).get(name), schema.field(name))
            if here is None or not pc.is_in(pa.scalar(here, values.type), value_set=values).as_py():
                return False
        elif name in bounds and not bounds[name].may_hold_any(values):
            return False
    return True
