"""T3-B10: one record never stops a job; it is a dead letter, and the others land."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.cdc.connect.avro import HEADER, Avro
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import KafkaRecord, UndecodableError
from safewrite.cdc.records.records import KafkaRecords
from tests.cdc.events import event, postgres, record, with_schema
from tests.cdc.jobs import Job, change

FORMS = ("delta", "iceberg")
WHICH = [
    ("delta", "ORDER#1"),
    ("iceberg", "ORDER#1"),
    ("iceberg", "a?b"),
    ("delta", "a?b"),
    ("delta", "a%20b"),
    ("delta", "${x}"),
]
WHICH += [(form, name) for form in FORMS for name in ("漢" * 100, "x" * 300, "\ud800", "a\nb", "a\\b")]


def _create(tmp_path: Path, form: str, **defaults: Any) -> Job:
    settings = {
        "unknown_tables": "create",
        "unknown_database": "raw",
        "defaults": {"format": form, **defaults},
    }
    return Job(tmp_path, [], form, settings, schemas=False)


@pytest.mark.sweep("iceberg", "${x}", "a%20b", "ORDER#1")
@pytest.mark.parametrize(("form", "name"), WHICH)
def test_a_source_whose_name_no_table_can_have_stops_no_other(tmp_path: Path, form: str, name: str) -> None:
    job = _create(tmp_path, form)
    odd = record(event("c", {"id": 1}, source=postgres(2, name)), {"id": 1}, offset=1)
    first, last = (change("c", "good", key, {"id": key}, lsn=key, offset=key) for key in (0, 2))
    lines = job.land(first, odd, last)
    assert [row["id"] for row in job.read("public_good", "raw").to_pylist()] == [0, 2]
    lands = (form, name) in {("delta", "ORDER#1"), ("delta", "a?b")}  # a local folder may have that name
    assert len(job.letters()) == (not lands)
    assert all(line.adds_up for line in lines)
    assert not job.verdict().faults


@pytest.mark.sweep("iceberg", "False")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["\ud800", "", "a\udc00b", "a\0b"])
@pytest.mark.parametrize("has_schema", [False, True])
def test_a_column_whose_name_is_no_text_is_that_records_fault(
    tmp_path: Path, form: str, name: str, has_schema: bool
) -> None:
    job = Job(tmp_path, [{"table": "a"}], form, schemas=False)

    def made(key: int, row: dict[str, Any]) -> KafkaRecord:
        told = event("c", row, source=postgres(key, "a"))
        fields = [{"type": "int32", "optional": True, "field": one} for one in row]
        return record(with_schema(told, fields) if has_schema else told, {"id": key}, offset=key)

    job.land(made(0, {"id": 0}), made(1, {"id": 1, name: 5}), made(2, {"id": 2}))
    assert sorted(job.rows("a")) == [0, 2]
    assert [letter["offset"] for letter in job.letters()] == [1]


@pytest.mark.sweep("iceberg", "True")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("value", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_partition_value_that_no_folder_keeps_is_a_dead_letter_or_lands(
    tmp_path: Path, form: str, schemas: bool, value: str
) -> None:
    job = Job(tmp_path, [{"table": "a", "partition_by": ["country"]}], form, schemas=schemas)
    rows = ["de", value, None, "fr"]
    given = [
        change("c", "a", key, {"id": key, "country": one}, lsn=key + 1, offset=key)
        for key, one in enumerate(rows)
    ]
    job.land(*given, change("u", "a", 0, {"id": 0, "country": value}, lsn=9, offset=4))
    # In Delta readers would take such a value for NULL; Iceberg keeps it beside the files.
    refused = form == "delta"
    assert {key: row["country"] for key, row in job.rows("a").items()} == (
        {0: "de", 2: None, 3: "fr"} if refused else {0: value, 1: value, 2: None, 3: "fr"}
    )
    assert [letter["offset"] for letter in job.letters()] == ([1, 4] if refused else [])
    job.land(change("d", "a", 0, lsn=10, offset=5))
    assert 0 not in job.rows("a")


def test_a_decimal_partition_value_that_no_reader_reads_back_is_a_dead_letter(tmp_path: Path) -> None:
    options = {"table": "a", "partition_by": ["n"], "decimal_fields": {"n": [5, 2]}}
    job = Job(tmp_path, [options], settings={"decimal_handling_mode": "string"}, schemas=False)
    values = ["1.50", "-1.50", "-2.00", None]
    job.land(
        *(
            change("c", "a", key, {"id": key, "n": one}, lsn=key + 1, offset=key)
            for key, one in enumerate(values)
        )
    )
    assert sorted(job.rows("a")) == [0, 2, 3]
    assert "-1.50" in job.letters()[0]["reason"]


# --- the registry ---------------------------------------------------------------------------------------
_SCHEMA = json.dumps({"schema": json.dumps({"type": "record", "name": "K", "fields": []})}).encode()
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
BROKEN = {
    "an answer that breaks off": _HEAD % 9999 + _SCHEMA[:20],
    "no HTTP": b"hello\r\n\r\n",
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "JSON that is too deep": _HEAD % 200_000 + b"[" * 200_000,
    "no JSON": _HEAD % 2 + b"<>",
    "a list": _HEAD % 2 + b"[]",
    "references without a name": _HEAD % 36 + b'{"schema": "{}", "references": [{}]}',
    "no answer": b"",
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_of_the_registry_that_says_nothing_gets_patience(what: str) -> None:
    """A restart, a proxy: the batch waits and is read again; no record is a dead letter, and no raw error ends the job."""
    answers = [BROKEN[what], _HEAD % len(_SCHEMA) + _SCHEMA]
    with Answers(answers) as url:
        assert '"K"' in Registry(url, sleep=lambda _: None)(7)
    with (
        Answers([BROKEN[what]]) as url,
        pytest.raises(sw.StorageError, match="Nothing of this batch was written"),
    ):
        Registry(url, patience_s=0.0)(7)


@pytest.mark.parametrize(
    "schema",
    [
        "[" * 100_000,
        '{"type": ' * 5000 + '"int"' + "}" * 5000,
        "5",
        "null",
        '{"type": "record"}',
        '{"type": {}}',
        '"x"',
    ],
    ids=range(7),
)
def test_a_schema_that_no_reader_takes_is_the_fault_of_its_records(tmp_path: Path, schema: str) -> None:
    avro = Avro(lambda _: schema)
    with pytest.raises(UndecodableError):
        avro.schema(HEADER.pack(0, 7) + b"x").payload(HEADER.pack(0, 7) + b"x")
    decoder = Decoder("debezium-avro", schema_of=lambda _: schema)
    decoder.fewest = 1
    value = HEADER.pack(0, 7) + b"x"
    found = decoder.decode(
        KafkaRecords.of(KafkaRecord("topic", 0, offset, value, value) for offset in range(3))
    )
    assert len(found.dead) == 3


class Answers:
    """A server that gives these answers, one after another, as bytes, and the last one again."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])


def test_a_key_that_leave_out_has_is_told_as_such(tmp_path: Path) -> None:
    job = Job(tmp_path, [{"table": "t", "source": "t", "leave_out": ["id"]}])
    job.land(change("c", "t", 1, {"id": 1, "name": "Ada"}, lsn=1, offset=0))
    (letter,) = job.letters()
    assert "leave_out has all of the record's key" in letter["reason"]
