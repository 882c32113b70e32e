"""Appends with Spark through safewrite and without it, and shows where our time goes."""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import safewrite as sw
from safewrite.delta.spark.session import hook_of
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Effect, Outcome
from safewrite.stores.world import Performer

from .harness import Harness

RATIO_MAX = 1.05
CATALOG = "lake"
"""The session's name for the Iceberg catalog."""
Feed: TypeAlias = Callable[[Callable[[Any, int], None], int], None]
"""Gives this many frames, with their numbers, to a consumer."""
_NAMESPACE = "bench"
_SCHEMES = {"safewrite": "s3a", "delta": "plain"}
"""One bucket under two schemes: the log store goes by the scheme."""


class Clocked:
    """Performs effects on an inner world, and adds up how long each step took."""

    def __init__(self, world: Performer) -> None:
        self.world = world
        self.took_s: dict[str, float] = defaultdict(float)

    def perform(self, effect: Effect) -> Outcome:
        """Perform one effect."""
        started_s = time.perf_counter()
        try:
            return self.world.perform(effect)
        finally:
            self.took_s[effect.name or type(effect).__name__] += time.perf_counter() - started_s


@dataclass(frozen=True)
class Pair:
    """Two arms, ours first, each given a frame and its number.

    ``clocked`` has timed the steps of ours, and ``inside_s`` all that Python did for it.
    """

    name: str
    arms: Mapping[str, Callable[[Any, int], object]]
    count: Callable[[], dict[str, int]]
    clocked: Clocked
    inside_s: list[float]

    def parts(self) -> dict[str, float]:
        """Seconds of one of our appends, on average, by step; the rest is Python's own work, or Spark's."""
        appends = len(self.inside_s)
        steps = {name: took_s / appends for name, took_s in self.clocked.took_s.items()}
        within_s = sum(self.inside_s) / appends
        return {"all": within_s, "no step": within_s - sum(steps.values()), **steps}

    def forget(self) -> None:
        """Begin again: so far it was a warm-up."""
        self.inside_s.clear()
        self.clocked.took_s.clear()


def delta(session: Any, lab: Harness, frame: Any) -> Pair:
    """Plain Delta appends, by safewrite's log store and by Delta's for a single driver.

    ``S3SingleDriverLogStore`` asks no arbiter, so it is the least that a commit can cost.
    """
    uris = {arm: lab.place(arm).uri.replace("s3://", f"{scheme}://") for arm, scheme in _SCHEMES.items()}
    commits, inside_s = hook_of(session).commits, list[float]()
    arms = {
        arm: lambda rows, _, uri=uri: rows.write.format("delta").mode("append").save(uri)
        for arm, uri in uris.items()
    }
    frame.limit(0).write.format("delta").save(uris["safewrite"])  # so that there is a table to look at
    table = commits.table(uris["safewrite"])
    table.world = clocked = Clocked(table.world)
    commits.commit = _timed(commits.commit, inside_s)  # type: ignore[method-assign]
    return Pair(
        "plain Delta appends",
        arms,
        lambda: {arm: session.read.format("delta").load(uri).count() for arm, uri in uris.items()},
        clocked,
        inside_s,
    )


def iceberg(session: Any, catalog: Mapping[str, str], frame: Any, name: str) -> Pair:
    """Batches of a sink, and plain appends, to tables in one REST catalog."""
    names = {arm: f"{_NAMESPACE}.{arm}_{uuid.uuid4().hex[:8]}" for arm in ("sink", "append")}
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{_NAMESPACE}")
    for table_name in names.values():
        frame.limit(0).writeTo(f"{CATALOG}.{table_name}").using("iceberg").create()
    table = sw.open(names["sink"], catalog={"name": CATALOG, **catalog})
    assert isinstance(table, IcebergTable)
    table.world = clocked = Clocked(table.world)
    inside_s = list[float]()
    sink = dataclasses.replace(
        table.sink("append", app_id="bench"), reopen=lambda: table
    )  # this one is clocked
    arms: dict[str, Callable[[Any, int], object]] = {
        "sink": _timed(sink, inside_s),
        "append": lambda rows, _: rows.writeTo(f"{CATALOG}.{names['append']}").append(),
    }

    def count() -> dict[str, int]:
        return {arm: session.table(f"{CATALOG}.{name}").count() for arm, name in names.items()}

    return Pair(name, arms, count, clocked, inside_s)


# --- where the frames come from ------------------------------------------------------------------------
def kept(frame: Any) -> Feed:
    """One frame, in memory, again and again."""

    def feed(take: Callable[[Any, int], None], batches: int) -> None:
        for number in range(batches):
            take(frame, number)

    return feed


def streamed(session: Any, lab: Harness, frame: Any, folder: Path) -> Feed:
    """A stream over a Delta table that has the frame in each of its files: its offsets tell its batches."""
    uri = lab.place("source").uri.replace("s3://", "plain://")

    def feed(take: Callable[[Any, int], None], batches: int) -> None:
        for _ in range(batches):
            frame.coalesce(1).write.format("delta").mode("append").save(uri)
        stream = session.readStream.option("maxFilesPerTrigger", 1).format("delta").load(uri)
        writer = stream.writeStream.foreachBatch(take).option(
            "checkpointLocation", str(folder / "checkpoint")
        )
        writer.trigger(availableNow=True).start().awaitTermination()

    return feed


def _timed(act: Callable[..., Any], took_s: list[float]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        started_s = time.perf_counter()
        try:
            return act(*arguments)
        finally:
            took_s.append(time.perf_counter() - started_s)

    return timed
