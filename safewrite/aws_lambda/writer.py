"""Writes all records of one Lambda invocation in one commit, and answers which of them failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import safewrite as sw
from safewrite.aws_lambda.events import Record, Source, records_of, source_of
from safewrite.aws_lambda.other_events import described

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

log = logging.getLogger("safewrite")

BATCHES: Mapping[Source, str] = {"sqs": "SQS", "kinesis": "KinesisDataStreams", "dynamodb": "DynamoDBStreams"}
"""Sources that take an answer for each record, by the names that powertools gives them."""
ANSWER_S = 1.0
"""How much of an invocation's time is left for its answer."""


@dataclass(eq=False)
class _Item:
    """A record, its rows, and what became of them."""

    record: Record
    group: Hashable = None
    key: str = ""
    data: Any = None
    receipt: sw.Receipt | None = None
    fault: Exception | None = None


@dataclass(frozen=True)
class BatchWriter:
    """A handler that appends the rows of every record of an event in one commit, each record once.

    ::

        orders = sw.open("s3://lake/orders", lock_table="delta_log")      # outside the handler
        lambda_handler = BatchWriter(orders, rows=lambda record: [record.body])

    Args:
        table: an open table; make it outside the handler, so that a warm function keeps it.
        rows: makes the data of one :class:`Record`, as ``append`` takes it; None for a record without rows.
            What it raises fails that record alone.
        key: names the write of a record, where the source's own id does not do: a direct invocation has none,
            and a message that is put back from a dead-letter queue gets a new one.
        schema_mode, properties, volatile: as for ``append_many``.
        keep_order: whether records that come after one at fault are left out.  None is True for the groups of a FIFO
            queue, where they wait and come again, and False for streams and Kafka: Lambda gives a batch up as a whole
            after the last retry, and records that were left out would go with it untried.

    A message succeeds if all its records do.  What is in doubt counts as failed: the key decides at the next
    delivery.  If all failed, it raises, so that the function's error alarm rings.  SQS, Kinesis and DynamoDB
    get ``batchItemFailures`` (the event source mapping needs ``ReportBatchItemFailures``); for all other sources
    any failure raises, for Lambda repeats the whole event, of which what was written is known by its keys.
    """

    table: sw.Table
    rows: Callable[[Record], Any]
    key: Callable[[Record], str] | None = None
    schema_mode: Literal["merge"] | None = None
    properties: Mapping[str, str] | None = None
    volatile: Sequence[str] | None = None
    keep_order: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.table, sw.Table):
            raise sw.InvalidInputError(
                f"table= is an open table, not {type(self.table).__name__}. Nothing was written. Open it outside the handler: "
                'BatchWriter(safewrite.open("s3://lake/orders"), ...).'
            )
        if not (self.keep_order is None or isinstance(self.keep_order, bool)):
            raise sw.InvalidInputError(
                f"keep_order= is True, False or None, not {self.keep_order!r:.80}. Nothing was written."
            )
        for name, call in (("rows", self.rows), ("key", self.key or self.rows)):
            if not callable(call):
                raise sw.InvalidInputError(
                    f"{name}= is a function of a record, not {type(call).__name__}. Nothing was written."
                )
        if find_spec("aws_lambda_powertools") is None:
            raise sw.MissingExtraError(
                "BatchWriter answers by aws-lambda-powertools, which is not installed. Nothing was written. Install it: "
                f"{sw.MissingExtraError.command('lambda')}."
            )

    def __call__(self, event: Any, context: Any = None) -> dict[str, Any]:
        """Write an event's records.

        Returns:
            ``{"batchItemFailures": [...]}`` for SQS, Kinesis and DynamoDB, else ``{"receipts": [...]}``.

        Raises:
            BatchProcessingError: of powertools; every message of the batch failed.
            SafewriteError: a record of a source without partial answers failed, or an event without an id has no
                ``key=``.
        """
        source = source_of(event)
        in_order = source == "sqs" if self.keep_order is None else self.keep_order
        items = [_Item(record, record.group if in_order else None) for record in records_of(event)]
        for item in items:
            self._read(item)
        self._hold_back(items)
        self._write([item for item in items if item.fault is None and item.data is not None], context)
        for item in items:
            _tell(item)
        if source in BATCHES:
            return dict(_answer(source, event["Records"], items))
        for item in items:
            if item.fault is not None:
                raise item.fault
        return {"receipts": [item.receipt.to_dict() for item in items if item.receipt is not None]}

    def _read(self, item: _Item) -> None:
        """Take the key and the rows of a record; what goes wrong is its own fault."""
        try:
            item.key = self.key(item.record) if self.key is not None else _own_key(item.record)
            item.data = self.rows(item.record)
        except Exception as error:  # noqa: BLE001 - not swallowed: the record's answer
            item.fault = error

    @staticmethod
    def _hold_back(items: Sequence[_Item]) -> None:
        """Leave out what comes after an unreadable record in its group; ``append_many`` does so for rows at fault."""
        stopped: set[Hashable] = set()
        for item in items:
            group = item.group
            if group is None:
                continue
            if item.fault is not None:
                stopped.add(group)
            elif group in stopped:
                item.fault = sw.NotCommittedError(
                    f"It comes after a record of the group {group!r} that cannot be read. Nothing of it was written. It is "
                    "delivered again.",
                    kind=sw.Kind.HELD_BACK,
                )

    def _write(self, items: Sequence[_Item], context: Any) -> None:
        if not items:
            return
        answers: Sequence[sw.Receipt | sw.SafewriteError]
        try:
            answers = self.table.append_many(
                [(item.key, item.data) for item in items],
                groups=[item.group for item in items],
                schema_mode=self.schema_mode,
                properties=self.properties,
                volatile=self.volatile,
                timeout_s=_time_left_s(context),
            )
        except (
            sw.SafewriteError
        ) as error:  # it concerns all: landed or not, their keys decide at the next delivery
            answers = [error] * len(items)
        for item, answer in zip(items, answers, strict=True):
            if isinstance(answer, sw.Receipt):
                item.receipt = answer
            else:
                item.fault = answer


def _own_key(record: Record) -> str:
    if record.key is not None:
        return record.key
    if record.source == "direct":
        what, advice = described(record.raw)
        raise sw.InvalidInputError(
            f"This is {what}: it has no id that stays the same when it is sent again. Nothing was written. {advice}"
        )
    raise sw.InvalidInputError(
        f"The id of this record of {record.source} is no text: two such records would have one name, and the second would be taken "
        "for a repeat. Nothing of it was written. Give BatchWriter key=, a function that finds another id in record.raw."
    )


def _time_left_s(context: Any) -> float | None:
    """What is left of the invocation's time, without that of its answer; None where nothing limits it.

    It is asked again in each invocation: an environment that was frozen in between trusts no time read before.
    """
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return None if remaining is None else max(remaining() / 1000 - ANSWER_S, 0.001)


def _tell(item: _Item) -> None:
    if item.fault is not None:
        kind = item.fault.kind.value if isinstance(item.fault, sw.SafewriteError) else "unreadable"
        log.warning("record %s failed: %s: %s", item.key or item.record.key, kind, item.fault)


# --- the answer -----------------------------------------------------------------------------------------
def _answer(
    source: Source, raw: Sequence[Mapping[str, Any]], items: Sequence[_Item]
) -> PartialItemFailureResponse:
    """What powertools makes of the messages that failed.

    Raises:
        BatchProcessingError: all of them did.
    """
    faults: dict[int, Exception] = {}
    for item in items:
        if item.fault is not None:
            faults.setdefault(item.record.delivery, item.fault)
    if not faults:
        return {"batchItemFailures": []}
    # Imported only now: it costs a cold start more than all else here.
    from aws_lambda_powertools.utilities.batch import BasePartialBatchProcessor, EventType

    class Report(BasePartialBatchProcessor):
        """Tells powertools' processor what became of each message."""

        def process(self) -> list[tuple[Any, ...]]:
            kind = self.event_type
            told: list[tuple[Any, ...]] = []
            for at, record in enumerate(self.records):
                known, fault = self._to_batch_type(record, event_type=kind), faults.get(at)
                if fault is None:
                    told.append(self.success_handler(known, None))
                else:
                    told.append(self.failure_handler(known, (type(fault), fault, fault.__traceback__)))
            return told

        def _process_record(self, record: Any) -> Any:
            raise NotImplementedError

        async def _async_process_record(self, record: Any) -> Any:
            raise NotImplementedError

    report = Report(EventType[BATCHES[source]])
    with report(records=[dict(one) for one in raw], handler=len):
        report.process()
    return report.response()
