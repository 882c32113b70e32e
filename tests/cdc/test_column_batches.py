"""Events that are read by columns say what they say when they are read one by one, and whatever is in doubt is read so."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import KafkaRecord
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.both_ways import Outcome, outcomes
from tests.cdc.events import event, postgres, record, struct, with_schema

ID = {"type": "int32", "optional": False, "field": "id"}
PLACEHOLDER = "__debezium_unavailable_value"


def decimal(number: int) -> str:
    return base64.b64encode(number.to_bytes((number.bit_length() // 8) + 1, "big", signed=True)).decode()


def named(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "name": name, **more}


DEBEZIUM, CONNECT = "io.debezium.time.", "org.apache.kafka.connect.data."
LISTED = {"type": "array", "items": {"type": "string", "optional": True}}
DIGITS = {"scale": "2", "connect.decimal.precision": "6"}
YEAR_1_MS, YEAR_9999_MS = -62_135_596_800_000, 253_402_300_799_999
WHOLE = [0, -1, 2**31, 2**63 - 1, -(2**63), None]
VALUES: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    ("int16", {"type": "int16"}, WHOLE, [2**63, "1", 1.5, True, [1]]),
    ("int64", {"type": "int64"}, WHOLE, [-(2**63) - 1, {"a": 1}]),
    ("double", {"type": "double"}, [0.1, -0.0, 5e-324, 1e308, 3, 2**53 + 1, float("nan"), None], [float("inf"), float("-inf"), "NaN", 10**400, "x", False]),
    ("float", {"type": "float"}, [1.5, None], []),
    ("boolean", {"type": "boolean"}, [True, False, None], [0, "true"]),
    ("string", {"type": "string"}, ["", "Zoë 🦆", "a\u0000b", "\n\t\"\\/", "2020-01-01", "null", None], [PLACEHOLDER, "\ud800", 5, ["x"]]),
    ("bytes", {"type": "bytes"}, ["", "AAH/", None], ["?", PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode(), 7]),
    ("decimal", named("bytes", f"{CONNECT}Decimal", parameters=DIGITS), [decimal(one) for one in (0, 1, -1, 128, 999_999, -999_999)] + [None, ""], [decimal(1_000_000), decimal(10**40), "?", 1.25]),
    ("wide decimal", named("bytes", f"{CONNECT}Decimal", parameters={"scale": "10"}), [decimal(10**38 - 1), decimal(-(10**38) + 1)], [decimal(10**38)]),
    ("decimal of no digits", named("bytes", f"{CONNECT}Decimal", parameters={"scale": "60"}), [decimal(17), decimal(-(10**70))], ["?"]),
    ("variable decimal", {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": [{"type": "int32", "field": "scale"}, {"type": "bytes", "field": "value"}]}, [{"scale": 2, "value": decimal(17)}, None], [{"scale": "x", "value": "AA=="}, {"scale": 1}]),
    ("date", named("int32", f"{DEBEZIUM}Date"), [0, -719_162, 2_932_896, None], [-719_163, 2_932_897, 2**40]),
    ("connect date", named("int32", f"{CONNECT}Date"), [1], [2**31]),
    ("time", named("int32", f"{DEBEZIUM}Time"), [0, 86_399_999, None], [-1, 86_400_000]),
    ("micro time", named("int64", f"{DEBEZIUM}MicroTime"), [0, 86_399_999_999], [86_400_000_000]),
    ("nano time", named("int64", f"{DEBEZIUM}NanoTime"), [0, 86_399_999_999_000], [1, 86_400_000_000_000, -1000]),
    ("timestamp", named("int64", f"{DEBEZIUM}Timestamp"), [0, -1, YEAR_1_MS, YEAR_9999_MS, None], [YEAR_1_MS - 1, YEAR_9999_MS + 1, 2**62]),
    ("micro timestamp", named("int64", f"{DEBEZIUM}MicroTimestamp"), [YEAR_1_MS * 1000, YEAR_9999_MS * 1000 + 999], [YEAR_1_MS * 1000 - 1, YEAR_9999_MS * 1000 + 1000]),
    ("nano timestamp", named("int64", f"{DEBEZIUM}NanoTimestamp"), [1000, -1000, 2**62 // 1000 * 1000], [1, -1, 2**63 - 1]),
    ("connect timestamp", named("int64", f"{CONNECT}Timestamp"), [1714000000000], ["2020"]),
    ("zoned timestamp", named("string", f"{DEBEZIUM}ZonedTimestamp"), ["2024-02-29T23:59:59.123456Z", "2024-01-01T00:00:00+05:30", "0001-01-02T00:00:00.1-23:59", "9999-12-31T23:59:59Z", None], ["2023-02-29T00:00:00Z", "2024-01-01T00:00:00", "2024-01-01T24:00:00Z", "2024-01-01T00:00:60Z", "2024-01-01", "2024-01-01T00:00:00.1234567Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2024-01-01T00:00:00+24:00", "2024-01-01T00:00:00+05", PLACEHOLDER, ""]),
    ("text of a name", named("string", "io.debezium.data.Uuid"), ["x"], [PLACEHOLDER]),
    ("a date in text", named("string", f"{DEBEZIUM}Date"), [], ["2024-01-01"]),
    ("list", LISTED, [["a", None], [], None], [[PLACEHOLDER], [1], "a"]),
    ("list of numbers", {"type": "array", "items": {"type": "int32"}}, [[1, 2]], [[2**63], [1.5]]),
    ("struct", struct([{"type": "string", "field": "a"}, {"type": "double", "field": "b"}], "point"), [{"a": "x", "b": 0.1}, {"a": None}, None], [{PLACEHOLDER: PLACEHOLDER}, {"c": 1}, {"b": "x"}]),
    ("map", {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}}, [], [{"a": 1}, None, [["a", 1]]]),
    ("a type that nobody knows", {"type": "int128"}, [], [1]),
]  # fmt: skip


def inserts(schema: dict[str, Any], values: Sequence[Any], *, first: int = 0) -> list[KafkaRecord]:
    """One insert for each value of a column ``v``; ids are offsets, and so are positions."""
    fields = [ID, {**schema, "field": "v"}]
    return [row("c", {"id": at, "v": value}, fields, at) for at, value in enumerate(values, first)]


def row(
    op: str, after: Any, fields: Any, at: int, *, before: Any = None, key: Any = ..., **more: Any
) -> KafkaRecord:
    """An event of the table ``a`` with its schemas."""
    given = event(op, after, before, **{"source": postgres(1000 + at, "a"), **more.pop("event", {})})
    named_ = {"id": (after or before or {}).get("id")} if key is ... else key
    coded = None if named_ is None else {"schema": struct([ID], "a.Key"), "payload": named_}
    return record(with_schema(given, fields), coded, offset=at, **more)


def equal(records: Sequence[KafkaRecord], **more: Any) -> Outcome:
    """What both ways say, once they say the same."""
    by_columns, each = outcomes(records, **more)
    assert by_columns.told() == each.told()
    return by_columns


@pytest.mark.parametrize(
    ("schema", "plain", "strange"), [pytest.param(*one[1:], id=one[0]) for one in VALUES]
)
def test_values_are_read_alike(schema: dict[str, Any], plain: list[Any], strange: list[Any]) -> None:
    taken = equal(inserts(schema, plain)).by_columns
    assert taken == len(plain), "plain values are read by columns"
    found = equal(inserts(schema, [*plain, *strange]))
    assert len(found.rows) + len(found.dead) == len(plain) + len(strange)
    for value in strange:
        equal(inserts(schema, [value]))
    fields = [ID, {**schema, "field": "v"}]
    equal(
        [
            row("u", {"id": 1, "v": value}, fields, at, before={"id": 1, "v": old})
            for at, (value, old) in enumerate(
                (a, b) for a in [*plain, *strange] for b in [*plain, *strange][:6]
            )
        ]
    )


@pytest.mark.long
def test_one_strange_record_among_many_does_not_slow_the_others() -> None:
    values: list[Any] = ["text"] * 3000
    values[1234], values[2999] = 5, "\ud800"
    found = equal(inserts({"type": "string"}, values))
    assert sorted(found.dead) == [1234, 2999]
    assert found.by_columns > 2800


TEXTS = [ID, {"type": "string", "optional": True, "field": "v"}]


def raw(value: bytes, at: int, key: bytes | None = None) -> KafkaRecord:
    return KafkaRecord("topic", 0, at, key, value)


def test_bytes_that_are_no_events_are_dead_letters_or_ignored_alike() -> None:
    good = row("c", {"id": 1, "v": "x"}, TEXTS, 0)
    assert good.value is not None
    start, end = good.value.split(b',"payload":')
    payload = end[:-1]
    strange = [
        b"", b"{", b"null", b"[]", start, start + b',"payload":', start + b',"payload":null}', start + b',"payload":{}}', start + b',"payload":[]}',
        start + b',"payload":' + payload + payload + b"}", start + b',"payload":' + payload + b',"schema":{"type":"struct","fields":[]}}',
        start + b',"payload":' + payload + b"\n}", start + b',"payload": ' + payload + b"}", start + b',"payload":' + payload + b"} ", good.value + b"}",
        start + b',"payload":{"op":"c"}}', start + b',"payload":{"before":null}}', good.value.replace(b'"x"', b'"\xff"'), good.value.replace(b'"x"', b'"\xed\xa0\x80"'),
        good.value.replace(b'"v":"x"', b'"v":"x","v":"y"'), good.value.replace(b'"v":"x"', b'"v":"x","w":1'), good.value.replace(b'"v":"x"', b'"V":"x"'),
        good.value.replace(b'"v":"x"', b'"w":' + b"[" * 200_000 + b"]" * 200_000), good.value.replace(b'"v":"x"', b'"v":' + b"[" * 100_000 + b"]" * 100_000),
        good.value.replace(b'"schema":{', b'"schema":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b",", 1), good.value.replace(b'"postgresql"', b'"db2"'), good.value.replace(b'"postgresql"', b"null"),
        good.value.replace(b'"op":"c"', b'"op":"x"'), good.value.replace(b'"op":"c"', b'"op":"m"'), good.value.replace(b'"op":"c"', b'"op":"t"'), good.value.replace(b'"op":"c"', b'"op":null'), good.value.replace(b'"table":"a"', b'"table":""'),
        good.value.replace(b'"table":"a"', b'"table":null'), good.value.replace(b'"table":"a"', b'"table":"other"'), good.value.replace(b'"lsn":1000', b'"lsn":null'), good.value.replace(b'"lsn":1000', b'"lsn":-1'),
        b" " + good.value, good.value.decode().encode("utf-16"), b"\xef\xbb\xbf" + good.value,
    ]  # fmt: skip
    for one in strange:
        equal([raw(one, 0)])
        equal([good, raw(one, 1, good.key)])
    records = [raw(one, at, good.key) for at, one in enumerate(strange)]
    equal([*records, *inserts({"type": "string"}, ["y"] * 200, first=len(strange))])


def test_two_payloads_in_one_record_are_not_those_of_two_records() -> None:
    """They are as many as the records, together with one of none."""
    good = row("c", {"id": 1, "v": "x"}, TEXTS, 0)
    assert good.value is not None
    start, payload = good.value[:-1].split(b',"payload":')
    two, none = start + b',"payload":' + payload + payload + b"}", start + b',"payload": }'
    found = equal([good, raw(two, 1, good.key), raw(none, 2, good.key)])
    assert sorted(found.dead) == [1, 2]


@pytest.mark.parametrize(
    "source",
    [
        {"lsn": None}, {"lsn": -5}, {"lsn": 2**63 - 1}, {"sequence": None}, {"sequence": '["7","8"]'}, {"sequence": '["2000","8"]'}, {"sequence": '[null,"8"]'}, {"sequence": '["7",null]'},
        {"sequence": "[7,8]"}, {"sequence": "x"}, {"sequence": "[]"}, {"sequence": '["00000000000000000000000009","1"]'}, {"sequence": '["-1","1"]'}, {"snapshot": "true"}, {"snapshot": "last"}, {"snapshot": None},
        {"snapshot": "true", "sequence": None}, {"connector": "mysql"}, {"connector": None}, {"ts_ms": -1}, {"ts_ms": None}, {"ts_ms": 2**60}, {"db": None}, {"schema": None}, {"table": "b"},
    ],
    ids=str,
)  # fmt: skip
def test_positions_are_made_alike(source: dict[str, Any]) -> None:
    def events(many: int) -> list[KafkaRecord]:
        return [
            row("c", {"id": at, "v": "x"}, TEXTS, at, event={"source": {**postgres(1000 + at, "a"), **(source if at % 2 else {})}})
            for at in range(many)
        ]  # fmt: skip

    equal(events(2))
    equal(events(50))


def test_the_order_of_a_transaction_is_in_positions_by_columns() -> None:
    more = {"id": "5", "total_order": 17, "data_collection_order": 1}
    found = equal([row("c", {"id": at, "v": "x"}, TEXTS, at, event={"transaction": more}) for at in range(3)])
    assert found.by_columns == 3
    assert "0000000017-" in found.rows[0][0]["_cdc_sequence"]


MYSQL = {
    "connector": "mysql",
    "db": "shop",
    "table": "a",
    "ts_ms": 5,
    "file": "binlog.000017",
    "pos": 4,
    "row": 1,
}
SQL_SERVER = {
    "connector": "sqlserver",
    "db": "d",
    "schema": "dbo",
    "table": "a",
    "ts_ms": 5,
    "commit_lsn": "0000002A:00000B90:0003",
    "change_lsn": None,
    "event_serial_no": 1,
}
ORACLE = {
    "connector": "oracle",
    "db": "d",
    "schema": "S",
    "table": "a",
    "ts_ms": 5,
    "scn": "2868",
    "commit_scn": "2869,2870",
    "rs_id": "0x0001.0002.0003",
    "ssn": 0,
}


@pytest.mark.parametrize(
    ("base", "strange"),
    [
        (MYSQL, [{"row": None}, {"file": None}, {"file": "x"}, {"file": "a.1.22"}, {"file": "a.99999999999"}, {"pos": None}, {"pos": -1}, {"row": 10**10}, {"row": 10**10 - 1}]),
        (SQL_SERVER, [{"change_lsn": "0000002A:00000B90:0002"}, {"commit_lsn": None}, {"commit_lsn": "x"}, {"event_serial_no": None}]),
        ({**SQL_SERVER, "connector": "db2"}, [{"change_lsn": "2a"}, {"commit_lsn": None}, {"commit_lsn": "NULL"}, {"commit_lsn": "0" * 33}]),
        (ORACLE, [{"scn": None}, {"commit_scn": None}, {"rs_id": "x"}, {"rs_id": None}]),
    ],
    ids=["mysql", "sqlserver", "db2", "oracle"],
)  # fmt: skip
def test_positions_of_other_connectors_are_made_alike(
    base: dict[str, Any], strange: list[dict[str, Any]]
) -> None:
    kinds = {
        name: "int64" if isinstance(value, int) else "string"
        for name, value in {**SQL_SERVER, **ORACLE, **base}.items()
    }
    source = [{"type": kinds[name], "optional": True, "field": name} for name in base]

    def told(more: list[dict[str, Any]]) -> list[KafkaRecord]:
        made = []
        for at, one in enumerate(more):
            given = event("c", {"id": at, "v": "x"}, source={**base, **one})
            coded = {"schema": struct([ID], "a.Key"), "payload": {"id": at}}
            made.append(record(with_schema(given, TEXTS, source), coded, offset=at))
        return made

    assert equal(told([{}, {}])).by_columns == 2
    equal(told([{}, *strange]))


def test_keys_deletes_and_tombstones_are_read_alike() -> None:
    both = [{"type": "int32", "field": "id"}, *TEXTS[1:]]
    whole, other = {"id": 1, "v": "x"}, {"id": 2, "v": "x"}
    moved = {"__debezium.newkey": {"id": 2}}
    records = [
        row("c", whole, both, 0), row("u", whole, both, 1, before=whole), row("u", whole, both, 2, before=other), row("u", whole, both, 3, before={"id": None, "v": "x"}),
        row("d", None, both, 4, before={"id": 1, "v": None}), row("d", None, both, 5, before=None, key={"id": 1}), row("d", None, both, 6, before=whole, key=None), row("d", None, both, 7, key=None),
        row("d", whole, both, 8, before=whole), row("c", None, both, 9, key={"id": 1}), row("c", {"id": None, "v": "x"}, both, 10, key={"id": 5}), row("c", {"id": None, "v": "x"}, both, 11, key=None),
        row("c", {"id": 3, "v": "x"}, both, 12, key={"id": None}), row("d", None, both, 13, before=whole, headers=moved), row("r", whole, both, 14), record(None, {"id": 1}, offset=15),
        record(None, None, offset=16), row("c", whole, both, 17, headers={"other": {"id": 2}}),
    ]  # fmt: skip
    for one in records:
        equal([one])
        equal([one], primary_key=["id"])
        equal([one], primary_key=["v"])
        equal([one], primary_key=["gone"])
    found = equal(records, primary_key=["id"])
    assert found.ignored == 2
    assert len(found.rows[2]) == 2, "the row is taken from its old key"
    equal(records)


@pytest.mark.sweep("double", "time", "timestamp", "int64")
@pytest.mark.parametrize(
    "table",
    [
        {"name_mapping": {"v": "w"}}, {"name_mapping": {"id": "key"}}, {"name_mapping": {"v": "id"}}, {"leave_out": ["v"]}, {"leave_out": ["id"]}, {"name_mapping": {"v": "ID"}},
        {"timestamp_fields": {"v": "epoch_ms"}}, {"timestamp_fields": {"v": "iso8601"}}, {"timestamp_fields": {"v": "%d.%m.%Y"}}, {"decimal_fields": {"v": [6, 2]}}, {"timestamp_fields": {"id": "epoch_s"}},
        {"sequence": "precombine", "precombine_key": ["v"]}, {"sequence": "precombine", "precombine_key": ["gone"]}, {"epoch": 3}, {"primary_key": ["v"]}, {"primary_key": ["id", "v"]}, {"format": "iceberg"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ({"type": "int64"}, [0, 1714000000000, 2**62, -1, None]), ({"type": "string"}, ["2024-01-01T00:00:00Z", "1.1.2024", "1.25", "17", "", "9999999.99", None]),
        ({"type": "double"}, [1.5, float("nan"), 10.0**15, None]), ({"type": "int64", "name": f"{DEBEZIUM}MicroTimestamp"}, [0, 17, None]), ({"type": "int32", "name": f"{DEBEZIUM}MicroTime"}, [0, 17, None]),
    ],
    ids=["int64", "string", "double", "timestamp", "time"],
)  # fmt: skip
def test_tables_take_them_alike(table: dict[str, Any], kind: dict[str, Any], values: list[Any]) -> None:
    fields = [ID, {**kind, "field": "v"}]
    records = inserts(kind, values)
    records += [
        row("d", None, fields, 100 + at, before={"id": at, "v": value}) for at, value in enumerate(values)
    ]
    records += [
        row("u", {"id": at, "v": values[0]}, fields, 200 + at, before={"id": at, "v": value})
        for at, value in enumerate(values)
    ]
    equal(records, **table)
    schema = pa.schema({"id": pa.int64(), "v": pa.string(), "w": pa.int64()})
    equal(records, schema=schema, **table)


def test_schemas_of_one_batch_are_merged_alike() -> None:
    wider = [ID, {"type": "double", "field": "v"}, {"type": "string", "optional": True, "field": "w"}]
    narrow = [ID, {"type": "int32", "field": "v"}]
    text = [ID, {"type": "string", "field": "v"}]
    records = [row("c", {"id": at, "v": at}, narrow, at) for at in range(3)]
    records += [row("c", {"id": at, "v": at / 2, "w": "x"}, wider, at) for at in range(3, 6)]
    found = equal(records, primary_key=["id"])
    assert found.by_columns == 6
    assert found.types["v"] == pa.float64()
    equal([*records, row("c", {"id": 7, "v": "x"}, text, 7)], primary_key=["id"])
    equal(records)


@pytest.mark.parametrize("known", [0, 1005, 10**9])
@pytest.mark.parametrize("kinds", ["r", "c", "rc", "cr", "rrcc", "crcr"])
def test_snapshots_and_what_was_under_way_are_ordered_alike(kinds: str, known: int) -> None:
    def told(kind: str, at: int) -> KafkaRecord:
        lsn = 1010 if kind == "r" else 1000 + at
        source = postgres(lsn, "a", sequence=f'[null,"{lsn}"]', snapshot="true" if kind == "r" else "false")
        return row(kind, {"id": at, "v": "x"}, TEXTS, at, event={"source": source})

    positions = {"job/topic/id-1/0": 1, "job/topic/id-1/0/snapshot-0": known} if known else {}
    equal([told(kind, at) for at, kind in enumerate(kinds)], positions=positions)


def test_many_schemas_and_tables_in_one_batch() -> None:
    records = []
    for at in range(600):
        fields = [ID, {"type": "string", "field": "v"}, {"type": "int64", "field": f"c{at % 40}"}]
        records.append(row("c", {"id": at, "v": "x"}, fields, at))
    found = equal(records)
    assert found.by_columns >= 200


_ROW = st.fixed_dictionaries({"id": st.integers(0, 3), "v": st.sampled_from(["a", "b", None, PLACEHOLDER])})
_EVENT = st.tuples(
    st.sampled_from("cccuuudrt"), _ROW, st.none() | _ROW, st.booleans(), st.sampled_from([None, "true"]), st.sampled_from([None, 900, 1010]),
    st.integers(0, 1), st.booleans(),
)  # fmt: skip


@settings(deadline=None)
@given(
    st.lists(_EVENT, max_size=12),
    st.sampled_from([{}, {"primary_key": ["id"]}, {"sequence": "precombine", "precombine_key": ["v"]}]),
)
def test_any_events_are_read_alike(events: list[Any], table: dict[str, Any]) -> None:
    records = []
    for at, (op, after, before, has_key, snapshot, commit, partition, is_moved) in enumerate(events):
        sequence = json.dumps([None if commit is None else str(commit), "1"], separators=(",", ":"))
        source = postgres(1000 + at, "a", sequence=sequence, **({"snapshot": snapshot} if snapshot else {}))
        given_after = None if op in "dt" else after
        headers = {"__debezium.oldkey": {"id": 9}} if is_moved and at % 3 == 0 else {}
        key = {"id": after["id"]} if has_key else None
        records.append(
            row(
                op,
                given_after,
                TEXTS,
                at,
                before=before,
                key=key,
                partition=partition,
                event={"source": source},
                headers=headers,
            )
        )
    equal(records, **table)


def test_records_are_put_in_order_and_have_their_prefixes_again() -> None:
    frame = pa.table(
        {
            "topic": ["b", "b", "a", "a", "b"], "partition": pa.array([1, 1, 0, 0, 0], pa.int32()), "offset": [5, 6, 1, 2, 9], "key": [b"k"] * 5,
            "value": [b"v5", b"v6", b"1}", None, b"v9"], "value_prefix": pa.array([None, None, 0, 0, None], pa.int32()),
        }
    )  # fmt: skip
    found = KafkaRecords.of_frame(frame, [b"{"])
    assert [(one.topic, one.partition, one.offset, one.value) for one in found] == [
        ("a", 0, 1, b"{1}"), ("a", 0, 2, None), ("b", 0, 9, b"v9"), ("b", 1, 5, b"v5"), ("b", 1, 6, b"v6"),
    ]  # fmt: skip
    mixed = KafkaRecords.of_frame(frame.take([1, 0, 3, 2, 4]), [b"{"])
    assert [one.offset for one in mixed] == [1, 2, 9, 5, 6]
    assert found[1:3][1].value == b"v9"
    assert found[-1].offset == 6
    assert KafkaRecords.of_frame(frame, [b"{"]).cut_bytes == 2


def test_records_are_told_apart_by_partition_once_for_all_tables() -> None:
    """Each table of a task asked it of all records: 40 tables in 64 partitions took twice the time to decode."""
    where = [("b", 1), ("a", 7), ("b", 0), ("a", 7), ("c", 1)]
    records = KafkaRecords.of(
        KafkaRecord(topic, number, at, None, b"v") for at, (topic, number) in enumerate(where)
    )
    assert {name: at.tolist() for name, at in records.partitions().items()} == {
        ("a", 7): [1, 3], ("b", 0): [2], ("b", 1): [0], ("c", 1): [4],
    }  # fmt: skip
    starts = {("b", 1): 0, ("a", 7): 2, ("b", 0): 3, ("d", 9): 0}
    assert records.is_since(starts).tolist() == [True, False, False, True, False]
    assert records.is_since(starts, np.array([3, 1, 4])).tolist() == [True, False, False]
    assert records.by_partition is records.by_partition
    assert KafkaRecords.of([]).is_since(starts).tolist() == []


@pytest.mark.parametrize("run", [1, 2, 7])
def test_records_of_partitions_that_interleave_in_very_many_runs_are_put_in_order(run: int) -> None:
    many = 12_000
    partition = [at // run % 3 for at in range(many)]
    frame = pa.table(
        {
            "topic": ["t"] * many,
            "partition": pa.array(partition, pa.int32()),
            "offset": list(range(many)),
            "key": [b"k"] * many,
            "value": [str(at).encode() for at in range(many)],
        }
    )
    found = KafkaRecords.of_frame(frame, [])
    expected = sorted((number, at) for at, number in enumerate(partition))
    assert [(one.partition, one.offset) for one in found] == expected
    assert [int(one.value or b"") for one in found] == [at for _, at in expected]


def test_what_was_cut_off_by_executors_is_known_also_to_a_decoder_that_forgot_it() -> None:
    records = KafkaRecords.of(inserts({"type": "string"}, ["x", "y", "z"]))
    whole = [one.value for one in records]
    assert whole[0] is not None
    prefix = whole[0][: whole[0].index(b',"payload":') + len(b',"payload":')]
    cut = records.data.set_column(
        4, "value", pa.array([one[len(prefix) :] for one in whole if one], pa.binary())
    )
    cut = cut.set_column(8, "value_prefix", pa.array([0, 0, 0], pa.int32()))
    decoder = Decoder("debezium-json")
    decoder.fewest = 3
    found = decoder.decode(KafkaRecords(cut, [prefix]))
    assert [len(block) for block in found.columns] == [3]
    assert not Decoder("debezium-json").decode(KafkaRecords(cut, [prefix])).columns, (
        "so few are read faster one by one"
    )
    strange = decoder.decode(KafkaRecords(cut, [b'{"schema":[],"payload":']))
    assert (len(strange.columns), len(strange.dead)) == (0, 3)
    assert strange.dead[0].record.value == b'{"schema":[],"payload":' + whole[0][len(prefix) :]


@pytest.mark.long
def test_numbers_that_json_does_not_have_slow_no_others() -> None:
    """T4-B7: Connect writes them as texts, and a search by halves gave up with the twenty-fifth piece of a batch."""
    values: list[Any] = [0.25] * 3000
    for at in range(7, 3000, 250):
        values[at] = ("NaN", "Infinity", "-Infinity")[at % 3]
    found = equal(inserts({"type": "double"}, values))
    assert found.by_columns == 3000 - 12


def test_strange_records_among_many_do_not_slow_the_others() -> None:
    values: list[Any] = ["text"] * 3000
    for at in range(7, 3000, 500):
        values[at] = 5
    assert equal(inserts({"type": "string"}, values)).by_columns > 2500
