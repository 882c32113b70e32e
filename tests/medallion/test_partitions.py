"""Bronze and silver that are partitioned, and the time of a commit as a column of silver."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from safewrite.errors import InvalidInputError
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.job import load
from safewrite.medallion.silver import apply
from tests.medallion.test_evolution import FORMATS, shop
from tests.medallion.test_jobs import Shop, set_in
from tests.medallion.test_tasks import by_tasks

TYPES = {"id": "int64", "region": "string", "price": "decimal(10,2)"}
LOAD = "id,region,price\n1,eu,1.00\n2,us,2.00\n3,NULL,3.00\n"
CHANGES = (
    "Op,id,region,price,seq,at\n"
    "U,1,us,1.50,10,2026-11-01 23:59:59.999999\nD,2,us,2.00,11,2026-11-02 00:00:00.000000\nI,4,eu,4.00,12,1969-12-31 23:59:59.500000\n"
)
DAYS = {"delta": "_commit_date", "iceberg": "day(_commit_time)"}


def job_of(folder: Path, table_format: str, **table: Any) -> Shop:
    job = shop(folder, table_format, TYPES)
    set_in(job, "defaults", "files", "timestamp", to="at")
    job.config["tables"]["shop.orders"] |= table
    job.put("shop/orders/LOAD00000001.csv", LOAD)
    return job


def partitions(job: Shop, layer: str) -> tuple[list[str], set[str]]:
    """How a table is partitioned, and the values, by another reader."""
    if "catalog" in job.config:
        table = load_catalog("default", **job.config["catalog"]).load_table(f"{layer}.orders")
        by = [f"{one.transform}({one.name})" for one in table.spec().fields]
        return by, {str(row["partition"]) for row in table.inspect.partitions().to_pylist()}
    found = deltalake.DeltaTable(job.folder / layer / "orders")
    return found.metadata().partition_columns, {str(one) for one in found.partitions()}


def rows(job: Shop, layer: str) -> list[dict[str, Any]]:
    if "catalog" in job.config:
        table = load_catalog("default", **job.config["catalog"]).load_table(f"{layer}.orders")
        return table.scan().to_arrow().sort_by("id").to_pylist()
    found = deltalake.DeltaTable(job.folder / layer / "orders").to_pyarrow_table()
    return sorted(pa.table(found).to_pylist(), key=lambda row: row["id"])


def flaws(job: Shop) -> list[Any]:
    return [[*one.flaws, one.error] for one in verify(Pipeline(job.config)) if not one.clean]


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_both_layers_are_partitioned_and_silver_says_when_a_row_was_committed(
    table_format: str, tmp_path: Path
) -> None:
    by = {"bronze": [DAYS[table_format]], "silver": ["region"]}
    job = job_of(tmp_path, table_format, partition_by=by, commit_time="changed_at")
    Pipeline(job.config).check()
    assert job.run().ok
    job.put("shop/orders/20261102-000000001.csv", CHANGES)
    assert job.run().ok
    found = {row["id"]: (row["region"], str(row["price"]), row["changed_at"]) for row in rows(job, "silver")}
    moments = [
        dt.datetime(2026, 11, 1, 23, 59, 59, 999999, dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 500000, dt.UTC),
    ]
    assert found == {1: ("us", "1.50", moments[0]), 3: (None, "3.00", None), 4: ("eu", "4.00", moments[1])}
    bronze, silver = partitions(job, "bronze"), partitions(job, "silver")
    assert len(bronze[1]) == 4, bronze
    assert bronze[0] == (["_commit_date"] if table_format == "delta" else ["day(_commit_time_day)"])
    assert len(silver[1]) == 3, silver
    assert flaws(job) == []
    if table_format == "delta":
        days = {row["id"]: row["_commit_date"] for row in rows(job, "bronze") if row["_op"] != "L"}
        assert days == {1: dt.date(2026, 11, 1), 2: dt.date(2026, 11, 2), 4: dt.date(1969, 12, 31)}
    (tmp_path / "state/shop/shop.orders.json").unlink()
    assert job.run().ok
    assert Pipeline(job.config).reset(["shop.orders"]).ok
    assert {row["id"]: row["changed_at"] for row in rows(job, "silver")} == {
        1: moments[0],
        3: None,
        4: moments[1],
    }
    assert flaws(job) == []


@pytest.mark.sweep("silver")
@pytest.mark.parametrize("layer", ["bronze", "silver"])
def test_a_text_that_no_folder_keeps_puts_its_record_aside(tmp_path: Path, layer: str) -> None:
    """Readers of Delta take an empty one for NULL; other odd texts are partitions."""
    job = job_of(tmp_path, "delta", partition_by={layer: ["region"]})
    texts = ['""', "a/b", "x y", "a=b", "..", "é%"]
    changes = "".join(f"I,{n},{text},1.50,{n},NULL\n" for n, text in enumerate(texts, 10))
    job.put(
        "shop/orders/20261102-000000001.csv", f'Op,id,region,price,seq,at\n{changes}D,10,"",NULL,20,NULL\n'
    )
    run = job.run()
    assert run.ok, run.tables[0].error
    assert run.tables[0].landed.quarantined == (2 if layer == "bronze" else 1)
    assert {row["region"] for row in rows(job, "silver") if row["id"] > 9} == {*texts[1:]}
    (first, *_) = deltalake.DeltaTable(tmp_path / "aside").to_pyarrow_table().to_pylist()
    assert "is not read back as it is" in first["reason"]
    assert flaws(job) == []


def test_tasks_write_the_partitions_of_both_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "SMALL_ROWS", 0)
    by = {"bronze": ["_commit_date", "region"], "silver": ["_commit_date"]}
    job = job_of(tmp_path, "delta", partition_by=by, commit_time="_commit_time")
    job.put("shop/orders/20261102-000000001.csv", CHANGES)
    run = by_tasks(job.config).run()
    assert run.ok, run.tables[0].error
    assert (len(partitions(job, "bronze")[1]), len(partitions(job, "silver")[1])) == (6, 3)
    assert [row["_commit_time"] is None for row in rows(job, "silver")] == [False, True, False]
    assert flaws(job) == []


def test_a_silver_without_the_time_gets_it_by_a_reset(tmp_path: Path) -> None:
    job = job_of(tmp_path, "delta")
    job.put("shop/orders/20261102-000000001.csv", CHANGES)
    assert job.run().ok
    job.config["tables"]["shop.orders"]["commit_time"] = "changed_at"
    job.put(
        "shop/orders/20261103-000000001.csv",
        "Op,id,region,price,seq,at\nU,1,us,9.00,20,2026-11-03 00:00:00.0\n",
    )
    assert job.run().ok
    assert {row["id"]: row["changed_at"] is None for row in rows(job, "silver")} == {
        1: False,
        3: True,
        4: True,
    }
    assert len(flaws(job)) == 1
    assert Pipeline(job.config).reset(["shop.orders"]).ok
    assert flaws(job) == []


def test_of_two_changes_of_one_sequence_that_differ_in_their_time_the_later_record_counts(
    tmp_path: Path,
) -> None:
    """Where silver shows the time, changes that say the same at another time are not the same."""
    job = job_of(tmp_path, "delta", commit_time="changed_at")
    one = "Op,id,region,price,seq,at\n" + "".join(
        f"U,1,us,9.00,20,2026-11-0{day} 00:00:00.0\n" for day in (3, 4)
    )
    job.put("shop/orders/20261103-000000001.csv", one)
    assert job.run().ok
    assert rows(job, "silver")[0]["changed_at"].day == 4
    job.put(
        "shop/orders/20261104-000000001.csv",
        one.replace("U,1,us,9.00,20,2026-11-03 00:00:00.0\n", "").replace("-04", "-05"),
    )
    run = job.run()
    assert (run.ok, run.tables[0].refined.quarantined) == (True, 1)
    assert rows(job, "silver")[0]["changed_at"].day == 4
    assert flaws(job) == []


def test_a_table_that_is_there_keeps_its_partitions_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_of(tmp_path, "delta")
    assert job.run().ok
    job.config["tables"]["shop.orders"]["partition_by"] = {"silver": ["region"]}
    job.put("shop/orders/20261102-000000001.csv", CHANGES)
    assert job.run().ok
    assert partitions(job, "silver")[0] == []
    assert "is partitioned by [] and stays so" in caplog.text


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize(
    ("table_format", "table", "why"),
    [
        ("delta", {"partition_by": {"bronze": ["day(at)"]}}, "partitioned by columns, not by transforms"),
        ("delta", {"partition_by": {"bronze": ["_commit_time"]}}, "name _commit_date"),
        ("delta", {"partition_by": {"silver": ["when"]}, "commit_time": "when"}, "name _commit_date"),
        ("iceberg", {"partition_by": {"bronze": ["days(colour)"]}}, "['colour'] are not among its columns"),
        ("iceberg", {"partition_by": {"silver": ["_commit_time"]}}, "['_commit_time'] are not among its columns"),
        ("iceberg", {"partition_by": {"silver": ["bucket(x, id)"]}}, "no transform of Iceberg"),
        ("iceberg", {"partition_by": {"silver": ["id", "id"]}}, "partition_by.silver has a column twice"),
        ("delta", {"commit_time": "Price"}, "silver has another column Price"),
        ("delta", {"commit_time": "_seq"}, "silver has another column _seq"),
        ("delta", {"commit_time": "at", "files": {"timestamp": None}}, "files.timestamp is needed"),
        ("delta", {"partition_by": {"bronze": ["_commit_date"]}, "files": {"timestamp": None}}, "timestamp is needed"),
        ("delta", {"columns": None, "partition_by": {"silver": ["id"]}}, "does nothing without columns"),
    ],
)  # fmt: skip
def test_what_no_table_can_have_is_refused(
    tmp_path: Path, table_format: str, table: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInputError) as refused:
        load(job_of(tmp_path, table_format, **table).config)
    assert why in refused.value.message
