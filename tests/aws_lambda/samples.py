"""Events as Lambda hands them over, cut to what safewrite reads."""

from __future__ import annotations

import base64
import json
from typing import Any

QUEUE = "arn:aws:sqs:eu-west-1:123456789012:orders"
STREAM = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
CHANGES = "arn:aws:dynamodb:eu-west-1:123456789012:table/Orders/stream/2026-01-01T00:00:00.000"
CLUSTER = "arn:aws:kafka:eu-west-1:123456789012:cluster/shop/0f4c7d3e-1"
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


def kafka_record(topic: str, partition: int, offset: int, value: Any, **more: Any) -> dict[str, Any]:
    """A record of a Kafka topic; ``value`` None is a tombstone."""
    text = None if value is None else base64.b64encode(json.dumps(value).encode()).decode()
    told = {"topic": topic, "partition": partition, "offset": offset, "timestamp": 1_545_084_650_987}
    return told | {"timestampType": "CREATE_TIME", "key": None, "value": text, "headers": []} | more


def kafka(*records: dict[str, Any], managed: bool = True) -> dict[str, Any]:
    """An event of Kafka, of MSK or of a cluster of one's own: its records by topic and partition."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        found.setdefault(f"{record['topic']}-{record['partition']}", []).append(record)
    told = (
        {"eventSource": "aws:kafka", "eventSourceArn": CLUSTER}
        if managed
        else {"eventSource": "SelfManagedKafka"}
    )
    return {**told, "bootstrapServers": "b-1:9092,b-2:9092", "records": found}


def batch(*records: dict[str, Any]) -> dict[str, Any]:
    """An event of records."""
    return {"Records": list(records)}
