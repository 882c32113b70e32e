"""Events as Lambda hands them over, cut to what safewrite reads."""

from __future__ import annotations

import base64
import json
from typing import Any

QUEUE = "arn:aws:sqs:eu-west-1:123456789012:orders"
STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
CHANGES = "arn:aws:dynamodb:eu-west-1:123456789012:table/Orders/stream/2026-01-01T00:00:00.000"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:orders"


def message(message_id: str, body: Any, *, group: str | None = None) -> dict[str, Any]:
    """A record of SQS; ``group`` makes it one of a FIFO queue."""
    attributes = {"ApproximateReceiveCount": "1"} | ({"MessageGroupId": group} if group else {})
    text = body if isinstance(body, str) else json.dumps(body)
    return {
        "messageId": message_id,
        "receiptHandle": "h",
        "body": text,
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": QUEUE,
    }


def datum(sequence: int, data: Any, *, shard: str = "shardId-000000000000") -> dict[str, Any]:
    """A record of a Kinesis stream."""
    return {
        "kinesis": {
            "partitionKey": "p",
            "sequenceNumber": str(sequence),
            "data": base64.b64encode(json.dumps(data).encode()).decode(),
        },
        "eventSource": "aws:kinesis",
        "eventID": f"{shard}:{sequence}",
        "eventSourceARN": STREAM,
    }


def change(event_id: str, sequence: int, image: dict[str, Any]) -> dict[str, Any]:
    """A record of a DynamoDB stream."""
    return {
        "eventID": event_id,
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "dynamodb": {"SequenceNumber": str(sequence), "NewImage": image},
        "eventSourceARN": CHANGES,
    }


def created(bucket: str, key: str, **thing: str) -> dict[str, Any]:
    """A record of S3's notification of a new object; ``thing`` are its versionId, eTag, sequencer."""
    return {
        "eventSource": "aws:s3",
        "eventName": "ObjectCreated:Put",
        "s3": {"bucket": {"name": bucket}, "object": {"key": key, **thing}},
    }


def notification(message_id: str, text: str) -> dict[str, Any]:
    """The body of an SQS message to which SNS has delivered."""
    return {"Type": "Notification", "MessageId": message_id, "TopicArn": TOPIC, "Message": text}


def published(message_id: str, text: str) -> dict[str, Any]:
    """A record of SNS."""
    return {"EventSource": "aws:sns", "Sns": {"MessageId": message_id, "Message": text}}


def bus(event_id: str, detail: Any) -> dict[str, Any]:
    """An event of EventBridge."""
    return {
        "version": "0", "id": event_id, "detail-type": "order", "source": "shop", "detail": detail
    }  # fmt: skip


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    """An event of records."""
    return {"Records": list(records)}
