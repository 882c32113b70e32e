"""The key of a record is the id that its source keeps through every redelivery."""

from __future__ import annotations

import json
from typing import Any

import pytest

import safewrite as sw
from safewrite.aws_lambda import records_of
from safewrite.aws_lambda.events import KEY_BYTES_MAX
from safewrite.protocol.keys import KEY_LENGTH_MAX
from tests.aws_lambda.samples import batch, bus, change, created, datum, message, notification, published

S3_SEEN = {"versionId": "v1", "eTag": "e", "sequencer": "55"}
PUT = created("in", "a+b/%C3%BC.json", **S3_SEEN)
PUT_KEY = "s3://in/a+b/%C3%BC.json?versionId=v1#ObjectCreated"


@pytest.mark.parametrize(
    ("event", "keys"),
    [
        (batch(message("m-1", [1]), message("m-2", [2])), ["m-1", "m-2"]),
        (batch(datum(7, {"id": 1})), ["orders/shardId-000000000000:7"]),
        (batch(change("c-1", 5, {})), ["c-1"]),
        (batch(PUT), [PUT_KEY]),
        (batch(created("in", "k", eTag="e", sequencer="55")), ["s3://in/k?sequencer=55&eTag=e#ObjectCreated"]),
        (batch(created("in", "k", versionId="null", eTag="e")), ["s3://in/k?eTag=e#ObjectCreated"]),
        (batch(published("n-1", "text")), ["n-1"]),
        (bus("b-1", {"id": 1}), ["b-1"]),
        (batch(message("m-1", notification("n-1", "text"))), ["n-1"]),
        (batch(message("m-1", notification("n-1", json.dumps(batch(PUT))))), [PUT_KEY]),
        (batch(message("m-1", batch(PUT, created("in", "k", eTag="e")))), [PUT_KEY, "s3://in/k?eTag=e#ObjectCreated"]),
        (batch(published("n-1", json.dumps(batch(PUT)))), [PUT_KEY]),
        (batch(message("m-1", bus("b-1", {}))), ["b-1"]),
        (batch(message("m-1", {"Event": "s3:TestEvent"}), message("m-2", "x")), ["m-2"]),
        ({"order": 1}, [None]),
        ([1, 2], [None]),
        (None, [None]),
    ],
)  # fmt: skip
def test_each_source_names_its_records(event: Any, keys: list[str | None]) -> None:
    assert [record.key for record in records_of(event)] == keys


def test_an_object_that_is_written_again_is_another_event() -> None:
    again = created("in", "a+b/%C3%BC.json", versionId="v2", eTag="e", sequencer="56")
    first, second = (records_of(batch(one))[0] for one in (PUT, again))
    assert first.key != second.key
    assert (first.bucket, first.object_key) == ("in", "a b/ü.json")


def test_an_object_with_the_longest_key_has_a_key_of_its_own() -> None:
    """S3 takes a kilobyte, which an event spells three times as long; a key of a write has a kilobyte too."""
    long = "%E3%81%82" * 341
    keys = [
        records_of(batch(created("in", long + end, versionId="v1")))[0].key or "" for end in ("a", "b", "a")
    ]
    assert keys[0] == keys[2] != keys[1]
    assert all(len(key.encode()) <= 1024 for key in keys)
    assert keys[0].startswith("s3://in/%E3%81%82")
    assert KEY_BYTES_MAX == KEY_LENGTH_MAX


LOOKALIKES = {
    "a notification without an id": {"Type": "Notification", "TopicArn": "arn"},
    "a record of S3 without an object": {"Records": [{"eventSource": "aws:s3", "s3": {"bucket": {"name": "b"}}}]},
    "a record of S3 beside another thing": {"Records": [PUT, 5]},
    "an object that is a text": {"Records": [{"eventSource": "aws:s3", "s3": {"bucket": "b", "object": "o"}}]},
}  # fmt: skip


@pytest.mark.parametrize("body", LOOKALIKES.values(), ids=LOOKALIKES.keys())
def test_a_message_that_only_looks_like_another_sources_is_one_message(body: Any) -> None:
    """It used to fail all messages of the batch, again at each delivery."""
    found = records_of(batch(message("m-1", "x"), message("m-2", body), message("m-3", "y")))
    assert [record.key for record in found] == ["m-1", "m-2", "m-3"]
    assert found[1].body == body
    inside = records_of(batch(message("m-1", "x"), message("m-2", notification("n-2", json.dumps(body)))))
    assert [record.key for record in inside] == ["m-1", "n-2"]


def test_a_message_that_is_nested_too_deeply_is_a_text() -> None:
    deep = "[" * 100_000
    event = batch(message("m-1", "x"), {**message("m-2", "x"), "body": deep})
    assert [record.key for record in records_of(event)] == ["m-1", "m-2"]
    assert records_of(event)[1].body == deep


def test_the_records_of_one_message_know_that_they_came_together() -> None:
    found = records_of(batch(message("m-1", batch(PUT, PUT)), message("m-2", "x")))
    assert [record.delivery for record in found] == [0, 0, 1]


@pytest.mark.parametrize(
    ("event", "group"),
    [
        (batch(message("m", "x", group="g")), "g"),
        (batch(message("m", batch(PUT), group="g")), "g"),
        (batch(message("m", "x")), None),
        (batch(datum(7, 1)), "shardId-000000000000"),
        (batch(PUT), None),
    ],
)
def test_only_queues_with_an_order_have_groups(event: Any, group: str | None) -> None:
    assert records_of(event)[0].group == group


@pytest.mark.parametrize(
    ("event", "body"),
    [
        (batch(message("m", {"id": 1})), {"id": 1}),
        (batch(message("m", "no JSON")), "no JSON"),
        (batch(message("m", notification("n", '{"id": 2}'))), {"id": 2}),
        (batch(datum(7, [1])), [1]),
        (batch(published("n", "[3]")), [3]),
        (bus("b", {"id": 4}), {"id": 4}),
        (batch(change("c", 1, {"id": {"N": "5"}})), {"SequenceNumber": "1", "NewImage": {"id": {"N": "5"}}}),
        ({"id": 6}, {"id": 6}),
    ],
)
def test_the_body_is_what_the_sender_sent(event: Any, body: Any) -> None:
    assert records_of(event)[0].body == body


def test_what_only_looks_like_an_event_of_a_source_is_refused() -> None:
    with pytest.raises(
        sw.InvalidInputError, match=r"looks like one of sqs and is none.* Nothing was written"
    ):
        records_of({"Records": [{"eventSource": "aws:sqs"}]})
