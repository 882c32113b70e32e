"""The bench of change data: its checker sees what is wrong, and a short run behind a real Debezium ends exact."""

from __future__ import annotations

from datetime import time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from bench.cdc.check import compare, lake_rows
from bench.cdc.run import Plan, run
from bench.cdc.workload import TABLES
from examples.cdc import demo

DOCUMENTS = next(table for table in TABLES if table.name == "documents")
SOURCE = {(n,): [{"id": n, "title": f"t{n}", "n": None}] for n in range(5)}


def found(*rows: tuple[int, str | None, int | None]) -> pa.Table:
    names = ("id", "title", "n", "_cdc_sequence")
    return pa.Table.from_pylist([dict(zip(names, (*row, "1"), strict=True)) for row in rows])


def test_the_checker_sees_each_kind_of_flaw() -> None:
    exact = [(n, f"t{n}", None) for n in range(5)]
    told = compare(DOCUMENTS, SOURCE, lake_rows(DOCUMENTS, found(*exact)))
    assert (told.rows, told.flaws) == (5, 0)
    wrong = [
        (1, "t1", None),
        (1, "t1", None),
        (2, "other", None),
        (3, "t3", 0),
        (4, None, None),
        (9, "t9", 1),
    ]
    told = compare(DOCUMENTS, SOURCE, lake_rows(DOCUMENTS, found(*wrong)))
    assert (told.lost, told.revived, told.doubled, told.stale) == (1, 1, 1, 3)


@pytest.mark.parametrize(
    ("expected", "value", "same"),
    [
        (float("nan"), float("nan"), True), (float("nan"), None, False), (1, True, False), (1, 1.0, False),
        (time(1, 2, 3), "01:02:03", True), (time(1, 2, 3), "01:02:04", False), (Decimal("1.50"), "1.5", True),
        (Decimal("1.50"), "1.51", False), (b"", None, False), ("", None, False), ([1, None], [1, None], True),
    ],
)  # fmt: skip
def test_values_are_compared_with_their_types(expected: object, value: object, same: bool) -> None:
    told = compare(DOCUMENTS, {(1,): [{"id": 1, "v": expected}]}, {(1,): [{"id": 1, "v": value}]})
    assert told.stale == (not same)


@pytest.mark.long
def test_both_lakes_equal_postgresql_behind_a_real_debezium(tmp_path: Path) -> None:
    """Each driver is killed once and the broker restarted once; what each record became is in the books."""
    outcome = run(Plan(seed=5, changes=1200, kills=1, broker_restarts=1, batch=300), tmp_path)
    assert outcome.is_exact, outcome
    assert outcome.workload["key changes"] > 0
    assert outcome.workload["ddl"] == 4


@pytest.mark.long
def test_the_example_shows_a_lake_that_follows(tmp_path: Path) -> None:
    tables = demo.main(tmp_path)
    assert [one.table for one in tables] == [table.name for table in TABLES]
    assert all(one.rows > 0 and one.flaws == 0 for one in tables)
