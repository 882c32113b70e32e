"""What others do to a table under changes, and what is told of them afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.types import LongType

import safewrite as sw
from safewrite.protocol.effects import Effect, Get, Outcome
from safewrite.testing.steps import At, Stepwise
from tests.changes.test_decide import OTHER, K, down, up
from tests.changes.test_tables import COMMIT, HOW, SCHEMA, Lake, apply, frame, lake

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

__all__ = ["lake"]
THIRD = (3, "x")


class Told(Stepwise):
    """Notes every step."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.effects: list[tuple[str, Effect]] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.effects.append((step, effect))
        return self.world.perform(effect)


def test_resolve_tells_what_became_of_the_changes_as_the_receipt_did(lake: Lake) -> None:
    """It told the ledger's number of changes as the number of rows."""
    receipt = apply(lake.open(), [up((1, 0)), down((2, 0), OTHER)], key="a")
    found = lake.open().resolve("a")
    assert (found.rows, found.changes) == (receipt.rows, receipt.changes) == (1, receipt.changes)


def test_what_is_remembered_fits_columns_that_were_widened_since(tmp_path: Path) -> None:
    """A StorageError of a few words of Arrow's came instead."""
    narrow = pa.schema([field.with_type(pa.int32()) if field.name in "ast" else field for field in SCHEMA])
    lake = Lake("iceberg", tmp_path)
    sw.create("db.narrow", narrow, catalog=lake._catalog)
    apply(sw.open("db.narrow", catalog=lake._catalog), [down((5, 0))])
    with lake._catalog.load_table("db.narrow").update_schema() as update:
        for name in "ast":
            update.update_column(name, LongType())
    table = sw.open("db.narrow", catalog=lake._catalog)
    assert apply(table, [up((2, 0)), up((2**40, 0), "new", OTHER)]).changes["late"] == 1


@pytest.mark.parametrize("setting", ["delta.appendOnly"])
def test_a_table_that_takes_no_rewrites_is_refused_before_anything_is_uploaded(
    setting: str, tmp_path: Path
) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0))])
    deltalake.DeltaTable(lake.uri).alter.set_table_properties({setting: "true"})
    before = sorted(lake.folder.rglob("*.parquet"))
    with pytest.raises(sw.UnsupportedTableError, match=r"Nothing was (committed|written)"):
        apply(lake.open(), [up((2, 0), "q"), down((2, 0), OTHER)])
    assert sorted(lake.folder.rglob("*.parquet")) == before


def test_a_file_is_fetched_once_though_it_is_looked_through_and_rewritten(tmp_path: Path) -> None:
    lake = Lake("delta", tmp_path)
    apply(lake.open(), [up((1, 0)), up((1, 0), "stays", OTHER)])
    table = lake.open()
    told = table.world = Told(table.world)
    apply(table, [up((2, 0), "q")])
    fetched = [e.path for _, e in told.effects if isinstance(e, Get) and e.path.endswith(".parquet")]
    assert len([path for path in fetched if "_safewrite" not in path]) == 1
    assert lake.rows() == {K: "q", OTHER: "stays"}


@pytest.mark.parametrize("nothing", [[], pa.table({})], ids=["rows", "arrow"])
def test_a_batch_of_no_changes_is_one(lake: Lake, nothing: Any) -> None:
    receipt = lake.open().apply_changes(nothing, key="a", **HOW)
    assert (receipt.rows, receipt.changes["applied"], lake.rows()) == (0, 0, {})


def test_a_plan_that_a_rival_made_old_reads_only_what_is_new(lake: Lake) -> None:
    """Disjoint keys, one file: the second writer goes on from the first one's commit, within its own."""
    apply(lake.open(), [up((1, 0)), up((1, 0), "b", OTHER), up((1, 0), "c", THIRD)])
    table, rival = lake.open(), lake.open()
    told = Told(table.world)
    table.world = At(told, COMMIT[lake.format], "before", lambda: apply(rival, [up((2, 0), "rival", OTHER)]))
    receipt = apply(table, [up((2, 0), "mine"), down((2, 0), THIRD)])
    assert (receipt.attempts, receipt.changes["applied"]) == (2, 2)
    assert lake.rows() == {K: "mine", OTHER: "rival"}
    if lake.format == "delta":
        gets = [e.path for _, e in told.effects if isinstance(e, Get) and e.path.endswith(".parquet")]
        data = [path for path in gets if "_safewrite" not in path]
        assert len(data) == len(set(data)) == 2, (
            "the first file, and the rival's rest of it: not its other rows"
        )
    else:
        assert len([step for step, _ in told.effects if step.startswith("apply.read_rows")]) == 2


@pytest.mark.long
def test_writers_of_many_kinds_of_keys_are_all_acked(lake: Lake) -> None:
    """Eight at once, some keys shared: nobody is told to call again, and every key is what its last change says."""
    apply(lake.open(), [up((0, 0), "start", (number, "x")) for number in range(24)])

    def work(writer: int) -> None:
        table = lake.open()
        for turn in range(1, 4):
            own = [up((turn, 0), f"{writer}.{turn}", (number, "x")) for number in range(writer, 24, 8)]
            shared = up((turn, writer), f"{writer}.{turn}", (99, "x"))
            apply(table, [*own, shared], key=f"{writer}.{turn}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    wanted = {(number, "x"): f"{number % 8}.3" for number in range(24)}
    assert lake.rows() == wanted | {(99, "x"): "7.3"}


def test_a_rivals_commit_makes_a_late_batch_late_and_not_wrong(lake: Lake) -> None:
    table, rival = lake.open(), lake.open()
    apply(rival, [up((1, 0))])
    table.world = At(table.world, COMMIT[lake.format], "before", lambda: apply(rival, [up((9, 0), "newer")]))
    with pytest.raises(sw.InvalidInputError, match="source was set back"):
        apply(table, [up((2, 0), "q")], all_late="error")
    assert lake.rows() == {K: "newer"}
    apply(lake.open(), [up((10, 0), "free")])  # the turn, if there was one, was given back
    assert lake.rows() == {K: "free"}


# --- sequences that are floats ------------------------------------------------------------------------------
FLOATS: dict[str, Any] = {"keys": ["id"], "sequence_by": ["at"], "all_late": "count"}


def floats(folder: Path, *rows: dict[str, Any]) -> Any:
    schema = pa.schema({"id": pa.int64(), "at": pa.float64(), "value": pa.string()})
    table = sw.create(str(folder / "floats"), schema)
    table.append([*rows])
    return table


def test_two_zeros_are_one_place_in_the_order(tmp_path: Path) -> None:
    """A row of NULLs at 0.0 counted as a duplicate of another row at -0.0, and was left out."""
    row = {"id": 1, "at": -0.0, "value": "old"}
    table = floats(tmp_path, row)
    with pytest.raises(sw.InvalidInputError, match="unequal changes"):
        table.apply_changes([row | {"at": 0.0, "value": None}], **FLOATS)
    assert table.apply_changes([row | {"at": 0.0}], **FLOATS).changes["duplicate"] == 1


def test_a_row_whose_sequence_is_no_number_is_older_than_every_change(tmp_path: Path) -> None:
    """It was newer than all: each change of its key was late, and a truncate left it."""
    row = {"id": 1, "at": float("nan"), "value": "old"}
    table = floats(tmp_path, row, row | {"id": 2})
    assert (
        table.apply_changes([row | {"at": float("-inf"), "value": "new"}], **FLOATS).changes["updated"] == 1
    )
    cut = [{"id": None, "at": 3.0, "value": None, "op": "t"}]
    table.apply_changes(cut, truncate_when="op = 't'", **FLOATS)
    assert deltalake.DeltaTable(table.uri).to_pyarrow_table().num_rows == 0


# --- what a writer knew of the table a moment ago -----------------------------------------------------------
STRICT = HOW | {"all_late": "error"}


def refresh(lake: Lake) -> None:
    """Another writer makes the table anew: what was newer than the changes to come is gone."""
    apply(lake.open(), [up((1, 0), "anew")], full_refresh=True)


MOVED = pytest.mark.parametrize("moved", [None, {"topic/0": (None, 1)}], ids=["alone", "with a position"])


@pytest.mark.sweep("delta-late-with", "delta-a tie-alone")
@MOVED
@pytest.mark.parametrize("late", [up((5, 0), "mine"), up((9, 0), "mine")], ids=["late", "a tie"])
def test_changes_are_not_refused_for_rows_that_went_a_moment_ago(lake: Lake, late: Any, moved: Any) -> None:
    """The table version of a moment ago was judged by: a warm writer refused what is right now."""
    table = lake.open()
    apply(table, [up((9, 0), "old")])
    refresh(lake)
    table.apply_changes(frame([late]), **STRICT, positions=moved)
    assert lake.rows() == {K: "mine"}
    with pytest.raises(sw.InvalidInputError, match="older"):
        table.apply_changes(frame([up((2, 0))]), **STRICT)


@pytest.mark.sweep("delta-with a position")
@MOVED
def test_members_are_not_refused_for_rows_that_went_a_moment_ago(lake: Lake, moved: Any) -> None:
    table = lake.open()
    apply(table, [up((9, 0), "old")])
    refresh(lake)
    members = [("a", frame([up((5, 0), "mine")])), ("b", frame([up((1, 0), "b", OTHER)]))]
    bad = ("c", frame([up((0, 0), "late")]))
    first, second, third = table.apply_changes_many([*members, bad], **STRICT, positions=moved)
    assert (first.outcome, second.outcome) == ("committed", "committed")
    assert isinstance(third, sw.InvalidInputError)
    assert lake.rows() == {K: "mine", OTHER: "b"}


@pytest.mark.sweep("delta-with a position")
@MOVED
def test_a_file_that_went_a_moment_ago_is_not_asked_for(lake: Lake, moved: Any) -> None:
    """Another writer put a file in its place, and somebody who keeps nothing removed it."""
    table = lake.open()
    apply(table, [up((1, 0), "old"), up((1, 0), "other", OTHER)])
    files = data_files(lake)
    apply(lake.open(), [up((2, 0), "new")])
    for file in files:
        file.unlink()
    table.apply_changes(frame([up((3, 0), "newest", OTHER)]), **STRICT, positions=moved)
    assert lake.rows() == {K: "new", OTHER: "newest"}


def data_files(lake: Lake) -> list[Path]:
    """The files of rows; what is remembered of deletions has others."""
    return [
        file for file in lake.folder.rglob("*.parquet") if not file.parent.name.startswith(("_", "changes"))
    ]


def test_a_condition_may_name_a_column_that_came_a_moment_ago(lake: Lake) -> None:
    table = lake.open()
    apply(table, [up((9, 0), "old"), up((9, 0), "other", OTHER)])
    lake.open().append(frame_with_more(), schema_mode="merge")
    assert table.delete("more = 1").removed_rows == 1


def frame_with_more() -> list[dict[str, Any]]:
    """A row with a column that the table does not have yet."""
    return [{"a": 7, "b": "z", "s": 1, "t": 0, "value": "v", "more": 1}]
