"""Values that PostgreSQL leaves out (TOAST) stay with their row when its key changes; what nobody has is a dead letter."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, Rows, change, cut
from tests.cdc.on_executors import Executors, work_of

GONE = "__debezium_unavailable_value"


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, [{"table": "a"}], request.param)


def row(key: int, body: Any = GONE, n: int = 0) -> dict[str, Any]:
    return {"id": key, "body": body, "n": n}


def moved(
    old: int, new: dict[str, Any], *, lsn: int, offset: int, partitions: tuple[int, int] = (0, 0)
) -> tuple[KafkaRecord, KafkaRecord]:
    """The two events that Debezium makes of an update of a key."""
    source, key = postgres(lsn, "a"), new["id"]
    delete = record(
        event("d", None, {"id": old}, source=source),
        {"id": old},
        offset=offset,
        headers={"__debezium.newkey": {"id": key}},
        partition=partitions[0],
    )
    insert = record(
        event("c", new, source=source),
        {"id": key},
        offset=offset if partitions[0] != partitions[1] else offset + 1,
        headers={"__debezium.oldkey": {"id": old}},
        partition=partitions[1],
    )
    return delete, insert


def reasons(job: Job) -> dict[int, str]:
    return {letter["offset"]: letter["reason"] for letter in job.letters()}


@pytest.mark.sweep("iceberg")
def test_a_row_keeps_its_values_when_its_key_changes(job: Job) -> None:
    """The table has them; and in one batch a second change of key, and an update in between."""
    job.land(change("c", "a", 1, row(1, "first"), lsn=1, offset=0))
    job.land(
        *moved(1, row(2, n=5), lsn=2, offset=1),
        change("u", "a", 2, row(2, n=6), lsn=3, offset=3),
        *moved(2, row(3, n=7), lsn=4, offset=4),
    )
    assert job.rows("a") == {3: row(3, "first", 7)}
    assert not job.letters()
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_value_of_the_batch_goes_before_that_of_the_table(job: Job) -> None:
    job.land(change("c", "a", 1, row(1, "old"), lsn=1, offset=0))
    job.land(
        change("u", "a", 1, row(1, "new"), lsn=2, offset=1),
        change("u", "a", 1, row(1, n=1), lsn=3, offset=2),
        *moved(1, row(2, n=2), lsn=4, offset=3),
        change("c", "a", 1, row(1, "another row"), lsn=5, offset=5),
    )
    assert job.rows("a") == {1: row(1, "another row"), 2: row(2, "new", 2)}


@pytest.mark.sweep("iceberg")
def test_a_batch_may_end_between_the_two_halves(job: Job) -> None:
    """Then the row is at its new key with the values from before, and complete with the next batch."""
    job.land(change("c", "a", 1, row(1, "kept", 1), lsn=1, offset=0))
    delete, insert = moved(1, row(2, n=2), lsn=2, offset=1)
    job.land(delete)
    assert job.rows("a") == {2: row(2, "kept", 1)}
    job.land(insert)
    assert job.rows("a") == {2: row(2, "kept", 2)}
    assert not job.letters()
    assert job.verdict().faults == ()


@pytest.mark.long
def test_a_driver_that_died_behind_the_first_half_counts_it_the_same(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.land(change("c", "a", 1, row(1, "kept", 1), lsn=1, offset=0))
    delete, insert = moved(1, row(2, n=2), lsn=2, offset=1)
    landing = job.landing()

    def dies(*_: Any) -> None:
        raise RuntimeError("the driver dies here")

    monkeypatch.setattr(landing.ledger, "write", dies)
    poison = change("c", "a", 5, {"id": 5, "n": "text"}, lsn=1, offset=0, partition=1)
    with pytest.raises(RuntimeError, match="dies here"):
        landing.land(job.batch([delete, poison]))
    (line,) = [line for line in job.land(delete, poison) if line.table]
    assert (line.records, line.changes, line.split, line.dead) == (2, 2, 1, 1)
    job.land(insert)
    assert job.rows("a") == {2: row(2, "kept", 2)}
    assert job.verdict().faults == ()


@pytest.mark.long
def test_an_insert_whose_delete_was_not_read_takes_no_value(job: Job) -> None:
    """The halves are in two partitions: updates of the old key may be unread, so the table's value may be an old one."""
    job.land(change("c", "a", 1, row(1, "stale"), lsn=1, offset=0))
    unread = change("u", "a", 1, row(1, "newer"), lsn=2, offset=1)
    delete, insert = moved(1, row(2, n=2), lsn=3, offset=2, partitions=(0, 1))
    job.land(insert)
    assert job.rows("a") == {1: row(1, "stale")}
    assert "left out body" in reasons(job)[2]
    job.land(unread, delete)
    assert job.rows("a") == {2: row(2, "newer", 0)}  # as of right before the change of the key
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_delete_that_comes_after_its_insert_changes_nothing_there(job: Job) -> None:
    job.land(change("c", "a", 1, row(1, "old", 1), lsn=1, offset=0))
    delete, insert = moved(1, row(2, "whole", 2), lsn=2, offset=5, partitions=(0, 1))
    job.land(insert)
    job.land(change("u", "a", 2, row(2, n=3), lsn=3, offset=6, partition=1))
    job.land(delete)
    assert job.rows("a") == {2: row(2, "whole", 3)}


@pytest.mark.sweep("iceberg")
def test_a_delete_that_is_sent_again_takes_no_newer_row_along(job: Job) -> None:
    """Debezium sends again what it had not noted as sent; the old key is another row's by now."""
    job.land(change("c", "a", 1, row(1, "newer"), lsn=9, offset=9))
    delete, _ = moved(1, row(2), lsn=5, offset=10)
    job.land(delete)
    assert job.rows("a") == {1: row(1, "newer")}


@pytest.mark.sweep("iceberg")
def test_only_rows_whose_value_nobody_has_are_dead_letters(job: Job) -> None:
    """I12: and no row is left with a value of another time."""
    job.land(*(change("c", "a", n, row(n, f"body {n}"), lsn=n, offset=n) for n in (1, 2)))
    job.land(
        change("u", "a", 1, row(1, n=7), lsn=3, offset=3),
        change("u", "a", 9, row(9, n=7), lsn=4, offset=4),
        change("u", "a", 9, row(9, n=8), lsn=5, offset=5),
        change("u", "a", 2, row(2, n=7), lsn=6, offset=6),
        change("u", "a", 8, row(8, n=7), lsn=7, offset=7),
        change("u", "a", 8, row(8, "whole", n=8), lsn=8, offset=8),
        change("c", "a", 7, row(7, "seven"), lsn=9, offset=9),
        change("u", "a", 7, row(7, n=1), lsn=10, offset=10),
        change("c", "a", 6, row(6, "six"), lsn=11, offset=11),
        change("d", "a", 6, lsn=12, offset=12),
        change("u", "a", 6, row(6, n=1), lsn=13, offset=13),
    )
    assert job.rows("a") == {
        1: row(1, "body 1", 7), 2: row(2, "body 2", 7), 7: row(7, "seven", 1), 8: row(8, "whole", 8),
    }  # fmt: skip
    assert sorted(reasons(job)) == [4, 5, 13]
    assert job.verdict().faults == ()


@pytest.mark.parametrize("more", [{}, pytest.param({"deleted_column": "gone"}, marks=pytest.mark.long)])
@pytest.mark.parametrize("engine", ["here", pytest.param("executors", marks=pytest.mark.long)])
def test_a_table_without_the_column_has_no_value_of_it(
    tmp_path: Path, engine: str, more: dict[str, Any]
) -> None:
    """The source has one, which it left out of an update: NULL would be nobody's."""
    job = Job(tmp_path, [{"table": "a", **more}])

    def land(number: int, *records: KafkaRecord) -> None:
        job.landing().land(
            job.batch(records, number), work_of(Executors() if engine == "executors" else None)
        )

    land(0, change("c", "a", 1, {"id": 1, "n": 0}, lsn=1, offset=0))
    land(
        1,
        change("u", "a", 1, row(1, n=1), lsn=2, offset=1),
        change("c", "a", 2, row(2, "b", n=1), lsn=3, offset=2),
        change("u", "a", 2, row(2, n=2), lsn=4, offset=3),
    )
    assert [*reasons(job)] == [1]
    assert "left out body" in reasons(job)[1]
    found = {key: (one["n"], one["body"]) for key, one in job.rows("a").items()}
    assert found == {1: (0, None), 2: (2, "b")}
    assert not job.verdict().faults


def test_a_new_column_that_no_change_lacks_leaves_changes_with_executors(tmp_path: Path) -> None:
    """The source left out the value of another one, which the table has; the column that is new comes whole."""
    job = Job(tmp_path, [{"table": "a"}])
    landing, work = job.landing(), work_of(Executors())
    landing.land(job.batch([change("c", "a", 1, row(1, "first"), lsn=1, offset=0)], 0), work)
    lacks = change("u", "a", 1, row(1, n=5) | {"more": "new"}, lsn=2, offset=1)
    lines = landing.land(job.batch([lacks], 1), work)
    assert [line.by_executors for line in lines if line.table] == [1]
    assert job.rows("a") == {1: row(1, "first", 5) | {"more": "new"}}
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
def test_a_truncate_ends_what_is_known_of_a_row(job: Job) -> None:
    job.land(change("c", "a", 1, row(1, "before"), lsn=1, offset=0))
    job.land(
        change("t", "a", None, lsn=2, offset=1),
        change("u", "a", 1, row(1, n=1), lsn=3, offset=2),
        change("c", "a", 2, row(2, "after"), lsn=4, offset=3),
        *moved(2, row(3), lsn=5, offset=4),
    )
    assert job.rows("a") == {3: row(3, "after")}
    assert sorted(reasons(job)) == [2]


@pytest.mark.sweep("iceberg", "delta-d", "delta-t")
@pytest.mark.parametrize("late", ["d", "t", "u"])
def test_a_change_that_comes_late_takes_nothing_from_a_newer_row(job: Job, late: str) -> None:
    """One row changes its key, another is updated; a third has a value that nobody has."""
    job.land(*(change("c", "a", n, row(n, f"body {n}"), lsn=5, offset=n) for n in (1, 2)))
    olds = {"d": lambda n: None, "u": lambda n: row(n, "old")}
    events = [change(late, "a", n, olds[late](n), lsn=3, offset=n + 2) for n in (1, 2) if late != "t"]
    events = events or [change("t", "a", None, lsn=3, offset=3)]
    job.land(
        *events,
        *moved(1, row(3, n=7), lsn=7, offset=10),
        change("u", "a", 2, row(2, n=8), lsn=8, offset=12),
        change("u", "a", 9, row(9, n=9), lsn=9, offset=13),
    )
    assert job.rows("a") == {3: row(3, "body 1", 7), 2: row(2, "body 2", 8)}
    assert sorted(reasons(job)) == [13]
    assert job.verdict().faults == ()


def test_a_late_change_beside_one_whose_value_nobody_has_is_no_letter(job: Job) -> None:
    job.land(change("c", "a", 1, row(1, "whole"), lsn=30, offset=0))
    job.land(
        change("u", "a", 1, row(1, n=5), lsn=10, offset=1), change("u", "a", 9, row(9, n=7), lsn=31, offset=2)
    )
    assert job.rows("a") == {1: row(1, "whole")}
    assert sorted(reasons(job)) == [2]
    assert job.verdict().faults == ()


def test_a_change_that_lacks_a_value_never_lands_with_null(tmp_path: Path) -> None:
    """A column orders the changes, and an older position of the source brings the newer row."""
    (tmp_path / "lake").mkdir()
    job = Job(tmp_path, [{"table": "a", "sequence": "precombine", "precombine_key": ["n"]}], "delta")
    job.land(
        change("u", "a", 1, row(1, "whole", 1), lsn=30, offset=0),
        change("u", "a", 1, row(1, n=5), lsn=10, offset=1),
        change("u", "a", 9, row(9, n=7), lsn=31, offset=2),
    )
    assert job.rows("a") == {1: row(1, "whole", 1)}
    assert sorted(reasons(job)) == [1, 2]
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_large_values_follow_any_changes_of_keys(job: Job, seed: int) -> None:
    """A random source that leaves out whatever did not change, its batches cut anywhere."""
    draw = random.Random(seed)
    rows: Rows = {}
    records: list[KafkaRecord] = []
    for lsn in range(1, 100):
        key, n, offset = draw.randrange(8), lsn, len(records)
        known = rows.get(key)
        if known is None:
            rows[key] = row(key, f"body {lsn}", n)
            records.append(change("c", "a", key, rows[key], lsn=lsn, offset=offset))
        elif draw.random() < 0.2:
            del rows[key]
            records.append(change("d", "a", key, lsn=lsn, offset=offset))
        elif draw.random() < 0.4 and (new := draw.randrange(8)) not in rows:
            rows[new] = {**rows.pop(key), "id": new, "n": n}
            records += moved(key, row(new, n=n), lsn=lsn, offset=offset)
        else:
            rows[key] = row(key, f"body {lsn}" if draw.random() < 0.2 else known["body"], n)
            left = rows[key]["body"] if rows[key]["body"] != known["body"] else GONE
            records.append(change("u", "a", key, row(key, left, n), lsn=lsn, offset=offset))
    landing = job.landing()
    for part in cut(records, draw.randrange(8, 25)):
        landing.land(job.batch(part))
    assert job.rows("a") == rows
    assert not job.letters()
    assert job.verdict().faults == ()


@pytest.mark.sweep("iceberg", "delta-2", "delta-3")
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_key_that_changed_while_a_snapshot_was_taken_has_its_newest_values(job: Job, size: int) -> None:
    """The snapshot's row is in the partition of the old key alone, so only that half is known to come after it."""
    taken = postgres(150, "a", sequence='[null,"150"]', snapshot="true")
    snapshot = record(event("r", row(1, "kept", 1), source=taken), {"id": 1}, offset=0)
    events = [snapshot, *moved(1, row(2, "kept", 2), lsn=90, offset=1, partitions=(0, 1))]
    for some in cut(events, size):
        job.land(*some)
    assert job.rows("a") == {2: row(2, "kept", 2)}


@pytest.mark.sweep("iceberg", "odd2", "odd3", "1180591620717411303424")
@pytest.mark.parametrize("odd", ["x", 2**70, [1], {"a": 1}, 1.5])
def test_a_key_that_the_table_cannot_have_holds_up_no_other_record(job: Job, odd: Any) -> None:
    """The table is asked for the row of the old key, and the column of its key has another type."""
    job.land(change("c", "a", 1, row(1, "first"), lsn=1, offset=0))
    delete, insert = moved(odd, row(2, n=5), lsn=2, offset=1)
    job.land(delete, insert, change("c", "a", 3, row(3, "third"), lsn=3, offset=3))
    delete, _ = moved(1, row(odd), lsn=4, offset=4)
    job.land(delete, change("c", "a", 4, row(4, "fourth"), lsn=5, offset=5))
    assert job.rows("a").keys() - {1} == {3, 4}
    assert not job.verdict().faults
