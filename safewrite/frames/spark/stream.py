"""Reads the offsets that a stream's batch was made of, as Spark noted them before it began.

A batch that is computed again may have other values (``uuid()``, ``rand()``, the time), so its rows cannot
always show that it is the same batch.  The checkpoint can: since before the first attempt, it holds which
piece of each source the batch is.  Those offsets name a batch only where they determine its rows, and only as
long as the checkpoint lives: decision 0016.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from safewrite.engine.spark import is_connect
from safewrite.errors import NotCommittedError, ReplayMismatchError
from safewrite.frames.spark import kafka
from safewrite.frames.spark.batch import BatchOrigin
from safewrite.protocol.keys import OFFSETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")
log = logging.getLogger("safewrite")

_QUERY_ID, _BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"

_TRUSTED: Mapping[str, frozenset[str]] = {
    "org.apache.spark.sql.delta.sources.DeltaSource": frozenset(
        ("reservoirId", "reservoirVersion", "index")  # the table's id, a version, a file in it
    ),
    "org.apache.iceberg.spark.source.SparkMicroBatchStream": frozenset(
        ("snapshot_id", "position")  # a snapshot's id is drawn at random, so no other table has it
    ),
    kafka.SOURCE: frozenset(),  # by topic and partition; the cluster tells what they do not
}
"""Sources whose offsets determine rows, and the fields that their offsets need for that.

Not so: files (their offset is a number in the checkpoint's own list), sockets, rates, memory, and what is unknown.
"""


@dataclass(frozen=True)
class StreamBatch:
    """One batch of a stream: ``query_id`` is its checkpoint's, ``run_id`` that of the query as it runs now."""

    query_id: str
    run_id: str
    epoch: int
    origin: BatchOrigin


def batch_of(frame: DataFrame, epoch: int) -> StreamBatch | None:
    """The stream's batch that this thread works on, if it has this number and its offsets tell its rows.

    None in any doubt: outside ``foreachBatch``, for a frame of another session than the batch's or of Spark Connect,
    for a source that is not known to be safe.  Then the rows name the batch.
    """
    if is_connect(frame.sparkSession):
        return None
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    context = frame.sparkSession.sparkContext
    query_id = context.getLocalProperty(_QUERY_ID)
    if query_id is None or context.getLocalProperty(_BATCH_ID) != str(epoch):
        return None
    try:
        query = _active(frame).get(context._jvm.java.util.UUID.fromString(query_id))  # type: ignore[union-attr]  # noqa: SLF001
        # A thread inherits the properties of another: the frame must belong to the query as well.
        if query is None or not query.lastExecution().sparkSession().equals(_java_session(frame)):
            return None
        pieces = _pieces(query, epoch)
        run_id = str(query.runId().toString())
    except Py4JError as error:
        log.info("the stream's offsets cannot be read, its batches are known by their rows: %s", error)
        return None
    if pieces is None:
        return None
    said = json.dumps([query_id, pieces], sort_keys=True, separators=(",", ":"))
    origin = BatchOrigin(OFFSETS, hashlib.blake2b(said.encode(), digest_size=16).hexdigest())
    return StreamBatch(query_id, run_id, epoch, origin)


def _pieces(query: Any, epoch: int) -> list[Any] | None:
    """Kind, start and end of each source's share of the batch; None if they do not tell its rows."""
    sources = _listed(query.sources())
    kinds = [str(one.getClass().getName()) for one in sources]
    if not all(kind in _TRUSTED for kind in kinds):
        return None
    ends = _offsets(query, epoch, kinds)
    starts = _offsets(query, epoch - 1, kinds) if epoch else [None] * len(kinds)
    if starts is None or ends is None:
        return None
    pieces = [
        kafka.piece(source, start, end) if kind == kafka.SOURCE else [kind, start, end]
        for source, kind, start, end in zip(sources, kinds, starts, ends, strict=True)
    ]
    return None if None in pieces else pieces


def _offsets(query: Any, epoch: int, kinds: list[str]) -> list[dict[str, Any] | None] | None:
    """The checkpoint's offsets of a batch, for each source; None for a source that had nothing yet."""
    noted = query.offsetLog().get(epoch)
    if not noted.isDefined():
        return None
    offsets = _listed(noted.get().offsets())
    found = [json.loads(offset.get().json()) if offset.isDefined() else None for offset in offsets]
    if len(found) != len(kinds):
        return None
    told = all(one is None or _TRUSTED[kind] <= one.keys() for kind, one in zip(kinds, found, strict=True))
    return found if told else None


def _listed(sequence: Any) -> list[Any]:
    """A sequence of Scala's."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _java_session(frame: DataFrame) -> Any:
    return frame._jdf.sparkSession()  # noqa: SLF001 - as PySpark itself


def _active(frame: DataFrame) -> Any:
    """The queries that run in this Java process, by their ids."""
    return _java_session(frame).sharedState().activeStreamingQueries()


def written(
    frame: DataFrame,
    txn: object,
    table_id: str,
    write: Callable[[BatchOrigin | None], T],
    *,
    seems_there: bool,
) -> T:
    """Write a frame named ``txn`` by its origin, where it has one, else by its rows (None).

    A batch that seems to be in the table may have been named by its rows then.

    Raises:
        ReplayMismatchError: as ``write``, and as :func:`only_frame`.
    """
    match txn:
        case (str(app_id), int(epoch)) if (batch := batch_of(frame, epoch)) is not None:
            with only_frame(frame, batch, table_id, app_id):
                try:
                    done = write(batch.origin)
                    if seems_there:
                        _must_be_unchanged(frame, batch)
                    return done
                except ReplayMismatchError as error:
                    if not seems_there:
                        raise
                    try:
                        return write(None)
                    except ReplayMismatchError:
                        raise error from None
    return write(None)


def _must_be_unchanged(frame: DataFrame, batch: StreamBatch) -> None:
    """The source must not have changed while the rows were counted."""
    if batch_of(frame, batch.epoch) != batch:
        raise ReplayMismatchError(
            f"The source of batch {batch.epoch} was made anew while its rows were counted, or does not say what it is. "
            "The earlier rows stand, nothing of this call was written. Run the stream again: the batch is looked at "
            "once more."
        )


# --- one frame for each batch and app id ----------------------------------------------------------------
@dataclass
class _Slot:
    """The last frame for a table, an app id and a query, and its run and batch."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    given: tuple[str, int, DataFrame] | None = None

    def frame_of(self, batch: StreamBatch) -> DataFrame | None:
        """The frame of the batch that this run gave before."""
        if self.given is None or self.given[:2] != (batch.run_id, batch.epoch):
            return None
        return self.given[2]


_slots: dict[tuple[str, str, str], _Slot] = {}
_guard = threading.Lock()


@contextmanager
def only_frame(frame: DataFrame, batch: StreamBatch, table_id: str, app_id: str) -> Iterator[None]:
    """Allow one frame of a batch under an app id, and the same again, but no other (E3).

    The offsets of two halves are the same.  Spark runs a batch once in each run of its query and notes it as
    done when all calls have returned, so a writer of both halves comes here twice.

    Raises:
        ReplayMismatchError: this run gave another frame of the batch before.
    """
    slot = _slot(frame, (table_id, app_id, batch.query_id))
    with slot.turn:
        before = slot.frame_of(batch)
        if before is not None and not before.sameSemantics(frame):
            raise ReplayMismatchError(
                f"Batch {batch.epoch} was given to app id {app_id!r} twice, with two different frames; an app id has "
                "one frame for each batch. Nothing of this call was written. Write both in one call (union), or give "
                "each an app id of its own."
            )
        slot.given = (batch.run_id, batch.epoch, frame if before is None else before)
        try:
            yield
        except NotCommittedError:
            if before is None:
                slot.given = None
            raise


def _slot(frame: DataFrame, name: tuple[str, str, str]) -> _Slot:
    """The slot of that name; those of queries that have ended are forgotten when another begins."""
    with _guard:
        if name not in _slots:
            running = {str(query_id.toString()) for query_id in _active(frame).keySet()}
            for ended in [one for one in _slots if one[2] not in running]:
                del _slots[ended]
            _slots[name] = _Slot()
        return _slots[name]
