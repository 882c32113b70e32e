"""Avro in Confluent's wire format, its schemas by a registry over HTTP."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

import safewrite as sw
from safewrite.cdc.connect.registry import Registry
from tests.cdc.events import decoded, event, postgres, record
from tests.cdc.jobs import Job


class Schemas:
    """An in-process registry: schemas by id, and how often it is to fail before it answers."""

    def __init__(self) -> None:
        self.answers: dict[str, dict[str, Any]] = {}
        self.failures: list[int] = []
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status = (
                    outer.failures.pop() if outer.failures else (200 if self.path in outer.answers else 404)
                )
                body = json.dumps(outer.answers.get(self.path, {"error_code": 40403})).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, number: int, schema: Any, **more: Any) -> Any:
        self.answers[f"/schemas/ids/{number}"] = {"schema": json.dumps(schema), **more}
        return schema

    def registry(self, **settings: Any) -> Registry:
        return Registry(self.url, **{"patience_s": 5.0, "sleep": lambda _: None, **settings})


def serving() -> Iterator[Schemas]:
    """A registry that answers over HTTP."""
    made = Schemas()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


schemas = pytest.fixture(serving, name="schemas")


SOURCE = {
    "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "connector", "type": "string"}, {"name": "db", "type": "string"}, {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"}, {"name": "ts_ms", "type": "long"},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}  # fmt: skip


def envelope(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """As Confluent's converter registers it: the second mention of a record is its name."""
    row = {"type": "record", "name": "Value", "fields": fields, "connect.name": "pg.public.customers.Value"}
    return {
        "type": "record", "name": "Envelope", "namespace": "pg.public.customers",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE}, {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
        "connect.name": "pg.public.customers.Envelope",
    }  # fmt: skip


KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "pg.public.customers",
    "fields": [{"name": "id", "type": "int"}],
}
V1 = [
    {"name": "id", "type": "int"},
    {"name": "name", "type": ["null", "string"], "default": None},
    {
        "name": "paid",
        "type": ["null", {
            "type": "bytes", "scale": 2, "precision": 10, "connect.version": 1,
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "connect.name": "org.apache.kafka.connect.data.Decimal", "logicalType": "decimal",
        }],
        "default": None,
    },
    {"name": "born", "type": {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}, "default": 0},
    {"name": "seen", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]  # fmt: skip


def wire(number: int, schema: Any, value: Any) -> bytes:
    """Confluent's wire format, the datum as fastavro writes it."""
    out = io.BytesIO()
    plain = json.loads(json.dumps(schema))
    schemaless_writer(out, parse_schema(plain), value)
    return struct.pack(">bI", 0, number) + out.getvalue()


def row(**more: Any) -> dict[str, Any]:
    return {"id": 1, "name": "Ada", "paid": Decimal("1.50"), "born": 10, "seen": 1500, **more}


def change(number: int, schema: Any, after: dict[str, Any], offset: int, schemas: Schemas) -> Any:
    source = {
        name: value
        for name, value in postgres().items()
        if name in {"connector", "db", "schema", "table", "ts_ms", "lsn"}
    }
    value = wire(number, schema, event("c", after, source=source))
    return record(value, wire(1, KEY, {"id": after["id"]}), offset=offset)


def test_all_schemas_of_a_batch_are_asked_for_once_each(schemas: Schemas) -> None:
    schemas.add(1, KEY)
    first, second = (
        schemas.add(2, envelope(V1)),
        schemas.add(3, envelope([*V1, {"name": "note", "type": "string"}])),
    )
    records = [
        change(2, first, row(), 0, schemas),
        change(3, second, row(id=2, note="n"), 1, schemas),
        change(2, first, row(id=3), 2, schemas),
    ]
    found = decoded(*records, form="debezium-avro", schema_of=schemas.registry())
    assert not found.dead
    assert found.rows[0].after == {
        "id": 1, "name": "Ada", "paid": Decimal("1.50"), "born": date(1970, 1, 11),
        "seen": datetime(1970, 1, 1, 0, 0, 1, 500000),  # noqa: DTZ001 - a time without zone on purpose
    }  # fmt: skip
    assert str(found.rows[0].types["paid"]) == "decimal128(10, 2)"
    assert [one.keys for one in found.rows] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert sorted(schemas.asked) == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"]


def test_bytes_that_are_not_of_the_schema_are_dead_letters(schemas: Schemas) -> None:
    schemas.add(1, KEY)
    schemas.add(4, {"type": "record", "name": "Two", "fields": [{"name": "v", "type": ["int", "string"]}]})
    schemas.add(5, "no such type")
    schemas.add(6, KEY, schemaType="PROTOBUF")
    schema = schemas.add(2, envelope(V1))
    good = change(2, schema, row(), 9, schemas)
    cut = good.value[:-3]
    poison = [b"", b"\x01\x00\x00\x00\x02", b'{"op": "c"}', cut, good.value + b"\x00", struct.pack(">bI", 0, 77), struct.pack(">bI", 0, 4), struct.pack(">bI", 0, 5), struct.pack(">bI", 0, 6)]  # fmt: skip
    found = decoded(
        *(record(one, good.key, offset=offset) for offset, one in enumerate(poison)),
        good,
        form="debezium-avro",
        schema_of=schemas.registry(),
    )
    reasons = [letter.reason for letter in found.dead]
    assert len(reasons) == len(poison)
    assert "wire format" in reasons[0]
    assert "does not know schema 77" in reasons[5]
    assert "do not fit schema 4" in reasons[6]
    assert "PROTOBUF" in reasons[8]
    assert [one.record.offset for one in found.rows] == [9]


@pytest.mark.sweep("{'leave_out': ['v']}", "{'on_misfit': 'null'}")
@pytest.mark.parametrize(
    ("table", "landed"),
    [({"leave_out": ["v"]}, {"id": 1}), ({"on_misfit": {"v": "text"}}, {"id": 1, "v": "7"}), ({"on_misfit": "null"}, {"id": 1}), ({}, None)],
    ids=str,
)  # fmt: skip
def test_a_union_of_types_that_no_column_has_keeps_no_other_column_from_landing(
    schemas: Schemas, tmp_path: Path, table: dict[str, Any], landed: Any
) -> None:
    """T3-B13: every record of the table was a dead letter, also where the column was left out."""
    fields = [
        {"name": "id", "type": "int"},
        {"name": "v", "type": ["null", "int", "string"], "default": None},
    ]
    schemas.add(1, KEY)
    schema = schemas.add(2, envelope(fields))
    settings = {"envelope": "debezium-avro", "registry": {"url": schemas.url}}
    job = Job(tmp_path, [{"table": "customers", **table}], settings=settings)
    job.land(change(2, schema, {"id": 1, "v": 7}, 9, schemas))
    assert (job.rows("customers").get(1) if landed else None) == landed
    assert len(job.letters()) == (landed is None)
    assert landed or "union of 2 types" in job.letters()[0]["reason"]


def test_a_registry_that_was_away_is_asked_again(schemas: Schemas) -> None:
    schema = schemas.add(1, KEY)
    schemas.failures = [503, 500, 429]
    assert json.loads(schemas.registry()(1)) == schema
    assert len(schemas.asked) == 4


def test_a_registry_that_stays_away_fails_the_batch_and_makes_no_dead_letters(schemas: Schemas) -> None:
    """Else a batch of good records would be dead letters because of an outage."""
    schemas.add(1, KEY)
    given = record(b"\x00\x00\x00\x00\x01", b"\x00\x00\x00\x00\x01")
    schemas.failures = [503] * 1000
    with pytest.raises(sw.StorageError, match="read again"):
        decoded(given, form="debezium-avro", schema_of=schemas.registry(patience_s=0.0))
    schemas.failures = [401]
    with pytest.raises(sw.StorageError, match="password"):
        decoded(given, form="debezium-avro", schema_of=schemas.registry())


def test_references_of_a_schema_are_put_in(schemas: Schemas) -> None:
    inner = {
        "type": "record",
        "name": "Source",
        "namespace": "shared",
        "fields": [{"name": "lsn", "type": "long"}],
    }
    schemas.answers["/subjects/shared/versions/3"] = {"schema": json.dumps(inner)}
    outer = {
        "type": "record",
        "name": "Outer",
        "fields": [{"name": "a", "type": "shared.Source"}, {"name": "b", "type": ["null", "shared.Source"]}],
    }
    schemas.add(1, outer, references=[{"name": "shared.Source", "subject": "shared", "version": 3}])
    found = json.loads(schemas.registry()(1))
    assert found["fields"][0]["type"] == inner
    parse_schema(found)


def test_records_in_avro_land_with_all_their_schemas(
    schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The registry as the configuration names it."""
    monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
    schemas.add(1, KEY)
    first, second = (
        schemas.add(2, envelope(V1)),
        schemas.add(3, envelope([*V1, {"name": "note", "type": "string"}])),
    )
    registry = {"url": schemas.url, "user": "u", "password": "env:REGISTRY_PASSWORD"}
    job = Job(
        tmp_path, [{"table": "customers"}], settings={"envelope": "debezium-avro", "registry": registry}
    )
    job.land(
        change(2, first, row(), 0, schemas),
        change(3, second, row(id=2, note="ä", paid=None), 1, schemas),
        record(b"\x00\x00", offset=2),
    )
    rows = job.rows("customers")
    assert rows[1] == {
        "id": 1, "name": "Ada", "paid": Decimal("1.50"), "born": date(1970, 1, 11), "seen": datetime(1970, 1, 1, 0, 0, 1, 500000),  # noqa: DTZ001
        "note": None,
    }  # fmt: skip
    assert (rows[2]["note"], rows[2]["paid"]) == ("ä", None)
    assert [letter["offset"] for letter in job.letters()] == [2]


def test_events_in_avro_are_rows_under_every_schema_of_their_topic(tmp_path: Path, schemas: Schemas) -> None:
    """Both ways of reading; a schema that came later has a column more, and one a wider type."""
    first: dict[str, Any] = {
        "type": "record", "name": "Click",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }  # fmt: skip
    second = {**first, "fields": [{"name": "n", "type": "long"}, *first["fields"][1:], {"name": "s", "type": ["null", "string"]}]}  # fmt: skip
    schemas.add(1, first)
    schemas.add(2, second)
    given = [record(wire(1, first, {"n": n, "at": n}), b"\xff", offset=n) for n in range(4)]
    given += [
        record(wire(2, second, {"n": 2**40, "at": 4, "s": "x"}), offset=4),
        record(b"\0\0\0\0\3x", offset=5),
    ]
    for fewest in (1, 1000):
        (tmp_path / str(fewest)).mkdir()
        settings = {"envelope": "events-avro", "registry": {"url": schemas.url}}
        tables = [{"table": "clicks", "source": "topic", "mode": "append"}]
        job = Job(tmp_path / str(fewest), tables, settings=settings, schemas=False)
        landing = job.landing()
        landing.decoder.fewest = fewest
        job.land(*given, landing=landing)
        rows = sorted(job.read("clicks").to_pylist(), key=lambda row: row["n"])
        assert [(row["n"], row["s"]) for row in rows] == [*((n, None) for n in range(4)), (2**40, "x")]
        assert [row["at"].microsecond for row in rows] == [0, 1000, 2000, 3000, 4000]
        assert [letter["offset"] for letter in job.letters()] == [5]
