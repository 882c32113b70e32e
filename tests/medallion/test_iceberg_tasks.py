"""Iceberg tables that tasks land and refine, compared with the same files in one process."""

from __future__ import annotations

import logging
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.engine.abc import TaskAttempt
from safewrite.iceberg.read.task_reader import IcebergReader
from safewrite.iceberg.table import IcebergTable
from safewrite.iceberg.write.tasks import IcebergFiles
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.audit import accounting
from safewrite.medallion.tables.engine import by_executors
from tests.iceberg import v3_tables as v3
from tests.medallion import test_tasks
from tests.medallion.test_jobs import set_in
from tests.medallion.test_silver_tasks import COLUMNS, FILES, RULES, Sent, Source
from tests.medallion.test_tasks import Twin, read

small_parts, delta_twins = test_tasks.small_parts, test_tasks.twins


@pytest.fixture
def twins(delta_twins: Callable[..., Twin]) -> Callable[..., Twin]:
    """As for Delta tables; both jobs have a catalog of their own."""

    def made(files: dict[str, Any], columns: dict[str, str]) -> Twin:
        twin = delta_twins(files, columns)
        for job in (twin.plain, twin.tasks):
            uri = f"sqlite:///{job.folder}/catalog.db"
            job.config |= {"quarantine": "aside.records", "quarantine_format": "iceberg"}
            job.config["catalog"] = {"type": "sql", "uri": uri, "warehouse": f"{job.folder}/lake"}
            job.config["defaults"] |= {"format": "iceberg"} | {
                layer: f"{layer}.{{table}}" for layer in ("bronze", "silver")
            }
        return twin

    return made


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What tasks did, each time from what was sent to them."""
    found, write, look = list[str](), IcebergFiles.write, IcebergReader.__call__

    def written(self: IcebergFiles, *given: Any) -> Any:
        found.append("write")
        return pickle.loads(pickle.dumps(write(pickle.loads(pickle.dumps(self)), *given)))

    def looked(self: IcebergReader, *given: Any) -> Any:
        found.append("read")
        return look(pickle.loads(pickle.dumps(self)), *given)

    monkeypatch.setattr(IcebergFiles, "write", written)
    monkeypatch.setattr(IcebergReader, "__call__", looked)
    return found


@pytest.mark.long
def test_the_same_files_give_the_same_tables_and_receipts(
    twins: Callable[..., Twin],
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A load and changes with quality rules, keys that change, values that the log lacks, records that are no rows."""
    twin, source = twins(FILES, COLUMNS), Source(random.Random(3))
    for job in (twin.plain, twin.tasks):
        set_in(job, "defaults", "quality", to=RULES)
        job.config["tables"]["shop.orders"]["partition_by"] = {"bronze": ["_op"], "silver": ["name"]}
    twin.put("shop/orders/LOAD00000001.csv", source.load())
    for number in range(2):
        for day in (1, 2):
            twin.put(
                f"shop/orders/2026110{day}-00000000{number + 1}.csv", source.file(80) + b"I,x,a,1,NULL,1\n"
            )
        run = twin.same()
        assert run.ok
    assert {*asked} == {"write", "read"}
    caplog.set_level(logging.INFO, "safewrite")
    monkeypatch.setattr(accounting, "SHARE_ROWS", 200)
    monkeypatch.setattr(accounting, "TASK_SHARES", 1)
    pipeline = Pipeline(twin.tasks.config)
    pipeline.places.work = by_executors(Sent())
    assert [(one.flaws, one.error) for one in verify(pipeline)] == [([], None)]
    assert "this process does" not in caplog.text


def test_tables_that_become_of_version_3_between_runs_are_written_and_rows_keep_their_ids(
    twins: Callable[..., Twin],
) -> None:
    """Bronze and silver, upgraded as Spark does it; the run after gives ids, and the next ones carry them."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"}, {"id": "int64", "name": "string"})
    twin.put("shop/orders/LOAD00000001.csv", b"id,name\n1,a\n2,a\n3,a\n")
    assert twin.same().ok
    jobs = (twin.plain, twin.tasks)
    for job in jobs:
        for layer in ("bronze.orders", "silver.orders"):
            v3.upgrade(job.config["catalog"], layer)
    twin.put("shop/orders/20261101-000000001.csv", b"Op,id,name,seq\nU,1,b,1\nI,4,b,2\n")
    assert twin.same().ok

    def silver(job: Any) -> dict[int, tuple[int | None, int]]:
        return v3.lineage(sw.open("silver.orders", catalog=job.config["catalog"]))

    before = [silver(job) for job in jobs]
    twin.put("shop/orders/20261102-000000001.csv", b"Op,id,name,seq\nU,1,c,3\nD,2,NULL,4\n")
    assert twin.same().ok
    for job, known in zip(jobs, before, strict=True):
        found = silver(job)
        assert {number: row for number, (row, _) in found.items()} == {
            number: row for number, (row, _) in known.items() if number != 2
        }
        assert None not in {row for row, _ in found.values()}
        assert [number for number in found if found[number] != known[number]] == [1]
        bronze = v3.lineages(sw.open("bronze.orders", catalog=job.config["catalog"]))
        assert len({row for _, row, _ in bronze}) == len(bronze) == 7
    assert [one.clean for one in verify(Pipeline(twin.plain.config))] == [True]


def test_a_file_that_another_run_landed_meanwhile_is_left_out(
    twins: Callable[..., Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows shared a data file with those of other files, which are written once more without it."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"}, {"id": "int64", "name": "string"})
    test_tasks.run_while_another_lands(twin, monkeypatch)
    assert sorted(row["id"] for row in read(twin.tasks, "bronze/orders")) == [0, 1, 2]


def test_files_of_another_partitioning_are_not_committed(tmp_path: Path) -> None:
    """A manifest has the files of one partitioning: readers would skip rows by the wrong values."""
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"{tmp_path}/lake"}
    rows = pa.table({"id": [1, 2], "part": ["a", "b"]})
    table = sw.create("db.t", rows.schema, catalog=catalog, create_namespace=True)
    assert isinstance(table, IcebergTable)

    def member() -> Any:
        way = table.in_tasks()
        assert way is not None
        written = way.writer.write([("a", rows)], TaskAttempt(0, 0))
        return way.writer.group([written], lambda names: []).member("a")

    before = member()
    with table.iceberg.update_spec() as update:
        update.add_identity("part")
    table.refresh()
    with pytest.raises(sw.ConflictError, match="partitioning was changed while tasks wrote"):
        table.append_many([("key", before)])
    (receipt,) = table.append_many([("key", member())])
    assert isinstance(receipt, sw.Receipt)
    found = table.iceberg.scan(row_filter="part = 'b'")
    assert [task.file.spec_id for task in found.plan_files()] == [1]
    assert found.to_arrow().to_pylist() == [{"id": 2, "part": "b"}]
