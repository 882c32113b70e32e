"""Arrays are fitted exactly, and the rows that do not fit are named."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.values.casts import convert
from safewrite.values.fit import fit, misfits
from safewrite.values.refusals import NotExactError, OtherMeaningError

KINDS = {
    pa.int64(): [pa.int8(), pa.float32(), pa.decimal128(3, 0)],
    pa.float64(): [pa.int16(), pa.float32()],
    pa.decimal128(5, 2): [pa.int32(), pa.decimal128(4, 1)],
    pa.timestamp("ns"): [pa.timestamp("us")],
    pa.timestamp("s"): [pa.timestamp("us")],
    pa.date32(): [pa.date32()],
    pa.time64("us"): [pa.time64("us")],
}
NUMBERS = st.integers(-(2**31), 2**31 - 1) | st.integers(-300, 300)


@st.composite
def arrays(draw):
    source = draw(st.sampled_from(list(KINDS)))
    target = draw(st.sampled_from(KINDS[source]))
    numbers = draw(st.lists(st.none() | NUMBERS, max_size=30))
    if pa.types.is_decimal(source):
        numbers = [None if one is None else Decimal(one % 99_999) / 100 for one in numbers]
    elif pa.types.is_floating(source):
        numbers = [None if one is None else one / 4 for one in numbers]
    elif pa.types.is_temporal(source):
        if source == pa.timestamp("s"):  # years to either side of those that tables have
            numbers = [None if one is None else one * 1000 for one in numbers]
        width = pa.int32() if pa.types.is_date32(source) else pa.int64()
        return pa.array(numbers, width).view(source), target
    return pa.array(numbers, source), target


def alone(value, kind):
    """One value converted, or why it is not."""
    try:
        return convert(value, kind), None
    except NotExactError as error:
        return pa.nulls(1, kind), str(error)


@given(arrays())
def test_the_rows_that_do_not_fit_are_those_that_do_not_by_themselves(drawn):
    values, kind = drawn
    found, why = fit(values, kind)
    assert (found.type, len(found)) == (kind, len(values))
    for row in range(len(values)):
        assert (found.slice(row, 1), why.get(row)) == alone(values.slice(row, 1), kind)


def test_the_first_misfit_is_found_without_a_look_at_all():
    calls = []

    def into(array):
        calls.append(len(array))
        return convert(array, pa.int8())

    values = pa.array([1, 2, 300, *[4] * 1000, 500])
    assert next(misfits(values, into))[0] == 2
    assert len(calls) <= 30


def test_another_meaning_is_no_misfit_of_rows():
    with pytest.raises(OtherMeaningError):
        fit(pa.array(["5"]), pa.int64())


def test_texts_fit_where_the_caller_says_how_they_are_read():
    values = pa.array(["5", None, "x", "5"])
    found, why = fit(values, pa.int64(), lambda array: array.cast(pa.int64()))
    assert found.to_pylist() == [5, None, None, 5]
    assert list(why) == [2]
