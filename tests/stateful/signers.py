"""A small S3 in this process that notes who signed each request; keys that have expired are refused."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


class SigningStore:
    """One store at an address of its own; ``signers`` are the access keys of the requests since they were taken last."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.expired: set[str] = set()
        self.signers: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _do(self) -> None:
                outer._serve(self)

            do_GET = do_PUT = do_DELETE = do_HEAD = do_POST = _do  # noqa: N815 - as http.server calls them

            def log_message(self, *_: Any) -> None:
                """Nothing: a test reads what was asked."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def taken(self) -> set[str]:
        """Who signed since the last call."""
        found, self.signers = self.signers, []
        return set(found)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, asked: Any) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        signer = asked.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        self.signers.append(signer)
        if signer in self.expired:
            _answer(asked, 400, b"<Error><Code>ExpiredToken</Code><Message>it has expired</Message></Error>")
        elif (body_etag := self._performed(asked, body)) is not None:
            _answer(asked, *body_etag)

    def _performed(self, asked: Any, body: bytes) -> tuple[int, bytes, str]:
        parts = urlsplit(asked.path)
        query = dict(parse_qsl(parts.query))
        key = "".join(unquote(parts.path).split("/", 2)[2:])
        if asked.command == "PUT":
            if asked.headers.get("If-None-Match") and key in self.objects:
                return 412, b"<Error><Code>PreconditionFailed</Code></Error>", ""
            self.objects[key] = body
            return 200, b"", _tag(body)
        if asked.command == "DELETE":
            self.objects.pop(key, None)
            return 204, b"", ""
        if "list-type" in query:
            return 200, self._listed(query), ""
        if key not in self.objects:
            return 404, b"<Error><Code>NoSuchKey</Code></Error>", ""
        return self._read(self.objects[key], asked.headers.get("Range", ""))

    def _listed(self, query: dict[str, str]) -> bytes:
        prefix, after, most = (
            query.get("prefix", ""),
            query.get("start-after", ""),
            int(query.get("max-keys", 1000)),
        )
        names = sorted(one for one in self.objects if one.startswith(prefix) and one > after)[:most]
        entries = "".join(
            f"<Contents><Key>{one}</Key><Size>{len(self.objects[one])}</Size><LastModified>2026-11-27T00:00:00.000Z"
            f"</LastModified><ETag>{_tag(self.objects[one])}</ETag></Contents>"
            for one in names
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _read(self, content: bytes, wanted: str) -> tuple[int, bytes, str]:
        if not wanted:
            return 200, content, _tag(content)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(content) - int(last))
        end = int(last) + 1 if first and last else len(content)
        return 206, content[start:end], _tag(content)


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


def _answer(asked: Any, status: int, body: bytes, etag: str = "") -> None:
    asked.send_response(status)
    if etag:
        asked.send_header("ETag", etag)
    asked.send_header("Content-Length", str(len(body)))
    asked.end_headers()
    if asked.command != "HEAD":
        asked.wfile.write(body)
