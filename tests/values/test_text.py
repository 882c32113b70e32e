"""Texts of numbers are the numbers that are written, or are refused."""

import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.values.refusals import NotExactError
from safewrite.values.text import parsed

SPELLED = st.from_regex(r"[+-]?[+-]?[0-9]{0,4}(\.[0-9]{0,4})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@given(text=SPELLED, kind=st.sampled_from([pa.int8(), pa.int64()]))
def test_a_whole_number_is_the_one_that_is_written(text: str, kind: pa.DataType) -> None:
    try:
        found = parsed(pa.array([text]), kind)[0].as_py()
    except ValueError:
        return
    assert found == Decimal(text)


@pytest.mark.parametrize("text", ["+-1", "-+1", "+-1.0", "++1", "+"])
def test_a_text_of_two_signs_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parsed(pa.array(["1", text]), pa.int64())


@given(text=SPELLED)
def test_a_float_is_the_nearest_one_and_zero_only_for_zero(text: str) -> None:
    try:
        found = parsed(pa.array(["0", "-0.0", "0e5", None, text]), pa.float64())[4].as_py()
    except ValueError:
        return
    assert found == float(text)
    assert math.copysign(1, found) == math.copysign(1, float(text))
    assert (found == 0) == (Decimal(text) == 0)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("1e-400", pa.float64()), ("-2e-324", pa.float64()), ("1e-46", pa.float32()), ("1e400", pa.float64())],
)
def test_a_float_too_near_to_zero_or_too_large_is_refused(text: str, kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="too"):
        parsed(pa.array([text]), kind)


@pytest.mark.parametrize(
    ("kind", "fits", "lost"),
    [
        (pa.float32(), ["16777216", "0.1", "0.100000001", "0.10000000149011612", "3.4028235E+38"], ["16777217", "-0.123456789"]),
        (pa.float64(), ["9007199254740992", "0.1", "0.10000000000000001", "5e-324", "1.50"], ["9007199254740993", "0.33333333333333333333"]),
    ],
)  # fmt: skip
def test_a_text_of_more_digits_than_a_float_has_is_refused(
    kind: pa.DataType, fits: list[str], lost: list[str]
) -> None:
    """As a number of Parquet is; digits that a database writes of the same float are not more."""
    assert parsed(pa.array([*fits, None]), kind).null_count == 1
    for text in lost:
        with pytest.raises(NotExactError):
            parsed(pa.array(["1", text, None]), kind)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (pa.int64(), ["0", "-12", "+7", "007", "7.000", "-0", "1e3", "+25e-0", "9223372036854775807"]),
        (pa.int8(), ["127", "-128", "1.2e1"]),
        (pa.date32(), ["2026-01-31", "2026-01-31 00:00:00", "2026-01-31T00:00:00.000"]),
        (pa.timestamp("us"), ["2026-01-31", "2026-01-31 01:02", "2026-01-31T01:02:03.1234560"]),
        (
            pa.timestamp("us", "UTC"),
            ["2026-01-31", "2026-01-31 01:02:03", "2026-01-31 01:02:03.1234560Z", "2026-01-31 01:02:03 +01"],
        ),
        (pa.time64("us"), ["01:02", "01:02:03", "01:02:03.1234560"]),
        (pa.decimal128(10, 2), ["1", "+1.5", "15e-1", "1.500"]),
        (pa.float64(), ["1", "+1.5", "1e3", "inf", "-0.0"]),
        (pa.bool_(), ["1", "0", "true", "False"]),
        (pa.binary(), ["", "00fF"]),
    ],
)
def test_spellings_that_are_taken_alone_are_taken_together(kind: pa.DataType, texts: list[str]) -> None:
    alone = [parsed(pa.array([text]), kind)[0].as_py() for text in texts]
    assert parsed(pa.array([*texts, None]), kind).to_pylist() == [*alone, None]
