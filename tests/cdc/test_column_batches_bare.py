"""Records in JSON that come without a schema, read by columns, say what they say when they are read one by one.

Types are those of the values then, and whatever does not fit what was inferred from samples is read one by one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc import test_column_batches
from tests.cdc.both_ways import Outcome, outcomes
from tests.cdc.events import dms, event, postgres, record

Row = dict[str, Any]
Make = Callable[..., KafkaRecord]
"""A record of an operation, a row, and its offset."""


def debezium(op: str, row: Any, at: int, before: Any = None, key: Any = ..., **more: Any) -> KafkaRecord:
    """An event of the table ``a``; its position is that of its offset."""
    source = {**postgres(1000 + at, "a"), **more.pop("source", {})}
    given_key = {"id": (row or before or {}).get("id")} if key is ... else key
    content = event(
        {"load": "r", "insert": "c"}.get(op, op[0]), None if op == "delete" else row, before, source=source
    )
    if op == "delete":
        content["before"] = row
    return record(content | more.pop("event", {}), given_key, offset=at, **more)


def of_dms(op: str, row: Any, at: int, before: Any = None, **more: Any) -> KafkaRecord:
    position = f"00000000/{1000 + at:08X}.1.x"
    metadata = {"table-name": "a", **more.pop("metadata", {})}
    return record(dms(op, row, before, position=position, **metadata), b"public.a.1", offset=at, **more)


def of_maxwell(op: str, row: Any, at: int, before: Any = None, **more: Any) -> KafkaRecord:
    kind = "bootstrap-insert" if op == "load" else op
    position = {} if op == "load" else {"xid": 7, "position": f"master.000006:{1000 + at}"}
    old = {} if before is None else {"old": before}
    content = {
        "database": "shop",
        "table": more.pop("table", "a"),
        "type": kind,
        "ts": 1714000000,
        **position,
        "data": row,
    }
    return record({**content, **old}, b'{"database":"shop","table":"a","pk.id":1}', offset=at, **more)


def unwrapped(op: str, row: Any, at: int, before: Any = None, **more: Any) -> KafkaRecord:
    """As ``ExtractNewRecordState`` makes it of an event, which knows no row before."""
    told = {"load": "r", "insert": "c"}.get(op, op[0])
    source = {"__table": more.pop("table", "a"), "__lsn": 1000 + at, "__source_ts_ms": 1714000000000}
    added = {
        "__deleted": str(told == "d").lower(),
        "__op": told,
        "__db": "inventory",
        "__schema": "public",
        **source,
    }
    return record({**(row or {}), **added}, {"id": (row or before or {}).get("id")}, offset=at, **more)


MAKERS = {"debezium": debezium, "dms": of_dms, "maxwell": of_maxwell, "unwrapped": unwrapped}
ENVELOPES = {
    b'"metadata"': "dms-json",
    b'"database"': "maxwell-json",
    b'"__op"': "debezium-unwrapped-json",
    b'"source"': "debezium-json",
}


def envelope_of(records: Sequence[KafkaRecord]) -> str:
    found = [form for text, form in ENVELOPES.items() if any(text in (one.value or b"") for one in records)]
    return found[0] if found else "debezium-json"


def of_table(make: Make, name: str) -> dict[str, Any]:
    """What makes a record one of this table."""
    told: dict[Any, dict[str, Any]] = {
        debezium: {"source": {"table": name}},
        of_dms: {"metadata": {"table-name": name}},
    }
    return told.get(make, {"table": name})


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Make:
    return MAKERS[request.param]


def equal(records: Sequence[KafkaRecord], **more: Any) -> Outcome:
    """What both ways say, once they say the same."""
    decoder = partial(Decoder, envelope_of(records))
    by_columns, each = outcomes(records, decoder=decoder, **{"primary_key": ["id"], **more})
    assert by_columns.told() == each.told()
    return by_columns


def inserts(make: Make, values: Sequence[Any], first: int = 0) -> list[KafkaRecord]:
    """One insert for each value of a column ``v``; values of text are JSON as they are."""
    found = []
    for at, value in enumerate(values, first):
        made = make("insert", {"id": at, "v": "<v>"}, at)
        text = value if isinstance(value, str) else json.dumps(value)
        found.append(replace(made, value=(made.value or b"").replace(b'"<v>"', text.encode())))
    return found


KINDS: dict[str, list[str]] = {
    "whole numbers": ["0", "-1", "9223372036854775807", "-9223372036854775808", "null"],
    "numbers": ["0.1", "-0.0", "5e-32", "3", "0", "12.50", "1234567.125", "1e3", "9007199254740991", "null"],
    "texts": ['"x"', '""', '"Zoë"', '"a\\u0000b"', '"2020-01-01"', '"1.5"', "null"],
    "booleans": ["true", "false", "null"],
    "nulls": ["null", "null"],
    "lists of texts": ["[]", '["x",null,"\\u00e9\\"\\n"]', "[null]", "null"],
    "lists of numbers": ["[1,-0,9223372036854775807]", "[2,null]", "[]"],
    "lists of booleans": ["[true,null]", "[false]"],
}  # fmt: skip
STRANGE = [
    "5e-324", "1e-400", "9223372036854775808", "9007199254740993", "1e400", "1e308", "9007199254740992", "-0", "0.123456789012345678", "123456789012345678.5", "100000000000000000000.0", "0.10000000000000000000",
    "123456789012345678e2", "NaN", "Infinity", "1.5", "5", '"text"', '"\\ud800"', '"__debezium_unavailable_value"', "true", "[1]", "[]", "[0.5]", "[1.0,2]", "[9223372036854775808]", "[[1]]", '[{"a":1}]', '["__debezium_unavailable_value"]', "{}", '{"a":1}', '{"a":{"b":[{}]}}', "null",
]  # fmt: skip
TABLES = [
    None, *(pa.schema({"id": pa.int64(), "v": kind, "w": pa.int64()}) for kind in (pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.string(), pa.bool_(), pa.decimal128(20, 2), pa.list_(pa.string()), pa.struct({"a": pa.int64()}), pa.map_(pa.string(), pa.int64())))
]  # fmt: skip


@pytest.mark.sweep(
    "booleans-debezium",
    "lists of booleans-debezium",
    "lists of numbers-debezium",
    "lists of texts-debezium",
    "lists of texts-dms",
    "nulls-debezium",
    "numbers-dms",
    "numbers-maxwell",
    "numbers-unwrapped",
    "texts-debezium",
    "whole numbers-debezium",
)
@pytest.mark.parametrize(
    ("kind", "make"),
    [
        pytest.param(kind, name, marks=() if is_short else pytest.mark.long)
        for name in MAKERS
        for kind in KINDS
        for is_short in [name == "debezium" or kind == "numbers" or (name, kind) == ("dms", "lists of texts")]
    ],
    indirect=["make"],
)
def test_values_get_their_types_alike(kind: str, make: Make) -> None:
    plain = KINDS[kind]
    found = equal(inserts(make, plain * 2))
    assert found.by_columns == 2 * len(plain), "plain values are read by columns"
    for schema in TABLES:
        equal(inserts(make, [*plain * 4, *STRANGE]), schema=schema)
    for value in STRANGE:
        equal(inserts(make, [*plain * 9, value]))
    for schema in TABLES[1:]:
        equal(inserts(make, plain), schema=schema)


def test_a_number_that_a_binary_one_does_not_keep_is_refused_though_those_beside_it_are_kept(
    make: Make,
) -> None:
    numbers = ["0.5"] * 100
    numbers[50], numbers[70] = "0.12345678901234567890", "9007199254740993"
    found = equal(inserts(make, numbers))
    assert sorted(found.dead) == [50, 70]
    assert found.by_columns == 98


def test_whole_numbers_that_are_written_with_a_point_are_none_for_a_column_of_whole_numbers(
    make: Make,
) -> None:
    """A binary number does not say how it was written, so such a table's numbers are read one by one."""
    schema = pa.schema({"id": pa.int64(), "v": pa.int64()})
    found = equal(inserts(make, ["5", "5.0", "7", "0.5"]), schema=schema)
    assert sorted(found.dead) == [1, 3]
    assert found.rows[0][0]["v"] == 5


@pytest.mark.sweep("maxwell", "unwrapped", "dms")
@pytest.mark.parametrize(
    "value", ["0.12345678901234567", "9.5000000000000001", "12.50", "0.005", "1e-3", "7"]
)
def test_decimals_are_those_that_were_written(value: str, make: Make) -> None:
    for digits in ([38, 17], [20, 3], [10, 2]):
        found = equal(inserts(make, ["0.25", value, "1.5"]), decimal_fields={"v": digits})
        if 1 in found.rows:
            assert found.rows[1][0]["v"] == Decimal(value)


def test_whole_numbers_are_whole_also_beside_others_that_do_not_land(make: Make) -> None:
    nowhere = of_table(make, "b")
    records = [make("insert", {"id": 1, "v": 7}, 0), make("insert", {"id": 2, "v": 1.5}, 1, **nowhere)]
    records.append(make("update", {"id": 1, "v": 8}, 2, {"id": 1, "v": 1.5}))
    assert equal(records).types["v"] == pa.int64()


def test_a_column_that_is_always_null_gets_no_type_and_one_that_comes_later_gets_one(make: Make) -> None:
    found = equal([make("insert", {"id": at, "v": None}, at) for at in range(3)])
    assert "v" not in found.types
    rows: list[Row] = [{"id": at} for at in range(100)]
    rows[61] = {"id": 61, "late": 1.5}
    rows[62] = {"id": 62, "later": "x", "late": None}
    found = equal([make("insert", row, at) for at, row in enumerate(rows)])
    assert (found.types["late"], found.types["later"]) == (pa.float64(), pa.string())
    assert found.by_columns >= 90


def test_fields_that_are_left_out_are_null(make: Make) -> None:
    rows: list[Row] = [{"id": 1, "a": 1, "b": "x"}, {"b": "y", "id": 2}, {"id": 3}, {"id": 4, "a": None}, {}]
    found = equal([make("insert", row, at) for at, row in enumerate(rows)])
    assert found.rows[2][0]["a"] is None
    assert sorted(found.dead) == [4]


@pytest.mark.long
def test_one_strange_record_among_many_does_not_slow_the_others(make: Make) -> None:
    values: list[Any] = ['"text"'] * 3000
    values[0], values[1234], values[2999] = "[[1]]", "5", '{"a":1}'
    found = equal(inserts(make, values))
    assert sorted(found.dead) == [1234]
    assert found.by_columns > 2700


@pytest.mark.sweep("maxwell", "unwrapped", "dms")
@pytest.mark.parametrize("value", ['{"a":1}', "[0.5]", '[{"a":1}]'])
def test_a_nested_value_in_a_column_that_is_null_keeps_no_more_records_than_its_neighbours(
    value: str, make: Make
) -> None:
    found = equal(inserts(make, [value, *["null"] * 199]))
    assert found.by_columns >= 130
    assert found.types["v"] == pa.string()


def test_a_column_that_gets_another_type_is_followed(make: Make) -> None:
    decoder = Decoder(envelope_of(inserts(make, ["1"])))
    read = []
    for start, value in ((0, "1"), (100, '"x"'), (200, '"y"'), (300, '"z"')):
        found = decoder.decode(KafkaRecords.of(inserts(make, [value] * 100, start)))
        read.append(sum(len(block) for block in found.columns))
    assert (read[0], read[3]) == (100, 100)


def test_tables_of_one_topic_have_each_their_columns(make: Make) -> None:
    more: dict[str, Row] = {"a": {"x": 1}, "b": {"x": "text"}, "c": {"y": [1]}}
    records = []
    for at in range(300):
        name = "abc"[at % 3]
        row: Row = {"id": at, "own_" + name: 1, **more[name]}
        records.append(make("insert", row, at, **of_table(make, name)))
    found = equal(records)
    assert found.by_columns >= 98
    assert sorted(found.types) == ["_cdc_epoch", "_cdc_lacks", "_cdc_op", "_cdc_sequence", "id", "own_a", "x"]
    assert "no table of the configuration takes rows" in found.dead[1]


@pytest.mark.sweep("maxwell", "unwrapped", "dms")
def test_changes_of_rows_are_read_alike(make: Make) -> None:
    row = {"id": 1, "v": "x"}
    records = [
        make("insert", row, 0), make("update", row, 1), make("update", row, 2, row), make("update", row, 3, {"id": 2}), make("update", row, 4, {"id": None, "v": "y"}), make("update", row, 5, {}),
        make("delete", row, 6), make("delete", {"id": 1}, 7), make("delete", {"v": "x"}, 8), make("delete", {}, 9), make("load", row, 10), make("load", row, 11, {"id": 3}),
        make("insert", None, 12), make("delete", None, 13), make("update", row, 14, {"v": None}), make("delete", row, 15, {"id": 5}), make("delete", row, 16, {}), make("delete", row, 17, {"id": None}),
    ]  # fmt: skip
    for one in records:
        equal([one])
        equal([one], primary_key=["id", "v"])
    found = equal(records)
    is_moved = len(found.rows[3]) == 2
    assert is_moved is (make is not unwrapped), "the row is taken from its old key, where one is told"
    equal(records, primary_key=["id", "v"])
    equal(records, sequence="precombine", precombine_key=["v"])
    equal([*records, *(replace(one, offset=one.offset + 100, partition=1) for one in records)])


@pytest.mark.sweep(
    "debezium-binary numbers", "debezium-nulls", "dms", "maxwell", "unwrapped", "debezium-numbers"
)
@pytest.mark.parametrize("table", [
    {"name_mapping": {"v": "w"}}, {"name_mapping": {"v": "id"}}, {"leave_out": ["v"]}, {"timestamp_fields": {"v": "epoch_ms"}}, {"timestamp_fields": {"v": "iso8601"}}, {"decimal_fields": {"v": [6, 2]}},
    {"sequence": "precombine", "precombine_key": ["v"]}, {"epoch": 3}, {"primary_key": ["v"]}, {"format": "iceberg"},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("values", [
    ["0", "1714000000000", "-1", "null"], ['"2024-01-01T00:00:00Z"', '"1.25"', '"17"', '""', "null"], ["1.5", "10.0", "12.345", "null"], ["null", "null"],
], ids=["numbers", "texts", "binary numbers", "nulls"])  # fmt: skip
def test_tables_take_them_alike(table: Row, values: list[str], make: Make) -> None:
    records = inserts(make, values)
    records += [replace(one, offset=one.offset + 100) for one in inserts(make, values[::-1])]
    equal(records, **table)
    equal(records, schema=pa.schema({"id": pa.int64(), "v": pa.string(), "w": pa.int64()}), **table)


@pytest.mark.long
def test_bytes_that_are_no_records_are_dead_letters_alike(make: Make) -> None:
    good = make("insert", {"id": 1, "v": "x"}, 0)
    value = good.value or b""
    pretty = json.dumps(json.loads(value), indent=4).encode()
    strange = [
        b"", b"{", b"null", b"[]", b"{}", b"{}{}", b"5", value + value, value + b" ", b" " + value, value[:-1], value + b"}", pretty, pretty.replace(b"\n", b"\r\n\t"), value.replace(b'"x"', b'"\xff"'),
        value.replace(b'"x"', b'"a\nb"'), value.replace(b'"v":"x"', b'"v":"x","v":"y"'), value.replace(b'"v":"x"', b'"v":"x","w":1'), value.replace(b'"v":"x"', b'"w":' + b"[" * 200_000 + b"]" * 200_000),
        value.replace(b'"v":"x"', b'"w":' + b'{"a":' * 3000 + b"1" + b"}" * 3000), b"\xef\xbb\xbf" + value, value.decode().encode("utf-16"), b'{"schema":null,"payload":' + value + b"}", b'{"payload":' + value + b',"schema":null}',
        b'{"schema":{},"payload":' + value + b"}", b'{"schema":5,"payload":' + value + b"}", value.replace(b'"a"', b'""'), value.replace(b'"a"', b"null"), value.replace(b'"a"', b"5"), value.replace(b'"public"', b"null"),
        value.replace(b'"record-type":"data"', b'"record-type":"control"'), value.replace(b'"insert"', b'"create-table"'), value.replace(b'"insert"', b'"truncate-table"'), value.replace(b'"op":"c"', b'"op":"t"'), value.replace(b'"op":"c"', b'"op":"m"'),
        value.replace(b'"lsn":1000', b'"lsn":null'), value.replace(b'"lsn":1000', b'"lsn":1.0'), value.replace(b'"stream-position"', b'"position"'), value.replace(b'"00000000/000003E8.1.x"', b'""'), value.replace(b'"00000000/000003E8.1.x"', b"5"),
        value.replace(b'"transaction-record-id":1', b'"transaction-record-id":"7"'), value.replace(b'"transaction-record-id":1', b'"transaction-record-id":-1'), value.replace(b"2024-07-29T00:58:17.974340Z", b"yesterday"), value.replace(b"1714000000000", b"true"),
    ]  # fmt: skip
    own = [
        value.replace(b"master.000006:1000", b"master"), value.replace(b'"xid":7', b'"xid":7,"xoffset":3'), value.replace(b'"xid":7', b'"xid":7,"commit":true'), value.replace(b'"xid":7', b'"xid":7,"xoffset":-1'), value.replace(b'"xid":7', b'"xid":7,"commit":"yes"'),
        value.replace(b'"insert"', b'"table-drop"'), value.replace(b'"insert"', b'"table-alter"'), value.replace(b"1714000000,", b"-5,"), value.replace(b'"data"', b'"row"'), value.replace(b'"__deleted":"false"', b'"__deleted":"true"'), value.replace(b'"__deleted":"false"', b'"__deleted":true'), value.replace(b'"__lsn"', b'"__pos"'),
    ]  # fmt: skip
    strange += [one for one in own if one != value]
    for one in strange:
        equal([replace(good, offset=at, value=one) for at in range(2)])
        equal([good, replace(good, offset=1, value=one)])
    records = [replace(good, offset=at, value=one) for at, one in enumerate(strange)]
    found = equal([*records, *inserts(make, ['"y"'] * 200, len(strange))])
    assert found.by_columns >= 150


def test_pretty_records_are_read_by_columns(make: Make) -> None:
    """As AWS DMS writes them, if it is not told to write ``json-unformatted``."""
    records = [
        replace(one, value=json.dumps(json.loads(one.value or b""), indent="\t").encode())
        for one in inserts(make, ['"x"', '"y"'])
    ]
    assert equal(records).by_columns == 2


@pytest.mark.long
def test_keys_that_have_other_fields_are_read_one_by_one() -> None:
    row = {"id": 1, "code": "x"}
    keys: list[Any] = [{"id": 1}, {"code": "x"}, {"id": 1, "code": "x"}, {"id": None}, {}, 5, "x", None, {"id": {"a": 1}}, {"id": [1]}, {"schema": 1, "payload": 2}, {"schema": {}, "payload": {"id": 1}}, {"payload": 5, "schema": 6}, {"payload": {"id": 1}, "schema": None}, {"__dbz__physicalTableIdentifier": "x", "id": 1}]  # fmt: skip
    for place, one in enumerate(keys):
        equal([debezium("insert", row, at, key=one) for at in range(3)], primary_key=None)
        for other in (keys[0], keys[place - 1]):
            made = [debezium("insert", row, 0, key=one), debezium("insert", row, 1, key=other)]
            equal(made, primary_key=None)
            equal(made[::-1])


def test_a_key_that_lacks_a_field_is_read_by_itself() -> None:
    """What the key of a new table is, its first record tells."""
    decoder = Decoder("debezium-json")
    decoder.fewest = 2
    row = {"id": 1, "code": "x"}
    keys = [row, row, row, row, {"id": 1}, row]
    records = [debezium("insert", row, at, key=key) for at, key in enumerate(keys)]
    read = decoder.decode(KafkaRecords.of(records[:3]))
    assert [block.places().tolist() for block in read.columns] == [[0, 1, 2]]
    read = decoder.decode(KafkaRecords.of(records[3:]))
    assert [block.places().tolist() for block in read.columns] == [[0, 2]]
    assert [change.keys for change in read.rows] == [{"id": 1}]


def test_records_with_their_schema_and_without_are_of_one_batch() -> None:
    text = [test_column_batches.ID, {"type": "string", "field": "v"}]
    records = []
    for at in range(200):
        with_schema = test_column_batches.row("c", {"id": at, "v": "x"}, text, at)
        records.append(with_schema if at % 2 else debezium("insert", {"id": at, "v": "x"}, at))
    found = equal(records)
    assert found.by_columns == 200
    halves = [
        test_column_batches.row(
            "c", {"id": at, "v": 0.5}, [test_column_batches.ID, {"type": "double", "field": "v"}], at
        )
        for at in range(9)
    ]
    halves += [debezium("insert", {"id": at, "v": 0.5}, at) for at in range(9, 18)]
    decimals = pa.schema({"id": pa.int64(), "v": pa.decimal128(9, 2)})
    found = equal(halves, schema=decimals)
    assert sorted(found.rows) == list(range(9, 18)), "what was a binary number in the source is no decimal"
    numbers = [debezium("insert", {"id": at, "v": 1}, at) for at in range(200, 300)]
    assert len(equal([*records, *numbers]).dead) == 100, "the schema says that it is a text"


_VALUES = st.sampled_from([None, 0, 1, -5, 2**53 + 1, 0.5, 1.0, "x", "", True, [1], ["x"], [], {"a": 1}])
_ROWS = st.dictionaries(st.sampled_from(["id", "v", "w"]), _VALUES, max_size=3)
_SOUND = st.fixed_dictionaries({"id": st.integers(0, 3), "v": st.sampled_from([None, 1, 2, 0.5])})
_ANY = st.tuples(st.sampled_from(["load", "insert", "update", "delete"]), _SOUND | _SOUND | _ROWS, st.none() | _SOUND | _ROWS)  # fmt: skip


def test_decimals_without_a_value_fit_a_column_of_another_precision() -> None:
    decimals = pa.schema({"id": pa.int64(), "v": pa.decimal128(20, 2)})
    found = equal([debezium("load", {"id": 0, "v": None}, 0)], schema=decimals, decimal_fields={"v": [9, 1]})
    assert found.by_columns == 1
    assert [one["v"] for (one,) in found.rows.values()] == [None]


def _loads(*values: Any) -> list[Any]:
    """Rows of a table without a key that have these values in one column."""
    return [("load", {"id": 0, "w": value}, None) for value in values]


@settings(deadline=None)
@example(_loads(None, None, None, 1, "x"), {}, None, "debezium", 2)  # T4-B9
@example(_loads("x", 0), {}, None, "dms", 2)
@example(_loads("x", 0, "x", 0.5), {}, None, "dms", 2)
@example(_loads("x", 0, 0.5, "x", None, True), {}, None, "maxwell", 2)
@given(
    st.lists(_ANY, max_size=12),
    st.sampled_from([{}, {"sequence": "precombine", "precombine_key": ["v"]}, {"decimal_fields": {"v": [9, 1]}}]),
    st.sampled_from(TABLES),
    st.sampled_from(sorted(MAKERS)),
    st.integers(1, 2),
)  # fmt: skip
def test_any_records_are_read_alike(
    records: list[Any], table: Row, schema: Any, maker: str, partitions: int
) -> None:
    made = [MAKERS[maker](op, row, at, before) for at, (op, row, before) in enumerate(records)]
    equal([replace(one, partition=one.offset % partitions) for one in made], schema=schema, **table)
