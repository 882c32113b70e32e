"""Many callers at the same moment: threads, or forked processes."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

WRITERS = 8


def all_at_once(call: Callable[[int], Any], times: int = WRITERS) -> list[Any]:
    """What each of so many threads got that called at the same moment."""
    barrier, results = threading.Barrier(times), [None] * times

    def work(number: int) -> None:
        barrier.wait()
        results[number] = call(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_processes(call: Callable[[int], Any], times: int) -> list[Any]:
    """What each of so many forked processes got that called at the same moment."""
    fork = multiprocessing.get_context("fork")
    barrier, results = fork.Barrier(times), fork.SimpleQueue()

    def work(number: int) -> None:
        barrier.wait()
        results.put(call(number))

    children = [fork.Process(target=work, args=(number,)) for number in range(times)]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    return found
