"""Tables that keep every version of their rows: against an oracle that has all changes at once, whatever came late or twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.landing.job_plan import plan
from safewrite.cdc.records.change import KafkaRecord
from safewrite.delta.connect import Connection
from safewrite.iceberg.catalog import addresses
from safewrite.iceberg.write import apply_by_tasks
from tests.cdc.events import decoded, event, postgres, record
from tests.cdc.jobs import FORM_AND_SCHEMAS, Job, Source, change, cut
from tests.cdc.on_executors import Executors, work_of
from tests.cdc.test_soft_deletes import expected as marked

LATE = {"mode": "history", "all_late": "count"}
Version = tuple[Any, str, str | None, Any]
"""A key, where a version begins and ends, and its value."""


def versions(job: Job, name: str = "a") -> Counter[Version]:
    """The versions of a table, as often as they are there, by a reader that is not ours; those without any length are left out."""
    return Counter(
        (row["id"], row["_cdc_sequence"], row["_cdc_until_sequence"], row["n"])
        for row in job.read(name).to_pylist()
        if row["_cdc_sequence"] != row["_cdc_until_sequence"]
    )


def expected(records: list[KafkaRecord], name: str = "a") -> Counter[Version]:
    """The versions by all changes in the order of their positions; a record that was sent twice counts once."""
    changes: dict[Any, dict[str, tuple[str, Any]]] = {}
    cores = set()
    for one in sorted(records, key=lambda one: one.offset):
        if one.value is None or json.loads(one.value)["source"]["table"] != name:
            continue
        (found,) = decoded(one).rows
        core = found.position.rpartition("-")[0], one.key
        if core in cores:
            continue
        cores.add(core)
        key = json.loads(one.key or b"")["id"]
        changes.setdefault(key, {})[found.position] = (found.op.value, (found.after or {}).get("n"))
    made = Counter[Version]()
    for key, of_key in changes.items():
        order = sorted(of_key)
        for at, until in zip(order, [*order[1:], None], strict=True):
            op, value = of_key[at]
            if op == "u":
                made[key, at, until, value] += 1
    return made


def late_changes(seed: int, count: int) -> list[KafkaRecord]:
    """Changes of a few keys, some of them later in the topic than by their position, and some sent twice."""
    draw = random.Random(seed)
    order = sorted(range(1, count + 1), key=lambda lsn: lsn + draw.randrange(0, 9))
    found = list[KafkaRecord]()
    for lsn in order:
        key, op = draw.randrange(4), draw.choice("cuud")
        row = None if op == "d" else {"id": key, "n": lsn}
        found.append(change(op, "a", key, row, lsn=lsn, offset=len(found)))
        if draw.random() < 0.1:
            found.append(change(op, "a", key, row, lsn=lsn, offset=len(found)))
    return found


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize(
    ("form", "seed", "schemas", "executors"),
    [
        ("delta", 1, True, True),
        ("iceberg", 2, False, False),
        *(
            pytest.param(form, seed, seed % 2 == 0, seed % 3 > 0, marks=pytest.mark.long)
            for form in ("delta", "iceberg")
            for seed in range(1, 15)
        ),
    ],
)
def test_versions_are_those_of_all_changes_in_their_order(
    tmp_path: Path, form: str, seed: int, schemas: bool, executors: bool
) -> None:
    """Late ones are put between those that are there; a driver dies after a commit; each batch comes twice.

    Executors land each batch, and count the one that an attempt before has landed.
    """
    job = Job(tmp_path, [{"table": "a", **LATE}], form, schemas=schemas)
    job.work = work_of(Executors() if executors else None)
    records, landed = late_changes(seed, 60), list[KafkaRecord]()
    for number, part in enumerate(cut(records, 13)):
        if number % 2:
            job.land_and_die(*part, number=number)
        lines = job.land(*part, number=number)
        assert sum(line.by_executors for line in lines) == len(part) * executors
        job.land(*part, number=number)
        landed += part
        assert versions(job) == expected(landed), number
    assert not job.letters()
    assert job.verdict().faults == ()
    (_, account) = job.verdict().accounts
    assert account.totals["records"] == account.totals["applied"] == len(records)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_versions_land_where_no_task_can_reach_the_store(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its credentials cannot be sent: all changes are decided about together here, and the versions are the same."""
    monkeypatch.setattr(Connection, "store", lambda _: None)
    for module in (addresses, apply_by_tasks):
        monkeypatch.setattr(module, "address_of", lambda *_: None)
    job = Job(tmp_path, [{"table": "a", **LATE}], form)
    records = late_changes(4, 60)
    for number, part in enumerate(cut(records, 20)):
        if number % 2:
            job.land_and_die(*part, number=number)
        job.land(*part, number=number)
    assert versions(job) == expected(records)
    (_, account) = job.verdict().accounts
    assert account.totals["records"] == account.totals["applied"] == len(records)
    assert not job.verdict().faults


KEEPING = [{"table": "a", "mode": "history"}, {"table": "b", "deleted_column": "is_gone"}, {"table": "c"}]
"""Tables that keep versions, rows that were deleted, and neither."""


def assert_kept(job: Job, source: Source) -> None:
    """These tables are as the changes of their source say, wherever Kafka has these."""
    wanted, found = (
        Counter((key, core(start), core(end), n) for key, start, end, n in some.elements())
        for some in (expected(source.records), versions(job))
    )
    assert found == wanted
    changes = [one for one in source.records if one.value is not None]
    of_b = [one for one in changes if json.loads(one.value or b"")["source"]["table"] == "b"]
    assert job.rows("b") == marked(of_b)
    assert job.rows("c") == source.rows["c"]
    assert not job.letters()
    verdict = job.verdict()
    assert verdict.faults == ()
    assert sum(one.totals["records"] for one in verdict.accounts) == len(source.records)


def core(position: str | None) -> str | None:
    """A position without Kafka's offset."""
    return position and position.rpartition("-")[0]


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("lost", range(1, 7))
def test_what_is_kept_is_exact_where_executors_go_and_drivers_die(
    tmp_path: Path, form: str, lost: int
) -> None:
    """Executors go before a job of the first batches; a driver dies between the commits of two tables."""
    job, source = Job(tmp_path, KEEPING, form, schemas=True), Source(17)
    job.work = work_of(Executors(lost=frozenset({lost, lost + 9, lost + 21})))
    source.run(90)
    for number, part in enumerate(cut(source.records, 30)):
        if number:
            dying, done = job.landing(), list[Any]()

            def dies(share: Any, done: list[Any] = done) -> None:
                done.append(share)
                if len(done) > 1:
                    raise RuntimeError("the driver dies here")
                share.apply()

            dying._apply = dies  # type: ignore[method-assign]
            with pytest.raises((RuntimeError, sw.StorageError)):
                job.land(*part, landing=dying, number=number)
        job.land(*part, number=number)
    assert_kept(job, source)


@pytest.mark.long
@FORM_AND_SCHEMAS
def test_the_versions_without_an_end_are_the_rows_of_the_source(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    """A random source, whose rows change their keys; its tombstones say nothing."""
    job = Job(tmp_path, [{"table": "a", **LATE}], form, schemas=schemas)
    source = Source(21, tables=("a",))
    for part in cut(source.run(120), 40):
        job.land(*part)
    current = [row for row in job.read("a").to_pylist() if row["_cdc_until_sequence"] is None]
    assert {row["id"]: {name: row[name] for name in ("id", "name", "n")} for row in current} == source.rows[
        "a"
    ]
    assert len(current) == len(source.rows["a"])
    assert job.verdict().faults == ()


def at(clock_s: int) -> datetime:
    return datetime.fromtimestamp(clock_s, UTC)


def told(op: str, row: Any, *, lsn: int, offset: int, clock_s: int) -> KafkaRecord:
    source = postgres(lsn, "a", ts_ms=clock_s * 1000)
    return record(event(op, row, source=source), {"id": 1}, offset=offset)


def test_versions_have_the_times_of_their_source(tmp_path: Path) -> None:
    """A version that ends by a delete, a row that comes again, and what was valid at a time."""
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(told("c", {"id": 1, "n": 1}, lsn=1, offset=0, clock_s=100))
    job.land(
        told("u", {"id": 1, "n": 2}, lsn=2, offset=1, clock_s=200),
        told("d", None, lsn=3, offset=2, clock_s=300),
    )
    job.land(told("c", {"id": 1, "n": 4}, lsn=4, offset=3, clock_s=400))
    rows = sorted(job.read("a").to_pylist(), key=lambda row: row["_cdc_sequence"])
    assert [(row["n"], row["_cdc_from_time"], row["_cdc_until_time"]) for row in rows] == [
        (1, at(100), at(200)),
        (2, at(200), at(300)),
        (4, at(400), None),
    ]
    assert [row["_cdc_until_epoch"] for row in rows] == [0, 0, None]


def test_a_new_epoch_begins_behind_all_positions_of_the_one_before(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=500, offset=0))
    with pytest.raises(sw.InvalidInputError, match="set back"):
        job.land(told("u", {"id": 1, "n": 2}, lsn=5, offset=1, clock_s=1_814_000_000))
    job.tables[0]["epoch"] = 1
    job.land(told("u", {"id": 1, "n": 2}, lsn=5, offset=1, clock_s=1_814_000_000))
    rows = sorted(job.read("a").to_pylist(), key=lambda row: row["_cdc_epoch"])
    assert [(row["n"], row["_cdc_epoch"], row["_cdc_until_epoch"]) for row in rows] == [
        (1, 0, 1),
        (2, 1, None),
    ]
    assert rows[0]["_cdc_until_sequence"] == rows[1]["_cdc_sequence"]


@pytest.mark.long
def test_a_dead_letter_is_replayed_into_its_place(tmp_path: Path) -> None:
    """It is older than what landed since; a replay that dies is finished by the next one."""
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    bad = change("u", "a", 1, {"id": 1, "n": "x"}, lsn=2, offset=1)
    job.land(bad, change("u", "a", 1, {"id": 1, "n": 3}, lsn=3, offset=2))
    assert [letter["offset"] for letter in job.letters()] == [1]
    job.tables[0]["on_misfit"] = {"n": "null"}
    dying = job.landing()
    dying.ledger.write_replay = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        DeadLetters(dying).replay()
    assert DeadLetters(job.landing()).replay().landed == 1
    rows = sorted(job.read("a").to_pylist(), key=lambda row: row["_cdc_sequence"])
    assert [row["n"] for row in rows] == [1, None, 3]
    assert [row["_cdc_until_sequence"] for row in rows] == [
        rows[1]["_cdc_sequence"],
        rows[2]["_cdc_sequence"],
        None,
    ]
    assert job.verdict().faults == ()


def test_a_replay_and_the_job_at_once_do_not_write_over_each_other(tmp_path: Path) -> None:
    """Both planned on the same versions: the second plans again, on what the first left."""
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.land(change("u", "a", 1, {"id": 1, "n": "x"}, lsn=2, offset=1))
    job.tables[0]["on_misfit"] = {"n": "null"}
    first, applied = job.landing(), None

    def between(share: Any) -> None:
        nonlocal applied
        if applied is None:
            applied = DeadLetters(job.landing()).replay()
        share.apply()

    first._apply = between  # type: ignore[method-assign]
    job.land(change("u", "a", 1, {"id": 1, "n": 3}, lsn=3, offset=2), landing=first)
    assert applied is not None
    assert applied.landed == 1
    job.land(change("u", "a", 1, {"id": 1, "n": 3}, lsn=3, offset=2))
    rows = sorted(job.read("a").to_pylist(), key=lambda row: row["_cdc_sequence"])
    assert [row["n"] for row in rows] == [1, None, 3]
    ends = [row["_cdc_until_sequence"] for row in rows]
    assert ends == [rows[1]["_cdc_sequence"], rows[2]["_cdc_sequence"], None]
    assert job.verdict().faults == ()


@pytest.mark.long
def test_versions_are_not_planned_again_where_another_driver_landed_the_batch(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    second = change("u", "a", 1, {"id": 1, "n": 2}, lsn=2, offset=1)
    first, version = job.landing(), 0

    def between(share: Any) -> None:
        nonlocal version
        job.land(second, change("u", "a", 1, {"id": 1, "n": 3}, lsn=3, offset=2), number=7)
        version = sw.open(str(tmp_path / "db" / "a")).version
        share.apply()

    first._apply = between  # type: ignore[method-assign]
    with pytest.raises(sw.ConflictError) as caught:
        job.land(second, landing=first)
    assert caught.value.kind is sw.Kind.POSITION_MOVED
    assert sw.open(str(tmp_path / "db" / "a")).version == version


def test_what_no_version_can_follow_is_a_dead_letter(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(
        change("c", "a", 1, {"id": 1, "n": 1, "s": "x"}, lsn=1, offset=0),
        change("u", "a", 1, {"id": 1, "n": 2, "s": "__debezium_unavailable_value"}, lsn=2, offset=1),
        record(event("t", source=postgres(3, "a")), offset=2),
    )
    assert [row["n"] for row in job.read("a").to_pylist()] == [1]
    assert [letter["offset"] for letter in sorted(job.letters(), key=lambda one: one["offset"])] == [1, 2]


def test_a_table_does_not_change_its_mode(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.tables = [{"table": "a"}]
    with pytest.raises(sw.InvalidInputError, match="created with mode history"):
        job.land(change("c", "a", 2, {"id": 2, "n": 2}, lsn=2, offset=1))


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_delete_that_ends_nothing_yet_ends_what_comes_late(tmp_path: Path, form: str) -> None:
    """Before any row of its key, and behind another delete; by then versions are as they would be in order."""
    job = Job(tmp_path, [{"table": "a", **LATE}], form, schemas=False)
    given = [
        change("d", "a", 1, lsn=50, offset=0),
        change("c", "a", 1, {"id": 1, "n": 30}, lsn=30, offset=1),
        change("d", "a", 1, lsn=40, offset=2),
        change("u", "a", 1, {"id": 1, "n": 45}, lsn=45, offset=3),
    ]
    for place, one in enumerate(given, 1):
        job.land(one)
        assert versions(job) == expected(given[:place]), place
    assert sorted(value for *_, value in versions(job)) == [30, 45]


def test_a_tombstone_of_compaction_ends_the_version_that_is_open_and_no_other(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a", "mode": "history"}], schemas=False)

    def of(op: str, key: int, n: int, offset: int) -> KafkaRecord:
        row = None if op == "d" else {"id": key, "n": n}
        return record(
            event(op, row, source=postgres(n, "a")), {"id": key}, offset=offset, topic="pg.public.a"
        )

    def gone(key: int, offset: int) -> KafkaRecord:
        return record(None, {"id": key}, offset=offset, topic="pg.public.a")

    job.land(of("c", 1, 1, 0), of("c", 2, 2, 1), of("d", 2, 3, 2), gone(2, 3))
    before = versions(job)
    lines = job.land(gone(1, 10), gone(2, 11), gone(3, 12))
    assert [(line.records, line.applied, line.ignored) for line in lines if line.table] == [(3, 1, 2)]
    ended = {row["id"]: row["_cdc_until_sequence"] for row in job.read("a").to_pylist()}
    assert all(ended.values())
    assert len(before) == len(ended) == 2
    assert {one for one in before if one[0] == 2} <= {*versions(job)}
    assert job.verdict().faults == ()


def made_by_others(job: Job, rows: pa.Table) -> None:
    deltalake.write_deltalake(job.folder / "db" / "a", rows, mode="append", schema_mode="merge")


def test_rows_from_before_the_job_are_no_versions(tmp_path: Path) -> None:
    """Nothing says from when on they held; a table without rows is taken, and its rows are versions from then on."""
    table: dict[str, Any] = {"table": "a", "primary_key": ["id"]}
    job = Job(tmp_path, [table | {"mode": "history"}], schemas=False)
    made_by_others(job, pa.table({"id": [1], "n": [1]}).slice(0, 0))
    job.land(change("c", "a", 1, {"id": 1, "n": 2}, lsn=1, offset=0))
    upsert = Job(tmp_path, [table], schemas=False)
    with pytest.raises(sw.InvalidInputError, match="are versions, as mode history writes them"):
        upsert.land(change("u", "a", 1, {"id": 1, "n": 3}, lsn=2, offset=1))
    made_by_others(job, pa.table({"id": [1], "n": [9]}))
    with pytest.raises(sw.InvalidInputError, match="rows without _cdc_epoch or _cdc_sequence"):
        job.land(change("u", "a", 1, {"id": 1, "n": 3}, lsn=2, offset=1))

    job = Job(tmp_path / "with rows", job.tables, schemas=False)
    made_by_others(job, pa.table({"id": [1], "n": [1]}))
    with pytest.raises(
        sw.InvalidInputError, match="was there before with rows that are no versions"
    ) as caught:
        job.land(change("u", "a", 1, {"id": 1, "n": 2}, lsn=1, offset=0))
    (said,) = plan(job.landing()).tables
    assert (said.what, said.notes) == ("is refused", (str(caught.value),))
