"""Frames that are prepared in one pass come out as each of them alone: rows, fingerprint, and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.errors import NotCommittedError
from safewrite.frames import prepare, prepare_alike

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()), pa.field("f", pa.float64()), pa.field("s", pa.string()),
        pa.field("t", pa.timestamp("us", "UTC")), pa.field("d", pa.decimal128(10, 2)), pa.field("b", pa.bool_()),
    ]
)  # fmt: skip
UTC = dt.UTC
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": st.sampled_from([0, 1, -7, 2**53 + 1, 2**63 - 1, 2**63, True, 2.0, 2.5, math.nan, "1", decimal.Decimal(3)]),
    "f": st.sampled_from([0.5, -0.0, 0.0, math.nan, math.inf, 1, 2**53 + 1, decimal.Decimal("0.5"), "x"]),
    "s": st.sampled_from(["", "a", "é" * 9, "東京", 1, math.nan, b"a"]),
    "t": st.sampled_from([dt.datetime(2026, 1, 1, tzinfo=UTC), dt.datetime(2026, 1, 1), dt.date(2026, 1, 1), math.nan]),  # noqa: DTZ001
    "d": st.sampled_from([decimal.Decimal("1.50"), decimal.Decimal("1.505"), decimal.Decimal(7), 7, 0.5, math.nan]),
    "b": st.sampled_from([True, False, 1, "true"]),
}  # fmt: skip
TYPICAL: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-5, 5), "f": st.floats(width=32), "s": st.text(max_size=3),
    "t": st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    "d": st.decimals(-9, 9, places=2), "b": st.booleans(),
}  # fmt: skip


def rows(values: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    typical = st.fixed_dictionaries({name: st.none() | one for name, one in values.items()})
    return st.lists(typical, max_size=3)


def odd(frame: list[dict[str, Any]], name: str, value: Any) -> list[dict[str, Any]]:
    """With another value in one place, or without a column there."""
    if not frame:
        return frame
    first = {key: one for key, one in frame[0].items() if key != name}
    return [first if value is ... else {**frame[0], name: value}, *frame[1:]]


ODD = st.builds(
    lambda frame, pair: odd(frame, *pair),
    rows(TYPICAL),
    st.sampled_from(sorted(VALUES)).flatmap(
        lambda name: st.tuples(st.just(name), VALUES[name] | st.just(...))
    ),
)


def alone(frame: Any, schema: pa.Schema = SCHEMA, **settings: Any) -> tuple[Any, ...] | None:
    try:
        prepared = prepare(frame, schema, **settings)
    except NotCommittedError:
        return None
    return said(prepared)


def said(prepared: Any) -> tuple[Any, ...]:
    table = pa.concat_tables([prepared.schema.empty_table(), *prepared.tables()])
    return (
        prepared.rows,
        str(prepared.fingerprint),
        prepared.partition_by,
        prepared.added,
        repr(table.to_pylist()),
    )


@given(st.lists(rows(TYPICAL) | ODD, max_size=8))
def test_together_or_alone_is_the_same(frames: list[list[dict[str, Any]]]) -> None:
    for frame, together in zip(frames, prepare_alike(frames, SCHEMA), strict=True):
        if together is not None:
            assert said(together) == alone(frame)
    tables = [pa.concat_tables(prepare(frame, SCHEMA).tables()) for frame in frames if frame and alone(frame)]
    for table, together in zip(tables, prepare_alike(tables, SCHEMA), strict=True):
        if together is not None:
            assert said(together) == alone(table)


def test_one_form_is_one_pass() -> None:
    dicts = [[{"i": number, "s": "x"}] for number in range(5)]
    schema = pa.schema([("i", pa.int64()), ("s", pa.string())])
    for frames in (dicts, [pa.Table.from_pylist(one) for one in dicts], [pd.DataFrame(one) for one in dicts]):
        together = prepare_alike(frames, schema)
        assert [said(one) for one in together if one is not None] == [alone(one, schema) for one in frames]
        assert None not in together


def test_the_members_of_another_form_or_at_fault_are_left_out() -> None:
    good = [[{"i": number}] for number in range(3)]
    schema = pa.schema([pa.field("i", pa.int64())])
    strange: list[Any] = [
        [{"i": "x"}],
        [{"j": 1}],
        [],
        [{"i": [1]}],
        [{"i": 1}, {"i": 1.0}],
        None,
        "text",
        [1],
    ]
    found = prepare_alike([*good, *strange], schema)
    assert [one is not None for one in found] == [True] * 3 + [False] * len(strange)
    strict = pa.schema([pa.field("i", pa.int64(), nullable=False)])
    assert prepare_alike([[{"i": 1}], [{"i": 1}, {"i": None}], [{"i": 2}]], strict) == [None] * 3


@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_partition_values_are_checked(value: str) -> None:
    schema = pa.schema([("day", pa.string()), ("i", pa.int64())])
    good, bad = [{"day": "a", "i": 1}], [{"day": value, "i": 1}]
    assert None not in prepare_alike([good, good], schema, partition_by=["day"])
    assert prepare_alike([good, bad], schema, partition_by=["day"]) == [None, None]


def test_nested_values_and_mixed_columns_are_read_alone() -> None:
    """Dicts that lack a key of others would be read as NULL there in company."""
    schema = pa.schema([("p", pa.struct([("x", pa.int64()), ("y", pa.int64())]))])
    frames = [[{"p": {"x": 1, "y": 1}}], [{"p": {"x": 1}}]]
    assert prepare_alike(frames, schema) == [None, None]
    assert prepare_alike([[{"i": 1}], [{"i": 2.0}]], pa.schema([("i", pa.int64())])) == [None, None]
