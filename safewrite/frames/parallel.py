"""Decodes and encodes files side by side in a few threads: pure work on bytes and rows, whose results keep their order.

Arrow works outside of Python's lock, so files are made by as many cores as there are, and while others are uploaded.  Only
what asks nobody may run here: requests are effects, performed one after another or together.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import pyarrow as pa

from safewrite.boundary.workers import Pending, Workers

T = TypeVar("T")

FILES_AT_ONCE = max(2, min(4, os.cpu_count() or 1))
"""Files that are worked on at a time; two at least, for one may wait for its upload."""
BYTES_AT_ONCE = 32 * 2**20
"""Files that are larger than this together are worked on one by one."""
LOOKED_AT_ONCE, LOOKED_BYTES = 8, 8 * 2**20
"""Files in which keys are looked for are fetched together, at most this many files and bytes at a time."""
GIVEN_BACK_BYTES = 8 * 2**20
"""Memory is given back after files of at least this many bytes."""


@lru_cache(maxsize=1)
def _pool_of(process: int) -> Workers:
    """One pool for all tables of a process; a forked child makes its own, for threads do not survive."""
    return Workers(FILES_AT_ONCE, "safewrite-rows")


class Begun(Generic[T]):
    """Calls that are under way; a single one is made when its result is asked for, without a thread."""

    def __init__(self, calls: Sequence[Callable[[], T]], *, alone: bool = False) -> None:
        self._calls = calls if alone else ()
        self._futures: list[Pending[T]] = []
        if not alone:
            pool = _pool_of(os.getpid())
            self._futures = [pool.submit(call) for call in calls]

    def results(self) -> list[T]:
        """What the calls returned, in their order; what the first of them raised is raised."""
        return [*(call() for call in self._calls), *(future.result() for future in self._futures)]

    def forget(self) -> None:
        """Do not begin what has not begun: nobody will ask for it."""
        for future in self._futures:
            future.cancel()


class _Worked(threading.local):
    """What a thread has worked on since memory was given back."""

    size_bytes = 0


_worked = _Worked()


def given_back(call: Callable[[], T], size_bytes: int) -> T:
    """The result of a call on a file of so many bytes; from time to time Arrow gives back to the system what it does not need.

    Arrow's allocator keeps freed memory for each thread, and gives back that of the thread that asks: the memory
    of two files for each thread of the pool, for as long as the process lives.  After each small file that took a quarter
    of the time that the file took.
    """
    try:
        return call()
    finally:
        _worked.size_bytes += size_bytes
        if _worked.size_bytes >= GIVEN_BACK_BYTES:
            _worked.size_bytes = 0
            pa.default_memory_pool().release_unused()


class Handed(Generic[T]):
    """A value that is held here alone, and by nobody once it was taken: a call that waits for a thread holds its arguments."""

    __slots__ = ("_held",)

    def __init__(self, value: T) -> None:
        self._held = [value]

    def taken(self) -> T:
        """The value, once."""
        return self._held.pop()


def all_of(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of some calls, in their order."""
    begun = Begun(calls, alone=len(calls) == 1)
    try:
        return begun.results()
    finally:
        begun.forget()


def windows(
    items: Sequence[T],
    size_of: Callable[[T], int],
    *,
    files: int = FILES_AT_ONCE,
    bytes_max: int = BYTES_AT_ONCE,
) -> Iterator[list[T]]:
    """Files, or columns of one, that are in memory together: a few small ones, or one that is large."""
    some: list[T] = []
    left_bytes = bytes_max
    for item in items:
        size = size_of(item)
        if some and (size > left_bytes or len(some) >= files):
            yield some
            some, left_bytes = [], bytes_max
        some.append(item)
        left_bytes -= size
    if some:
        yield some
