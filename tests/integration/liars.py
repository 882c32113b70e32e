"""A small object store that lies about conditional creates, one that ignores If-None-Match or lets racers win."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

Lie = Literal["none", "ignores the condition", "lets racers win"]


class LyingStore(ThreadingHTTPServer):
    """As much of S3 as a Delta writer needs, on a free port of loopback; ``blobs`` is what it holds."""

    daemon_threads = True

    def __init__(self, lie: Lie) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lie = lie
        self.blobs: dict[str, bytes] = {}
        self.ever: set[str] = set()
        self.lock = threading.Lock()
        self.creating: dict[str, int] = {}

    @property
    def endpoint_url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def create(self, path: str, body: bytes) -> bool:
        """A conditional create, as honest as ``lie`` allows; True if it won."""
        if self.lie == "lets racers win":
            # Check and write in two steps, with room for other racers between them.
            absent = path not in self.blobs
            threading.Event().wait(0.05)
            if absent:
                self._write(path, body)
            return absent
        with self.lock:
            if self.lie == "none" and path in self.blobs:
                return False
            self._write(path, body)
        return True

    def _write(self, path: str, body: bytes) -> None:
        self.blobs[path] = body
        self.ever.add(path)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LyingStore

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self._reply(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode())

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "If-None-Match" in self.headers and not self.server.create(self._path(), body):
            self._error(412, "PreconditionFailed")
            return
        if "If-None-Match" not in self.headers:
            self.server._write(self._path(), body)
        self._reply(200, ETag=f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"')

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0])
            return
        body = self.server.blobs.get(self._path())
        if body is None:
            self._error(404, "NoSuchKey")
            return
        etag = f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
        if "Range" not in self.headers:
            self._reply(200, body, ETag=etag, Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT")
            return
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        part = body[start : int(last) + 1] if first and last else body[start:]
        span = f"bytes {start}-{start + len(part) - 1}/{len(body)}"
        self._reply(206, part, ETag=etag, Content_Range=span, Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT")

    do_HEAD = do_GET  # noqa: N815 - http.server's own spelling

    def do_DELETE(self) -> None:
        self.server.blobs.pop(self._path(), None)
        self._reply(204)

    def _list(self, prefix: str) -> None:
        bucket = self._path().rstrip("/")
        names = sorted(path.removeprefix(bucket + "/") for path in self.server.blobs)
        items = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
            "</Contents>"
            for name in names
            if name.startswith(prefix)
        )
        body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>"
        self._reply(200, body.encode(), Content_Type="application/xml")


@contextmanager
def lying_store(lie: Lie) -> Iterator[LyingStore]:
    """A running store."""
    with LyingStore(lie) as store:
        thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()
