"""Feeds a handler from one shard as Lambda's event source mapping does, and gives a batch up after its last retry.

https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html and
https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html say how; where they leave something
open (whether a checkpoint inside a batch begins its retries anew), :class:`Shard` has both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .responses import failed_ids

Handler = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Shard:
    """How a mapping of a stream groups, retries and gives up.

    ``bisect`` is ``BisectBatchOnFunctionError``, ``report`` is ``ReportBatchItemFailures``; ``retries`` is
    ``MaximumRetryAttempts``.  ``renewed`` begins the retries anew at each checkpoint inside a batch.
    """

    batch_size: int = 100
    retries: int = 2
    bisect: bool = False
    report: bool = True
    renewed: bool = True

    def feed(self, handler: Handler, records: Sequence[Any], name: Callable[[Any], str]) -> list[Any]:
        """Deliver all records in order; returns those that were given up, which go to the on-failure destination.

        ``name`` is what the answer calls a record: its sequence number.
        """
        given_up: list[Any] = []
        for start in range(0, len(records), self.batch_size):
            waiting = [(list(records[start : start + self.batch_size]), self.retries)]
            while waiting:
                batch, retries = waiting.pop()
                left, whole = self._deliver(handler, batch, name)
                if not left:
                    continue
                moved = len(left) < len(batch)
                if self.bisect and whole and len(batch) > 1:  # a split counts as no retry
                    half = len(batch) // 2
                    waiting += [(batch[half:], retries), (batch[:half], retries)]
                elif moved and self.renewed:
                    waiting.append((left, self.retries))
                elif retries > 0:
                    waiting.append((left, retries - 1))
                else:
                    given_up += left
        return given_up

    def _deliver(
        self, handler: Handler, batch: list[Any], name: Callable[[Any], str]
    ) -> tuple[list[Any], bool]:
        """One invocation: what is still to be delivered, and whether the whole of it failed."""
        try:
            answer = handler({"Records": batch})
        except Exception:  # noqa: BLE001 - what the function raises is an answer
            return batch, True
        names = [name(record) for record in batch]
        failed = failed_ids(json.dumps(answer).encode(), names, report=self.report)
        # The lowest number is the checkpoint: from there on all come again, also what had succeeded.
        first = next((at for at, one in enumerate(names) if one in failed), len(batch))
        return batch[first:], first == 0 and len(failed) == len(batch)
