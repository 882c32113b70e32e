"""What the driver learns of records that it never has: their prefixes, which Spark then cuts off, and what they weigh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from safewrite.cdc.envelopes import decoding
from safewrite.cdc.envelopes.decoding import Decoded, Decoder
from safewrite.cdc.kafka import executor_records
from safewrite.cdc.kafka.batch_split import Limit
from safewrite.cdc.kafka.executor_records import ExecutorRecords, ExecutorRecordsWork
from safewrite.cdc.kafka.micro_batches import MicroBatches
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.table.decode_task import DecodeTask, union
from safewrite.engine.local import LocalEngine
from tests.cdc.on_executors import sent
from tests.cdc.test_column_batches import TEXTS, inserts, row


class OneProcess(LocalEngine):
    """Spark's engine without Spark."""

    def __init__(self, session: object) -> None:
        pass


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_records, "SparkEngine", OneProcess)
    decoding._known.cache_clear()  # prefixes that other tests met


@dataclass
class Session:
    """That of a stream; ``settings`` are all that it was given."""

    settings: list[tuple[str, str]] = field(default_factory=list)
    sparkContext: Any = field(default_factory=lambda: SimpleNamespace(defaultParallelism=2))  # noqa: N815 - Spark's name

    @property
    def conf(self) -> Any:
        return SimpleNamespace(set=lambda *given: self.settings.append(given))


class Decode:
    """Decodes records by the work that executors get of them."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.work_of = decoder, ExecutorRecordsWork(decoder)

    def __call__(self, records: KafkaRecords, ended: Mapping[Any, int]) -> Decoded:
        work = self.work_of(records)
        task = sent(DecodeTask(self.decoder, work.prefixes, work.starts, ended))
        with work.engine.map(work.source if work.is_here else work.source.inputs, task) as mapped:
            reports = mapped.bodies()
            work.learn(reports)
            return union(work.engine.taken(mapped.rows), reports, work.prefixes)


def there(data: pa.Table, prefixes: tuple[bytes, ...], told: list[Any]) -> ExecutorRecords:
    frame: Any = SimpleNamespace(inputs=[data.to_batches()], sparkSession=Session())
    return ExecutorRecords(frame, prefixes, lambda *given: told.append(given), 100)


def test_prefixes_that_executors_meet_are_cut_off_the_next_batch() -> None:
    decoder, told = Decoder("debezium-json"), list[Any]()
    decoder.fewest = 1
    decode = Decode(decoder)
    given = KafkaRecords.of(inserts({"type": "string"}, ["x"] * 5))
    assert decode(there(given.data, (), told), {}).by_columns == 5
    (prefix,) = decoder.values.newest(9)
    assert given[0].value is not None
    assert given[0].value.startswith(prefix)
    assert told == [(5, given.data.nbytes, None, 5)]
    values = [one.value[len(prefix) :] for one in given if one.value is not None]
    at = given.data.schema.get_field_index
    data = given.data.set_column(at("value"), "value", pa.array(values, pa.binary()))
    data = data.set_column(at("value_prefix"), "value_prefix", pa.array([0] * 5, pa.int32()))
    found = decode(there(data, (prefix,), told), {})
    assert list(found.columns[0].records) == list(given), "the driver puts prefixes before the bytes again"
    assert told[1] == (5, data.nbytes + 5 * len(prefix), data.nbytes, 5)


def test_records_before_a_position_stay_away_and_those_of_the_driver_are_decoded_there() -> None:
    decoder, told = Decoder("debezium-json"), list[Any]()
    records = KafkaRecords.of([row("c", {"id": at, "v": "x"}, TEXTS, at) for at in range(4)])
    since = there(records.data, (), told).since({("topic", 0): 3})
    assert Decode(decoder)(since, {}).records == 1
    assert Decode(decoder)(records, {}).records == 4
    assert len(told) == 1


@pytest.mark.parametrize(("size", "rows"), [(100, 4096), (16 * 2**10, 1024), (2**20, 16), (2**30, 16)])
def test_few_heavy_records_come_to_a_task_at_a_time(size: float, rows: int) -> None:
    batches = MicroBatches(None, Limit(10, 10))  # type: ignore[arg-type]
    batches._learn(3, 3 * size)
    assert batches._rows_a_batch == rows


def test_the_stream_s_session_is_told_how_many_records_a_task_gets_only_when_that_changes() -> None:
    """A copy of the session was made for each batch, which takes Java more than most of what it plans."""
    work_of, session = ExecutorRecordsWork(Decoder("debezium-json")), Session()
    frame: Any = SimpleNamespace(sparkSession=session)
    told = []
    for rows in (100, 100, 7, 7):
        work_of(ExecutorRecords(frame, (), lambda *given: None, rows))
        told.append([value for name, value in session.settings if name.endswith("maxRecordsPerBatch")])
    assert told == [["100"], ["100"], ["100", "7"], ["100", "7"]]
