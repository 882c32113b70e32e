"""The generator of change data: its truth and the job's lake are one, and the checker notices where they are not."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import deltalake
import pytest

from bench.cdc.check import compare, lake_rows
from bench.cdc.generator import PARTITIONS, TABLES, Generator
from bench.cdc.registry import Registry
from bench.cdc.run import Plan, run
from bench.cdc.sources import SourceName, generated
from safewrite.cdc.config.job import load
from safewrite.cdc.landing.landing import Landing
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change import KafkaRecord


def naive(row: dict[str, Any]) -> dict[str, Any]:
    return {name: one.replace(tzinfo=None) if isinstance(one, datetime) else one for name, one in row.items()}


@pytest.mark.sweep("dms", "unwrapped", "maxwell")
@pytest.mark.parametrize(
    "source", ["dms", "avro", "maxwell", "unwrapped", pytest.param("protobuf", marks=pytest.mark.long)]
)
def test_a_lake_equals_the_truth_of_the_generator(source: SourceName, tmp_path: Path) -> None:
    """Three partitions, read at different speeds; then one value of the truth is changed, and the checker sees it."""
    records: list[KafkaRecord] = []
    offsets: Counter[int] = Counter()

    def send(one: Any) -> None:
        records.append(KafkaRecord("changes", one.partition, offsets[one.partition], one.key, one.value))
        offsets[one.partition] += 1

    with Registry() as registry:
        envelope, settings = generated(source, 14, registry)
        settings["tables"] = [{"database": "lake", **one} for one in settings["tables"]]
        generator = Generator(14, envelope, send)
        generator.load()
        generator.run(500, 500)
        given = {"job": "job", "kafka": {"servers": "none", "topics": ["changes"]}, "checkpoint": "none"}
        job = Landing(load(given | {"warehouse": str(tmp_path)} | settings))
        lines = []
        for number, ends in enumerate([(3, 0, 1), (3, 2, 2), (4, 4, 4)]):
            batch = []
            for partition in range(PARTITIONS):
                mine = [one for one in records if one.partition == partition]
                batch += mine[: len(mine) * ends[partition] // 4]
            lines += job.land(Batch.of_records(number, batch, {"changes": "id"}))
    assert envelope.dead > 0
    told = {what: sum(getattr(line, what) for line in lines) for what in ("records", "dead", "ignored")}
    assert told == {"records": generator.sent, "dead": envelope.dead, "ignored": envelope.ignored}
    assert all(
        generator.told[what] for what in ("key changes", "deletes", "delivered again", "columns added")
    )
    for table in TABLES:
        truth = {
            key: [naive(row) if source == "avro" else row] for key, row in generator.rows[table.name].items()
        }
        lake = pa_table(tmp_path, table.name)
        assert compare(table, truth, lake_rows(table, lake)).flaws == 0
        key = next(iter(truth))
        truth[key] = [{**truth[key][0], [*truth[key][0]][-1]: object()}]
        assert compare(table, truth, lake_rows(table, lake)).stale == 1


def pa_table(folder: Path, name: str) -> Any:
    return deltalake.DeltaTable(str(folder / "lake" / name)).to_pyarrow_table()


@pytest.mark.long
def test_both_lakes_equal_what_dms_sent(tmp_path: Path) -> None:
    """Through Kafka; each driver is killed once and the broker restarted once."""
    outcome = run(Plan(seed=5, changes=1500, kills=1, broker_restarts=1, batch=300, source="dms"), tmp_path)
    assert outcome.is_exact, outcome
    assert outcome.verdicts[0].dead > 0


@pytest.mark.long
def test_both_lakes_equal_what_came_in_avro_while_the_registry_was_away(tmp_path: Path) -> None:
    plan = Plan(seed=5, changes=1500, kills=2, broker_restarts=0, batch=300, source="avro", outages=1)
    outcome = run(plan, tmp_path)
    assert outcome.is_exact, outcome
    assert (outcome.outages, outcome.verdicts[0].dead > 0) == (1, True)
