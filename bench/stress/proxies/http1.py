"""Speaks as much HTTP/1.1 as a proxy needs: whole messages, kept-alive connections, nothing sent twice.

Only asyncio: a framework's request and response objects would cost more CPU time than the servers
behind the proxy, on a machine that the writers under test share.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

BUFFER_BYTES = 1 << 22
# Shorter than any server's own patience with an idle connection: one that the server is about to
# close must not be picked, for a request that died on it could not be sent again.
_IDLE_S = 5.0
# The proxy rewrites Content-Length, and answers Expect itself.
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)


@dataclass(frozen=True, slots=True)
class Message:
    """A request or a reply: its first line, its header lines without hop-by-hop ones, its body.

    ``fields`` has all headers as they came, names in lower case.  ``length`` is the Content-Length
    to send: the body's, or what a reply without its body announced.
    """

    start: bytes
    lines: list[bytes]
    fields: dict[bytes, bytes]
    body: bytes
    length: int | None

    def encode(self) -> bytes:
        """The message as it goes on the wire."""
        lines = [self.start, *self.lines]
        if self.length is not None:
            lines.append(b"Content-Length: %d" % self.length)
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body

    def with_body(self, body: bytes) -> Message:
        """The same message about another body."""
        return replace(self, body=body, length=len(body))

    @property
    def close(self) -> bool:
        """Whether the sender ends the connection after this message."""
        return self.fields.get(b"connection", b"").lower() == b"close"

    @property
    def method(self) -> str:
        """The method, of a request."""
        return self.start.split(b" ", 1)[0].decode("latin-1")

    @property
    def target(self) -> str:
        """Path and query, of a request, as on the wire."""
        return self.start.split(b" ", 2)[1].decode("latin-1")

    @property
    def status(self) -> int:
        """The status code, of a reply."""
        return int(self.start.split(b" ", 2)[1])


class _Head:
    """A parsed head: the lines to pass on, and the few headers that the proxy itself obeys."""

    def __init__(self, raw: bytes) -> None:
        first, *lines = raw[:-4].split(b"\r\n")
        self.start = first
        self.lines: list[bytes] = []
        self.fields: dict[bytes, bytes] = {}
        for line in lines:
            name, _, value = line.partition(b":")
            name = name.lower()
            self.fields[name] = value.strip()
            if name not in _HOP_BY_HOP:
                self.lines.append(line)

    async def body(self, reader: asyncio.StreamReader) -> bytes | None:
        """The body that the head announces, without its transfer coding; None where it is silent."""
        if b"chunked" in self.fields.get(b"transfer-encoding", b"").lower():
            return await _chunks(reader)
        if b"content-length" in self.fields:
            return await reader.readexactly(int(self.fields[b"content-length"]))
        return None


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    while await reader.readuntil(b"\r\n") != b"\r\n":
        pass  # trailers of the transfer coding; aws-chunked ones are inside the body
    return b"".join(parts)


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message | None:
    """The next request on a connection, or None where the client has closed it."""
    try:
        head = _Head(await reader.readuntil(b"\r\n\r\n"))
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    if head.fields.get(b"expect", b"").lower() == b"100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await head.body(reader)
    return Message(head.start, head.lines, head.fields, body or b"", None if body is None else len(body))


async def read_reply(reader: asyncio.StreamReader, method: str) -> Message:
    """The reply to a request of ``method``."""
    while True:
        head = _Head(await reader.readuntil(b"\r\n\r\n"))
        status = int(head.start.split(b" ", 2)[1])
        if status >= 200:
            break
    if method == "HEAD" or status in (204, 304):
        announced = head.fields.get(b"content-length")
        return Message(head.start, head.lines, head.fields, b"", int(announced) if announced else None)
    body = await head.body(reader)
    if body is None:  # it ends with the connection
        body = await reader.read()
        head.fields[b"connection"] = b"close"
    return Message(head.start, head.lines, head.fields, body, len(body))


def make_reply(status: int, content_type: str, body: bytes, *, head_only: bool = False) -> Message:
    """A reply of the proxy's own."""
    lines = [b"Content-Type: " + content_type.encode()]
    return Message(b"HTTP/1.1 %d Injected" % status, lines, {}, b"" if head_only else body, len(body))


class Upstream:
    """A server behind the proxy and the idle connections to it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or parts.hostname is None:
            raise ValueError(f"an upstream is http://host:port, not {url}")
        self._address = (parts.hostname, parts.port or 80)
        self._idle: list[tuple[float, asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def ask(self, request: Message) -> Message:
        """Send a request, once, and read its reply; ``OSError`` or ``EOFError`` where that fails."""
        reader, writer = await self._connection()
        kept = False
        try:
            writer.write(request.encode())
            await writer.drain()
            reply = await read_reply(reader, request.method)
            kept = not reply.close
        finally:
            if kept:
                self._idle.append((time.monotonic(), reader, writer))
            else:
                writer.close()
        return reply

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        while self._idle:
            since, reader, writer = self._idle.pop()
            if time.monotonic() - since < _IDLE_S and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            writer.close()
        return await asyncio.open_connection(*self._address, limit=BUFFER_BYTES)
