"""Feeds a function from a queue as Lambda's event source mapping does: at least once, in changing groups."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from .function import Function
from .responses import failed_ids
from .sqs import BATCH_MAX, Message, Queue

_LONG_POLL_S = 1


@dataclass(frozen=True, slots=True)
class Feed:
    """How a mapping groups, reports and repeats.

    ``window_s`` is how long it gathers a batch of more messages than one call of SQS gives.  ``retry_s`` is when
    a failed message is seen again; None leaves that to the queue's visibility timeout.  ``uneven`` draws the size of
    each batch, as SQS gives fewer messages than were asked for; ``early`` is the share of repeats that are
    delivered while the delivery before them is still under way.
    """

    batch_size: int = BATCH_MAX
    window_s: float = 0.0
    report: bool = True
    retry_s: int | None = None
    uneven: bool = False
    early: float = 0.0
    seed: int = 0


def _ignore(message_id: str) -> None:
    pass


class EventSourceMapping:
    """As many pollers as the function has environments, from ``with`` on; a context manager.

    ``deliveries`` says how often a message is delivered though it succeeded; the last of them deletes it.
    ``succeeded`` and ``failed`` hear of each message after each delivery, from any thread.
    ``counts`` has how often what happened: ``delivery``, ``redelivery`` (after a failure), ``repeat`` (after a
    success), ``overlap`` (while another was under way), ``regrouped``, ``reported`` (ids in ``batchItemFailures``),
    ``failed batch`` and ``stale handle``.
    """

    def __init__(
        self,
        queue: Queue,
        function: Function,
        feed: Feed,
        *,
        deliveries: Callable[[str], int] = lambda message_id: 1,
        succeeded: Callable[[str], None] = _ignore,
        failed: Callable[[str], None] = _ignore,
    ) -> None:
        if feed.batch_size > BATCH_MAX and not feed.window_s:
            raise ValueError(f"a batch of more than {BATCH_MAX} messages needs window_s, as in Lambda")
        self.queue = queue
        self.function = function
        self.feed = feed
        self.counts: Counter[str] = Counter()
        self.errors: list[str] = []
        self._deliveries = deliveries
        self._succeeded = succeeded
        self._failed = failed
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._successes: Counter[str] = Counter()
        self._under_way: Counter[str] = Counter()
        self._last: dict[str, tuple[frozenset[str], bool | None]] = {}
        """Of each message: the group it came in last, and whether that failed; None while it is under way."""
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        for number in range(self.function.concurrency):
            thread = threading.Thread(target=self._poll, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_until_empty(self, limit_s: float) -> bool:
        """Wait until every message is deleted or a dead letter; False if that takes longer, or a poller failed."""
        deadline = time.monotonic() + limit_s
        while not self.queue.is_empty():
            if self.errors or time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return not self.errors

    # --- one poller -------------------------------------------------------------------------------
    def _poll(self, number: int) -> None:
        rng = random.Random(f"{self.feed.seed}/{number}/poll")
        try:
            while not self._over.is_set():
                batch = self._gather(rng)
                if batch:
                    self._deliver(batch, rng)
        except Exception:  # noqa: BLE001 - the run is over then, and says why
            self.errors.append(traceback.format_exc())

    def _gather(self, rng: random.Random) -> list[Message]:
        size = rng.randint(1, self.feed.batch_size) if self.feed.uneven else self.feed.batch_size
        batch = self.queue.receive(size, wait_s=_LONG_POLL_S)
        deadline = time.monotonic() + self.feed.window_s
        while batch and len(batch) < size and time.monotonic() < deadline:
            batch += self.queue.receive(size - len(batch))
        return batch

    def _deliver(self, batch: Sequence[Message], rng: random.Random) -> None:
        self._note(batch)
        for message in batch:
            # Others may get it from now on, while the function works on it.
            if not self._is_enough(message.message_id) and rng.random() < self.feed.early:
                self.queue.show(message)
        ids = frozenset(message.message_id for message in batch)
        invocation = self.function.invoke({"Records": [self.queue.record(message) for message in batch]})
        if invocation.status == "result":
            failed = failed_ids(invocation.body, ids, report=self.feed.report)
        else:
            failed = ids
        with self._lock:
            self.counts["reported"] += len(failed) * (invocation.status == "result")
            self.counts["failed batch"] += invocation.status != "result"
        for message in batch:
            self._settle(message, failed=message.message_id in failed)

    def _note(self, batch: Sequence[Message]) -> None:
        """Count what is special about these deliveries."""
        ids = frozenset(message.message_id for message in batch)
        with self._lock:
            for message in batch:
                group, failed = self._last.get(message.message_id, (ids, None))
                self.counts["delivery"] += 1
                self.counts["regrouped"] += group != ids
                self.counts["redelivery"] += failed is True
                self.counts["repeat"] += failed is False
                self.counts["overlap"] += self._under_way[message.message_id] > 0
                self._under_way[message.message_id] += 1
                self._last[message.message_id] = (ids, None)

    def _is_enough(self, message_id: str) -> bool:
        """Whether no delivery is wanted besides those that succeeded and those under way."""
        with self._lock:
            begun = self._successes[message_id] + self._under_way[message_id]
        return begun >= self._deliveries(message_id)

    def _settle(self, message: Message, *, failed: bool) -> None:
        """Leave a failed message in the queue; delete one that succeeded, if it was delivered often enough."""
        (self._failed if failed else self._succeeded)(message.message_id)
        with self._lock:
            self._under_way[message.message_id] -= 1
            self._last[message.message_id] = (self._last[message.message_id][0], failed)
            self._successes[message.message_id] += not failed
        if failed:
            held = self.feed.retry_s is None or self.queue.show(message, after_s=self.feed.retry_s)
        elif self._is_enough(message.message_id):
            held = self.queue.delete(message)
        else:
            held = self.queue.show(message)
        with self._lock:
            self.counts["stale handle"] += not held
