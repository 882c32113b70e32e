"""Serves Lambda's Runtime API to one environment: hands it one invocation at a time and takes the answer.

https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

from __future__ import annotations

import json
import re
import socket
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Literal, TypeAlias

_VERSION = "/2018-06-01/runtime"
_NEXT, _INIT_ERROR = f"{_VERSION}/invocation/next", f"{_VERSION}/init/error"
_ANSWER = re.compile(rf"{_VERSION}/invocation/([^/]+)/(response|error)")

Said: TypeAlias = Literal["idle", "response", "error", "init error", "exit"]


@dataclass(frozen=True, slots=True)
class Request:
    """One invocation as the environment gets it; ``deadline_ms`` is in epoch milliseconds."""

    request_id: str
    event: bytes
    deadline_ms: int
    arn: str
    trace_id: str

    def headers(self) -> dict[str, str]:
        """The headers that carry everything but the event."""
        return {
            "Lambda-Runtime-Aws-Request-Id": self.request_id,
            "Lambda-Runtime-Deadline-Ms": str(self.deadline_ms),
            "Lambda-Runtime-Invoked-Function-Arn": self.arn,
            "Lambda-Runtime-Trace-Id": self.trace_id,
        }


@dataclass(frozen=True, slots=True)
class Word:
    """What an environment says: it asks for work, it answers, its start failed, or it has ended."""

    said: Said
    body: bytes = b""


class RuntimeApi:
    """The Runtime API of one process of one environment, on a port of its own.

    ``heard`` gets what the environment says, in order; whoever watches its process adds ``exit``.
    """

    def __init__(self) -> None:
        self.heard: SimpleQueue[Word] = SimpleQueue()
        self._work: SimpleQueue[Request | None] = SimpleQueue()
        self._current: str | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(self)
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        """The value of ``AWS_LAMBDA_RUNTIME_API``."""
        return f"127.0.0.1:{self._server.server_port}"

    def hand(self, request: Request) -> None:
        """Give the environment its next invocation; it gets it when it asks."""
        self._work.put(request)

    def close(self) -> None:
        """End the server and every request that still waits."""
        self._closed.set()
        self._work.put(None)
        # Wakes the thread that accepts connections; closing the socket alone would not.
        self._server.socket.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while not self._closed.is_set():
            self._server.handle_request()
        self._server.server_close()

    # --- what the environment asks ----------------------------------------------------------------
    def next(self) -> Request | None:
        """The next invocation, as soon as there is one; None when the API is closed."""
        self.heard.put(Word("idle"))
        request = self._work.get()
        with self._lock:
            self._current = None if request is None else request.request_id
        return request

    def answer(self, request_id: str, said: Literal["response", "error"], body: bytes) -> bool:
        """Take an answer; False if it is not one to the invocation under way."""
        with self._lock:
            if request_id != self._current:
                return False
            self._current = None
        self.heard.put(Word(said, body))
        return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: RuntimeApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that is killed breaks its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        if self.path != _NEXT:
            self._reply(404, _problem("NotFound", self.path))
            return
        request = self.server.api.next()
        if request is None:
            self.close_connection = True
            return
        self._reply(200, request.event, request.headers())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == _INIT_ERROR:
            self.server.api.heard.put(Word("init error", body))
            self._reply(202, b'{"status": "OK"}')
            return
        found = _ANSWER.fullmatch(self.path)
        if found is None:
            self._reply(404, _problem("NotFound", self.path))
            return
        said: Literal["response", "error"] = "response" if found[2] == "response" else "error"
        if self.server.api.answer(found[1], said, body):
            self._reply(202, b'{"status": "OK"}')
        else:
            self._reply(400, _problem("InvalidRequestID", found[1]))

    def _reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Say nothing: every invocation would be three lines."""


def _problem(kind: str, text: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": text}).encode()
