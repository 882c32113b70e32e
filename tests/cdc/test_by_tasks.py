"""Batches that tasks on executors decode, decide about and write: rows, letters, and the ledger are as their source says."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.table import by_tasks
from safewrite.cdc.table.by_tasks import TASKS_EACH, TURNS
from safewrite.cdc.table.decode_task import DecodeTask
from safewrite.cdc.table.table_batch import TableBatch
from safewrite.engine.local import LocalEngine
from tests.cdc.events import event, postgres, record
from tests.cdc.jobs import Job, Rows, Source, change, cut
from tests.cdc.on_executors import Executors, work_of
from tests.cdc.worlds import World, faults_of
from tests.each import each

WHERE = ("commit_ms", "closed_ms", "by_executors", "one_by_one")
"""What a line of the ledger says of who landed, and when."""


def told(lines: list[LedgerEntry], form: str = "delta") -> list[dict[str, Any]]:
    """Lines of the ledger, whoever landed them; ids of Iceberg's snapshots are drawn."""
    left_out = {*WHERE, "version"} if form == "iceberg" else WHERE
    found = [{name: at for name, at in asdict(one).items() if name not in left_out} for one in lines]
    return sorted(found, key=lambda line: (line["batch"], line["table"] or ""))


def by_executors(lines: list[LedgerEntry]) -> dict[str, tuple[int, int]]:
    """Of each table how many records executors landed, of how many."""
    found: dict[str, tuple[int, int]] = {}
    for line in lines:
        if line.table is not None:
            one, all_of = found.get(line.table, (0, 0))
            found[line.table] = one + line.by_executors, all_of + line.records
    return found


def job_of(folder: Path, form: str = "delta", **more: Any) -> Job:
    folder.mkdir()
    return Job(folder, [{"table": one, **more} for one in "abc"], form, schemas=True)


def rows_in(job: Job, name: str) -> Rows:
    """The rows of a table by key, by a reader of deletion vectors."""
    if job.form == "iceberg":
        return job.rows(name)
    table = deltalake.DeltaTable(f"{job.folder}/db/{name}")
    query = deltalake.QueryBuilder().register("t", table).execute("SELECT id, name, n FROM t")
    rows = pa.table(query.read_all()).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


def landed(job: Job, batches: list[list[KafkaRecord]], executors: Executors | None) -> list[LedgerEntry]:
    landing, lines = job.landing(), list[LedgerEntry]()
    for number, records in enumerate(batches):
        lines += landing.land(job.batch(records, number), work_of(executors))
    assert job.verdict().faults == ()
    return lines


@pytest.mark.sweep("24", "25")
@pytest.mark.parametrize(
    ("seed", "how"),
    [
        (23, {}),
        (24, {"write_mode": "merge-on-read", "readers": ["deltalake"]}),
        (25, {"form": "iceberg"}),
        pytest.param(26, {"form": "iceberg", "write_mode": "merge-on-read"}, marks=pytest.mark.long),
        *(pytest.param(seed, {}, marks=pytest.mark.long) for seed in range(9)),
    ],
)
def test_a_job_lands_by_executors(tmp_path: Path, seed: int, how: dict[str, Any]) -> None:
    """A random source, whose tables change keys; one of its records is poison."""
    source = Source(seed)
    source.run(160)
    batches = cut(source.records, 40)
    batches[1].append(record(b"\xff poison", b"k", offset=0, partition=2))
    job = job_of(tmp_path / "lake", **how)
    lines = landed(job, batches, Executors())
    assert {one: rows_in(job, one) for one in source.tables} == source.rows
    assert [(one["partition"], one["offset"]) for one in job.letters()] == [(2, 0)]
    assert all(one == all_of for one, all_of in by_executors(lines).values())


@pytest.mark.sweep("1", "3", "5")
@pytest.mark.parametrize("lost", [1, 2, 3, 5])
def test_a_batch_whose_executors_go_is_landed_again(tmp_path: Path, lost: int) -> None:
    """Before it is decoded, looked up, decided about, or rewritten; the second time all stays."""
    source, executors = Source(5), Executors(lost=frozenset({lost}))
    source.run(60)
    job = job_of(tmp_path / "lake")
    lines = landed(job, cut(source.records, 30), executors)
    assert {one: job.rows(one) for one in source.tables} == source.rows
    assert all(one == all_of for one, all_of in by_executors(lines).values())
    assert executors.jobs > lost


def test_executors_that_always_go_stop_the_job(tmp_path: Path) -> None:
    job = job_of(tmp_path / "lake")
    source = Source(5)
    with pytest.raises(sw.StorageError, match="an executor is gone"):
        landed(job, [source.run(9)], Executors(lost=frozenset(range(99))))


def rows_of(first: int, count: int, **row: Any) -> list[KafkaRecord]:
    """Inserts into table a, at these positions."""
    return [
        change("c", "a", at, {"id": at, **row}, lsn=100 + at, offset=at) for at in range(first, first + count)
    ]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return job_of(tmp_path / "lake")


def test_what_does_not_fit_is_a_dead_letter_of_a_table_that_was_there_before(job: Job) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int8())])
    deltalake.write_deltalake(f"{job.folder}/db/a", schema.empty_table())
    lines = landed(job, [[*rows_of(0, 3, n=1), *rows_of(3, 1, n=1000)], rows_of(4, 2, n=2)], Executors())
    assert by_executors(lines) == {"db.a": (6, 6)}
    assert sorted(job.rows("a")) == [0, 1, 2, 4, 5]
    assert [letter["offset"] for letter in job.letters()] == [3]


def test_what_does_not_fit_is_a_dead_letter_of_the_task_that_reads_it(tmp_path: Path) -> None:
    """Also of a change that moves a row to another key, which leaves the row; and where no other record comes with it."""
    for name, there in (("here", None), ("there", Executors())):
        job = job_of(tmp_path / name)
        lines = landed(job, [rows_of(0, 2, n=1)], there)
        before, after = {"id": 1, "n": 1}, {"id": 20, "n": "no number"}
        moved = record(event("u", after, before, source=postgres(500, "a")), {"id": 20}, offset=11)
        more = [[*rows_of(2, 8, n=1), *rows_of(10, 1, n="no number"), moved], rows_of(12, 1, n="none either")]
        landing = job.landing()
        decode, decoded = landing.decoder.decode, list[int]()

        def counted(records: Any, *more: Any) -> Any:
            decoded.append(len(records))  # noqa: B023
            return decode(records, *more)  # noqa: B023

        landing.decoder.decode = counted if there is None else decode  # type: ignore[method-assign]
        for number, records in enumerate(more, 1):
            lines += landing.land(job.batch(records, number), work_of(there))
        assert sorted(job.rows("a")) == [*range(10)]
        assert sorted(letter["offset"] for letter in job.letters()) == [10, 11, 12]
        assert [line.dead for line in lines if line.table] == [0, 2, 1]
        assert job.verdict().faults == ()
        if there is None:
            assert decoded == [10, 1]
        else:
            assert by_executors(lines) == {"db.a": (13, 13)}


def test_records_that_do_not_come_again_stop_the_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka deleted some before a table was read for the second time, whole."""
    executors, landing = Executors(), job.landing()
    landing.land(job.batch(rows_of(0, 2, n=1)), executors.work)
    mapped = executors.map

    def some_of(source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
        again = isinstance(task, DecodeTask) and task.only is not None
        return mapped([inputs[1:] for inputs in source] if again else source, task)

    monkeypatch.setattr(executors, "map", some_of)
    with pytest.raises(sw.StorageError, match=r"9 records of db\.a, and \d came when they were read again"):
        landing.land(job.batch([*rows_of(2, 8, m=1), *rows_of(10, 1, m="of two types")], 1), executors.work)
    assert sorted(job.rows("a")) == [0, 1]


def test_late_changes_are_looked_at_each(job: Job) -> None:
    """A source that was set back is refused as without executors."""
    new = [change("c", "a", 1, {"id": 1, "n": 1}, lsn=500, offset=0)]
    newer = event("u", {"id": 1, "n": 2}, source=postgres(400, "a", ts_ms=1_814_000_000_000))
    old = [record(newer, {"id": 1}, offset=1), change("c", "a", 2, {"id": 2, "n": 1}, lsn=600, offset=2)]
    with pytest.raises(sw.InvalidInputError, match="set back"):
        landed(job, [new, old], Executors())
    assert job.rows("a") == {1: {"id": 1, "n": 1}}


def test_a_table_that_another_writer_changed_is_looked_at_and_landed_in_parts(job: Job) -> None:
    """It has a new column, and lacks a row with a key of the next batch."""
    landing, executors = job.landing(), Executors()
    lines = landing.land(job.batch(rows_of(0, 3, n=1)), executors.work)
    found = sw.open(f"{job.folder}/db/a")
    found.append(pa.schema([*found.schema, pa.field("more", pa.string())]).empty_table(), schema_mode="merge")
    found.delete("id = 1")
    again = [change("u", "a", 2, {"id": 2, "n": 3}, lsn=300, offset=3)]
    lines += landing.land(job.batch([*again, *rows_of(4, 1, n=1)], 1), executors.work)
    lines += landing.land(job.batch(rows_of(5, 2, n=1), 2), executors.work)
    assert by_executors(lines) == {"db.a": (7, 7)}
    assert {key: row["n"] for key, row in job.rows("a").items()} == {0: 1, 2: 3, 4: 1, 5: 1, 6: 1}


def test_a_writer_between_plan_and_commit_is_taken_in(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows that it added are looked through, by tasks again."""
    landing, executors = job.landing(), Executors()
    landing.land(job.batch(rows_of(0, 3, n=1)), executors.work)
    other, done = sw.open(f"{job.folder}/db/a"), list[int]()
    decide = executors.map

    def between(source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
        if executors.jobs == 5 and not done:
            done.append(executors.jobs)
            values = {"id": [9], "n": [9], "_cdc_epoch": [0], "_cdc_sequence": ["0"]}
            other.append(pa.table(values).cast(other.schema))
        return decide(source, task)

    monkeypatch.setattr(executors, "map", between)
    lines = landing.land(
        job.batch([change("u", "a", 9, {"id": 9, "n": 3}, lsn=300, offset=3)], 1), executors.work
    )
    assert by_executors(lines) == {"db.a": (1, 1)}
    assert job.rows("a")[9]["n"] == 3


def test_a_driver_that_died_between_two_tables_finds_what_landed(job: Job) -> None:
    source, landing = Source(8), job.landing()
    batch, executors, applied = job.batch(source.run(40)), Executors(), landing._apply
    landing._apply = lambda share: None if share.table.name == "db.b" else applied(share)  # type: ignore[method-assign]
    landing.ledger.write = lambda *given: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        landing.land(batch, executors.work)
    lines = job.landing().land(batch, executors.work)
    assert {one: job.rows(one) for one in source.tables} == source.rows
    assert job.verdict().faults == ()
    assert all(one == all_of for one, all_of in by_executors(lines).values())


def test_a_driver_that_died_before_the_first_commit_leaves_the_batch_to_executors(job: Job) -> None:
    """The tables have their columns, and no positions: the new process sees that when tasks have read the records."""
    source, landing = Source(8), job.landing()
    batch, executors = job.batch(source.run(40)), Executors()
    landing._apply = lambda share: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(ZeroDivisionError):
        landing.land(batch, executors.work)
    lines = job.landing().land(batch, executors.work)
    assert {one: job.rows(one) for one in source.tables} == source.rows
    assert all(one == all_of for one, all_of in by_executors(lines).values())


def test_a_table_that_changes_each_time_it_is_looked_at_lands_in_one_part(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, executors = job.landing(), Executors()
    landing.land(job.batch(rows_of(0, 3, n=1)), executors.work)
    decode, turns = executors.map, list[int]()

    def altering(source: Any, task: Any, rows_a_batch: int | None = None) -> Any:
        if isinstance(task, DecodeTask) and task.only is None:
            found, column = sw.open(f"{job.folder}/db/a"), pa.field(f"more_{len(turns)}", pa.string())
            found.append(pa.schema([*found.schema, column]).empty_table(), schema_mode="merge")
            turns.append(1)
        return decode(source, task)

    monkeypatch.setattr(executors, "map", altering)
    lines = landing.land(job.batch(rows_of(3, 4, n=1), 1), executors.work)
    assert (by_executors(lines), len(turns)) == ({"db.a": (0, 4)}, TURNS - 1)
    assert sorted(job.rows("a")) == [*range(7)]


@each("there", [True, False])
def test_tasks_pass_over_records_that_have_landed_before(
    there: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A driver dies before the ledger, and batches are cut otherwise then: one has some of them, another one nothing else."""
    job, source = job_of(tmp_path_factory.mktemp("lakes") / "lake"), Source(8)
    work = work_of(Executors() if there else None)
    job.landing().land(job.batch(source.run(20)), work)
    dying = job.landing()
    dying.ledger.write = lambda *given: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    some = source.run(40)
    with pytest.raises(ZeroDivisionError):
        dying.land(job.batch(some, 1), work)
    landing, lines = job.landing(), list[LedgerEntry]()
    for number, records in enumerate([some[:10], [*some[10:], *source.run(20)]], 1):
        lines += landing.land(job.batch(records, number), work)
    assert {one: job.rows(one) for one in source.tables} == source.rows
    assert job.verdict().faults == ()
    of_tables = [line for line in lines if line.table]
    assert all(line.earlier == line.records for line in of_tables if line.batch == 1)
    assert all(0 < line.earlier < line.records for line in of_tables if line.batch == 2)
    if there:
        assert all(one == all_of for one, all_of in by_executors(lines).values())


COUNTED_AGAIN: list[dict[str, Any]] = [
    {},
    {"mode": "append", "metadata": {"op": "op"}},
    {"mode": "history"},
    {"deleted_column": "gone"},
    {"sequence": "precombine", "precombine_key": ["n"]},
]


@pytest.mark.parametrize(
    "how", [0, *(pytest.param(one, marks=pytest.mark.long) for one in range(1, len(COUNTED_AGAIN)))]
)
def test_a_batch_that_was_committed_whole_is_counted_again_by_tasks(
    tmp_path: Path, how: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver dies before the ledger.  The lines say what those of a driver that lives say, and no table is written to."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    source, found = Source(31), []
    batches = [source.run(20), source.run(40)]
    batches[1].append(record(b"\xff poison", b"k", offset=0, partition=2))
    bad = event("u", {"id": 1, "n": "none"}, source=postgres(999, "a"))
    move = event("u", {"id": 78, "n": 1}, {"id": 77, "n": 1}, source=postgres(1000, "a"))
    idle = event("d", None, {"id": 9999}, source=postgres(1001, "a"))
    batches[1] += [
        record(given, {"id": key}, offset=at, partition=2)
        for at, (given, key) in enumerate([(bad, 1), (move, 78), (idle, 9999)], 1)
    ]
    for name in ("one", "two"):
        job = Job(tmp_path / name, [{"table": one, **COUNTED_AGAIN[how]} for one in "abc"], schemas=True)
        work = work_of(Executors())
        job.landing().land(job.batch(batches[0]), work)
        if name == "two":
            dying = job.landing()
            dying.ledger.write = lambda *given: 1 / 0  # type: ignore[method-assign, assignment, return-value]
            with pytest.raises(ZeroDivisionError):
                dying.land(job.batch(batches[1], 1), work)
            again = job.landing()
            monkeypatch.setattr(TableBatch, "prepared", lambda *given: 1 / 0)
            lines = again.land(job.batch(batches[1], 1), work)
            assert all(one == all_of for one, all_of in by_executors(lines).values())
        else:
            lines = job.landing().land(job.batch(batches[1], 1), work)
        found.append((told([line for line in lines if line.table]), len(job.letters())))
        assert job.verdict().faults == ()
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(40))
def test_the_lake_is_as_its_sources_by_executors(tmp_path: Path, seed: int) -> None:
    executors = Executors(lost=frozenset(range(7, 200, 11)))
    assert faults_of(seed, tmp_path, executors.work) == []


@pytest.mark.long
def test_a_seed_lands_by_executors_and_by_the_driver(tmp_path: Path) -> None:
    world = World(6, tmp_path, Executors().work)
    assert world.run() == []
    ways = {line.by_executors == line.records for line in world.lines if line.table is not None}
    assert ways == {True, False}
    assert all(replace(line, records=line.records + 1).adds_up is False for line in world.lines)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("count", [1, 90])
def test_t4_b2_a_truncate_alone_in_its_partition_takes_the_key_of_the_batch(
    tmp_path: Path, form: str, count: int
) -> None:
    """It came as a dead letter where the table was new, for its task saw no key, and rows from before it stayed."""

    def told(op: str, key: int | None, lsn: int, partition: int = 0) -> KafkaRecord:
        row = None if key is None else {"id": key, "n": lsn}
        given = None if key is None else {"id": key}
        content = event(op, row, None, source=postgres(lsn, "a"))
        return record(content, given, offset=lsn, partition=partition)

    records = [told("c", at, 10 + at) for at in range(count)]
    records += [told("t", None, 5000, 1), *(told("c", 9000 + at, 6000 + at) for at in range(count))]
    job = Job(tmp_path, [{"table": "a"}], form, schemas=False)
    lines = landed(job, [records], Executors())
    assert sorted(job.rows("a")) == [9000 + at for at in range(count)]
    assert told_of(lines) == [(len(records), count + 1, 0)]


def told_of(lines: list[LedgerEntry]) -> list[tuple[int, int, int]]:
    return [(line.records, line.applied, line.dead) for line in lines if line.table]


def test_t4_b2_truncates_without_any_key_are_dead_letters(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    source = [postgres(lsn, "a") for lsn in (1, 2)]
    records = [
        record(event("t", None, None, source=one), None, offset=at, partition=at)
        for at, one in enumerate(source)
    ]
    lines = landed(job, [records], Executors())
    assert told_of(lines) == [(2, 0, 2)]


def test_partitions_of_few_records_are_decoded_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4-B4: a task reads a schema of which it has few records one by one, and with many partitions each had few."""
    source, inputs = Source(27, partitions=12), list[int]()
    source.run(120)
    counted = LocalEngine.map

    def map_of(engine: Executors, given: Any, task: Any, rows_a_batch: int | None = None) -> Any:
        if isinstance(task, DecodeTask):
            inputs.append(len(given))
        return counted(engine, given, task, rows_a_batch)

    monkeypatch.setattr(LocalEngine, "map", map_of)
    for name, records in (("one", 5000), ("some", 50)):
        monkeypatch.setattr("safewrite.cdc.table.by_tasks.DECODED", records)
        job = job_of(tmp_path / name)
        lines = landed(job, [source.records], Executors(gathers=True))
        executors, cores = -(-len(source.records) // records), 2
        assert inputs[0] == min(executors, cores * TASKS_EACH) < 12
        assert {one: job.rows(one) for one in source.tables} == source.rows
        assert all(one == all_of for one, all_of in by_executors(lines).values())
        inputs.clear()


def test_the_threads_that_commit_tables_stay_from_batch_to_batch(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new one was a connection to Spark's Java, and a thread there."""
    by_tasks._threads_of.cache_clear()  # other tests had more tables at once, and any of their threads may come
    landing, executors, threads = job.landing(), Executors(), set[int | None]()
    apply = landing._apply

    def noted(share: Any) -> None:
        threads.add(threading.current_thread().native_id)
        apply(share)

    monkeypatch.setattr(landing, "_apply", noted)
    for number in range(6):
        landing.land(job.batch(rows_of(number, 1, n=1), number), executors.work)
    assert len(threads) < 6
    assert len(job.rows("a")) == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns of forks beside threads
def test_a_forked_driver_goes_on_with_threads_of_its_own(job: Job) -> None:
    """Those of before the fork are its parent's: what is given to them is done by nobody."""
    landing, executors = job.landing(), Executors()
    landing.land(job.batch(rows_of(0, 1, n=1), 0), executors.work)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            code = 1 - len(landing.land(job.batch(rows_of(1, 1, n=1), 1), executors.work)) // 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(job.rows("a")) == 2
