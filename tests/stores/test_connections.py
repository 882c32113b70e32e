"""Connections of signed requests: TLS with an authority of one's own, proxies, forks; as with boto3's client."""

from __future__ import annotations

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from safewrite.protocol.effects import Ok
from safewrite.stores import call_limit, clients
from safewrite.stores.s3 import S3Objects
from safewrite.stores.signed import SignedS3
from tests.stores.two_clients import both, known_by

pytestmark = pytest.mark.usefixtures("no_aws_settings")


def make_certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 that signs itself, with its key."""
    file = folder / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", str(file), "-out", str(folder / "public.pem")]
    subprocess.run([*make, *files, *subject], check=True, capture_output=True)
    file.write_text(file.read_text() + (folder / "public.pem").read_text())
    return file


class Store:
    """A store that has every object, over http or https; notes what it was asked, and in which connection."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.asked: list[str] = []
        self.bodies: list[int] = []
        self.closes = False
        self.closed = threading.Semaphore(0)
        self.connections: set[Any] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.connections.add(self.client_address)
                self.send_response(200)
                self.send_header("Content-Length", "4")
                self.end_headers()
                self.wfile.write(b"body")
                self.close_connection = outer.closes

            def do_PUT(self) -> None:
                outer.bodies.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Nothing: a test reads what was asked."""

        class Server(ThreadingHTTPServer):
            def shutdown_request(self, request: Any) -> None:
                super().shutdown_request(request)
                outer.closed.release()

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self._server.server_address[1]}"

    def options(self) -> dict[str, str]:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        return {"AWS_ENDPOINT_URL": self.url, "AWS_REGION": "us-east-1", **keys}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    yield made
    made.close()


def told(options: dict[str, str]) -> dict[str, Any]:
    return {
        name: known_by(S3Objects(client, "lake", "t").get("a"))
        for name, client in both("s3", options).items()
    }


@pytest.mark.sweep("AWS_CA_BUNDLE")
@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_is_trusted_by_the_file_of_its_authority(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(other, raising=False)
    certificate = make_certificate(tmp_path)
    server = Store(certificate)
    try:
        untrusted = told(server.options())
        assert untrusted["signed"] == untrusted["boto3"]
        assert "not one that this machine trusts" in str(untrusted["signed"])
        assert server.asked == []
        monkeypatch.setenv(name, str(certificate))
        assert told(server.options()) == dict.fromkeys(("signed", "boto3"), known_by(Ok(b"body")))
    finally:
        server.close()


def test_a_file_of_authorities_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4-A7: "No such file or directory" of the machine's TLS library says neither which file nor who named it."""
    server = Store(make_certificate(tmp_path))
    try:
        for content in (None, "no certificate"):
            if content is not None:
                (tmp_path / "gone.pem").write_text(content)
            monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "gone.pem"))
            for one in told(server.options()).values():
                assert f"AWS_CA_BUNDLE={tmp_path / 'gone.pem'}" in str(one)
        assert server.asked == []
    finally:
        server.close()


def test_http_at_a_port_of_https_is_told_alike(tmp_path: Path, store: Store) -> None:
    options = {**store.options(), "AWS_ENDPOINT_URL": store.url.replace("http://", "https://")}
    found = told(options)
    assert found["signed"] == found["boto3"]
    assert "speaks http, and was asked by https" in str(found["signed"])


def test_requests_go_by_the_proxy_of_the_environment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", store.url)
    monkeypatch.setenv("no_proxy", "here.invalid")
    options = {**store.options(), "AWS_ENDPOINT_URL": "http://there.invalid:1"}
    assert told(options) == dict.fromkeys(("signed", "boto3"), known_by(Ok(b"body")))
    assert store.asked == ["http://there.invalid:1/lake/t/a"] * 2
    past = told({**options, "AWS_ENDPOINT_URL": "http://here.invalid:1"})
    assert past["signed"] == past["boto3"]
    assert "Nobody answers" in str(past["signed"])
    assert len(store.asked) == 2


def test_an_address_where_nobody_listens_is_told_alike(store: Store) -> None:
    found = told({**store.options(), "AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
    assert found["signed"] == found["boto3"]
    assert "Nobody answers" in str(found["signed"])


def test_a_connection_is_kept_and_each_thread_has_its_own(store: Store) -> None:
    objects = S3Objects(clients.client("s3", options=store.options()), "lake", "t")
    for _ in range(5):
        assert objects.get("a") == Ok(b"body")
    assert len(store.connections) == 1
    turns = threading.Barrier(4)

    def ask() -> Any:
        turns.wait()
        return objects.get("a")

    with ThreadPoolExecutor(4) as pool:
        assert [one.result() for one in [pool.submit(ask) for _ in range(4)]] == [Ok(b"body")] * 4
    assert len(store.connections) <= 4


def test_a_small_upload_is_one_packet(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Head and body in two are two steps of either side, and with some settings of TCP a wait of 40 ms."""
    sent: list[int] = []
    inner = call_limit._Socket.sendall

    def sendall(socket: Any, data: Any, *flags: Any) -> None:
        sent.append(len(data))
        inner(socket, data, *flags)

    monkeypatch.setattr(call_limit._Socket, "sendall", sendall)
    objects = S3Objects(clients.client("s3", options=store.options()), "lake", "t")
    for size, packets in ((0, 1), (10, 1), (2**16, 1), (2**16 + 1, 2)):
        sent.clear()
        assert objects.put("a", b"x" * size) == Ok()
        assert len(sent) == packets
        assert sum(sent) > size
        assert store.bodies.pop() == size


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 warns of forks beside threads
def test_a_forked_child_asks_over_connections_of_its_own(store: Store) -> None:
    """A client of before the fork, as of a preforking server or of Spark's Python daemon; the parent goes on with its own."""
    shared = clients.shared_client("s3", None, store.options())
    assert isinstance(shared.here(), SignedS3)
    objects = S3Objects(shared, "lake", "t")
    assert objects.get("a") == Ok(b"body")
    before = set(store.connections)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if [objects.get("a"), objects.get("a")] == [Ok(b"body")] * 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    theirs = store.connections - before
    assert len(theirs) == 1
    assert objects.get("a") == Ok(b"body")
    assert store.connections == before | theirs


def test_a_connection_that_the_store_has_closed_is_not_used_again(store: Store) -> None:
    """As after a Lambda function was frozen: what was not sent yet goes over a new connection."""
    objects = S3Objects(clients.client("s3", options=store.options()), "lake", "t")
    store.closes = True
    for number in range(1, 4):
        assert objects.get("a") == Ok(b"body")
        assert len(store.connections) == number
        assert store.closed.acquire(timeout=10)
