"""A schema registry that goes away and comes back: batches wait or fail, and none of their records is a dead letter."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from bench.cdc import avro
from bench.cdc.check import compare, lake_rows
from bench.cdc.generator import TABLES, Event, Generator
from bench.cdc.registry import Registry as Server
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change import KafkaRecord, UndecodableError
from tests.cdc.jobs import Job

SCHEMA = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def server() -> Iterator[Server]:
    """Tests stop and start it."""
    with Server() as made:
        yield made


class Source:
    """The generator's records, and a job that lands them; its registry may be away for no time."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.records: list[KafkaRecord] = []
        self.envelope = avro.DebeziumAvro(server)
        self.generator = Generator(1, self.envelope, self._take)
        given = avro.settings(server)
        given["registry"] |= {"patience_s": 0.0}
        self.job = Job(folder, given.pop("tables"), settings=given)
        self.landing = self.job.landing()
        self.landed = 0

    def _take(self, record: Any) -> None:
        self.records.append(KafkaRecord("topic", 0, len(self.records), record.key, record.value))

    def batch(self) -> Batch:
        """All that has come since the last one that landed."""
        return Batch.of_records(len(self.records), self.records[self.landed :], {"topic": "id-1"})

    def land(self) -> None:
        self.landing.land(self.batch())
        self.landed = len(self.records)

    def is_exact(self) -> bool:
        """Whether the lake has the generator's rows; Avro's times have no zone."""
        return not any(
            compare(table, self._truth(table.name), lake_rows(table, self.job.read(table.name))).flaws
            for table in TABLES
        )

    def _truth(self, name: str) -> dict[Any, list[dict[str, Any]]]:
        def plain(value: Any) -> Any:
            return value.replace(tzinfo=None) if isinstance(value, datetime) else value

        rows = self.generator.rows[name]
        return {key: [{column: plain(value) for column, value in row.items()}] for key, row in rows.items()}


def test_a_batch_that_finds_no_registry_lands_nothing_and_is_exact_when_it_is_back(
    server: Server, tmp_path: Path
) -> None:
    source = Source(server, tmp_path)
    source.generator.load()
    server.stop()
    with pytest.raises(sw.StorageError, match="Nothing of this batch was written; it is read again"):
        source.land()
    assert not list(tmp_path.glob("*/*"))  # no table, no dead letter, no ledger
    server.start()
    source.land()
    assert source.is_exact()
    assert not (tmp_path / "cdc" / "job_dead_letters").exists()


def test_schemas_that_were_met_are_enough_while_the_registry_is_away(server: Server, tmp_path: Path) -> None:
    """Then a column is added: its schema is a new one, and that batch waits for the registry."""
    source = Source(server, tmp_path)
    source.generator.load()
    source.land()
    server.stop()
    source.generator.run(30, 10**6)
    source.land()
    assert source.is_exact()
    source.generator.run(60, 80, 20)
    assert source.generator.told["columns added"] == 3
    with pytest.raises(sw.StorageError):
        source.land()
    assert source.landing.ledger.positions()["job/topic/id-1/0"] == source.landed
    server.start()
    source.land()
    assert source.is_exact()
    assert not (tmp_path / "cdc" / "job_dead_letters").exists()


def test_each_wait_for_the_registry_is_told(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    number = server.add(SCHEMA)
    server.stop()
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            server.start()

    assert "Key" in Registry(server.url, sleep=sleep)(number)
    told = [one.getMessage() for one in caplog.records]
    assert len(told) == len(waits) == 3
    assert all("The batch waits, nothing of it is written" in one and "schema 1" in one for one in told)


def test_an_id_that_the_registry_does_not_know_is_no_outage(server: Server, tmp_path: Path) -> None:
    """Its record is a dead letter at once, and the others land."""
    source = Source(server, tmp_path)
    source.generator.load()
    value = source.records[0].value
    assert value is not None
    source._take(KafkaRecord("topic", 0, 0, source.records[0].key, struct.pack(">bI", 0, 77) + value[5:]))
    source.land()
    assert source.is_exact()
    (letter,) = source.job.letters()
    assert letter["reason"] == "the registry does not know schema 77"


def test_a_404_of_something_else_at_the_address_is_an_outage(server: Server) -> None:
    """A gateway without its registry, or a wrong path in ``url``: else every record would be a dead letter."""
    with pytest.raises(UndecodableError, match="does not know schema 5"):
        Registry(server.url, patience_s=0.0)(5)
    with pytest.raises(sw.StorageError, match=r"is registry\.url right"):
        Registry(f"{server.url}/elsewhere", patience_s=0.0)(5)


def test_the_generator_makes_poison_of_each_kind(server: Server) -> None:
    """Bytes without an id, an id that nobody knows, and a strange table: the truth run counts on them."""
    source = Source(server, Path("unused"))
    row = {"id": 1, "name": None, "balance": None, "seen": None, "active": None}
    event = Event("accounts", "insert", row, None, 1001, 1, source.generator._now)
    made = [source.envelope.poison(source.generator._draw, event)[0].value or b"" for _ in range(60)]
    kinds = {
        "id": sum(int.from_bytes(one[1:5]) == 4_000_000 for one in made),
        "table": sum(b"ghosts" in one for one in made),
    }
    assert all(0 < number < 60 for number in kinds.values())
    assert sum(kinds.values()) < len(made) == source.envelope.dead
