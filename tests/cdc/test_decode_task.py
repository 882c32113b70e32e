"""What executors decode arrives whole, or the batch fails: what they sent is counted against what they say that they read.

That they decode as the driver does, ``tests.cdc.both_ways`` asks of all records of the tests of column batches.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import UNAVAILABLE, KafkaRecord
from safewrite.cdc.records.records import KafkaRecords
from safewrite.cdc.table import decode_task
from safewrite.cdc.table.decode_task import DecodeReport, DecodeTask, union
from tests.cdc.events import record
from tests.cdc.jobs import change
from tests.cdc.on_executors import Executors
from tests.cdc.test_column_batches import inserts


def ran(records: list[KafkaRecord], task: DecodeTask) -> tuple[list[bytes], list[DecodeReport]]:
    """The rows and the reports of a task for each partition."""
    given = KafkaRecords.of(records)
    inputs = [given.take(places).data.to_batches() for places in given.partitions().values()]
    engine = Executors()
    with engine.map([*inputs, []], task) as found:
        return engine.taken(found.rows), found.bodies()


def task(**more: Any) -> DecodeTask:
    decoder = Decoder("debezium-json")
    decoder.fewest = 1
    return replace(DecodeTask(decoder), **more)


RECORDS = [
    *inserts({"type": "string"}, ["x"] * 3),
    record(b"\xff poison", b"k", offset=3),
    record(None, {"id": 1}, offset=4),
    change("t", "a", 1, lsn=1005, offset=5),
    change("c", "a", 9, {"id": 9, "v": "y"}, lsn=9, offset=0, partition=1),
]


def test_all_records_are_told_and_arrive() -> None:
    pieces, reports = ran(RECORDS, task())
    assert [one.records for one in reports] == [6, 1, 0]
    found = union(pieces, reports, ())
    assert (found.by_columns, len(found.rows), len(found.dead), len(found.unmet)) == (4, 1, 1, 1)
    assert [place for one in reports for place in one.places] == [("topic", 0), ("topic", 1)]


@pytest.mark.parametrize("lost", range(4))
def test_a_row_of_a_task_that_is_missing_is_noticed(lost: int) -> None:
    pieces, reports = ran(RECORDS, task())
    assert len(pieces) == 4
    with pytest.raises(sw.InternalError, match="Nothing of the batch was committed"):
        union(pieces[:lost] + pieces[lost + 1 :], reports, ())
    with pytest.raises(sw.InternalError, match="Nothing of the batch was committed"):
        union([*pieces, pieces[lost]], reports, ())


def test_records_that_a_task_forgot_are_noticed() -> None:
    pieces, reports = ran(RECORDS, task())
    more = replace(reports[0], records=reports[0].records + 1)
    with pytest.raises(sw.InternalError, match="Executors read 8 records"):
        union(pieces, [more, *reports[1:]], ())


def test_a_partition_in_two_tasks_is_refused() -> None:
    pieces, reports = ran(RECORDS[:3], task())
    others, more = ran([replace(one, offset=one.offset + 9) for one in RECORDS[:3]], task())
    with pytest.raises(sw.InternalError, match="topic/0 to more than one task"):
        union([*pieces, *others], [*reports, *more], ())


def test_records_before_the_position_of_the_job_are_left_out() -> None:
    pieces, reports = ran(RECORDS, task(starts={("topic", 0): 2}))
    found = union(pieces, reports, ())
    assert sum(one.records for one in reports) == 4, "and none of a partition that has landed"
    assert {one.topics()[0] for one in found.columns} == {"topic"}
    assert [offset for one in found.columns for offset in one.records.offsets()] == [2]


def test_the_bytes_of_records_are_unpacked_where_one_is_looked_at() -> None:
    pieces, reports = ran(RECORDS[:3], task())
    (batch,) = union(pieces, reports, ()).columns
    assert list(batch.records) == RECORDS[:3]
    assert [letter.record for letter in union(pieces, reports, ()).letters("why")] == RECORDS[:3]


def test_what_is_read_one_by_one_comes_in_rows_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_task, "_CHANGES", 2)
    strange = [record(b"\xff", b"k", offset=at) for at in range(5)]
    alone = [record(None, {"id": at}, offset=5 + at) for at in range(3)]
    rows = [change("t", "a", 1, lsn=at, offset=8 + at) for at in range(5)]
    pieces, reports = ran([*strange, *alone, *rows], task())
    found = union(pieces, reports, ())
    assert (len(pieces), len(found.dead), len(found.unmet), len(found.rows)) == (6, 5, 3, 5)


def test_a_task_takes_the_registry_along() -> None:
    registry = Registry("http://127.0.0.1:1", "user", "secret", patience_s=0.0)
    made = task(decoder=Decoder("debezium-avro", schema_of=registry))
    sent = pickle.loads(pickle.dumps(made))
    assert (sent.decoder.settings, sent.decoder.fewest) == (made.decoder.settings, made.decoder.fewest)
    with pytest.raises(sw.StorageError, match="gave no answer about schema 7"):
        ran([KafkaRecord("topic", 0, 0, None, b"\0\0\0\0\7x")], sent)


def test_what_a_process_knows_by_identity_arrives_as_itself() -> None:
    assert pickle.loads(pickle.dumps(UNAVAILABLE)) is UNAVAILABLE
