"""Filters and computed columns in SQL: rows that leave the filter go, and a batch that lands twice makes the same rows."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.config.job import load
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.landing.job_plan import plan
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.rows.table_changes import TableChanges
from safewrite.cdc.sql.computing import compute
from safewrite.cdc.table import table_batch
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, Source, change, cut
from tests.cdc.on_executors import Executors

GONE = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("form", "schemas"),
    [
        ("delta", True),
        *(
            pytest.param(form, schemas, marks=pytest.mark.long)
            for form, schemas in (("delta", False), ("iceberg", True), ("iceberg", False))
        ),
    ],
)
def test_rows_are_as_the_source_has_them_under_the_filter(tmp_path: Path, form: str, schemas: bool) -> None:
    """A random source, whose rows change their keys and come again; drivers die after a commit, batches come twice."""
    table = {
        "table": "a",
        "filter": "n % 3 <> 0 or n is null",
        "computed": {"shown": "upper(name) || '-' || n"},
    }
    job = Job(tmp_path, [table], form, schemas=schemas)
    source = Source(7, tables=("a",))
    for number, part in enumerate(
        cut(source.run(64 if form == "delta" else 24), 32 if form == "delta" else 12)
    ):
        if number % 2:
            job.land_and_die(*part, number=number)
        job.land(*part, number=number)
        job.land(*part, number=number)
    expected = {
        key: {
            **row,
            "shown": None if None in (row["name"], row["n"]) else f"{row['name'].upper()}-{row['n']}",
        }
        for key, row in source.rows["a"].items()
        if row["n"] is None or row["n"] % 3
    }
    assert job.rows("a") == expected
    assert 0 < len(expected) < len(source.rows["a"])
    assert not job.letters()
    assert job.verdict().faults == ()


@pytest.fixture(params=[True, False], ids=["by columns", "one by one"])
def schemas(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether events are read by columns, or one by one."""
    if not request.param:
        monkeypatch.setattr(TableChanges, "_as_columns", lambda *_: None)
    return True


def upsert(op: str, key: int, at: int, **values: Any) -> KafkaRecord:
    return change(op, "a", key, {"id": key, **values}, lsn=at + 1, offset=at)


def test_a_value_that_the_source_left_out_is_taken_from_the_row_before(tmp_path: Path) -> None:
    """In the batch or in the table; where nobody has it, the record is a dead letter, unless a later change makes it no matter."""
    job = Job(
        tmp_path, [{"table": "a", "filter": "body <> 'test'", "computed": {"size": "length(body) + n"}}]
    )
    job.land(
        upsert("c", 1, 0, body="four", n=1),
        upsert("c", 2, 1, body="test", n=1),
        upsert("c", 3, 2, body="x", n=1),
    )
    assert job.rows("a") == {
        1: {"id": 1, "body": "four", "n": 1, "size": 5},
        3: {"id": 3, "body": "x", "n": 1, "size": 2},
    }
    job.land(
        upsert("u", 1, 3, body=GONE, n=5),
        upsert("u", 2, 4, body=GONE, n=5),  # the table has no row of it
        upsert("u", 3, 5, body="test", n=2),
        upsert("u", 3, 6, body=GONE, n=3),  # the batch has
        upsert("u", 4, 7, body=GONE, n=3),
        upsert("u", 4, 8, body="y", n=4),
    )
    assert job.rows("a") == {
        1: {"id": 1, "body": "four", "n": 5, "size": 9},
        4: {"id": 4, "body": "y", "n": 4, "size": 5},
    }
    (letter,) = job.letters()
    assert (letter["offset"], "left out body" in letter["reason"]) == (4, True)
    job.land(upsert("u", 2, 9, body="back", n=1), upsert("u", 1, 10, body="test", n=1))
    assert sorted(job.rows("a")) == [2, 4]
    again = [
        upsert("u", 1, 11, body=GONE, n=5),
        upsert("u", 4, 12, body=GONE, n=3),
    ]  # older than what the table has
    job.tables[0]["all_late"] = "count"
    job.land(*(record_again(one, lsn) for one, lsn in zip(again, (3, 7), strict=True)))
    assert sorted(job.rows("a")) == [2, 4]
    assert job.verdict().faults == ()


def record_again(one: KafkaRecord, lsn: int) -> KafkaRecord:
    key = json.loads(one.key or b"")["id"]
    return change("u", "a", key, json.loads(one.value or b"")["after"], lsn=lsn + 1, offset=one.offset)


@pytest.mark.long
def test_a_row_that_changes_while_it_is_computed_stops_the_job_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead letter is replayed after the job has read the row before, and in front of its commit."""
    job = Job(tmp_path, [{"table": "a", "computed": {"size": "length(body) + m::int"}}])
    job.land(upsert("c", 1, 0, body="four", m="1"))
    job.land(upsert("u", 1, 1, body="seventy", m="x"))
    job.tables[0]["computed"] = {"size": "length(body)"}

    def replayed_first(*given: Any) -> int:
        found = compute(*given)
        monkeypatch.undo()
        assert DeadLetters(job.landing()).replay().landed == 1
        return found

    monkeypatch.setattr(table_batch, "compute", replayed_first)
    with pytest.raises(sw.ConflictError) as stopped:
        job.land(upsert("u", 1, 2, body=GONE, m="2"))
    assert stopped.value.kind is sw.Kind.POSITION_MOVED
    job.land(upsert("u", 1, 2, body=GONE, m="2"))
    assert job.rows("a") == {1: {"id": 1, "body": "seventy", "m": "2", "size": 7}}
    assert job.verdict().faults == ()


@pytest.mark.sweep("one by one")
def test_columns_that_order_changes_say_whether_a_row_has_left_the_filter(
    tmp_path: Path, schemas: bool
) -> None:
    """An older change that does not pass takes no newer row, and one that passes brings none back."""
    table = {
        "table": "a",
        "sequence": "precombine",
        "precombine_key": ["v"],
        "filter": "n > 0",
        "all_late": "count",
    }
    job = Job(tmp_path, [table], schemas=schemas)
    found = []
    for at, (v, n) in enumerate([(5, 1), (3, 0), (6, 0), (4, 1), (6, 1)]):
        job.landing().land(job.batch([upsert("u", 1, at, v=v, n=n)], at), Executors().work)
        found.append([row["v"] for row in job.rows("a").values()])
    assert found == [[5], [5], [], [], [6]]
    assert job.verdict().faults == ()


@pytest.mark.long
def test_a_row_that_comes_back_lacks_what_the_filter_kept_away(tmp_path: Path) -> None:
    """An update makes a row pass, and leaves out a value that no table has, for the row was not there."""
    job = Job(tmp_path, [{"table": "a", "filter": "n > 0"}])
    job.land(upsert("c", 1, 0, body="long", n=0), upsert("c", 2, 1, body="long", n=1))
    job.land(upsert("u", 1, 2, body=GONE, n=1), upsert("u", 2, 3, body=GONE, n=2))
    assert job.rows("a") == {2: {"id": 2, "body": "long", "n": 2}}
    assert [one["offset"] for one in job.letters()] == [2]
    job.land(upsert("c", 3, 4, body="long", n=0), upsert("u", 3, 5, body=GONE, n=1))
    assert job.rows("a")[3] == {"id": 3, "body": "long", "n": 1}
    assert job.verdict().faults == ()


def test_a_change_that_comes_again_gives_no_value_to_a_later_row_of_its_key(tmp_path: Path) -> None:
    """Its row was deleted, and another row takes the key and leaves its large value out."""
    job = Job(tmp_path, [{"table": "a", "computed": {"size": "length(body)"}, "all_late": "count"}])
    first = upsert("c", 5, 0, body="its own", n=1)
    job.land(first, change("d", "a", 5, lsn=2, offset=1), upsert("c", 4, 2, body="four", n=1))
    source, halves = postgres(9, "a"), []
    for at, (op, key, row, other) in enumerate(
        [("d", 4, {"id": 4}, "newkey"), ("c", 5, {"id": 5, "body": GONE, "n": 2}, "oldkey")], 4
    ):
        given = event(op, *((None, row) if op == "d" else (row, None)), source=source)
        headers = {f"__debezium.{other}": {"id": 9 - key}}
        halves.append(record(given, {"id": key}, offset=at, headers=headers))
    job.land(replace(first, offset=3), *halves)
    assert job.rows("a") == {5: {"id": 5, "body": "four", "n": 2, "size": 4}}
    assert not job.letters()


@pytest.mark.sweep("one by one")
@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_column_that_is_null_in_all_rows_of_a_batch_has_no_type_and_is_read(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    """Records without a schema: nothing tells its type, and it may be one that does not land."""
    made = {"digest": "sha256(mail) || ''", "day": "strptime(d, '%Y-%m-%d')::date"}
    table = {"table": "a", "leave_out": ["mail"], "filter": "mail <> 'test' OR d IS NULL", "computed": made}
    job = Job(tmp_path, [table], form, schemas=False)
    job.land(upsert("c", 1, 0, mail=None, d=None), upsert("c", 2, 1, mail=None, d=None))
    assert job.rows("a") == {1: {"id": 1}, 2: {"id": 2}}
    job.land(upsert("u", 1, 2, mail="m", d="2026-01-02"), upsert("u", 2, 3, mail="test", d="2026-01-02"))
    job.land(upsert("c", 3, 4, mail=None, d="2026-01-03"), upsert("c", 4, 5, mail=None, d=None))
    found = {key: (row["digest"], str(row["day"])) for key, row in job.rows("a").items()}
    assert found == {1: (sha256(b"m").hexdigest(), "2026-01-02"), 4: (None, "None")}
    assert not job.letters()


def test_a_new_column_gets_no_type_of_a_column_that_has_none(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "computed": {"x": "coalesce(n, 0)"}}], schemas=False)
    with pytest.raises(
        sw.InvalidInputError, match=r"reads n, which is NULL in all rows so far.*column_types"
    ):
        job.land(upsert("c", 1, 0, n=None))
    job.tables[0]["column_types"] = {"n": "float64"}
    job.land(upsert("c", 1, 0, n=None), upsert("c", 2, 1, n=0.5))
    assert {key: row["x"] for key, row in job.rows("a").items()} == {1: 0.0, 2: 0.5}


@pytest.mark.sweep("one by one")
def test_a_row_that_sql_cannot_compute_is_a_dead_letter(tmp_path: Path, schemas: bool) -> None:
    """It alone; and the rows behind it land."""
    table = {
        "table": "a",
        "filter": "n::int <> 3",
        "computed": {"twice": "m::int * 2", "day": "strptime(d, '%Y-%m-%d')::date"},
    }
    job = Job(tmp_path, [table], schemas=schemas)
    given = [("1", "1"), ("x", "1"), ("2", "y"), ("3", "y"), (None, "1"), ("4", None)]
    job.land(*(upsert("c", at, at, n=n, m=m, d="2026-01-02") for at, (n, m) in enumerate(given)))
    job.land(upsert("u", 0, 6, n="z", m="1", d="2026-01-02"), upsert("u", 5, 7, n="1", m="8", d="bad"))
    assert {key: (row["twice"], str(row["day"])) for key, row in job.rows("a").items()} == {
        0: (2, "2026-01-02"), 5: (None, "2026-01-02"),
    }  # fmt: skip
    reasons = {one["offset"]: one["reason"] for one in job.letters()}
    assert sorted(reasons) == [1, 2, 6, 7]
    assert "filter 'n::int <> 3': Conversion Error" in reasons[1]
    assert "computed twice" in reasons[2]
    assert "computed day" in reasons[7]
    assert job.verdict().faults == ()


def test_what_no_column_holds_is_a_dead_letter(tmp_path: Path, schemas: bool) -> None:
    """Times that no calendar has, or that are too fine, and whole numbers of 39 digits."""
    made = {"at": "v::timestamp", "day": "v::date", "big": "v::hugeint", "fine": "v::timestamp_ns"}
    table = {
        "table": "a",
        "computed": {name: f"case when kind = '{name}' then {sql} end" for name, sql in made.items()},
    }
    job = Job(tmp_path, [table], schemas=schemas)
    given = {
        "at": ["2026-01-02", "infinity", "290000-01-01"], "day": ["2026-01-02", "-infinity", "20000-01-01"],
        "big": ["9" * 38, "1" + "0" * 38, "-1" + "0" * 38], "fine": ["2026-01-02 00:00:00.123456", "2026-01-02 00:00:00.123456789"],
    }  # fmt: skip
    rows = [(kind, value) for kind, values in given.items() for value in values]
    job.land(*(upsert("c", at, at, kind=kind, v=value) for at, (kind, value) in enumerate(rows)))
    found = {row["kind"]: row[row["kind"]] for row in job.rows("a").values()}
    assert len(job.rows("a")) == 4
    assert found["big"] == 10**38 - 1
    assert str(found["fine"]) == "2026-01-02 00:00:00.123456"
    reasons = {rows[one["offset"]]: one["reason"] for one in job.letters()}
    assert sorted(reasons) == sorted((kind, value) for kind, values in given.items() for value in values[1:])
    assert "a time outside of the years 1 to 9999" in reasons["at", "infinity"]
    assert job.verdict().faults == ()


def test_records_that_are_rows_of_their_own_are_counted_as_ignored(tmp_path: Path, schemas: bool) -> None:
    """Deletes pass; a driver that died counts the same."""
    table = {"table": "a", "mode": "append", "metadata": {"op": "op", "offset": "offset"}, "filter": "n > 0"}
    job = Job(tmp_path, [table | {"computed": {"m": "n + 1"}}], schemas=schemas)
    records = [
        upsert("c", 1, 0, n=1), upsert("c", 2, 1, n=0), upsert("u", 1, 2, n=-1), upsert("c", 3, 3, n=2**40),
        change("d", "a", 2, lsn=5, offset=4),
    ]  # fmt: skip
    job.land_and_die(*records)
    (line,) = [line for line in job.land(*records) if line.table]
    assert (line.records, line.applied, line.ignored, line.dead) == (5, 3, 2, 0)
    rows = job.read("a").select(["id", "op", "n", "m", "offset"]).to_pylist()
    assert sorted(rows, key=lambda one: one["offset"]) == [
        {"id": 1, "op": "upsert", "n": 1, "m": 2, "offset": 0},
        {"id": 3, "op": "upsert", "n": 2**40, "m": 2**40 + 1, "offset": 3},
        {"id": 2, "op": "delete", "n": None, "m": None, "offset": 4},
    ]
    assert job.verdict().faults == ()


def test_a_version_ends_where_its_row_leaves_the_filter(tmp_path: Path, schemas: bool) -> None:
    job = Job(
        tmp_path,
        [{"table": "a", "mode": "history", "filter": "n > 0", "computed": {"m": "n * 10"}}],
        schemas=schemas,
    )
    job.land(*(upsert("u", 1, at, n=n) for at, n in enumerate([1, 2, 0, 0, 3])))
    rows = [one for one in job.read("a").to_pylist() if one["_cdc_sequence"] != one["_cdc_until_sequence"]]
    rows.sort(key=lambda one: one["_cdc_sequence"])
    assert [(one["n"], one["m"], one["_cdc_until_sequence"] is None) for one in rows] == [
        (1, 10, False), (2, 20, False), (3, 30, True),
    ]  # fmt: skip
    assert job.verdict().faults == ()


@pytest.mark.sweep("one by one")
@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_column_that_is_left_out_is_read_and_does_not_land(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    """And a computed column may divide the table; a job that goes on fits its type."""
    table = {
        "table": "a", "leave_out": ["mail"], "name_mapping": {"n": "Number"}, "partition_by": ["part"],        "filter": "mail NOT LIKE '%@test'", "computed": {"digest": "sha256(lower(mail))", "part": "Number // 10"},
        "column_types": {"mail": "string"},
    }  # fmt: skip
    job = Job(tmp_path, [table], form, schemas=schemas)
    job.land(upsert("c", 1, 0, mail="A@x", n=11), upsert("c", 2, 1, mail="b@test", n=12))
    job.land(
        upsert("u", 1, 2, mail=None, n=12),
        upsert("c", 3, 3, mail="a@X", n=2**33),
        change("d", "a", 9, lsn=5, offset=4),
    )
    digest = sha256(b"a@x").hexdigest()
    assert job.rows("a") == {3: {"id": 3, "Number": 2**33, "digest": digest, "part": 2**33 // 10}}
    assert not job.letters()


def test_a_delete_takes_computed_columns_along_where_deleted_rows_stay(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "deleted_column": "gone", "computed": {"m": "n + 1"}}], schemas=False)
    job.land(upsert("c", 1, 0, n=1), upsert("c", 2, 1, n=1))
    assert job.read("a").schema.names[:3] == ["id", "n", "m"]
    job.land(change("d", "a", 1, lsn=3, offset=2), upsert("u", 2, 3, n=4))
    assert job.rows("a") == {
        1: {"id": 1, "n": 1, "m": 2, "gone": True},
        2: {"id": 2, "n": 4, "m": 5, "gone": False},
    }


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"filter": "now() > t"}, "not sure to give the same value"),
        ({"computed": {"x": "current_date - d"}}, "not sure to give the same value"),
        ({"computed": {"x": "random()"}}, "not sure to give the same value"),
        ({"computed": {"x": "_cdc_place::varchar"}}, "not sure to give the same value"),
        ({"computed": {"x": "age(t)"}}, "another one every day"),
        ({"filter": "n > (SELECT max(n) FROM 'x.csv')"}, "a subquery"),
        ({"computed": {"x": "sum(n)"}}, "not a function of one row"),
        ({"computed": {"x": "row_number() OVER ()"}}, "a window function"),
        ({"filter": "n) FROM a WHERE (n"}, "more than one expression"),
        ({"filter": "  "}, "has not one value"),
        ({"computed": {"x": "n, m"}}, "has not one value"),
        ({"computed": {"x": "name.upper()"}}, r"behind a dot.*write upper\(name\) for name.upper"),
        ({"computed": {"x": "trim(a.b.replace('x', 'y'))"}}, r"write replace\(a.b, ...\)"),
        ({"filter": "main.length(name) > 1"}, r"write length\(...\)"),
        ({"filter": "n >"}, "DuckDB cannot read"),
        ({"filter": "n > 1; DROP TABLE a"}, "DuckDB cannot read"),
        ({"computed": {"x": "n", "y": "X + 1"}}, "reads x, which computed makes"),
        ({"computed": {"x": "n", "X": "m"}}, "differ by case alone"),
        ({"computed": {"_cdc_epoch": "n"}}, "columns that the job keeps"),
        ({"computed": {"id": "n"}, "primary_key": ["id"]}, "a key or an order"),
        ({"computed": {"c": "n"}, "leave_out": ["c"]}, "columns of the source"),
        ({"filter": "n > 1", "deleted_column": "gone"}, "filter and deleted_column"),
    ],
)  # fmt: skip
def test_sql_that_would_make_other_rows_is_refused(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(sw.InvalidInputError, match=why):
        load(Job(tmp_path, [{"table": "a", **more}]).landing().config)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"filter": "status <> 'test'"},
            "filter of db.a cannot be applied: Binder Error.*status.*not found.*The columns that it may read are id, n",
        ),
        ({"filter": "n + 1"}, "filter of db.a gives int64, and not true or false"),
        ({"computed": {"x": "[n]"}}, "computed x of db.a gives list.*cast it"),
        ({"computed": {"x": "n::uhugeint"}}, "computed x of db.a gives UHUGEINT.*cast it"),
        ({"computed": {"x": "'10:00:00+02'::timetz"}}, "gives TIME WITH TIME ZONE.*cast it"),
        ({"computed": {"x": "n::bit"}}, "gives BIT.*cast it"),
        ({"computed": {"x": "upper(n)"}}, "computed x of db.a cannot be applied"),
    ],
)
def test_sql_that_the_columns_do_not_take_stops_the_job(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    """And plan says so, once there is a table."""
    job = Job(tmp_path, [{"table": "a", **more}])
    with pytest.raises(sw.InvalidInputError, match=why):
        job.land(upsert("c", 1, 0, n=1))
    del job.tables[0]
    job.tables.append({"table": "a"})
    job.land(upsert("c", 1, 0, n=1))
    job.tables[0] |= more
    (table,) = plan(job.landing()).tables
    if "status" in str(more):  # the next batch may have it
        assert "read status, which the table does not have" in " ".join(table.notes)
        return
    assert table.what == "is refused"
    assert re.search(why, table.notes[0])


@pytest.mark.long
def test_a_table_that_is_made_unasked_and_lacks_what_the_filter_reads_stops_no_other(tmp_path: Path) -> None:
    """Its records are dead letters, as where it lacks a column of ``partition_by``."""
    unasked = {
        "unknown_tables": "create",
        "unknown_database": "u",
        "defaults": {"filter": "status <> 'test'"},
    }
    job = Job(tmp_path, [{"table": "other"}], settings=unasked)
    records = [upsert("c", 1, 0, status="paid"), change("c", "b", 1, {"id": 1}, lsn=2, offset=1)]
    job.land_and_die(*records)
    job.land(*records)
    assert job.read("public_a", "u")["id"].to_pylist() == [1]
    (letter,) = job.letters()
    assert "filter of u.public_b cannot be applied" in letter["reason"]
    assert job.verdict().faults == ()


def test_plan_says_what_a_filter_and_a_new_column_do_not_change(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a"}])
    job.land(upsert("c", 1, 0, n=1))
    job.tables[0] |= {"filter": "n > 1", "computed": {"x": "n + 1"}}
    (table,) = plan(job.landing()).tables
    assert table.what == "goes on"
    said = " ".join(table.notes)
    assert "rows that are there stay until they change" in said
    assert "x is a new column" in said
