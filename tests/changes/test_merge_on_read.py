"""Rows of an Iceberg table that is merge-on-read are marked as gone; its data files stay as they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import FileScanTask

import safewrite as sw
from safewrite.iceberg.write.marked_rows import ROWS_MAX
from safewrite.iceberg.write.position_deletes import PATH_ID, UnmarkedRows, live_rows
from safewrite.protocol.effects import Effect, Get, Outcome
from safewrite.testing.changes import Change, Oracle, RefusedError
from safewrite.testing.steps import Answers, At, Stepwise
from tests.changes.test_decide import changes, down, up
from tests.changes.test_tables import SCHEMA, Lake, apply, frame

MANY = [up((1, 0), "old", (number, "x")) for number in range(50)]


class Marked(Lake):
    """A table with ``write.merge.mode`` of merge-on-read."""

    def __init__(self, folder: Path, partition_by: list[str] | None = None, **properties: str) -> None:
        super().__init__("iceberg", folder)
        wanted = {"write.merge.mode": "merge-on-read", **properties}
        self._catalog.drop_table("db.t")
        sw.create("db.t", SCHEMA, catalog=self._catalog, partition_by=partition_by or [], properties=wanted)

    def files(self) -> Counter[int]:
        """How many files of data, and of deletions, the table has."""
        found = self._catalog.load_table("db.t").inspect.files().to_pylist()
        return Counter(one["content"] for one in found)

    def data(self) -> set[str]:
        found = self._catalog.load_table("db.t").inspect.files().to_pylist()
        return {one["file_path"] for one in found if one["content"] == DataFileContent.DATA}


class DeleteReads(Stepwise):
    """Lists the delete files that are read."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.paths: list[str] = []

    def _step(self, step: str, effect: Effect) -> Outcome:
        self.paths += [effect.path] if isinstance(effect, Get) and effect.name == "apply.get_deletes" else []
        return self.world.perform(effect)

    def taken(self) -> list[str]:
        """Those since it was asked last."""
        paths, self.paths = self.paths, []
        return paths


@pytest.mark.sweep("['bucket(2, a)']", "['b']")
@pytest.mark.parametrize("partition_by", [[], ["b"], ["bucket(2, a)"]], ids=str)
def test_files_stay_as_they_are_however_often_rows_of_them_go(
    tmp_path: Path, partition_by: list[str]
) -> None:
    lake = Marked(tmp_path, partition_by)
    apply(lake.open(), MANY)
    before, wanted = lake.data(), {one.key: one.row for one in MANY}
    for turn in range(2, 6):
        batch = [up((turn, 0), f"new {turn}", (turn * 7, "x")), down((turn, 0), (turn * 9, "x"))]
        told = apply(lake.open(), batch).changes
        assert (told["updated"], told["deleted"]) == (1, 1)
        wanted |= {batch[0].key: batch[0].row}
        del wanted[batch[1].key]
        assert before <= lake.data()
        assert lake.rows() == wanted
    summary = lake._catalog.load_table("db.t").current_snapshot().summary
    assert int(summary["total-position-deletes"]) == 8


@pytest.mark.long
def test_a_file_of_which_no_row_stays_goes_itself(tmp_path: Path) -> None:
    lake = Marked(tmp_path)
    apply(lake.open(), [up((1, 0), "a", (1, "x"))])
    apply(lake.open(), [down((2, 0), (1, "x"))])
    assert (lake.files(), lake.rows()) == (Counter(), {})


@pytest.mark.sweep("{'format-version': '1'}")
@pytest.mark.parametrize(
    "properties", [{"format-version": "1"}, {"write.merge.mode": "copy-on-write"}], ids=str
)
def test_a_table_that_does_not_want_or_know_delete_files_is_rewritten(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    lake = Marked(tmp_path, **properties)
    apply(lake.open(), MANY)
    apply(lake.open(), [down((2, 0), (1, "x"))])
    assert lake.files() == Counter({0: 1})
    assert len(lake.rows()) == 49


def test_a_rivals_deletions_in_the_same_file_are_kept(tmp_path: Path) -> None:
    """Both mark rows of one file: whoever comes second marks on top of the other's marks."""
    lake = Marked(tmp_path)
    apply(lake.open(), MANY)
    table, rival = lake.open(), lake.open()
    table.world = At(table.world, "swap.commit", "before", lambda: apply(rival, [down((2, 0), (1, "x"))]))
    table.world = Answers(table.world, "swap.commit#2", times=1)
    apply(table, [down((2, 0), (2, "x")), up((2, 0), "new", (3, "x"))])
    wanted = {one.key: one.row for one in MANY if one.key[0] not in {1, 2}} | {(3, "x"): "new"}
    assert lake.rows() == wanted


@pytest.mark.parametrize("rows_max", [ROWS_MAX, 0])
def test_a_handle_reads_delete_files_once_however_many_there_are(tmp_path: Path, rows_max: int) -> None:
    """Of each turn it reads its own of the turn before and the rival's, unless no room is left to keep what it read."""
    lake = Marked(tmp_path)
    apply(lake.open(), MANY)
    table, rival, wanted = lake.open(), lake.open(), {one.key: one.row for one in MANY}
    table._format.planner.marks.rows_max = rows_max
    table.world = reads = DeleteReads(table.world)
    told = []
    for turn in range(6):
        ours, theirs = ([down((2, 0), (key, "x"))] for key in (turn, 49 - turn))
        apply(table, ours)
        apply(rival, theirs)
        wanted = {key: row for key, row in wanted.items() if key not in {ours[0].key, theirs[0].key}}
        told.append(len(reads.taken()))
    assert lake.rows() == wanted
    assert told[2:] == ([2] * 4 if rows_max else [4, 6, 8, 10])


def test_marks_that_were_taken_back_are_not_known_any_more(tmp_path: Path) -> None:
    """A rollback brings rows back: what a handle knew of their file is not true of the file as it is."""
    lake = Marked(tmp_path)
    apply(lake.open(), MANY)
    table = lake.open()
    first = lake._catalog.load_table("db.t").current_snapshot().snapshot_id
    for key in (1, 2, 3):
        apply(table, [down((2, 0), (key, "x"))])
    lake._catalog.load_table("db.t").manage_snapshots().set_current_snapshot(first).commit()
    receipt = apply(table.refresh(), [down((3, 0), (1, "x")), down((3, 0), (4, "x"))])
    assert receipt.removed_rows == 2
    assert lake.rows() == {one.key: one.row for one in MANY if one.key[0] not in {1, 4}}


@pytest.mark.long
def test_other_verbs_work_beside_the_marks(tmp_path: Path) -> None:
    lake = Marked(tmp_path)
    apply(lake.open(), MANY)
    apply(lake.open(), [down((2, 0), (1, "x"))])
    lake.open().delete([("a", "<", 10)])
    lake.open().append(frame([up((1, 0), "plain", (100, "x"))]).drop_columns(["op"]))
    assert sorted(key[0] for key in lake.rows()) == [*range(10, 50), 100]


@pytest.mark.long
def test_a_file_with_null_lists_of_structs_loses_a_row_in_both_modes(tmp_path: Path) -> None:
    """T3-A4: copy-on-write refused each change of a table that has such a column (H5)."""
    lake = Marked(tmp_path)
    schema = pa.schema([*SCHEMA, pa.field("items", pa.list_(pa.struct({"n": pa.int64()})))])
    for mode, name in (("merge-on-read", "db.m"), ("copy-on-write", "db.c")):
        how: dict[str, Any] = {"catalog": lake._catalog, "properties": {"write.merge.mode": mode}}
        table = sw.create(name, schema, **how)
        rows = [{"a": n, "b": "x", "s": 1, "t": 0, "value": "v", "items": None} for n in range(3)]
        table.append(rows)
        gone = [{"a": 1, "b": "x", "s": 2, "t": 0, "op": "d"}]
        applied = {"keys": ["a", "b"], "sequence_by": ["s", "t"], "delete_when": [("op", "=", "d")]}
        table.apply_changes(gone, **applied)
        found = lake._catalog.load_table(name).scan(selected_fields=("a",)).to_arrow()
        assert found["a"].to_pylist() == [0, 2]


@pytest.mark.parametrize("most", [3, pytest.param(20, marks=pytest.mark.long)])
def test_any_log_in_any_split_gives_the_table_of_the_oracle(
    tmp_path_factory: pytest.TempPathFactory, most: int
) -> None:
    @settings(max_examples=most, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(changes, min_size=2, max_size=8), min_size=2, max_size=5))
    def check(batches: list[list[Change]]) -> None:
        lake, oracle = Marked(tmp_path_factory.mktemp("lake")), Oracle()
        for batch in batches:
            try:
                oracle.apply(batch)
            except RefusedError:
                with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
                    apply(lake.open(), batch)
                continue
            apply(lake.open(), batch)
            assert lake.rows() == oracle.rows

    check()


@pytest.mark.long
def test_the_history_counts_rows_that_were_there_and_not_those_that_were_marked_before(
    tmp_path: Path,
) -> None:
    lake = Marked(tmp_path)
    apply(lake.open(), MANY)
    apply(lake.open(), [down((2, 0), (number, "x")) for number in range(10)])
    table = lake.open()
    receipt = table.delete("a = 20", key="delete")
    assert receipt.removed_rows == 1
    rows = [(one.rows_added, one.rows_removed) for one in table.refresh().history()]
    assert rows == [(0, 1), (0, 10), (50, 0)]
    assert len(lake.rows()) == 39


@pytest.mark.long
def test_the_history_does_not_count_what_others_rewrote_of_files_with_marked_rows(tmp_path: Path) -> None:
    lake = Marked(tmp_path)
    apply(lake.open(), MANY)
    apply(lake.open(), [down((2, 0), (number, "x")) for number in range(10)])
    lake._catalog.load_table("db.t").delete("a = 20")
    assert lake.open().history()[0].rows_removed is None
    assert len(lake.rows()) == 39


@pytest.mark.parametrize(
    "bounds", [None, {}, {PATH_ID: b"s3://b/a"}, {PATH_ID: b"s3://b/a.parquet"}], ids=str
)
def test_a_delete_file_of_several_data_files_takes_from_each_what_it_names(
    bounds: dict[int, bytes] | None,
) -> None:
    """Spark writes such ones; only equal bounds say that all its rows are of one file."""
    rows = pa.table({"file_path": ["s3://b/a.parquet", "s3://b/b.parquet"], "pos": [1, 3]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path="d.parquet", file_format=FileFormat.PARQUET, record_count=2,
        lower_bounds=bounds, upper_bounds=bounds and {PATH_ID: b"s3://b/b.parquet"},
    )  # fmt: skip
    data = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="s3://b/a.parquet",
        file_format=FileFormat.PARQUET,
        record_count=5,
    )
    live = live_rows(FileScanTask(data, {deletes}), [sink.getvalue().to_pybytes()])
    assert live.flags().tolist() == [True, False, True, True, True]


@given(st.sets(st.integers(0, 11)))
def test_the_places_of_live_rows_are_those_that_are_not_gone(gone: set[int]) -> None:
    live = UnmarkedRows(12, np.array(sorted(gone), np.int64))
    assert live.places(np.arange(len(live))).tolist() == [place for place in range(12) if place not in gone]
