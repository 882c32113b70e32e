"""T3-S1: an HTTP client of safewrite takes credentials to no other origin than the one they were given for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import pytest

import safewrite as sw
from safewrite.cdc.connect.redirects import origin
from safewrite.cdc.connect.registry import Registry

SECRET = "canary-of-redirects"
SCHEMA = {"schema": '"long"'}


class Site:
    """A server that notes headers and bodies; it answers all requests alike, or sends some elsewhere."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.seen: list[str] = []
        self.targets: dict[str, tuple[int, str]] = {}
        """Where paths that begin so are redirected to, with which status."""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                site.seen.append(f"{self.command} {self.path}\n{self.headers}\n{body}")
                for prefix, (status, target) in site.targets.items():
                    if self.path.startswith(prefix):
                        self.send_response(status)
                        self.send_header("Location", target)
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                content = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815 - http.server asks for this name

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def has(self, *texts: str) -> bool:
        return any(text in one for one in self.seen for text in texts)


@pytest.fixture
def foreign() -> Iterator[Site]:
    with Site(SCHEMA) as made:
        yield made


@pytest.fixture
def own() -> Iterator[Site]:
    with Site(SCHEMA) as made:
        yield made


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_registrys_password_stays_with_the_registry(own: Site, foreign: Site, status: int) -> None:
    """T3-S1"""
    own.targets["/schemas"] = (status, f"{foreign.url}/schemas/ids/5")
    assert Registry(own.url, "someone", SECRET, patience_s=0)(5) == '"long"'
    assert own.has("Authorization: Basic")
    assert foreign.seen
    assert not foreign.has("Authorization", "Basic ")


def test_a_redirect_within_the_registry_keeps_the_password(own: Site) -> None:
    own.targets["/schemas/ids/5"] = (302, f"{own.url}/other/5")
    assert Registry(own.url, "someone", SECRET, patience_s=0)(5) == '"long"'
    assert ["Authorization: Basic" in one for one in own.seen] == [True, True]


def test_a_password_that_was_left_behind_does_not_come_back(own: Site, foreign: Site) -> None:
    """There and back again: who was redirected by a foreign host asks without credentials."""
    own.targets["/schemas"] = (302, f"{foreign.url}/schemas/ids/5")
    foreign.targets["/schemas"] = (302, f"{own.url}/back")
    assert Registry(own.url, "someone", SECRET, patience_s=0)(5) == '"long"'
    assert not foreign.has("Authorization")
    assert "Authorization" not in own.seen[-1]


def test_a_redirect_to_another_kind_of_address_is_not_followed(own: Site) -> None:
    own.targets["/schemas"] = (302, "ftp://127.0.0.1:9/x")
    with pytest.raises(sw.StorageError, match="not HTTP") as caught:
        Registry(own.url, "someone", SECRET, patience_s=0)(5)
    assert SECRET not in str(caught.value)


def test_origins_are_compared_in_one_spelling_and_name_no_password() -> None:
    assert origin("https://A.example/x") == origin("https://a.example:443/y") == "https://a.example:443"
    assert origin("http://a.example") != origin("https://a.example")
    assert origin(f"http://u:{SECRET}@a.example:8081/x") == "http://a.example:8081"


# --- the REST catalog of Iceberg ------------------------------------------------------------------------
def test_a_token_endpoint_that_redirects_elsewhere_gets_the_client_secret_alone(
    own: Site, foreign: Site
) -> None:
    """T3-S1, its twin: requests sends the body again on 307, and the secret of OAuth2 is in it."""
    own.targets["/token"] = (307, f"{foreign.url}/token")
    settings = {
        "type": "rest", "uri": own.url, "credential": f"someone:{SECRET}", "oauth2-server-uri": f"{own.url}/token"
    }  # fmt: skip
    with pytest.raises(sw.StorageError, match="no other host") as caught:
        sw.open("db.orders", catalog=settings)
    assert own.has(SECRET)
    assert foreign.seen == []
    assert SECRET not in str(caught.value)


def test_a_catalog_that_redirects_elsewhere_gets_its_own_headers_alone(own: Site, foreign: Site) -> None:
    """T3-S1, its twin: headers of ``header.*`` followed to any host."""
    own.targets["/v1/config"] = (302, f"{foreign.url}/v1/config")
    settings = {"type": "rest", "uri": own.url, "token": "t", "header.X-Api-Key": SECRET}
    with pytest.raises(sw.StorageError, match="no other host"):
        sw.open("db.orders", catalog=settings)
    assert own.has(SECRET)
    assert foreign.seen == []


def test_a_catalogs_redirect_within_its_origin_is_followed() -> None:
    with Site({"defaults": {}, "overrides": {}}) as site:
        site.targets["/v1/config"] = (302, f"{site.url}/v2/config")
        with pytest.raises(sw.SafewriteError) as caught:
            sw.open("db.orders", catalog={"type": "rest", "uri": site.url, "token": SECRET})
        assert any("/v2/config" in one for one in site.seen)
        assert "no other host" not in str(caught.value)
