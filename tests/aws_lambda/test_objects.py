"""Which objects S3 tells of, whatever its event came through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from safewrite.aws_lambda import objects_of
from tests.aws_lambda.samples import batch, bus, created, message, notification, published

PUT = created("in", "a+b/%C3%BC.csv", eTag="e", sequencer="1")
OTHER = created("in", "k.csv", eTag="f", sequencer="2")
DETAIL = {"bucket": {"name": "in"}, "object": {"key": "a b/\u00fc.csv"}}
BUS = bus("b-1", DETAIL) | {"detail-type": "Object Created", "source": "aws.s3"}
A, K = "s3://in/a b/\u00fc.csv", "s3://in/k.csv"


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (batch(PUT, OTHER), (A, K)),
        (batch(message("m-1", batch(PUT)), message("m-2", batch(OTHER, PUT))), (A, K, A)),
        (batch(message("m-1", notification("n-1", json.dumps(batch(PUT))))), (A,)),
        (batch(published("n-1", json.dumps(batch(OTHER)))), (K,)),
        (BUS, (A,)),
        (batch(message("m-1", BUS)), (A,)),
        (json.dumps(batch(PUT)), (A,)),
        (json.dumps(notification("n-1", json.dumps(batch(PUT)))), (A,)),
        (batch(PUT | {"eventName": "ObjectRemoved:Delete"}), ()),
        (bus("b-1", DETAIL), ()),
        (batch(message("m-1", {"Event": "s3:TestEvent"}), message("m-2", "text")), ()),
        ("no JSON", ()),
        ({"order": 1}, ()),
    ],
)
def test_objects_of_an_event_or_a_message_are_found(event: Any, found: tuple[str, ...]) -> None:
    assert objects_of(event) == found
