"""Jobs write tables with CHECK constraints, invariants, generated columns and defaults: a row that breaks a rule is a dead letter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.intake.letters import EVERY, LetterFilter
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, change
from tests.cdc.on_executors import Executors, work_of
from tests.each import each

ENGINES = ("here", "executors")
LEFT_OUT = "__debezium_unavailable_value"
SCHEMA = pa.schema([
    ("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()),
    pa.field("twice", pa.int64(), nullable=False, metadata={"delta.generationExpression": "few * 2"}),
    pa.field("state", pa.string(), metadata={"CURRENT_DEFAULT": "'new'"}),
])  # fmt: skip


def job_of(folder: Path, *, schemas: bool = True, schema: pa.Schema = SCHEMA, **table: Any) -> Job:
    """A job over a table of another maker, whose rows have ``few < 10``."""
    place = f"{folder}/db/a"
    deltalake.DeltaTable.create(place, schema)
    alter = deltalake.DeltaTable(place).alter
    alter.set_table_properties({"delta.constraints.few": "few < 10"}, raise_if_not_exists=False)
    keys = {} if "mode" in table else {"primary_key": ["id"]}
    return Job(folder, [{"table": "a", **keys, **table}], schemas=schemas)


def land(job: Job, engine: str, *records: Any, number: int = 0) -> Any:
    work = work_of(Executors() if engine == "executors" else None)
    lines = job.landing().land(job.batch(records, number), work)
    return next(one for one in lines if one.table is not None)


def insert(key: int, few: int | None, *, at: int | None = None, op: str = "c", **more: Any) -> Any:
    at = key if at is None else at
    return change(op, "a", key, {"id": key, "few": few, "note": f"n{key}"} | more, lsn=at + 1, offset=at)


@each("schemas", [True, False])
@each("engine", ENGINES)
def test_a_row_that_breaks_a_rule_is_a_dead_letter_and_the_others_land(
    engine: str, schemas: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """FALSE and NULL break it, and a value that a generated column does not have; what columns lack is filled in."""
    job = job_of(tmp_path_factory.mktemp("lake"), schemas=schemas)
    entry = land(job, engine, insert(0, 1), insert(1, 12), insert(2, None), insert(3, 4))
    assert (entry.records, entry.applied, entry.dead) == (4, 2, 2)
    assert job.rows("a") == {
        key: {"id": key, "few": few, "note": f"n{key}", "twice": 2 * few, "state": "new"}
        for key, few in ((0, 1), (3, 4))
    }
    reasons = {one["offset"]: one["reason"] for one in job.letters()}
    assert "breaks the check constraint 'few' (few < 10): few is 12" in reasons[1]
    assert "NOT NULL" in reasons[2] or "few is NULL" in reasons[2]
    entry = (
        land(job, engine, insert(4, 5, twice=9), insert(5, 5, twice=10, state=None), number=1)
        if schemas
        else None
    )
    if entry is not None:
        assert (entry.applied, entry.dead) == (1, 1)
        assert job.rows("a")[5]["state"] is None
    assert not job.verdict().faults


@each("engine", ENGINES)
def test_a_change_that_breaks_a_rule_is_applied_in_no_part_and_later_ones_of_its_key_go_on(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An update that changes its key is two rows: neither goes.  What follows is applied, and a replay of the letter comes late."""
    job = job_of(tmp_path_factory.mktemp("lake"))
    land(job, engine, insert(0, 1), insert(1, 2))
    moved = event(
        "u", {"id": 7, "few": 11, "note": "m"}, {"id": 1, "few": 2, "note": "n1"}, source=postgres(20, "a")
    )
    land(job, engine, insert(0, 99, at=10, op="u"), record(moved, {"id": 7}, offset=11), number=1)
    assert {key: row["few"] for key, row in job.rows("a").items()} == {0: 1, 1: 2}
    land(job, engine, insert(0, 3, at=20, op="u"), change("d", "a", 1, lsn=30, offset=21), number=2)
    assert {key: row["few"] for key, row in job.rows("a").items()} == {0: 3}
    assert sorted(one["offset"] for one in job.letters()) == [10, 11]
    assert not job.verdict().faults


@each("engine", ENGINES)
def test_a_value_that_the_source_left_out_is_looked_up_before_a_rule_reads_it(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()), *[SCHEMA.field("twice")]]
    )
    job = job_of(tmp_path_factory.mktemp("lake"), schema=schema)
    place = deltalake.DeltaTable(f"{job.folder}/db/a")
    place.alter.set_table_properties(
        {"delta.constraints.both": "few > 0 OR note = 'x'"}, raise_if_not_exists=False
    )
    land(job, engine, insert(0, 1), insert(1, -1, note="x"), insert(2, -2, note="x"))
    entry = land(
        job, engine,
        insert(0, 2, at=10, op="u", note=LEFT_OUT),
        insert(1, -5, at=11, op="u", note=LEFT_OUT),
        insert(5, 3, at=12, op="u", note=LEFT_OUT),
        insert(2, -2, at=13, op="u", note="y"),
        number=1,
    )  # fmt: skip
    found = {key: (row["few"], row["note"], row["twice"]) for key, row in job.rows("a").items()}
    assert found == {0: (2, "n0", 4), 1: (-5, "x", -10), 2: (-2, "x", -4)}
    assert (entry.applied, entry.dead) == (2, 2)
    assert {one["offset"]: "left out note" in one["reason"] for one in job.letters()} == {12: True, 13: False}
    assert not job.verdict().faults


@each("engine", ENGINES)
def test_events_that_break_a_rule_are_dead_letters_too(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job = job_of(tmp_path_factory.mktemp("lake"), mode="append", metadata={"op": "op"})
    entry = land(job, engine, insert(0, 1), insert(1, 12), insert(2, 3))
    assert (entry.applied, entry.dead) == (2, 1)
    assert sorted((row["few"], row["twice"], row["state"]) for row in job.read("a").to_pylist()) == [
        (1, 2, "new"),
        (3, 6, "new"),
    ]


def test_a_row_that_the_filter_does_not_pass_breaks_no_rule(tmp_path: Path) -> None:
    """Rules are asked once SQL has computed the row."""
    job = job_of(tmp_path, filter="raw <> 150", computed={"few": "raw - 100"})
    given = [
        change("c", "a", key, {"id": key, "raw": raw}, lsn=key + 1, offset=key)
        for key, raw in enumerate([105, 150, 120])
    ]
    entry = land(job, "here", *given)
    assert {key: (row["few"], row["twice"]) for key, row in job.rows("a").items()} == {0: (5, 10)}
    assert entry.dead == 1


def test_a_letter_that_breaks_a_rule_lands_once_the_rule_is_gone(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    land(job, "here", insert(0, 1), insert(1, 12))
    again = DeadLetters(job.landing()).replay()
    assert (again.landed, [*again.dead]) == (0, ["topic/0/1"])
    deltalake.DeltaTable(f"{tmp_path}/db/a").alter.drop_constraint("few")
    assert DeadLetters(job.landing()).replay().landed == 1
    assert job.rows("a")[1]["twice"] == 24
    assert not job.verdict().faults


@each("engine", ENGINES)
@each("at_once", [True, False])
@each("kept", [{"mode": "history"}, {"deleted_column": "gone"}])
def test_a_delete_whose_insert_was_a_letter_stops_no_job(
    kept: dict[str, Any], at_once: bool, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A row without values would stay of it, which the table refuses: the delete is a letter too, and comes again after the insert."""
    schema = pa.schema([("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()), ("gone", pa.bool_())])
    job = job_of(
        tmp_path_factory.mktemp("lake"), schema=schema if "mode" not in kept else schema.remove(3), **kept
    )
    events = [insert(1, 1), insert(2, 12), change("d", "a", 2, lsn=9, offset=3)]
    cuts = [events] if at_once else [events[:2], events[2:]]
    entries = [land(job, engine, *records, number=number) for number, records in enumerate(cuts)]
    assert sum(one.dead for one in entries) == 2
    assert {one["offset"] for one in job.letters()} == {2, 3}
    assert [*job.rows("a")] == [1]
    deltalake.DeltaTable(f"{job.folder}/db/a").alter.drop_constraint("few")
    DeadLetters(job.landing()).replay()
    rows = deltalake.QueryBuilder().register("a", deltalake.DeltaTable(f"{job.folder}/db/a"))
    assert pa.table(rows.execute("select id, few from a order by id").read_all()).to_pylist() == [
        {"id": 1, "few": 1},
        {"id": 2, "few": 12},
    ]
    assert not job.verdict().faults


@each("alone", [True, False])
@each("kept", [{}, {"deleted_column": "gone"}])
def test_letters_that_come_after_a_newer_row_are_late_also_without_a_value(
    kept: dict[str, Any], alone: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An insert breaks a rule, and so the update after it has nobody's value; then the row comes whole."""
    schema = pa.schema([("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()), ("gone", pa.bool_())])
    job = job_of(tmp_path_factory.mktemp("lake"), schema=schema if kept else schema.remove(3), **kept)
    events = [
        insert(1, 1), change("d", "a", 1, lsn=3, offset=2), insert(1, 12, at=3),
        insert(1, 4, at=4, op="u", note=LEFT_OUT), insert(1, 5, at=5, op="u"),
    ]  # fmt: skip
    for number, one in enumerate(events):
        land(job, "here", one, number=number)
    assert {one["offset"] for one in job.letters()} == {3, 4}
    deltalake.DeltaTable(f"{job.folder}/db/a").alter.drop_constraint("few")
    letters = DeadLetters(job.landing())
    for wanted in ["topic/0/4", "topic/0/3"] if alone else [None]:
        done = letters.replay(LetterFilter(names=[wanted]) if wanted else EVERY)
        assert (done.landed, done.dead, [one.late for one in done.tables]) == (
            1 if alone else 2, {}, [1 if alone else 2],
        )  # fmt: skip
    assert not letters.find()
    assert job.rows("a")[1]["few"] == 5
    assert not job.verdict().faults


@each("kept", [{"mode": "history"}, {"deleted_column": "gone"}])
def test_such_a_delete_that_was_sent_twice_is_two_letters(
    kept: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The second one is no copy of a change that landed."""
    schema = pa.schema([("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()), ("gone", pa.bool_())])
    job = job_of(
        tmp_path_factory.mktemp("lake"), schema=schema if "mode" not in kept else schema.remove(3), **kept
    )
    deletes = [change("d", "a", 2, lsn=9, offset=offset) for offset in (3, 4)]
    entry = land(job, "here", insert(1, 1), insert(2, 12), *deletes)
    assert {one["offset"] for one in job.letters()} == {2, 3, 4}
    assert (entry.records, entry.applied, entry.dead, [*job.rows("a")]) == (4, 1, 3, [1])
    assert not job.verdict().faults


@each("kept", [{"mode": "history"}, {"deleted_column": "gone"}])
def test_a_changed_key_whose_old_row_was_a_letter_is_a_letter_and_lands_nothing(
    kept: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One record is a delete and an upsert: it is a letter whole, so that it is counted once."""
    schema = pa.schema([("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()), ("gone", pa.bool_())])
    job = job_of(
        tmp_path_factory.mktemp("lake"),
        schema=schema if "mode" not in kept else schema.remove(3),
        primary_key=["id"],
        **kept,
    )
    before, row = ({"id": key, "few": few, "note": f"n{key}"} for key, few in ((2, 12), (3, 3)))
    moved = change("u", "a", 3, row, lsn=9, offset=3, before=before)
    entry = land(job, "here", insert(1, 1), insert(2, 12), moved)
    assert {one["offset"] for one in job.letters()} == {2, 3}
    assert (entry.records, entry.applied, entry.dead, [*job.rows("a")]) == (3, 1, 2, [1])
    assert not job.verdict().faults
    deltalake.DeltaTable(f"{job.folder}/db/a").alter.drop_constraint("few")
    assert DeadLetters(job.landing()).replay().landed == 2
    assert {row["id"] for row in job.read("a").to_pylist()} == {1, 2, 3}
    assert not job.verdict().faults


@each("engine", ENGINES)
@each("nullable", [True, False])
def test_a_rule_that_reads_the_mark_of_deleted_rows_is_asked_of_what_is_written(
    nullable: bool, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The record does not have the column; the job writes false there, which NOT NULL takes too."""
    gone = pa.field("gone", pa.bool_(), nullable=nullable)
    schema = pa.schema([("id", pa.int64()), ("few", pa.int64()), ("note", pa.string()), gone])
    job = job_of(tmp_path_factory.mktemp("lake"), schema=schema, deleted_column="gone")
    alter = deltalake.DeltaTable(f"{job.folder}/db/a").alter
    alter.set_table_properties(
        {"delta.constraints.few": "NOT gone OR few IS NOT NULL"}, raise_if_not_exists=False
    )
    for number in range(2):
        assert land(job, engine, insert(number, None), number=number).applied == 1
    assert not job.letters()
