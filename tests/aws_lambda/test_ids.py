"""Every envelope with every id that names nothing: what is acknowledged is in the table once, whoever sent the ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import deltalake
import pytest
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

import safewrite as sw
from safewrite.aws_lambda import BatchWriter, records_of
from safewrite.aws_lambda.events import KEY_BYTES_MAX
from tests.aws_lambda.samples import (
    batch,
    bus,
    change,
    created,
    datum,
    kafka,
    kafka_record,
    message,
    notification,
    published,
)
from tests.each import each

ODD_IDS: tuple[Any, ...] = (None, "", " ", 0, 7, True, 1.5, [], ["x"], {}, {"id": "x"}, "\ud800")
"""Ids that name nothing; in JSON each of them may stand where an id belongs."""


def s3(number: Any) -> dict[str, Any]:
    return batch(created("in", "k", versionId=number, sequencer=number, eTag=number))


# Of an id (odd, so the same for all) and the number of a message: the event of that message.
Envelope = Callable[[Any, int], Any]
IN_A_QUEUE: dict[str, Envelope] = {
    "SNS in SQS": lambda odd, n: batch(message(f"m-{n}", notification(odd, "[]"))),
    "EventBridge in SQS": lambda odd, n: batch(message(f"m-{n}", bus(odd, {}))),
    "S3 in SQS": lambda odd, n: batch(message(f"m-{n}", s3(odd))),
    "S3 in SNS in SQS": lambda odd, n: batch(message(f"m-{n}", notification(odd, json.dumps(s3(odd))))),
    "EventBridge in SNS in SQS": lambda odd, n: batch(message(f"m-{n}", notification(odd, json.dumps(bus(odd, {}))))),
    "S3 in SNS": lambda odd, n: batch(published(f"n-{n}", json.dumps(s3(odd)))),
    "EventBridge in SNS": lambda odd, n: batch(published(f"n-{n}", json.dumps(bus(odd, {})))),
    "a group of SQS FIFO": lambda odd, n: batch(message(f"m-{n}", "x") | {"attributes": {"MessageGroupId": odd}}),
}  # fmt: skip
BY_ITSELF: dict[str, Envelope] = {
    "SQS": lambda odd, n: batch(message(odd, str(n))),
    "SNS": lambda odd, n: batch(published(odd, str(n))),
    "EventBridge": bus,
    "S3": lambda odd, n: s3(odd),
    "Kinesis": lambda odd, n: batch(datum(n, "x") | {"eventID": odd}),
    "a stream of Kinesis": lambda odd, n: batch(datum(7, "x") | {"eventSourceARN": odd}),
    "DynamoDB": lambda odd, n: batch(change(odd, n, {})),
    "a topic of Kafka": lambda odd, n: kafka(kafka_record("t", 0, n, 1) | {"topic": odd}),
    "an offset of Kafka": lambda odd, n: kafka(kafka_record("t", 0, 7, 1) | {"offset": _no_number(odd)}),
}  # fmt: skip


def _no_number(odd: Any) -> Any:
    """Numbers are what offsets are."""
    return None if odd in (0, 7) and not isinstance(odd, bool) else odd


def answered(handler: BatchWriter, event: Any) -> bool:
    """Whether an event was acknowledged; a refusal in safewrite's words is none."""
    try:
        answer = handler(event)
    except (sw.SafewriteError, BatchProcessingError):
        return False
    return not answer.get("batchItemFailures")


def lost(folder: Path, envelope: Envelope, odd: Any) -> tuple[int, int]:
    """Deliver three messages that hold the same, one of them twice: how many were acknowledged, and rows in the table."""
    table = sw.open(folder, create=True)
    handler = BatchWriter(table, lambda record: [{"n": 1}])
    acked = {n for n in (1, 2, 1, 3) if answered(handler, envelope(odd, n))}
    rows = deltalake.DeltaTable(table.uri).to_pyarrow_table().num_rows if table.version is not None else 0
    return len(acked), rows


@pytest.mark.sweep(
    "S3 in SQS",
    "EventBridge in SNS",
    "SNS in SQS",
    "S3 in SNS",
    "EventBridge in SQS",
    "a group of SQS FIFO",
    "EventBridge in SNS in SQS",
)
@pytest.mark.parametrize("name", IN_A_QUEUE)
def test_t3_d1_a_message_with_an_odd_id_inside_goes_by_its_own(tmp_path: Path, name: str) -> None:
    """T3-D1: five messages were acknowledged, and one row stood under the key "None"."""
    odd_ids = ODD_IDS if name == "EventBridge in SQS" else ODD_IDS[::3] + ODD_IDS[1:2]
    for at, odd in enumerate(odd_ids):
        assert lost(tmp_path / str(at), IN_A_QUEUE[name], odd) == (3, 3), odd


@each(("name", "odd"), [*product(BY_ITSELF, ODD_IDS)], ids=ascii)
def test_t3_d1_an_event_whose_own_id_names_nothing_is_refused(name: str, odd: Any) -> None:
    """T3-D1: two events would have had one key, "None" or "[]"; nothing else in them tells them apart."""
    try:
        keys = [record.key for record in records_of(BY_ITSELF[name](odd, 1))]
    except sw.InvalidInputError as error:
        keys = ["refused" if "looks like one of" in str(error) else str(error)]
    assert keys in ([None], ["refused"])


@pytest.mark.parametrize("name", ["SNS", "EventBridge", "S3"])
def test_t3_d1_the_refusal_says_that_key_names_the_record_instead(tmp_path: Path, name: str) -> None:
    table = sw.open(tmp_path, create=True)
    event = BY_ITSELF[name](None, 1)
    with pytest.raises(sw.InvalidInputError, match=r"is no text.* Give BatchWriter key="):
        BatchWriter(table, lambda record: [{"n": 1}])(event)
    named = BatchWriter(table, lambda record: [{"n": 1}], key=lambda record: "mine")
    assert [one["outcome"] for _ in range(2) for one in named(event)["receipts"]] == [
        "committed", "already_committed"
    ]  # fmt: skip


def test_two_records_of_one_message_that_name_nothing_have_two_keys() -> None:
    two = batch(*(created("in", "k", versionId=None) for _ in range(2)))
    keys = [record.key for record in records_of(batch(message("m-1", two), message("m-2", two)))]
    assert keys == ["m-1#0", "m-1#1", "m-2#0", "m-2#1"]


def test_an_id_longer_than_a_key_may_be_is_a_digest_of_its_own() -> None:
    long = "x" * KEY_BYTES_MAX
    keys = [
        record.key or ""
        for end in "aba"
        for record in records_of(batch(message("m", bus(long + end, {}))))
    ]  # fmt: skip
    assert keys[0] == keys[2] != keys[1]
    assert all(len(key.encode()) <= KEY_BYTES_MAX for key in keys)
