"""Random worlds around a job: several databases with tables of one name, odd names, tables that others made, PostgreSQL's default
replica identity, columns that order the changes, and Kafka's log compaction while the job is down; and what the lake must hold.

``python -m tests.cdc.worlds 200`` runs so many and prints the seeds that end wrong, and what is wrong with each.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from safewrite.cdc.landing.landing import WorkOf
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table.by_tasks import ExecutorWork
from tests.cdc.events import event, postgres, record, told_with_schemas
from tests.cdc.jobs import Job

ODD = ("ORDER#1", "A%B", "a%20b", "${x}", "漢" * 90, "\ud800", "Ünïcode", "a?b", "select", "x" * 250)
PARTITIONS, KEYS, PHASES = 2, 12, 4
Key = tuple[str, int]


@dataclass
class Source:
    """One table of one database: its rows, and the log of its topic."""

    db: str
    name: str
    tells_all: bool
    """REPLICA IDENTITY FULL."""
    is_compacted: bool
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    log: list[KafkaRecord] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0] * PARTITIONS)

    @property
    def topic(self) -> str:
        """As Debezium writes it: what no topic may have is an underscore."""
        return f"{self.db}.public.{re.sub('[^a-zA-Z0-9._-]', '_', self.name)}"

    def change(self, draw: random.Random, at: int) -> None:
        """One change of a row, and what Debezium tells of it."""
        key = draw.randrange(KEYS)
        before = self.rows.get(key)
        if before is not None and draw.random() < 0.4:
            del self.rows[key]
            self._gone(before, at)
        elif before is not None and draw.random() < 0.2:
            other = draw.randrange(KEYS, 2 * KEYS)
            if other not in self.rows:
                del self.rows[key]
                self._gone(before, at)
                self.rows[other] = {**before, "id": other, "n": at}
                self._tell("c", other, None, at)
        else:
            self.rows[key] = {"id": key, "s": f"s{at}", "n": at, "note": draw.choice(["x", "", None])}
            self._tell("c" if before is None else "u", key, before if self.tells_all else None, at)

    def write(self, key: int, at: int) -> None:
        """A row as it is from now on."""
        op = "u" if key in self.rows else "c"
        before = self.rows.get(key)
        self.rows[key] = {"id": key, "s": f"s{at}", "n": at, "note": None}
        self._tell(op, key, before if self.tells_all else None, at)

    def _gone(self, row: dict[str, Any], at: int) -> None:
        told = row if self.tells_all else {"id": row["id"], "s": "", "n": 0, "note": None}
        self._add(row["id"], event("d", None, told, source=postgres(at, self.name, db=self.db)))
        self._add(row["id"], None)

    def _tell(self, op: str, key: int, before: Any, at: int) -> None:
        self._add(key, event(op, self.rows[key], before, source=postgres(at, self.name, db=self.db)))

    def _add(self, key: int, value: Any) -> None:
        where = key % PARTITIONS
        self.log.append(
            record(value, {"id": key}, offset=self.ends[where], partition=where, topic=self.topic)
        )
        self.ends[where] += 1

    def compact(self, draw: random.Random) -> None:
        """What Kafka's cleaner leaves: the last record of each key, as far as it comes."""
        until = [draw.randrange(end + 1) for end in self.ends]
        last = {(one.partition, one.key): one.offset for one in self.log if one.offset < until[one.partition]}
        self.log = [
            one
            for one in self.log
            if one.offset >= until[one.partition] or last[one.partition, one.key] == one.offset
        ]


@dataclass
class World:
    """A source with a job, of one seed."""

    seed: int
    folder: Path
    work_of: WorkOf = ExecutorWork.here
    """Who decodes and lands the records, if not the driver."""

    def __post_init__(self) -> None:
        self.draw = draw = random.Random(self.seed)
        self.form = draw.choice(["delta", "iceberg"])
        self.sources = {
            name: Source(*name.split("."), draw.random() < 0.3, draw.random() < 0.7)  # type: ignore[arg-type]
            for name in ("shop.orders", "shop.items", "shop.accounts", "shop.events", "shop.plain")
        }
        odd = draw.choice(ODD)
        self.sources["odd"] = Source("shop", odd, False, False)
        self.strays = [
            Source(db, name, False, draw.random() < 0.5)
            for db, name in (("archive", "orders"), ("other", "items"))
        ]
        tables: list[dict[str, Any]] = [
            {"table": "orders"},
            {"table": "accounts", "source": "shop.public.accounts", "primary_key": ["id"]},
            {"table": "events", "source": "public.events", "sequence": "precombine", "precombine_key": ["n"]},
            {"table": "plain", "source": "public.plain"},
        ]
        settings = {"unknown_tables": "create", "unknown_database": "raw", "defaults": {"format": self.form}}
        self.job = Job(self.folder, tables, self.form, settings, schemas=draw.random() < 0.5)
        self._made_by_others()
        self.at = 0
        self.lines: list[LedgerEntry] = []
        self.landed: dict[tuple[str, int], int] = {}

    def _made_by_others(self) -> None:
        """``accounts`` is there already, with NOT NULL and identifier fields."""
        fields = [("id", LongType(), pa.int64(), True), ("s", StringType(), pa.string(), True)]
        fields += [("n", LongType(), pa.int64(), False)]
        if self.form == "delta":
            schema = pa.schema([pa.field(name, kind, not needed) for name, _, kind, needed in fields])
            deltalake.write_deltalake(f"{self.folder}/db/accounts", schema.empty_table())
            return
        catalog = load_catalog(**self.job.catalog())
        catalog.create_namespace("db")
        made = [
            NestedField(at, name, kind, required=needed)
            for at, (name, kind, _, needed) in enumerate(fields, 1)
        ]
        catalog.create_table("db.accounts", Schema(*made, identifier_field_ids=[1]))

    def run(self) -> list[str]:
        """Change, compact and land; what is wrong in the end."""
        self._change(self.sources.values(), 12)
        self._land()
        everything = [*self.sources.values(), *self.strays]
        for _ in range(PHASES):
            self._change(everything, 10)
            for source in everything:
                if source.is_compacted and self.draw.random() < 0.7:  # the job is down meanwhile
                    source.compact(self.draw)
            self._land()
        return [*self._differences(), *self.job.verdict().faults]

    def _change(self, sources: Iterable[Source], count: int) -> None:
        for source in sources:
            for _ in range(count):
                self.at += 1
                source.change(self.draw, self.at)

    def _land(self) -> None:
        landing = self.job.landing()
        while batch := self._next():
            if self.draw.random() < 0.3:
                landing = self.job.landing()  # another driver
            given = told_with_schemas(batch) if self.job.schemas else batch
            topics = {one.topic: "id" for one in batch}
            self.lines += landing.land(Batch.of_records(len(self.landed), given, topics), self.work_of)

    def _next(self) -> list[KafkaRecord]:
        """Some of what was not landed yet, of each partition from its beginning."""
        pending: dict[tuple[str, int], list[KafkaRecord]] = {}
        for source in [*self.sources.values(), *self.strays]:
            for one in source.log:
                place = (one.topic, one.partition)
                if one.offset >= self.landed.get(place, 0):
                    pending.setdefault(place, []).append(one)
        taken = []
        for place, records in sorted(pending.items()):
            some = records[: self.draw.randrange(1, 25)]
            self.landed[place] = some[-1].offset + 1
            taken += some
        return taken

    # --- what has to be there -----------------------------------------------------------------------
    def _differences(self) -> Iterator[str]:
        for name in ("orders", "accounts", "events", "plain"):
            yield from self._compared(name, "db", name, self.sources[f"shop.{name}"])
        yield from self._compared("items", "raw", "public_items", self.sources["shop.items"])
        odd = self.sources["odd"]
        letters = self.job.letters()
        dead = {one["topic"] for one in letters}
        if odd.topic not in dead:
            yield from self._compared("the odd name", "raw", f"public_{odd.name}", odd)
        for source in self.sources.values():
            if source is not odd and source.topic in dead:
                reasons = {one["reason"] for one in letters if one["topic"] == source.topic}
                yield f"{source.topic}: dead letters: {sorted(reasons)}"
        for source in self.strays:
            if source.topic not in dead:
                yield f"{source.topic}: nobody was told of a second source"

    def _compared(self, what: str, database: str, name: str, source: Source) -> Iterator[str]:
        try:
            rows = self.job.read(name, database).to_pylist()
        except Exception as error:  # noqa: BLE001 - of whatever reads it
            yield f"{what}: no table ({type(error).__name__})"
            return
        columns = ("id", "s", "n")
        found = sorted(tuple(row[one] for one in columns) for row in rows)
        wanted = sorted(tuple(row[one] for one in columns) for row in source.rows.values())
        if found != wanted:
            gone, left = set(wanted) - set(found), set(found) - set(wanted)
            yield f"{what}: {len(gone)} rows are lost or stale, {len(left)} of {len(found)} ought not to be there"


def faults_of(seed: int, folder: Path, work_of: WorkOf = ExecutorWork.here) -> list[str]:
    """What is wrong in the end of a world; an error that stops the job is wrong too."""
    try:
        return World(seed, folder, work_of).run()
    except Exception as error:  # noqa: BLE001 - whatever it is, it stops the job at each start
        return [f"the job stops: {type(error).__name__}: {str(error)[:200]}"]


def main(wrong_of: Callable[[int, Path], Iterable[str]]) -> int:
    """Run as many worlds as the last argument says, from the seed before it or 0; how many end wrong."""
    *first, count = map(int, sys.argv[1:])
    wrong = 0
    for seed in range(sum(first), sum(first) + count):
        with tempfile.TemporaryDirectory() as folder:
            faults = [*wrong_of(seed, Path(folder))]
        wrong += bool(faults)
        for fault in faults:
            print(f"seed {seed}: {fault}", flush=True)  # noqa: T201 - a command's report
    print(f"{wrong} of {count} worlds end wrong")  # noqa: T201
    return wrong


if __name__ == "__main__":
    sys.exit(main(faults_of) > 0)
