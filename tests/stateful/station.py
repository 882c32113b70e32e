"""A station delivers events in changing groups to the writers of one table, and checks every answer."""

from __future__ import annotations

import itertools
import random
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.arguments.options import Address
from safewrite.changes.lookup.key_index import known_keys
from safewrite.delta import opening
from safewrite.delta.connect import Connection
from safewrite.delta.format import DeltaFormat
from safewrite.delta.table import DeltaTable
from safewrite.delta.write import creation, members
from safewrite.iceberg.write import members as iceberg_members
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Effect
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.memory import MemoryLedger, MemoryObjects, MemoryQueue
from safewrite.stores.world import World
from safewrite.table.verbs import Table
from tests.stateful.calls import Fault
from tests.stateful.lake import Locks
from tests.stateful.nemesis import Crash, Nemesis
from tests.stateful.reader import Snapshot

LIMITS = Limits(attempts=5, asks=2)
WRITERS = 2
Place = Literal["dynamodb", "object-store", "sql"]
Content = Literal["own", "other", "misfit", "wider"]
"""The event's rows; other rows under its key; rows that do not fit the table; its rows with a new column."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event of a group."""

    event: int
    content: Content = "own"


@dataclass(eq=False)
class Station:
    """Events of one to three rows with keys of their own, or batches of an app; ``do`` delivers a group of them."""

    place: Place
    acked: set[int] = field(default_factory=set)
    late: list[tuple[World, Effect]] = field(default_factory=list)
    told: Counter[str] = field(default_factory=Counter)
    depth: int = 0
    blobs: dict[str, bytes] = field(default_factory=dict)
    records: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = itertools.count(1)
        self._seconds = itertools.count()
        self._folder = tempfile.TemporaryDirectory()
        self.handles: list[tuple[Table, World] | None] = [None] * WRITERS
        self._open, self._read = self._iceberg() if self.place == "sql" else self._delta()
        self._long = (members.INLINE_BYTES_MAX, iceberg_members.INLINE_CHARS_MAX)
        # Lists of two members are long here, so that the files of long lists are in each history.
        members.INLINE_BYTES_MAX = iceberg_members.INLINE_CHARS_MAX = 150

    def close(self) -> None:
        members.INLINE_BYTES_MAX, iceberg_members.INLINE_CHARS_MAX = self._long
        self._folder.cleanup()

    # --- steps ------------------------------------------------------------------------------------
    def do(
        self,
        writer: int,
        group: tuple[Delivery, ...],
        faults: tuple[Fault, ...] = (),
        rival: tuple[Delivery, ...] = (),
        *,
        alone: bool = False,
    ) -> None:
        """Deliver a group, or its first event ``alone`` by append; ``rival`` is another writer's, in its midst."""
        # Other rows under a key that nobody has used yet would be its rows.
        known = self.acked
        group = tuple(
            replace(one, content="own") if one.content == "other" and one.event not in known else one
            for one in group
        )
        table, world = self.handles[writer] or self._open()
        self.handles[writer] = table, world
        late: list[Effect] = []
        table.world = Nemesis(world, faults, late=late, rival=lambda: self._rival(writer, rival), trace=None)
        self.depth += 1
        unnamed = False
        try:
            answers = self._ask(table, group, alone=alone)
        except Crash:
            self.handles[writer] = None
            answers = []
        except sw.SafewriteError as error:
            self.told[error.kind.value] += 1
            answers, unnamed = [], error.key is None
        finally:
            self.depth -= 1
        self.late += [(world, effect) for effect in late]
        assert not unnamed, "an error of the whole group names no member"
        self.check()
        for delivery, answer in zip(group, answers, strict=False):
            self._judge(delivery, answer)
        self.check()

    def arrive(self) -> None:
        """Requests that were given up arrive after all."""
        while self.late:
            world, effect = self.late.pop(0)
            world.perform(effect)
        self.check()

    def remove(self, beginning: str) -> int:
        """Remove what is in memory under names that begin so, a moment before the next call; how much there was."""
        names = [name for name in self.blobs if name.startswith(beginning)]
        for name in names:
            del self.blobs[name]
        records = self.records if beginning == "_safewrite/ledger/" else {}
        gone = len(names) + len(records)
        records.clear()
        for _ in range(20):
            next(self._seconds)
        return gone

    def deliver_all(self, events: int) -> None:
        """Deliver every event without faults: each is in the table once."""
        self.arrive()
        self.handles = [None] * WRITERS
        self.do(0, tuple(Delivery(event) for event in range(events)))
        assert self.acked == set(range(events))
        for event in range(events):
            found = self.handles[0][0].resolve(_key(event))  # type: ignore[index]
            assert found is not None
            assert found.rows == len(_ids(event))

    # --- what is checked --------------------------------------------------------------------------
    def check(self) -> None:
        """Every event is in the table whole and once, or not at all; an acknowledged one is."""
        counts = Counter(self._read())
        known = {number for event in range(20) for number in _ids(event)}
        assert set(counts) <= known, f"phantom rows {set(counts) - known}"
        for event in range(20):
            there = [counts[number] for number in _ids(event)]
            assert there in ([0] * len(there), [1] * len(there)), f"event {event} is there {there} times"
            assert event not in self.acked or there[0], f"event {event} was acknowledged, and is lost"

    def _judge(self, delivery: Delivery, answer: sw.Receipt | sw.SafewriteError) -> None:
        there = Counter(self._read())[_ids(delivery.event)[0]] == 1
        if isinstance(answer, sw.Receipt):
            self.told[answer.outcome.value] += 1
            assert delivery.content in ("own", "wider"), f"{delivery} was acknowledged"
            assert answer.key == _key(delivery.event)
            assert answer.rows == len(_ids(delivery.event))
            assert there
            self.acked.add(delivery.event)
            return
        self.told[answer.kind.value] += 1
        if delivery.content == "own":
            # In the same call its key may come with other rows before; and a stream's later batch may be there.
            assert isinstance(answer, sw.ReplayMismatchError | sw.InvalidInputError | sw.WouldAlterError), (
                answer
            )
        assert isinstance(answer, sw.NotCommittedError)

    def _ask(
        self, table: Table, group: tuple[Delivery, ...], *, alone: bool
    ) -> list[sw.Receipt | sw.SafewriteError]:
        if alone:
            rows = _rows(group[0])
            return [table.append(rows, key=_key(group[0].event), schema_mode="merge")]
        return table.append_many([(_name(one.event), _rows(one)) for one in group], schema_mode="merge")

    def _rival(self, writer: int, group: tuple[Delivery, ...]) -> None:
        if group and self.depth < WRITERS:
            self.do((writer + 1) % WRITERS, group)

    # --- tables -----------------------------------------------------------------------------------
    def _new_id(self) -> str:
        return str(uuid.UUID(int=next(self._names)))

    def _calm(self, world: World) -> World:
        world.threads = 1
        world.sleep = lambda _: None
        world.monotonic = lambda: float(next(self._seconds)) / 10
        world.new_id = self._new_id
        world.rng = random.Random(0)
        return world

    def _delta(self) -> tuple[Callable[[], tuple[Table, World]], Callable[[], list[int]]]:
        objects, locked = MemoryObjects(), self.place == "dynamodb"
        locks, queue = (Locks(), MemoryQueue()) if locked else (None, None)
        ledger = MemoryLedger() if locked else ObjectLedger(objects)
        self.blobs = objects.blobs
        self.records = ledger.records if isinstance(ledger, MemoryLedger) else {}
        opening._remembered.clear()
        known_keys.forget()
        reader = Snapshot(objects.blobs)

        def make() -> tuple[Table, World]:
            world = self._calm(World(objects, locks=locks, ledger=ledger, queue=queue))
            connection = Connection(
                Address("memory://lake/orders"),
                self.place,
                Arbiter(lock_table=locked, lease=locked),
                world,
                "locks" if locked else None,
                "locks-1" if locked else None,
                endpoint="memory",
            )
            known = DeltaFormat(connection, limits=LIMITS, first=creation.NewTable(), new_id=self._new_id)
            known.open(strict=False)
            if known.version < 0:
                known.create(pa.schema({"id": pa.int64()}))
            return DeltaTable(known), world

        make()

        def read() -> list[int]:
            list(reader.read())
            return [int(row["id"]) for row in reader.rows()]

        return make, read

    def _iceberg(self) -> tuple[Callable[[], tuple[Table, World]], Callable[[], list[int]]]:
        root = Path(self._folder.name)
        catalog = SqlCatalog("local", uri=f"sqlite:///{root}/catalog.db", warehouse=root.as_uri())
        sw.create("db.t", pa.schema({"id": pa.int64()}), catalog=catalog)

        def make() -> tuple[Table, World]:
            table = sw.open("db.t", catalog=catalog)
            table.limits = LIMITS
            return table, self._calm(cast("World", table.world))

        def read() -> list[int]:
            return cast("list[int]", catalog.load_table("db.t").scan().to_arrow()["id"].to_pylist())

        return make, read


# --- events -------------------------------------------------------------------------------------------
def _ids(event: int) -> list[int]:
    return [10 * event + number for number in range(1 + event % 3)]


def _name(event: int) -> Any:
    """Every fifth event is a stream's batch, the only one of its app."""
    return (f"app-{event}", 7) if event % 5 == 4 else f"event-{event}"


def _key(event: int) -> str:
    return f"app-{event}/7" if event % 5 == 4 else f"event-{event}"


def _rows(delivery: Delivery) -> Any:
    rows: list[dict[str, Any]] = [{"id": number} for number in _ids(delivery.event)]
    match delivery.content:
        case "other":
            return [*rows, {"id": 9_000}]
        case "misfit":
            return [{"id": "text"}]
        case "wider":
            return pa.table({"id": [row["id"] for row in rows], "new": pa.nulls(len(rows), pa.int64())})
    return rows
