"""Tables whose deleted rows stay: marked, with the values that they had, whatever comes late, twice or without its row."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.config.job import load
from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import decoded, event, postgres, record
from tests.cdc.jobs import FORM_AND_SCHEMAS, Job, Rows, Source, change, cut
from tests.cdc.on_executors import Executors, work_of
from tests.each import each

SOFT = {"table": "a", "deleted_column": "is_gone"}
LONG_ON_ICEBERG = pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
"""The changes of both formats have one meaning; the random source runs on both."""
GONE = "__debezium_unavailable_value"


def expected(records: list[KafkaRecord]) -> Rows:
    """The rows by all changes in the order of their positions: those that were deleted as they were."""
    found: Rows = {}
    changes = [decoded(one).rows[0] for one in records if one.value is not None]
    for one in sorted(changes, key=lambda one: one.position):
        key = dict(one.keys)["id"]
        row = found.get(key, {"id": key, "name": None, "n": None}) if one.op.value == "d" else one.after
        assert row is not None
        found[key] = {**row, "is_gone": one.op.value == "d"}
    return found


@pytest.mark.sweep("iceberg")
@FORM_AND_SCHEMAS
def test_deleted_rows_stay_as_they_were(tmp_path: Path, form: str, schemas: bool) -> None:
    """A random source, whose rows change their keys and come again; drivers die after a commit, batches come twice.

    Executors land each batch of Delta's table, and count the one that an attempt before has landed.
    """
    job = Job(tmp_path, [SOFT], form, schemas=schemas)
    job.work = work_of(Executors() if form == "delta" else None)
    source = Source(5, tables=("a",))
    for number, part in enumerate(
        cut(source.run(96 if form == "delta" else 45), 32 if form == "delta" else 15)
    ):
        if number % 2:
            job.land_and_die(*part, number=number)
        lines = job.land(*part, number=number)
        records = sum(line.records for line in lines if line.table)
        assert sum(line.by_executors for line in lines) == records * (form == "delta")
        job.land(*part, number=number)
    rows = job.rows("a")
    assert rows == expected(source.records)
    living = {key: row for key, row in rows.items() if not row["is_gone"]}
    assert {
        key: {name: row[name] for name in ("id", "name", "n")} for key, row in living.items()
    } == source.rows["a"]
    assert len(living) < len(rows)
    assert not job.letters()
    assert job.verdict().faults == ()


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))])
def test_changes_that_come_late_find_their_place(tmp_path: Path, seed: int) -> None:
    """One key, and its changes in any order: the last one by its position decides whether the row is there."""
    draw = random.Random(seed)
    order, size = draw.sample(range(6), 6), draw.randrange(1, 4)
    made = [
        change(op, "a", 1, None if op == "d" else {"id": 1, "name": "x", "n": lsn}, lsn=lsn + 1, offset=place)
        for place, lsn in enumerate(order)
        for op in ["cuduud"[lsn]]
    ]
    job = Job(tmp_path, [SOFT | {"all_late": "count"}], schemas=False)
    for part in cut(made, size):
        job.land(*part)
    (row,) = job.rows("a").values()
    assert row["is_gone"]
    if order.index(4) < order.index(5):
        assert row["n"] == 4
    assert not job.letters()
    assert job.verdict().faults == ()


@LONG_ON_ICEBERG
def test_a_delete_without_a_row_is_a_row_of_its_key(tmp_path: Path, form: str) -> None:
    """What is older and comes later is late; tombstones after it do nothing, and a row that comes again is there again."""
    job = Job(tmp_path, [SOFT | {"all_late": "count"}], form, schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.land(change("d", "a", 2, lsn=5, offset=1), change("d", "a", 1, lsn=6, offset=2))
    assert job.rows("a") == {1: {"id": 1, "n": 1, "is_gone": True}, 2: {"id": 2, "n": None, "is_gone": True}}
    job.land(change("c", "a", 2, {"id": 2, "n": 2}, lsn=4, offset=3))
    job.land(change("c", "a", 1, {"id": 1, "n": 7}, lsn=7, offset=4))
    assert job.rows("a") == {1: {"id": 1, "n": 7, "is_gone": False}, 2: {"id": 2, "n": None, "is_gone": True}}
    assert job.verdict().faults == ()
    assert not job.letters()


def test_a_tombstone_of_compaction_marks_its_row_once(tmp_path: Path) -> None:
    job = Job(tmp_path, [SOFT], schemas=False)

    def of(op: str, n: int, offset: int) -> KafkaRecord:
        row = None if op == "d" else {"id": 1, "n": n}
        given = event(op, row, source=postgres(n, "a"))
        return record(given, {"id": 1}, offset=offset, topic="pg.public.a")

    def gone(offset: int) -> KafkaRecord:
        return record(None, {"id": 1}, offset=offset, topic="pg.public.a")

    job.land(of("c", 1, 0))
    assert [line.applied for line in job.land(gone(5)) if line.table] == [1]
    assert [(line.applied, line.ignored) for line in job.land(gone(6)) if line.table] == [(0, 1)]
    assert job.rows("a") == {1: {"id": 1, "n": 1, "is_gone": True}}
    assert job.verdict().faults == ()


@pytest.mark.long
@LONG_ON_ICEBERG
def test_no_row_takes_a_value_of_one_that_was_deleted(tmp_path: Path, form: str) -> None:
    """The insert between did not land: an update that lacks its value is a dead letter, and not a mix of two rows."""
    job = Job(tmp_path, [SOFT], form, schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1, "body": "old"}, lsn=1, offset=0))
    job.land(change("d", "a", 1, lsn=2, offset=1))
    job.land(change("c", "a", 1, {"id": 1, "n": "x", "body": "new"}, lsn=3, offset=2))
    job.land(
        change("u", "a", 1, {"id": 1, "n": 2, "body": GONE}, lsn=4, offset=3),
        change("c", "a", 2, {"id": 2, "n": 2, "body": "b"}, lsn=5, offset=4),
    )
    assert [letter["offset"] for letter in sorted(job.letters(), key=lambda one: one["offset"])] == [2, 3]
    job.land(
        change("u", "a", 2, {"id": 2, "n": 3, "body": GONE}, lsn=6, offset=5),
        change("d", "a", 2, lsn=7, offset=6),
        change("u", "a", 2, {"id": 2, "n": 4, "body": GONE}, lsn=8, offset=7),
        change("d", "a", 2, lsn=9, offset=8),
        change("d", "a", 3, lsn=10, offset=9),
    )
    assert job.rows("a") == {
        1: {"id": 1, "n": 1, "body": "old", "is_gone": True},
        2: {"id": 2, "n": 3, "body": "b", "is_gone": True},
        3: {"id": 3, "n": None, "body": None, "is_gone": True},
    }
    assert sorted(letter["offset"] for letter in job.letters()) == [2, 3, 7]
    assert job.verdict().faults == ()


@each("schemas", [True, False])
@each("cuts", [(), (1,), (2,), (3,), (1, 2), (1, 2, 3)])
def test_batches_may_be_cut_anywhere_between_a_delete_and_what_lacks_its_value(
    schemas: bool, cuts: tuple[int, ...], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The insert between them is a dead letter, so the update is one too, also where all came in one batch."""
    job = Job(tmp_path_factory.mktemp("lake"), [SOFT], schemas=schemas)
    job.land(change("c", "a", 9, {"id": 9, "n": 9, "body": "b"}, lsn=1, offset=0))
    events = [
        change("c", "a", 1, {"id": 1, "n": 1, "body": "old"}, lsn=2, offset=1),
        change("d", "a", 1, lsn=3, offset=2),
        change("c", "a", 1, {"id": 1, "n": 2**70, "body": "new"}, lsn=4, offset=3),
        change("u", "a", 1, {"id": 1, "n": 2, "body": GONE}, lsn=5, offset=4),
    ]
    for begin, end in itertools.pairwise([0, *cuts, len(events)]):
        job.land(*events[begin:end])
    assert sorted(letter["offset"] for letter in job.letters()) == [3, 4]
    assert job.rows("a")[1] == {"id": 1, "n": 1, "body": "old", "is_gone": True}
    assert job.verdict().faults == ()


@each("engine", ["here", "executors"])
@each("cuts", [(), (1,), (2,), (1, 2)])
def test_a_row_that_is_only_a_mark_has_no_value_for_an_update(
    cuts: tuple[int, ...], engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its NULL is nobody's: the update is a dead letter in whatever batch it comes."""
    job = Job(tmp_path_factory.mktemp("lake"), [SOFT])
    events = [
        change("c", "a", 9, {"id": 9, "n": 9, "body": "b"}, lsn=1, offset=0),
        change("d", "a", 1, lsn=2, offset=1),
        change("u", "a", 1, {"id": 1, "n": 8, "body": GONE}, lsn=3, offset=2),
    ]
    for number, (begin, end) in enumerate(itertools.pairwise([0, *cuts, len(events)])):
        work = work_of(Executors() if engine == "executors" else None)
        job.landing().land(job.batch(events[begin:end], number), work)
    assert [letter["offset"] for letter in job.letters()] == [2]
    assert job.rows("a")[1] == {"id": 1, "n": None, "body": None, "is_gone": True}
    assert not job.verdict().faults


@each("engine", ["here", "executors"])
def test_an_update_that_comes_late_needs_no_value_unless_the_row_is_deleted(
    engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    job = Job(tmp_path_factory.mktemp("lake"), [SOFT])
    old = [
        change("u", "a", key, {"id": key, "n": 8, "body": GONE}, lsn=3, offset=40 + key) for key in range(3)
    ]
    new = [
        change("c", "a", key, {"id": key, "n": 9, "body": "b"}, lsn=5, offset=20 + key) for key in range(2)
    ]
    for number, some in enumerate([[*new, change("d", "a", 1, lsn=6, offset=30)], old]):
        work = work_of(Executors() if engine == "executors" else None)
        lines = job.landing().land(job.batch(some, number), work)
    assert [(one.late, one.dead) for one in lines if one.table] == [(1, 2)]
    assert sorted(letter["offset"] for letter in job.letters()) == [41, 42]
    rows = {key: (row["n"], row["body"], row["is_gone"]) for key, row in job.rows("a").items()}
    assert rows == {0: (9, "b", False), 1: (9, "b", True)}
    assert not job.verdict().faults


@each("engine", ["here", "executors"])
@each("form", ["delta", "iceberg"])
def test_a_column_that_is_no_boolean_is_refused_before_anything_lands(
    form: str, engine: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The table has the column from its source; every record would be a dead letter."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "lake").mkdir()
    job = Job(folder, [{"table": "a"}], form)
    job.land(change("c", "a", 1, {"id": 1, "is_gone": "no"}, lsn=1, offset=0))
    job.tables = [SOFT]
    more = [change("c", "a", 2, {"id": 2}, lsn=2, offset=1), change("d", "a", 1, lsn=3, offset=2)]
    work = work_of(Executors() if engine == "executors" else None)
    with pytest.raises(
        sw.InvalidInputError, match=r"names is_gone, which is .*string in the table"
    ) as refused:
        job.landing().land(job.batch(more, 1), work)
    assert "Nothing of the batch was committed" in str(refused.value)
    assert job.rows("a") == {1: {"id": 1, "is_gone": "no"}}
    assert not job.letters()


@pytest.mark.long
def test_the_column_may_come_later_and_go_again(tmp_path: Path) -> None:
    """A row from before has NULL there; without the column a delete takes its row again, also one that was marked."""
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    job.land(*(change("c", "a", key, {"id": key, "n": key}, lsn=key, offset=key) for key in (1, 2, 3)))
    job.land(change("d", "a", 3, lsn=4, offset=4))
    job.tables[0]["deleted_column"] = "gone"
    job.land(change("d", "a", 1, lsn=5, offset=5), change("c", "a", 3, {"id": 3, "n": 9}, lsn=6, offset=6))
    assert job.rows("a") == {
        1: {"id": 1, "n": 1, "gone": True},
        2: {"id": 2, "n": 2, "gone": None},
        3: {"id": 3, "n": 9, "gone": False},
    }
    del job.tables[0]["deleted_column"]
    job.land(change("d", "a", 1, lsn=7, offset=7), change("d", "a", 2, lsn=8, offset=8))
    assert sorted(job.rows("a")) == [3]
    assert not job.letters()
    assert job.verdict().faults == ()


def test_what_takes_all_rows_is_a_dead_letter(tmp_path: Path) -> None:
    job = Job(tmp_path, [SOFT], schemas=False)
    job.land(
        change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0),
        record(event("t", source=postgres(2, "a")), offset=1),
    )
    assert job.rows("a") == {1: {"id": 1, "n": 1, "is_gone": False}}
    assert "those of this table stay" in job.letters()[0]["reason"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"mode": "history"}, "deleted_column needs mode upsert"),
        ({"mode": "append", "metadata": {"op": "op"}}, "deleted_column do nothing with mode append"),
        ({"sequence": "precombine", "precombine_key": ["n"]}, "deleted_column needs mode upsert and sequence source"),
        ({"metadata": {"IS_GONE": "topic"}}, "deleted_column names is_gone, a column that is there already"),
        ({"name_mapping": {"x": "is_gone"}}, "name_mapping names columns that the job keeps: is_gone"),
        ({"primary_key": ["is_gone"]}, "primary_key names columns that the job keeps: is_gone"),
    ],
)  # fmt: skip
def test_a_column_that_would_mean_nothing_is_refused(tmp_path: Path, more: dict[str, Any], why: str) -> None:
    with pytest.raises(sw.InvalidInputError, match=why):
        load(Job(tmp_path, [SOFT | more]).landing().config)
