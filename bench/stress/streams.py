"""Spark streams as writers of an arm: how many, and where each life of their drivers ends."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from .plan import SPARK_KILLS_SOAK, ArmPlan, Settings, WriterPlan

EPOCH_STEP = "stream.record_epoch"
"""After the batch is committed to the table and its receipt logged, before Spark notes it in its checkpoint."""
NEXT_STEP = "stream.next_step"
"""Before or after an effect of a commit at which no life has ended yet, so that all are met in the end."""
ANY_STEP, ANY_WHEN = "stream.any_moment", "during"
"""Killed from outside, whatever driver and JVM are doing."""
ENDS = (EPOCH_STEP, NEXT_STEP, ANY_STEP, NEXT_STEP)
"""In turn: a commit has so many steps that every second life ends at one."""
APPENDS_MIN = 3
_BATCHES_MAX = 2
_PLACES_MAX = 12
_DELAY_MAX_S = 8.0
_FIRST_NUMBER = 90
_LIFE_S = 15.0
"""About how long a life takes: most of it is the start of Spark."""


def join(arm: ArmPlan, settings: Settings, base: int) -> ArmPlan:
    """The arm with the run's Spark streams among its writers, if safewrite is judged there."""
    if arm.arbiter is None or not settings.spark:
        return arm
    others = tuple(_slowed(writer, settings) if writer.judged else writer for writer in arm.writers)
    streams = tuple(_stream(arm, settings, base + _FIRST_NUMBER + index) for index in range(settings.spark))
    return replace(arm, writers=others + streams)


def _slowed(writer: WriterPlan, settings: Settings) -> WriterPlan:
    """The writer, thinking between its appends so that it is there for most of the lives of a stream."""
    think_s = _LIFE_S * (settings.spark_kills + 1) / writer.appends
    return replace(writer, habits=tuple({**dict(writer.habits), "think_s": think_s}.items()))


def _stream(arm: ArmPlan, settings: Settings, number: int) -> WriterPlan:
    habits: dict[str, Any] = {"lease_s": settings.lease_s}
    if arm.catalog is not None:
        habits["schema_mode"] = "merge"
    # A batch of Spark takes seconds where an append takes a fraction of one: a long run is cut short.
    appends = min(max(APPENDS_MIN, settings.appends), 5 * SPARK_KILLS_SOAK)
    return WriterPlan(
        number, "Spark stream, txn", "spark_stream.py", judged=True, stream=True, appends=appends,
        rows=settings.rows, habits=tuple(habits.items()), traps=_ends(settings, number),
    )  # fmt: skip


def _ends(settings: Settings, number: int) -> tuple[dict[str, Any], ...]:
    """The end of each life but the last.

    A life ends at its step after some ``batches``; at the next step, after some ``places``; at any
    moment, ``delay_s`` after its start.  As of all traps, those without a ``seq`` may come elsewhere.
    """
    rng = random.Random(f"{settings.seed}/{number}/ends")
    return tuple(
        {
            "seq": None if (step := ENDS[life % len(ENDS)]) == NEXT_STEP else life,
            "step": step, "when": ANY_WHEN if step == ANY_STEP else "before", "action": "kill",
            "batches": rng.randrange(_BATCHES_MAX), "places": rng.randrange(_PLACES_MAX),
            "delay_s": rng.uniform(0, _DELAY_MAX_S),
        }
        for life in range(settings.spark_kills)
    )  # fmt: skip
