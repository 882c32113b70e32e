"""The change data feed of a table, as deltalake reads it, tells exactly what each version did to the rows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.testing.changes import Change
from safewrite.testing.steps import At
from tests.changes.test_decide import down, up
from tests.changes.test_tables import SCHEMA, apply

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
Row = tuple[Any, ...]


@pytest.fixture(params=["rewritten", "marked", "partitioned", "partitioned, marked"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    properties = FEED | (VECTORS if "marked" in request.param else {})
    partition_by = ["b"] if "partitioned" in request.param else []
    return sw.create(tmp_path / "t", SCHEMA, partition_by=partition_by, properties=properties)


def values(rows: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in rows.select(SCHEMA.names).to_pylist()]


def rows_of(table: Any) -> Counter[Row]:
    asked = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(table.uri)).execute("SELECT * FROM t")
    return Counter(values(pa.table(asked.read_all())))


def feed(table: Any, version: int) -> dict[str, list[Row]]:
    """The changes of one version by their type."""
    read = deltalake.DeltaTable(table.uri).load_cdf(starting_version=version, ending_version=version)
    found: dict[str, list[Row]] = {}
    rows = pa.table(read.read_all())
    for row, kind in zip(values(rows), rows.column("_change_type").to_pylist(), strict=True):
        found.setdefault(kind, []).append(row)
    return found


def after(before: Counter[Row], told: dict[str, list[Row]]) -> Counter[Row]:
    """The rows once changes were made to them; a row that is not there cannot go."""
    rows = before.copy()
    for kind in ("delete", "update_preimage"):
        rows.subtract(told.get(kind, ()))
    assert min(rows.values(), default=0) >= 0
    for kind in ("insert", "update_postimage"):
        rows.update(told.get(kind, ()))
    return +rows


@pytest.mark.sweep("partitioned", "partitioned, marked")
def test_the_feed_of_random_batches_makes_each_version_of_the_one_before(table: Any) -> None:
    rng, before = random.Random(3), Counter[Row]()
    for turn in range(1, 12):
        keys = rng.sample([(a, b) for a in range(12) for b in "xy"], 9)
        batch = [
            down((turn, 0), key) if rng.random() < 0.3 else up((turn, 0), f"row {turn}", key) for key in keys
        ]
        receipt = apply(table.refresh(), batch)
        told, now = feed(table, receipt.version), rows_of(table)
        assert after(before, told) == now
        counts = receipt.changes
        assert len(told.get("insert", [])) == counts["inserted"]
        assert len(told.get("delete", [])) == counts["deleted"]
        assert (
            len(told.get("update_preimage", [])) == len(told.get("update_postimage", [])) == counts["updated"]
        )
        before = now


@pytest.mark.sweep("rewritten", "partitioned, marked")
def test_the_two_images_of_an_update_have_one_key(table: Any) -> None:
    apply(table, [up((1, 0), "old", (a, "x")) for a in range(4)])
    told = feed(table, apply(table, [up((2, 0), "new", (1, "x")), down((2, 0), (2, "x"))]).version)
    assert told == {
        "update_preimage": [(1, "x", 1, 0, "old")],
        "update_postimage": [(1, "x", 2, 0, "new")],
        "delete": [(2, "x", 1, 0, "old")],
    }


@pytest.mark.sweep("rewritten", "partitioned, marked")
def test_rows_that_a_truncate_takes_are_deletes_in_the_feed(table: Any) -> None:
    apply(table, [up((turn, 0), f"row {turn}", (turn, "x")) for turn in range(1, 7)])
    before = rows_of(table)
    version = apply(table, [truncate(4), up((9, 0), "new", (2, "x"))]).version
    told = feed(table, version)
    assert after(before, told) == rows_of(table)
    assert {row[0] for row in told["delete"]} | {row[0] for row in told.get("update_preimage", [])} == {
        1,
        2,
        3,
    }


def truncate(at: int) -> Any:
    return Change("truncate", (at - 1, 5))  # no row has its sequence


@pytest.mark.sweep("rewritten")
def test_a_refresh_of_all_rows_is_all_rows_that_go_and_come(table: Any) -> None:
    apply(table, [up((1, 0), "old", (a, "x")) for a in range(4)])
    before = rows_of(table)
    version = apply(
        table, [up((2, 0), "new", (a, "y")) for a in range(2)], full_refresh=True, all_late="error"
    ).version
    told = feed(table, version)
    assert after(before, told) == rows_of(table)
    assert len(told["delete"]) == 4


@pytest.mark.sweep(
    "partitioned, marked",
    "rewritten-a",
    "marked-a > 100",
    "marked-a >= 0",
    "partitioned-a > 100",
    "partitioned-a >= 0",
)
@pytest.mark.parametrize("where", ["a in (2, 3) OR b = 'y'", "a = 1", "b = 'y'", "a > 100", "a >= 0"])
def test_the_feed_of_a_delete_is_the_rows_that_went(table: Any, where: str) -> None:
    for b in "xyz":
        table.append(rows((1, b), (2, b), (3, b)))
    before = rows_of(table)
    version = table.delete(where).version
    told, now = feed(table, version), rows_of(table)
    assert after(before, told) == now
    assert {*told} <= {"delete"}


@pytest.mark.sweep("rewritten", "partitioned, marked")
def test_the_feed_of_an_overwrite_is_the_rows_that_went_and_came(table: Any) -> None:
    for b in "xyz":
        table.append(rows((1, b), (2, b), (3, b)))
    before = rows_of(table)
    version = table.overwrite(rows((2, "n"), (3, "z")), where="a > 1 AND b <> 'y' OR b = 'n'").version
    told = feed(table, version)
    assert after(before, told) == rows_of(table)
    assert len(told["delete"]) == 4
    assert sorted(told["insert"]) == sorted(values(rows((2, "n"), (3, "z"))))


@pytest.mark.sweep(
    "partitioned, marked",
    "rewritten-delete",
    "marked-refresh",
    "partitioned-overwrite",
    "partitioned-refresh",
    "rewritten-overwrite",
    "marked-delete",
)
@pytest.mark.parametrize("how", ["delete", "overwrite", "refresh"])
def test_a_file_that_goes_whole_has_the_rows_in_the_feed_that_were_left_in_it(table: Any, how: str) -> None:
    table.append(rows((1, "x"), (2, "x"), (3, "x")))
    table.delete("a = 2")
    before, again = rows_of(table), rows((4, "x"))
    if how == "delete":
        version = table.delete("a >= 0").version
    elif how == "overwrite":
        version = table.overwrite(again).version
    else:
        version = apply(table, [up((2, 0), "new", (4, "x"))], full_refresh=True, all_late="error").version
    told = feed(table, version)
    assert after(before, told) == rows_of(table)
    assert sorted(row[0] for row in told["delete"]) == [1, 3]


def rows(*keys: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, (*key, 1, 0, "row"), strict=True)) for key in keys], SCHEMA
    )


@pytest.mark.sweep("partitioned", "rewritten", "partitioned, marked")
def test_a_plan_that_is_made_again_feeds_what_it_does_then(table: Any) -> None:
    """A rival changes a row between our plan and our commit."""
    apply(table, [up((1, 0), "old", (a, "x")) for a in range(6)])
    mine, rival = sw.open(table.uri), sw.open(table.uri)
    mine.world = At(
        mine.world, "commit.put_commit", "before",
        lambda: apply(rival, [up((2, 0), "theirs", (1, "x")), down((2, 0), (2, "x"))]),
    )  # fmt: skip
    version = apply(mine, [up((3, 0), "mine", (1, "x")), up((3, 0), "mine", (2, "x"))]).version
    assert feed(table, version) == {
        "update_preimage": [(1, "x", 2, 0, "theirs")],
        "update_postimage": [(1, "x", 3, 0, "mine")],
        "insert": [(2, "x", 3, 0, "mine")],
    }


def test_a_delete_that_takes_rows_of_a_rival_too_has_them_in_the_feed(tmp_path: Path) -> None:
    """A file that came since goes by its partition, without a look at its rows: the delete is planned again."""
    table = sw.create(tmp_path / "t", SCHEMA, partition_by=["b"], properties=FEED)
    table.append(rows((1, "x"), (2, "x"), (1, "y")))
    mine, rival = sw.open(table.uri), sw.open(table.uri)
    mine.world = At(mine.world, "commit.put_commit", "before", lambda: rival.append(rows((5, "y"))))
    receipt = mine.delete("a = 1 AND b = 'x' OR b = 'y'")
    assert receipt.version == 3
    assert sorted(row[:2] for row in feed(table, 3)["delete"]) == [(1, "x"), (1, "y"), (5, "y")]


@pytest.mark.parametrize("properties", [FEED, FEED | {"delta.enableDeletionVectors": "true"}])
def test_a_delete_whose_rows_a_rival_took_feeds_the_others(
    properties: dict[str, str], tmp_path: Path
) -> None:
    table = sw.create(tmp_path / "t", SCHEMA, properties=properties)
    table.append(rows(*((a, "x") for a in range(9))))
    mine, rival = sw.open(table.uri), sw.open(table.uri)
    mine.world = At(mine.world, "commit.put_commit", "before", lambda: rival.delete("a = 1 OR a = 7"))
    receipt = mine.delete("a < 3")
    assert (receipt.removed_rows, receipt.rebased) == (2, 1)
    assert sorted(row[:2] for row in feed(table, receipt.version)["delete"]) == [(0, "x"), (2, "x")]


def test_rows_that_only_come_need_no_change_files(table: Any) -> None:
    version = apply(table, [up((1, 0), "new", (a, "x")) for a in range(3)]).version
    assert not [*Path(table.uri).rglob("_change_data/**/*.parquet")]
    assert len(feed(table, version)["insert"]) == 3


@pytest.mark.sweep("rewritten", "partitioned, marked")
def test_a_change_file_that_is_gone_at_the_commit_stops_it(table: Any) -> None:
    apply(table, [up((1, 0), "old", (a, "x")) for a in range(3)])

    def lose() -> None:
        for file in Path(table.uri).rglob("_change_data/**/*.parquet"):
            file.unlink()

    mine = sw.open(table.uri)
    mine.world = At(mine.world, "stage.check_data", "before", lose)
    with pytest.raises(sw.StorageError):
        apply(mine, [up((2, 0), "new", (1, "x"))])
