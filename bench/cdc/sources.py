"""Provides the two sources of a run: a database that Debezium captures, and a generator that writes to Kafka itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import pyarrow.compute as pc

from bench.cdc import avro, dms, generator, maxwell, protobuf, unwrapped
from bench.cdc.check import Rows, is_marked, read, source_rows
from bench.cdc.generator import Envelope, Generator
from bench.cdc.modes import Mode, modes_of
from bench.cdc.producer import Producer
from bench.cdc.registry import Registry
from bench.cdc.row_sql import RowSql, sql_of
from bench.cdc.source_stack import DATABASE, PATTERN, Form, Job, SourceStack, source_stack
from bench.cdc.workload import TABLES, SourceTable
from bench.servers.kafka import Kafka

SourceName = Literal["debezium", "dms", "avro", "protobuf", "maxwell", "unwrapped"]
TOPIC = "changes"
_OF_REGISTRY = frozenset(["avro", "protobuf"])


class Workload(Protocol):
    """What changes the source."""

    told: dict[str, int]

    @property
    def changes(self) -> int: ...

    def run(self, changes: int, of: int | None = None, start: int = 0) -> None: ...

    def mark(self) -> None:
        """The last changes of a run."""


class ChangeSource(Protocol):
    """What a run needs to know of its source."""

    kafka: Kafka
    workload: Workload
    tables: Sequence[SourceTable]
    pattern: str
    registry: Registry | None

    @property
    def is_hard(self) -> bool:
        """Whether what makes the run hard has happened."""

    @property
    def dead(self) -> int:
        """Records that are to be dead letters."""

    def job(self, form: Form, batch: int, settings: Mapping[str, Any]) -> Job: ...

    def rows(self, table: SourceTable) -> Rows:
        """The truth."""

    def is_complete(self, job: Job) -> bool:
        """Whether the lake has the last changes."""


@dataclass
class Captured:
    """PostgreSQL behind Debezium."""

    servers: SourceStack
    tables: Sequence[SourceTable] = TABLES
    pattern: str = PATTERN
    registry: Registry | None = None
    dead: int = 0
    modes: Mapping[str, Mode] = field(default_factory=dict)
    sql: Mapping[str, RowSql] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kafka, self.workload = self.servers.kafka, self.servers.workload

    @property
    def is_hard(self) -> bool:
        """Whether a transaction was under way during the snapshot."""
        return self.servers.has_under_way

    def job(self, form: Form, batch: int, settings: Mapping[str, Any]) -> Job:
        return Job(
            self.servers.folder,
            form,
            self.kafka.endpoint_url,
            settings,
            batch,
            modes=self.modes,
            sql=self.sql,
        )

    def rows(self, table: SourceTable) -> Rows:
        found, sql = source_rows(self.servers.postgres, table), self.sql.get(table.name, RowSql())
        return {key: [sql.made(row) for row in rows] for key, rows in found.items() if sql.passes(rows[0])}

    def is_complete(self, job: Job) -> bool:
        return is_marked(job)


@dataclass
class Sent:
    """A generator whose records are in Kafka when a call returns."""

    generator: Generator
    flush: Callable[[], int]

    @property
    def told(self) -> dict[str, int]:
        return self.generator.told

    @property
    def changes(self) -> int:
        return self.generator.changes

    def run(self, changes: int, of: int | None = None, start: int = 0) -> None:
        self.generator.run(changes, of or changes, start)
        self.mark()

    def mark(self) -> None:
        if (told := self.flush()) != self.generator.sent:
            raise RuntimeError(f"{self.generator.sent} records were made, and the broker took {told}")


@dataclass
class Generated:
    """A generator in front of Kafka."""

    folder: Path
    kafka: Kafka
    workload: Sent
    settings: dict[str, Any]
    registry: Registry | None
    tables: Sequence[SourceTable] = generator.TABLES
    pattern: str = TOPIC
    is_hard: bool = field(default=True, init=False)

    @property
    def dead(self) -> int:
        return self.workload.generator.envelope.dead

    def job(self, form: Form, batch: int, settings: Mapping[str, Any]) -> Job:
        source = {"servers": self.kafka.endpoint_url, "topics": [TOPIC], "max_offsets_per_trigger": batch}
        tables = [{"database": DATABASE, "format": form, **one} for one in self.settings["tables"]]
        whole = {**self.settings, **settings, "kafka": source, "tables": tables}
        return Job(self.folder, form, self.kafka.endpoint_url, whole, batch)

    def rows(self, table: SourceTable) -> Rows:
        """The generator's rows; a time without a zone is one in Avro."""
        is_naive = self.settings["envelope"] == "debezium-avro"
        found = self.workload.generator.rows[table.name]
        return {
            key: [{name: _naive(value) if is_naive else value for name, value in row.items()}]
            for key, row in found.items()
        }

    def is_complete(self, job: Job) -> bool:
        """Whether the books have as many records as were sent: what a killed batch left open is not in them."""
        ledger = read(job, f"{job.name}_ledger", "cdc")
        known = 0 if ledger is None else pc.sum(ledger.column("records")).as_py() or 0
        return bool(known >= self.workload.generator.sent)


@contextmanager
def change_source(
    source: SourceName, folder: Path, seed: int, modes: Sequence[Mode] = ("upsert",), *, sql: bool = False
) -> Iterator[ChangeSource]:
    """All servers of a source, its first rows made; tables land in ``modes`` by turns, and by ``sql`` (debezium)."""
    if source == "debezium":
        of_tables = modes_of(modes, TABLES, seed)
        with source_stack(folder, seed, of_tables) as servers:
            yield Captured(servers, modes=of_tables, sql=sql_of(TABLES, of_tables) if sql else {})
        return
    with (
        Kafka(folder) as kafka,
        Registry() as registry,
        Producer(kafka, TOPIC, generator.PARTITIONS, folder / "producer.log") as producer,
    ):
        made, settings = generated(source, seed, registry)
        changes = Generator(seed, made, lambda record: producer.send(*record))
        changes.load()
        workload = Sent(changes, producer.flush)
        workload.mark()
        yield Generated(folder, kafka, workload, settings, registry if source in _OF_REGISTRY else None)


def generated(source: SourceName, seed: int, registry: Registry) -> tuple[Envelope, dict[str, Any]]:
    """The envelope of a source that is generated, and what the job's configuration says about its records."""
    if source == "dms":
        return dms.Dms(seed), dms.settings()
    if source == "maxwell":
        return maxwell.Maxwell(), maxwell.settings()
    if source == "unwrapped":
        return unwrapped.Unwrapped(), unwrapped.settings()
    if source == "protobuf":
        return protobuf.DebeziumProtobuf(registry), protobuf.settings(registry)
    return avro.DebeziumAvro(registry), avro.settings(registry)


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value
