"""The bench of change data: its checker sees what is wrong, and a short run behind a real Debezium ends exact."""

from __future__ import annotations

import json
import random
import threading
import time as time_of
from collections import Counter
from collections.abc import Sequence
from datetime import time
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from bench.cdc import run as cdc_run
from bench.cdc.check import compare, lake_rows
from bench.cdc.modes import MODES, Event, current, events_of, faults_of
from bench.cdc.row_sql import sql_of
from bench.cdc.run import Plan, run
from bench.cdc.scale import SCENES, runs_of, tables_of
from bench.cdc.workload import TABLES
from examples.cdc import demo
from safewrite.cdc.config.job import load

DOCUMENTS = next(table for table in TABLES if table.name == "documents")
SOURCE = {(n,): [{"id": n, "title": f"t{n}", "n": None}] for n in range(5)}


def found(*rows: tuple[int, str | None, int | None]) -> pa.Table:
    names = ("id", "title", "n", "_cdc_sequence")
    return pa.Table.from_pylist([dict(zip(names, (*row, "1"), strict=True)) for row in rows])


def test_the_checker_sees_each_kind_of_flaw() -> None:
    exact = [(n, f"t{n}", None) for n in range(5)]
    told = compare(DOCUMENTS, SOURCE, lake_rows(DOCUMENTS, found(*exact)))
    assert (told.rows, told.flaws) == (5, 0)
    wrong = [
        (1, "t1", None),
        (1, "t1", None),
        (2, "other", None),
        (3, "t3", 0),
        (4, None, None),
        (9, "t9", 1),
    ]
    told = compare(DOCUMENTS, SOURCE, lake_rows(DOCUMENTS, found(*wrong)))
    assert (told.lost, told.revived, told.doubled, told.stale) == (1, 1, 1, 3)


@pytest.mark.parametrize(
    ("expected", "value", "same"),
    [
        (float("nan"), float("nan"), True), (float("nan"), None, False), (1, True, False), (1, 1.0, False),
        (time(1, 2, 3), "01:02:03", True), (time(1, 2, 3), "01:02:04", False), (Decimal("1.50"), "1.5", True),
        (Decimal("1.50"), "1.51", False), (b"", None, False), ("", None, False), ([1, None], [1, None], True),
    ],
)  # fmt: skip
def test_values_are_compared_with_their_types(expected: object, value: object, same: bool) -> None:
    told = compare(DOCUMENTS, {(1,): [{"id": 1, "v": expected}]}, {(1,): [{"id": 1, "v": value}]})
    assert told.stale == (not same)


EVENTS = [
    Event((0, 1), "upsert", (7,)), Event((0, 3), "upsert", (7,)), Event((0, 4), "delete", (7,)), Event((0, 5), "delete", (7,)),
    Event((0, 8), "upsert", (7,)), Event((1, 4), "upsert", (8,)),
]  # fmt: skip
ROWS = [
    (7, 0, 1, "upsert"), (7, 0, 3, "upsert"), (7, 0, 4, "delete"), (7, 0, 5, "delete"), (7, 0, 8, "upsert"), (8, 1, 4, "upsert"),
]  # fmt: skip
VERSIONS = [(7, 0, 1, 1, 3), (7, 0, 3, 3, 4), (7, None, None, 5, 5), (7, 0, 8, 8, None), (8, 1, 4, 4, None)]


def log_of(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    names = ("id", "rec_partition", "rec_offset", "rec_op", "rec_position")
    return pa.Table.from_pylist([dict(zip(names, (*row, f"0-{row[2]:05d}"), strict=True)) for row in rows])


def versions_of(rows: Sequence[tuple[object, ...]]) -> pa.Table:
    names = ("id", "rec_partition", "rec_offset", "_cdc_sequence", "_cdc_until_sequence")
    told = [(*row[:3], *(None if one is None else f"0-{one:05d}" for one in row[3:])) for row in rows]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in told])


def test_a_log_of_changes_is_judged_by_its_topic() -> None:
    assert faults_of(DOCUMENTS, "append", EVENTS, log_of(ROWS)) == []
    assert sorted(current(DOCUMENTS, "append", log_of(ROWS)).column("id").to_pylist()) == [7, 8]
    assert current(DOCUMENTS, "append", log_of(ROWS[:3])).num_rows == 0
    assert faults_of(DOCUMENTS, "append", EVENTS, log_of(ROWS[1:])) == ["documents (append): lost (0, 1)"]
    assert "is doubled" in faults_of(DOCUMENTS, "append", EVENTS, log_of([*ROWS, ROWS[0]]))[0]
    assert "never was" in faults_of(DOCUMENTS, "append", EVENTS[1:], log_of(ROWS))[0]
    assert (
        "is delete of" in faults_of(DOCUMENTS, "append", EVENTS, log_of([(7, 0, 1, "delete"), *ROWS[1:]]))[0]
    )


def test_versions_are_judged_by_their_topic() -> None:
    assert faults_of(DOCUMENTS, "history", EVENTS, versions_of(VERSIONS)) == []
    assert current(DOCUMENTS, "history", versions_of(VERSIONS)).column("id").to_pylist() == [7, 8]
    for wrong in (
        [*VERSIONS[:1], (7, 0, 3, 3, None), *VERSIONS[2:]],  # a delete ended nothing
        [(7, 0, 1, 1, 4), *VERSIONS[1:]],  # a version ends later than its successor begins
        [*VERSIONS[:2], *VERSIONS[3:]],  # a delete without a row before it is forgotten
        [*VERSIONS, VERSIONS[0]],
        [(7, 0, 2, 1, 3), *VERSIONS[1:]],  # of another record
        [(8, 0, 1, 1, 3), *VERSIONS[1:]],
    ):
        assert faults_of(DOCUMENTS, "history", EVENTS, versions_of(wrong)), wrong


def test_rows_that_stay_are_judged_by_their_topic() -> None:
    names = ("id", "rec_gone")
    rows = [dict(zip(names, row, strict=True)) for row in ((7, False), (8, False))]
    assert faults_of(DOCUMENTS, "marked", EVENTS, pa.Table.from_pylist(rows)) == []
    assert faults_of(DOCUMENTS, "marked", EVENTS[:3], pa.Table.from_pylist(rows[:1]))
    assert faults_of(DOCUMENTS, "marked", EVENTS, pa.Table.from_pylist(rows[:1]))
    assert faults_of(DOCUMENTS, "marked", EVENTS, pa.Table.from_pylist([*rows, rows[0]]))
    gone = pa.Table.from_pylist([{"id": 7, "rec_gone": True}, *rows[1:]])
    assert current(DOCUMENTS, "marked", gone).column("id").to_pylist() == [8]


def test_a_row_that_leaves_the_filter_is_a_delete_and_nothing_of_a_log() -> None:
    payloads = [{"op": "c", "after": {"id": 7, "n": 1}}, {"op": "u", "after": {"id": 7, "n": 3}}]
    payloads.append({"op": "d", "before": {"id": 7}})
    topic = pa.Table.from_pylist([
        {"topic": "shop.public.documents", "partition": 0, "offset": at, "value": json.dumps(one)}
        for at, one in enumerate(payloads)
    ])  # fmt: skip
    passes = sql_of([DOCUMENTS], {"documents": "history"})["documents"].passes
    wanted = {mode: [event.op for event in events_of(DOCUMENTS, topic, mode, passes)] for mode in MODES}
    assert wanted["history"] == ["upsert", "delete", "delete"]
    assert wanted["append"] == ["upsert", "delete"]


@pytest.mark.parametrize("mode", MODES)
def test_sql_and_python_make_the_same_rows(mode: str) -> None:
    """And some rows pass, some do not, and that which is written last always does."""
    draw = random.Random(3)
    for table in TABLES:
        sql = sql_of([table], {table.name: mode})[table.name]  # type: ignore[dict-item]
        keys = [*(table.keys(draw, draw.randrange(2)) for _ in range(40)), *[table.marker] * 5]
        names = [name for name in table.columns if name not in {"took", "ordered_at", "balance"}]
        rows = [
            dict(zip(table.key, key, strict=True)) | {name: table.columns[name](draw) for name in names}
            for key in keys
        ]
        rows_in = pa.Table.from_pylist(rows)  # noqa: F841 - DuckDB reads it by its name
        texts = [text for text, _ in sql.computed.values()]
        columns = duckdb.sql(f"SELECT {', '.join([sql.filter or 'true', *texts])} FROM rows_in").fetchall()
        for row, (passes, *values) in zip(rows, columns, strict=True):
            assert (passes is True) == sql.passes(row), (table.name, row)
            assert sql.made(row) == row | dict(zip(sql.computed, values, strict=True))
        passed = [passes is True for passes, *_ in columns]
        assert all(passed[-5:])
        assert sql.filter is None or not all(passed)


class Beside:
    """A driver that lands as long as all run, and is killed while all are."""

    ended, engine, is_with_executors, log = None, "local", False, Path("none")

    def __init__(self, form: str, all_of: list[Beside], meet: threading.Barrier) -> None:
        self.form, self.all_of, self.meet, self.files, self.runs, self.kills = form, all_of, meet, 0, False, 0
        all_of.append(self)

    def said(self, text: str) -> int:
        self.files += all(one.runs for one in self.all_of)
        return 0

    def start(self) -> None:
        self.runs = True

    def kill(self) -> None:
        if self.kills < 2:
            self.meet.wait(timeout=5)
        self.runs, self.kills = False, self.kills + 1


def test_drivers_start_and_are_killed_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """One began when the other had landed, so a run of two formats took twice as long."""
    monkeypatch.setattr(cdc_run, "time", SimpleNamespace(sleep=lambda _: None, monotonic=time_of.monotonic))
    monkeypatch.setattr(cdc_run, "_STUCK_S", 3.0)
    monkeypatch.setattr(cdc_run, "_is_closed", lambda job: True)
    monkeypatch.setattr(cdc_run, "_books", lambda job, kills: SimpleNamespace(kills=kills))
    jobs, meet = list[Beside](), threading.Barrier(2)
    for form in ("delta", "iceberg"):
        Beside(form, jobs, meet)
    workload = SimpleNamespace(run=lambda *given: None, mark=lambda: None, told={}, changes=10)
    servers: Any = SimpleNamespace(
        workload=workload,
        registry=None,
        kafka=SimpleNamespace(restart=lambda: None),
        is_complete=lambda job: True,
    )
    outcome = cdc_run._under_faults(Plan(kills=2, changes=10), servers, jobs, lambda text: None)  # type: ignore[arg-type]
    assert [one.kills for one in jobs] == [3, 3]
    assert [one.kills for one in outcome.verdicts] == [2, 2]


@pytest.mark.long
def test_tables_of_every_mode_follow_postgresql(tmp_path: Path) -> None:
    """Tables of one job land as upserts, as a log and as versions; each record is in its table once, whatever dies."""
    plan = Plan(
        seed=2,
        changes=900,
        kills=1,
        broker_restarts=0,
        batch=300,
        modes=MODES,
        sql=True,
    )
    outcome = run(plan, tmp_path)
    assert outcome.is_exact, outcome


@pytest.mark.long
def test_both_lakes_equal_postgresql_behind_a_real_debezium(tmp_path: Path) -> None:
    """Each driver is killed once and the broker restarted once; what each record became is in the books."""
    outcome = run(Plan(seed=5, changes=1200, kills=1, broker_restarts=1, batch=300), tmp_path)
    assert outcome.is_exact, outcome
    assert outcome.workload["key changes"] > 0
    assert outcome.workload["ddl"] == 4


@pytest.mark.long
def test_a_job_that_chooses_by_lot_ends_exact_though_executors_and_drivers_are_killed(tmp_path: Path) -> None:
    """Executors are processes of their own; a batch that one side began may be landed by the other."""
    plan = Plan(
        seed=6, changes=3000, kills=2, broker_restarts=0, forms=("delta",), batch=300, engine="auto", executor_kills=2
    )  # fmt: skip
    outcome = run(plan, tmp_path)
    assert outcome.is_exact, outcome
    (verdict,) = outcome.verdicts
    assert 0 < verdict.by_executors < verdict.records


@pytest.mark.long
def test_the_example_shows_a_lake_that_follows(tmp_path: Path) -> None:
    tables = demo.main(tmp_path)
    assert [one.table for one in tables] == [table.name for table in TABLES]
    assert all(one.rows > 0 and one.flaws == 0 for one in tables)


def test_the_records_of_a_key_are_in_one_partition_and_its_insert_comes_first() -> None:
    """In the scene whose rows are updated; the others have as many inserts as records, each of a key of its own."""
    for name, scene in SCENES.items():
        found: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for one in runs_of(12_500, scene):
            for key in one.ids:
                found.setdefault((one.table, key), []).append((one.op, one.partition))
        ops = Counter("".join(op for op, _ in told) for told in found.values())
        assert ops == ({"cu": 5500, "c": 1500} if name == "history" else {scene.op: 12_500})
        assert all(len({partition for _, partition in told}) == 1 for told in found.values())


def test_a_job_takes_the_tables_of_each_scene() -> None:
    given = {"job": "j", "warehouse": "w", "checkpoint": "c", "envelope": "debezium-json"}
    for scene in SCENES.values():
        config = load(given | {"tables": tables_of(scene), "kafka": {"servers": "s", "topics": scene.topics}})
        assert len(config.tables) == scene.tables
