"""One table in memory and its writers: calls are made, and their answers held against the oracle."""

from __future__ import annotations

import io
import json
import random
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from safewrite.arguments.options import Address
from safewrite.changes.lookup.key_index import known_keys
from safewrite.delta import opening
from safewrite.delta.connect import Connection
from safewrite.delta.format import DeltaFormat
from safewrite.delta.table import DeltaTable
from safewrite.delta.write import creation
from safewrite.errors import (
    CommitUnknownError,
    NotCommittedError,
    ReplayMismatchError,
    SafewriteError,
    WouldAlterError,
)
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Effect
from safewrite.receipt import Outcome, Receipt
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryLedger, MemoryLocks, MemoryObjects, MemoryQueue
from safewrite.stores.world import World
from tests.stateful.calls import BASE, EXTRAS, Call, Write, rows_of
from tests.stateful.clock import Clock
from tests.stateful.nemesis import Crash, Nemesis, Trace
from tests.stateful.oracle import Oracle
from tests.stateful.reader import commit_path

LIMITS = Limits(attempts=6, asks=3)
"""Few repeats, so that a few faults in a row use them up."""
EXPIRY_MS = 2 * 24 * 3600 * 1000 + 60_000
"""Longer than a completed entry of the lock table is kept."""
PROPERTIES = {"delta.checkpointInterval": "4"}
APPS = ("app-a", "app-b")


class Locks(MemoryLocks):
    """The lock table, with the path as Spark spells it and the spelling that nobody uses here."""

    table_path = "s3a://lake/orders"
    other_path = "s3://lake/orders"


class Lake:
    """A table in memory; ``do`` makes a call and then checks every promise.

    Raises AssertionError where one is broken.
    """

    def __init__(
        self,
        arbiter: Literal["dynamodb", "object-store"],
        *,
        writers: int = 3,
        trace: Trace | None = None,
        objects: Callable[[Clock], MemoryObjects] = lambda _: MemoryObjects(),
    ) -> None:
        self.arbiter = arbiter
        self.clock = Clock()
        self.trace = trace
        self._ids = 0
        self._row_ids = 0
        self.objects = objects(self.clock)
        self.locks = Locks() if arbiter == "dynamodb" else None
        self.world = World(
            self.objects,
            locks=self.locks,
            ledger=MemoryLedger() if self.locks is not None else ObjectLedger(self.objects),
            queue=MemoryQueue() if self.locks is not None else None,
            threads=1,
            monotonic=self.clock.monotonic,
            wall_ms=self.clock.wall,
            sleep=self.clock.sleep,
            rng=random.Random(0),
            new_id=self._new_id,
        )
        self.handles: list[DeltaTable | None] = [None] * writers
        self.oracle = Oracle(self.objects.blobs)
        self.late: list[Effect] = []
        self.depth = 0
        self.broken = False
        self.told: Counter[str] = Counter()
        opening._remembered.clear()
        known_keys.forget()

    # --- calls ------------------------------------------------------------------------------------
    def do(self, call: Call) -> str:
        """Make a call, and check the table; returns what came of it."""
        if self.depth == 0:
            while self.late:
                self.world.perform(self.late.pop(0))
        else:
            self.oracle.check()  # what the call that this one interrupts has done so far
        self.depth += 1
        try:
            told = self._dispatch(call)
            self.oracle.check()
        except Exception:
            self.broken = True  # for good: what comes after it only blurs what is found
            raise
        finally:
            self.depth -= 1
        self.told[f"{call.verb}: {told}"] += 1
        if self.trace is not None:
            self.trace.update(told.encode())
        return told

    def _dispatch(self, call: Call) -> str:
        match call.verb:
            case "reopen":
                self.handles[call.writer] = None
                if call.pick % 2:
                    opening._remembered.clear()
                return "closed"
            case "expire":
                return self._expire()
            case "peer":
                return self._peer(call)
            case "resolve":
                return self._resolve(call)
            case "checkpoint":
                return self._checkpoint(call)
            case "maintain":
                return self._maintain(call)
            case "misfit":
                return self._misfit(call)
            case _:
                return self._write(call, self._named(call))

    def _nemesis(self, call: Call) -> Nemesis:
        return Nemesis(
            self.world, call.faults, late=self.late, rival=lambda: self._rival(call), trace=self.trace
        )

    def _table(self, call: Call, nemesis: Nemesis) -> DeltaTable:
        """The writer's handle, in a world with the faults of the call."""
        table = self.handles[call.writer]
        if table is None:
            locks = self.locks is not None
            connection = Connection(
                Address("memory://lake/orders"),
                self.arbiter,
                Arbiter(lock_table=locks, lease=locks),
                self.world,
                "locks" if locks else None,
                "locks-1" if locks else None,
                endpoint="memory",
            )
            plan = creation.NewTable(("day",), PROPERTIES)
            known = DeltaFormat(connection, limits=LIMITS, first=plan, new_id=self._new_id)
            known.world = nemesis
            known.open(strict=False)
            table = DeltaTable(known)
            self.handles[call.writer] = table
        table.world = nemesis
        return table

    def _rival(self, call: Call) -> None:
        if call.rival is not None and self.depth < len(self.handles):
            other = (call.writer + 1 + call.rival.writer % (len(self.handles) - 1)) % len(self.handles)
            self.do(replace(call.rival, writer=other))

    def _new_id(self) -> str:
        self._ids += 1
        return str(uuid.UUID(int=self._ids))

    # --- writes -----------------------------------------------------------------------------------
    def _named(self, call: Call) -> Write:
        before = [write for write in self.oracle.writes if write.key is not None]
        if call.naming in ("same", "other") and before:
            earlier = before[-1 - call.pick % len(before)]
            if call.naming == "same":
                return earlier
            new = self._new(replace(call, verb=earlier.verb, where=earlier.where))
            new.key, new.txn = earlier.key, earlier.txn
            return new
        new = self._new(call)
        if call.naming == "txn":
            app = APPS[call.pick % 2]
            last = max(
                (one.txn[1] for one in self.oracle.writes if one.txn and one.txn[0] == app), default=-1
            )
            new.txn, new.key = (app, last + 1), f"{app}/{last + 1}"
        elif call.naming != "none":
            new.key = f"event-{len(self.oracle.writes)}"
        return new

    def _new(self, call: Call) -> Write:
        columns = self.oracle.snapshot.columns or tuple(BASE)
        extra = EXTRAS[call.pick % len(EXTRAS)]
        if call.verb == "merge" and extra not in columns:
            columns += (extra,)
        rows = rows_of(call, self._row_ids, columns)
        self._row_ids += len(rows)
        write = Write(call.verb, call.where, None, None, columns, rows)
        self.oracle.add(write)
        return write

    def _write(self, call: Call, write: Write) -> str:
        write.open_attempts += 1
        nemesis = self._nemesis(call)
        landed_before = write.landed
        error: SafewriteError | None = None
        try:
            receipt = self._ask(self._table(call, nemesis), write)
        except Crash:
            self.handles[call.writer] = None
            return "crashed"
        except CommitUnknownError as unknown:
            write.key = unknown.key
            error = unknown
        except NotCommittedError as failed:
            write.open_attempts -= 1
            error = failed
        else:
            write.open_attempts -= 1
            write.acked = True
            write.key = receipt.key
            self.oracle.check()
            self._check_receipt(write, receipt, landed_before)
            return receipt.outcome.value
        self.oracle.check()
        self._check_refusal(call, write, error, calm=not nemesis.happened)
        return error.kind.value

    @staticmethod
    def _ask(table: DeltaTable, write: Write) -> Receipt:
        named: dict[str, Any] = (
            {"txn": write.txn} if write.txn else {} if write.key is None else {"key": write.key}
        )
        if write.verb == "overwrite":
            return table.overwrite(write.frame(), where=write.condition(), **named)
        return table.append(write.frame(), schema_mode="merge" if write.verb == "merge" else None, **named)

    def _check_receipt(self, write: Write, receipt: Receipt, landed_before: int | None) -> None:
        assert write.landed is not None or not write.rows, "acknowledged, and not in the table"
        assert receipt.rows == len(write.rows)
        assert write.landed in (None, receipt.version), "the receipt names another version"
        if receipt.outcome is Outcome.COMMITTED:
            assert landed_before is None, "a repeat says that it committed"

    def _check_refusal(self, call: Call, write: Write, error: SafewriteError, *, calm: bool) -> None:
        assert write.key is not None or isinstance(error, NotCommittedError), (
            "nobody can decide it without a key"
        )
        if isinstance(error, ReplayMismatchError):
            assert write.landed is None, "equal rows under one key are called other rows"
        if isinstance(error, NotCommittedError) and not write.open_attempts and not write.acked:
            assert write.landed is None, "called not committed, and in the table"
        if not calm:
            return
        known = self.handles[call.writer]
        if isinstance(error, WouldAlterError):
            columns = known.schema.names if known is not None and known.version >= 0 else []
            assert set(columns) != set(write.columns) or set(self.oracle.snapshot.columns) != set(
                write.columns
            )
        else:
            assert isinstance(error, ReplayMismatchError), f"nothing went wrong, yet: {error!r}"
            rivals = [one for one in self.oracle.writes if one.key == write.key and one is not write]
            later = write.txn is not None and any(
                one.txn is not None
                and one.landed is not None
                and one.txn[0] == write.txn[0]
                and one.txn[1] > write.txn[1]
                for one in self.oracle.writes
            )
            assert later or any(one.landed is not None or not one.rows for one in rivals)

    # --- other calls --------------------------------------------------------------------------------
    def _misfit(self, call: Call) -> str:
        """Rows that do not fit are refused before anything is uploaded (promise 5)."""
        if self.oracle.snapshot.version < 0 or not call.rows:
            return "no table"
        write = self._new(replace(call, verb="append"))
        frame = write.frame()
        if call.pick % 3 == 0:
            frame = frame.set_column(
                frame.schema.get_field_index("id"), "id", pa.array([f"n{n}" for n in range(frame.num_rows)])
            )
        elif call.pick % 3 == 1:
            frame = frame.drop_columns(["note"])
        else:
            frame = frame.append_column("surplus", pa.array([1] * frame.num_rows))
        nemesis = self._nemesis(call)
        known, before = -1, 0
        try:
            table = self._table(call, nemesis)
            known, before = table.version, nemesis.writes
            table.append(frame, key="misfit")
        except Crash:
            self.handles[call.writer] = None
            return "crashed"
        except NotCommittedError as refused:
            if isinstance(refused, WouldAlterError):
                assert known < 0 or nemesis.writes == before, "uploaded before it was checked"
            else:
                _excuse(refused, nemesis)
            return refused.kind.value
        raise AssertionError("rows that do not fit were accepted")

    def _resolve(self, call: Call) -> str:
        named = [write for write in self.oracle.writes if write.key is not None]
        key = named[-1 - call.pick % len(named)].key if named else "event-never"
        assert key is not None
        candidates = [write for write in named if write.key == key]
        nemesis = self._nemesis(call)
        try:
            table = self._table(call, nemesis)
            before = nemesis.writes
            receipt = table.resolve(key)
            assert nemesis.writes == before, "resolve wrote something"
        except Crash:
            self.handles[call.writer] = None
            return "crashed"
        except SafewriteError as error:
            self.oracle.check()
            if not isinstance(error, CommitUnknownError):
                _excuse(error, nemesis)
            elif not nemesis.happened:
                assert all(write.landed is None for write in candidates), "in the log, and called unknown"
                assert any(write.open_attempts for write in candidates), "nothing is open, and called unknown"
            return error.kind.value
        self.oracle.check()
        if receipt is None:
            assert nemesis.happened or all(write.landed is None for write in candidates), (
                "in the log, and denied"
            )
            if self.depth == 1:
                for write in candidates:
                    write.open_attempts = 0
            return "absent"
        if any(write.rows for write in candidates):
            owners = [write for write in candidates if write.landed == receipt.version]
            assert len(owners) == 1 or any(not write.rows for write in candidates), (
                "resolved to a version of others"
            )
            assert all(receipt.rows == len(write.rows) for write in owners)
        return "present"

    def _checkpoint(self, call: Call) -> str:
        if self.oracle.snapshot.version < 0:
            return "no table"
        nemesis = self._nemesis(call)
        try:
            return "made" if self._table(call, nemesis).checkpoint() else "there"
        except Crash:
            self.handles[call.writer] = None
            return "crashed"
        except SafewriteError as error:
            _excuse(error, nemesis)
            return error.kind.value

    def _maintain(self, call: Call) -> str:
        """Small files are put together; which rows there are, the oracle knows without it."""
        if self.oracle.snapshot.version < 0:
            return "no table"
        nemesis = self._nemesis(call)
        try:
            report = self._table(call, nemesis).maintain()
        except Crash:
            self.handles[call.writer] = None
            return "crashed"
        except SafewriteError as error:
            _excuse(error, nemesis)
            return error.kind.value
        assert nemesis.happened or not (report.dropped or report.left or report.in_doubt), report
        return (
            "in doubt"
            if report.in_doubt
            else "dropped"
            if report.dropped
            else "put together"
            if report.groups
            else "nothing"
        )

    def _expire(self) -> str:
        """Days pass, and DynamoDB removes what has expired."""
        if self.locks is None:
            return "no entries"
        self.clock.wall_ms += EXPIRY_MS
        now_s = self.clock.wall_ms // 1000
        for name, entry in list(self.locks.entries.items()):
            if entry.complete and entry.expire_time_s is not None and entry.expire_time_s <= now_s:
                del self.locks.entries[name]
        return "expired"

    def _peer(self, call: Call) -> str:
        """Another engine appends by conditional PUT; it knows neither lock table nor keys."""
        if self.oracle.snapshot.version < 0 or not call.rows:
            return "no table"
        write = self._new(replace(call, verb="append"))
        adds = []
        for row in write.rows:
            path, sink = f"peer-{row['id']}.parquet", io.BytesIO()
            inner = {name: value for name, value in row.items() if name != "day"}
            types = {name: BASE.get(name, pa.int64()) for name in inner}
            pq.write_table(pa.table({n: pa.array([v], types[n]) for n, v in inner.items()}), sink)
            self.objects.put(path, sink.getvalue())
            add = {"path": path, "partitionValues": {"day": row["day"]}, "size": len(sink.getvalue())}
            adds.append({"add": {**add, "modificationTime": self.clock.wall(), "dataChange": True}})
        info = {"commitInfo": {"operation": "WRITE", "timestamp": self.clock.wall()}}
        body = "".join(json.dumps(action) + "\n" for action in (info, *adds))
        self.objects.put_if_absent(commit_path(self.oracle.snapshot.version + 1), body.encode())
        write.acked = True
        return "committed"


def _excuse(error: SafewriteError, nemesis: Nemesis) -> None:
    assert nemesis.happened, f"nothing went wrong, yet: {error!r}"
