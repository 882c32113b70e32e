"""A relay in front of PostgreSQL that loses one question, or one answer, when told to."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal

Loss = Literal["question", "answer"]
READY = b"Z\x00\x00\x00\x05I"
"""What the server says when a statement is done and committed (ReadyForQuery, no transaction open)."""


class Relay:
    """Passes bytes both ways; after ``lose(...)`` the next statement costs its client the connection.

    A lost question never reaches the server; for a lost answer the server has committed first.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._loss: Loss | None = None
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def lose(self, what: Loss) -> None:
        """Lose the next question, or the answer to it."""
        self._loss = what

    def close(self) -> None:
        """End all connections, and wait until nothing runs any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for one in self._sockets:
            _end(one)
        for thread in self._threads[1:]:
            thread.join()
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, server]
            answer_lost = threading.Event()
            for target in (self._questions, self._answers):
                thread = threading.Thread(target=target, args=(client, server, answer_lost))
                self._threads.append(thread)
                thread.start()

    def _questions(self, client: socket.socket, server: socket.socket, answer_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while asked := client.recv(65536):
                loss, self._loss = self._loss, None
                if loss == "question":
                    break
                if loss == "answer":
                    answer_lost.set()
                server.sendall(asked)
        _end(client)
        _end(server)

    def _answers(self, client: socket.socket, server: socket.socket, answer_lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while answered := server.recv(65536):
                if answer_lost.is_set():
                    while not answered.endswith(READY):
                        answered += server.recv(65536)
                    break
                client.sendall(answered)
        _end(client)
        _end(server)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
