"""``python -m bench.perf.group_sim`` counts what writers that share commits cost, up to 10,000 of them, on a virtual clock.

Each writer runs the protocol's own code over stores in memory; a request takes the time of a request and no CPU.  So the figures are
those of the protocol, not of a machine: round trips, requests, dollars.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Annotated, Any

import typer

from safewrite.delta.write.abc import Write
from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.write import write as write_once
from safewrite.protocol import effects as fx
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta import claim as claims
from safewrite.protocol.delta.candidate import Anchor, Arbiter
from safewrite.protocol.effects import Effect, Ok, Outcome
from safewrite.protocol.member_queue import FOLDER
from safewrite.protocol.members import Found, hashed
from safewrite.table.format import FRESH_S
from safewrite.table.shared_queue import SharedQueue
from safewrite.table.writer import QUEUE_MEMORY
from safewrite.testing.explorer.rows import FIRST, parse
from safewrite.testing.explorer.shared_changes import SharedChange
from safewrite.testing.explorer.sharing import SharedRow

from .virtual_stores import PUT, S3_S, Clock, Stores, digest

LIMITS = Limits(timeout_s=600.0)
MARK = "the table", "its arbiter"
"""Where the table is; its queue may be used."""
FLEETS = "1,2,4,8,16,64,200,1000,10000"
DYING_S = 2.0
"""From when on writers die, if any do."""
PLAN_S = 0.02
"""The CPU of a plan of few changes."""
Program = Generator[Effect, Outcome, DeltaDone]


# --- one row ------------------------------------------------------------------------------------------
@cache
def keys_of(body: bytes) -> frozenset[str]:
    """The keys that a commit carries."""
    return frozenset(parse(body)[0].split("+"))


@dataclass(slots=True)
class Row(SharedRow):
    """A write of one row; thousands of writers read one commit, which is taken apart once for all of them."""

    def note(self, version: int, body: bytes) -> None:
        """See ``safewrite.protocol.delta.candidate.Sharer``."""
        self.known[version] = keys_of(body)  # type: ignore[assignment]

    def is_in(self, version: int, body: bytes) -> bool:
        """See ``safewrite.protocol.delta.candidate.Sharer``."""
        return self.key in keys_of(body)

    def examine(self, version: int, body: bytes) -> Found | None:
        """See ``safewrite.protocol.delta.candidate.Candidate``."""
        if self.is_in(version, body):
            return SharedRow.examine(self, version, body)
        self.note(version, body)
        self.reached = max(self.reached, version)
        return None


@dataclass(slots=True)
class ChangeRow(SharedChange):
    """A change whose plan takes time: two files are read, two are written, one step each, and a look at what was written."""

    plans_first: bool = False

    def prepare(self) -> Generator[Effect, Outcome, None]:
        """See ``ApplyTransaction``: before it waits, where it shares nothing."""
        if self.plans_first:
            yield from self._plan()

    def renew(self) -> Generator[Effect, Outcome, None]:
        """See ``safewrite.protocol.delta.candidate.Candidate``."""
        if self.stale:
            yield from self._plan()

    def _plan(self) -> Generator[Effect, Outcome, None]:
        paths = [f"{self.attempt}-{number}.parquet" for number in range(2)]
        yield fx.Together(tuple(fx.Get(path, name="plan.get_data") for path in paths), name="plan.read")
        yield fx.Sleep(PLAN_S, name="plan.cpu")
        yield fx.Together(
            tuple(fx.Put(path, b"x", name="plan.put_data") for path in paths), name="plan.write"
        )
        yield fx.Together(tuple(fx.Get(path, name="plan.check") for path in paths), name="plan.check")
        yield from SharedChange.renew(self)


# --- the race -------------------------------------------------------------------------------------------
@dataclass
class Writer:
    """One process: what it knows of the table, and the write that is under way."""

    number: int
    queue: SharedQueue
    head: int = 0
    carried: frozenset[str] | None = None
    """The keys in the commit that carried its last write, if another made it."""
    met: int = 0
    known_s: float | None = None
    writes: int = 0
    due_s: float = 0.0
    steps: Program | None = None
    left: int = 0
    answers: list[Outcome | None] = field(default_factory=list)


@dataclass(frozen=True)
class Setting:
    """How many write, how often each (0: one write after the other), until when, and how."""

    writers: int
    every_s: float = 0.0
    until_s: float = 30.0
    lock_table: bool = False
    shares: bool = True
    items: bool = False
    """Members are items of the lock table, not objects."""
    changes: bool = False
    """They apply changes of one key; else they append."""
    dying: int = 0
    """So many die at one moment: one that leads, and those that are next in the queue."""


class Race:
    """Writers on one table and one clock."""

    def __init__(self, setting: Setting, seed: int = 1) -> None:
        self.setting, self.rng, self.clock = setting, random.Random(seed), Clock()
        self.stores = Stores(self.clock, setting.lock_table, setting.items)
        self.stores.objects.put(claims.commit_path(0), FIRST)
        self.latencies: list[float] = []
        self.failed: Counter[str] = Counter()
        self.dead: set[int] = set()
        self._by_key: dict[str, int] = {}
        self._heap: list[tuple[float, int, Writer, int, Any]] = []
        self._order, self._ids = itertools.count(), itertools.count(1)

    def run(self) -> None:
        """Let all write until the time is over, and their last writes end."""
        for number in range(self.setting.writers):
            queue = SharedQueue("auto" if self.setting.shares else "never", True, MARK, self.clock)
            queue.note(True)
            self._start(Writer(number, queue), self.rng.uniform(0.0, self.setting.every_s))
        while self._heap:
            self.clock.now_s, _, writer, at, what = heapq.heappop(self._heap)
            if writer.number in self.dead or self._die(writer, what):
                continue
            if isinstance(what, Effect):
                outcome = self.stores.perform(what)
                self._later(self._trip_s(what), writer, at, outcome)
            elif at < 0:
                self._step(writer, what)
            else:
                writer.answers[at] = what
                writer.left -= 1
                if not writer.left:
                    self._step(writer, Ok(tuple(writer.answers)))

    def check(self) -> None:
        """Raise unless each write that was acked is in the log once, and nothing else is but what the dead had begun."""
        carried = Counter(
            key
            for path, body in self.stores.objects.blobs.items()
            if path.startswith(claims.LOG) and path.endswith(".json") and body != FIRST
            for key in keys_of(body)
        )
        unacked = len(carried) - len(self.latencies)
        if self.failed or set(carried.values()) != {1} or not 0 <= unacked <= len(self.dead):
            raise SystemExit(f"{len(self.latencies)} acked, {len(carried)} in the log: {self.failed}")

    # --- inside ---------------------------------------------------------------------------------
    def _die(self, writer: Writer, what: Any) -> bool:
        """Whether a writer dies now, before its commit; those behind it die too, until there are enough."""
        members = [name for name in self.stores.objects.names if name.startswith(FOLDER)]
        if self.dead or self.clock.now_s < DYING_S or len(members) < self.setting.dying:
            return False
        if not self.setting.dying or not isinstance(what, Effect) or what.name != "commit.put_commit":
            return False
        waiting = [self._by_key[key] for name in members for key in self._by_key if hashed(key) in name]
        if waiting[0] != writer.number:
            return False
        self.dead = set(waiting[: self.setting.dying])
        return True

    def _start(self, writer: Writer, at_s: float) -> None:
        self.stores.charge("PUT", PUT)  # the data file goes first
        writer.due_s, writer.writes, writer.steps = at_s, writer.writes + 1, None
        trip_s = 2 * S3_S * self.rng.uniform(0.3, 0.7)
        heapq.heappush(self._heap, (at_s + trip_s, next(self._order), writer, -1, None))

    def _program(self, writer: Writer) -> Program:
        now_s, setting = self.clock.now_s, self.setting
        terms = asdict(writer.queue.terms())
        arbiter = Arbiter(setting.lock_table, lease=setting.lock_table, **terms)
        key, attempt = f"k{writer.number}-{writer.writes}", f"{writer.number}.{writer.writes}"
        if setting.dying:
            self._by_key[key] = writer.number
        common: dict[str, Any] = {
            "attempt": attempt, "accounted": writer.head, "table_id": "table", "reached": writer.head,
            "anchor": self._anchor(writer.head),
        }  # fmt: skip
        row: SharedRow = Row(Write(key, "1:0", 1), is_light=True, **common)
        if setting.changes:
            late = setting.shares and writer.met > 0
            write, change = Write(key, "1:0", 1, changes={}), (writer.writes, False)
            row = ChangeRow(write, change=change, plans_first=not late, **common)
        if writer.carried is not None:
            row.known[writer.head] = writer.carried  # type: ignore[assignment]
        fresh = writer.known_s is not None and now_s - writer.known_s < FRESH_S
        how: dict[str, Any] = {"queue_first": writer.met > 0, "fresh": fresh}
        return write_once(row, tuple, arbiter=arbiter, limits=LIMITS, **how)  # type: ignore[arg-type]

    def _anchor(self, version: int) -> Anchor:
        path = claims.commit_path(version)
        return Anchor(version, path, digest(self.stores.objects.blobs[path]))

    def _step(self, writer: Writer, outcome: Outcome | None) -> None:
        """Go on to the next effect that takes time."""
        if writer.steps is None:
            writer.steps = self._program(writer)
        try:
            effect = next(writer.steps) if outcome is None else writer.steps.send(outcome)
            while (free := self._free(effect)) is not None:
                effect = writer.steps.send(free)
        except StopIteration as stop:
            self._acked(writer, stop.value)
            return
        except Exception as error:  # noqa: BLE001 - counted, and told at the end
            self.failed[f"{type(error).__name__}: {error}"[:120]] += 1
            return
        if isinstance(effect, fx.Sleep | fx.Backoff):
            self._later(self._pause_s(effect), writer, -1, Ok())
        elif isinstance(effect, fx.Together):
            writer.left, writer.answers = len(effect.effects), [None] * len(effect.effects)
            self.stores.of_many(effect.effects)
            for at, one in enumerate(effect.effects):
                self._later(self._trip_s(one), writer, at, one)
        else:
            self._later(self._trip_s(effect), writer, -1, effect)

    def _acked(self, writer: Writer, done: DeltaDone) -> None:
        now_s = self.clock.now_s
        self.latencies.append(now_s - writer.due_s)
        writer.head = done.version
        writer.queue.note(done.may_share)
        body = self.stores.objects.blobs[claims.commit_path(done.version)]
        writer.carried = None if done.led_by_us else keys_of(body)
        writer.known_s = None if done.contended and done.members == 1 else now_s
        writer.met = QUEUE_MEMORY if done.contended else max(0, writer.met - 1)
        at_s = max(now_s, writer.due_s + self.setting.every_s)
        if at_s < self.setting.until_s:
            self._start(writer, at_s)

    def _later(self, after_s: float, writer: Writer, at: int, what: Any) -> None:
        heapq.heappush(self._heap, (self.clock.now_s + after_s, next(self._order), writer, at, what))

    def _free(self, effect: Effect) -> Outcome | None:
        match effect:
            case fx.Now():
                return Ok(self.clock.now_s)
            case fx.WallClock():
                return Ok(int(self.clock.now_s * 1000))
            case fx.NewId():
                return Ok(f"id{next(self._ids)}")
            case fx.Together(effects) if not effects:
                return Ok(())
        return None

    def _pause_s(self, effect: fx.Sleep | fx.Backoff) -> float:
        if isinstance(effect, fx.Sleep):
            return effect.seconds
        most_s = min(5.0, 0.1 * 2**effect.attempt) if effect.ceiling_s is None else effect.ceiling_s
        return self.rng.random() * most_s

    def _trip_s(self, effect: Effect) -> float:
        """Half of a request's time: it is performed in the middle."""
        return self.stores.seconds(effect) * self.rng.uniform(0.3, 0.7)


# --- the command ----------------------------------------------------------------------------------------
HEAD = (
    "writers", "acked/s", "commits/s", "acks a commit", "p50 s", "p99 s", "longest s", "requests an ack", "requests/s", "$ per million writes",
)  # fmt: skip


def measured(race: Race) -> tuple[str, ...]:
    """One line of the table, of a race that was run."""
    acked, seconds, stores = len(race.latencies), race.clock.now_s, race.stores
    latencies = sorted(race.latencies)
    versions = sum(path.endswith(".json") for path in stores.objects.names if path.startswith(claims.LOG)) - 1
    asked = stores.requests.total()
    return (
        f"{race.setting.writers:,}",
        f"{acked / seconds:,.1f}",
        f"{versions / seconds:.1f}",
        f"{acked / versions:,.1f}",
        f"{latencies[acked // 2]:.2f}",
        f"{latencies[int(acked * 0.99)]:.2f}",
        f"{latencies[-1]:.2f}",
        f"{asked / acked:.1f}",
        f"{asked / seconds:,.0f}",
        f"{stores.dollars_of_million / acked:.0f}",
    )


def main(
    *,
    writers: Annotated[str, typer.Option(help="Numbers of writers, by commas.")] = FLEETS,
    every_s: Annotated[
        float, typer.Option(help="Seconds from write to write of a writer; 0: flat out.")
    ] = 0.0,
    seconds: Annotated[float, typer.Option(help="Virtual seconds in which writes begin.")] = 20.0,
    lock_table: Annotated[bool, typer.Option("--lock-table", help="With a lock table.")] = False,
    never: Annotated[bool, typer.Option("--never", help='As with group="never".')] = False,
    changes: Annotated[
        bool, typer.Option("--changes", help="Batches of changes, whose plans take 110 ms, for appends.")
    ] = False,
    dying: Annotated[
        int, typer.Option(help="So many die at one moment: one that leads, and the next in the queue.")
    ] = 0,
    items: Annotated[
        bool, typer.Option("--items", help="As if members were items of the lock table.")
    ] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Count the requests of an ack by name.")] = False,
) -> None:
    """Print a table: a line for each number of writers."""
    print("| " + " | ".join(HEAD) + " |", "| --- " * len(HEAD) + "|", sep="\n", flush=True)
    for number in map(int, writers.split(",")):
        how = {"lock_table": lock_table, "shares": not never, "items": items, "changes": changes}
        race = Race(Setting(number, every_s, seconds, dying=dying, **how))
        race.run()
        race.check()
        print("| " + " | ".join(measured(race)) + " |", flush=True)
        if steps:
            counted = race.stores.names.most_common()
            print(", ".join(f"{name or 'clock'} {n / len(race.latencies):.2f}" for name, n in counted))


if __name__ == "__main__":
    typer.run(main)
