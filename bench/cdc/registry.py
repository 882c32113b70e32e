"""A schema registry on loopback, by HTTP as Confluent's, that can go away and come back at its address."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class Registry:
    """Schemas by id; it keeps them while it is away."""

    def __init__(self) -> None:
        self._schemas: dict[int, dict[str, Any]] = {}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.asked: list[str] = []
        """The paths of all requests that were answered."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, schema: Any, kind: str | None = None) -> int:
        """The id of a new schema; one of a kind is a text already."""
        number = len(self._schemas) + 1
        self._schemas[number] = (
            {"schema": schema, "schemaType": kind} if kind else {"schema": json.dumps(schema)}
        )
        return number

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen; on the port of before, if there was one."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, content = outer._answer(self.path)
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="registry")
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections from now on."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server = None

    def _answer(self, path: str) -> tuple[int, dict[str, Any]]:
        number = path.partition("?")[0].removeprefix("/schemas/ids/")
        if number.isdecimal() and int(number) in self._schemas:
            return 200, self._schemas[int(number)]
        if number.isdecimal():
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
