"""Tables follow the schemas of their sources: all rows and schemas of a batch, added, widened, renamed, left out."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import dms, event, postgres, record, with_schema
from tests.cdc.jobs import Job, change
from tests.iceberg.v3_tables import entries, lineage

TEXT = "__debezium_unavailable_value"


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, [{"table": "a"}], request.param)


def typed(
    fields: dict[str, Any], row: dict[str, Any], offset: int, op: str = "c", before: Any = None
) -> KafkaRecord:
    """An event with its schema; a field is a type, or a whole schema."""
    schemas = [
        {"field": name, **(kind if isinstance(kind, dict) else {"type": kind})}
        for name, kind in fields.items()
    ]
    payload = event(op, row, before, source=postgres(offset + 1, "a"))
    key = {"schema": {"type": "struct", "fields": [schemas[0]]}, "payload": {"id": row["id"]}}
    return record(with_schema(payload, schemas), key, offset=offset)


def types(job: Job) -> dict[str, str]:
    return {one.name: str(one.type).replace("large_", "") for one in job.read("a").schema}


def reasons(job: Job) -> dict[int, str]:
    return {letter["offset"]: letter["reason"] for letter in job.letters()}


@pytest.mark.sweep("iceberg")
def test_the_schema_is_that_of_all_rows_and_not_of_the_first(job: Job) -> None:
    """The trap of the recipe that is copied: what the first row of a batch lacks is lost in all others."""
    job.land(
        change("c", "a", 1, {"id": 1, "x": None}, lsn=1, offset=0),
        change("c", "a", 2, {"id": 2, "x": 5, "y": "text"}, lsn=2, offset=1),
        change("c", "a", 3, {"id": 3, "x": 1.5}, lsn=3, offset=2),
        change("c", "a", 4, {"id": 4, "z": {"deep": [1, None]}}, lsn=4, offset=3),
    )
    assert job.rows("a") == {
        1: {"id": 1, "x": None, "y": None, "z": None}, 2: {"id": 2, "x": 5.0, "y": "text", "z": None},
        3: {"id": 3, "x": 1.5, "y": None, "z": None}, 4: {"id": 4, "x": None, "y": None, "z": '{"deep":[1,null]}'},
    }  # fmt: skip
    assert types(job) == {
        "id": "int64", "x": "double", "y": "string", "z": "string", "_cdc_epoch": "int64", "_cdc_sequence": "string",
    }  # fmt: skip


@pytest.mark.sweep("iceberg")
def test_schemas_that_change_within_a_batch_and_between_batches_are_followed(job: Job) -> None:
    """A column is added, widened, dropped; all versions of a batch are one commit."""
    job.land(
        typed({"id": "int32", "n": "int16"}, {"id": 1, "n": 1}, 0),
        typed({"id": "int32", "n": "int64", "note": "string"}, {"id": 2, "n": 2**40, "note": "ä"}, 1),
    )
    lines = job.land(
        typed({"id": "int64", "note": "string", "at": "boolean"}, {"id": 2**40, "note": "", "at": False}, 2)
    )
    assert lines[1].dead == 0
    assert job.rows("a") == {
        1: {"id": 1, "n": 1, "note": None, "at": None}, 2: {"id": 2, "n": 2**40, "note": "ä", "at": None},
        2**40: {"id": 2**40, "n": None, "note": "", "at": False},
    }  # fmt: skip


@pytest.mark.sweep("iceberg")
def test_what_a_table_cannot_follow_is_a_dead_letter_and_the_rest_lands(job: Job) -> None:
    decimal = {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "4"},
    }
    wider = {**decimal, "parameters": {"scale": "3", "connect.decimal.precision": "9"}}
    number = base64.b64encode((1234).to_bytes(2, "big")).decode()
    job.land(typed({"id": "int32", "n": "int32", "d": decimal}, {"id": 1, "n": 1, "d": number}, 0))
    job.land(
        typed({"id": "int32", "n": "string", "d": decimal}, {"id": 2, "n": "now a text", "d": number}, 1),
        typed({"id": "int32", "n": "int32", "d": wider}, {"id": 3, "n": 3, "d": number}, 2),
        typed({"id": "int32", "n": "int32", "d": decimal}, {"id": 4, "n": 4, "d": number}, 3),
        typed({"id": "int32", "N": "int32"}, {"id": 5, "N": 5}, 4),
    )
    assert set(job.rows("a")) == {1, 4}
    found = reasons(job)
    assert "'n'" in found[1]
    assert "'d'" in found[2]
    assert "name_mapping" in found[4]
    assert job.verdict().faults == ()


def test_a_column_that_the_format_cannot_have_does_not_hold_up_the_table(tmp_path: Path) -> None:
    """Delta refuses such names without column mapping; the rows that have a value there are dead letters."""
    job = Job(tmp_path, [{"table": "a"}])
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    job.land(
        change("c", "a", 2, {"id": 2, "a b;c": 1}, lsn=2, offset=1),
        change("c", "a", 3, {"id": 3, "a b;c": None, "ok": 1}, lsn=3, offset=2),
    )
    assert job.rows("a") == {1: {"id": 1, "ok": None}, 3: {"id": 3, "ok": 1}}
    assert "a b;c" in reasons(job)[1]


def test_values_of_every_type_come_back_equal(job: Job) -> None:
    fields: dict[str, Any] = {
        "id": "int64", "d": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "3", "connect.decimal.precision": "20"}},
        "v": {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, "t": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        "z": {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "day": {"type": "int32", "name": "io.debezium.time.Date"},
        "clock": {"type": "int64", "name": "io.debezium.time.MicroTime"}, "b": "bytes", "f": "double", "u": {"type": "string", "name": "io.debezium.data.Uuid"},
        "l": {"type": "array", "items": {"type": "string"}}, "s": {"type": "struct", "fields": [{"field": "x", "type": "double"}]},
    }  # fmt: skip
    row = {
        "id": 1, "d": base64.b64encode((-(10**19)).to_bytes(9, "big", signed=True)).decode(), "v": {"scale": 2, "value": "Bw=="},
        "t": -1, "z": "2024-06-30T23:59:59.999999+02:00", "day": -719162, "clock": 1, "b": "AP8=", "f": 1e308, "u": "é", "l": ["", None], "s": {"x": None},
    }  # fmt: skip
    empty = {"id": 2} | dict.fromkeys(list(row)[1:])
    job.land(typed(fields, row, 0), typed(fields, empty, 1))
    assert not job.letters()
    found = job.rows("a")
    clock: Any = "00:00:00.000001" if job.form == "delta" else datetime(1, 1, 1, 0, 0, 0, 1).time()  # noqa: DTZ001
    assert found[1] == {
        "id": 1, "d": Decimal("-10000000000000000.000"), "v": "0.07", "t": datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
        "z": datetime(2024, 6, 30, 21, 59, 59, 999999, UTC), "day": date(1, 1, 1), "clock": clock, "b": b"\x00\xff", "f": 1e308, "u": "é",
        "l": ["", None], "s": {"x": None},
    }  # fmt: skip
    assert found[2] == empty


@pytest.mark.sweep("iceberg")
def test_configured_columns_are_read_renamed_and_left_out(job: Job) -> None:
    job.settings = {"decimal_handling_mode": "string"}
    job.tables = [
        {
            "table": "customers", "source": "public.a", "primary_key": ["key"], "name_mapping": {"id": "key", "when": "seen"},
            "leave_out": ["secret"], "timestamp_fields": {"when": "epoch_ms", "day": "%d.%m.%Y", "iso": "iso8601"},
            "decimal_fields": {"price": [12, 2]}, "partition_by": ["country"],
        }
    ]  # fmt: skip
    row = {
        "id": 1,
        "when": 1500,
        "day": "02.01.2024",
        "iso": "2024-01-01T00:00:00",
        "price": "10.50",
        "secret": "s",
        "country": None,
    }
    job.land(
        change("c", "a", 1, row, lsn=1, offset=0),
        change(
            "c",
            "a",
            2,
            {**row, "id": 2, "price": 0.1, "iso": "2024-01-01T01:00:00+01:00", "country": "é/ü"},
            lsn=2,
            offset=1,
        ),
        change("c", "a", 3, {**row, "id": 3, "price": "10.501"}, lsn=3, offset=2),
        change("c", "a", 4, {**row, "id": 4, "when": "soon"}, lsn=4, offset=3),
        change("c", "a", 5, {**row, "id": 5, "price": None, "when": None}, lsn=5, offset=4),
        change("d", "a", 1, None, lsn=6, offset=5),
    )
    found = job.rows("customers", "key")
    assert set(reasons(job)) == {2, 3}, reasons(job)
    assert found[2] == {
        "key": 2, "seen": datetime(1970, 1, 1, 0, 0, 1, 500000, UTC), "day": datetime(2024, 1, 2, tzinfo=UTC),
        "iso": datetime(2024, 1, 1, tzinfo=UTC), "price": Decimal("0.10"), "country": "é/ü",
    }  # fmt: skip
    assert set(found) == {2, 5}
    assert set(reasons(job)) == {2, 3}


@pytest.mark.sweep("iceberg")
def test_numbers_of_json_keep_every_digit_or_do_not_land(job: Job) -> None:
    """JSON does not say whether 0.1 is binary or decimal; what has more digits than a binary number is never rounded."""
    job.tables = [{"table": "a", "decimal_fields": {"d": [38, 20]}}]
    exact = "12345678901234567.12345678901234567890"

    def raw(key: int, values: str, offset: int) -> KafkaRecord:
        body = '{"op":"c","source":{"connector":"postgresql","schema":"public","table":"a","lsn":%d},"after":{"id":%d,%s}}'
        return record((body % (offset, key, values)).encode(), {"id": key}, offset=offset)

    job.land(
        raw(1, f'"d":{exact},"x":5.684341886080802E-14', 0), raw(2, f'"d":0.1,"x":{exact}', 1), raw(3, '"d":1e30,"x":1', 2),
        raw(4, '"d":null,"x":1e400', 3), raw(5, '"d":"NaN","x":NaN', 4), raw(6, f'"d":0,"x":-0.0,"n":{{"deep":[0.1,{exact}]}}', 5),
        raw(7, '"d":-0.00000000000000000001,"x":-0.0,"n":{"deep":[0.1,1E2]}', 6),
    )  # fmt: skip
    found = job.rows("a")
    assert set(found) == {1, 7}
    assert found[1]["d"] == Decimal(exact)
    assert found[1]["x"] == 5.684341886080802e-14
    assert found[7] == {"id": 7, "d": Decimal("-1E-20"), "x": -0.0, "n": '{"deep":[0.1,100.0]}'}
    assert str(found[7]["x"]) == "-0.0"
    assert set(reasons(job)) == {1, 2, 3, 4, 5}


@pytest.mark.sweep("iceberg")
def test_a_key_that_engines_do_not_compare_alike_is_a_dead_letter(job: Job) -> None:
    for offset, key in enumerate([1.5, float("nan"), [1], {"a": 1}, "", "é", None]):
        job.land(change("c", "a", key, {"id": key}, lsn=offset, offset=offset))
    assert set(reasons(job)) == {0, 1, 2, 3, 6}
    assert set(job.rows("a")) == {"", "é"}
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_truncate_of_a_table_without_a_known_key_is_no_silent_success(job: Job) -> None:
    job.land(change("t", "a", None, None, lsn=1, offset=0))
    assert "primary_key" in reasons(job)[0]
    job.land(change("c", "a", 1, {"id": 1}, lsn=2, offset=1))
    assert set(job.rows("a")) == {1}


@pytest.mark.sweep("iceberg")
def test_times_of_a_source_that_are_none_order_nothing(job: Job) -> None:
    """A clock is not a position; poison in it must not stop the table."""
    for offset, at in enumerate([2**70, -1, "soon", None, 1.5, True]):
        given = event("c", {"id": offset}, source=postgres(offset, "a", ts_ms=at), ts_ms=None)
        job.land(record(given, {"id": offset}, offset=offset))
    assert set(job.rows("a")) == set(range(6))
    assert not job.letters()


# --- keys and order -----------------------------------------------------------------------------------
@pytest.mark.sweep("iceberg")
def test_a_changed_key_takes_its_old_row_along(job: Job) -> None:
    """I5: by the two events of Debezium, and by the row before, as AWS DMS and some connectors tell it."""
    job.land(
        change("c", "a", 1, {"id": 1, "v": "x"}, lsn=1, offset=0),
        change("c", "a", 5, {"id": 5, "v": "y"}, lsn=1, offset=1),
    )
    lines = job.land(
        change("d", "a", 1, None, lsn=2, offset=2), record(None, {"id": 1}, offset=3), change("c", "a", 2, {"id": 2, "v": "x"}, lsn=2, offset=4),
        change("u", "a", 6, {"id": 6, "v": "y"}, lsn=3, offset=5, before={"id": 5, "v": "y"}),
    )  # fmt: skip
    assert set(job.rows("a")) == {2, 6}
    assert [(line.records, line.ignored, line.split, line.changes) for line in lines] == [
        (1, 1, 0, 0),
        (3, 0, 1, 4),
    ]


@pytest.mark.sweep("iceberg")
def test_late_events_revive_nothing_and_epochs_begin_again(job: Job) -> None:
    """I3, I8; and a source that was restored counts from the start again."""
    job.land(
        change("c", "a", 1, {"id": 1, "v": "old"}, lsn=10, offset=0),
        change("d", "a", 1, None, lsn=20, offset=1),
    )
    job.land(
        change("u", "a", 1, {"id": 1, "v": "late"}, lsn=15, offset=2),
        change("c", "a", 2, {"id": 2, "v": "new"}, lsn=30, offset=3),
    )
    assert set(job.rows("a")) == {2}
    later = postgres(5, "a", ts_ms=1714000000001)
    restored = record(event("c", {"id": 1, "v": "restored"}, source=later), {"id": 1}, offset=4)
    with pytest.raises(sw.InvalidInputError, match="epoch"):
        job.land(restored)
    job.tables = [{"table": "a", "epoch": 1}]
    job.land(restored)
    assert job.rows("a")[1]["v"] == "restored"
    late = record(
        event("u", {"id": 1, "v": "late"}, source=postgres(4, "a", ts_ms=1714000000002)), {"id": 1}, offset=5
    )
    with pytest.raises(sw.InvalidInputError, match="epoch"):
        job.land(late)
    job.tables = [{"table": "a", "epoch": 1, "all_late": "count"}]
    (line,) = [line for line in job.land(late) if line.table]
    assert (line.late, line.applied) == (1, 0)
    assert job.rows("a")[1]["v"] == "restored"


@pytest.mark.sweep("iceberg")
def test_what_a_restored_source_has_no_longer_goes_by_its_epoch(job: Job) -> None:
    """No event tells of rows that a restore or a failover took: those of the epoch before are left when all others came again."""
    job.land(*(change("c", "a", key, {"id": key, "v": "old"}, lsn=10 + key, offset=key) for key in (1, 2)))
    job.tables = [{"table": "a", "epoch": 1}]
    job.land(change("r", "a", 1, {"id": 1, "v": "old"}, lsn=3, offset=3))
    assert set(job.rows("a")) == {1, 2}
    table = (
        sw.open(job.folder / "db" / "a") if job.form == "delta" else sw.open("db.a", catalog=job.catalog())
    )
    assert table.delete("_cdc_epoch < 1").removed_rows == 1
    assert set(job.rows("a")) == {1}
    job.land(change("c", "a", 2, {"id": 2, "v": "new"}, lsn=4, offset=4))
    assert (job.rows("a")[2]["v"], job.verdict().faults) == ("new", ())


@pytest.mark.sweep("iceberg", "delta-d")
@pytest.mark.parametrize("op", ["u", "d"])
def test_a_source_that_was_set_back_is_refused_though_new_keys_come_with_it(job: Job, op: str) -> None:
    """A replica of MySQL that counts its own binlog files takes over: the changes of old rows would be late in silence."""

    def told(op: str, key: int, v: str, file: int, offset: int) -> KafkaRecord:
        source = {
            "connector": "mysql", "db": "s", "table": "a", "file": f"bin.{file:06d}", "pos": offset, "row": 0,
            "ts_ms": {100: 1000, 3: 2000, 2: 3000}[file],
        }  # fmt: skip
        row = {"id": key, "v": v}
        return record(event(op, None if op == "d" else row, row, source=source), {"id": key}, offset=offset)

    job.tables = [{"table": "a"}]
    job.land(told("c", 1, "old", 100, 0))
    before = [told("u", 9, "before", 100, 1)] if op == "u" else []
    after = [told("c", 3, "new", 3, 2), told(op, 1, "new", 3, 3)]
    with pytest.raises(sw.InvalidInputError, match="raise epoch"):
        job.land(*before, *after)
    job.tables = [{"table": "a", "epoch": 1}]
    job.land(*before, *after)
    assert job.rows("a").get(1, {}).get("v") == (None if op == "d" else "new")
    # A snapshot may read what the table has newer.
    job.land(told("r", 1, "read", 2, 4), told("c", 5, "new", 3, 5))
    assert job.rows("a").keys() >= {3, 5}
    assert not job.verdict().faults


@pytest.mark.sweep("iceberg")
def test_what_a_connector_sends_again_is_late_and_no_error(job: Job) -> None:
    """It has old positions at new offsets, and is no newer by the source's clock, as a source that was set back is."""
    events = [
        event("c", {"id": 1, "v": f"v{n}"}, source=postgres(n, "a", ts_ms=1714000000000 + n))
        for n in range(3)
    ]
    job.land(*(record(one, {"id": 1}, offset=offset) for offset, one in enumerate(events)))
    for offset, one in enumerate(events[:2], 3):
        (line,) = [line for line in job.land(record(one, {"id": 1}, offset=offset)) if line.table]
        assert (line.late, line.applied) == (1, 0)
    job.land(record(events[2], {"id": 1}, offset=5))
    assert job.rows("a")[1]["v"] == "v2"
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_truncate_empties_the_table_once(job: Job) -> None:
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0))
    job.land(change("t", "a", None, None, lsn=2, offset=1), change("c", "a", 2, {"id": 2}, lsn=3, offset=2))
    assert set(job.rows("a")) == {2}


@pytest.mark.sweep("iceberg")
def test_a_value_that_the_source_left_out_is_carried_on(job: Job) -> None:
    """I12: from the event before it, or from the table; never NULL."""
    job.land(
        change("c", "a", 1, {"id": 1, "big": "B" * 100, "n": 1}, lsn=1, offset=0),
        change("u", "a", 1, {"id": 1, "big": TEXT, "n": 2}, lsn=2, offset=1),
    )
    job.land(
        change("u", "a", 1, {"id": 1, "big": TEXT, "n": 3}, lsn=3, offset=2),
        change("c", "a", 2, {"id": 2, "big": None, "n": 0}, lsn=4, offset=3),
    )
    job.land(change("u", "a", 2, {"id": 2, "big": TEXT, "n": 1}, lsn=5, offset=4))
    assert job.rows("a") == {1: {"id": 1, "big": "B" * 100, "n": 3}, 2: {"id": 2, "big": None, "n": 1}}
    assert not job.letters()


@pytest.mark.sweep("iceberg")
def test_a_value_that_is_nowhere_makes_a_dead_letter_and_not_null(job: Job) -> None:
    """I12: the job began behind the insert; what the batch itself has lands."""
    job.schemas = False  # the table would get the column from one
    job.land(change("c", "a", 9, {"id": 9, "big": "", "n": 1}, lsn=1, offset=0))
    lines = job.land(
        change("u", "a", 1, {"id": 1, "big": TEXT, "n": 4}, lsn=4, offset=1), change("c", "a", 2, {"id": 2, "big": "x", "n": 1}, lsn=5, offset=2),
        change("u", "a", 2, {"id": 2, "big": TEXT, "n": 2}, lsn=6, offset=3), change("u", "a", 3, {"id": 3, "new": TEXT}, lsn=7, offset=4),
    )  # fmt: skip
    assert job.rows("a") == {9: {"id": 9, "big": "", "n": 1}, 2: {"id": 2, "big": "x", "n": 2}}
    found = reasons(job)
    assert set(found) == {1, 4}
    assert "REPLICA IDENTITY FULL" in found[1]
    assert [(line.records, line.dead, line.changes) for line in lines if line.table] == [(4, 2, 2)]
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_table_may_be_ordered_by_columns_of_its_rows(job: Job) -> None:
    job.tables = [{"table": "a", "sequence": "precombine", "precombine_key": ["at"]}]
    job.land(
        change("c", "a", 1, {"id": 1, "at": 5, "v": "new"}, lsn=1, offset=0), change("u", "a", 1, {"id": 1, "at": 4, "v": "old"}, lsn=2, offset=1),
        change("u", "a", 2, {"id": 2, "at": None}, lsn=3, offset=2), change("d", "a", 1, None, lsn=4, offset=3), change("t", "a", None, None, lsn=5, offset=4),
        change("c", "a", 3, {"id": 3, "at": 1}, lsn=6, offset=5), change("d", "a", 3, None, lsn=7, offset=6, before={"id": 3, "at": 2}),
        change("c", "a", 4, {"id": 4, "at": 5, "v": "new"}, lsn=8, offset=7), change("u", "a", 4, {"id": 4, "at": 4, "v": "old"}, lsn=9, offset=8),
    )  # fmt: skip
    # The delete of row 1 tells no order, and ranks by its position.
    assert job.rows("a") == {4: {"id": 4, "at": 5, "v": "new"}}
    assert set(reasons(job)) == {2, 4}


@pytest.mark.sweep("iceberg")
def test_the_key_of_a_table_stays_what_it_was(job: Job) -> None:
    job.land(change("c", "a", 1, {"id": 1, "other": 1}, lsn=1, offset=0))
    job.tables = [{"table": "a", "primary_key": ["other"]}]
    with pytest.raises(sw.InvalidInputError, match="created with the key"):
        job.land(change("c", "a", 2, {"id": 2, "other": 2}, lsn=2, offset=1))


@pytest.mark.sweep("iceberg")
def test_unknown_tables_are_created_where_that_is_asked_for(job: Job) -> None:
    job.tables = []
    job.settings = {
        "unknown_tables": "create",
        "unknown_database": "new",
        "defaults": {"format": job.form, "epoch": 3},
    }
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0), change("c", "b", 1, {"id": 1}, lsn=2, offset=1))
    assert job.read("public_a", "new").select(["id", "_cdc_epoch"]).to_pylist() == [
        {"id": 1, "_cdc_epoch": 3}
    ]
    assert job.read("public_b", "new").num_rows == 1
    assert not job.letters()


@pytest.mark.sweep("iceberg")
def test_a_full_load_of_dms_never_beats_a_change(job: Job) -> None:
    """I9: a load that comes again, or late, behind the changes that came with their position."""
    job.settings = {"envelope": "dms-json"}
    job.tables = [{"table": "customers", "primary_key": ["id"]}]
    at = "00000002/7C00717{}.3.00000002/7C007178".format
    job.land(
        record(dms("insert", {"id": 1, "v": "streamed"}, position=at(1)), offset=0), record(dms("delete", {"id": 2, "v": "x"}, position=at(2)), offset=1),
        record(dms("load", {"id": 1, "v": "loaded"}), offset=2), record(dms("load", {"id": 2, "v": "loaded"}), offset=3), record(dms("load", {"id": 3, "v": "loaded"}), offset=4),
        record(dms("update", {"id": 4, "v": "moved"}, {"id": 3}, position=at(3)), offset=5),
    )  # fmt: skip
    assert job.rows("customers") == {1: {"id": 1, "v": "streamed"}, 4: {"id": 4, "v": "moved"}}
    assert job.verdict().faults == ()


def test_iceberg_tables_are_partitioned_by_transforms(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    table = {
        "table": "a",
        "timestamp_fields": {"at": "iso8601"},
        "partition_by": ["day(at)", "bucket(4, id)"],
        "format_version": 2,
    }
    job = Job(tmp_path, [table], "iceberg")
    job.land(
        *(
            change("c", "a", n, {"id": n, "at": f"2024-01-0{n}T00:00:00"}, lsn=n, offset=n)
            for n in range(1, 4)
        )
    )
    job.land(
        change("d", "a", 2, None, lsn=5, offset=5),
        change("u", "a", 3, {"id": 3, "at": None}, lsn=6, offset=6),
    )
    assert {key: row["at"] and row["at"].day for key, row in job.rows("a").items()} == {1: 1, 3: None}


def test_an_iceberg_table_may_be_merged_on_read(tmp_path: Path) -> None:
    """Its data files stay as they are, and readers see the same rows."""
    (tmp_path / "lake").mkdir()
    job = Job(tmp_path, [{"table": "a", "write_mode": "merge-on-read"}], "iceberg")
    job.land(*(change("c", "a", n, {"id": n, "v": "old"}, lsn=n, offset=n) for n in range(5)))
    job.land(
        change("u", "a", 1, {"id": 1, "v": "new"}, lsn=10, offset=10),
        change("d", "a", 2, None, lsn=11, offset=11),
    )
    assert {key: row["v"] for key, row in job.rows("a").items()} == {0: "old", 1: "new", 3: "old", 4: "old"}
    found = load_catalog(**job.catalog()).load_table("db.a")
    assert found.inspect.delete_files().num_rows == 1
    assert job.verdict().faults == ()


def test_an_iceberg_table_may_be_of_version_3(tmp_path: Path) -> None:
    """Its tasks give a row that changes the id that it had, and mark old rows in deletion vectors."""
    (tmp_path / "lake").mkdir()
    asked = {"table": "a", "write_mode": "merge-on-read", "format_version": 3}
    job = Job(tmp_path, [asked], "iceberg")
    job.land(*(change("c", "a", n, {"id": n, "v": "old"}, lsn=n, offset=n) for n in range(5)))

    def known() -> dict[int, tuple[int | None, int]]:
        return lineage(sw.open("db.a", catalog=job.catalog()))

    before, sequence = known(), 2
    job.land(
        change("u", "a", 1, {"id": 1, "v": "new"}, lsn=10, offset=10),
        change("d", "a", 2, None, lsn=11, offset=11),
    )
    assert {key: row["v"] for key, row in job.rows("a").items()} == {0: "old", 1: "new", 3: "old", 4: "old"}
    assert known() == {n: of for n, of in before.items() if n not in {1, 2}} | {1: (before[1][0], sequence)}
    table = sw.open("db.a", catalog=job.catalog())
    assert [entry.data_file.file_format for _, entry in entries(table)] == ["PUFFIN", "PARQUET", "PARQUET"]
    assert job.verdict().faults == ()


def test_a_table_that_another_engine_made_keeps_its_types(tmp_path: Path) -> None:
    schema = pa.schema(
        {"id": pa.int32(), "small": pa.float32(), "d": pa.decimal128(5, 1), "day": pa.date32()}
    )
    (tmp_path / "db").mkdir()
    sw.create(str(tmp_path / "db" / "a"), schema).append(
        [{"id": 9, "small": 0.5, "d": Decimal("1.0"), "day": date(2024, 1, 1)}]
    )
    job = Job(tmp_path, [{"table": "a", "decimal_fields": {"d": [5, 1]}}])
    job.land(
        change("c", "a", 1, {"id": 1, "small": 0.25, "d": "2.5", "day": None}, lsn=1, offset=0),
        change("c", "a", 2, {"id": 2, "small": 0.1, "d": None, "day": None}, lsn=2, offset=1),
        change("c", "a", 2**31, {"id": 2**31, "small": None, "d": None, "day": None}, lsn=3, offset=2),
        change("u", "a", 9, {"id": 9, "small": float("nan"), "d": None, "day": None}, lsn=4, offset=3),
    )
    found = job.rows("a")
    assert set(found) == {1, 9}
    assert found[1] == {"id": 1, "small": 0.25, "d": Decimal("2.5"), "day": None}
    assert str(found[9]["small"]) == "nan"
    assert set(reasons(job)) == {1, 2}
