"""To which wider types columns may go, by format."""

from __future__ import annotations

import pyarrow as pa
import pytest

from safewrite.values.widening import Way, merged, wider, wider_fields

_ONE = pa.struct([pa.field("a", pa.int32(), nullable=False)])
_TWO = pa.struct([("b", pa.string()), ("a", pa.int64())])


def _both(of_a: pa.DataType) -> pa.DataType:
    return pa.struct([pa.field("a", of_a, nullable=False), ("b", pa.string())])


@pytest.mark.parametrize(
    ("have", "want", "iceberg", "delta"),
    [
        (pa.int32(), pa.int64(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), None, None),
        (pa.int8(), pa.int16(), None, pa.int16()),
        (pa.int32(), pa.float64(), None, pa.float64()),
        (pa.int64(), pa.float64(), None, None),
        (pa.float32(), pa.float64(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
        (pa.decimal128(5, 2), pa.decimal128(4, 3), None, pa.decimal128(6, 3)),
        (pa.decimal128(38, 2), pa.decimal128(38, 3), None, None),
        (pa.int64(), pa.decimal128(12, 2), None, pa.decimal128(38, 2)),
        (pa.date32(), pa.timestamp("us"), None, None),
        (pa.string(), pa.int64(), None, None),
        (_ONE, _TWO, _both(pa.int64()), _both(pa.int64())),
        (pa.list_(_ONE), pa.list_(_TWO), pa.list_(_both(pa.int64())), pa.list_(_both(pa.int32()))),
    ],
)
def test_a_type_becomes_wider_as_its_format_allows(
    have: pa.DataType, want: pa.DataType, iceberg: pa.DataType | None, delta: pa.DataType | None
) -> None:
    ways: dict[Way, pa.DataType | None] = {"iceberg": iceberg, "delta": delta}
    for way, found in ways.items():
        (field,) = wider_fields(pa.schema([("c", have)]), pa.schema([("c", want)]), way) or [None]
        assert (None if field is None else _loosely(field.type)) == (
            None if found is None else _loosely(found)
        )


def _loosely(kind: pa.DataType) -> str:
    """A type without the names of elements."""
    return str(kind).replace("element", "item")


def test_fields_alone_change_no_type() -> None:
    assert wider(_ONE, _TWO, "fields") == _both(pa.int32())
    assert wider(pa.int32(), pa.int64(), "fields") is None
    assert wider(pa.map_(pa.string(), _ONE), pa.map_(pa.string(), _TWO), "fields") == pa.map_(
        pa.string(), _both(pa.int32())
    )


def test_names_that_no_table_can_have_widen_nothing() -> None:
    upper = pa.struct([("A", pa.int32())])
    assert wider_fields(pa.schema([("c", _ONE)]), pa.schema([("c", upper)]), "iceberg") == []


def test_schemas_of_one_batch_are_merged_field_by_field() -> None:
    left, right = pa.struct([("a", pa.int64())]), pa.struct([("b", pa.int64())])
    assert merged(left, right) == pa.struct([("a", pa.int64()), ("b", pa.int64())])
    assert merged(left, pa.struct([("a", pa.string())])) is None
