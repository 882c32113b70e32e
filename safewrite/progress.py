"""Tells whoever watches how far a long look or run has come; without a watcher nothing is told and nothing is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
Watch = Callable[[str, int, int], object]
"""Is called with what is being done, how much of it is done, and of how much."""

_watch: ContextVar[Watch | None] = ContextVar("safewrite_watch", default=None)


@contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Have this function called by all that is done within, in this thread."""
    before = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(before)


def watched(items: Iterable[T], what: str, total: int, *, each: int = 1) -> Iterator[T]:
    """The items, as they come; the watcher hears of each one when the next is asked for.

    ``each`` is how many of ``total`` one item stands for.
    """
    watch = _watch.get()
    if watch is None or not total:
        yield from items
        return
    watch(what, 0, total)
    for count, item in enumerate(items, 1):
        yield item
        watch(what, min(count * each, total), total)
