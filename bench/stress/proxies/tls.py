"""Speaks TLS in front of a plain HTTP server on loopback, for clients that speak nothing else."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 65_536
_START_S = 10.0


class TlsFront:
    """A context manager; ``address`` is ``host:port``.  Its certificate is its own, so clients must not check it."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.folder = folder
        self.address = ""
        at = urlsplit(upstream)
        self._upstream = at.hostname or "127.0.0.1", at.port or 80
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(_START_S) or not self.address:
            raise RuntimeError("the TLS front did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate())
            server = self._loop.run_until_complete(
                asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
            )
            self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        finally:
            self._ready.set()
        self._loop.run_forever()

    def _certificate(self) -> tuple[Path, Path]:
        self.folder.mkdir(parents=True, exist_ok=True)
        certificate, key = self.folder / "tls.pem", self.folder / "tls.key"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
             "-keyout", str(key), "-out", str(certificate)],
            check=True, capture_output=True,
        )  # fmt: skip
        return certificate, key

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        try:
            from_server, to_server = await asyncio.open_connection(*self._upstream)
            await asyncio.gather(_copy(reader, to_server), _copy(from_server, writer))
        except OSError:
            pass
        finally:
            writer.close()
            if to_server is not None:
                to_server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
