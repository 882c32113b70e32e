"""Bounds leave out a file only where no row of it can match, whoever wrote them and however they were cut off."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.frames.predicate import Both, Compare, Either, In, IsNull, Not, Predicate, possible, truths
from safewrite.frames.spans import Span

TEXTS = st.text(alphabet="ab\x7f\U0010ffffé", max_size=4)
TIMES = st.datetimes(dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, 0, 0, 1)).map(  # noqa: DTZ001 - no zone on purpose
    lambda one: one.replace(tzinfo=dt.UTC)
)
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), st.integers(-3, 3)),
    "text": (pa.string(), TEXTS),
    "date": (pa.date32(), st.dates(dt.date(2020, 1, 1), dt.date(2020, 1, 5))),
    "instant": (pa.timestamp("us", tz="UTC"), TIMES),
}


def predicates(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Predicate]:
    single = st.one_of(
        st.builds(Compare, st.just("c"), st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), values),
        st.builds(In, st.just("c"), st.lists(values, min_size=2, max_size=3, unique=True).map(tuple)),
        st.just(IsNull("c")),
    )
    return st.recursive(
        single,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(Both, st.lists(inner, min_size=2, max_size=2).map(tuple)),
            st.builds(Either, st.lists(inner, min_size=2, max_size=2).map(tuple)),
        ),
        max_leaves=4,
    )


def span_of(values: list[Any], cut: int | None) -> Span:
    """Bounds as an engine might write them: texts cut off, and not rounded up."""
    known = [value for value in values if value is not None]
    if not known:
        return Span(is_empty=True)
    low, high = min(known), max(known)
    if isinstance(low, str) and cut is not None:
        low, high = low[:cut], high[:cut]
    return Span(low, high, has_nulls=len(known) < len(values))


@pytest.mark.parametrize("name", KINDS)
def test_every_outcome_of_a_row_is_among_those_that_the_bounds_allow(name: str) -> None:
    kind, values = KINDS[name]

    @given(
        st.lists(values | st.none(), min_size=1, max_size=5),
        predicates(values),
        st.none() | st.integers(1, 3),
    )
    def check(column: list[Any], predicate: Predicate, cut: int | None) -> None:
        rows = truths(predicate, pa.table({"c": pa.array(column, kind)})).to_pylist()
        assert set(rows) <= possible(predicate, {"c": span_of(column, cut)})

    check()


@pytest.mark.parametrize(
    ("predicate", "may"),
    [
        (Compare("c", "=", 5), True),
        (Compare("c", "=", 11), False),
        (Compare("c", "<", 1), False),
        (Compare("c", "<=", 1), True),
        (Compare("c", ">", 10), True),
        (Compare("c", ">", 11), False),
        (In("c", (0, 11)), False),
        (In("c", (0, 10)), True),
        (IsNull("c"), False),
        (Compare("c", "=", 5.0), True),
        (Compare("c", "=", True), True),
    ],
    ids=str,
)
def test_a_file_is_left_out_where_its_bounds_say_so(predicate: Predicate, may: bool) -> None:
    """Values of another type than the bound compare differently in some engine, so they leave nothing out."""
    assert (True in possible(predicate, {"c": Span(1, 10, has_nulls=False)})) is may


def test_an_open_end_leaves_nothing_out() -> None:
    assert True in possible(Compare("c", ">", 10**9), {"c": Span(low=1)})
    assert True not in possible(Compare("c", "<", 1), {"c": Span(low=1)})


@pytest.mark.parametrize("name", KINDS)
def test_bounds_that_may_hold_one_of_many_values_are_those_that_may_hold_it_alone(name: str) -> None:
    kind, values = KINDS[name]

    @given(
        st.lists(values | st.none(), min_size=1, max_size=4),
        st.lists(values, min_size=1, max_size=3),
        st.none() | st.integers(1, 3),
    )
    def check(column: list[Any], wanted: list[Any], cut: int | None) -> None:
        span = span_of(column, cut)
        assert span.may_hold_any(pa.array(wanted, kind)) is any(map(span.may_be, wanted))
        assert span.may_hold_any(pa.array(wanted, kind)) or not set(column) & set(wanted)

    check()
