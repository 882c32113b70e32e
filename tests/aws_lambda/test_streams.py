"""A stream gives a batch up after its last retry: no good record goes with a bad one, and none is written twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safewrite as sw
from bench.servers.aws_lambda.stream import Shard
from safewrite.aws_lambda import BatchWriter, Record
from tests.aws_lambda.samples import batch, change, datum, kafka, kafka_record, message
from tests.sampling import no_more_than

GOOD, POISON, OTHER_TYPE, KILLER, LATER = "good", "poison", "other type", "killer", "later"
"""What a record is: written; unreadable; of a type that the table lacks; it ends the function; it fails at first."""
KINDS = st.sampled_from([GOOD] * 6 + [POISON, OTHER_TYPE, KILLER, LATER])


class Stream:
    """A shard of records of these kinds, a handler for it, and the table that it writes."""

    def __init__(self, folder: str | Path, kinds: list[str], source: str) -> None:
        self.kinds = kinds
        self.tries: Counter[int] = Counter()
        table = sw.open(Path(folder) / "t", create=True, timeout_s=30)
        table.append([{"id": -1}])
        self.uri = table.uri
        self.writer = BatchWriter(table, self._rows)
        self.records = [
            datum(number, number) if source == "kinesis" else change(f"c-{number}", number, {"id": number})
            for number in range(len(kinds))
        ]
        self.name = (
            (lambda record: str(record["kinesis"]["sequenceNumber"]))
            if source == "kinesis"
            else (lambda record: str(record["dynamodb"]["SequenceNumber"]))
        )

    def _rows(self, record: Record) -> Any:
        body = record.body
        number: int = body if isinstance(body, int) else body["NewImage"]["id"]
        self.tries[number] += 1
        match self.kinds[number]:
            case "poison":
                raise TypeError("a poison message")
            case "later" if self.tries[number] == 1:
                raise OSError("not yet")
            case "other type":
                return [{"id": "x"}]
            case _:
                return [{"id": number}]

    def handler(self, event: dict[str, Any]) -> Any:
        numbers = [int(self.name(record)) for record in event["Records"]]
        if any(self.kinds[number] == KILLER for number in numbers):
            raise MemoryError("the function was killed")
        return self.writer(event)

    def written(self) -> list[int]:
        """The numbers in the table, as another reader sees them."""
        found = deltalake.DeltaTable(self.uri).to_pyarrow_table()["id"].to_pylist()
        return sorted(number for number in found if number >= 0)


def judge(kinds: list[str], shard: Shard, source: str) -> None:
    """Deliver the records; what is good is in the table once, or was given up with one that ends the function."""
    with TemporaryDirectory() as folder:
        stream = Stream(folder, kinds, source)
        given_up = {int(stream.name(one)) for one in shard.feed(stream.handler, stream.records, stream.name)}
        written = stream.written()
    good = [number for number, kind in enumerate(kinds) if kind in (GOOD, LATER)]
    assert len(set(written)) == len(written), "a record was written twice"
    assert set(written) <= set(good)
    lost = set(good) - set(written)
    if shard.bisect or KILLER not in kinds:
        assert not lost, "good records were given up with bad ones"
    assert lost <= given_up, "a record is neither in the table nor told"
    assert {number for number, kind in enumerate(kinds) if kind in (POISON, OTHER_TYPE, KILLER)} <= given_up


shards = st.builds(
    Shard,
    batch_size=st.integers(2, 12),
    retries=st.integers(1, 3),
    bisect=st.booleans(),
    renewed=st.booleans(),
)


@settings(max_examples=10, deadline=None)
@given(st.lists(KINDS, min_size=6, max_size=12), shards, st.sampled_from(["kinesis", "dynamodb"]))
def test_t3_d2_no_good_record_is_given_up_with_a_bad_one(kinds: list[str], shard: Shard, source: str) -> None:
    """T3-D2: records behind a poison one were held back until Lambda discarded their batch: 36 and 18 rows."""
    judge(kinds, shard, source)


@pytest.mark.long
@no_more_than(150)
@given(st.lists(KINDS, min_size=1, max_size=25), shards, st.sampled_from(["kinesis", "dynamodb"]))
def test_t3_d2_no_good_record_is_given_up_with_a_bad_one_many_times(
    kinds: list[str], shard: Shard, source: str
) -> None:
    judge(kinds, shard, source)


@pytest.mark.sweep("kinesis")
@pytest.mark.parametrize("source", ["kinesis", "dynamodb"])
def test_t3_d2_what_comes_after_a_poison_record_is_written_before_the_batch_is_given_up(
    tmp_path: Path, source: str
) -> None:
    kinds = [GOOD] * 10
    kinds[3] = POISON
    stream = Stream(tmp_path, kinds, source)
    Shard(retries=3).feed(stream.handler, stream.records, stream.name)
    assert stream.written() == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_only_with_bisection_a_record_that_ends_the_function_goes_alone(tmp_path: Path) -> None:
    """It is why doctor asks for BisectBatchOnFunctionError: without an answer Lambda knows no record to begin from."""
    left = {}
    for bisect in (False, True):
        stream = Stream(tmp_path / str(bisect), [GOOD, GOOD, KILLER, GOOD], "kinesis")
        given_up = Shard(bisect=bisect).feed(stream.handler, stream.records, stream.name)
        left[bisect] = (stream.written(), len(given_up))
    assert left == {False: ([], 4), True: ([0, 1, 3], 1)}


def test_keep_order_is_there_for_those_who_ask(tmp_path: Path) -> None:
    table = sw.open(tmp_path, create=True)
    table.append([{"id": 0}])
    event = batch(datum(1, [1]), datum(2, ["x"]), datum(3, [3]))

    def rows(record: Record) -> Any:
        return [{"id": number} for number in record.body]

    def failed(**settings: Any) -> list[str]:
        answer = BatchWriter(table, rows, **settings)(event)
        return [item["itemIdentifier"] for item in answer["batchItemFailures"]]

    assert failed(keep_order=True) == ["2", "3"]
    assert failed() == ["2"]
    grouped = batch(message("a", ["x"], group="g"), message("b", [4], group="g"), message("c", [5]))
    assert BatchWriter(table, rows)(grouped)["batchItemFailures"] == [
        {"itemIdentifier": "a"},
        {"itemIdentifier": "b"},
    ]


# --- Kafka --------------------------------------------------------------------------------------------
def test_t3_d6_records_of_kafka_are_written_once_each(tmp_path: Path) -> None:
    """T3-D6: an event of MSK was a direct invocation without an id."""
    table = sw.open(tmp_path, create=True)
    handler = BatchWriter(table, lambda record: None if record.body is None else [{"id": record.body}])
    first = [
        kafka_record("orders", partition, offset, 10 * partition + offset)
        for partition in (0, 1)
        for offset in range(3)
    ]
    for managed in (True, False):
        event = kafka(*first, kafka_record("orders", 0, 3, None), managed=managed)
        outcomes = [[one["outcome"] for one in handler(event)["receipts"]] for _ in range(2)]
        assert outcomes == [["committed"] * 6, ["already_committed"] * 6]
    assert sorted(deltalake.DeltaTable(table.uri).to_pyarrow_table()["id"].to_pylist()) == sorted(
        2 * [0, 1, 2, 10, 11, 12]
    )


def test_t3_d6_an_event_of_kafka_with_a_poison_record_raises_and_keeps_the_others(tmp_path: Path) -> None:
    """Its mapping takes a list of failures only in one mode; where it does not, such a list counts as success."""
    table = sw.open(tmp_path, create=True)
    table.append([{"id": 0}])
    handler = BatchWriter(table, lambda record: [{"id": record.body}])
    event = kafka(*(kafka_record("t", 0, offset, "x" if offset == 1 else offset) for offset in range(1, 4)))
    for _ in range(2):
        with pytest.raises(sw.WouldAlterError):
            handler(event)
    assert sorted(deltalake.DeltaTable(table.uri).to_pyarrow_table()["id"].to_pylist()) == [0, 2, 3]


def test_t3_d6_a_topic_that_was_made_again_has_other_keys(tmp_path: Path) -> None:
    table = sw.open(tmp_path, create=True)
    handler = BatchWriter(table, lambda record: [{"n": 1}])
    events = [
        kafka(kafka_record("t", 0, 0, 1)),
        kafka(kafka_record("t", 0, 0, 1, timestamp=1_700_000_000_000)),
        kafka(kafka_record("t", 0, 0, 1)) | {"eventSourceArn": "arn:aws:kafka:eu-west-1:1:cluster/other/1"},
        kafka(kafka_record("t", 1, 0, 1)),
        kafka(kafka_record("u", 0, 0, 1)),
    ]
    assert [handler(event)["receipts"][0]["outcome"] for event in events] == ["committed"] * 5
    assert deltalake.DeltaTable(table.uri).to_pyarrow_table().num_rows == 5


# --- events that BatchWriter does not take apart ------------------------------------------------------
OTHERS: dict[str, tuple[Any, str]] = {
    "ActiveMQ": ({"eventSource": "aws:mq", "messages": [{"messageID": "ID:1", "data": "e30="}]}, "append_many"),
    "RabbitMQ": ({"eventSource": "aws:rmq", "rmqMessagesByQueue": {"q::/": [{"data": "e30="}]}}, "append_many"),
    "Firehose": ({"invocationId": "i", "deliveryStreamArn": "a", "records": [{"recordId": "1", "data": ""}]}, "return the records"),
    "EventBridge Pipes": ([message("m", "x")], '{"Records": event}'),
    "Pipes, of records of aws:kinesis": ([{"eventSource": "aws:kinesis", "data": ""}], "append_many"),
    "DocumentDB": ({"eventSource": "aws:docdb", "events": [{"event": {}}]}, "append_many"),
    "CloudWatch Logs": ({"awslogs": {"data": ""}}, "append_many"),
    "API Gateway": ({"requestContext": {}, "body": "{}"}, "key="),
    "aws:ses": ({"Records": [{"eventSource": "aws:ses", "ses": {}}]}, "append_many"),
    "Kafka without its records": ({"eventSource": "aws:kafka", "records": None}, "append_many"),
    "direct invocation": ({"order": 1}, "key="),
    "direct invocation ": (None, "key="),
    "a direct invocation": ("text", "key="),
    "is a direct invocation": ([], "key="),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_t3_d6_an_event_of_another_service_is_named_and_the_way_out_told(tmp_path: Path, name: str) -> None:
    """T3-D6: all of these were "a direct invocation"."""
    event, advice = OTHERS[name]
    table = sw.open(tmp_path, create=True)
    with pytest.raises(sw.InvalidInputError) as refused:
        BatchWriter(table, lambda record: [{"n": 1}])(event)
    text = str(refused.value)
    assert name.strip() in text
    assert "Nothing was written" in text
    assert advice in text
    keyed = BatchWriter(table, lambda record: [{"n": 1}], key=lambda record: "mine")
    assert keyed(event)["receipts"][0]["outcome"] == "committed"
