"""Listens to the query of a job on Spark: how far it is behind its topics, what a batch took, of what it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    JStreamingQueryListener,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from safewrite.cdc.ledger.reporting import tell_stream
from safewrite.engine.spark import raised_in
from safewrite.intake.reporting import Listener


class QueryListener(StreamingQueryListener):
    """Tells of the queries of one name; Spark calls it in a thread of its own, for which the query does not wait.

    ``ended`` is called when none of them runs any more.

    Rows by table are not told here but where the ledger is written, so that none of them is missing when the driver ends.
    """

    def __init__(
        self,
        job: str,
        query: str,
        session: SparkSession,
        on_event: Listener | None,
        ended: Callable[[], None],
    ) -> None:
        self._job, self._query, self._session, self._on_event = job, query, session, on_event
        self._ended = ended
        self._runs: set[str] = set()
        self._in_java: Any = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note the run, for the events of its end have no name."""
        if event.name == self._query:
            self._runs.add(str(event.runId))

    @property
    def _jlistener(self) -> Any:
        """What Spark calls in Java.  PySpark's own reads each field of a progress by a round trip or some twenty."""
        if self._in_java is None:
            jvm: Any = self._session.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to it
            self._in_java = jvm.PythonStreamingQueryListenerWrapper(_AsJson(self))
        return self._in_java

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch has ended."""
        self.progressed(json.loads(event.progress.json))

    def progressed(self, found: Mapping[str, Any]) -> None:
        """A batch has ended: its progress, as Spark writes it in JSON."""
        if found["runId"] not in self._runs:
            return
        behind = [lag_of(source["endOffset"], source["latestOffset"]) for source in found["sources"]]
        # Spark 3.5 has no batchDuration in it.
        took_ms = found.get("batchDuration") or found.get("durationMs", {}).get("triggerExecution", 0)
        numbers: dict[str, Any] = {"batch": found["batchId"], "batch_s": took_ms / 1000}
        if None not in behind:
            numbers["lag_records"] = sum(one or 0 for one in behind)
        lag = numbers.get("lag_records", "an unknown number of")
        text = f"batch {numbers['batch']} took {numbers['batch_s']:.2f} s, {lag} records are behind it"
        tell_stream(self._job, text, numbers, self._on_event)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """A trigger found nothing new."""
        if str(event.runId) in self._runs:
            tell_stream(self._job, "nothing new in its topics", {"lag_records": 0}, self._on_event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """The query was stopped, is done, or failed."""
        if str(event.runId) not in self._runs:
            return
        self._runs.discard(str(event.runId))
        if event.exception is not None:
            text = f"ended by an error: {raised_in(str(event.exception))}"
            tell_stream(self._job, text, {"failed": 1}, self._on_event)
        if not self._runs:
            self._session.streams.removeListener(self)
            self._ended()


class _AsJson(JStreamingQueryListener):
    """Takes a progress as one text of JSON."""

    def __init__(self, listener: QueryListener) -> None:
        super().__init__(listener)
        self._listener = listener

    def onQueryProgress(self, jevent: Any) -> None:  # noqa: N802 - Spark's name
        self._listener.progressed(json.loads(jevent.progress().json()))


def lag_of(end: Any, latest: Any) -> int | None:
    """Records between two of Spark's offsets of Kafka; None where they cannot be told."""
    try:
        return sum(
            max(0, int(at) - int(_of(end, topic).get(number, at)))
            for topic, partitions in latest.items()
            for number, at in partitions.items()
        )
    except (ValueError, TypeError, AttributeError):
        return None


def _of(offsets: Mapping[str, Any], topic: str) -> Mapping[str, Any]:
    found = offsets.get(topic, {})
    return found if isinstance(found, dict) else {}
