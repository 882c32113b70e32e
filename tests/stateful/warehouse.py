"""One Iceberg table in a SQLite catalog and its writers: calls are made, and every new snapshot is checked."""

from __future__ import annotations

import itertools
import tempfile
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

import safewrite as sw
from safewrite.errors import CommitUnknownError, NotCommittedError, ReplayMismatchError, WouldAlterError
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write.summary import KEY
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Effect
from safewrite.receipt import Receipt
from safewrite.stores.world import World
from tests.stateful.calls import Fault
from tests.stateful.nemesis import Crash, Nemesis

LIMITS = Limits(attempts=4, asks=2)
WRITERS = 2
Verb = Literal["append", "overwrite", "delete"]


@dataclass(eq=False, slots=True)
class Write:
    """A write that was asked for once or more often; ``open_attempts`` may still land, or are running."""

    verb: Verb
    key: str
    ids: tuple[int, ...]
    columns: tuple[str, ...]
    open_attempts: int = 0
    acked: bool = False
    landed: int | None = None

    def frame(self) -> pa.Table:
        """The rows as a caller gives them."""
        return pa.table({name: pa.array(self.ids, pa.int64()) for name in self.columns})


class Warehouse:
    """A table; each public method is a step, after which every promise is checked."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        root = Path(self._folder.name)
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri())
        self.handles: list[IcebergTable | None] = [None] * WRITERS
        self.worlds: dict[int, World] = {}
        self.writes: list[Write] = []
        self.late: list[tuple[World, Effect]] = []
        self.expected: Counter[int] = Counter()
        self.foreign: set[int] = set()
        self._seen: set[int] = set()
        self._ids = itertools.count()
        self._names = itertools.count(1)
        self._clock_s = itertools.count()
        sw.create("db.t", pa.schema({"id": pa.int64()}), catalog=self.catalog)

    def close(self) -> None:
        """Remove everything."""
        self.catalog.engine.dispose()
        self._folder.cleanup()

    # --- steps ------------------------------------------------------------------------------------
    def write(self, writer: int, verb: Verb, rows: int, faults: tuple[Fault, ...]) -> str:
        """A new write."""
        write = Write(verb, f"event-{len(self.writes)}", self._new_ids(rows, verb), self._columns())
        self.writes.append(write)
        return self.ask(writer, write, faults)

    def repeat(self, writer: int, pick: int, faults: tuple[Fault, ...], *, other_rows: bool) -> str:
        """An earlier write again, or its key with other rows."""
        if not self.writes:
            return "nothing to repeat"
        write = self.writes[-1 - pick % len(self.writes)]
        if other_rows:
            write = Write("append", write.key, self._new_ids(1, "append"), self._columns())
            self.writes.append(write)
        return self.ask(writer, write, faults)

    def rival(self) -> None:
        """Plain PyIceberg appends one row."""
        table = self._table()
        number = next(self._ids)
        self.foreign.add(number)
        table.append(pa.table({name: pa.array([number], pa.int64()) for name in self._columns()}))

    def expire(self) -> None:
        """All snapshots but the newest are removed, as by somebody who does not read our settings."""
        self.check()
        table = self._table()
        old = [one.snapshot_id for one in table.snapshots() if one != table.current_snapshot()]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def add_column(self) -> None:
        """Plain PyIceberg adds a column."""
        if len(self._columns()) < 3:
            with self._table().update_schema() as update:
                update.add_column(f"c{len(self._columns())}", LongType())

    def arrive(self) -> None:
        """Requests that were given up arrive after all."""
        while self.late:
            world, effect = self.late.pop(0)
            world.perform(effect)
        self.check()

    # --- one call ---------------------------------------------------------------------------------
    def ask(self, writer: int, write: Write, faults: tuple[Fault, ...]) -> str:
        """Make one call under faults, and hold its answer against the table."""
        write.open_attempts += 1
        handle = self._handle(writer)
        late: list[Effect] = []
        nemesis = Nemesis(self.worlds[writer], faults, late=late, rival=self.rival, trace=None)
        handle.world = nemesis
        told = ""
        try:
            receipt = self._call(handle, write)
        except Crash:
            self.handles[writer] = None
            told = "crashed"
        except CommitUnknownError:
            told = "in doubt"
        except NotCommittedError as error:
            told = error.kind.value
            write.open_attempts -= 1
            self.check()
            self._check_refusal(write, error)
        else:
            told = receipt.outcome.value
            write.open_attempts -= 1
            write.acked = True
            self.check()
            assert write.landed == receipt.version, "acknowledged, and not there"
        self.late += [(self.worlds[writer], effect) for effect in late]
        self.check()
        return told

    @staticmethod
    def _call(handle: IcebergTable, write: Write) -> Receipt:
        if write.verb == "append":
            return handle.append(write.frame(), key=write.key)
        if write.verb == "overwrite":
            return handle.overwrite(write.frame(), key=write.key)
        return handle.delete("id < 10", key=write.key)

    def _check_refusal(self, write: Write, error: NotCommittedError) -> None:
        if not write.open_attempts and not write.acked:
            assert write.landed is None, f"called not committed, and in the table: {error!r}"
        twins = [one for one in self.writes if one.key == write.key and one is not write]
        if isinstance(error, ReplayMismatchError):
            assert any(one.landed is not None for one in twins), "its own rows are called other rows"
        if isinstance(error, WouldAlterError):
            assert write.columns != self._columns(), "rows that fit were refused"

    # --- the oracle -------------------------------------------------------------------------------
    def check(self) -> None:
        """Apply every new snapshot to what is expected, in order, and read the table as of each."""
        table = self._table()
        current = table.current_snapshot()
        new = []
        while current is not None and current.snapshot_id not in self._seen:
            new.append(current)
            parent = current.parent_snapshot_id
            current = table.snapshot_by_id(parent) if parent is not None else None
        for snapshot in reversed(new):
            self._seen.add(snapshot.snapshot_id)
            column = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().column("id")
            found = Counter(cast("list[int]", column.to_pylist()))
            assert snapshot.summary is not None
            self._land(snapshot.snapshot_id, snapshot.summary.additional_properties.get(KEY), found)
            assert found == self.expected, f"{found - self.expected} too many, {self.expected - found} lost"

    def _land(self, snapshot_id: int, key: str | None, found: Counter[int]) -> None:
        if key is None:
            self.expected += Counter(set(found) & self.foreign - set(self.expected))
            return
        named = [one for one in self.writes if one.key == key]
        fit = [one for one in named if one.verb == "delete" or set(one.ids) <= set(found)]
        # Any snapshot fits a delete, which brings no rows: one that was called not committed comes last.
        fit.sort(key=lambda one: not (one.acked or one.open_attempts))
        assert fit, f"{key} landed without its rows"
        write = fit[0]
        assert all(one.landed is None for one in named), f"{key} landed twice"
        assert write.acked or write.open_attempts, f"{key} was called not committed, and landed"
        write.landed = snapshot_id
        if write.verb == "overwrite":
            self.expected.clear()
        elif write.verb == "delete":
            self.expected = Counter({n: times for n, times in self.expected.items() if n >= 10})
        self.expected += Counter(write.ids)

    # --- small helpers ----------------------------------------------------------------------------
    def _handle(self, writer: int) -> IcebergTable:
        known = self.handles[writer]
        if known is None:
            known = cast("IcebergTable", sw.open("db.t", catalog=self.catalog))
            known.limits = known._format.planner.limits = LIMITS
            known._format.planner.new_id = lambda: str(uuid.UUID(int=next(self._names)))
            world = cast("World", known.world)
            world.sleep = lambda _: None
            world.monotonic = lambda: float(next(self._clock_s)) / 2
            self.handles[writer] = known
            self.worlds[writer] = world
        return known

    def _table(self) -> Table:
        return self.catalog.load_table("db.t")

    def _columns(self) -> tuple[str, ...]:
        return tuple(self._table().schema().column_names)

    def _new_ids(self, rows: int, verb: Verb) -> tuple[int, ...]:
        return () if verb == "delete" else tuple(next(self._ids) for _ in range(rows))
