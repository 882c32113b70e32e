"""Overwrite and delete read only files whose statistics leave their condition open, whoever wrote these files."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import safewrite as sw
from safewrite.protocol.effects import Effect, Get, Outcome
from safewrite.testing.steps import At, Stepwise

DAY = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    {"n": pa.int64(), "name": pa.string(), "at": pa.timestamp("us", tz="UTC"), "x": pa.float64()}
)


class Reads(Stepwise):
    """Counts the data files that are read."""

    count = 0

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.count += isinstance(effect, Get) and effect.path.endswith(".parquet")
        return self.world.perform(effect)


def rows(start: int) -> pa.Table:
    numbers = range(start, start + 10)
    return pa.table(
        {
            "n": list(numbers),
            "name": [f"{'long ' * 10}{number:03}" if number != 5 else None for number in numbers],
            "at": [DAY + dt.timedelta(microseconds=number * 1500) for number in numbers],
            "x": [float(number) for number in numbers],
        },
        schema=SCHEMA,
    )


@pytest.fixture(params=["safewrite", "deltalake"])
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], None]:
    if request.param == "safewrite":
        return lambda start: (sw.open(tmp_path / "t", create=True).append(rows(start)), None)[1]
    return lambda start: write_deltalake(str(tmp_path / "t"), rows(start), mode="append")


@pytest.mark.sweep(
    "deltalake-n",
    "deltalake-[('n', '<'",
    "safewrite-n = 25",
    "safewrite-NOT",
    "deltalake-NOT",
    "deltalake-[('x'",
)
@pytest.mark.parametrize(
    ("where", "files"),
    [
        ([("n", "<", 10)], 1),
        ([("n", "in", [3, 25])], 2),
        ([("n", ">=", 30)], 0),
        ([("at", "<", DAY + dt.timedelta(microseconds=9 * 1500))], 1),
        ([("x", "=", 3.0)], 3),
        ("n = 3 OR n = 4", 1),
        ("NOT (n >= 10)", 1),
        ("n = 25 AND name IS NULL", 0),
        ("n < 10 AND name IS NULL", 1),
    ],
    ids=str,
)
def test_files_that_cannot_match_are_not_read(
    write: Callable[[int], None], tmp_path: Path, where: Any, files: int
) -> None:
    """Floats are left to the reading: engines order NaN in their own ways."""
    for start in (0, 10, 20):
        write(start)
    before = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    table = sw.open(tmp_path / "t")
    reads = Reads(table.world)
    table.world = reads
    table.delete(where)
    assert reads.count == files
    wanted = [row for row in before if not matches(row, where)]
    found = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == sorted(wanted, key=lambda row: row["n"])


def matches(row: dict[str, Any], where: Any) -> bool:
    n, name = row["n"], row["name"]
    known = {
        "n = 3 OR n = 4": n in {3, 4},
        "NOT (n >= 10)": n < 10,
        "n = 25 AND name IS NULL": n == 25 and name is None,
        "n < 10 AND name IS NULL": n < 10 and name is None,
    }
    if isinstance(where, str):
        return known[where]
    compare: dict[str, Callable[[Any, Any], bool]] = {
        "<": lambda one, other: one < other,
        ">=": lambda one, other: one >= other,
        "=": lambda one, other: one == other,
        "in": lambda one, other: one in other,
    }
    return all(compare[op](row[column], value) for column, op, value in where)


def test_a_rivals_file_that_cannot_match_does_not_stand_in_the_way(
    write: Callable[[int], None], tmp_path: Path
) -> None:
    write(0)
    table = sw.open(tmp_path / "t")
    table.world = At(table.world, "commit.put_commit", "before", lambda: write(20))
    receipt = table.delete([("n", "=", 3)])
    assert (receipt.attempts, receipt.removed_rows) == (2, 1)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 19


def test_bounds_take_no_file_for_matching_without_a_look(tmp_path: Path) -> None:
    """Those of another writer may be too narrow: a row that they deny is not removed with its file."""
    folder = tmp_path / "t"
    write_deltalake(str(folder), rows(0))
    log = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            stats = json.loads(line["add"]["stats"])
            stats["maxValues"]["n"] = 5
            line["add"]["stats"] = json.dumps(stats)
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    sw.open(folder).delete([("n", "<=", 5)])
    assert sorted(DeltaTable(folder).to_pyarrow_table()["n"].to_pylist()) == [6, 7, 8, 9]


@pytest.mark.sweep("None", "[]", '{"numRecords":"10"}')
@pytest.mark.parametrize(
    "stats",
    [
        "{",
        "[]",
        '"none"',
        '{"numRecords":"10"}',
        '{"numRecords":10,"minValues":[],"maxValues":3,"nullCount":"x"}',
        '{"numRecords":10,"minValues":{"n":"a"},"maxValues":{"n":[1]},"nullCount":{"n":10.0}}',
        '{"numRecords":10,"minValues":{"n":{"deep":1}},"maxValues":{"n":{"deep":2}},"nullCount":{"n":{"deep":0}}}',
        None,
    ],
)
def test_whatever_stands_in_the_place_of_statistics_the_rows_are_found(
    stats: str | None, tmp_path: Path
) -> None:
    """Other engines may write anything there."""
    folder = tmp_path / "t"
    write_deltalake(str(folder), rows(0))
    log = folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = stats
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sw.open(folder).delete([("n", "=", 3)]).version == 1
    table = sw.open(folder)
    receipt = table.apply_changes(
        [{"n": 4, "name": "x", "at": DAY, "x": 1.0}], keys=["n"], sequence_by=["at"], all_late="count"
    )
    assert receipt.changes is not None
    assert receipt.changes["late"] + receipt.changes["updated"] == 1
    assert sorted(DeltaTable(folder).to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
