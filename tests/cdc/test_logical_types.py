"""Each logical type reads a column as it reads the values of it one by one."""

import base64
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.cdc.connect.columns import given_of
from safewrite.cdc.connect.logical_types.column import UNREADABLE, LogicalColumn, RowFallback
from safewrite.cdc.connect.logical_types.declared import declared_decimal, declared_time
from safewrite.cdc.connect.logical_types.plain import IN_AVRO, IN_JSON
from safewrite.cdc.connect.logical_types.schemas import _BY_NAME, column_of
from safewrite.cdc.records.change import UndecodableError
from tests.sampling import no_more_than

PARAMETERS = {"scale": "2", "connect.decimal.precision": "9"}
KINDS = {
    "org.apache.kafka.connect.data.Decimal": "bytes",
    "io.debezium.data.VariableScaleDecimal": "struct",
    "io.debezium.time.ZonedTimestamp": "string",
}
SCALED = [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]
SCHEMAS = [{"type": kind} for kind in ("int64", "float64", "boolean", "string", "bytes")] + [
    {"type": KINDS.get(name, "int64"), "name": name, "parameters": PARAMETERS, "fields": SCALED}
    for name in _BY_NAME
]
YEARS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))  # noqa: DTZ001 - zones are added to them
START = datetime(1970, 1, 1)  # noqa: DTZ001 - as above
US = timedelta(microseconds=1)
WHOLE = (
    st.integers(-(2**63), 2**63 - 1)
    | st.integers(-10, 86_400_000_010)
    | st.builds(
        lambda at, unit: (at - START) // US // unit,
        YEARS,
        st.sampled_from([1, 1000, 86_400_000_000]),
    )
    | st.sampled_from([-719_163, -719_162, 2_932_896, 2_932_897, 86_400_000, 86_399_999, 86_400_000_000])
)
ZONES = st.sampled_from(["Z", "+00:00", "+23:59", "-14:00", "", "+2", "z"])
TIMES = st.builds(
    lambda at, digits, zone: f"{at.isoformat()}{digits}{zone}", YEARS, st.sampled_from(["", "0", "1"]), ZONES
)
BYTES = st.binary(max_size=6)
TEXTS = (
    st.text(max_size=5)
    | TIMES
    | st.sampled_from(["9999-12-31T23:59:59Z", "0001-01-01T00:00:00+01:00", "2020-13-01T00:00:00Z"])
)


def values_of(kind: pa.DataType, name: Any) -> st.SearchStrategy[Any]:
    """Values as a record has them, which Arrow takes as ``kind``."""
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries(
            {"scale": st.integers(-3, 30), "value": values_of(kind.field("value").type, "Decimal")}
        )
    if pa.types.is_string(kind) and str(name).endswith("Decimal"):
        return BYTES.map(lambda raw: base64.b64encode(raw).decode()) | TEXTS
    if pa.types.is_binary(kind):
        return BYTES
    if pa.types.is_string(kind):
        return TEXTS
    return {pa.bool_(): st.booleans(), pa.float64(): st.floats()}.get(kind, WHOLE)


def one(column: LogicalColumn, value: Any) -> Any:
    """What one value is in a column, as Arrow has it; the text of what refuses it."""
    try:
        return None if value is None else pa.array([column.read(value)], column.type).to_pylist()[0]
    except UNREADABLE:
        return UNREADABLE


CASES = [(schema, IN_JSON) for schema in SCHEMAS]
CASES += [(schema, IN_AVRO) for schema in SCHEMAS if schema["type"] in {"bytes", "struct"}]


@pytest.mark.parametrize(
    ("schema", "carried"),
    CASES,
    ids=lambda one: one.get("name", one.get("type", "")) if "type" in one else one["bytes"],
)
@no_more_than(40)
@given(data=st.data())
def test_a_column_is_read_as_its_values_are(
    schema: dict[str, Any], carried: Any, data: st.DataObject
) -> None:
    kind = given_of(schema, carried)
    agree(column_of(schema), pa.array(data.draw(values_in(kind, schema.get("name"))), kind))


def values_in(kind: pa.DataType, name: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | values_of(kind, name), max_size=8)


def agree(column: LogicalColumn, values: pa.Array) -> None:
    """The column of values has each value as it is by itself, or doubts it."""
    fallback = RowFallback(len(values))
    found = column.reader(values.type)(values, fallback)
    assert found.type == column.type
    doubted = fallback.mask()
    for place, value in enumerate(values.to_pylist()):
        alone = one(column, value)
        if alone is UNREADABLE:
            assert doubted[place]
        elif not doubted[place]:
            assert repr(found[place].as_py()) == repr(alone)


DECLARED = [
    *((declared_time(form), kind) for form in ("epoch_s", "epoch_ms", "epoch_us") for kind in (pa.int64(), pa.string())),
    *((declared_time("iso8601"), kind) for kind in (pa.string(), pa.int64())),
    *((declared_decimal(9, 2, mode), kind) for mode in (None, "precise", "string") for kind in (pa.string(), pa.int64(), pa.float64())),
    (declared_decimal(38, 30, "string"), pa.int64()),
]  # fmt: skip


def type_of(given: object) -> str:
    """A name of a case that every process makes alike: a column's own text has addresses of functions."""
    return str(given.type if isinstance(given, LogicalColumn) else given)


NUMBERS = st.decimals(allow_nan=False).map(str) | st.sampled_from(
    ["1e-41", "1E+39", "9" * 30, "+5", "1_0", " 7", "00.50"]
)


@pytest.mark.parametrize(("column", "kind"), DECLARED, ids=type_of)
@no_more_than(40)
@given(data=st.data())
def test_a_declared_column_is_read_as_its_values_are(
    column: LogicalColumn, kind: pa.DataType, data: st.DataObject
) -> None:
    drawn = values_in(kind, "Decimal") | st.lists(
        NUMBERS | TIMES.map(lambda text: text.replace("T", " ")), max_size=8
    )
    agree(column, pa.array(data.draw(drawn if pa.types.is_string(kind) else values_in(kind, "")), kind))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (declared_time("epoch_ms"), 12_000), (declared_time("iso8601"), "2024-02-29 23:59:59.5"),
        (declared_time("iso8601"), "2024-02-29T23:59:59+01:00"), (declared_decimal(9, 2, "string"), "-12.50"),
        (declared_decimal(9, 2, "precise"), "AQID"), (declared_decimal(9, 2, None), 12),
    ],
    ids=type_of,
)  # fmt: skip
def test_plain_values_of_declared_columns_are_in_no_doubt(column: LogicalColumn, value: Any) -> None:
    values = pa.array([value, None])
    assert values.type in column.arrays
    fallback = RowFallback(2)
    assert column.reader(values.type)(values, fallback).to_pylist() == [one(column, value), None]
    assert not fallback.any


@pytest.mark.parametrize(
    "schema",
    [one for one in SCHEMAS if one["type"] != "struct"],
    ids=lambda schema: schema.get("name", schema["type"]),
)
def test_plain_values_are_in_no_doubt(schema: dict[str, Any]) -> None:
    """A reading that doubted all would agree with the other always."""
    kind, name = given_of(schema, IN_JSON), schema.get("name")
    at = datetime(2024, 2, 29, tzinfo=UTC).isoformat()
    plain = {pa.bool_(): True, pa.float64(): 0.1, pa.int64(): 12_000}.get(
        kind, at if str(name).endswith("ZonedTimestamp") else "AQID"
    )
    fallback = RowFallback(2)
    found = column_of(schema).reader(kind)(pa.array([plain, None], kind), fallback)
    assert not fallback.any
    assert found.to_pylist() == [one(column_of(schema), plain), None]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("2024-01-01", "is a date, and no time"),
        ("soon", "is no time"),
        ("2024-01-01T00:00:00.0000001", "has nanoseconds"),
        ("2024-01-01+01:00", "has no zone"),
    ],
)
def test_a_time_that_cannot_be_read_is_shown_as_it_was_sent(said: str, why: str) -> None:
    with pytest.raises(UndecodableError, match=f"^{re.escape(repr(said))} {why}"):
        declared_time("iso8601").read(said)


@pytest.mark.parametrize("said", [2**60, "12:00", ""])
def test_a_number_that_is_no_time_is_named_with_its_unit(said: Any) -> None:
    with pytest.raises(UndecodableError, match=re.escape(f"{said!r} is no time of epoch_ms")):
        declared_time("epoch_ms").read(said)
