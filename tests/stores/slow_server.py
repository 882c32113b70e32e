"""A server on loopback whose answers do not end by themselves: of one byte at a time, or without an end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAUSE_S = 0.02
"""Between two bytes of an answer that drips."""
BYTES_MAX = 1_500
"""Where an answer that drips ends after all, so that a test without a limit fails and does not hang."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n"


def page(names: list[str], *, truncated: bool = True) -> bytes:
    """A page of an S3 listing."""
    items = "".join(
        f"<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
        for name in names
    )
    return (
        f"<ListBucketResult><IsTruncated>{str(truncated).lower()}</IsTruncated>{items}"
        "<NextContinuationToken>more</NextContinuationToken></ListBucketResult>"
    ).encode()


class SlowServer:
    """Answers every request in one way: ``head`` and ``body`` drip, ``pages`` is an endless listing, ``busy`` throttles."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.asked = 0
        self.pages = self._pages()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                outer.asked += 1
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                with contextlib.suppress(OSError):
                    outer.answer(self.wfile, self.path)
                self.close_connection = outer.how in {"head", "body"}

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer  # noqa: N815 - the names of the base class

            def log_message(self, *_: Any) -> None:
                """Nothing: a test reads the outcome."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def options(self) -> dict[str, str]:
        """Settings of clients that ask it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }

    def answer(self, to: Any, path: str) -> None:
        """Answer one request."""
        if self.how == "head":
            self._drip(to, HEAD + b"X-Long: " + b"x" * BYTES_MAX + b"\r\nContent-Length: 2\r\n\r\n{}")
        elif self.how == "body":
            to.write(HEAD + b"Content-Length: %d\r\n\r\n" % BYTES_MAX)
            self._drip(to, b"{" + b" " * (BYTES_MAX - 2) + b"}")
        elif path.startswith("/v1/config"):
            self._whole(to, b'{"defaults": {}, "overrides": {}}')
        elif self.how == "busy":
            body = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
            to.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        else:
            self._whole(to, next(self.pages))

    def _whole(self, to: Any, body: bytes) -> None:
        to.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def _drip(self, to: Any, data: bytes) -> None:
        for at in range(len(data)):
            to.write(data[at : at + 1])
            if self._stop.wait(PAUSE_S):
                return

    def _pages(self) -> Iterator[bytes]:
        number = 0
        while True:
            number += 1
            names = {"same": ["t/a"], "empty": [], "new": [f"t/{number:012d}"]}.get(self.how, [])
            yield page(names)

    def __enter__(self) -> SlowServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def open_descriptors() -> int:
    """How many sockets this process holds."""
    from pathlib import Path

    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += str(entry.readlink()).startswith("socket:")
    return found


__all__ = ["SlowServer", "open_descriptors"]
