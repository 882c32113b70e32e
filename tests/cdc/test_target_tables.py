"""A batch looks at each of its tables once, and at all of them beside each other."""

from __future__ import annotations

import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.landing.landing import Landing, TableBatch
from safewrite.cdc.ledger.target_tables import TargetTables
from safewrite.stores.local import LocalObjects
from tests.cdc.jobs import Job, Source, change
from tests.cdc.on_executors import Executors
from tests.cdc.test_by_tasks import landed
from tests.cdc.test_column_batches import ID, row

TABLES: list[dict[str, Any]] = [{"table": name} for name in "abc"]
LOOKS = {"delta": 2, "iceberg": 6}
"""For the table and the ledger: one before; on Iceberg also PyIceberg's, and how the commit ended."""
A = {"database": "db", "table": "a"}


@pytest.fixture(params=["delta", "iceberg"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Job:
    (tmp_path / "lake").mkdir()
    return Job(tmp_path, TABLES, request.param)


def looks(job: Job, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The requests from now on that ask what a table is now."""
    asked: list[object] = []
    owner: type[object] = LocalObjects if job.form == "delta" else SqlCatalog
    name = "list" if job.form == "delta" else "load_table"
    ask = getattr(owner, name)

    def counted(*given: Any, **more: Any) -> Any:
        asked.append(given)
        return ask(*given, **more)

    monkeypatch.setattr(owner, name, counted)
    return asked


def drop(job: Job) -> None:
    if job.form == "delta":
        shutil.rmtree(job.folder / "db" / "a")
    else:
        load_catalog(**job.catalog()).drop_table("db.a")


def first(name: str, key: int, *, lsn: int) -> Any:
    return change("c", name, key, {"id": key}, lsn=lsn, offset=lsn)


@pytest.mark.sweep("iceberg")
def test_a_known_table_and_its_positions_are_one_look(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    landing = job.landing()
    landing.land(job.batch([first("a", 1, lsn=0)]))
    job.land(first("a", 2, lsn=1), number=1)  # by another process
    asked = looks(job, monkeypatch)
    found, positions = landing.targets.position(TargetTable(**A, format=job.form))
    assert len(asked) == 1
    assert found is not None
    assert positions == found.positions()
    assert positions["job/topic/id-1/0"] == 2
    assert found.version == found.refresh().version


@pytest.mark.sweep("iceberg")
def test_a_batch_asks_what_a_table_is_no_oftener_than_its_commit_needs(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("safewrite.delta.format", "safewrite.iceberg.current"):
        monkeypatch.setattr(f"{module}.FRESH_S", 600.0)  # however busy the machine is
    landing = job.landing()
    for number in range(3):
        landing.land(job.batch([first("a", number, lsn=number)], number))
    for table in landing.targets._open.values():  # as if the batch before were long ago
        if job.form == "delta":
            table._format._known_s = None  # type: ignore[attr-defined]
        else:
            table._format._cached.seen_s = None  # type: ignore[attr-defined]
    asked = looks(job, monkeypatch)
    landing.land(job.batch([first("a", 3, lsn=3)], 3))
    assert len(asked) == LOOKS[job.form]


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_dropped_is_none_and_has_no_positions(job: Job) -> None:
    landing, table = job.landing(), TargetTable(**A, format=job.form)
    assert landing.targets.position(table) == (None, {})
    landing.land(job.batch([first("a", 1, lsn=0)]))
    drop(job)
    assert landing.targets.position(table) == (None, {})
    assert landing.targets.find(table) is None


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_made_anew_is_the_new_one(job: Job) -> None:
    landing, table = job.landing(), TargetTable(**A, format=job.form)
    landing.land(job.batch([first("a", 1, lsn=0)]))
    drop(job)
    TargetTables(job.landing().config).create(table, ["id"], [pa.field("id", pa.int64())])
    found, positions = landing.targets.position(table)
    assert found is not None
    assert positions == {}
    assert "id" in found.schema.names


@pytest.mark.sweep("iceberg")
def test_a_table_that_was_rolled_back_behind_its_positions_is_not_taken_for_a_new_one(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, table = job.landing(), TargetTable(**A, format=job.form)
    landing.land(job.batch([first("a", 1, lsn=0)]))
    found, _ = landing.targets.position(table)

    def lost() -> dict[str, int]:
        raise sw.ConflictError("rolled back", kind=sw.Kind.POSITION_MOVED)

    monkeypatch.setattr(found, "positions", lost)
    with pytest.raises(sw.ConflictError, match="rolled back"):
        landing.targets.position(table)


@pytest.mark.sweep("iceberg")
def test_tables_are_looked_at_beside_each_other(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    landing, source, together = job.landing(), Source(2), threading.Barrier(3)
    share = Landing._share

    def with_others(*given: Any) -> TableBatch:
        together.wait(20)
        return share(*given)

    monkeypatch.setattr(Landing, "_share", with_others)
    landing.land(job.batch(source.run(60)))
    assert {name: job.rows(name) for name in source.tables} == source.rows


@pytest.mark.sweep("iceberg")
def test_one_table_at_a_time_if_the_job_says_so(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    landing, busy, share = job.landing(parallel_tables=1), threading.Lock(), Landing._share

    def alone(*given: Any) -> TableBatch:
        assert busy.acquire(blocking=False)
        try:
            return share(*given)
        finally:
            busy.release()

    monkeypatch.setattr(Landing, "_share", alone)
    assert landing.land(job.batch(Source(2).run(60)))


@pytest.mark.sweep("iceberg")
def test_of_two_tables_at_fault_the_error_is_that_of_the_first_and_nothing_lands(job: Job) -> None:
    job.tables = [{"table": name, "dead_letters": "fail"} for name in "abc"]
    records = [
        change("c", "c", 1, {"id": 1}, lsn=0, offset=0),
        *(change("c", name, None, {"id": None}, lsn=at, offset=at) for at, name in enumerate("ba", 1)),
    ]
    with pytest.raises(sw.InvalidInputError, match=r"cannot land in db\.b"):
        job.landing().land(job.batch(records))
    assert not job.letters()
    assert job.landing().ledger.positions() == {}
    assert (
        TargetTables(job.landing().config).position(TargetTable(database="db", table="c", format=job.form))[1]
        == {}
    )


def test_a_namespace_that_may_be_a_slip_is_made_only_where_the_job_says_so(tmp_path: Path) -> None:
    """T3-D4, of jobs: on Glue and REST catalogs each missing namespace is refused, in SQL one that is near another."""
    (tmp_path / "lake").mkdir()
    orders = [{"table": "orders", "database": "shopp"}]
    strict, asked = (
        Job(tmp_path, orders, "iceberg"),
        Job(tmp_path, orders, "iceberg", settings={"create_namespace": True}),
    )
    load_catalog(**strict.catalog()).create_namespace("shop")
    with pytest.raises(sw.InvalidInputError, match=r"'shop'.*create_namespace"):
        strict.land(first("orders", 1, lsn=0))
    asked.land(first("orders", 1, lsn=0))
    assert asked.read("orders", "shopp")["id"].to_pylist() == [1]


@pytest.mark.sweep("iceberg")
def test_a_table_is_made_where_and_sorted_as_the_configuration_says(job: Job) -> None:
    """By readers that are not ours; a Delta table is found there again, an Iceberg table by its catalog."""
    place = job.folder / "elsewhere" / "orders"
    is_iceberg = job.form == "iceberg"
    order = (
        {"sort_by": ["n desc nulls last", "bucket(4, id)"], "column_types": {"n": "int64"}}
        if is_iceberg
        else {}
    )
    job.tables = [{"table": "a", "location": f"file://{place}" if is_iceberg else str(place), **order}]
    job.land(first("a", 1, lsn=1))
    job.land(first("a", 2, lsn=2))
    if is_iceberg:
        table = load_catalog(**job.catalog()).load_table("db.a")
        assert table.location() == f"file://{place}"
        assert [str(one.transform) for one in table.sort_order().fields] == ["identity", "bucket[4]"]
        assert sorted(job.rows("a")) == [1, 2]
    else:
        assert sorted(pa.table(deltalake.DeltaTable(place).to_pyarrow_table())["id"].to_pylist()) == [1, 2]
        assert not (job.folder / "db").exists()


@pytest.mark.sweep("iceberg")
def test_a_table_is_created_with_the_properties_of_the_configuration(job: Job) -> None:
    """By readers that are not ours; and rows land in it, also where it only takes appends."""
    by_format = {
        "delta": {"delta.appendOnly": "true", "delta.logRetentionDuration": "interval 60 days"},
        "iceberg": {"write.parquet.compression-codec": "zstd", "owner": "Zoë"},
    }[job.form]
    job.tables = [{"table": "a", "mode": "append", "metadata": {"op": "op"}, "properties": by_format}]
    job.land(first("a", 1, lsn=1))
    job.land(first("a", 2, lsn=2))
    if job.form == "delta":
        found = dict(deltalake.DeltaTable(f"{job.folder}/db/a").metadata().configuration)
    else:
        found = dict(load_catalog(**job.catalog()).load_table("db.a").properties)
    assert by_format.items() <= found.items()
    assert sorted(job.rows("a")) == [1, 2]


@pytest.mark.parametrize("seen", [False, True])
def test_an_error_that_sends_to_doctor_names_the_table(tmp_path: Path, seen: bool) -> None:
    """A job has many tables, and which of them is torn is what an operator needs."""
    job = Job(tmp_path, TABLES)
    landing = job.landing()
    job.land(change("c", "a", 1, {"id": 1}, lsn=1, offset=0), landing=landing)
    log = tmp_path / "cdc" / "job_ledger" / "_delta_log"
    newest = max(log.glob("*.json"))
    torn = newest.with_name(f"{int(newest.stem) + 1:020d}.json")
    torn.write_text('{"add": ')
    with pytest.raises(
        sw.SafewriteError, match=r"`safewrite doctor` on the table \S*/cdc/job_ledger"
    ) as stopped:
        job.land(change("c", "a", 2, {"id": 2}, lsn=2, offset=1), landing=landing if seen else None)
    assert stopped.value.message == str(stopped.value)
    assert pickle.loads(pickle.dumps(stopped.value)).message.count("job_ledger") == 1


@pytest.mark.parametrize("nested", [False, True])
def test_t4_b3_a_source_may_get_a_column_of_times_without_a_zone(tmp_path: Path, *, nested: bool) -> None:
    """Delta wants a table feature for it, which no batch before asked for."""
    times = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp"}
    at = {"type": "array", "optional": True, "items": times} if nested else times
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    first = [row("c", {"id": one}, [ID], one) for one in range(3)]
    more = [
        row("c", {"id": 10 + one, "at": [one] if nested else one}, [ID, {**at, "field": "at"}], 10 + one)
        for one in range(3)
    ]
    lines = landed(job, [first, more], Executors())
    assert [(line.applied, line.dead) for line in lines if line.table] == [(3, 0), (3, 0)]
    assert len(job.rows("a")) == 6
