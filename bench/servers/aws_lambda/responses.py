"""Understands what a function answers to a batch of SQS messages, as Lambda's documentation says.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html#services-sqs-batchfailurereporting
"""

from __future__ import annotations

import json
from collections.abc import Collection


def failed_ids(body: bytes, ids: Collection[str], *, report: bool) -> frozenset[str]:
    """The messages of a batch that failed, after an invocation that ended well.

    ``report`` is ``ReportBatchItemFailures`` of the event source mapping: without it any answer is a success.
    With it, a null or empty answer or list is a success, and what cannot be understood fails the whole batch:
    an id that is null, empty or not of the batch, an item without one, a list that is none.
    """
    everything = frozenset(ids)
    if not report:
        return frozenset()
    try:
        answer = json.loads(body) if body.strip() else None
    except ValueError:
        return everything
    if answer is None:
        return frozenset()
    if not isinstance(answer, dict):
        return everything
    items = answer.get("batchItemFailures")
    if items is None:
        return frozenset()
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return everything
    failed = [str(item.get("itemIdentifier", "")) for item in items]
    return frozenset(failed) if everything.issuperset(failed) else everything
