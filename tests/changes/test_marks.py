"""Rows of a Delta table that wants deletion vectors are marked as gone; its data files stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.data.stats import wide
from safewrite.delta.data.vector_files import Vectors
from safewrite.errors import InternalError
from safewrite.protocol.ask import Limits
from safewrite.stores.world import run
from safewrite.testing.changes import Change
from safewrite.testing.steps import Answers, At
from tests.changes.test_decide import down, up
from tests.changes.test_tables import SCHEMA, VECTORS, Lake, apply
from tests.changes.test_vectors import commit, of

MANY = [up((1, 0), "old", (number, "x")) for number in range(50)]
Rows = dict[tuple[int, str], str | None]


def marked(folder: Path, rows: int = 50, files: int = 1, *, partitioned: bool = False) -> tuple[Lake, Rows]:
    """A table that wants deletion vectors, of rows in so many files, and its rows."""
    lake = Lake("delta", folder, vectors=True, partitioned=partitioned)
    wanted: Rows = {}
    for file in range(files):
        batch = [up((1, 0), "old", (number, "x")) for number in range(file * rows, (file + 1) * rows)]
        apply(lake.open(), batch)
        wanted |= {one.key: one.row for one in batch if one.key}
    return lake, wanted


def change(lake: Lake, wanted: Rows, batch: list[Change], **how: Any) -> Any:
    """Apply a batch in which each key comes once, and note what it does to the rows."""
    receipt = apply(how.pop("table", None) or lake.open(), batch, **how)
    for one in batch:
        assert one.key is not None
        wanted.pop(one.key, None)
        if one.op == "upsert":
            wanted[one.key] = one.row
    return receipt


def data(lake: Lake) -> set[Path]:
    return set(Path(lake.uri).rglob("part-*.parquet"))


def of_vectors(lake: Lake) -> list[Path]:
    return list(Path(lake.uri).glob("deletion_vector_*.bin"))


def cardinalities(lake: Lake, version: int) -> list[int | None]:
    """How many rows the vectors of the files take away that a version adds; None for one without."""
    return [(add.get("deletionVector") or {}).get("cardinality") for add in of(lake, version, "add")]


# --- what is written --------------------------------------------------------------------------------------
@pytest.mark.long
@pytest.mark.parametrize("partitioned", [False, True])
def test_files_stay_as_they_are_however_often_rows_of_them_go(tmp_path: Path, partitioned: bool) -> None:
    """Each vector holds the rows of those before it, too, and takes their place in the log."""
    lake, wanted = marked(tmp_path, partitioned=partitioned)
    (first,) = data(lake)
    for turn in range(2, 6):
        batch = [up((turn, 0), f"new {turn}", (turn * 7, "x")), down((turn, 0), (turn * 9, "x"))]
        receipt = change(lake, wanted, batch)
        assert (receipt.changes["updated"], receipt.changes["deleted"], receipt.removed_rows) == (1, 1, 2)
        assert cardinalities(lake, receipt.version) == [None, 2 * (turn - 1)]
        (gone,) = of(lake, receipt.version, "remove")
        assert (gone.get("deletionVector") or {}).get("cardinality", 0) == 2 * (turn - 2)
        assert lake.rows() == wanted
        if turn == 3:
            assert lake.open().checkpoint()
    (stays,) = [add for add in of(lake, receipt.version, "add") if "deletionVector" in add]
    assert Path(stays["path"]).name == first.name
    assert json.loads(stays["stats"]) | {"minValues": 0, "maxValues": 0, "nullCount": 0} == {
        "numRecords": 50, "minValues": 0, "maxValues": 0, "nullCount": 0, "tightBounds": False,
    }  # fmt: skip
    newest = lake.open().history()[0]
    assert (newest.rows_added, newest.rows_removed) == (1, 2)
    metrics = newest.details["operationMetrics"]
    assert (metrics["numTargetFilesRemoved"], metrics["numTargetDeletionVectorsAdded"]) == ("0", "1")


def test_one_file_holds_the_vectors_of_a_commit(tmp_path: Path) -> None:
    """None stands in the log: VACUUM of Spark's Delta fails on such."""
    lake, wanted = marked(tmp_path, rows=400, files=3)
    keys = [*range(0, 400, 4), *range(400, 800, 5), 801, 803]
    receipt = change(lake, wanted, [down((2, 0), (key, "x")) for key in keys])
    assert lake.rows() == wanted
    assert cardinalities(lake, receipt.version) == [100, 80, 2]
    described = [add["deletionVector"] for add in of(lake, receipt.version, "add")]
    assert {one["storageType"] for one in described} == {"u"}
    assert len({one["pathOrInlineDv"] for one in described}) == len(of_vectors(lake)) == 1
    change(lake, wanted, [down((3, 0), (key, "x")) for key in range(1, 1200, 40)])
    assert lake.rows() == wanted


def test_a_delete_marks_rows_and_reads_the_columns_of_its_condition_alone(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    receipt = lake.open().delete("a in (3, 13, 23)")
    assert (receipt.removed_rows, cardinalities(lake, receipt.version)) == (3, [3])
    receipt = lake.open().delete("a < 6")
    assert (receipt.removed_rows, cardinalities(lake, receipt.version)) == (5, [8])
    for key in (*range(6), 13, 23):
        del wanted[key, "x"]
    assert lake.rows() == wanted
    newest = lake.open().history()[0]
    assert (newest.operation, newest.rows_removed) == ("DELETE", 5)
    assert newest.details["operationMetrics"]["numDeletionVectorsUpdated"] == "1"


def test_an_overwrite_marks_the_rows_that_it_replaces(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    row = {"a": 7, "b": "x", "s": 1, "t": 0, "value": "new"}
    receipt = lake.open().overwrite(pa.Table.from_pylist([row], SCHEMA), where="a = 7")
    assert (receipt.rows, receipt.removed_rows, cardinalities(lake, receipt.version)) == (1, 1, [None, 1])
    assert lake.rows() == wanted | {(7, "x"): "new"}


# --- what is not marked -------------------------------------------------------------------------------------
def test_a_file_of_which_no_row_stays_goes_itself(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    change(lake, wanted, [down((2, 0), (key, "x")) for key in range(20)])
    receipt = change(lake, wanted, [down((3, 0), (key, "x")) for key in range(20, 50)])
    assert of(lake, receipt.version, "add") == []
    assert [one["deletionVector"]["cardinality"] for one in of(lake, receipt.version, "remove")] == [20]
    assert lake.rows() == wanted == {}


@pytest.mark.parametrize("verb", ["apply_changes", "delete"])
def test_a_file_that_loses_most_of_its_rows_is_rewritten_without_its_vector(
    verb: str, tmp_path: Path
) -> None:
    lake, wanted = marked(tmp_path)
    change(lake, wanted, [down((2, 0), (key, "x")) for key in range(10)])
    table = lake.open()
    by_verb: dict[str, Callable[[int], Any]] = {
        "apply_changes": lambda end: apply(table, [down((end, 0), (key, "x")) for key in range(10, end)]),
        "delete": lambda end: table.delete(f"a < {end}"),
    }
    receipt = by_verb[verb](25)
    assert (receipt.removed_rows, cardinalities(lake, receipt.version)) == (15, [25])
    receipt = by_verb[verb](26)
    assert (receipt.removed_rows, cardinalities(lake, receipt.version)) == (1, [None])
    assert [one["deletionVector"]["cardinality"] for one in of(lake, receipt.version, "remove")] == [25]
    assert sorted(a for a, _ in lake.rows()) == list(range(26, 50))


@pytest.mark.long
def test_a_table_that_does_not_want_vectors_any_more_is_rewritten(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    change(lake, wanted, [down((2, 0), (1, "x"))])
    (metadata,) = of(lake, 0, "metaData")
    commit(lake, {"metaData": {**metadata, "configuration": {}}})
    receipt = change(lake, wanted, [down((3, 0), (2, "x"))])
    assert cardinalities(lake, receipt.version) == [None]
    assert lake.rows() == wanted


def test_a_property_without_the_feature_asks_for_nothing(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), MANY)
    (metadata,) = of(lake, 0, "metaData")
    commit(lake, {"metaData": {**metadata, "configuration": VECTORS}})
    receipt = apply(lake.open(), [down((2, 0), (1, "x"))])
    assert cardinalities(lake, receipt.version) == [None]
    assert len(lake.rows()) == 49


def test_a_file_that_does_not_say_how_many_rows_it_has_is_rewritten(tmp_path: Path) -> None:
    """A file with a vector must say it (PROTOCOL.md, "Deletion Vectors")."""
    lake, wanted = marked(tmp_path)
    (add,) = of(lake, 1, "add")
    commit(lake, {"add": {name: value for name, value in add.items() if name != "stats"}})
    receipt = change(lake, wanted, [down((3, 0), (2, "x"))])
    assert cardinalities(lake, receipt.version) == [None]
    assert lake.rows() == wanted


@pytest.mark.sweep("a b", "50%")
@pytest.mark.parametrize("value", ["a b", "é", "50%", "x:y"])
def test_a_file_whose_path_is_encoded_is_rewritten_for_polars_would_pass_over_its_vector(
    value: str, tmp_path: Path
) -> None:
    lake = Lake("delta", tmp_path, vectors=True, partitioned=True)
    table = lake.open()
    apply(table, [up((1, 0), "old", (number, value)) for number in range(20)])
    apply(table, [down((2, 0), (3, value))])
    table.delete([("a", "=", 4)], key="d")
    table.overwrite([{"a": 5, "b": value, "s": 2, "t": 0, "value": "new"}], where="a = 5", key="o")
    wanted = set(range(20)) - {3, 4}
    assert {*polars.read_delta(lake.uri)["a"].to_list()} == {a for a, _ in lake.rows()} == wanted
    assert not of_vectors(lake)


def test_a_truncate_rewrites_what_it_takes_a_part_of(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    change(lake, wanted, [up((5, 0), "new", (1, "x")), down((5, 0), (2, "x"))])
    apply(lake.open(), [Change("truncate", (3, 0))])
    assert lake.rows() == {(1, "x"): "new"}


# --- beside others, and after failures ----------------------------------------------------------------------
def test_a_rivals_marks_in_the_same_file_are_kept(tmp_path: Path) -> None:
    """Whoever comes second marks on top of the other's marks, and an answer that was lost changes nothing."""
    lake, wanted = marked(tmp_path)
    table, rival = lake.open(), lake.open()
    table.world = At(
        table.world,
        "commit.put_commit",
        "before",
        lambda: change(lake, wanted, [down((2, 0), (1, "x"))], table=rival),
    )
    table.world = Answers(table.world, "commit.put_commit#2", times=1)
    receipt = change(lake, wanted, [down((2, 0), (2, "x")), up((2, 0), "new", (3, "x"))], table=table)
    assert cardinalities(lake, receipt.version) == [None, 3]
    assert lake.rows() == wanted


def test_a_delete_beside_marks_of_a_rival_is_planned_again(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    table, rival = lake.open(), lake.open()
    table.world = At(
        table.world,
        "commit.put_commit",
        "before",
        lambda: change(lake, wanted, [down((2, 0), (1, "x"))], table=rival),
    )
    receipt = table.delete("a in (2, 3)", key="delete")
    assert (receipt.removed_rows, cardinalities(lake, receipt.version)) == (2, [3])
    assert lake.rows() == {key: row for key, row in wanted.items() if key[0] not in {2, 3}}


def test_a_delete_whose_file_a_rival_removed_is_planned_again(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    table, rival = lake.open(), lake.open()
    table.world = At(table.world, "commit.put_commit", "before", lambda: rival.delete("a >= 0"))
    receipt = table.delete("a = 2", key="delete")
    assert (receipt.removed_rows, of(lake, receipt.version, "add")) == (0, [])
    assert (lake.rows(), len(wanted)) == ({}, 50)


def test_vectors_that_went_away_before_the_commit_are_noticed(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path, rows=400)
    table = lake.open()

    def clean() -> None:
        for path in of_vectors(lake):
            path.unlink()

    table.world = At(table.world, "stage.check_data", "before", clean)
    batch = [down((2, 0), (key, "x")) for key in range(0, 400, 4)]
    with pytest.raises(sw.StorageError, match="not as it was uploaded"):
        apply(table, batch, key="a")
    assert lake.rows() == wanted
    change(lake, wanted, batch, key="a")
    assert lake.rows() == wanted


def test_a_repeat_marks_nothing(tmp_path: Path) -> None:
    lake, wanted = marked(tmp_path)
    batch = [down((2, 0), (1, "x"))]
    first = change(lake, wanted, batch, key="a")
    again = apply(lake.open(), batch, key="a")
    assert (again.outcome, again.version) == (sw.Outcome.ALREADY_COMMITTED, first.version)


@pytest.mark.parametrize("number", [3, 50, 51])
def test_a_row_that_is_gone_or_was_never_there_is_not_marked(number: int, tmp_path: Path) -> None:
    """Rows of Spark's engine are known by the numbers that Spark tells: 3 is gone, and the last of 50 is 49."""
    lake, _ = marked(tmp_path)
    version = apply(lake.open(), [down((2, 0), (3, "x"))]).version
    (add,) = of(lake, version, "add")
    known = Vectors(lake.uri)
    run(known.fetch([add], Limits()), lake.open().world)
    assert sorted(known.taking(add, np.array([4, 49])) or ()) == [3, 4, 49]
    with pytest.raises(InternalError, match="that it does not have"):
        known.taking(add, np.array([4, number]))


# --- statistics ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"numRecords":3}', '{"numRecords":3,"tightBounds":false}'),
        (
            '{"numRecords":2,"tightBounds":true,"minValues":{"d":1.10,"s":{"e":1e-7,"t":"ä\\""}},"nullCount":{"d":0}}',
            '{"numRecords":2,"tightBounds":false,"minValues":{"d":1.10,"s":{"e":1e-7,"t":"ä\\""}},"nullCount":{"d":0}}',
        ),
        (
            '{"numRecords":2,"maxValues":{"n":12345678901234567890.123,"b":true,"x":null}}',
            '{"numRecords":2,"maxValues":{"n":12345678901234567890.123,"b":true,"x":null},"tightBounds":false}',
        ),
    ],
)
def test_bounds_keep_their_spelling_when_rows_go(before: str, after: str) -> None:
    assert wide(before) == after
