"""Many files are looked through and rewritten a few at a time, by keys and sequences where these are enough."""

from __future__ import annotations

import io
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safewrite as sw
from safewrite.changes.lookup import candidate_rows as touched
from safewrite.changes.lookup.candidate_rows import BatchKeys, filtered
from safewrite.changes.meaning.decide import ChangeBatch, ChangeOp
from safewrite.delta.data.rows import read_rows, whole_rows
from safewrite.delta.write import matching_files as delta_files
from safewrite.frames import parallel as side_by_side
from safewrite.frames.parallel import Begun, Handed, all_of, given_back, windows
from safewrite.frames.parquet import ParquetDraft
from safewrite.iceberg.write import key_lookup
from safewrite.iceberg.write import matching_files as iceberg_files
from safewrite.protocol.effects import Failed, Get, Missing, Unknown
from safewrite.testing.changes import Change, Oracle, RefusedError
from safewrite.testing.steps import Answers
from tests.changes.tasked import by_tasks
from tests.changes.test_decide import KEYS, SEQUENCE, changes, down, up
from tests.changes.test_merge_on_read import Marked
from tests.changes.test_outside import Told
from tests.changes.test_tables import SCHEMA, Lake, apply

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

FILES, ROWS = 7, 3
KINDS = ["delta", "iceberg", "merge-on-read"]


@pytest.fixture(autouse=True)
def nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of these tests are small: they are looked at as large ones are."""
    monkeypatch.setattr(touched, "KEPT_BYTES", -1)
    monkeypatch.setattr(key_lookup, "WHOLE_BYTES", -1)
    monkeypatch.setattr(side_by_side, "FILES_AT_ONCE", 2)


def lake_of(kind: str, folder: Path) -> Lake:
    return Marked(folder) if kind == "merge-on-read" else Lake(kind, folder)


def many(kind: str, folder: Path) -> Lake:
    """A table of some files; keys are (file, "x"), (file, "y"), (file, "z")."""
    lake, table = lake_of(kind, folder), None
    table = lake.open()
    for number in range(FILES):
        rows = [{"a": number, "b": b, "s": 1, "t": 0, "value": f"old {b}"} for b in "xyz"]
        table.append(pa.Table.from_pylist(rows, SCHEMA))
    return lake


def batch(turn: int) -> list[Change]:
    """Of each file a row that is updated and one that is deleted; of the last file the third one too."""
    some = [up((turn, 0), f"new {number}", (number, "x")) for number in range(FILES)]
    some += [down((turn, 0), (number, "y")) for number in range(FILES)]
    return [*some, down((turn, 0), (FILES - 1, "z"))]


WANTED = {(number, "x"): f"new {number}" for number in range(FILES)} | {
    (number, "z"): "old z" for number in range(FILES - 1)
}


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_every_file_go_and_all_others_stay(kind: str, tmp_path: Path) -> None:
    lake = many(kind, tmp_path)
    told = apply(lake.open(), batch(2)).changes
    assert (told["updated"], told["deleted"]) == (FILES, FILES + 1)
    assert lake.rows() == WANTED


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_of_keys_that_lie_far_apart_the_files_between_them_are_not_read(kind: str, tmp_path: Path) -> None:
    lake = many(kind, tmp_path)
    table = lake.open()
    told = table.world = Told(table.world)
    apply(table, [up((2, 0), "first", (0, "x")), up((2, 0), "last", (FILES - 1, "x"))])
    read = {
        effect.path if isinstance(effect, Get) else effect.task.file.file_path  # type: ignore[attr-defined]
        for step, effect in told.effects
        if step.startswith(("apply.get_data", "apply.read_rows", "overwrite.get_data"))
    }
    assert len(read) == 2
    assert (lake.rows()[0, "x"], lake.rows()[FILES - 1, "x"]) == ("first", "last")


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
def test_changes_that_are_there_already_are_duplicates_though_only_their_keys_were_looked_at(
    kind: str, tmp_path: Path
) -> None:
    """Only whole rows can tell a duplicate from another change of the same sequence."""
    lake = many(kind, tmp_path)
    apply(lake.open(), batch(2))
    assert apply(lake.open(), batch(2)).changes["duplicate"] == len(batch(2))
    with pytest.raises(sw.InvalidInputError, match="unequal changes with one sequence"):
        apply(lake.open(), [up((2, 0), "other", (1, "x"))])
    assert lake.rows() == WANTED


@pytest.mark.sweep("iceberg-apply.get_data", "delta-overwrite.get_data-answer2")
@pytest.mark.parametrize(
    ("kind", "step", "answer"),
    [
        ("delta", "stage.put_data", Failed("no")),
        ("delta", "overwrite.get_data", Failed("no")),
        ("delta", "overwrite.get_data", Missing()),
        ("iceberg", "apply.get_data", Failed("no")),
        ("iceberg", "apply.get_data", Missing()),
        ("iceberg", "apply.get_data", Unknown("lost")),
    ],
)
def test_a_file_that_fails_in_the_middle_leaves_the_table_as_it_was(
    kind: str, step: str, answer: Any, tmp_path: Path
) -> None:
    lake = many(kind, tmp_path)
    before, table = lake.rows(), lake.open()

    class Later(Answers):
        """Fails from the fourth one on: files before it are made, those after it are under way."""

        def _step(self, step: str, effect: Any) -> Any:
            late = int(step.partition("#")[2] or 1) >= 4
            return super()._step(step, effect) if late else self.world.perform(effect)

    world, table.world = table.world, Later(table.world, step, answer, perform=False)
    with pytest.raises(sw.NotCommittedError):
        apply(table, batch(2), key="a")
    assert lake.rows() == before
    table.world = world
    assert apply(table, batch(2), key="a").outcome == "committed"
    assert lake.rows() == WANTED


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_other_columns_are_read_of_files_that_are_rewritten_only(kind: str, tmp_path: Path) -> None:
    lake = many(kind, tmp_path)
    table = lake.open()
    told = table.world = Told(table.world)
    apply(table, [up((2, 0), "new", (3, "x")), up((2, 0), "none", (9, "x"))])
    if kind == "iceberg":
        reads = [effect.columns for step, effect in told.effects if step.startswith("apply.read_rows")]
        assert set(reads) == {("a", "b", "s", "t")}
        assert len([step for step, _ in told.effects if step.startswith("apply.get_data")]) == 1
    else:
        gets = [
            effect.path for _, effect in told.effects if isinstance(effect, Get) and "part-" in effect.path
        ]
        assert len(gets) == len(set(gets)) + 1
    assert lake.rows()[3, "x"] == "new"


@pytest.mark.parametrize("verb", ["delete", "overwrite"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_condition_reads_other_columns_of_files_that_are_rewritten_only(
    kind: str, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = many(kind, tmp_path)
    table = lake.open()
    told = table.world = Told(table.world)
    looked: list[Any] = []
    where = "value = 'old xx' OR (a = 2 AND value = 'old y')"  # statistics leave none of the files out
    monkeypatch.setattr(delta_files, "read_rows", lambda *of: looked.append(of[3]) or read_rows(*of))
    monkeypatch.setattr(delta_files, "whole_rows", lambda *of: looked.append(of[3]) or whole_rows(*of))
    monkeypatch.setattr(iceberg_files, "WHOLE_BYTES", -1)
    if verb == "delete":
        assert table.delete(where).removed_rows == 1
    else:
        table.overwrite(pa.Table.from_pylist([], SCHEMA), where=where)
    looked += [effect.columns for step, effect in told.effects if step.startswith("replace.read_rows")]
    assert [None if names is None else sorted(names) for names in looked].count(["a", "value"]) == FILES
    assert looked.count(None) == 1
    assert len(looked) == FILES + 1
    assert set(lake.rows()) == {(number, b) for number in range(FILES) for b in "xyz"} - {(2, "y")}


TIED = "has a row or tombstone with the sequence of a truncate, so neither comes first: {'a': 3, 'b': 'y'}. Nothing was"


@pytest.mark.sweep("merge-on-read")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("others", [[], [up((9, 0), "new", (0, "x"))]])
def test_a_truncate_with_the_sequence_of_a_row_of_any_key_is_refused(
    kind: str, others: list[Change], tmp_path: Path
) -> None:
    """Whether the row comes before it cannot be known, though no change of the batch has its key."""
    lake = many(kind, tmp_path)
    apply(lake.open(), [up((5, 0), "late", (3, "y"))])
    before = lake.rows()
    for _ in range(2):  # the second look is by indexes
        with pytest.raises(sw.InvalidInputError, match=TIED):
            apply(lake.open(), [*others, Change("truncate", (5, 0))])
        with by_tasks(), pytest.raises(sw.InvalidInputError, match=TIED):
            apply(lake.open(), [*others, Change("truncate", (5, 0))])
    assert lake.rows() == before
    told = apply(lake.open(), [*others, Change("truncate", (4, 9))])
    assert (told.changes["truncated"], (3, "y") in lake.rows()) == (1, True)
    assert len(lake.rows()) == 1 + len(others)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_any_log_gives_the_table_of_the_oracle_by_keys_and_sequences(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(
        max_examples=40 if kind == "delta" else 15,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(st.lists(changes, max_size=6), min_size=1, max_size=5))
    def check(log: list[list[Change]]) -> None:
        lake, oracle = lake_of(kind, tmp_path_factory.mktemp("lake")), Oracle()
        table = lake.open()
        for some in log:
            try:
                told = oracle.apply(some)
            except RefusedError:
                with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
                    apply(table, some)
                continue
            found = Counter({name: count for name, count in apply(table, some).changes.items() if count})
            del found["applied"]
            assert (found, lake.rows()) == (told, oracle.rows)

    check()


# --- the work itself --------------------------------------------------------------------------------
def test_results_keep_their_order_and_the_first_error_is_raised() -> None:
    assert all_of([lambda n=n: n * n for n in range(20)]) == [n * n for n in range(20)]

    def fails(number: int) -> int:
        raise ValueError(str(number))

    for alone in (False, True):
        begun = Begun([lambda: 1, lambda: fails(1), lambda: fails(2)], alone=alone)
        with pytest.raises(ValueError, match="1"):
            begun.results()
        begun.forget()


def test_windows_hold_few_files_and_a_large_one_alone() -> None:
    sizes = [1, 1, 1, 2**30, 1, 1]
    found = list(windows(range(len(sizes)), lambda at: sizes[at], files=2))
    assert found == [[0, 1], [2], [3], [4, 5]]
    assert list(windows([], lambda at: 0)) == []


def test_columns_are_written_without_a_dictionary_if_hardly_a_value_comes_twice() -> None:
    rows = 5_000
    table = pa.table({
        "each": [f"customer-{number}" for number in range(rows)],
        "few": [f"city-{number % 7}" for number in range(rows)],
        "none": pa.nulls(rows, pa.string()),
    })  # fmt: skip
    for part, wanted in ((table, {"few", "none"}), (table.slice(0, 100), {"each", "few", "none"})):
        draft = ParquetDraft(part.schema, "snappy")
        draft.write(part)
        body, footer = draft.close()
        group = footer.row_group(0)
        columns = [group.column(at) for at in range(3)]
        assert {one.path_in_schema for one in columns if one.has_dictionary_page} == wanted
        assert pq.read_table(io.BytesIO(body)).equals(part)


def test_rows_that_only_their_keys_were_looked_at_are_looked_at_again_once_values_are_carried_on() -> None:
    """A rival may bring the first carried value between two plans."""
    row = pa.Table.from_pylist([{"a": 0, "b": "x", "s": 2, "t": 0, "value": "q"}], SCHEMA)
    seen = BatchKeys(ChangeBatch(row, np.array([ChangeOp.UPSERT], np.int8), KEYS, SEQUENCE), SCHEMA)
    assert seen.unseen(["f"], carries=False) == ["f"]
    narrow = pa.table({"a": [0], "b": ["x"], "s": [1], "t": [0]}, SCHEMA.remove(4))
    seen.note("f", seen.search(narrow))
    assert seen.unseen(["f"], carries=False) == []
    assert seen.unseen(["f"], carries=True) == ["f"]


# --- memory -------------------------------------------------------------------------------------------
def test_files_are_looked_at_together_up_to_so_many_bytes() -> None:
    sizes = [3, 3, 3, 9, 1]
    assert list(windows(sizes, lambda size: size, files=8, bytes_max=6)) == [[3, 3], [3], [9], [1]]


def test_a_column_is_let_go_once_its_rows_that_stay_are_copied() -> None:
    """The source of each column is gone while the next is filtered, so a file is never in memory twice."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    columns = [pa.chunked_array([np.arange(3)]), pa.chunked_array([np.arange(3, 6)])]
    sources = [weakref.ref(column) for column in columns]
    kept = filtered(columns, schema, np.array([True, False, True]))
    assert kept.to_pydict() == {"a": [0, 2], "b": [3, 5]}
    assert [source() for source in sources] == [None, None]


def test_what_is_handed_to_a_call_is_held_by_nobody_once_it_was_taken() -> None:
    handed = Handed(pa.chunked_array([np.arange(3)]))
    source = weakref.ref(value := handed.taken())
    del value
    assert source() is None


@pytest.mark.parametrize("fails", [False, True])
def test_memory_is_given_back_after_some_bytes_of_files_whatever_becomes_of_them(
    fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    class Pool:
        def release_unused(self) -> None:
            told.append("released")

    monkeypatch.setattr(side_by_side.pa, "default_memory_pool", Pool)
    monkeypatch.setattr(side_by_side, "_worked", side_by_side._Worked())

    def call() -> str:
        told.append("called")
        if fails:
            raise ValueError("no")
        return "made"

    for size_bytes in (side_by_side.GIVEN_BACK_BYTES - 1, 1, 1, side_by_side.GIVEN_BACK_BYTES):
        if fails:
            with pytest.raises(ValueError, match="no"):
                given_back(call, size_bytes)
        else:
            assert given_back(call, size_bytes) == "made"
    assert told == ["called", "called", "released", "called", "called", "released"]
