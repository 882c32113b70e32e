"""Threads that compute in turn, and wait side by side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from safewrite.boundary import turns
from safewrite.boundary.turns import Turns, waiting


def in_threads(count: int, work: Callable[[int], object]) -> None:
    with ThreadPoolExecutor(count) as pool:
        for one in [pool.submit(work, number) for number in range(count)]:
            one.result(timeout=10)


def test_one_thread_computes_at_a_time_and_all_wait_at_once() -> None:
    given, meet, inside, most = Turns(), threading.Barrier(4), list[int](), list[int]()

    def compute(number: int) -> None:
        inside.append(number)
        most.append(len(inside))
        time.sleep(0.005)
        inside.remove(number)

    def work(number: int) -> None:
        with given.taken():
            compute(number)
            waiting(meet.wait, timeout=5)  # nobody comes on before all four wait here
            compute(number)

    in_threads(4, work)
    assert (max(most), len(most)) == (1, 8)


def test_a_call_that_fails_while_it_waits_gives_no_second_turn_away() -> None:
    given = Turns()

    def fails() -> None:
        assert not given.free.locked()
        raise ValueError("the store is away")

    with given.taken():
        with pytest.raises(ValueError, match="the store is away"):
            waiting(fails)
        assert given.free.locked()
    assert not given.free.locked()
    assert waiting(len, "abc") == 3, "a thread without turns just calls"


def test_a_thread_that_waits_for_what_the_next_one_holds_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is another one's, who waits for a turn to let it go: a turn is a courtesy, and no thread stops for it."""
    monkeypatch.setattr(turns, "_PATIENCE_S", 0.05)
    given, lock, holds = Turns(), threading.Lock(), threading.Event()

    def work(number: int) -> None:
        if number:
            holds.wait(5)
        with given.taken():
            if number:
                with lock:
                    return
            with lock:
                waiting(lambda: (holds.set(), time.sleep(0.1)))

    in_threads(2, work)
    assert not given.free.locked()
    assert not lock.locked()
