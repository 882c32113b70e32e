"""Tables of a REST catalog that asks what those of AWS do (S3 Tables, Glue): signed requests, no staged tables, places of its own.

The stand-in goes by AWS's pages on both endpoints, and lets Iceberg's own server do the rest.
"""

from __future__ import annotations

import http.client
import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

import safewrite as sw
from bench.servers.catalogs import IcebergRest, catalog_properties
from bench.servers.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string()})
_NAME = re.compile(r"[a-z0-9_]{1,255}")


@dataclass
class AwsRest:
    """A server in front of another; ``lost`` is how many more answers to a creation get lost after it was made."""

    upstream: str
    asked: list[tuple[str, str]] = field(default_factory=list)
    lost: int = 0
    service: str = "s3tables"
    """For which service requests are signed: ``s3tables``, or ``glue``."""

    def refusal(self, method: str, path: str, headers: dict[str, str], body: bytes) -> str:
        """Why a request is refused; "" where it is not."""
        if (why := self._unsigned(method, path, headers, body)) or method != "POST":
            return why
        given = json.loads(body) if body else {}
        if path.endswith("/namespaces") and not all(map(_NAME.fullmatch, given["namespace"])):
            return "The namespace is not valid"
        if path.endswith("/tables"):
            if given.get("stage-create"):
                return "Malformed request: Stage create is not supported"
            if given.get("location") or not _NAME.fullmatch(given["name"]):
                return "The location or the name of the table is not valid"
        return ""

    def _unsigned(self, method: str, path: str, headers: dict[str, str], body: bytes) -> str:
        found = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d+/([^/]+)/([^/]+)/aws4_request, SignedHeaders=(\S+), Signature=(\w+)",
            headers.get("authorization", ""),
        )
        if found is None:
            return "Missing Authentication Token"
        _, region, service, signed, signature = found.groups()
        url, _, query = f"http://{headers['host']}{path}".partition("?")
        kept = {name: headers[name] for name in signed.split(";") if name != "host"}
        request = AWSRequest(method, url, headers=kept, data=body, params=dict(parse_qsl(query)))
        request.context["timestamp"] = headers["x-amz-date"]
        auth: Any = SigV4Auth(Credentials(ACCESS_KEY_ID, SECRET_ACCESS_KEY), self.service, REGION)
        expected = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        return (
            ""
            if (region, service, signature) == (REGION, self.service, expected)
            else "The signature does not match"
        )


class _Handler(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        rest: AwsRest = self.server.rest
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        why = rest.refusal(self.command, self.path, headers, body)
        rest.asked.append((self.command, why))
        if why:
            said = {"error": {"message": why, "type": "BadRequestException", "code": 400}}
            self._answer(400, json.dumps(said).encode())
            return
        upstream = urlsplit(rest.upstream)
        connection = http.client.HTTPConnection(str(upstream.hostname), upstream.port)
        own = {"content-type": headers.get("content-type", "application/json")}
        connection.request(self.command, self.path, body, own)
        answer = connection.getresponse()
        found = answer.read()
        connection.close()
        if rest.lost and self.command == "POST" and self.path.endswith("/tables"):
            rest.lost -= 1
            self._answer(
                503, b'{"error": {"message": "try again", "type": "ServiceUnavailable", "code": 503}}'
            )
            return
        self._answer(answer.status, found)

    do_GET = do_POST = do_DELETE = do_HEAD = _do  # noqa: N815 - as http.server calls them

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def rest(iceberg_rest: IcebergRest) -> Iterator[tuple[AwsRest, str]]:
    """The stand-in and its address."""
    made = AwsRest(iceberg_rest.uri)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.rest = made  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield made, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def catalog(rest: tuple[AwsRest, str], ministack: Ministack, bucket: str) -> dict[str, str]:
    """The properties by which AWS's pages have PyIceberg reach such an endpoint."""
    own = catalog_properties("rest", uri=rest[1], s3_url=ministack.endpoint_url, warehouse=f"s3://{bucket}/w")
    signing = {"rest.sigv4-enabled": "true", "rest.signing-name": "s3tables", "rest.signing-region": REGION}
    keys = {"client.access-key-id": ACCESS_KEY_ID, "client.secret-access-key": SECRET_ACCESS_KEY}
    return own | signing | keys


@pytest.mark.parametrize(("version", "service"), [(2, "glue"), (3, "s3tables"), (3, "glue")])
def test_a_table_is_made_and_written_where_none_is_staged(
    version: int, service: str, rest: tuple[AwsRest, str], catalog: dict[str, str]
) -> None:
    """Every request is signed; of a creation whose answer was lost it is found out that it is there."""
    server, name = rest[0], f"ns_{uuid.uuid4().hex[:8]}.t"
    server.lost, server.service = 1, service
    catalog |= {"rest.signing-name": service}
    table = sw.create(name, SCHEMA, catalog=catalog, create_namespace=True, format_version=version)
    table.append([{"id": 1, "v": "a"}, {"id": 2, "v": "a"}])
    table.apply_changes([{"id": 1, "v": "b"}], keys=["id"], sequence_by=["v"])
    assert {row["id"]: row["v"] for row in table.rows(where="true").to_pylist()} == {1: "b", 2: "a"}
    assert sw.open(name, catalog=catalog).iceberg.metadata.format_version == version  # type: ignore[attr-defined]
    assert not server.lost
    assert {why for _, why in server.asked} == {"", "Malformed request: Stage create is not supported"}
    with pytest.raises(sw.ConflictError, match="already"):
        sw.create(name, SCHEMA, catalog=catalog)


def test_what_such_an_endpoint_refuses_is_told_in_its_words(catalog: dict[str, str]) -> None:
    name = f"ns_{uuid.uuid4().hex[:8]}.t"
    with pytest.raises(sw.StorageError, match="name of the table is not valid"):
        sw.create(name[:-1] + "Upper", SCHEMA, catalog=catalog, create_namespace=True)
    wrong = catalog | {"client.secret-access-key": "another"}
    with pytest.raises(sw.SafewriteError, match="signature does not match"):
        sw.open(name, catalog=wrong)
