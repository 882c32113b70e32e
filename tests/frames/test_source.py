"""What counts as a table, and what is read from it."""

# ruff: noqa: DTZ001 - times without a zone are among what is tested
from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from safewrite.errors import InvalidInputError
from safewrite.frames.source import as_frame
from safewrite.values.types import map_of

ROWS = [{"a": 1, "s": "x"}, {"a": None, "s": None}, {"a": 2**53 + 1, "s": "ü"}]
ARROW = pa.table({"a": pa.array([1, None, 2**53 + 1]), "s": pa.array(["x", None, "ü"])})
PANDAS = pd.DataFrame({"a": pd.array([1, None, 2**53 + 1], dtype="Int64"), "s": ["x", None, "ü"]})
POLARS = pl.DataFrame({"a": [1, None, 2**53 + 1], "s": ["x", None, "ü"]})

KINDS: dict[str, Any] = {
    "pandas": PANDAS,
    "pandas of objects": PANDAS.astype(object),
    "pandas of Arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
    "Arrow table": ARROW,
    "Arrow batch": ARROW.to_batches()[0],
    "list of batches": [ARROW.to_batches()[0].slice(0, 1), ARROW.to_batches()[0].slice(1)],
    "polars": POLARS,
    "lazy polars": POLARS.lazy(),
    "list of dicts": ROWS,
    "dict of lists": {"a": [1, None, 2**53 + 1], "s": ["x", None, "ü"]},
    "dict of arrays": {"a": ARROW["a"], "s": np.array(["x", None, "ü"], object)},
    "dict of series": {"a": PANDAS["a"], "s": POLARS["s"]},
}


def slices(frame: Any, rows: int) -> Iterator[pa.Table]:
    """The pieces of a frame, of so many rows."""
    return (frame.piece(start, min(start + rows, frame.rows)) for start in range(0, frame.rows, rows))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_frame_gives_the_same_rows_twice_in_any_slices(kind: str) -> None:
    frame = as_frame(KINDS[kind])
    assert (frame.rows, frame.column_names) == (3, ("a", "s"))
    for max_rows in (1, 2, 3, 100):
        for _ in range(2):
            assert [row for piece in slices(frame, max_rows) for row in piece.to_pylist()] == ROWS
    assert frame.take(np.array([2, 0])).to_pylist() == [ROWS[2], ROWS[0]]
    assert frame.arrow_schema().field("a").type == pa.int64()


def test_columns_of_pandas_are_read_past_its_indexers(monkeypatch: pytest.MonkeyPatch) -> None:
    """They find out again for each column and slice what they are asked: a fifth of the CPU of a small append."""
    data = pd.DataFrame(
        {
            "n": np.arange(3),
            "i": pd.array([1, None, 3], dtype="Int64"),
            "s": pd.array(["x", None, "y"], dtype="string"),
            "at": pd.to_datetime(["2026-01-01"] * 3, utc=True),
            "c": pd.Categorical([1, None, 1]),
            "z": pd.arrays.SparseArray([0, 0, 7]),
            "o": np.array(["a", None, "b"], object),
        }
    )

    def refused(*_: Any) -> Any:
        raise AssertionError("pandas was asked for rows by an indexer")

    monkeypatch.setattr(type(data.iloc), "__getitem__", refused)
    frame = as_frame(data)
    instant = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [
        {"n": 0, "i": 1, "s": "x", "at": instant, "c": 1, "z": 0, "o": "a"},
        {"n": 1, "i": None, "s": None, "at": instant, "c": None, "z": 0, "o": None},
        {"n": 2, "i": 3, "s": "y", "at": instant, "c": 1, "z": 7, "o": "b"},
    ]
    assert [row for piece in slices(frame, 2) for row in piece.to_pylist()] == rows
    assert frame.take(np.array([2, 0])).to_pylist() == [rows[2], rows[0]]


class _Foreign:
    """A table of a library that safewrite does not know, which exports streams again and again."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ARROW.__arrow_c_stream__(requested_schema)


def test_a_foreign_table_that_can_be_read_twice_is_taken() -> None:
    assert as_frame(_Foreign()).piece(0, 3).to_pylist() == ROWS


class _Drained:
    """A table that exports its stream once."""

    def __init__(self) -> None:
        self._left = [ARROW]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        table = self._left.pop() if self._left else ARROW.slice(0, 0)
        return table.__arrow_c_stream__(requested_schema)


def _generator() -> Iterator[dict[str, int]]:
    yield {"a": 1}


@pytest.mark.parametrize(
    "data",
    [ARROW.to_reader(), _generator(), iter(ROWS), _Drained(), map(str, ROWS)],
    ids=["reader", "generator", "iterator", "drained", "map"],
)
def test_data_that_can_be_read_once_is_refused_because_a_retry_would_append_nothing(data: object) -> None:
    with pytest.raises(InvalidInputError, match=r"only once|cannot be read twice"):
        as_frame(data)


@pytest.mark.parametrize("data", ["text", 3, None, [1, 2], {"a": "text"}, {"a": 1}, {"a": np.zeros((2, 2))}])
def test_what_is_no_table_is_refused(data: object) -> None:
    with pytest.raises(InvalidInputError):
        as_frame(data)


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="differ in length"):
        as_frame({"a": [1, 2], "b": [1]})


def test_series_of_different_indexes_are_refused_since_rows_would_go_by_position() -> None:  # H2
    one, other = pd.Series([1, 2]), pd.Series([3, 4], index=[1, 0])
    with pytest.raises(InvalidInputError, match="different indexes"):
        as_frame({"a": one, "b": other})
    assert as_frame({"a": one, "b": one}).rows == 2


def test_repeated_names_are_refused_in_every_kind_of_frame() -> None:  # H2
    for data in (
        pa.table([[1], [2]], names=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pd.DataFrame([[1, 2]], columns=["a", "A"]),
        pl.DataFrame({"a": [1], "A": [2]}),
        [{"a": 1, "A": 2}],
        [{"a": 1}, {"A": 2}],
        {"a": [1], "A": [2]},
    ):
        with pytest.raises(InvalidInputError, match=r"occurs (twice|next to)"):
            as_frame(data)


@pytest.mark.parametrize("name", [0, None, "", ("a", "b")])
def test_names_that_are_no_texts_are_refused(name: object) -> None:
    with pytest.raises(InvalidInputError, match="non-empty strings"):
        as_frame(pd.DataFrame([[1]], columns=pd.Index([name], dtype=object)))


def test_a_named_pandas_index_is_refused_and_a_plain_one_left_out() -> None:
    with pytest.raises(InvalidInputError, match="reset_index"):
        as_frame(PANDAS.set_index("a"))
    with pytest.raises(InvalidInputError, match="reset_index"):
        as_frame(PANDAS.set_index(["a", "s"]).assign(v=1))
    assert as_frame(PANDAS.iloc[[2, 0]]).piece(0, 2).to_pylist() == [ROWS[2], ROWS[0]]


def test_keys_that_come_late_in_a_list_of_dicts_are_not_dropped() -> None:  # H1
    frame = as_frame([{"a": 1}, {"a": 2, "b": "x"}])
    assert frame.column_names == ("a", "b")
    assert frame.ragged == "b"
    assert as_frame([{"a": {"x": 1}}, {"a": {"x": 2, "y": 3}}]).ragged == "a.y"
    assert as_frame(ROWS).ragged is None


def test_an_integer_column_with_gaps_keeps_all_digits_wherever_the_gap_is() -> None:  # H6
    many = [2**53 + 1] * 5 + [None]
    frame = as_frame(pd.DataFrame({"a": pd.Series(many, dtype=object)}))
    assert frame.arrow_schema().field("a").type == pa.int64()
    assert [row["a"] for piece in slices(frame, 2) for row in piece.to_pylist()] == many


def test_nan_in_a_float_column_is_a_number_and_not_null() -> None:
    column = as_frame(pd.DataFrame({"a": [1.5, float("nan")]})).piece(0, 2).column("a")
    assert column.null_count == 0
    mixed = as_frame({"a": [1.5, float("nan"), None]}).piece(0, 3).column("a")
    assert (mixed.null_count, str(mixed[1])) == (1, "nan")


def test_nan_among_texts_can_only_mean_missing() -> None:
    frame = as_frame(pd.DataFrame({"a": pd.Series(["x", float("nan"), pd.NA], dtype=object)}))
    assert frame.piece(0, 3).column("a").to_pylist() == ["x", None, None]


@pytest.mark.parametrize(
    "values",
    [
        [dt.datetime(2020, 1, 1, 5), dt.date(2020, 1, 1)],
        [dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)],
        [dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
        [1, "1"],
        [True, 1],
        [b"x", "x"],
        [[1], ["x"]],
        [object()],
        [dt.timedelta(1)],
        [2**200],
    ],
)
def test_mixed_or_unknown_python_values_are_refused_and_not_guessed(values: list[object]) -> None:  # H4
    with pytest.raises(InvalidInputError, match="'a"):
        as_frame({"a": values})


def test_nanoseconds_of_a_pandas_timestamp_object_are_not_cut_off() -> None:  # H4
    stamp = pd.Timestamp("2020-01-01 00:00:00.000000001")
    frame = as_frame({"a": [stamp]})
    assert frame.arrow_schema().field("a").type == pa.timestamp("ns")
    assert frame.piece(0, 1).column("a")[0].value == stamp.value


def test_aware_times_of_several_zones_keep_their_instants() -> None:
    zones = [dt.timezone(dt.timedelta(hours=h)) for h in (-11, 0, 14)]
    values = [dt.datetime(2020, 1, 1, 12, tzinfo=zone) for zone in zones]
    assert as_frame({"a": values}).piece(0, 3).column("a").to_pylist() == values


def test_a_dict_is_a_struct_unless_the_table_says_map() -> None:
    rows = [{"m": {"k": 1}}, {"m": {}}, {"m": None}]
    assert as_frame(rows).arrow_schema().field("m").type == pa.struct([("k", pa.int64())])
    target = pa.schema([("m", map_of(pa.string(), pa.field("value", pa.int64())))])
    frame = as_frame(rows, target=target)
    assert frame.ragged is None
    assert frame.piece(0, 3).column("m").to_pylist() == [[("k", 1)], [], None]


def test_polars_objects_are_refused_since_polars_exports_their_addresses() -> None:
    with pytest.raises(InvalidInputError, match="Python objects"):
        as_frame(pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}))


def test_empty_frames_are_frames() -> None:  # H8
    frames: list[Any] = [PANDAS.iloc[:0], ARROW.slice(0, 0), POLARS.head(0), {"a": [], "s": []}]
    for data in frames:
        frame = as_frame(data)
        assert (frame.rows, frame.column_names, list(slices(frame, 10))) == (0, ("a", "s"), [])
    assert as_frame([]).rows == 0


def test_sparse_category_and_big_endian_columns_are_decoded() -> None:
    data = pd.DataFrame(
        {
            "sparse": pd.arrays.SparseArray([1, 0]),
            "category": pd.Categorical(["x", None]),
            "empty": pd.Categorical([None, None]),
            "zone": pd.to_datetime(["2020-07-01 12:00", None]).tz_localize("Europe/Oslo"),
        }
    )
    frame = as_frame(data)
    assert frame.arrow_schema().field("empty").type == pa.null()
    row, _ = frame.piece(0, 2).to_pylist()
    assert (row["sparse"], row["category"]) == (1, "x")
    assert row["zone"] == dt.datetime(2020, 7, 1, 10, tzinfo=dt.UTC)
    assert as_frame({"a": np.array([1, 2], ">i8")}).piece(0, 2).column("a").to_pylist() == [1, 2]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kept", ["as they are", "category"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_with_a_zone_are_read_without_a_warning_of_pandas(unit: Any, kept: str) -> None:
    """pandas 3.1 warns of how pyarrow asks for them: where warnings are errors, the frame could not be read."""
    times = (
        pd.to_datetime(["2020-07-01 12:00", None, "1960-01-01 00:00"])
        .tz_localize("Europe/Oslo")
        .as_unit(unit)
    )
    given = pd.Series(times).astype("category") if kept == "category" else times
    (column,) = as_frame(pd.DataFrame({"at": given})).piece(0, 3).columns
    assert column.type == pa.timestamp(unit, "UTC")
    hours = [None if one is None else one.replace(tzinfo=None) for one in column.to_pylist()]
    assert hours == [dt.datetime(2020, 7, 1, 10), None, dt.datetime(1959, 12, 31, 23)]
