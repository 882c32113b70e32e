"""Counts the rows of a Spark DataFrame, and fingerprints them whatever their order.

A plan that is run again may give other rows (``rand()``, a source that changed), so what is counted must
be what is written (E5).  There are two ways.  ``computed`` keeps the rows with their lineage cut: where an
executor takes some of them with it, the write fails and is repeated, and nothing is computed again unnoticed.
``observed`` counts them on their way into files, in the one pass that writes these.

The hash is Spark's own, so a fingerprint cannot be compared with that of a pandas or Arrow frame, and says
so by its name.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safewrite.engine.spark import kept
from safewrite.errors import SafewriteError
from safewrite.frames.fingerprint import Fingerprint
from safewrite.frames.spark.hashes import row_hash
from safewrite.text.rendering import said

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession

KIND = "spark1"
ANSWER_S = 60.0
"""How long to wait for Spark's listeners to tell what was observed; then the rows are counted again."""
_LAST_ATTEMPTS = "spark.sql.legacy.observeMetricsAggregateAllAttempts"
_LOW_BITS = 0xFFFFFFFF
_COUNT, _HIGH, _LOW = _METRICS = ("count", "high", "low")

log = logging.getLogger("safewrite")


@dataclass(frozen=True)
class Check:
    """A condition, in Spark's SQL, that no row may satisfy; ``refusal`` gets how many of how many do."""

    condition: str
    refusal: Callable[[int, int], SafewriteError]


@dataclass(frozen=True)
class BatchOrigin:
    """The origin that names a batch instead of a hash of its rows."""

    kind: str
    digest: str

    def fingerprint(self, rows: int) -> Fingerprint:
        """The fingerprint of a batch with this many rows."""
        return Fingerprint(rows, self.digest, self.kind)


@dataclass(frozen=True)
class SparkBatch:
    """Rows that are computed and checked."""

    frame: DataFrame
    rows: int
    fingerprint: Fingerprint
    volatile: tuple[str, ...] = ()
    """Columns that the fingerprint leaves out; one of a batch's origin leaves out none."""
    column_digests: str = ""


# --- computed, then written -------------------------------------------------------------------------
@contextmanager
def computed(
    frame: DataFrame,
    checks: Sequence[Check] = (),
    origin: BatchOrigin | None = None,
    volatile: tuple[str, ...] = (),
) -> Iterator[SparkBatch]:
    """Compute ``frame`` once and keep it until the end of the block; with an ``origin``, its rows are not hashed.

    Raises:
        InvalidInputError: a column has a type whose values cannot be compared.
        SafewriteError: the refusal of a check.
    """
    with kept(frame) as rows:
        yield _counted(rows, checks, origin, volatile)


def _counted(
    frame: DataFrame, checks: Sequence[Check], origin: BatchOrigin | None, volatile: tuple[str, ...]
) -> SparkBatch:
    """One pass over the rows."""
    import pyspark.sql.functions as f

    bad = [f.count_if(f.expr(check.condition)) for check in checks]
    metrics = _metrics(frame, origin, volatile)
    found = frame.agg(*metrics, *bad).collect()[0]
    rows = int(found[0])
    for check, count in zip(checks, found[len(metrics) :], strict=True):
        if count:
            raise check.refusal(count, rows)
    if origin is not None:
        return SparkBatch(frame, rows, origin.fingerprint(rows))
    fingerprint = _fingerprint(dict(zip(_METRICS, found, strict=False)), volatile)
    return SparkBatch(frame, rows, fingerprint, volatile)


# --- counted while they are written -----------------------------------------------------------------
@dataclass(frozen=True)
class Observed:
    """A frame whose rows are counted and hashed by the action that computes it, which must be its only one."""

    frame: DataFrame
    _observation: Observation
    volatile: tuple[str, ...] = ()

    def fingerprint(self, rows: int) -> Fingerprint | None:
        """The fingerprint of the rows that the action wrote, by its own count ``rows``; None if it cannot be told.

        Every row that was written had been counted, for Spark adds up what every finished task has seen.
        So where the two numbers are equal, these rows were hashed; where a stage was run again below a
        shuffle, more were counted than written.  Do not call it after an action that failed: Spark may never
        answer.
        """
        if rows == 0:  # Spark may have optimized their count away
            return _fingerprint({}, self.volatile)
        found = self._answer()
        if not found or found[_COUNT] != rows:
            log.warning(
                "%d rows were written, and %s counted on the way: they are counted again",
                rows,
                found.get(_COUNT, "none") if found else "none",
            )
            return None
        return _fingerprint(found, self.volatile)

    def _answer(self) -> dict[str, Any] | None:
        """What Spark's listener got; it is on its way when the action returns, and lost where events are dropped."""
        answers: list[dict[str, Any]] = []

        def ask() -> None:
            try:
                answers.append(self._observation.get)
            except Exception as error:  # noqa: BLE001 - whatever it was, the rows can be counted again
                log.warning("Spark does not tell what it observed: %s", said(error))

        # The wait in Java has no limit of its own.
        asking = threading.Thread(target=ask, name="safewrite-observation", daemon=True)
        asking.start()
        asking.join(ANSWER_S)
        return answers[0] if answers else None


def observed(frame: DataFrame, volatile: tuple[str, ...] = ()) -> Observed:
    """Count and hash the rows of a frame in the pass that writes them.

    Raises:
        InvalidInputError: a column has a type whose values cannot be compared.
    """
    from pyspark.sql import Observation

    observation = Observation()
    return Observed(frame.observe(observation, *_metrics(frame, None, volatile)), observation, volatile)


def counts_every_attempt(session: SparkSession) -> bool:
    """Whether Spark observes all that finished tasks have seen, as ``Observed.fingerprint`` needs.

    Spark after 4.1 leaves out what a stage saw before it was run again, unless this setting says otherwise.
    """
    setting = session._jsparkSession.conf().getOption(_LAST_ATTEMPTS)  # noqa: SLF001 - get() raises where it is unknown
    return bool(setting.isEmpty()) or str(setting.get()).lower() == "true"


# --- count and sums -----------------------------------------------------------------------------------
def _metrics(frame: DataFrame, origin: BatchOrigin | None, volatile: tuple[str, ...]) -> list[Column]:
    """Number of rows, and the sums of both halves of their hashes: 32 bits, so exact for two billion rows."""
    import pyspark.sql.functions as f

    metrics = {_COUNT: "count(1)"}
    if origin is None:
        row = row_hash(frame.schema, volatile)
        metrics |= {_HIGH: f"sum(shiftrightunsigned({row}, 32))", _LOW: f"sum({row} & {_LOW_BITS}L)"}
    return [f.expr(metric).alias(name) for name, metric in metrics.items()]


def _fingerprint(found: Mapping[str, Any], volatile: tuple[str, ...]) -> Fingerprint:
    rows, high, low = (int(found.get(name) or 0) for name in _METRICS)
    return fingerprint_of(rows, high, low, volatile)


def fingerprint_of(rows: int, high: int, low: int, volatile: tuple[str, ...]) -> Fingerprint:
    """The fingerprint of ``rows`` rows from the sums of the high and the low halves of their hashes."""
    return Fingerprint(rows, f"{high:016x}{low:016x}", KIND).leaving_out(volatile)
