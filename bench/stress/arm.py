"""Runs one arm: a table, its writers, its readers, and its verdict."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safewrite.testing.checker import CheckResult, Flaw, Judgement, Read, check, judge
from safewrite.testing.history import EventKind, IntendedWrite, read_events, read_writes

from .change_check import Comparison
from .delta_target import DeltaTarget
from .fleet import RUNNING, Fleet, Tally, WriterSpec
from .iceberg_target import IcebergTarget
from .plans import lambda_arms, leaders, spark_writers
from .plans.menu import make_arm
from .plans.plan import ArmPlan, Settings, WriterPlan, place_traps
from .stage import Stage, python_of
from .target import Counts, FinalReads, Target, UnreadableTableError, Way

LIVE_READ_EVERY_S = 15.0


class StoppedError(RuntimeError):
    """The run was ended before its verdict: by Ctrl-C, or by an error in the other lane."""


@dataclass(slots=True)
class ArmResult:
    """The result of one arm."""

    plan: ArmPlan
    table: str
    elapsed_s: float
    verdict: CheckResult
    judgement: Judgement
    tally: Tally
    faults: Counts
    peer_faults: Counts
    events: list[dict[str, Any]]
    versions: int
    live_reads: int
    steps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    chores: list[dict[str, Any]] = field(default_factory=list)
    destroyed: str = ""
    """Why no reader can read the table any more, if none can."""
    fired: dict[str, int] = field(default_factory=dict)
    """How often each planned class of fault came."""
    comparison: Comparison | None = None
    """What became of the keys, where the writers applied a change log."""
    seed: int = 0

    def of_judged(self, writer: int) -> bool:
        """Whether a writer's rows are judged."""
        return any(w.number == writer and w.judged for w in self.plan.writers)

    @property
    def started_at(self) -> float:
        """Epoch seconds of the first call."""
        return min((write.invoked_at for write in self.verdict.writes), default=0.0)

    @property
    def bitten(self) -> int:
        """Rows that a naive arm lost or doubled, in the table or in its log; of a change log, keys that are wrong."""
        if self.comparison is not None:
            return sum(self.comparison.counts().values())
        counts = self.verdict.counts()
        # A change feed shows as doubled what the log has committed twice: the same rows.
        return counts[Flaw.LOST] + max(counts[Flaw.DOUBLED], counts[Flaw.RECOMMITTED])

    @property
    def lost_and_doubled(self) -> tuple[int, int]:
        """Lost and doubled rows, as the closing table counts them; of a change log, keys."""
        if self.comparison is not None:
            found = self.comparison.counts()
            return found["missing"], found["doubled"]
        counts = self.verdict.counts() if self.plan.naive else self.verdict.counts(self.of_judged)
        return counts[Flaw.LOST], max(counts[Flaw.DOUBLED], counts[Flaw.RECOMMITTED])

    @property
    def label(self) -> str:
        """One word for the arm: a naive arm is to be bitten, the others are judged."""
        if self.plan.naive and self.destroyed:
            return "table destroyed"
        if self.plan.naive:
            return "bitten" if self.bitten else "unharmed"
        return str(self.judgement)


@dataclass(slots=True)
class Findings:
    """What reading the table back has shown."""

    verdict: CheckResult
    judgement: Judgement
    versions: int = 0
    destroyed: str = ""
    comparison: Comparison | None = None


# --- one arm ------------------------------------------------------------------------------------------
class ArmRun:
    """Runs one arm on a table of its own."""

    def __init__(
        self, name: str, settings: Settings, stage: Stage, folder: Path, stop: threading.Event
    ) -> None:
        self.settings = settings
        self._stop = stop
        self.begun = threading.Event()
        """Its writers are at work, or never will be."""
        self.stage = stage
        self.folder = folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.arm = make_arm(name, settings)
        self.target: Target = self._make_target()
        self.steps: dict[str, tuple[str, ...]] = {}
        self._live: list[Any] = []
        """What :meth:`_look` has seen."""
        self._read_errors: list[str] = []

    @property
    def reads_meanwhile(self) -> bool:
        """Whether the table is read while its writers are at work."""
        return not self.arm.naive

    def _make_target(self) -> Target:
        make = DeltaTarget if self.arm.catalog is None else IcebergTarget
        return make(self.arm, self.settings, self.stage, self.folder)

    def execute(self, tick: Callable[[ArmPlan, Fleet], None]) -> ArmResult:
        """Create the table, let the writers loose, read it back, judge."""

        def told(fleet: Fleet) -> None:
            if fleet.state == RUNNING:
                self.begun.set()
            tick(self.arm, fleet)

        try:
            return self._execute(told)
        finally:
            self.begun.set()

    def _execute(self, tick: Callable[[Fleet], None]) -> ArmResult:
        self._check_not_stopped()
        if self.arm.arbiter is not None:
            self.steps = self.target.rehearse()
            self.arm = place_traps(self.arm, self.steps, self.settings)
            self.arm = lambda_arms.place_traps(self.arm, self.steps, self.settings)
            self.arm = leaders.place_traps(self.arm, self.settings)
        self.target.create()
        with contextlib.ExitStack() as stack:
            seed = self.settings.seed
            ours = self.target.way(stack, "faults", self.arm.faults, seed)
            theirs = self.target.way(stack, "peer-faults", self.arm.peer_faults, seed + 1)
            specs = [
                self._spec(writer, ours if writer.ours else theirs, theirs) for writer in self.arm.writers
            ]
            fleet = Fleet(specs, self.folder, pause_s=self.settings.pause_s, stop=self._stop)
            with fleet, self._reading(fleet):
                elapsed_s = fleet.run(time_limit_s=self.settings.arm_limit_s, tick=tick)
            counts = ours.counts(), theirs.counts()
            events = ours.events()
        self._check_not_stopped()
        tick(fleet)
        result = self._judge(fleet, elapsed_s, *counts, events)
        fleet.flaws = result.lost_and_doubled
        fleet.state = result.label
        tick(fleet)
        return result

    def _check_not_stopped(self) -> None:
        if self._stop.is_set():
            raise StoppedError("the run was ended early")

    def _spec(self, writer: WriterPlan, way: Way, theirs: Way) -> WriterSpec:
        """``theirs`` is how Spark itself reaches the stores, whose own uploads are not safewrite's to judge."""
        config = {
            "kind": writer.kind, "arm": self.arm.name, "writer": writer.number, "seed": self.settings.seed,
            "appends": writer.appends, "rows": writer.rows, "arbiter": self.arm.arbiter,
            "traps": list(writer.traps), "history": str(self.folder / f"writer-{writer.number}.history.jsonl"),
            "time_limit_s": self.settings.arm_limit_s, **self.target.config(writer, way), **dict(writer.habits),
        }  # fmt: skip
        if writer.spark:
            config["spark_way"] = self.target.config(writer, theirs)
        return WriterSpec(writer.kind, python_of(writer.environment), writer.program, config)

    @contextlib.contextmanager
    def _reading(self, fleet: Fleet) -> Iterator[None]:
        """Read the table now and then while the writers are at work."""
        over = threading.Event()

        def loop() -> None:
            while not over.wait(LIVE_READ_EVERY_S):
                if fleet.start_file.exists():
                    try:
                        self._look()
                    except Exception as error:  # noqa: BLE001 - a reader that fails is a finding, not an end
                        self._read_errors.append(f"a read during the run failed: {error}")

        thread = threading.Thread(target=loop, daemon=True)
        if self.reads_meanwhile:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if thread.ident is not None:
                thread.join(timeout=60)

    def _judge(
        self, fleet: Fleet, elapsed_s: float, faults: Counts, peer_faults: Counts, events: list[Any]
    ) -> ArmResult:
        writes = read_writes(fleet.histories)
        said = [event for path in fleet.histories for event in read_events(path)]
        marked = [event for event in said if event["event"] in _MARKED]
        chores = [event for event in said if event["event"] == EventKind.CHORE]
        # The kill may cut what came through a pipe; it does not cut the ledger.
        for kind, counter in ((EventKind.KILL, fleet.tally.kills), (EventKind.PAUSE, fleet.tally.pauses)):
            counter.clear()
            counter.update(f"{e['step']}:{e['when']}" for e in marked if e["event"] == kind)
        fired = {**self._faults_fired(faults), **traps_fired(self.arm, marked), **self._chores_done(chores)}
        fired |= leaders.fired(self.arm, marked)
        for event in said:
            if event["event"] == EventKind.DONE:
                fired |= event.get("fired", {})
        found = self._look_back(writes, said, fired)
        errors = [*fleet.errors, *self._read_errors, *self._strange(writes)]
        errors += [f"the table is unreadable: {found.destroyed}"] if found.destroyed else []
        gaps = [f"{writer} did not finish" for writer in _unfinished(fleet)]
        gaps += spark_writers.missing(self.arm, marked)
        judgement = found.judgement
        if (errors or gaps) and judgement.valid:
            judgement = Judgement(None, (*judgement.reasons, *errors, *gaps))
        marks = [{**e, "source": "ledger"} for e in marked] + [{**e, "source": "proxy"} for e in events]
        return ArmResult(
            self.arm, self.target.table, elapsed_s, found.verdict, judgement, fleet.tally, faults, peer_faults,
            marks, found.versions, len(self._live), self.steps, errors, chores, found.destroyed, fired,
            found.comparison, self.settings.seed,
        )  # fmt: skip

    def _look(self) -> None:
        """Read the table while writers are at work."""
        self._live.append(self.target.read_now())

    def _look_back(
        self, writes: list[IntendedWrite], said: list[dict[str, Any]], fired: dict[str, int]
    ) -> Findings:
        """Read the table when its writers have ended, and judge."""
        destroyed = ""
        try:
            final = self.target.read_all(self.folder / "files")
        except UnreadableTableError as error:
            # Rows that cannot be read are lost: an empty read says so, row by row.
            destroyed = str(error)
            final = FinalReads([Read("unreadable", (), (), ())])
        verdict = check(writes, [*self._live, *final.reads], log=final.log)
        judged = {writer.number for writer in self.arm.writers if writer.judged}
        judgement = judge(verdict, fired=fired, of=lambda w: w in judged or not judged)
        ends = [event for event in said if event["event"] == EventKind.DONE]
        flaws = [
            *final.flaws,
            *self._lost_by_us(verdict),
            *(flaw for e in ends for flaw in e.get("flaws", ())),
        ]
        if flaws:
            judgement = Judgement(False, (*flaws, *judgement.reasons))
        return Findings(verdict, judgement, final.versions, destroyed)

    def _strange(self, writes: list[IntendedWrite]) -> list[str]:
        """Errors of safewrite's writers that are not SafewriteErrors: safewrite has one for every answer."""
        judged = {writer.number for writer in self.arm.writers if writer.judged}
        return [
            f"writer {write.writer}, append {write.seq}: {error}"
            for write in writes
            if write.writer in judged
            for error in write.errors
            if "[" not in error.partition(":")[0]
        ]

    def _lost_by_us(self, verdict: CheckResult) -> list[str]:
        """Acked rows that a PyIceberg peer lost: it loses none by itself, so the loss would be ours.

        Rows that a peer doubles by a blind retry are its own affair, and so is what deltalake's peers do.
        """
        if self.arm.catalog is None or self.arm.naive:
            return []
        peers = {writer.number for writer in self.arm.writers if not writer.ours}
        lost = verdict.counts(lambda writer: writer in peers)[Flaw.LOST]
        return [f"{lost} acked rows of the peers are lost"] if lost else []

    def _chores_done(self, chores: list[dict[str, Any]]) -> dict[str, int]:
        """How often each planned chore was done."""
        planned = [writer.number for writer in self.arm.writers if writer.chores]
        done = Counter(event["writer"] for event in chores if event["done"])
        kinds = {writer.number: writer.kind for writer in self.arm.writers}
        return {kinds[number]: done[number] for number in planned}

    def _faults_fired(self, faults: Counts) -> dict[str, int]:
        """How often each planned kind of fault came."""
        fired: dict[str, int] = {}
        if self.stage.can_proxy:
            fired = {str(rule.kind): 0 for rule in self.arm.faults}
            for (_, kind), count in faults.items():
                fired[kind] = fired.get(kind, 0) + count
        return fired


def traps_fired(arm: ArmPlan, marked: list[dict[str, Any]]) -> dict[str, int]:
    """How often each planned kill and pause came, by its step and side.

    The ends of Spark's drivers are counted apart, so that they do not stand in for a kill of another writer.
    """
    came = Counter(
        (str(e["event"]), e["step"], e["when"]) for e in marked if not spark_writers.is_end(arm, e)
    )
    traps = [trap for w in arm.writers if w.judged and not w.spark for trap in w.traps]
    return {
        f"{trap['action']} {trap['when']} {trap['step']}": came[trap["action"], trap["step"], trap["when"]]
        for trap in traps
        if trap["seq"] is not None and not trap.get("lucky")
    }


_MARKED = (EventKind.KILL, EventKind.PAUSE, EventKind.RESUME)


def _unfinished(fleet: Fleet) -> list[str]:
    ended = {
        event["writer"]
        for path in fleet.histories
        for event in read_events(path)
        if event["event"] == EventKind.DONE
    }
    return [f"writer {spec.number} ({spec.kind})" for spec in fleet.specs if spec.number not in ended]
