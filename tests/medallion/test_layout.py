"""Which table a path belongs to, and what is passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from safewrite.medallion.config import load
from safewrite.medallion.layout import sort_out
from safewrite.medallion.storage import LocalStorage, RawFile


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
