"""The bench of rivals of the change data job: it sees what is lost and doubled, and gives each of them the same changes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench.cdc import drain, sink
from bench.cdc.avro import DebeziumAvro
from bench.cdc.registry import Registry
from bench.cdc.versus_kafka2delta import Flat, made


@dataclass
class Careless:
    """A drainer that commits one id twice and passes over another."""

    pid: int = field(default_factory=os.getpid)
    steps: list[int] = field(default_factory=lambda: [0, 2, 4])
    starts: int = 0
    kills: int = 0

    def start(self) -> None:
        self.starts += 1

    def kill(self) -> None:
        self.kills += 1

    def failed(self) -> str | None:
        return None

    def rows(self) -> int:
        return self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]

    def ids(self) -> list[int]:
        return [0, 0, 1, 3]


@pytest.mark.parametrize("kills", [0, 2])
def test_rows_that_are_lost_and_doubled_are_counted(monkeypatch: pytest.MonkeyPatch, kills: int) -> None:
    monkeypatch.setattr(drain, "_COMMIT_S", 0.0)
    monkeypatch.setattr(drain, "_POLL_S", 0.0)
    one = Careless()
    told = drain.drain_killed("it", one, 4, kills, 1) if kills else drain.drain("it", one, 4)
    assert (told.lost, told.doubled, told.stopped) == (1, 1, "")
    if not kills:
        assert [rows for _, _, rows in told.points] == [2, 4]
        assert told.wall_rate > 0


def test_the_processor_time_of_a_family_is_that_of_its_processes() -> None:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    assert drain.cpu_s(os.getpid()) >= 0.05
    assert drain.cpu_s(2**30) == 0


def test_both_envelopes_hold_the_same_changes() -> None:
    """The truth that both are compared with is one; the flat one has no tombstones, and nothing that cannot be read."""
    registry = Registry()
    whole, flat = (made(envelope, 7, 1500) for envelope in (DebeziumAvro(registry), Flat(registry)))
    assert whole.generator.rows == flat.generator.rows
    assert whole.generator.envelope.dead > 0
    assert all(record.value is not None for record in flat.records)
    cut = [one for batch in flat.batches(7) for one in batch]
    assert sorted(record for _, record in cut) == sorted(flat.records)


def test_a_catalog_that_is_not_there_yet_has_no_rows(tmp_path: Path) -> None:
    assert (sink.rows(tmp_path / "no.db", "items"), sink.read(tmp_path / "no.db", "items")) == (0, None)
    (tmp_path / "empty.db").touch()
    assert sink.rows(tmp_path / "empty.db", "items") == 0


def test_a_tombstone_and_a_truncate_are_no_rows() -> None:
    events = [None, *(b'{"payload": {"op": "%s"}}' % op for op in (b"c", b"u", b"d", b"r", b"t"))]
    assert [sink.is_row(event) for event in events] == [False, True, True, True, True, False]


@pytest.mark.long
def test_the_job_and_the_sink_land_each_id_once(tmp_path: Path) -> None:
    """Both drain a topic in peace; the job also while it is killed."""
    told = drain.run(["iceberg-sink"], 3000, 0, batch=500, seed=1, folder=tmp_path)
    (tmp_path / "ours").mkdir()
    told += drain.run(["iceberg"], 3000, 1, batch=500, seed=1, folder=tmp_path / "ours")
    assert [(one.name, one.lost, one.doubled, one.stopped) for one in told] == [
        ("iceberg-sink", 0, 0, ""),
        ("iceberg", 0, 0, ""),
        ("iceberg", 0, 0, ""),
    ]
