"""Delta's schema JSON and Arrow schemas, each from the other."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from deltalake import Schema
from hypothesis import given

from safewrite.delta.log import schema as delta_schema
from safewrite.errors import InvalidInputError, UnsupportedTableError
from tests.frames.strategies import tables


def one(kind: Any, **more: Any) -> str:
    field = {"name": "c", "type": kind, "nullable": True, "metadata": {}, **more}
    return json.dumps({"type": "struct", "fields": [field]})


@given(tables(rows_max=0))
def test_every_type_goes_to_delta_and_back(table: pa.Table) -> None:
    text = delta_schema.from_arrow(table.schema)
    assert delta_schema.to_arrow(text) == table.schema
    assert json.loads(Schema.from_json(text).to_json()) == json.loads(text), "as deltalake reads it"


def test_nullability_and_metadata_are_kept_at_every_level() -> None:
    text = json.dumps(
        {
            "type": "struct",
            "fields": [
                {
                    "name": "s",
                    "type": {
                        "type": "struct",
                        "fields": [
                            {"name": "k", "type": "long", "nullable": False, "metadata": {"comment": "7"}},
                        ],
                    },
                    "nullable": False,
                    "metadata": {"delta.identity.start": 4, "delta.generationExpression": "x1"},
                },
                {
                    "name": "m",
                    "type": {
                        "type": "map",
                        "keyType": "string",
                        "valueType": {"type": "array", "elementType": "decimal(38,2)", "containsNull": False},
                        "valueContainsNull": False,
                    },
                    "nullable": True,
                    "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"},
                },
            ],
        }
    )
    assert json.loads(delta_schema.from_arrow(delta_schema.to_arrow(text))) == json.loads(text)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("variant", {}),
        ("interval year to month", {}),
        ("string collate UTF8_LCASE", {}),
        ("string", {"metadata": {"__COLLATIONS": {"c": "spark.UTF8_LCASE"}}}),
        ({"type": "array", "elementType": "variant", "containsNull": True}, {}),
        ({"type": "udt"}, {}),
    ],
)
def test_types_that_are_not_known_are_refused_by_column(kind: Any, more: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedTableError, match="'c"):
        delta_schema.to_arrow(one(kind, **more))


def test_text_that_is_no_schema_is_refused() -> None:
    for text in ("", "[]", "{}"):
        with pytest.raises(UnsupportedTableError, match="no Delta schema"):
            delta_schema.to_arrow(text)


def test_other_layouts_of_the_same_values_become_canonical() -> None:
    schema = pa.schema(
        [
            ("a", pa.large_string()),
            ("b", pa.dictionary(pa.int8(), pa.string())),
            ("c", pa.timestamp("ns", tz="Europe/Oslo")),
            ("d", pa.timestamp("ms")),
            ("e", pa.uint32()),
            pa.field("f", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        ]
    )
    fields = json.loads(delta_schema.from_arrow(schema))["fields"]
    assert [f["type"] for f in fields] == ["string", "string", "timestamp", "timestamp_ntz", "long", "long"]
    assert fields[-1]["metadata"] == {}


@pytest.mark.parametrize(
    "field",
    [
        pa.field("c", pa.uint64()),
        pa.field("c", pa.float16()),
        pa.field("c", pa.null()),
        pa.field("c", pa.duration("s")),
        pa.field("c", pa.decimal256(50, 2)),
        pa.field("c", pa.list_(pa.null())),
        pa.field("c d", pa.int64()),
        pa.field("c", pa.struct([("x,y", pa.int64())])),
    ],
)
def test_columns_that_delta_cannot_have_are_refused_by_name(field: pa.Field) -> None:
    with pytest.raises(InvalidInputError, match="'c"):
        delta_schema.from_arrow(pa.schema([field]))


def test_only_times_without_a_zone_need_a_feature() -> None:
    naive, aware = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
    assert delta_schema.features_needed(pa.schema([("a", aware), ("b", pa.int64())])) == ()
    nests = (
        pa.list_(naive),
        pa.struct([("x", naive)]),
        pa.map_(pa.string(), naive),
        pa.list_(pa.list_(naive)),
    )
    for kind in (naive, *nests):
        assert delta_schema.features_needed(pa.schema([("a", kind)])) == ("timestampNtz",)


def test_added_columns_come_last_and_leave_the_rest_to_the_letter() -> None:
    old = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":false,"metadata":{"x":{"y":[1.50]}}}]}'
    text = delta_schema.add_fields(old, [pa.field("b", pa.large_string(), nullable=False)])
    added = '{"name":"b","type":"string","nullable":true,"metadata":{}}'
    assert json.loads(text)["fields"] == [json.loads(old)["fields"][0], json.loads(added)]
    assert text.startswith('{"type":"struct","fields":[{"name":"a","type":"long","nullable":false,')
    with pytest.raises(InvalidInputError, match="differs only in case"):
        delta_schema.add_fields(old, [pa.field("A", pa.int64())])
