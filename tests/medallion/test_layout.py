"""Which table a path belongs to, and what is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safewrite.errors import InvalidInputError
from safewrite.medallion import Pipeline
from safewrite.medallion.config.job import load
from safewrite.medallion.files.layout import odd, sort_out, tables_of
from safewrite.medallion.files.storage import LocalStorage, RawFile
from tests.medallion.test_jobs import Shop


def config(**raw: Any) -> Any:
    tables = {"format": "delta", "keys": ["id"], "bronze": "/lake/b/{table}", "silver": "/lake/s/{table}"}
    files = {"kind": "csv", "header": False, "order": ["Op", "schema", "table", "*"]}
    return load(
        {
            "job": "shop", "raw": {"location": "/raw", **raw}, "state": "/state", "quarantine": "/lake/aside",
            "defaults": tables | {"files": files, "columns": {"id": "int64"}}, "tables": {"shop._orders": {}},
        }
    )  # fmt: skip


def listed(*paths: str) -> list[RawFile]:
    return [RawFile(path, 1, "1", 1) for path in paths]


def test_a_configured_table_may_begin_with_an_underscore() -> None:
    """A table that is configured is never passed over in silence."""
    found = sort_out(listed("shop/_orders/LOAD00000001.csv", "shop/_orders/_notes/x.csv"), config())
    assert [one.path for one in found.tables["shop._orders"]] == ["shop/_orders/LOAD00000001.csv"]
    assert found.unknown == []


def test_the_folder_of_mixed_files_may_begin_with_an_underscore() -> None:
    mixed = {
        "layout": "mixed",
        "mixed_folder": "_cdc/all",
        "schema_column": "schema",
        "table_column": "table",
    }
    found = sort_out(listed("_cdc/all/20261101-000000001.csv", "_cdc/all/_SUCCESS"), config(**mixed))
    assert [one.path for one in found.mixed] == ["_cdc/all/20261101-000000001.csv"]
    assert found.unknown == []


ODD = (
    "20261101-000000001 copy.csv", "20261101-000000001 (1).csv", "20261101-000000001.csv.bak", "20261101-00000000100.csv",
    "20261301-000000001.csv", "LOAD0001.csv", "LOAD00000001 2.csv", "20261101-000000001.parquet.gz", "notes.txt",
)  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_file_with_an_odd_name_in_a_tables_folder_is_no_file_of_it_and_is_told(name: str) -> None:
    """A copy has the time of its original: without a sequence of DMS its changes would have that of others."""
    found = sort_out(listed(f"shop/_orders/{name}"), config())
    assert (found.tables["shop._orders"], [one.path for one in found.unknown]) == (
        [],
        [f"shop/_orders/{name}"],
    )
    assert "none that DMS gives" in odd(f"shop/_orders/{name}", config())[0]
    assert "no configured table" in odd(f"shop/pens/{name}", config())[0]


def test_four_digits_of_the_second_order_files_as_three_do() -> None:
    """As in AWS's own example, 20141029-1134010000.csv; files with fewer digits keep their place."""
    names = ["20141029-113401", "20141029-1134010001", "20141029-113401001", "20141029-1134010011"]
    found = sort_out(listed(*(f"shop/_orders/{name}.csv" for name in reversed(names))), config())
    numbers = [one.number for one in found.tables["shop._orders"]]
    assert [one.raw.name for one in found.tables["shop._orders"]] == [f"{name}.csv" for name in names]
    assert len(set(numbers)) == 4
    assert numbers[2] == 201410291134010010


@pytest.mark.parametrize("path", ["_spark_metadata/0", ".tmp/x.csv", "shop/_other/LOAD00000001.csv"])
def test_notes_of_other_tools_are_passed_over(path: str) -> None:
    found = sort_out(listed(path), config())
    assert (found.tables["shop._orders"], found.unknown) == ([], [])


def test_a_table_whose_folder_is_a_link_is_listed(tmp_path: Path) -> None:
    (tmp_path / "disk" / "orders").mkdir(parents=True)
    (tmp_path / "disk" / "orders" / "LOAD00000001.csv").write_text("1")
    (tmp_path / "raw" / "shop").mkdir(parents=True)
    (tmp_path / "raw" / "shop" / "orders").symlink_to(tmp_path / "disk" / "orders")
    found = [one.path for one in LocalStorage(str(tmp_path / "raw")).files()]
    assert found == ["shop/orders/LOAD00000001.csv"]


def test_markers_of_folders_are_passed_over_and_what_lies_elsewhere_can_be_ignored(tmp_path: Path) -> None:
    """T4-C6: EMR, Glue and Hadoop leave empty objects for folders; manifests of DMS are named by a pattern."""
    job = Shop(tmp_path)
    job.put("shop/orders/LOAD00000001.csv", "id,price\n1,1.00\n")
    for marker in ("shop_$folder$", "shop/orders_$folder$", "shop/orders/2026_$folder$"):
        job.put(marker, "")
    assert job.run().errors == []
    others = ["awsdms-manifests/full-load/x.json", "top.json", "other_$folder$"]
    for path in others:
        job.put(path, "{}")
    told = job.run().errors
    assert [path for path in others if any(path in one for one in told)] == others
    assert "ignored_tables (awsdms-manifests.full-load, or a pattern)" in str(told)
    job.config["ignored_tables"] = ["awsdms-*", "top.json", "*$folder$"]
    run = job.run()
    assert (run.ok, run.errors) == (True, [])
    assert tables_of([f"{tmp_path}/raw/{path}" for path in others], Pipeline(job.config).config) == set()


def test_a_table_with_a_point_in_its_name_is_passed_over_by_its_own_name(tmp_path: Path) -> None:
    job = Shop(tmp_path)
    job.put("shop/order.lines/LOAD00000001.csv", "id,price\n1,1.00\n")
    (told,) = job.run().errors
    assert told.startswith(
        "shop/order.lines/LOAD00000001.csv: its name or folder is that of no configured table"
    )
    job.config["tables"]["shop.order.lines"] = {}
    with pytest.raises(InvalidInputError, match=r"with one point and no slash.* name it in ignored_tables"):
        job.run()
    del job.config["tables"]["shop.order.lines"]
    job.config["ignored_tables"] = ["shop.order.lines"]
    assert job.run().errors == []
