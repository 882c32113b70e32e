"""The key of a record is the id that its source keeps through every redelivery."""

from __future__ import annotations

import json
from typing import Any

import pytest

import safewrite as sw
from safewrite.aws_lambda import records_of
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
