"""Ends requests whose answers never end: a total time for each call, and a least speed for each answer.

A socket's timeout starts again with each byte, so an answer of one byte a second, or one that has no end, holds a call
for ever.  The connections that this module makes know when the call is to end, and how fast an answer must come.
"""

from __future__ import annotations

import contextlib
import contextvars
import io
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

CONNECT_S = 3.0
"""How long a store may take to accept a connection."""
REQUEST_S = 15.0
"""How long a store may be silent within one request, and how far one request may go past the time of its call."""
REQUEST_S_MAX = 300.0
"""How long one request may take, whatever its call allows."""
ANSWER_BYTES_PER_S_MIN = 1024
"""How fast an answer must come, on the average from its first byte on, once ``SLOW_S`` have passed."""
SLOW_S = 10.0
_SENT_AT_ONCE_BYTES = 2**18
_WITH_HEAD_BYTES = 2**16
_USED_UP = "the time of the call (timeout_s=) is used up"
ADVICE = "The store answered too slowly for the time of this call: call again with the same key, or raise timeout_s=."

_until_s: contextvars.ContextVar[float] = contextvars.ContextVar(
    "safewrite_call_until_s", default=float("inf")
)


class CallTimeoutError(TimeoutError):
    """The time of the call is used up: asking again within it does not help."""


@contextlib.contextmanager
def within(timeout_s: float | None) -> Iterator[None]:
    """End what is asked in this block ``REQUEST_S`` after ``timeout_s`` at the latest; None sets no limit.

    Of blocks within each other the earliest end holds.
    """
    if timeout_s is None:
        yield
        return
    token = _until_s.set(min(_until_s.get(), time.monotonic() + timeout_s + REQUEST_S))
    try:
        yield
    finally:
        _until_s.reset(token)


def carried(call: Callable[P, T]) -> Callable[P, T]:
    """A call that another thread makes within the time of the block that hands it over."""
    context = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.copy().run(call, *args, **kwargs)

    return run


def check() -> None:
    """Raise ``CallTimeoutError`` where the call's time is used up; for loops of many requests."""
    if time.monotonic() >= _until_s.get():
        raise CallTimeoutError(_USED_UP)


def has_ended(error: BaseException | None) -> bool:
    """Whether a request failed because the time of its call was used up, also where a library wrapped the error."""
    for _ in range(8):
        if error is None or isinstance(error, CallTimeoutError):
            break
        reason = getattr(error, "reason", None)
        error = (
            error.__cause__ or error.__context__ or (reason if isinstance(reason, BaseException) else None)
        )
    return isinstance(error, CallTimeoutError)


class _TimedRequest:
    """When a request must end, and how much of its answer came since when."""

    def __init__(self) -> None:
        now_s = time.monotonic()
        self.call_until_s = _until_s.get()
        self.until_s = now_s + REQUEST_S_MAX
        self.first_s: float | None = None
        self.answer_bytes = 0

    def left_s(self, patience_s: float | None) -> float:
        """How long the next step may take."""
        now_s = time.monotonic()
        if now_s >= self.call_until_s:
            raise CallTimeoutError(_USED_UP)
        if now_s >= self.until_s:
            raise TimeoutError(f"one request took longer than {REQUEST_S_MAX:.0f} s")
        ends_s = min(self.call_until_s, self.until_s) - now_s
        return ends_s if patience_s is None else min(patience_s, ends_s)

    def came(self, count: int) -> None:
        """Note that a part of the answer came; raises where the answer is too slow to be one."""
        now_s = time.monotonic()
        self.first_s = now_s if self.first_s is None else self.first_s
        self.answer_bytes += count
        spent_s = now_s - self.first_s
        if spent_s > SLOW_S and self.answer_bytes < spent_s * ANSWER_BYTES_PER_S_MIN:
            raise TimeoutError(f"the answer came too slowly: {self.answer_bytes} bytes in {spent_s:.0f} s")


class _Answer(io.RawIOBase):
    """What a socket receives, within the time of the request under way."""

    def __init__(self, raw: Any, socket: _Socket) -> None:
        self._raw, self._socket = raw, socket

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        socket = self._socket
        count: int | None = socket.timed(partial(self._raw.readinto, buffer))
        socket.request.came(count or 0)
        return count

    def fileno(self) -> int:
        return int(self._raw.fileno())

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Socket:
    """A connected socket whose steps end with the request that they are part of."""

    def __init__(self, connected: Any) -> None:
        self._connected = connected
        self.request = _TimedRequest()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connected, name)

    def timed(self, step: Callable[[], T]) -> T:
        """Make a step, which may take what is left; one that is cut there says why."""
        usual_s = self._connected.gettimeout()
        left_s = self.request.left_s(usual_s)
        if left_s != usual_s:
            self._connected.settimeout(left_s)
        try:
            return step()
        except TimeoutError:
            self.request.left_s(None)  # says so where it was the call's time
            raise
        finally:
            if left_s != usual_s:
                with contextlib.suppress(OSError):
                    self._connected.settimeout(usual_s)

    def sendall(self, data: Any, *flags: Any) -> None:
        """Send all of it; each part may take as long as a store may be silent, not all of it together."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), _SENT_AT_ONCE_BYTES):
            self.timed(partial(self._connected.sendall, view[at : at + _SENT_AT_ONCE_BYTES], *flags))

    def makefile(self, mode: str = "r", buffering: int | None = None, **settings: Any) -> Any:
        """A file of what is received, as ``socket.makefile``."""
        if mode != "rb":
            return self._connected.makefile(mode, buffering, **settings)
        answer = _Answer(self._connected.makefile("rb", 0), self)
        if buffering == 0:
            return answer
        return io.BufferedReader(answer, buffering if buffering and buffering > 0 else io.DEFAULT_BUFFER_SIZE)


class _Bounded:
    """A connection of urllib3's whose requests end."""

    sock: Any
    _small: bytes | None = None

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock = _Socket(self.sock)

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **kwargs: Any) -> Any:
        if isinstance(self.sock, _Socket):
            self.sock.request = _TimedRequest()
        small = isinstance(body, bytes) and len(body) <= _WITH_HEAD_BYTES
        if small and headers is not None and "Content-Length" in headers and "Expect" not in headers:
            self._small, body = body, None
        try:
            return super().request(method, url, body, headers, **kwargs)  # type: ignore[misc]
        finally:
            self._small = None

    def endheaders(self, message_body: Any = None, **kwargs: Any) -> None:
        """Send the head, and a small body with it: two packets cost a step of either side, and a store waits for the second."""
        super().endheaders(self._small if message_body is None else message_body, **kwargs)  # type: ignore[misc]


@lru_cache(maxsize=16)
def bounded(pool: Any) -> Any:
    """A pool class like ``pool`` whose connections end their requests; itself, if they do."""
    if issubclass(pool.ConnectionCls, _Bounded):
        return pool
    connection = type(f"Bounded{pool.ConnectionCls.__name__}", (_Bounded, pool.ConnectionCls), {})
    return type(f"Bounded{pool.__name__}", (pool,), {"ConnectionCls": connection})


def bound_client(client: Any) -> Any:
    """Let the requests of a botocore client end; returns the client."""
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    classes = getattr(session, "_pool_classes_by_scheme", None)
    if isinstance(classes, dict):  # a dict that all managers of the session share
        classes.update({scheme: bounded(pool) for scheme, pool in classes.items()})
    return client


def bound_session(session: Any) -> Any:
    """Let the requests of a ``requests.Session`` end; returns the session."""
    for adapter in getattr(session, "adapters", {}).values():
        manager: Any = getattr(adapter, "poolmanager", None)
        if manager is not None:
            classes = manager.pool_classes_by_scheme
            manager.pool_classes_by_scheme = {scheme: bounded(pool) for scheme, pool in classes.items()}
    return session
