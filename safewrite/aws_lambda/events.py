"""Takes an event apart: its records, the key of each, and what its source counts as failed with it.

The key names the record and never the batch: a queue delivers a message again in another batch, a shard is read again
from its first failure, also what had succeeded.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote_plus

import safewrite as sw

Source = Literal["sqs", "kinesis", "dynamodb", "s3", "sns", "eventbridge", "direct"]
Raw = Mapping[str, Any]
KEY_BYTES_MAX = 1024
"""A table takes no longer key."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of an event.

    ``key`` is the name of its write; None where the event has no id that stays the same (direct invocation).
    ``delivery`` is the place in the event of the message that it came in: a message succeeds if all its
    records do.  ``group`` is the FIFO group or the shard whose order is kept.  ``raw`` is the record as it
    came, ``source`` says of what kind it is.
    """

    key: str | None
    raw: Raw
    source: Source
    delivery: int
    group: Hashable = None

    @property
    def body(self) -> Any:
        """What the sender sent, as far as JSON and base64 tell it.

        SQS: the text, decoded if it is JSON.  SNS: the same of its message.  Kinesis: the data's bytes, decoded if they
        are JSON.  DynamoDB: the ``dynamodb`` part.  EventBridge: the ``detail``.  S3 and direct: the record.
        """
        return _body(self)

    @property
    def bucket(self) -> str:
        """The bucket of an S3 record."""
        return str(self.raw["s3"]["bucket"]["name"])

    @property
    def object_key(self) -> str:
        """The object's key of an S3 record, as S3 knows it: events spell it as in a URL."""
        return unquote_plus(str(self.raw["s3"]["object"]["key"]))


def source_of(event: Any) -> Source:
    """The source that an event comes from; ``direct`` for what no source sends."""
    if isinstance(event, Mapping):
        records = event.get("Records")
        if isinstance(records, Sequence) and records and isinstance(records[0], Mapping):
            named = str(records[0].get("eventSource") or records[0].get("EventSource") or "")
            known = _SOURCES.get(named)
            if known is not None:
                return known
        if _is_eventbridge(event):
            return "eventbridge"
    return "direct"


def records_of(event: Any) -> tuple[Record, ...]:
    """Every record of an event, in its order.

    Raises:
        safewrite.InvalidInputError: it lacks what its source always sends.
    """
    source = source_of(event)
    try:
        if source == "direct":
            return (Record(None, event, "direct", 0),)
        if source == "eventbridge":
            return (_eventbridge(event, 0),)
        return tuple(
            found for at, raw in enumerate(event["Records"]) for found in _unwrapped(raw, source, at)
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise sw.InvalidInputError(
            f"The event looks like one of {source} and is none: {type(error).__name__}: {error}. Nothing was written. Pass "
            "Lambda's event as it came."
        ) from error


def objects_of(event: Any) -> tuple[str, ...]:
    """The addresses of objects (``s3://bucket/key``) that S3 tells of in an event, or in the body of a queue's message.

    They may come through SQS, SNS or EventBridge.  Deletions are left out, and what is no event of S3.

    Raises:
        safewrite.InvalidInputError: as :func:`records_of`.
    """
    given = _json(event)
    if _is_notification(given):
        given = _json(given["Message"])
    records = records_of(given) if isinstance(given, Mapping) else ()
    return tuple(found for record in records if (found := _object_of(record)) is not None)


def _object_of(record: Record) -> str | None:
    if record.source == "s3":
        created = "ObjectRemoved" not in str(record.raw.get("eventName", ""))
        return f"s3://{record.bucket}/{record.object_key}" if created else None
    if record.source == "eventbridge" and record.raw.get("detail-type") == "Object Created":
        detail = record.raw["detail"]
        return f"s3://{detail['bucket']['name']}/{detail['object']['key']}"
    return None


# --- records --------------------------------------------------------------------------------------------
def _unwrapped(raw: Raw, source: Source, at: int) -> Iterator[Record]:
    match source:
        case "sqs":
            yield from _sqs(raw, at)
        case "sns":
            inner = _inner(raw["Sns"]["Message"], at, None)
            yield from (Record(str(raw["Sns"]["MessageId"]), raw, "sns", at),) if inner is None else inner
        case "kinesis":
            stream = raw["eventSourceARN"].rpartition("/")[2]
            shard = str(raw["eventID"]).partition(":")[0]
            yield Record(f"{stream}/{raw['eventID']}", raw, "kinesis", at, shard)
        case "dynamodb":
            # All records of a batch come from one shard, which they do not name.
            yield Record(str(raw["eventID"]), raw, "dynamodb", at, raw["eventSourceARN"])
        case _:
            yield _s3(raw, at, None)


def _sqs(raw: Raw, at: int) -> Iterator[Record]:
    """A message, or what is wrapped in it: an SNS notification, S3's records, an event of EventBridge."""
    group = raw.get("attributes", {}).get("MessageGroupId")
    body = _json(raw["body"])
    if _is_notification(body):
        # The queue may hold one notification twice, as two messages.
        key, inner = str(body["MessageId"]), _inner(body["Message"], at, group)
    else:
        key, inner = str(raw["messageId"]), _inner(body, at, group)
    yield from (Record(key, raw, "sqs", at, group),) if inner is None else inner


def _inner(text: Any, at: int, group: Hashable) -> tuple[Record, ...] | None:
    """Records of S3 or an event of EventBridge in a message; none for S3's test event; None if it holds neither.

    Anybody may send anything: what only looks like one of these is a message like others, and holds none of them up.
    """
    try:
        return _wrapped(_json(text), at, group)
    except (KeyError, TypeError, AttributeError):
        return None


def _wrapped(body: Any, at: int, group: Hashable) -> tuple[Record, ...] | None:
    if not isinstance(body, Mapping):
        return None
    if body.get("Event") == "s3:TestEvent":
        return ()
    if _is_eventbridge(body):
        return (_eventbridge(body, at, group),)
    if source_of(body) == "s3":
        return tuple(_s3(one, at, group) for one in body["Records"])
    return None


def _s3(raw: Raw, at: int, group: Hashable) -> Record:
    """An object's key names what happened to it: one name may be written again, one event may come twice."""
    bucket, thing = raw["s3"]["bucket"]["name"], raw["s3"]["object"]
    version = thing.get("versionId")
    what = {"versionId": version} if version and version != "null" else {
        "sequencer": thing.get("sequencer"), "eTag": thing.get("eTag")
    }  # fmt: skip
    named = "&".join(f"{name}={quote(str(value))}" for name, value in what.items() if value)
    kind = str(raw.get("eventName", "")).partition(":")[0].removeprefix("s3:")
    key = f"s3://{bucket}/{thing['key']}?{named}#{kind}"
    return Record(_fitting(key), raw, "s3", at, group)


def _fitting(key: str) -> str:
    """A key that may be stored: an object's key of a kilobyte is thrice as long in an event."""
    if len(key.encode(errors="surrogatepass")) <= KEY_BYTES_MAX:
        return key
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return f"{key.partition('?')[0][:200]}...#sha256:{digest}"


def _eventbridge(event: Raw, at: int, group: Hashable = None) -> Record:
    return Record(str(event["id"]), event, "eventbridge", at, group)


def _is_notification(body: Any) -> bool:
    """Whether a message's body is what SNS puts into a queue."""
    return (
        isinstance(body, Mapping)
        and body.get("Type") == "Notification"
        and {"TopicArn", "MessageId", "Message"} <= body.keys()
    )


def _is_eventbridge(event: Raw) -> bool:
    return {"id", "detail-type", "source", "detail"} <= event.keys()


_SOURCES: dict[str, Source] = {
    "aws:sqs": "sqs",
    "aws:kinesis": "kinesis",
    "aws:dynamodb": "dynamodb",
    "aws:s3": "s3",
    "aws:sns": "sns",
}


# --- bodies ---------------------------------------------------------------------------------------------
def _body(record: Record) -> Any:
    match record.source:
        case "sqs":
            body = _json(record.raw["body"])
            return _json(body["Message"]) if _is_notification(body) else body
        case "sns":
            return _json(record.raw["Sns"]["Message"])
        case "kinesis":
            return _json(base64.b64decode(record.raw["kinesis"]["data"]))
        case "dynamodb":
            return record.raw["dynamodb"]
        case "eventbridge":
            return record.raw["detail"]
        case _:
            return record.raw


def _json(text: Any) -> Any:
    """A text or bytes as JSON; as they are where they are none, or are nested too deeply."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return text
