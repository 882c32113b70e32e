"""T3-B3: what Kafka's log compaction leaves of a delete is its tombstone; the row goes, or the tombstone is a dead letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.batch import Batch
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.events import CUSTOMER, event, postgres, record, struct, with_schema
from tests.cdc.jobs import FORM_AND_SCHEMAS, Job

FORMS = ("delta", "iceberg")
TOPIC = "pg.public.a"


def told(
    op: str, key: int, name: str | None = None, *, at: int, topic: str = TOPIC, table: str = "a", **more: Any
) -> KafkaRecord:
    """An event of ``public.<table>``, whose log position and offset are one number."""
    row = None if op == "d" else {"id": key, "name": name}
    return record(event(op, row, source=postgres(at, table)), {"id": key}, offset=at, topic=topic, **more)


def gone(key: int, *, at: int, topic: str = TOPIC, **more: Any) -> KafkaRecord:
    return record(None, {"id": key}, offset=at, topic=topic, **more)


def job_of(folder: Path, form: str = "delta", *, schemas: bool = False, **table: Any) -> Job:
    return Job(folder, [{"table": "a", **table}], form, schemas=schemas)


def names(job: Job) -> dict[int, Any]:
    return {key: row["name"] for key, row in job.rows("a").items()}


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_a_tombstone_without_its_delete_deletes(tmp_path: Path, form: str, schemas: bool) -> None:
    """Whether it comes first in its batch, behind an update there, or long after the row; the row may come again."""
    job = job_of(tmp_path, form, schemas=schemas)
    job.land(*(told("c", key, "old", at=key + 1) for key in range(6)))
    lines = job.land(
        gone(0, at=10),
        told("u", 1, "newer", at=11),
        gone(1, at=12),
        gone(2, at=13),
        told("c", 2, "again", at=14),
        told("d", 3, at=15),
        gone(3, at=16),
        gone(77, at=17),
    )
    assert names(job) == {2: "again", 4: "old", 5: "old"}
    assert not job.letters()
    assert sum(line.ignored for line in lines) == 2  # that whose delete came, and that of no row
    assert not job.verdict().faults


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_a_tombstone_in_the_batch_after_its_delete_takes_no_row_that_came_since(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    for fresh in (False, True):
        job = job_of(tmp_path / str(fresh), form, schemas=schemas)
        (tmp_path / str(fresh)).mkdir()
        landing = job.landing()
        for one in (
            told("c", 1, "a", at=1),
            told("d", 1, at=2),
            gone(1, at=3),
            told("c", 1, "b", at=4),
            told("u", 1, "c", at=5),
        ):
            job.land(one, landing=None if fresh else landing)
        assert names(job) == {1: "c"}
        assert not job.letters()


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_delete_that_cannot_be_read_is_mended_by_its_tombstone(tmp_path: Path, form: str) -> None:
    job = job_of(tmp_path, form)
    job.land(told("c", 1, "a", at=1))
    job.land(record(b'{"op": "d"', {"id": 1}, offset=2, topic=TOPIC), gone(1, at=3))
    assert names(job) == {}
    assert len(job.letters()) == 1


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_batch_that_died_before_its_ledger_counts_tombstones_alike(tmp_path: Path, form: str) -> None:
    job = job_of(tmp_path, form)
    job.land(*(told("c", key, "a", at=key + 1) for key in range(3)))
    given = [gone(0, at=5), told("u", 1, "b", at=6), gone(9, at=7), gone(1, at=8), told("u", 2, "c", at=9)]
    job.land_and_die(*given)
    lines = [line for line in job.land(*given) if line.table]
    assert [(line.records, line.ignored, line.dead) for line in lines] == [(5, 1, 0)]
    assert names(job) == {2: "c"}
    assert not job.verdict().faults


def test_a_row_of_another_partition_is_not_known_to_be_older(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    job.land(told("c", 1, "a", at=50, partition=1))
    job.land(gone(1, at=7, partition=0))
    assert names(job) == {1: "a"}
    assert "another partition" in job.letters()[0]["reason"]


def test_a_tombstone_of_another_schema_takes_no_row(tmp_path: Path) -> None:
    """The configuration names the table only, and the topic of ``archive.a`` is read too."""
    job = job_of(tmp_path)
    job.land(told("c", 1, "a", at=1))
    job.land(gone(1, at=5, topic="pg.archive.a"))
    assert names(job) == {1: "a"}
    assert "archive.a" in job.letters()[0]["reason"]


def test_a_tombstone_of_another_database_takes_no_row(tmp_path: Path) -> None:
    """Its topic has another prefix, and the same schema and table; in the same process, and in a new one."""
    job = job_of(tmp_path)
    landing = job.landing()
    job.land(told("c", 1, "a", at=1), told("c", 2, "a", at=2), landing=landing)
    job.land(gone(1, at=5, topic="other.public.a"), gone(7, at=6, topic="other.public.a"), landing=landing)
    job.land(gone(2, at=7, topic="other.public.a"))
    assert names(job) == {1: "a", 2: "a"}
    assert sorted(one["offset"] for one in job.letters()) == [5, 7]


@pytest.mark.parametrize(
    ("source", "topic", "key"),
    [
        ("inventory.public.a", "pg.public.a", None),
        ("public.a", "pg.public.a", None),
        (None, "pg.public.a", None),
        (None, "all", "pg.public.a.Key"),
        ("inventory.public.a", "all", "pg.public.a.Key"),
        ("inventory.public.a", "all", "__dbz__"),
    ],
)
def test_its_table_is_told_by_the_topic_or_by_its_key(
    tmp_path: Path, source: str | None, topic: str, key: str | None
) -> None:
    """A driver that knows nothing of the topic yet."""
    job = job_of(tmp_path, **({} if source is None else {"source": source}))
    payload: dict[str, Any] = {"id": 1}
    if key == "__dbz__":
        payload["__dbz__physicalTableIdentifier"] = "pg.public.a"
    whole = {"schema": struct([one for one in CUSTOMER if one["field"] == "id"], key), "payload": payload}
    coded = payload if key in {None, "__dbz__"} else whole
    row = with_schema(event("c", {"id": 1, "name": "a"}, source=postgres(1, "a")))
    job.land(record(row, coded, offset=1, topic=topic))
    job.land(record(None, coded, offset=2, topic=topic))
    assert names(job) == {}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_tombstone_that_names_no_table_is_told_if_one_has_such_a_row(tmp_path: Path, form: str) -> None:
    """One topic for several tables, and keys that are alike: nobody knows whose row it deletes."""
    job = Job(tmp_path, [{"table": "a"}, {"table": "b"}], form, schemas=False)
    job.land(told("c", 1, "a", at=1, topic="all"), told("c", 2, "b", at=2, topic="all", table="b"))
    lines = job.land(gone(2, at=5, topic="all"), gone(3, at=6, topic="all"))
    assert (list(job.rows("a")), list(job.rows("b"))) == ([1], [2])
    (letter,) = job.letters()
    assert (letter["offset"], "db.b" in letter["reason"]) == (5, True)
    assert [(line.ignored, line.dead) for line in lines if line.table is None] == [(1, 1)]
    # In the same batch as the row:
    job.land(told("u", 1, "newer", at=7, topic="all"), gone(1, at=8, topic="all"))
    assert {one["offset"] for one in job.letters()} == {5, 8}
    # Its delete came, in the batch before it:
    landing = job.landing()
    job.land(told("d", 1, at=9, topic="all"), landing=landing)
    job.land(gone(1, at=10, topic="all"), landing=landing)
    assert {one["offset"] for one in job.letters()} == {5, 8}


def test_a_key_that_is_not_the_tables_makes_a_dead_letter(tmp_path: Path) -> None:
    job = job_of(tmp_path, primary_key=["name"])
    job.land(told("c", 1, "a", at=1))
    job.land(gone(1, at=2), record(None, b"\xff", offset=3, topic=TOPIC))
    assert list(job.rows("a", "name")) == ["a"]
    assert sorted(one["offset"] for one in job.letters()) == [2, 3]


def test_tombstones_of_created_tables_delete(tmp_path: Path) -> None:
    settings = {"unknown_tables": "create", "unknown_database": "raw"}
    job = Job(tmp_path, [], settings=settings, schemas=False)
    job.land(told("c", 1, "a", at=1), told("c", 2, "a", at=2))
    job.land(gone(1, at=3), gone(1, at=1, topic="pg.public.other"))
    assert [row["id"] for row in job.read("public_a", "raw").to_pylist()] == [2]
    assert sorted(one["topic"] for one in job.letters()) == ["pg.public.other"] or not job.letters()


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_a_tombstone_deletes_where_columns_order_the_changes(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    job = job_of(tmp_path, form, schemas=schemas, sequence="precombine", precombine_key=["name"])
    job.land(*(told("c", key, "m", at=key + 1) for key in range(3)))
    job.land(gone(0, at=5), told("u", 1, "z", at=6), told("u", 1, "b", at=7), gone(1, at=8))
    assert names(job) == {2: "m"}


def test_a_topic_that_was_made_anew_counts_for_itself(tmp_path: Path) -> None:
    """Its offsets begin at 0, below those of the rows that the old one brought: nobody knows which is newer."""
    job = job_of(tmp_path)
    job.land(told("c", 1, "a", at=50))
    landing = job.landing()
    landing.land(Batch.of_records(0, [gone(1, at=0)], {TOPIC: "id-2"}))
    assert names(job) == {1: "a"}
    assert len(job.letters()) == 1


def test_a_registry_that_is_away_makes_no_dead_letter_of_a_tombstone(tmp_path: Path) -> None:
    def away(_: int) -> str:
        raise sw.StorageError("away")

    decoder = Decoder("debezium-avro", schema_of=away)
    with pytest.raises(sw.StorageError):
        decoder.decode(KafkaRecords.of([KafkaRecord(TOPIC, 0, 1, b"\0\0\0\0\x07x", None)]))


@pytest.mark.parametrize(
    "own", [{}, {"connect.name": "pg.public.a.Key"}], ids=["Avro's name", "Connect's name"]
)
def test_a_key_in_avro_names_its_table(own: dict[str, str]) -> None:
    namespace = "elsewhere" if own else "pg.public.a"
    schema = {
        "type": "record",
        "name": "Key",
        "namespace": namespace,
        "fields": [{"name": "id", "type": "long"}],
        **own,
    }
    decoder = Decoder("debezium-avro", schema_of=lambda _: json.dumps(schema))
    found = decoder.decode(KafkaRecords.of([KafkaRecord("all", 0, 1, b"\0\0\0\0\x07\x02", None)]))
    assert [(one.keys, one.names) for one in found.unmet] == [({"id": 1}, ("pg.public.a", "all"))]
