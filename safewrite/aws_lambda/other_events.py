"""Names events that BatchWriter does not take apart, and says what to do with each.

The shapes are those of AWS's pages: *Using Lambda with Amazon MQ*, *... with Amazon Data Firehose*, *... with DocumentDB*,
*EventBridge Pipes sources*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BY_HAND = (
    "Take it apart in a handler of your own, and hand the rows to table.append_many([(id, rows), ...]), with an id that is the same "
    "when the event comes again; or give BatchWriter key=, a function that finds such an id in record.raw, for the whole event."
)
_FIREHOSE = (
    "Firehose takes each record back in its answer, which BatchWriter does not make: write the rows in a handler of your own, by "
    "table.append_many([(recordId, rows), ...]), and return the records; or map the stream to the function itself."
)
_OWN_ID = "Give BatchWriter key=, a function that finds the event's own id in record.raw."


def described(event: Any) -> tuple[str, str]:
    """What an event is, and what to do with it; a direct invocation where nothing tells more."""
    if isinstance(event, Mapping):
        for name, needed, advice in _SHAPES:
            if needed <= event.keys():
                return name, advice
        for field in ("Records", "records"):
            name = _source_of_first(event.get(field))
            if name:
                return f"an event of records of {name}", _BY_HAND
        named = event.get("eventSource")
        if isinstance(named, str) and named in _MAPPED:
            return _MAPPED[named], _BY_HAND
    if isinstance(event, Sequence) and not isinstance(event, str | bytes):
        name = _source_of_first(event)
        if name:
            return f"a batch of EventBridge Pipes, of records of {name}", (
                'Call the writer with {"Records": event}, which is the event that Lambda itself hands over; a pipe takes the same answer.'
                if name in ("aws:sqs", "aws:dynamodb")
                else _BY_HAND
            )
    return "a direct invocation", _OWN_ID


def _source_of_first(records: Any) -> str:
    if not isinstance(records, Sequence) or not records or not isinstance(records[0], Mapping):
        return ""
    named = records[0].get("eventSource") or records[0].get("EventSource")
    return named if isinstance(named, str) else ""


_SHAPES: tuple[tuple[str, frozenset[str], str], ...] = (
    (
        "an event of Data Firehose, which waits for records to be returned",
        frozenset({"deliveryStreamArn", "records"}),
        _FIREHOSE,
    ),
    ("an event of CloudWatch Logs", frozenset({"awslogs"}), _BY_HAND),
    ("a request of API Gateway or of a function URL", frozenset({"requestContext"}), _OWN_ID),
    ("a job of S3 Batch Operations", frozenset({"invocationId", "tasks"}), _BY_HAND),
)  # fmt: skip
_MAPPED = {
    "aws:mq": "an event of Amazon MQ (ActiveMQ), whose messages have a messageID each",
    "aws:rmq": "an event of Amazon MQ (RabbitMQ), whose messages have an id only if the sender sets messageId",
    "aws:amq": "an event of Amazon MQ (ActiveMQ), whose messages have a messageID each",
    "aws:docdb": "an event of DocumentDB, whose changes have an _id each",
    "aws:kafka": "an event of Kafka without its records",
    "SelfManagedKafka": "an event of Kafka without its records",
}
