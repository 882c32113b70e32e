"""Events of Debezium after ``ExtractNewRecordState``: what is known of the change in columns, in headers, or nowhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import KafkaRecord, Op, SourceChange
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.both_ways import outcomes
from tests.cdc.events import decoded, record, struct
from tests.cdc.jobs import Job

JSON = "debezium-unwrapped-json"
ROW = {"id": 1, "name": "Ada"}
KEY = {"id": 1}
NULL_ROW = {"id": 1, "name": None}
"""What a delete tells of the row before it, under PostgreSQL's default replica identity."""


def told(op: str | None, lsn: int, **more: Any) -> dict[str, Any]:
    """What ``op,db,schema,table,lsn,sequence,snapshot,source.ts_ms`` add of an event of PostgreSQL."""
    return {
        "__op": op, "__db": "inventory", "__schema": "public", "__table": "customers", "__lsn": lsn,
        "__sequence": f'["{lsn}","{lsn}"]', "__snapshot": "false", "__source_ts_ms": 1714000000000, **more,
    }  # fmt: skip


def in_columns(op: str | None, lsn: int, row: Any, *, at: int, **more: Any) -> KafkaRecord:
    """As ``add.fields`` and ``delete.tombstone.handling.mode=rewrite`` make it."""
    return record({**row, "__deleted": str(op == "d").lower(), **told(op, lsn, **more)}, KEY, offset=at)


def simple(value: Any) -> bytes:
    """What Connect's simple header converter, its default, writes."""
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def in_json(value: Any) -> bytes:
    """What its JSON converter writes with schemas."""
    return json.dumps({"schema": {"type": "string"}, "payload": value}).encode()


def in_headers(op: str, lsn: int, row: Any, *, at: int, coded: Any = simple) -> KafkaRecord:
    """As ``add.headers`` and ``delete.tombstone.handling.mode=tombstone`` make it."""
    headers = {name: coded(value) for name, value in told(op, lsn).items()}
    return record(None if op == "d" else row, KEY, offset=at, headers=headers, topic="topic")


def changes(*records: KafkaRecord) -> list[SourceChange]:
    found = decoded(*records, form=JSON)
    assert not found.dead, found.dead
    return found.rows


MAKERS: Mapping[str, Any] = {
    "columns": in_columns,
    "headers": in_headers,
    "headers of the JSON converter": partial(in_headers, coded=in_json),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_event_is_what_it_was_before_it_was_unwrapped(make: Any) -> None:
    found = changes(
        make("r", 5, ROW, at=0), make("c", 10, ROW, at=1), make("u", 20, {**ROW, "name": "Eve"}, at=2), make("d", 30, NULL_ROW, at=3)
    )  # fmt: skip
    assert [one.op for one in found] == [Op.UPSERT] * 3 + [Op.DELETE]
    assert [one.is_update for one in found] == [False, False, True, False]
    assert [one.after for one in found] == [ROW, ROW, {**ROW, "name": "Eve"}, None]
    assert [str(one.source) for one in found] == ["inventory.public.customers"] * 4
    assert [one.keys for one in found] == [KEY] * 4
    assert [one.position for one in found] == sorted(one.position for one in found)
    assert not any(one.unordered for one in found)
    assert found[0].source_time_ms == 1714000000000


@pytest.mark.sweep("iceberg", "headers", "headers of the JSON converter")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_rows_land_and_late_ones_do_not(tmp_path: Path, make: Any, form: str) -> None:
    job = Job(tmp_path, [{"table": "customers"}], form, {"envelope": JSON}, schemas=False)
    job.land(make("c", 10, ROW, at=0), make("u", 20, {**ROW, "name": "Eve"}, at=1))
    job.land(make("u", 15, {**ROW, "name": "late"}, at=2), number=1)
    assert job.rows("customers") == {1: {"id": 1, "name": "Eve"}}
    job.land(make("d", 30, NULL_ROW, at=3), number=2)
    assert job.rows("customers") == {}
    job.land(make("u", 25, {**ROW, "name": "later"}, at=4), number=3)
    assert job.rows("customers") == {}, "the delete is newer"
    assert not job.verdict().faults


def test_a_tombstone_without_a_position_deletes_what_its_partition_has_before_it(tmp_path: Path) -> None:
    """``delete.tombstone.handling.mode`` is ``tombstone``, its default, and no header tells the position."""
    job = Job(tmp_path, [{"table": "customers"}], "delta", {"envelope": JSON}, schemas=False)
    topic = "pg.public.customers"
    given = in_columns("c", 10, ROW, at=0)
    one = record(None, KEY, offset=1, topic=topic)
    job.land(KafkaRecord(topic, 0, 0, given.key, given.value), one)
    assert job.rows("customers") == {}
    again = in_columns("c", 20, ROW, at=2)
    job.land(KafkaRecord(topic, 0, 2, again.key, again.value), number=1)
    assert job.rows("customers") == {1: ROW}


def test_a_tombstone_after_a_delete_says_nothing_more() -> None:
    """``rewrite-with-tombstone``."""
    found = decoded(in_columns("d", 10, NULL_ROW, at=0), record(None, KEY, offset=1), form=JSON)
    assert ([one.op for one in found.rows], [one.kind for one in found.ignored]) == (
        [Op.DELETE],
        ["tombstone"],
    )


def test_a_delete_that_its_headers_tell_of_is_no_tombstone() -> None:
    records = [
        in_headers("c", 5, ROW, at=0),
        in_headers("d", 10, None, at=1),
        record(None, {"id": 2}, offset=2),
    ]
    found = Decoder(JSON).decode(KafkaRecords.of(records))
    assert ([one.op for one in found.rows], found.tombstones) == ([Op.UPSERT, Op.DELETE], 0)
    assert [one.record.offset for one in found.unmet] == [2]


@pytest.mark.parametrize(
    ("source", "connector"),
    [
        ({"__file": "bin.000003", "__pos": 4, "__row": 0}, "mysql"),
        ({"__source_commit_lsn": "00000027:00000758:0005", "__source_change_lsn": "00000027:00000758:0003"}, "sqlserver"),
        ({"__scn": "2847", "__commit_scn": "2850"}, "oracle"),
        ({"__lsn": 5, "__transaction_total_order": 2}, "postgresql"),
    ],
    ids=str,
)  # fmt: skip
def test_the_connector_is_told_or_known_by_its_position(source: dict[str, Any], connector: str) -> None:
    named = {**ROW, "__op": "c", "__table": "t", **source}
    (known,), (own,) = (changes(record({**named, **more}, KEY)) for more in ({}, {"__connector": connector}))
    assert known.unordered is None
    assert known.position == own.position


def test_positions_of_db2_need_the_name_of_the_connector() -> None:
    """Its numbers have the fields of SQL Server's, and more digits than those have."""
    at = {
        "__commit_lsn": "00000000:00000000:0000000000a1b2c3",
        "__change_lsn": "00000000:00000000:000000000000000f",
    }
    named = {**ROW, "__op": "c", "__table": "t", **at}
    (strange,), (known,) = (changes(record({**named, **more}, KEY)) for more in ({}, {"__connector": "db2"}))
    assert "no LSN of SQL Server" in str(strange.unordered)
    assert known.unordered is None
    assert known.position.startswith("0" * 26 + "A1B2C3")


def test_a_column_of_the_source_that_begins_alike_is_a_column(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "customers"}], "delta", {"envelope": JSON}, schemas=False)
    job.land(in_columns("c", 10, {**ROW, "__mine": 7}, at=0))
    assert job.rows("customers") == {1: {**ROW, "__mine": 7}}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (ROW, "set add.fields or add.headers"),
        ({**ROW, "__op": "c", "__lsn": 5}, "names no table"),
        ([1], "the value is of type list, not a row"),
        ({**ROW, **told("x", 5)}, "op 'x'"),
    ],
    ids=["nothing told", "no table", "no row", "no operation"],
)
def test_what_cannot_be_understood_says_what_to_set(value: Any, why: str) -> None:
    found = decoded(record(value, KEY), form=JSON)
    assert why in found.dead[0].reason


def test_a_row_without_a_position_needs_columns_that_order_it() -> None:
    found = decoded(record({**ROW, "__op": "c", "__table": "customers"}, KEY), form=JSON)
    assert "precombine_key" in str(found.rows[0].unordered)


# --- as Debezium 3.6.1 wrote them --------------------------------------------------------------------------
RECORDED = json.loads(Path(__file__).with_name("unwrapped.json").read_text())
"""Records of Debezium 3.6.1 on PostgreSQL 15: a snapshot, an update, a changed key, an insert and its delete, a truncate, an insert.

``fields``, ``both``, ``bare``: ``add.fields`` with ``rewrite``, with ``rewrite-with-tombstone``, and without schemas; ``headers``
and ``jsonheaders``: ``add.headers`` with ``tombstone``, by Connect's simple header converter and by its JSON converter.
"""


def recorded(mode: str) -> list[KafkaRecord]:
    def data(told: Any) -> bytes | None:
        if isinstance(told, list):
            told = f'{{"schema":{RECORDED["schemas"][told[0]]},"payload":{told[1]}}}'
        return None if told is None else told.encode()

    topic = f"{mode}.public.customers"
    return [
        KafkaRecord(topic, 0, at, data(key), data(value), tuple((name, data(one)) for name, one in headers))
        for at, (key, value, headers) in enumerate(RECORDED["records"][mode])
    ]


@pytest.mark.sweep(
    "a batch for each record-fields",
    "a batch for each record-jsonheaders",
    "a batch for each record-both",
    "a batch for each record-headers",
    "one batch-jsonheaders",
    "one batch-both",
)
@pytest.mark.parametrize("mode", RECORDED["records"])
@pytest.mark.parametrize("at_once", [True, False], ids=["one batch", "a batch for each record"])
def test_records_of_debezium_land(tmp_path: Path, mode: str, at_once: bool) -> None:
    """The truncate is not among them, and the value that was left out (TOAST) goes to the new key."""
    job = Job(tmp_path, [{"table": "customers", "decimal_fields": {"amount": [10, 2]}}], "delta", {"envelope": JSON, "decimal_handling_mode": "precise"}, schemas=False)  # fmt: skip
    records = recorded(mode)
    for number, batch in enumerate([records] if at_once else [[one] for one in records]):
        job.land(*batch, number=number)
    amount, large = Decimal("1.50"), "x" * 20
    ada = {"id": 1, "name": "Ada", "big": large, "amount": amount}
    assert job.rows("customers") == {1: ada, 2: {"id": 2, "name": "Eve", "big": large, "amount": amount}}
    assert not job.letters()
    assert not job.verdict().faults


def test_a_row_that_is_null_deletes_what_its_partition_has_before_it(tmp_path: Path) -> None:
    """As ``tombstone``, Debezium's default, writes a delete where no header tells its position."""
    job = Job(tmp_path, [{"table": "customers"}], "delta", {"envelope": JSON}, schemas=False)
    records = [
        replace(one, headers=()) if b"null" in (one.value or b"")[-5:] else one
        for one in recorded("jsonheaders")
    ]
    job.land(*records)
    assert set(job.rows("customers")) == {1}
    assert [letter["offset"] for letter in job.letters()] == [3], "its large value was in a row that is gone"
    assert not job.verdict().faults


# --- by columns and one by one --------------------------------------------------------------------------
FIELDS: list[dict[str, Any]] = [
    {"type": "int32", "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
]
ADDED: list[dict[str, Any]] = [
    {"type": "int64" if name in {"__lsn", "__source_ts_ms"} else "string", "optional": True, "field": name}
    for name in ("__deleted", *told("c", 1))
]


def with_schema(given: KafkaRecord) -> KafkaRecord:
    schema = struct([*FIELDS, *ADDED], "pg.public.customers.Value")
    key = {"schema": struct(FIELDS[:1], "pg.public.customers.Key"), "payload": KEY}
    return record({"schema": schema, "payload": json.loads(given.value or b"")}, key, offset=given.offset)


def equal(records: Sequence[KafkaRecord], **table: Any) -> Any:
    by_columns, each = outcomes(records, decoder=partial(Decoder, JSON), **{"source": "customers", **table})
    assert by_columns.told() == each.told()
    return by_columns


@pytest.mark.sweep("with its schema")
@pytest.mark.parametrize("coded", [lambda one: one, with_schema], ids=["bare", "with its schema"])
def test_rows_are_read_by_columns_as_they_are_one_by_one(coded: Any) -> None:
    sequences = ['["5","5"]', '[null,"9"]', "x", None]
    records = [
        coded(in_columns(op, 10 + at, ROW if op != "d" else NULL_ROW, at=at, __sequence=sequences[at % 4], **more))
        for at, (op, more) in enumerate(
            (op, more)
            for op in ("c", "u", "d", "r", "t", "x", None)
            for more in ({}, {"__lsn": None}, {"__table": None}, {"__snapshot": None}, {"__source_ts_ms": None})
        )
    ]  # fmt: skip
    found = equal(records)
    assert found.by_columns > 8
    equal(records, primary_key=["id"])
    equal(records, primary_key=["name"])
    for one in records:
        equal([one])


def test_rows_whose_headers_tell_of_the_change_are_read_one_by_one() -> None:
    records = [in_headers(op, at, ROW, at=at) for at, op in enumerate("ccudr")]
    found = equal(records)
    assert (found.by_columns, len(found.rows)) == (0, 5)
