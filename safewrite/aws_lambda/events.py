"""Takes an event apart: its records, the key of each, and what its source counts as failed with it.

The key names the record and never the batch: a queue delivers a message again in another batch, a shard is read again
from its first failure, also what had succeeded.  Only a text names something: an id that is null, empty or of another
type would be the same key for every message that has it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import quote, unquote_plus

import safewrite as sw

Source = Literal["sqs", "kinesis", "dynamodb", "s3", "sns", "eventbridge", "kafka", "direct"]
Raw = Mapping[str, Any]
KEY_BYTES_MAX = 1024
"""A table takes no longer key."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of an event.

    ``key`` is the name of its write; None where the event has no id that stays the same (direct invocation), or one
    that is not text.
    ``delivery`` is the place in the event of the message that it came in: a message succeeds if all its
    records do.  ``group`` is the FIFO group, the shard or the partition that it came in order from.  ``raw`` is the
    record as it came, ``source`` says of what kind it is.
    """

    key: str | None
    raw: Raw
    source: Source
    delivery: int
    group: Hashable = None

    @property
    def body(self) -> Any:
        """What the sender sent, as far as JSON and base64 tell it.

        SQS: the text, decoded if it is JSON.  SNS: the same of its message.  Kinesis and Kafka: the bytes, decoded if
        they are JSON; None for a value that is null.  DynamoDB: the ``dynamodb`` part.  EventBridge: the ``detail``.
        S3 and direct: the record.
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
        if event.get("eventSource") in _KAFKA and isinstance(event.get("records"), Mapping):
            return "kafka"
        records = event.get("Records")
        if isinstance(records, Sequence) and records and isinstance(records[0], Mapping):
            known = _SOURCES.get(_text(records[0].get("eventSource") or records[0].get("EventSource")) or "")
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
        if source == "kafka":
            return tuple(_kafka(event))
        return tuple(
            found for at, raw in enumerate(event["Records"]) for found in _unwrapped(raw, source, at)
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        why = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise sw.InvalidInputError(
            f"The event looks like one of {source} and is none: {why}. Nothing was written. Pass Lambda's event as it came."
        ) from error


def objects_of(event: Any) -> tuple[str, ...]:
    """The addresses of objects (``s3://bucket/key``) that S3 tells of in an event, or in the body of a queue's message.

    They may come through SQS, SNS or EventBridge.  Deletions are left out, and what is not an event of S3.

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
        created = "ObjectRemoved" not in (_text(record.raw.get("eventName")) or "")
        return f"s3://{record.bucket}/{record.object_key}" if created else None
    if record.source == "eventbridge" and record.raw.get("detail-type") == "Object Created":
        with suppress(KeyError, TypeError, ValueError):
            detail = record.raw["detail"]
            return f"s3://{_must(detail['bucket']['name'], 'name')}/{_must(detail['object']['key'], 'key')}"
    return None


# --- records --------------------------------------------------------------------------------------------
def _unwrapped(raw: Raw, source: Source, at: int) -> Iterator[Record]:
    match source:
        case "sqs":
            yield from _sqs(raw, at)
        case "sns":
            own = _id(raw["Sns"]["MessageId"])
            inner = _inner(raw["Sns"]["Message"], at, own)
            yield from (Record(own, raw, "sns", at),) if inner is None else inner
        case "kinesis":
            # The answer names a record by its sequence number, and the key by its event id.
            event_id = _must(raw["eventID"], "eventID")
            _must(raw["kinesis"]["sequenceNumber"], "sequenceNumber")
            stream = _must(raw["eventSourceARN"], "eventSourceARN").rpartition("/")[2]
            yield Record(f"{stream}/{event_id}", raw, "kinesis", at, event_id.partition(":")[0])
        case "dynamodb":
            # All records of a batch come from one shard, which they do not name.
            event_id = _must(raw["eventID"], "eventID")
            _must(raw["dynamodb"]["SequenceNumber"], "SequenceNumber")
            yield Record(event_id, raw, "dynamodb", at, _must(raw["eventSourceARN"], "eventSourceARN"))
        case _:
            yield _s3(raw, at, None)


def _sqs(raw: Raw, at: int) -> Iterator[Record]:
    """A message, or what is wrapped in it: an SNS notification, S3's records, an event of EventBridge."""
    key = _must(raw["messageId"], "messageId")
    group = _text(raw.get("attributes", {}).get("MessageGroupId"))
    body = _json(raw["body"])
    if _is_notification(body):
        # The queue may hold one notification twice, as two messages.
        key, body = _id(body["MessageId"]) or key, body["Message"]
    inner = _inner(body, at, key, group)
    yield from (Record(key, raw, "sqs", at, group),) if inner is None else inner


def _kafka(event: Raw) -> Iterator[Record]:
    """The records of all partitions; a cluster, a topic, a partition and an offset name one.

    Its time is in the key as well: a topic that was deleted and made again counts its offsets from 0 again.
    """
    cluster = (_text(event.get("eventSourceArn")) or "").partition(":cluster/")[2]
    at = 0
    for records in event["records"].values():
        for raw in records:
            topic = _must(raw["topic"], "topic")
            partition, offset = (_whole(raw[name], name) for name in ("partition", "offset"))
            when = raw.get("timestamp")
            stamp = f"@{when}" if isinstance(when, int) and not isinstance(when, bool) and when >= 0 else ""
            name = "/".join(filter(None, (cluster, topic, f"{partition}:{offset}{stamp}")))
            yield Record(_fitting(name), raw, "kafka", at, f"{topic}-{partition}")
            at += 1


def _inner(text: Any, at: int, own: str | None, group: Hashable = None) -> tuple[Record, ...] | None:
    """Records of S3 or an event of EventBridge in a message; none for S3's test event; None if it holds neither.

    Anybody may send anything: what only looks like one of these is a message like others, and holds none of them up.
    What has no id in there goes by ``own``, that of its message.
    """
    try:
        found = _wrapped(_json(text), at, group)
    except (KeyError, TypeError, AttributeError, ValueError):
        return None
    if found is None or own is None:
        return found
    # Two records of a message that name nothing are distinguished by their places in it.
    named = len(found) == 1
    return tuple(
        record if record.key is not None else replace(record, key=own if named else f"{own}#{place}")
        for place, record in enumerate(found)
    )


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
    bucket, thing = _must(raw["s3"]["bucket"]["name"], "name"), raw["s3"]["object"]
    name, version = _must(thing["key"], "key"), _text(thing.get("versionId"))
    what = {"versionId": version} if version and version != "null" else {
        one: _text(thing.get(one)) for one in ("sequencer", "eTag")
    }  # fmt: skip
    named = "&".join(f"{one}={quote(value)}" for one, value in what.items() if value)
    kind = (_text(raw.get("eventName")) or "").partition(":")[0].removeprefix("s3:")
    # Without a version, a sequencer or an ETag every write of the object would have one name.
    return Record(_fitting(f"s3://{bucket}/{name}?{named}#{kind}") if named else None, raw, "s3", at, group)


def _eventbridge(event: Raw, at: int, group: Hashable = None) -> Record:
    return Record(_id(event["id"]), event, "eventbridge", at, group)


def _is_notification(body: Any) -> bool:
    """Whether a message's body is what SNS puts into a queue."""
    return (
        isinstance(body, Mapping)
        and body.get("Type") == "Notification"
        and {"TopicArn", "MessageId", "Message"} <= body.keys()
    )


def _is_eventbridge(event: Raw) -> bool:
    return {"id", "detail-type", "source", "detail"} <= event.keys()


# --- ids ------------------------------------------------------------------------------------------------
def _text(value: Any) -> str | None:
    """A text that can name something; None for anything else: null, a number, an empty text, half a surrogate pair."""
    if not isinstance(value, str) or not value.strip():
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def _id(value: Any) -> str | None:
    """An id as a key; None if it is not text that names something."""
    text = _text(value)
    return None if text is None else _fitting(text)


def _must(value: Any, name: str) -> str:
    """A text that every record of the source has.

    Raises:
        ValueError: this one does not.
    """
    text = _text(value)
    if text is None:
        raise ValueError(f"{name} is {value!r:.80}, and no text")
    return text


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} is {value!r:.80}, and no whole number")
    return value


def _fitting(key: str) -> str:
    """A key that may be stored: an object's key of a kilobyte is thrice as long in an event."""
    if len(key.encode(errors="surrogatepass")) <= KEY_BYTES_MAX:
        return key
    digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    return f"{key.partition('?')[0][:200]}...#sha256:{digest}"


_KAFKA = ("aws:kafka", "SelfManagedKafka")
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
        case "kafka":
            value = record.raw.get("value")
            return None if value is None else _json(base64.b64decode(value))
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
