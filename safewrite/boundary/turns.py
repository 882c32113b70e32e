"""Lets threads compute one at a time, while those that wait for a store or an executor do so side by side.

Python runs one thread at a time anyway.  Of threads that compute at once each asks for its lock again behind every call of Arrow or
NumPy, and on a machine that has nothing else to do that costs as much CPU as the work itself (docs/evidence/cdc.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_PATIENCE_S = 0.25
"""A turn is a courtesy: who waits for it so long goes on without, so nobody waits for ever for what a waiting thread holds."""


class _Mine(threading.local):
    """The turn of this thread."""

    turns: Turns | None = None
    has: bool = False

    def take(self) -> None:
        self.has = self.turns is not None and self.turns.free.acquire(timeout=_PATIENCE_S)

    def give(self) -> None:
        if self.has and self.turns is not None:
            self.has = False
            self.turns.free.release()


_mine = _Mine()


class Turns:
    """The turns of some threads, one at a time."""

    def __init__(self) -> None:
        self.free = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Compute in turn; :func:`waiting` lets others do so meanwhile."""
        outer = _mine.turns
        _mine.turns = self
        _mine.take()
        try:
            yield
        finally:
            _mine.give()
            _mine.turns = outer


def waiting(call: Callable[P, T], *given: P.args, **settings: P.kwargs) -> T:
    """Make a call that waits, while another thread has the turn of this one."""
    if not _mine.has:
        return call(*given, **settings)
    _mine.give()
    try:
        return call(*given, **settings)
    finally:
        _mine.take()
