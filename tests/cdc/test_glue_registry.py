"""Avro behind the header of AWS Glue's schema registry: read as behind Confluent's, by a client that is asked once for a schema."""

from __future__ import annotations

import io
import json
import pickle
import struct
import uuid
import zlib
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from botocore.stub import Stubber
from fastavro import parse_schema, schemaless_writer

import safewrite as sw
from safewrite.cdc.connect import glue_registry
from safewrite.cdc.connect.glue_registry import GlueRegistry
from safewrite.cdc.connect.registry import Registry
from safewrite.cdc.records.change import KafkaRecord, UndecodableError
from tests.cdc.jobs import Job

SCHEMA = {"type": "record", "name": "Click", "fields": [{"name": "n", "type": "long"}, {"name": "s", "type": ["null", "string"]}]}  # fmt: skip
KNOWN, STRANGE = uuid.UUID(int=2**100 + 7), uuid.UUID(int=9)


class Client:
    """Glue, as far as it is asked; it raises what it is to raise."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.asked = [*errors], list[str]()

    def get_schema_version(self, *, SchemaVersionId: str) -> dict[str, Any]:  # noqa: N803 - AWS's name
        self.asked.append(SchemaVersionId)
        if self.errors:
            raise self.errors.pop(0)
        if SchemaVersionId != str(KNOWN):
            raise failed("EntityNotFoundException")
        return {"SchemaDefinition": json.dumps(SCHEMA), "DataFormat": "AVRO", "Status": "AVAILABLE"}


def failed(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetSchemaVersion")


def framed(n: int, *, of: uuid.UUID = KNOWN, how: int = 0, cut: int | None = None) -> bytes:
    body = io.BytesIO()
    schemaless_writer(body, parse_schema(SCHEMA), {"n": n, "s": "Zoë" * n})
    datum = body.getvalue() if how == 0 else zlib.compress(body.getvalue())
    return bytes([3, how]) + of.bytes + datum[:cut]


@pytest.mark.sweep("one by one")
@pytest.mark.parametrize("fewest", [1, 1000], ids=["by columns", "one by one"])
def test_records_land_and_those_of_other_headers_are_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fewest: int
) -> None:
    client = Client()
    monkeypatch.setattr(glue_registry, "_client", lambda *_: client)
    table = {"table": "clicks", "source": "topic", "mode": "append"}
    settings = {"envelope": "events-avro", "registry": {"glue_region": "eu-central-1"}}
    job = Job(tmp_path, [table], settings=settings, schemas=False)
    strange = [
        framed(1, of=STRANGE), b"\0" + struct.pack(">I", 5) + b"\2", framed(1, how=5, cut=5), framed(1, how=4),
        bytes([3, 5]) + KNOWN.bytes + b"no zlib", framed(1)[:17], framed(3, cut=3),
    ]  # fmt: skip
    values = [*(framed(n, how=5 * (n % 2)) for n in range(1, 9)), *strange]
    landing = job.landing()
    landing.decoder.fewest = fewest
    job.land(*(KafkaRecord("topic", 0, at, None, value) for at, value in enumerate(values)), landing=landing)
    rows = job.read("clicks").to_pylist()
    assert {row["n"]: row["s"] for row in rows} == {n: "Zoë" * n for n in range(1, 9)}
    assert len(rows) == 8
    why = {letter["offset"]: letter["reason"] for letter in job.letters()}
    assert sorted(why) == list(range(8, 15))
    assert "does not know schema" in why[8]
    assert "header of a Confluent registry" in why[9]
    assert sorted(client.asked) == sorted([str(KNOWN), str(STRANGE)])
    assert job.verdict().faults == ()


@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (failed("EntityNotFoundException"), UndecodableError, "does not know"),
        (failed("AccessDeniedException"), sw.StorageError, "glue:GetSchemaVersion"),
        (NoCredentialsError(), sw.StorageError, "glue:GetSchemaVersion"),
        (failed("ThrottlingException"), sw.StorageError, "gave no answer"),
        (EndpointConnectionError(endpoint_url="x"), sw.StorageError, "gave no answer"),
    ],
)  # fmt: skip
def test_what_the_registry_answers_is_told_apart(error: Exception, kind: type[Exception], why: str) -> None:
    with pytest.raises(kind, match=why):
        GlueRegistry("r", patience_s=0.0, client=Client(error))(str(KNOWN))


def test_it_is_asked_again_while_it_is_away() -> None:
    client = Client(failed("InternalServiceException"), failed("ThrottlingException"))
    assert json.loads(GlueRegistry("r", sleep=lambda _: None, client=client)(str(KNOWN))) == SCHEMA
    assert len(client.asked) == 3


def test_the_question_is_one_that_aws_has_and_other_formats_are_refused() -> None:
    """By AWS's own model of Glue; a registry that is sent to executors asks from there."""
    session = botocore.session.get_session()
    client = session.create_client("glue", region_name="r", aws_access_key_id="a", aws_secret_access_key="s")
    with Stubber(client) as stub:
        answer = {"SchemaDefinition": "{}", "DataFormat": "PROTOBUF"}
        stub.add_response("get_schema_version", answer, {"SchemaVersionId": str(KNOWN)})
        with pytest.raises(UndecodableError, match="is PROTOBUF, not Avro"):
            GlueRegistry("r", client=client)(str(KNOWN))
    assert pickle.loads(pickle.dumps(GlueRegistry("r"))) == GlueRegistry("r")
    with pytest.raises(UndecodableError, match="header of AWS Glue"):
        Registry("http://x")(str(KNOWN))
