"""Values of change data fit a column alike one by one, together, and as a column of another type."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.values.objects import array_of, column_of
from safewrite.values.types import written

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
ANY = st.one_of(*FOUND.values())
COLUMNS = {found: st.lists(st.none() | values, max_size=6) for found, values in FOUND.items()}
TYPES = st.sampled_from(list(FOUND))
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


@pytest.mark.sweep(
    "decimal128(38, 38)",
    "decimal128(9, 0)",
    "int8",
    "large_string",
    "timestamp[us]",
    "bool",
    "date32[day]",
    "fixed_size_binary[2]",
    "int32",
    "string",
    "time64[us]",
    "float",
    "decimal128(6, 2)",
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_a_column_fits_another_as_its_values_do(kind: pa.DataType, data: st.DataObject) -> None:
    found = data.draw(TYPES)
    values = pa.chunked_array([pa.array(data.draw(COLUMNS[found]), found)])
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


WITHIN = [
    (pa.list_, lambda value: [value], lambda found: found[0]),
    (lambda kind: pa.struct([("f", kind)]), lambda value: {"f": value}, lambda found: found["f"]),
    (lambda kind: pa.map_(pa.string(), kind), lambda value: {"k": value}, lambda found: found[0][1]),
    (lambda kind: pa.map_(kind, pa.bool_()), lambda value: [(value, True)], lambda found: found[0][0]),
    (lambda kind: pa.list_(pa.list_(kind)), lambda value: [[None], [value]], lambda found: found[1][0]),
]


@pytest.mark.sweep(
    "decimal128(38, 38)",
    "decimal128(9, 0)",
    "float",
    "int8",
    "large_string",
    "timestamp[us]",
    "bool",
    "date32[day]",
    "fixed_size_binary[2]",
    "int32",
    "binary",
    "time64[us]",
    "double",
)
@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_a_value_within_another_fits_as_it_does_by_itself(kind: pa.DataType, data: st.DataObject) -> None:
    """Arrow makes 1 of 1.5 in a list of whole numbers, and a day of a time."""
    value = data.draw(ANY)
    alone, why = array_of([value], kind)
    for kind_of, wrap, unwrap in WITHIN:
        found, reasons = array_of([wrap(value)], kind_of(kind))
        assert bool(reasons) == bool(why)
        if not why:
            assert repr(unwrap(found[0].as_py())) == repr(alone[0].as_py())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1.5], pa.list_(pa.int64())),
        ({"f": Decimal("1.5")}, pa.struct([("f", pa.int32())])),
        ({"k": 0.1}, pa.map_(pa.string(), pa.float32())),
        ([b"a"], pa.list_(pa.string())),
        ([datetime(2026, 1, 1, 5)], pa.list_(pa.date32())),  # noqa: DTZ001 - on purpose
        ([datetime(2026, 1, 1, 5, tzinfo=UTC)], pa.list_(pa.timestamp("us"))),
        ([datetime(2026, 1, 1, 5)], pa.list_(pa.timestamp("us", "UTC"))),  # noqa: DTZ001 - on purpose
        (time(1, tzinfo=UTC), pa.time64("us")),
    ],
    ids=str,
)
def test_what_arrow_would_alter_is_refused(value: Any, kind: pa.DataType) -> None:
    found, why = array_of([None, value], kind)
    assert (found.to_pylist(), why.keys()) == ([None, None], {1})


def test_a_type_that_no_value_of_a_source_fits_refuses_each_by_itself() -> None:
    found, why = array_of([None, Decimal(1), time()], pa.duration("us"))
    assert (found.null_count, why.keys()) == (3, {1, 2})


def test_types_are_written_alike_whoever_made_them() -> None:
    """T4-B7: formats and libraries call what is in a list otherwise, and dead letters had other reasons by engine."""
    kinds = [pa.list_(pa.field(name, pa.decimal128(5, 2))) for name in ("item", "element", "array")]
    assert {written(kind) for kind in kinds} == {"list<decimal(5, 2)>"}
    assert len({array_of([[], 5], kind)[1][1] for kind in kinds}) == 1
    maps = [
        pa.map_(pa.string(), pa.int64()),
        pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int64())),
    ]
    assert {written(kind) for kind in maps} == {"map<string, int64>"}
