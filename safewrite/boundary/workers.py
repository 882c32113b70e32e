"""Runs calls in a few threads, so that a call which is broken off (Ctrl-C, no memory) leaves nothing locked.

A signal is raised in the main thread between any two steps of Python's own code.  The locks of ``concurrent.futures`` and
``threading`` are written in Python: one that was just taken then stays taken, for as long as the process lives, and
whoever asks next waits for ever.  What is used here is written in C: a queue takes an item or does not.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """A call that a thread makes, or whoever asks for its result if no thread has begun it.

    The answer stays where the thread put it: a signal between taking and returning it would lose it, and who asks again waits for ever.
    """

    __slots__ = ("_answer", "_bell", "_call")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = deque([call])
        self._answer: deque[tuple[T | None, BaseException | None]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()

    def run(self) -> None:
        """Make the call, unless it was made or cancelled."""
        try:
            call = self._call.pop()
        except IndexError:
            return
        try:
            answer: tuple[T | None, BaseException | None] = (call(), None)
        except BaseException as error:  # noqa: BLE001 - whoever asks for the result has it
            answer = (None, error)
        del call  # it holds its arguments
        self._answer.append(answer)
        self._bell.put(None)

    def cancel(self) -> None:
        """Do not begin what has not begun; no caller may ask for its result then."""
        self._call.clear()

    def result(self) -> T:
        """What the call returned, once; what it raised is raised."""
        self.run()
        try:
            return self.waited()
        finally:
            self._answer.clear()  # it may hold much

    def waited(self, timeout_s: float | None = None) -> T:
        """As :meth:`result`, of a call that a thread makes and no signal breaks off.

        Raises:
            Empty: the call takes longer than ``timeout_s``.
        """
        while not self._answer:
            self._bell.get(timeout=timeout_s)
        value, error = self._answer[0]
        if error is not None:
            self._answer[0] = None, RuntimeError("The error of this call was raised before.")
            try:
                raise error
            finally:
                del error  # it would hold this frame, which holds it
        return value  # type: ignore[return-value]


END_S = 30.0
"""How long a process that ends waits for calls under way."""


class Workers:
    """Up to so many threads, which begin as they are needed and end with the process."""

    def __init__(self, threads: int, name: str) -> None:
        self._work: SimpleQueue[Pending[Any] | None] = SimpleQueue()
        self._idle: deque[None] = deque()
        self._left, self._name = threads, name
        self._begun: deque[threading.Thread] = deque()
        atexit.register(self.end)

    def submit(self, call: Callable[[], T]) -> Pending[T]:
        """Let a thread make a call."""
        pending = Pending(call)
        self._work.put(pending)
        try:
            self._idle.pop()
        except IndexError:
            self._begin()
        return pending

    def _begin(self) -> None:
        if self._left < 1:
            return
        self._left -= 1
        try:
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._left}", daemon=True)
            thread.start()
            self._begun.append(thread)
        except RuntimeError:  # no more threads, or the process ends: who asks for a result makes the call
            self._left += 1

    def _serve(self) -> None:
        while (pending := self._work.get()) is not None:
            pending.run()
            del pending  # it may hold much
            self._idle.append(None)

    def end(self) -> None:
        """Let the threads end, when the process does.

        Python ends a daemon thread where it asks for the interpreter's lock.  In Arrow's C++ that aborts the process
        ("terminate called without an active exception"), after all work was done.
        """
        until_s = time.monotonic() + END_S
        for _ in self._begun:
            self._work.put(None)
        for thread in self._begun:
            thread.join(max(0.0, until_s - time.monotonic()))


class Background:
    """Makes calls one after another in a thread that begins with the first of them and ends with the last.

    The thread is not a daemon: a process that ends waits for it, and so does a child of ``multiprocessing``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: deque[Pending[Any]] = deque()
        self._free: SimpleQueue[None] = SimpleQueue()
        """Holds one token; whoever has it is, or starts, the thread."""
        self._free.put(None)

    def submit(self, call: Callable[[], T]) -> Pending[T]:
        """Let the thread make a call.  Where no thread can be started, the call is not made."""
        pending = Pending(call)
        self._work.append(pending)
        self._begin()
        return pending

    def _begin(self) -> None:
        try:
            self._free.get_nowait()
        except Empty:
            return  # the thread looks for more work before it ends, and after
        try:
            threading.Thread(target=self._serve, name=self._name, daemon=False).start()
        except RuntimeError:  # no more threads, or the process ends
            self._work.clear()
            self._free.put(None)

    def _serve(self) -> None:
        while self._work:
            self._work.popleft().run()
        self._free.put(None)
        if self._work:
            self._begin()
