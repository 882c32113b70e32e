"""Values of change data fit a column alike one by one, together, and as a column of another type."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.values.objects import array_of, column_of

WHOLE = (
    st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300) | st.sampled_from([2**53 + 1, 2**24 + 1, 2**60])
)
TIME = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001 - a time without zone on purpose
FOUND: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): WHOLE,
    pa.float64(): st.floats() | WHOLE.map(float) | st.sampled_from([0.5, 16_777_217.0]),
    pa.decimal128(38, 20): st.decimals(-(10**17), 10**17, places=20, allow_nan=False),
    pa.decimal128(6, 2): st.decimals(-9999, 9999, places=2, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.time64("us"): st.times(),
    pa.timestamp("us"): TIME,
    pa.timestamp("us", "UTC"): TIME.map(lambda one: one.replace(tzinfo=UTC)),
    pa.list_(pa.int64()): st.lists(WHOLE, max_size=2),
}
KINDS = [
    *FOUND,
    pa.int8(),
    pa.int32(),
    pa.float32(),
    pa.decimal128(38, 38),
    pa.decimal128(9, 0),
    pa.large_string(),
    pa.binary(2),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_a_column_fits_another_as_its_values_do(kind: pa.DataType, data: st.DataObject) -> None:
    found = data.draw(st.sampled_from(list(FOUND)))
    values = pa.chunked_array([pa.array(data.draw(st.lists(st.none() | FOUND[found], max_size=6)), found)])
    column, why = column_of(values, kind)
    assert column.type == kind
    for place, value in enumerate(values.to_pylist()):
        alone, reason = array_of([value], kind) if values.type != kind else (values.slice(place, 1), {})
        assert repr(column[place].as_py()) == repr(alone[0].as_py())
        assert why.get(place) == reason.get(0)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
@pytest.mark.parametrize("value", [2**53 + 1, -(2**63) + 1, 10**400])
def test_a_whole_number_is_no_other_number(kind: pa.DataType, value: int) -> None:
    assert array_of([value, 1.5], kind)[1].keys() == {0}


def test_a_type_that_no_value_of_a_source_fits_refuses_each_by_itself() -> None:
    found, why = array_of([None, Decimal(1), time()], pa.duration("us"))
    assert (found.null_count, why.keys()) == (3, {1, 2})
