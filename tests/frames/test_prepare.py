"""Everything is checked before a write begins, for small frames and for large ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from safewrite.errors import InvalidInputError, WouldAlterError
from safewrite.frames.prepare import prepare

INT, TEXT = pa.int64(), pa.string()
TARGET = pa.schema([("a", INT), ("s", TEXT)])


@pytest.fixture(params=["kept", "converted twice"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test here runs on both paths: frames that are kept, and frames too large for that."""
    module = sys.modules["safewrite.frames.prepare"]
    monkeypatch.setattr(module, "_SLICE_BYTES", 1)  # a slice for every row
    if request.param == "converted twice":
        monkeypatch.setattr(module, "KEPT_BYTES", -1)
    return str(request.param)


def rows(prepared: Any) -> list[dict[str, Any]]:
    return [row for table in prepared.tables() for row in table.to_pylist()]


@pytest.mark.usefixtures("size")
class TestEitherWay:
    def test_rows_come_out_conformed_as_often_as_asked(self) -> None:
        data = pd.DataFrame({"s": ["x", None, "y"], "a": [1, 2, 3]})
        prepared = prepare(data, TARGET)
        expected = [{"a": 1, "s": "x"}, {"a": 2, "s": None}, {"a": 3, "s": "y"}]
        assert (prepared.rows, prepared.schema) == (3, TARGET)
        assert rows(prepared) == rows(prepared) == expected
        assert prepared.take(pa.array([2, 0]).to_numpy()).to_pylist() == [expected[2], expected[0]]
        assert next(prepared.tables(["s"])).to_pydict()["s"][0] == "x"

    def test_a_bad_value_in_the_last_row_is_found_before_anything_is_written(self) -> None:
        data = pd.DataFrame({"a": [1.0] * 9 + [3.7], "s": ["x"] * 10})
        with pytest.raises(WouldAlterError, match=r"'a', row 9: 3\.7"):
            prepare(data, TARGET)

    def test_an_empty_text_as_a_partition_value_is_refused_since_it_would_be_null(self) -> None:  # H5
        for value in ("", "__HIVE_DEFAULT_PARTITION__"):
            data = {"a": [1, 2], "s": ["x", value]}
            with pytest.raises(WouldAlterError, match=r"'s', row 1: .* NULL"):
                prepare(data, TARGET, partition_by=["s"])
            assert rows(prepare(data, TARGET)) == [{"a": 1, "s": "x"}, {"a": 2, "s": value}]

    def test_an_extra_column_is_added_only_when_told_to_merge(self) -> None:  # H1
        data = pa.table({"a": [1], "s": ["x"], "new": pa.array([3], pa.uint8())})
        with pytest.raises(WouldAlterError, match="'new' is not in the table"):
            prepare(data, TARGET)
        prepared = prepare(data, TARGET, schema_mode="merge")
        assert prepared.added == (pa.field("new", pa.int16()),)
        assert prepared.schema == TARGET.append(prepared.added[0])
        assert rows(prepared) == [{"a": 1, "s": "x", "new": 3}]

    def test_a_missing_column_is_null_only_when_told_to_merge(self) -> None:  # H1
        with pytest.raises(WouldAlterError, match="'s' of the table is missing"):
            prepare({"a": [1]}, TARGET)
        assert rows(prepare({"a": [1]}, TARGET, schema_mode="merge")) == [{"a": 1, "s": None}]
        strict = pa.schema([("a", INT), pa.field("s", TEXT, nullable=False)])
        with pytest.raises(WouldAlterError, match="must not be NULL"):
            prepare({"a": [1]}, strict, schema_mode="merge")

    def test_keys_that_some_dicts_lack_are_null_only_when_told_to_merge(self) -> None:  # H1
        data = [{"a": 1}, {"a": 2, "s": "x"}]
        with pytest.raises(WouldAlterError, match="the key 's'"):
            prepare(data, TARGET)
        assert rows(prepare(data, TARGET, schema_mode="merge"))[0] == {"a": 1, "s": None}

    def test_an_all_null_batch_keeps_the_type_of_the_table(self) -> None:  # H8
        frames: list[Any] = [
            pd.DataFrame({"a": [None, None], "s": [None, None]}),
            [{"a": None, "s": None}] * 2,
        ]
        for data in frames:
            assert rows(prepare(data, TARGET)) == [{"a": None, "s": None}] * 2

    def test_a_partition_column_missing_in_a_merge_is_null(self) -> None:
        prepared = prepare({"a": [1, 2]}, TARGET, partition_by=["s"], schema_mode="merge")
        assert [t.column("s").to_pylist() for t in prepared.tables(["s"])] == [[None]] * 2


def test_small_and_large_frames_have_the_same_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pd.DataFrame({"a": range(100), "s": [str(i) for i in range(100)]})
    small = prepare(data, TARGET).fingerprint
    module = sys.modules["safewrite.frames.prepare"]
    monkeypatch.setattr(module, "KEPT_BYTES", -1)
    monkeypatch.setattr(module, "_SLICE_BYTES", 500)
    large = prepare(data, TARGET)
    assert len(list(large.tables())) > 3
    assert large.fingerprint == small


def test_empty_frames_are_fine_but_their_names_are_checked() -> None:  # H8
    frames: list[Any] = [[], pd.DataFrame(), pd.DataFrame(columns=["a", "s"]), TARGET.empty_table()]
    for data in frames:
        prepared = prepare(data, TARGET)
        assert (prepared.rows, list(prepared.tables())) == (0, [])
    with pytest.raises(WouldAlterError, match="'x' is not in the table"):
        prepare(pd.DataFrame(columns=["a", "s", "x"]), TARGET)


def test_a_schema_is_inferred_over_all_rows() -> None:
    many = [None] * 3000 + [2**53 + 1]
    data = pd.DataFrame({"late": pd.Series(many, dtype=object), "f": [0.5] * 3001, "c": ["x"] * 3001})
    data["c"] = data["c"].astype("category")
    expected = pa.schema([("late", INT), ("f", pa.float64()), ("c", TEXT)])
    assert prepare(data, None).schema == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [None]}, "only NULL"),
        ({"a": pa.array([1], pa.uint64())}, "decimal"),
        ({"a": pa.array([1], pa.float16())}, "float32"),
        ({"a": pa.array([1], pa.duration("s"))}, "microseconds"),
        ({"a": pa.array([1], pa.time64("us"))}, "microseconds"),
        ({"a": [[None]]}, "a.element"),
        ({"a": [{"x": 1, "X": 2}]}, "differs only in case"),
        ([], "no columns"),
    ],
)
def test_types_that_no_table_has_are_refused_when_one_is_created(data: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        prepare(data, None)


def test_a_merged_column_that_differs_only_in_case_is_refused() -> None:  # H2
    with pytest.raises(InvalidInputError, match="differs only in case"):
        prepare({"a": [1], "s": ["x"], "S": ["y"]}, TARGET, schema_mode="merge")
    with pytest.raises(InvalidInputError, match="differs only in case"):
        prepare({"A": [1], "s": ["x"]}, TARGET, schema_mode="merge")


def test_partition_columns_must_exist_and_have_a_spelling_and_leave_some_column() -> None:
    schema = pa.schema([("a", INT), ("b", pa.binary()), ("l", pa.list_(INT))])
    data = {"a": [1], "b": [b"x"], "l": [[1]]}
    for names, message in (
        (["x"], "no column"),
        (["b"], "readers disagree"),
        (["l"], "cannot be a partition"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            prepare(data, schema, partition_by=names)
    with pytest.raises(InvalidInputError, match="All columns"):
        prepare({"a": [1]}, pa.schema([("a", INT)]), partition_by=["a"])


def test_schema_modes_other_than_merge_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="schema_mode"):
        prepare({"a": [1]}, None, schema_mode="overwrite")  # type: ignore[arg-type]


def test_a_frame_of_200_mb_is_written_with_less_than_its_own_memory_on_top() -> None:
    """In a process of its own, whose peak is read after and its memory before.

    The frame is pandas' own memory; with one file of 8 MB at a time, what comes on top are slices.
    """
    code = """
import numpy as np, pandas as pd
from pathlib import Path
from safewrite.frames.prepare import prepare
from safewrite.delta.data.datafiles import encode
def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024
def write(frame, target):
    done = prepare(frame, None, partition_by=["p"])
    return sum(f.rows for f in encode(done, partition_by=["p"], write_id="w", target_file_size=target))
write(pd.DataFrame({"p": [1], "x": [1]}), 2**20)
n = 3_200_000
frame = pd.DataFrame({f"c{i}": np.arange(n) for i in range(7)})
frame["p"] = np.arange(n) // (n // 2)
size = int(frame.memory_usage().sum())
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of building the frame
before = memory("VmRSS")
assert write(frame, 2**23) == n
print(size, memory("VmHWM") - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    size, extra = map(int, done.stdout.split())
    assert size > 200e6
    assert extra < 0.75 * size, f"{extra / 2**20:.0f} MiB on top of {size / 2**20:.0f}"
