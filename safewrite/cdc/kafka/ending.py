"""Ends a job on SIGTERM, as schedulers of containers send it: the batch that is under way lands, and then the query stops."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

log = logging.getLogger("safewrite")

GRACE_S = 20.0
"""How long the batch under way may take; schedulers kill after 30 s.  A batch that is cut off lands when the job starts again."""
POLL_S = 2.0
"""A look at the query is a call of Java; SIGTERM waits so long at most."""

TOLD_S = 5.0
"""How long the end of a query may take to be told to who listens: a process that ends sooner tells nobody, and Java prints the stack of it."""


class Query(Protocol):
    """What is needed of Spark's StreamingQuery."""

    def awaitTermination(self, timeout: Any = None) -> bool | None:  # noqa: N802 - Spark's own name
        """Wait; whether it ended.  Raises what ended it."""

    def stop(self) -> None:
        """Stop it, also in mid-batch."""


class BatchUnderWay:
    """Whether a batch is landing; set by the thread that Spark calls."""

    def __init__(self) -> None:
        self._idle = threading.Event()
        self._idle.set()

    @contextmanager
    def landing(self) -> Iterator[None]:
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until none is; whether so within the time."""
        return self._idle.wait(timeout_s)


def run_until_ended(
    query: Query, batch: BatchUnderWay, *, told: threading.Event | None = None, grace_s: float = GRACE_S
) -> None:
    """Wait until the query ends by itself, or end it on SIGTERM; a second SIGTERM does not wait for the batch.

    Args:
        told: is set when who listens was told of the end.

    Raises:
        StreamingQueryException: what ended the query, as Spark tells it.
    """
    asked: list[float] = []

    def note(number: int, frame: FrameType | None) -> None:
        asked.append(time.monotonic())

    with _handled(note), _told(told):
        while not query.awaitTermination(POLL_S):
            if not asked:
                continue
            log.warning(
                "SIGTERM: the batch that is under way lands, and then the job ends; after %.0f s it is cut off, and lands when the job "
                "starts again.", grace_s,
            )  # fmt: skip
            until = asked[0] + grace_s
            while len(asked) == 1 and time.monotonic() < until and not batch.wait(POLL_S):
                pass
            query.stop()
            return


@contextmanager
def _told(told: threading.Event | None) -> Iterator[None]:
    try:
        yield
    finally:
        if told is not None:
            told.wait(TOLD_S)


@contextmanager
def _handled(note: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGTERM, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
