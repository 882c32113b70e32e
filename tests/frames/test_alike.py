"""Frames that are checked in one pass have what each has alone: rows, fingerprint, digests, or its own error."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import sys
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.errors import SafewriteError
from safewrite.frames.bulk_check import prepare_alike
from safewrite.frames.prepare import Prepared, prepare
from tests.frames.strategies import plain, types, values_of

INT, TEXT, FLOAT = pa.int64(), pa.string(), pa.float64()
TARGET = pa.schema([("a", INT), ("s", TEXT), ("f", FLOAT)])
ROW = {"a": 1, "s": "x", "f": 0.5}


def alone(data: Any, like: Prepared, **how: Any) -> Prepared | None:
    """The frame by itself; None if it is refused."""
    try:
        return prepare(data, like.schema, partition_by=like.partition_by, **how)
    except SafewriteError:
        return None


def told(one: Prepared | None) -> Any:
    """All that a write takes from a frame, values and all."""
    if one is None:
        return None
    values = [plain(table.select(sorted(table.column_names))) for table in one.tables()]
    schema = one.schema.to_string(show_schema_metadata=True)
    return one.rows, str(one.fingerprint), one.column_digests, one.volatile, one.partition_by, schema, values


def together(frames: list[Any], target: pa.Schema = TARGET, **how: Any) -> list[Prepared | None]:
    """What one pass gives; each that it gives is compared with what the frame has alone."""
    like = prepare(target.empty_table(), target)
    found = prepare_alike(frames, like, **how)
    for data, one in zip(frames, found, strict=False):
        assert one is None or told(one) == told(alone(data, like, **how))
    return found


# --- any frames ---------------------------------------------------------------------------------------
@st.composite
def members(draw: st.DrawFn) -> tuple[list[Any], pa.Schema]:
    """Frames for one schema: most fit, in several forms; some columns are other types, NULL, or not there."""
    names = ["c0", "c1", "c2"][: draw(st.integers(1, 3))]
    kinds = {name: draw(types()) for name in names}
    frames: list[Any] = []
    for _ in range(draw(st.integers(2, 5))):
        rows = draw(st.integers(0, 4))
        columns = {}
        for name, kind in kinds.items():
            if draw(st.sampled_from([*[False] * 30, True])):
                kind = draw(st.sampled_from([pa.null(), TEXT, INT, pa.int8(), FLOAT, pa.list_(INT)]))  # noqa: PLW2901
            values = st.none() if pa.types.is_null(kind) else values_of(kind)
            columns[name] = pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)
        table = pa.table(columns)
        if len(names) > 1 and draw(st.sampled_from([*[False] * 20, True])):
            table = table.drop_columns(names[:1])
        form = draw(st.sampled_from(["arrow", "arrow", "dicts", "dicts", "columns", "reversed"]))
        frames.append(
            {
                "arrow": lambda table=table: table,
                "dicts": lambda table=table: table.to_pylist(),
                "columns": lambda table=table: table.to_pydict(),
                "reversed": lambda table=table: table.select(table.column_names[::-1]),
            }[form]()
        )
    return frames, pa.schema(list(kinds.items()))


@given(members(), st.booleans(), st.data())
def test_one_pass_gives_each_frame_what_it_has_alone(
    drawn: tuple[list[Any], pa.Schema], merge: bool, data: st.DataObject
) -> None:
    frames, target = drawn
    volatile = data.draw(st.lists(st.sampled_from(target.names), unique=True, max_size=2))
    together(frames, target, schema_mode="merge" if merge else None, volatile=volatile)


# --- what goes together ---------------------------------------------------------------------------------
FORMS: dict[str, list[Any]] = {
    "dicts": [[ROW], [{**ROW, "a": 2}, {**ROW, "s": None}]],
    "dicts in another order of keys": [[ROW], [dict(reversed(ROW.items()))]],
    "dicts of NULL only": [[ROW], [dict.fromkeys(ROW)], [{**ROW, "f": None}]],
    "whole numbers among floats": [[ROW], [{**ROW, "f": 2}], [{**ROW, "f": 1}, {**ROW, "f": 1.5}]],
    "Arrow tables": [pa.Table.from_pylist([ROW], schema=TARGET)] * 3,
    "Arrow tables of other widths": [
        pa.table({"a": pa.array([1], pa.int8()), "s": ["x"], "f": pa.array([0.5], pa.float32())})
    ]
    * 2,
    "Arrow tables with columns of NULL": [
        pa.table({"a": [1], "s": ["x"], "f": pa.nulls(1)}),
        pa.table({"a": [1], "s": pa.nulls(1), "f": [0.5]}),
    ],
    "pandas": [pd.DataFrame([ROW])] * 2,
    "polars": [pl.DataFrame([ROW])] * 2,
    "columns": [{"a": [1], "s": ["x"], "f": [0.5]}] * 2,
    "batches": [pa.record_batch({"a": [1], "s": ["x"], "f": [0.5]})] * 2,
    "kinds that come twice each": [[ROW], pd.DataFrame([ROW]), [ROW], pl.DataFrame([ROW])],
}


@pytest.mark.parametrize("form", FORMS)
def test_frames_of_one_form_go_together(form: str) -> None:
    assert None not in together(FORMS[form])


def test_nested_dicts_go_together() -> None:
    inner = pa.struct([("x", INT), ("y", pa.list_(TEXT))])
    target = pa.schema([("id", INT), ("o", inner)])
    rows = [[{"id": n, "o": {"x": n, "y": ["a"] * n}}] for n in range(1, 5)]
    assert None not in together(rows, target)


def test_a_frame_of_another_form_does_not_keep_the_others_apart() -> None:
    odd: list[Any] = [[{"a": "text", "s": "x", "f": 1.0}], [], None, [{"a": 1}], [{"b": 1}], [5], "text"]
    for one in odd:
        found = together([[ROW], [ROW], one, [ROW]])
        assert [part is None for part in found] == [False, False, True, False], one


# --- what does not --------------------------------------------------------------------------------------
REFUSED: dict[str, Any] = {
    "a fraction for a whole number": [{**ROW, "a": 1.5}],
    "a float that is none": [{**ROW, "a": math.nan}, {**ROW, "a": 1.0}],
    "a whole number that is no float": [{**ROW, "f": 2**53 + 1}],
    "a number beyond 64 bits": [{**ROW, "a": 2**63}],
    "flags among numbers": [{**ROW, "a": True}],
    "a key that some rows lack": [ROW, {"a": 1, "s": "x"}],
    "a decimal for a float": [{**ROW, "f": decimal.Decimal("0.5")}],
    "a time for a text": [{**ROW, "s": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}],
    "half of a pair": [{**ROW, "s": "\ud800"}],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_alone_is_left_to_be_refused(name: str) -> None:
    like = prepare(TARGET.empty_table(), TARGET)
    assert alone(REFUSED[name], like) is None
    found = together([[ROW], REFUSED[name], [ROW], REFUSED[name]])
    assert found[1] is None
    assert found[3] is None


def test_a_column_of_another_type_is_taken_where_it_holds_only_null_and_refused_where_it_holds_nothing() -> (
    None
):  # H8
    target = pa.schema([("l", pa.list_(INT))])
    null, nothing = (pa.table({"l": pa.array([value], pa.list_(TEXT))}) for value in ([None], []))
    like = prepare(target.empty_table(), target)
    assert alone(null, like) is not None
    assert alone(nothing, like) is None
    assert together([null, nothing, null], target)[1] is None


def test_nan_that_means_null_alone_means_null_among_others() -> None:
    target = pa.schema([("s", TEXT)])
    together([[{"s": math.nan}], [{"s": "x"}], [{"s": math.nan}], [{"s": "y"}, {"s": math.nan}]], target)


def test_large_frames_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["safewrite.frames.bulk_check"], "KEPT_BYTES", 200)
    assert together([[ROW], [ROW]]) == [None, None]
    assert together([pd.DataFrame([ROW] * 50)] * 2) == [None, None]


# --- frames that bring columns --------------------------------------------------------------------------
def test_answers_end_before_a_frame_that_brings_a_column() -> None:
    wider = [{**ROW, "new": 1}]
    found = together([[ROW], [{"a": 2}], [ROW], [{"a": 3}], wider, [ROW]], schema_mode="merge")
    assert len(found) == 4
    assert None not in found
    assert [one is None for one in together([[ROW], [ROW], wider, [ROW]])] == [False, False, True, False]


def test_answers_end_before_a_frame_whose_columns_cannot_be_told() -> None:
    assert len(together([[ROW], [ROW], None, [ROW]], schema_mode="merge")) == 2


def test_columns_that_earlier_frames_bring_are_named_with_each_frame() -> None:
    like = prepare([{**ROW, "new": 1}], TARGET, schema_mode="merge")
    found = prepare_alike([[{**ROW, "new": 2}], [{**ROW, "new": None}]], like, schema_mode="merge")
    assert [one and (one.added, one.schema) for one in found] == [(like.added, like.schema)] * 2


def test_a_condition_on_partition_values_holds_for_each_frame() -> None:  # H5
    like = prepare(TARGET.empty_table(), TARGET, partition_by=["s"])
    assert None not in prepare_alike([[ROW], [ROW]], like)
    assert prepare_alike([[ROW], [{**ROW, "s": ""}]], like) == [None, None]
