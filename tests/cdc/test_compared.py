"""The page for those who come from another tool: each row is y with a page and a test that there are, or n with its reason."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from safewrite.cdc.config.job import load
from tests.cdc.test_config import config
from tests.each import each

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/cdc/compared.md").read_text()
ROW = re.compile(r"^\| (.+?) \| (\w+) \| (.+?) \| ?(.*?) ?\|$", re.MULTILINE)
ROWS = [row for row in ROW.findall(PAGE) if row[1] != "here"]
TOOLS = {"Iceberg's Kafka Connect sink 1.12", "Hudi Streamer", "Flink CDC", "debezium-server-iceberg", "Estuary", "Supermetal"}  # fmt: skip


@cache
def cases_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("trigger", "wanted"),
    [
        ({"interval_s": 30}, {"processingTime": "30.0 seconds"}),
        ({"available_now": True}, {"availableNow": True}),
    ],
)
def test_a_batch_begins_by_the_interval_or_once(trigger: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert load(config(trigger=trigger)).trigger.of_spark == wanted


def test_each_tool_has_a_table_and_each_row_of_it_is_read() -> None:
    assert set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE)) == TOOLS
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(lines) == len(ROWS) + 2 * len(TOOLS)
    assert len(ROWS) > 90


@each("row", ROWS, ids=lambda row: row[0])
def test_a_row_is_shown_by_a_test_or_has_its_reason(row: tuple[str, str, str, str]) -> None:
    _, here, how, shown = row
    if here == "n":
        assert (len(how) > 5, shown) == (True, "")
        return
    assert here == "y"
    (found,) = re.findall(r"^`(tests/[\w/]+\.py)::(\w+)`$", shown)
    assert found[1] in cases_in(found[0])
