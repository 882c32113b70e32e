"""A Glue that sets without comparing, as moto's does: a relay that takes the version id out of every update."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class _Relay(BaseHTTPRequestHandler):
    """Hands each request on, UpdateTable without its ``VersionId``."""

    protocol_version = "HTTP/1.1"
    upstream = ""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("X-Amz-Target") == "AWSGlue.UpdateTable":
            plain = json.loads(body)
            plain.pop("VersionId", None)
            body = json.dumps(plain).encode()
        headers = {name: value for name, value in self.headers.items() if name.lower() != "content-length"}
        upstream = http.client.HTTPConnection(urlsplit(self.upstream).netloc)
        try:
            upstream.request("POST", self.path, body, headers)
            reply = upstream.getresponse()
            answer = reply.read()
        finally:
            upstream.close()
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.getheader("Content-Type") or "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing."""


@contextmanager
def forgetful_glue(upstream: str) -> Iterator[str]:
    """The address of a Glue in front of ``upstream`` that forgets what it should compare."""
    handler = type("Relay", (_Relay,), {"upstream": upstream})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
