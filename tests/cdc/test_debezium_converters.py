"""Each type of MySQL, SQL Server and Oracle lands as docs/values.md says: events that Debezium's own converters made.

``debezium/Events.java`` made ``debezium/events.jsonl.gz``, of the values that each connector gives to its converters; the rows
expected here are written by hand.
"""

from __future__ import annotations

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from safewrite.cdc.records.change import KafkaRecord
from tests.cdc.jobs import Job
from tests.cdc.source_types import stamp

RECORDED = Path(__file__).parent / "debezium" / "events.jsonl.gz"
NOON, OLD = stamp(2026, 3, 1, 12, 0, 0, 123456), stamp(1969, 12, 31, 23, 59, 59, 997000)
ZONED = datetime(2026, 3, 1, 12, 0, 0, 123456, UTC)
ON_MISFIT = {
    "mysql": {"span": "text"}, "sqlserver": {"clock7": "floor", "at7": "floor", "zoned": "floor"}, "oracle": {"AT9": "floor"},
}  # fmt: skip
WKB = b"\x01\x01\0\0\0\0\0\0\0\0\0\xf8?\0\0\0\0\0\0\x02\xc0"
ROWS: dict[str, dict[str, Any]] = {
    "mysql": {
        "id": 1, "tiny": -5, "flag": 1, "small": 65535, "medium": -8388608, "big": 9007199254740993, "huge": 2**64 - 1,
        "price": Decimal("1234567890123456.7891"), "whole": Decimal(123456789012345678901234567890), "ratio": 0.1, "part": 0.5,
        "bits": b"\x01\x08", "one": True, "born": date(1969, 12, 31), "at": stamp(2026, 3, 1, 12, 0, 1),
        "at3": stamp(2026, 3, 1, 12, 0, 0, 123000), "at6": stamp(1969, 12, 31, 23, 59, 59, 999999), "seen": ZONED,
        "clock": "23:59:59.999999", "span": "03:00:00", "y": 2026, "name": "Zoë", "note": "long", "code": "AQIAAA==", "data": "/wA=",
        "choice": "b", "choices": "x,z", "doc": '{"a":1}', "place": {"x": 1.5, "y": -2.25, "wkb": WKB, "srid": 4326}, "nothing": None,
    },
    "sqlserver": {
        "id": 1, "tiny": 255, "small": -3, "big": 9007199254740993, "flag": True, "price": Decimal("1234567890123456.7891"),
        "cash": Decimal("-922337203685477.5808"), "coins": Decimal("0.0001"), "ratio": 0.1, "part": 0.5, "born": date(1969, 12, 31),
        "clock0": "23:59:59", "clock6": "23:59:59.999999", "clock7": "23:59:59.999999", "at_small": stamp(2026, 3, 1, 12),
        "at_old": OLD, "at3": OLD, "at6": NOON, "at7": NOON, "zoned": ZONED, "name": "Zoë", "note": "long", "doc": "<a>1</a>",
        "uid": "6F9619FF-8B86-D011-B42D-00C04FC964FF", "code": b"\x01\x02\0\0", "data": b"\xff\0", "version": b"\0\0\0\0\0\0\x07\xd1",
        "nothing": None,
    },
    "oracle": {
        "ID": 1, "FLAG": 1, "LARGE": 900719925474099300, "HUGE": Decimal(12345678901234567890123456789012345678),
        "PRICE": Decimal("1234567890123456.7891"), "ROUNDED": 12300, "ANY_NUMBER": "1.5", "ANY_FLOAT": "0.1", "RATIO": 0.1, "PART": 0.5,
        "NAME": "Zoë", "WIDE": "wide", "FIXED": "abc  ", "NOTE": "long", "PAYLOAD": b"\xff\0", "CODE": b"\x01\x02\0\0",
        "BORN": stamp(1969, 12, 31, 23, 59, 59), "AT3": OLD, "AT6": NOON, "AT9": NOON,
        "ZONED": datetime(2026, 3, 1, 10, 0, 0, 123456, UTC), "LOCAL_AT": ZONED, "SPAN": -267231040000, "YEARS": -110451600000000,
        "PLACE": "AAAR3sAAEAAAACXAAA", "NOTHING": None,
    },
}  # fmt: skip
"""What tables of Delta have; of MySQL with unsigned numbers as precise ones and bytes as base64."""
DEFAULTS = {"huge": -1, "code": b"\x01\x02\0\0", "data": b"\xff\0"}
"""MySQL's own defaults: unsigned numbers from 2^63 on are negative, bytes are bytes."""
MILLIS, NOON_MS = "23:59:59.999000", stamp(2026, 3, 1, 12, 0, 0, 123000)
OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    ("mysql", "adaptive_time_microseconds"): {"span": "-100:00:00"},
    ("mysql", "connect"): {"at6": stamp(1969, 12, 31, 23, 59, 59, 999000), "clock": MILLIS},
    ("sqlserver", "connect"): {"clock6": MILLIS, "clock7": MILLIS, "at6": NOON_MS, "at7": NOON_MS},
    ("oracle", "connect"): {"AT6": NOON_MS, "AT9": NOON_MS},
    ("mysql", "isostring"): {
        "born": "1969-12-31Z", "at": "2026-03-01T12:00:01Z", "at3": "2026-03-01T12:00:00.123Z", "at6": "1969-12-31T23:59:59.999999Z",
        "clock": "23:59:59.999999Z", "span": "03:00:00Z",
    },
    ("sqlserver", "isostring"): {
        "born": "1969-12-31Z", "clock0": "23:59:59Z", "clock6": "23:59:59.999999Z", "clock7": "23:59:59.9999999Z",
        "at_small": "2026-03-01T12:00:00Z", "at_old": "1969-12-31T23:59:59.997Z", "at3": "1969-12-31T23:59:59.997Z",
        "at6": "2026-03-01T12:00:00.123456Z", "at7": "2026-03-01T12:00:00.1234567Z",
    },
    ("oracle", "isostring"): {
        "BORN": "1969-12-31T23:59:59Z", "AT3": "1969-12-31T23:59:59.997Z", "AT6": "2026-03-01T12:00:00.123456Z",
        "AT9": "2026-03-01T12:00:00.123456789Z",
    },
    ("mysql", "string"): {"price": "1234567890123456.7891", "whole": "123456789012345678901234567890"},
    ("mysql", "double"): {"price": 1234567890123456.8, "whole": 1.2345678901234568e29},
    ("sqlserver", "string"): {"price": "1234567890123456.7891", "cash": "-922337203685477.5808", "coins": "0.0001"},
    ("sqlserver", "double"): {"price": 1234567890123456.8, "cash": -922337203685477.6, "coins": 0.0001},
    ("oracle", "string"): {
        "ID": "1", "FLAG": "1", "LARGE": "900719925474099300", "HUGE": "12345678901234567890123456789012345678",
        "PRICE": "1234567890123456.7891",
    },
    ("oracle", "double"): {
        "FLAG": 1.0, "LARGE": 900719925474099300.0, "HUGE": 12345678901234567890123456789012345678.0, "PRICE": 1234567890123456.8,
        "ROUNDED": 12300.0, "ANY_NUMBER": 1.5, "ANY_FLOAT": 0.1,
    },
}  # fmt: skip
"""What is another value under time.precision.mode or decimal.handling.mode: microseconds and nanoseconds make none."""


def expected(event: dict[str, Any], number: int) -> dict[str, Any]:
    database, temporal, decimals = (event[name] for name in ("database", "temporal", "decimals"))
    row = ROWS[database] | OTHERS.get((database, temporal), {}) | OTHERS.get((database, decimals), {})
    return row | (DEFAULTS if database == "mysql" and number < 3 else {})


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_events_of_debeziums_own_converters_land_as_the_page_says(tmp_path: Path, form: str) -> None:
    """All modes of times and decimals, each in a table of its own."""
    events = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    tables: list[dict[str, Any]] = []
    records = []
    for number, event in enumerate(events):
        event["value"]["payload"]["source"]["table"] = f"t{number}"
        texts = (json.dumps(event[name]).encode() for name in ("key", "value"))
        records.append(KafkaRecord("topic", 0, number, *texts))
        tables.append({"table": f"t{number}", "on_misfit": ON_MISFIT[event["database"]]})
        if event["database"] == "oracle" and event["decimals"] == "double":  # such a key is a dead letter
            tables[-1]["decimal_fields"] = {"ID": [9, 0]}
    job = Job(tmp_path, tables, form, schemas=False)
    job.land(*records)
    assert [one["reason"] for one in job.letters()] == []
    for number, event in enumerate(events):
        table = job.read(f"t{number}")
        (row,) = table.drop_columns(["_cdc_epoch", "_cdc_sequence"]).to_pylist()
        wanted = expected(event, number)
        if form == "iceberg":  # a time of a day is one there
            row = {
                name: value.isoformat() if pa.types.is_time(table.schema.field(name).type) else value
                for name, value in row.items()
            }
        assert row == wanted, (event["database"], event["temporal"], event["decimals"])
    assert job.verdict().faults == ()
