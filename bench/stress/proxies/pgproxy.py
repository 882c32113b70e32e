"""Loses answers, refuses and delays by plan, in front of PostgreSQL.

It follows the framing of protocol version 3 and takes each simple query, which psycopg2 sends, for one
request.  ``Request.method`` is its first word, so that ``Rule(method="COMMIT")`` is about the moment that
decides.  The step of a COMMIT is that of what its transaction wrote.  Everything else (the start, the
extended protocol of JDBC) passes through untouched.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from safewrite.testing.faults import PERFORMED, FaultKind, FaultPlan, Faults, Request, RequestStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from safewrite.testing.faults import Fault

_SSL_REQUEST, _ENCRYPTION_REQUEST, _CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
_START_WAIT_S = 10.0

_STEPS: Sequence[tuple[re.Pattern[str], RequestStep]] = [
    (re.compile(rf'\s*{words}\s+"?{table}\b', re.IGNORECASE | re.DOTALL), step)
    for words, table, step in (
        ("UPDATE", "iceberg_tables", RequestStep.CATALOG_COMMIT),
        ("INSERT INTO", "iceberg_tables", RequestStep.CATALOG_CREATE),
        ("SELECT .*FROM", "iceberg_tables", RequestStep.CATALOG_LOAD),
        ("INSERT INTO", "safewrite_ledger", RequestStep.PUT_LEDGER),
        ("UPDATE", "safewrite_ledger", RequestStep.UPDATE_LEDGER),
        ("SELECT .*FROM", "safewrite_ledger", RequestStep.GET_LEDGER),
        ("(INSERT INTO|UPDATE|SELECT .*FROM)", "safewrite_queue", RequestStep.LEASE),
    )
]

STEPS = frozenset(step for _, step in _STEPS)
"""The steps of an Iceberg commit that a database performs."""

_CUTTING = frozenset({FaultKind.LOST_ANSWER, FaultKind.CUT, FaultKind.LATE})
# SQLSTATEs: internal error, connection failure, administrator's shutdown, cancelled (a timeout),
# serialization failure, too many connections, insufficient privilege.
_SQLSTATES: Mapping[FaultKind, str] = {
    FaultKind.LOST_ANSWER_500: "XX000",
    FaultKind.LOST_ANSWER_502: "08006",
    FaultKind.LOST_ANSWER_503: "57P01",
    FaultKind.LOST_ANSWER_504: "57014",
    FaultKind.ERROR_500: "XX000",
    FaultKind.ERROR_502: "08006",
    FaultKind.ERROR_503: "57P01",
    FaultKind.ERROR_504: "57014",
    FaultKind.CONFLICT_409: "40001",
    FaultKind.PRECONDITION_412: "40001",
    FaultKind.THROTTLE: "53300",
    FaultKind.FORBIDDEN_403: "42501",
}


def step_of(statement: str) -> RequestStep:
    """The step of one statement, from the table that it reads or writes."""
    return next((step for pattern, step in _STEPS if pattern.match(statement)), RequestStep.OTHER)


class Transaction:
    """What a connection has written since BEGIN; tells the step of each statement as it comes."""

    def __init__(self) -> None:
        self.is_open = False
        self._written = RequestStep.OTHER

    def step(self, statement: str) -> RequestStep:
        """The step of the next statement; a write inside a transaction is decided at its COMMIT."""
        word = first_word(statement)
        if word in ("BEGIN", "COMMIT", "ROLLBACK"):
            step = self._written if word == "COMMIT" else RequestStep.OTHER
            self.is_open, self._written = word == "BEGIN", RequestStep.OTHER
            return step
        step = step_of(statement)
        if not self.is_open or word == "SELECT":
            return step
        if step is not RequestStep.OTHER:
            self._written = step
        return RequestStep.OTHER


def first_word(statement: str) -> str:
    """The first word of a statement, in upper case."""
    return statement.strip(" \n;").partition(" ")[0].upper()


# --- messages ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Message:
    """One message after the start of a connection: its type byte and what follows the length."""

    kind: bytes
    body: bytes

    def encode(self) -> bytes:
        """The message as it goes on the wire."""
        return self.kind + struct.pack("!I", len(self.body) + 4) + self.body


async def _read(reader: asyncio.StreamReader) -> Message:
    kind, length = struct.unpack("!cI", await reader.readexactly(5))
    return Message(kind, await reader.readexactly(length - 4))


def _query(statement: str) -> Message:
    return Message(b"Q", statement.encode() + b"\0")


def _error(kind: FaultKind, *, in_transaction: bool) -> bytes:
    """An error, and the message that the next query is awaited."""
    known = {"S": "ERROR", "V": "ERROR", "C": _SQLSTATES[kind], "M": f"injected fault {kind}"}
    body = b"".join(f"{name}{value}\0".encode() for name, value in known.items()) + b"\0"
    return Message(b"E", body).encode() + Message(b"Z", b"E" if in_transaction else b"I").encode()


# --- one connection ---------------------------------------------------------------------------
class _Session:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(
        self,
        proxy: PgProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._client_reader, self._client = client
        self._server_reader, self._server = server
        self._transaction = Transaction()
        self._database = ""
        self._muted = False
        self._ready = asyncio.Event()

    async def serve(self) -> None:
        """Carry messages both ways until either side ends."""
        if not await self._start():
            return
        answers = asyncio.create_task(self._carry_answers())
        try:
            while True:
                message = await _read(self._client_reader)
                if message.kind != b"Q":
                    self._server.write(message.encode())
                elif not await self._ask(message):
                    return
        finally:
            answers.cancel()

    async def _start(self) -> bool:
        """Pass on the start of the connection; False where it only cancels a query of another."""
        while True:
            length, code = struct.unpack("!II", await self._client_reader.readexactly(8))
            rest = await self._client_reader.readexactly(length - 8)
            if code not in (_SSL_REQUEST, _ENCRYPTION_REQUEST):
                break
            self._client.write(b"N")  # in plain text, or we could not read along
        self._server.write(struct.pack("!II", length, code) + rest)
        await self._server.drain()
        words = rest.split(b"\0")
        named = dict(zip(words[::2], words[1::2], strict=False))
        self._database = named.get(b"database", b"").decode()
        return bool(code != _CANCEL_REQUEST)

    async def _carry_answers(self) -> None:
        try:
            while True:
                message = await _read(self._server_reader)
                if not self._muted:
                    self._client.write(message.encode())
                    await self._client.drain()
                if message.kind == b"Z":
                    self._ready.set()
        except (OSError, EOFError):
            self._client.close()
            self._ready.set()

    async def _ask(self, message: Message) -> bool:
        """Have a query answered, by the server or by a fault; False where the client was cut off."""
        statement = message.body.rstrip(b"\0").decode()
        step = self._transaction.step(statement)
        request = Request(method=first_word(statement), path=f"/{self._database}", body=message.body)
        fault = self._proxy.decide(request, step)
        if fault is not None and fault.kind is not FaultKind.DELAY:
            return await self._hit(fault, message)
        if fault is not None:
            await asyncio.sleep(fault.delay_s)
        self._server.write(message.encode())
        await self._server.drain()
        return True

    async def _hit(self, fault: Fault, message: Message) -> bool:
        kind = fault.kind
        self._muted = True
        if kind is FaultKind.LATE:
            self._client.transport.abort()
            await asyncio.sleep(fault.delay_s)
        if kind in PERFORMED or kind is FaultKind.LATE:
            await self._perform(message)
        elif kind is not FaultKind.CUT:
            # A query that the client believes failed must not be pending here.
            await self._perform(_query("ROLLBACK"))
        if kind in _CUTTING:
            self._client.transport.abort()
            return False
        self._client.write(_error(kind, in_transaction=self._transaction.is_open))
        self._muted = False
        return True

    async def _perform(self, message: Message) -> None:
        """Have the server answer a query that the client hears nothing of."""
        self._ready.clear()
        self._server.write(message.encode())
        await self._ready.wait()


# --- the proxy --------------------------------------------------------------------------------
class PgProxy:
    """A fault proxy in a thread of its own; a context manager.

    ``upstream`` is a URI of the server; :meth:`through` makes a URI go through the proxy.  Counts
    are of the proxy's whole life: neither :meth:`set_plan` nor :meth:`clear` resets them.
    """

    def __init__(self, upstream: str, *, plan: FaultPlan | None = None) -> None:
        parts = urlsplit(upstream)
        if parts.hostname is None or parts.port is None:
            raise ValueError(f"an upstream is postgresql://host:port, not {upstream}")
        self._address = (parts.hostname, parts.port)
        self._faults = Faults(FaultPlan())
        self.set_plan(plan or FaultPlan())
        self._fired: Counter[tuple[RequestStep, FaultKind]] = Counter()
        self._requests: Counter[RequestStep] = Counter()
        self._events: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._run, name="pgproxy", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self.port = 0

    def through(self, uri: str) -> str:
        """The same URI with the proxy's address."""
        host, port = self._address
        return uri.replace(f"{host}:{port}", f"127.0.0.1:{self.port}", 1)

    def set_plan(self, plan: FaultPlan) -> None:
        """Apply ``plan`` from now on, from its beginning, instead of the one before."""
        for rule in plan.rules:
            if rule.kind in (FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT):
                raise ValueError(f"PostgreSQL's messages are not corrupted: {rule}")
        self._faults = Faults(plan)

    def clear(self) -> None:
        """Let everything through from now on."""
        self.set_plan(FaultPlan())

    def counts(self) -> Counter[tuple[RequestStep, FaultKind]]:
        """How often each fault has fired at each step."""
        return self._fired.copy()

    def requests(self) -> Counter[RequestStep]:
        """How many queries there were for each step, faulty or not."""
        return self._requests.copy()

    def events(self) -> list[dict[str, Any]]:
        """Every fault that has fired: ``t`` (wall ms), step, kind."""
        return self._events.copy()

    def decide(self, request: Request, step: RequestStep) -> Fault | None:
        """Count a query and tell the fault that hits it, if any; for the proxy's own thread."""
        self._requests[step] += 1
        fault = self._faults.decide(request, step)
        if fault is not None:
            self._fired[fault.step, fault.kind] += 1
            self._events.append({"t": time.time_ns() // 1_000_000, "step": fault.step, "kind": fault.kind})
        return fault

    def start(self) -> Self:
        """Start the proxy on a free port of loopback."""
        self._thread.start()
        if not self._started.wait(_START_WAIT_S):
            raise RuntimeError("the proxy for PostgreSQL did not start")
        return self

    def stop(self) -> None:
        """End the proxy and every connection through it; stopping twice is no error."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()  # leaving the loop cancels the connections, which then close their sockets

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: asyncio.StreamWriter | None = None
        try:
            server_reader, server = await asyncio.open_connection(*self._address)
            await _Session(self, (reader, writer), (server_reader, server)).serve()
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # either side is gone, or the proxy ends
        finally:
            for each in (writer, server):
                if each is not None:
                    each.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
