"""All that names and types say against a frame is told in one message."""

from __future__ import annotations

import pyarrow as pa
import pytest

from safewrite.errors import WouldAlterError
from safewrite.frames.prepare import prepare
from safewrite.frames.spark.columns import check_types

TARGET = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.date32()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("inner", pa.struct({"a": pa.int64()})),
    ]
)
SOUND = {"id": [1], "day": [None], "price": [None], "inner": [{"a": 1}]}


def told(data: object, **how: object) -> str:
    with pytest.raises(WouldAlterError) as caught:
        prepare(data, TARGET, **how)  # type: ignore[arg-type]
    assert "Nothing was written" in str(caught.value)
    return str(caught.value)


def test_missing_extra_and_wrong_columns_are_told_at_once() -> None:
    text = told(pa.table({"id": ["x"], "Day": [1], "more": [1], "price": [True], "inner": [{"b": 1}]}))
    for part in (
        "in 5 columns",
        "'id': string in the data, int64 in the table",
        "'Day': not in the table: there it is 'day'",
        "'more': not in the table",
        "'price': bool in the data, decimal128(10, 2) in the table",
        "'inner': struct<b: int64> in the data, struct<a: int64> in the table",
    ):
        assert part in text


def test_the_same_of_dicts() -> None:
    text = told([{"id": "x", "more": 1}])
    assert "in 5 columns" in text


def test_a_single_difference_has_its_own_message() -> None:
    assert told(SOUND | {"more": [1]}).startswith("Column 'more' is not in the table")
    assert told(SOUND | {"id": ["x"]}).startswith("Column 'id' has type string, the table has int64")


def test_a_column_of_null_alone_is_no_difference() -> None:
    nothing = pa.array([None], pa.string())
    text = told(pa.table(SOUND | {"price": nothing, "more": [1]}, schema=None))
    assert text.startswith("Column 'more'")


def test_what_merge_allows_is_no_difference() -> None:
    text = told({"id": ["x"], "day": [1]}, schema_mode="merge")
    assert "in 2 columns" in text
    assert "price" not in text


def test_a_value_is_told_by_its_row() -> None:
    assert told(SOUND | {"id": [1.5]}).startswith("Column 'id', row 0: 1.5")


def test_of_very_many_the_first_are_told() -> None:
    wide = pa.schema([pa.field(f"c{number}", pa.int64()) for number in range(500)])
    with pytest.raises(WouldAlterError, match=r"in 500 columns") as caught:
        prepare({f"c{number}": ["x"] for number in range(500)}, wide)
    assert "... and 400 more" in str(caught.value)


def test_all_types_of_a_spark_frame_that_hold_more_than_the_tables_are_told_at_once() -> None:
    """By names and types alone, so that no JVM is needed."""
    table = pa.schema(
        {"id": pa.int32(), "day": pa.date32(), "at": pa.struct({"a": pa.int16()}), "f": pa.float32()}
    )
    frame = pa.schema(
        {"id": pa.int64(), "day": pa.date32(), "at": pa.struct({"a": pa.int32()}), "f": pa.float64()}
    )
    with pytest.raises(WouldAlterError) as raised:
        check_types(frame, table)
    for part in (
        "3 columns",
        "'id' has type int64",
        "'at.a' has type int32",
        "'f' has type double",
        "Nothing was written",
    ):
        assert part in str(raised.value)
    with pytest.raises(WouldAlterError, match=r"^Column 'id' has type int64"):
        check_types(pa.schema({"id": pa.int64()}), table)
    check_types(table, table)
