"""Records of Maxwell in JSON, as its documentation shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safewrite.cdc.config.job import load
from safewrite.cdc.envelopes.maxwell.events import of_maxwell
from safewrite.cdc.records.change import KafkaRecord, Op, SourceChange
from tests.cdc.events import decoded, record
from tests.cdc.jobs import Job

SETTINGS: dict[str, Any] = {"envelope": "maxwell-json"}
HASH_KEY = b'{"database":"test","table":"e","pk.id":1,"pk.c":"2016-10-21 05:33:37.523000"}'


def row(m: float, c: str, comment: str = "I am a creature of light.") -> dict[str, Any]:
    return {"id": 1, "m": m, "c": c, "comment": comment}


FIRST, THEN = row(4.2341, "2016-10-21 05:33:37.523000"), row(5.444, "2016-10-21 05:33:54.631000")


def maxwell(kind: str, data: Any, at: int, **more: Any) -> KafkaRecord:
    """A record as ``output_binlog_position`` makes it; ``offset`` is that of the binlog."""
    content = {
        "database": "test", "table": "e", "type": kind, "ts": 1477053217, "xid": 23396, "commit": True,
        "position": f"master.000006:{800000 + at}", "server_id": 23042, "thread_id": 108,
        "primary_key": [1, "2016-10-21 05:33:37.523000"], "primary_key_columns": ["id", "c"], "data": data, **more,
    }  # fmt: skip
    return record({name: one for name, one in content.items() if one is not None}, HASH_KEY, offset=at)


def bootstrap(step: str, data: Any, at: int) -> KafkaRecord:
    """A record of a bootstrap, which has no position."""
    return maxwell(f"bootstrap-{step}", data, at, position=None, xid=None, commit=None)


def changes(*records: KafkaRecord) -> list[SourceChange]:
    found = decoded(*records, form="maxwell-json")
    assert not found.dead
    return found.rows


def test_rows_of_the_documentation_are_changes() -> None:
    old = {"m": 4.2341, "c": "2016-10-21 05:33:37.523000"}
    found = changes(
        maxwell("insert", FIRST, 911), maxwell("update", THEN, 912, old=old), maxwell("delete", THEN, 913)
    )
    assert [one.op for one in found] == [Op.UPSERT, Op.UPSERT, Op.DELETE]
    assert [str(one.source) for one in found] == ["test.e"] * 3
    assert [one.before and one.before["c"] for one in found] == [None, old["c"], THEN["c"]]
    assert [one.after for one in found][2] is None
    assert found[0].source_time_ms == 1477053217000
    assert sorted(one.position for one in found) == [one.position for one in found]


def test_statements_and_bootstraps_are_told_apart_from_rows() -> None:
    create = {
        "type": "table-create",
        "database": "test",
        "table": "e",
        "def": {"columns": []},
        "sql": "create",
    }
    found = decoded(
        record(create), bootstrap("start", {}, 1), bootstrap("insert", FIRST, 2), bootstrap("complete", {}, 3),
        record({**create, "type": "table-drop"}, offset=4), record({"type": "heartbeat"}, offset=5), record(None, offset=6),
        record([1], offset=7), form="maxwell-json",
    )  # fmt: skip
    assert [one.record.offset for one in found.ignored] == [0, 1, 3, 6]
    assert [(one.is_read, one.record.offset) for one in found.rows] == [(True, 2)]
    assert [letter.record.offset for letter in found.dead] == [4, 5, 7]
    assert "decide what becomes of its rows" in found.dead[0].reason


def test_positions_rise_within_a_transaction_and_over_files() -> None:
    """The last record of a transaction has ``commit`` in the place of ``xoffset``."""
    told: list[dict[str, Any]] = [
        {"position": "mysql-bin.000009:999", "xoffset": 0},
        {"position": "mysql-bin.000009:999", "xoffset": 12},
        {"position": "mysql-bin.000009:999", "commit": True},
        {"position": "mysql-bin.000009:1000", "xoffset": 0},
        {"position": "mysql-bin.000010:4"},
    ]
    assert [of_maxwell(one) for one in told] == sorted(of_maxwell(one) for one in told)


@pytest.mark.parametrize("position", [None, "", "master", "master.x:1", "0-1-2"])
def test_a_record_without_a_position_says_what_to_set(position: Any) -> None:
    (change,) = changes(maxwell("insert", FIRST, 1, position=position))
    assert "output_binlog_position" in str(change.unordered)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_changes_land_and_a_bootstrap_never_beats_one(tmp_path: Path, form: str) -> None:
    job = Job(tmp_path, [{"table": "e", "primary_key": ["id"]}], form, SETTINGS)
    other = {**FIRST, "id": 2}
    job.land(maxwell("insert", FIRST, 10), maxwell("update", THEN, 11, old={"m": 4.2341, "c": FIRST["c"]}))
    records = [
        bootstrap("start", {}, 20), bootstrap("insert", FIRST, 21), bootstrap("insert", other, 22),
        maxwell("update", {**other, "id": 3}, 23, old={"id": 2}), bootstrap("complete", {}, 24),
    ]  # fmt: skip
    job.land(*records, number=1)
    assert job.rows("e") == {1: THEN, 3: {**other, "id": 3}}
    job.land(maxwell("delete", THEN, 30), number=2)
    assert set(job.rows("e")) == {3}
    assert not job.verdict().faults
    assert not job.letters()


def test_a_decimal_has_the_digits_that_were_written(tmp_path: Path) -> None:
    table = {"table": "e", "primary_key": ["id"], "decimal_fields": {"m": [20, 4]}}
    job = Job(tmp_path, [table], "delta", SETTINGS)
    job.land(maxwell("insert", FIRST, 1))
    assert job.read("e").schema.field("m").type == pa.decimal128(20, 4)
    assert str(job.rows("e")[1]["m"]) == "4.2341"


def test_tables_need_a_primary_key() -> None:
    given = {
        "job": "j", "kafka": {"servers": "s:1", "topics": ["t"]}, "checkpoint": "c", "warehouse": "w", "envelope": "maxwell-json",
        "tables": [{"database": "d", "table": "t"}],
    }  # fmt: skip
    with pytest.raises(Exception, match="tables need a primary_key for envelope maxwell-json"):
        load(given)
