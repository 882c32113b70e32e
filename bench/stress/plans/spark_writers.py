"""Plans Spark's streams and plain appends in an arm: how many, and where each driver's lives end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from safewrite.testing.history import EventKind

from .plan import CALLER_STEP, SPARK_KILLS_SOAK, ArmPlan, Settings, WriterPlan

PAST_COMMIT = "past the commit"
"""After the table's commit: before Spark notes the batch in its checkpoint, or before the caller has the answer."""
AT_COMMIT = "at the commit"
"""Before or after the one effect that makes the rows visible."""
ANY_MOMENT = "at any moment"
"""From outside, whatever driver and JVM are doing."""
NEXT_STEP = "at the next step"
"""Before or after an effect at which no life has ended yet, so that all are met in the end."""
ENDS = (PAST_COMMIT, AT_COMMIT, ANY_MOMENT, NEXT_STEP, NEXT_STEP, NEXT_STEP)
"""In turn: a commit has so many steps that every second life ends at the next one."""
EPOCH_STEP = "stream.record_epoch"
"""After the batch is committed to the table and its receipt logged, before Spark notes it in its checkpoint."""
APPENDS_MIN = 3
COMMITS = {"delta": "commit.put_commit", "iceberg": "swap.commit"}
_BATCHES_MAX = 2
_PLACES_MAX = 12
_DELAY_MAX_S = 8.0
_FIRST_STREAM, _FIRST_PLAIN, _PEER = 90, 95, 89
LIFE_S = 15.0
"""About how long a life takes: most of it is the start of Spark."""


def join(arm: ArmPlan, settings: Settings, base: int) -> ArmPlan:
    """The arm with the run's Spark writers among its own, if safewrite is judged there.

    Each gets a stream; a Delta table also gets a driver that appends as Spark's users do, by ``df.write``.
    Iceberg has no log store to replace, so its plain appends never come to safewrite.
    """
    if arm.arbiter == "dynamodb" and settings.log_store:
        peer = _peer(settings, base + _PEER)
        arm = replace(arm, writers=(*_slowed(arm.writers, settings, lives_s=LIFE_S), peer))
    if arm.arbiter is None or not settings.spark:
        return arm
    numbers = range(settings.spark)
    found = [_stream(arm, settings, base + _FIRST_STREAM + number) for number in numbers]
    if arm.catalog is None:
        found += [_plain(settings, base + _FIRST_PLAIN + number) for number in numbers]
    others = _slowed(arm.writers, settings, lives_s=LIFE_S * len(found))
    return replace(arm, writers=(*others, *found))


def _slowed(writers: tuple[WriterPlan, ...], settings: Settings, *, lives_s: float) -> tuple[WriterPlan, ...]:
    return tuple(slowed(one, settings, lives_s=lives_s) if one.judged else one for one in writers)


def slowed(writer: WriterPlan, settings: Settings, *, lives_s: float) -> WriterPlan:
    """The writer, thinking between its appends so that it is there for most of the lives of the drivers."""
    think_s = lives_s * (settings.spark_kills + 1) / writer.appends
    return replace(writer, habits=tuple({**dict(writer.habits), "think_s": think_s}.items()))


def _stream(arm: ArmPlan, settings: Settings, number: int) -> WriterPlan:
    habits: dict[str, Any] = {"lease_s": settings.lease_s}
    if arm.catalog is not None:
        habits["schema_mode"] = "merge"
    commit = COMMITS["delta" if arm.catalog is None else "iceberg"]
    return WriterPlan(
        number, "Spark stream, txn", "spark_stream.py", judged=True, spark=True, appends=_appends(settings),
        rows=settings.rows, habits=tuple(habits.items()), traps=ends(settings, number, EPOCH_STEP, commit),
    )  # fmt: skip


def _plain(settings: Settings, number: int) -> WriterPlan:
    """A writer without a key: nobody knows, and nobody repeats, what was under way when its driver was killed."""
    habits: dict[str, Any] = {
        "on_error": "retry", "on_restart": "give up", "calls_max": 12, "lease_s": settings.lease_s,
    }  # fmt: skip
    return WriterPlan(
        number, "Spark df.write, no key", "spark_plain.py", judged=True, spark=True, appends=_appends(settings),
        rows=settings.rows, habits=tuple(habits.items()),
        traps=ends(settings, number, CALLER_STEP, COMMITS["delta"]),
    )  # fmt: skip


def _peer(settings: Settings, number: int) -> WriterPlan:
    """A driver whose commits go by Delta's own log store for DynamoDB, past safewrite."""
    habits = (("log_store", settings.log_store),)
    return WriterPlan(
        number, "Spark df.write, S3DynamoDBLogStore (peer)", "spark_plain.py", spark=True, appends=_appends(settings),
        rows=50, habits=habits,
    )  # fmt: skip


def _appends(settings: Settings) -> int:
    """A batch of Spark takes seconds where an append takes a fraction of one: a long run is cut short."""
    return min(max(APPENDS_MIN, settings.appends), 5 * SPARK_KILLS_SOAK)


def ends(settings: Settings, number: int, past: str, commit: str) -> tuple[dict[str, Any], ...]:
    """The end of each life but the last; ``past`` and ``commit`` are steps of this writer.

    A life ends at its step after some ``batches``; at the next step, after some ``places``; at any
    moment, ``delay_s`` after its start.
    """
    rng = random.Random(f"{settings.seed}/{number}/ends")
    places: dict[str, dict[str, Any]] = {
        PAST_COMMIT: {"step": past, "when": "before"},
        AT_COMMIT: {"step": commit},
        ANY_MOMENT: {"step": "any", "when": "during"},
        NEXT_STEP: {"step": "any", "when": "before or after"},
    }
    return tuple(
        {
            "action": "kill", "end": (end := ENDS[life % len(ENDS)]), "when": rng.choice(("before", "after")),
            "batches": rng.randrange(_BATCHES_MAX), "places": rng.randrange(_PLACES_MAX),
            "delay_s": rng.uniform(0, _DELAY_MAX_S), **places[end],
        }
        for life in range(settings.spark_kills)
    )  # fmt: skip


# --- what came ------------------------------------------------------------------------------------
def is_end(arm: ArmPlan, mark: Mapping[str, Any]) -> bool:
    """Whether an event is the end of a life of a Spark driver."""
    if mark.get("event") != EventKind.KILL:
        return False  # a fault of a proxy is no event of a writer
    return any(writer.spark and writer.number == mark["writer"] for writer in arm.writers)


def planned(arm: ArmPlan) -> dict[str, Counter[str]]:
    """How many lives are to end where, by the kind of writer."""
    found: dict[str, Counter[str]] = {}
    for writer in arm.writers:
        if writer.spark:
            found.setdefault(writer.kind, Counter()).update(end["end"] for end in writer.traps)
    return found


def came(arm: ArmPlan, marks: Iterable[Mapping[str, Any]]) -> dict[str, Counter[tuple[str, str, str]]]:
    """How many lives have ended where: (planned end, step, before or after), by the kind of writer."""
    found: dict[str, Counter[tuple[str, str, str]]] = {kind: Counter() for kind in planned(arm)}
    for mark in marks:
        if is_end(arm, mark):
            found[mark["kind"]][mark["end"], mark["step"], mark["when"]] += 1
    return found


def missing(arm: ArmPlan, marks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The planned ends that did not come, in words; a life that went on proves nothing."""
    ended = came(arm, marks)
    said = []
    for kind, wanted in planned(arm).items():
        here: Counter[str] = Counter()
        for (end, _, _), count in ended[kind].items():
            here[end] += count
        said += [
            f"{kind}: only {here[end]} of {count} planned kills {end} came"
            for end, count in wanted.items()
            if here[end] < count
        ]
    return said
