"""Numbers become decimals exactly, or are refused, where Arrow's own casts overflow."""

from decimal import Decimal, InvalidOperation

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safewrite.values import decimals
from safewrite.values.casts import convert
from safewrite.values.declared import declared
from safewrite.values.fit import fit
from safewrite.values.refusals import NotExactError

KINDS = st.integers(1, 38).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: pa.decimal128(precision, scale))
)
DIGITS = st.text("0123456789", min_size=1, max_size=45)
NINES = st.integers(1, 38).map(lambda count: "9" * count)
TEXTS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "-", "+"]), DIGITS | NINES, st.just("") | DIGITS.map(".{}".format),
        st.just("") | st.integers(-120, 120).map("e{}".format) | st.just("E-100000000"),
    ),
)  # fmt: skip


def fits(value: Decimal, kind: pa.DataType) -> bool:
    """Whether a column holds a number as it is, by Python's whole numbers."""
    _, digits, exponent = value.as_tuple()
    if abs(int(exponent)) > 1000:
        return not value
    number, over = int("".join(map(str, digits))), kind.scale + int(exponent)
    if over < 0 and number % 10**-over:
        return False
    return number * 10 ** max(over, 0) // 10 ** max(-over, 0) < 10**kind.precision


def one(array: pa.Array, why: object) -> Decimal | None:
    assert array.is_valid()[0].as_py() != bool(why)
    found: Decimal | None = array[0].as_py()
    return found


@example("1e-41", pa.decimal128(38, 2))
@example("100e37", pa.decimal128(38, 2))
@example("9" * 30, pa.decimal128(38, 20))
@given(TEXTS, KINDS)
def test_a_text_is_the_number_that_is_written_or_refused(text: str, kind: pa.DataType) -> None:
    expected = Decimal(text)
    found, why = fit(pa.array([text.encode()]), kind, declared(kind, texts=True))
    if one(found, why) is not None or expected:  # zero of a far exponent may be refused
        assert one(found, why) == (expected if fits(expected, kind) else None)


@example("99", 0, pa.decimal128(38, 38), False)
@given(st.one_of(DIGITS, NINES), st.integers(0, 38), KINDS, st.booleans())
def test_a_decimal_of_another_scale_is_equal_or_refused(
    text: str, scale: int, kind: pa.DataType, is_wide: bool
) -> None:
    value = Decimal((0, tuple(map(int, text[:38])), -scale))
    source = (pa.decimal256 if is_wide else pa.decimal128)(38, scale)
    for into in (lambda array: convert(array, kind), declared(kind, texts=False)):
        found, why = fit(pa.array([value], source), kind, into)
        assert one(found, why) == (value if fits(value, kind) else None)


@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100), KINDS)
def test_a_whole_number_is_equal_or_refused(value: int, kind: pa.DataType) -> None:
    found, why = fit(pa.array([value]), kind)
    assert one(found, why) == (value if fits(Decimal(value), kind) else None)


@example("1e-41", pa.decimal128(38, 2))
@given(TEXTS, KINDS)
def test_a_decimal_of_python_is_given_to_arrow_only_if_arrow_reads_it(text: str, kind: pa.DataType) -> None:
    value = Decimal(text)
    try:
        found = pa.array([decimals.storable(value)], kind)
    except (NotExactError, pa.ArrowInvalid):
        assert not fits(value, kind) or not value
    else:
        assert found[0].as_py() == value


@pytest.mark.parametrize("text", ["1e99999999999999999999", "1e-99999999999999999999"])
def test_an_exponent_that_python_does_not_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidOperation):
        Decimal(text)
    assert fit(
        pa.array([text]), pa.decimal128(5, 2), lambda some: decimals.of_texts(some, pa.decimal128(5, 2))
    )[1]


@pytest.mark.skipif(
    not hasattr(pa, "decimal32"), reason="pyarrow before 18 has no decimals of 32 and 64 bits"
)
@pytest.mark.parametrize("name", ["decimal32", "decimal64", "decimal128"])
@given(unscaled=st.integers(-(10**9) + 1, 10**9 - 1), scale=st.integers(-12, 0))
def test_a_decimal_of_thousands_is_equal_as_a_whole_number_or_refused(
    name: str, unscaled: int, scale: int
) -> None:
    kind = getattr(pa, name)(9, scale)
    raw = pa.py_buffer(unscaled.to_bytes(kind.bit_width // 8, "little", signed=True))
    values = pa.Array.from_buffers(kind, 1, [None, raw])
    for target in (pa.int32(), pa.int64()):
        for into in (lambda: convert(values, target), lambda: declared(target, texts=False)(values)):  # noqa: B023
            try:
                found = into()
            except ValueError:
                continue
            assert found[0].as_py() == unscaled * 10**-scale
