"""One invocation is one commit; the answer names exactly the messages that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError

import safewrite as sw
from safewrite.aws_lambda import BatchWriter, Record
from safewrite.protocol.effects import Effect, Outcome
from tests.aws_lambda.samples import batch, bus, change, created, datum, message
from tests.iceberg import v3_tables as v3

PUT = created("in", "a", eTag="e", sequencer="1")


class Context:
    """What Lambda tells of an invocation."""

    def __init__(self, remaining_ms: int = 60_000) -> None:
        self.remaining_ms = remaining_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_ms


class Lake:
    """A table, and its rows as another reader sees them."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder / "t")
        self.table = sw.open(self.uri, create=True)
        self.table.append([{"id": 0}])

    def ids(self) -> list[int]:
        return sorted(deltalake.DeltaTable(self.uri).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def rows(record: Record) -> Any:
    """The rows of a body that is a list of ids."""
    if not isinstance(record.body, list):
        raise TypeError("a poison message")
    return [{"id": number} for number in record.body]


def failed(*names: str) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": name} for name in names]}


# --- SQS ----------------------------------------------------------------------------------------------
def test_a_batch_is_one_commit_and_a_redelivery_in_other_batches_is_none(lake: Lake) -> None:
    handler = BatchWriter(lake.table, rows)
    assert handler(batch(message("a", [1]), message("b", [2, 3])), Context()) == failed()
    assert lake.table.version == 1
    assert handler(batch(message("b", [2, 3]), message("c", [4])), Context()) == failed()
    assert handler(batch(message("a", [1])), Context()) == failed()
    assert lake.ids() == [0, 1, 2, 3, 4]
    assert lake.table.version == 2


def test_rows_of_a_batch_get_their_ids_in_a_table_of_iceberg_s_version_3(tmp_path: Path) -> None:
    """Once each: a redelivery takes none."""
    schema = pa.schema({"id": pa.int64()})
    table = sw.create(v3.NAME, schema, catalog=v3.lake(tmp_path), format_version=3)
    handler = BatchWriter(table, rows)
    assert handler(batch(message("a", [1]), message("b", [2, 3])), Context()) == failed()
    assert handler(batch(message("b", [2, 3]), message("c", [4])), Context()) == failed()
    assert {number: row for number, (row, _) in v3.lineage(table).items()} == {1: 0, 2: 1, 3: 2, 4: 3}


def test_poison_messages_fail_alone(lake: Lake) -> None:
    event = batch(message("a", [1]), message("b", "poison"), message("c", ["x"]), message("d", [2]))
    assert BatchWriter(lake.table, rows)(event, None) == failed("b", "c")
    assert lake.ids() == [0, 1, 2]


def test_a_message_succeeds_only_if_all_its_records_do(lake: Lake) -> None:
    names = {"a": 1, "b": "x", "c": 3}

    def one(record: Record) -> Any:
        return [{"id": names[record.object_key]}]

    puts = {name: created("in", name, eTag="e", sequencer=name) for name in names}
    event = batch(message("m-1", batch(puts["a"], puts["b"])), message("m-2", batch(puts["c"])))
    assert BatchWriter(lake.table, one)(event) == failed("m-1")
    assert lake.ids() == [0, 1, 3]
    names["b"] = 2
    assert BatchWriter(lake.table, one)(batch(message("m-1", batch(puts["a"], puts["b"])))) == failed()
    assert lake.ids() == [0, 1, 2, 3]


def test_if_all_fail_it_raises(lake: Lake) -> None:
    with pytest.raises(BatchProcessingError, match="All records failed"):
        BatchWriter(lake.table, rows)(batch(message("a", "poison"), message("b", ["x"])))


def test_what_is_in_doubt_counts_as_failed_and_the_next_delivery_decides(lake: Lake) -> None:
    world = lake.table.world

    class Cut:
        def __getattr__(self, name: str) -> Any:
            return getattr(world, name)

        def perform(self, effect: Effect) -> Outcome:
            outcome = world.perform(effect)
            if effect.name == "commit.put_commit":
                raise OSError("cut")
            return outcome

    lake.table.world = Cut()
    event = batch(message("a", [1]), message("b", "poison"))
    with pytest.raises(BatchProcessingError):
        BatchWriter(lake.table, rows)(event)
    lake.table.world = world
    assert BatchWriter(lake.table, rows)(event) == failed("b")
    assert lake.ids() == [0, 1]


def test_a_message_without_rows_succeeds(lake: Lake) -> None:
    event = batch(message("a", [1]), message("b", [2]))
    skip_b = BatchWriter(lake.table, lambda record: None if record.key == "b" else rows(record))
    assert skip_b(event) == failed()
    assert lake.ids() == [0, 1]
    assert skip_b(batch(message("m", {"Event": "s3:TestEvent"}))) == failed()


def test_a_load_time_that_each_delivery_makes_anew_is_no_other_content(lake: Lake) -> None:
    times = iter(range(1, 9))

    def stamped(record: Record) -> Any:
        return [{**row, "loaded": next(times)} for row in rows(record)]

    given: dict[str, Any] = {"schema_mode": "merge"}
    event = batch(message("a", [1]), message("b", [2]))
    assert BatchWriter(lake.table, stamped, volatile=["loaded"], **given)(event) == failed()
    assert BatchWriter(lake.table, stamped, volatile=["loaded"], **given)(event) == failed()
    assert lake.ids() == [0, 1, 2]
    with pytest.raises(BatchProcessingError, match="volatile"):
        BatchWriter(lake.table, stamped, **given)(event)


# --- order --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("poison", ["poison", ["x"]])
def test_a_fifo_group_stops_at_its_first_failure_and_others_go_on(lake: Lake, poison: Any) -> None:
    event = batch(
        message("a1", [1], group="a"),
        message("b1", [11], group="b"),
        message("a2", poison, group="a"),
        message("a3", [3], group="a"),
        message("b2", [12], group="b"),
    )
    assert BatchWriter(lake.table, rows)(event) == failed("a2", "a3")
    assert lake.ids() == [0, 1, 11, 12]
    assert BatchWriter(lake.table, rows, keep_order=False)(event) == failed("a2")
    assert lake.ids() == [0, 1, 3, 11, 12]


def test_a_shard_is_read_again_from_its_first_failure(lake: Lake) -> None:
    event = batch(datum(1, [1]), datum(2, ["x"]), datum(3, [3]))
    assert BatchWriter(lake.table, rows, keep_order=True)(event) == failed("2", "3")
    assert BatchWriter(lake.table, rows)(batch(datum(2, [2]), datum(3, [3]))) == failed()
    assert lake.ids() == [0, 1, 2, 3]


def test_changes_of_dynamodb_are_named_by_their_sequence_numbers(lake: Lake) -> None:
    def image(record: Record) -> Any:
        return [{"id": int(record.body["NewImage"]["id"]["N"])}]

    event = batch(change("c1", 7, {"id": {"N": "1"}}), change("c2", 8, {}))
    assert BatchWriter(lake.table, image)(event) == failed("8")
    assert lake.ids() == [0, 1]


# --- sources without partial answers ------------------------------------------------------------------
def test_a_source_that_takes_no_answer_is_answered_by_receipts_or_an_error(lake: Lake) -> None:
    handler = BatchWriter(lake.table, lambda record: [{"id": record.body["n"]}])
    for outcome in ("committed", "already_committed"):
        answer = handler(bus("b-1", {"n": 1}))
        assert [receipt["outcome"] for receipt in answer["receipts"]] == [outcome]
    with pytest.raises(sw.WouldAlterError):
        handler(bus("b-2", {"n": "x"}))
    good = BatchWriter(lake.table, lambda record: [{"id": 5 if record.object_key == "a" else "x"}])
    with pytest.raises(sw.WouldAlterError):
        good(batch(PUT, created("in", "b", eTag="e")))
    assert lake.ids() == [0, 1, 5]


def test_a_direct_invocation_needs_a_key_of_the_events_own(lake: Lake) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"no id that stays the same.* Give BatchWriter key="):
        BatchWriter(lake.table, lambda record: record.raw["rows"])({"rows": [{"id": 1}]})
    handler = BatchWriter(lake.table, lambda record: record.raw["rows"], key=lambda record: record.raw["id"])
    event = {"id": "call-1", "rows": [{"id": 1}]}
    assert [handler(event)["receipts"][0]["outcome"] for _ in range(2)] == ["committed", "already_committed"]
    with pytest.raises(KeyError):
        handler({"rows": [{"id": 2}]})
    assert lake.ids() == [0, 1]


# --- time ---------------------------------------------------------------------------------------------
def test_no_commit_is_begun_when_the_invocation_is_about_to_end(lake: Lake) -> None:
    handler = BatchWriter(lake.table, rows)
    with pytest.raises(BatchProcessingError, match="Nothing was committed"):
        handler(batch(message("a", [1])), Context(remaining_ms=900))
    assert lake.ids() == [0]
    assert handler(batch(message("a", [1])), Context()) == failed()


@pytest.mark.parametrize("given", [{"rows": 5}, {"rows": rows, "key": "id"}])
def test_what_is_no_function_is_refused(lake: Lake, given: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="is a function of a record"):
        BatchWriter(lake.table, **given)


@pytest.mark.parametrize(
    "table", ["s3://lake/orders", Path("/lake"), None, 5, sw.Table, {"uri": "t"}], ids=str
)
def test_t3_d9_a_table_that_is_none_is_refused_when_the_writer_is_made(table: Any) -> None:
    """T3-D9: an address was a raw AttributeError at the first event."""
    with pytest.raises(sw.InvalidInputError, match=r"table= is an open table.*safewrite\.open"):
        BatchWriter(table, rows)


@pytest.mark.parametrize("value", ["yes", 1, "", [True]])
def test_a_wrong_keep_order_is_refused(lake: Lake, value: Any) -> None:
    with pytest.raises(sw.InvalidInputError, match="keep_order= is True, False or None"):
        BatchWriter(lake.table, rows, keep_order=value)


@pytest.mark.parametrize("key", [None, "", 5, b"k", ["k"], " ", "x" * 1025, "\ud800"], ids=ascii)
def test_a_key_that_names_nothing_fails_its_message_alone(
    lake: Lake, key: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The key of ``key=`` is the user's own: two messages of one such key are never one write."""
    handler = BatchWriter(lake.table, rows, key=lambda record: key if record.key == "a" else str(record.key))
    event = batch(message("a", [1]), message("b", [2]))
    assert handler(event) == failed("a")
    assert lake.ids() == [0, 2]
    assert "failed: invalid_input" in caplog.text
    assert caplog.text.encode()  # half a surrogate pair is no text that a handler can write
