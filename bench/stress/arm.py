"""One arm: a table, the writers let loose on it, the readers, and its verdict."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from safewrite.testing.checker import Flaw, Judgement, Read, Verdict, check, judge
from safewrite.testing.history import Event, make_rows, read_events, read_writes

from . import readers
from .arms import common
from .fleet import RUNNING, Fleet, Tally, WriterSpec
from .plan import ArmPlan, Settings, WriterPlan, make_arm, place_traps
from .proxy import FaultProxy
from .stage import Stage, python_of

LIVE_READ_EVERY_S = 15.0


class StoppedError(RuntimeError):
    """The run was ended before its verdict: by Ctrl-C, or by an error in the other lane."""


@dataclass(slots=True)
class ArmResult:
    """What became of one arm."""

    plan: ArmPlan
    table: str
    elapsed_s: float
    verdict: Verdict
    judgement: Judgement
    tally: Tally
    faults: Counter[tuple[str, str]]
    peer_faults: Counter[tuple[str, str]]
    events: list[dict[str, Any]]
    versions: int
    live_reads: int
    steps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def of_judged(self, writer: int) -> bool:
        """Whether a writer's rows are judged."""
        return any(w.number == writer and w.judged for w in self.plan.writers)

    @property
    def started_at(self) -> float:
        """Epoch seconds of the first call."""
        return min((write.invoked_at for write in self.verdict.writes), default=0.0)

    @property
    def bitten(self) -> int:
        """Rows that a naive arm lost or doubled, in the table or in its log."""
        counts = self.verdict.counts()
        # A change feed shows as doubled what the log has committed twice: the same rows.
        return counts[Flaw.LOST] + max(counts[Flaw.DOUBLED], counts[Flaw.RECOMMITTED])

    @property
    def label(self) -> str:
        """One word: a naive arm is to be bitten, the others are judged."""
        if self.plan.naive:
            return "bitten" if self.bitten else "unharmed"
        return str(self.judgement)


# --- tables ---------------------------------------------------------------------------------------
def create_table(arm: ArmPlan, uri: str, stage: Stage, settings: Settings) -> None:
    """Create the arm's empty table, by safewrite where safewrite is judged, else by deltalake."""
    schema = common.to_arrow(make_rows(0, 0, 0, 1)).schema
    options = stage.cloud.storage_options()
    if arm.arbiter is None:
        config = {"delta.enableChangeDataFeed": "true"} if arm.change_feed else None
        DeltaTable.create(uri, schema, partition_by=["day"], storage_options=options, configuration=config)
        return
    import safewrite as sw

    chosen = _arbiter(arm, settings)
    sw.create(uri, schema=schema, partition_by=["day"], storage_options=options, **chosen)


def _arbiter(arm: ArmPlan, settings: Settings) -> dict[str, Any]:
    return (
        {"arbiter": "object-store"} if arm.arbiter == "object-store" else {"lock_table": settings.lock_table}
    )


def rehearse(arm: ArmPlan, uri: str, stage: Stage, settings: Settings) -> dict[str, tuple[str, ...]]:
    """The names of the effects of one lone append, by how it is identified: these are the kill points."""
    import safewrite as sw

    create_table(arm, uri, stage, settings)
    chosen = _arbiter(arm, settings)
    identities: dict[str, dict[str, Any]] = {
        "key": {"key": "rehearsal"}, "txn": {"txn": ("rehearsal", 0)}, "none": {},
    }  # fmt: skip
    steps = {}
    for number, (identity, name) in enumerate(identities.items()):
        table = sw.open(uri, storage_options=stage.cloud.storage_options(), **chosen)
        names = _note_names(table.world)
        table.append(common.to_arrow(make_rows(0, 0, number, 5)), **name)
        steps[identity] = tuple(names)
    return steps


def _note_names(world: Any) -> dict[str, None]:
    """Note the name of every effect that the world performs from now on."""
    perform = world.perform
    names: dict[str, None] = {}

    def noted(effect: Any) -> Any:
        if effect.name and not effect.name.endswith(".backoff"):
            names.setdefault(effect.name)
        return perform(effect)

    world.perform = noted
    return names


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
        self.uri = f"s3://{stage.bucket}/{stage.prefix}{folder.name}-{name}"
        self.arm = make_arm(name, settings)
        self.steps: dict[str, tuple[str, ...]] = {}
        options = stage.cloud.storage_options()
        self.place = readers.Place(self.uri, options, stage.cloud.boto3_client("s3"))
        self._live: list[Read] = []
        self._read_errors: list[str] = []

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
            self.steps = rehearse(self.arm, self.uri + "-rehearsal", self.stage, self.settings)
            self.arm = place_traps(self.arm, self.steps, self.settings)
        create_table(self.arm, self.uri, self.stage, self.settings)
        with contextlib.ExitStack() as stack:
            ours = self._proxy(stack, "faults", self.arm.faults, self.arm.fault_plan(self.settings.seed))
            theirs = self._proxy(
                stack, "peer-faults", self.arm.peer_faults, self.arm.peer_plan(self.settings.seed)
            )
            specs = [self._spec(writer, ours if writer.judged else theirs) for writer in self.arm.writers]
            fleet = Fleet(specs, self.folder, pause_s=self.settings.pause_s, stop=self._stop)
            with fleet, self._reading(fleet):
                elapsed_s = fleet.run(time_limit_s=self.settings.arm_limit_s, tick=tick)
            counts = [Counter() if proxy is None else _plain(proxy.counts()) for proxy in (ours, theirs)]
            events = [] if ours is None else ours.events()
        self._check_not_stopped()
        tick(fleet)
        result = self._judge(fleet, elapsed_s, counts[0], counts[1], events)
        fleet.state = result.label
        tick(fleet)
        return result

    def _check_not_stopped(self) -> None:
        if self._stop.is_set():
            raise StoppedError("the run was ended early")

    def _proxy(
        self, stack: contextlib.ExitStack, name: str, rules: Sequence[Any], plan: Any
    ) -> FaultProxy | None:
        if not rules or not self.stage.can_proxy:
            return None
        options = self.stage.cloud.storage_options()
        return stack.enter_context(
            FaultProxy(
                self.stage.cloud.endpoint_url,
                self.folder,
                plan=plan,
                name=name,
                dynamodb_upstream=options.get("AWS_ENDPOINT_URL_DYNAMODB"),
            )
        )

    def _spec(self, writer: WriterPlan, proxy: FaultProxy | None) -> WriterSpec:
        options = dict(self.place.storage_options)
        if proxy is not None:
            options |= {
                "AWS_ENDPOINT_URL": proxy.endpoint_url,
                "AWS_ENDPOINT_URL_DYNAMODB": proxy.endpoint_url,
            }
        config = {
            "kind": writer.kind, "arm": self.arm.name, "writer": writer.number, "seed": self.settings.seed,
            "appends": writer.appends, "rows": writer.rows, "table": self.uri, "lock_table": self.settings.lock_table,
            "storage_options": {**options, **dict(writer.storage)}, "traps": list(writer.traps),
            "history": str(self.folder / f"writer-{writer.number}.history.jsonl"),
            "time_limit_s": self.settings.arm_limit_s, **dict(writer.habits),
        }  # fmt: skip
        return WriterSpec(writer.kind, python_of(writer.environment), writer.program, config)

    @contextlib.contextmanager
    def _reading(self, fleet: Fleet) -> Iterator[None]:
        """Read the table now and then while the writers are at work."""
        over = threading.Event()

        def loop() -> None:
            while not over.wait(LIVE_READ_EVERY_S):
                if fleet.start_file.exists():
                    try:
                        self._live.append(readers.read_now(self.place))
                    except Exception as error:  # noqa: BLE001 - a reader that fails is a finding, not an end
                        self._read_errors.append(f"a read during the run failed: {error}")

        thread = threading.Thread(target=loop, daemon=True)
        if not self.arm.naive:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if thread.ident is not None:
                thread.join(timeout=60)

    def _judge(
        self,
        fleet: Fleet,
        elapsed_s: float,
        faults: Counter[Any],
        peer_faults: Counter[Any],
        events: list[Any],
    ) -> ArmResult:
        writes = read_writes(fleet.histories)
        errors = [*fleet.errors, *self._read_errors]
        replay, log = readers.Replay(), None
        try:
            replay = readers.replay_log(self.place)
            replayed, log = readers.read_replay(self.place, replay)
            finals = [replayed, *self._other_reads()]
        except (readers.UnreadableTableError, DeltaError, duckdb.Error) as error:
            # What cannot be read is lost: an empty read says so, row by row.
            errors.append(f"the table is unreadable: {error}")
            finals = [Read("unreadable", (), (), ())]
        verdict = check(writes, [*self._live, *finals], log=log)
        ledger_events = [e for path in fleet.histories for e in read_events(path) if e["event"] in _MARKED]
        # What was said on a pipe may be cut by the kill; the ledger is not.
        for event, counter in ((Event.KILL, fleet.tally.kills), (Event.PAUSE, fleet.tally.pauses)):
            counter.clear()
            counter.update(f"{e['step']}:{e['when']}" for e in ledger_events if e["event"] == event)
        fired = self._fired(fleet, faults)
        judged = {writer.number for writer in self.arm.writers if writer.judged}
        judgement = judge(verdict, fired=fired, of=lambda w: w in judged or not judged)
        gaps = [f"{writer} did not finish" for writer in _unfinished(fleet)]
        if (errors or gaps) and judgement.valid:
            judgement = Judgement(None, (*judgement.reasons, *errors, *gaps))
        marks = [{**e, "source": "ledger"} for e in ledger_events] + [
            {**e, "source": "proxy"} for e in events
        ]
        return ArmResult(
            self.arm, self.uri, elapsed_s, verdict, judgement, fleet.tally, faults, peer_faults, marks,
            replay.versions, len(self._live), self.steps, errors,
        )  # fmt: skip

    def _other_reads(self) -> list[Read]:
        if self.arm.change_feed:
            return [readers.read_change_feed(self.place)]
        return [readers.read_deltalake(self.place), readers.read_duckdb(self.place, self.folder / "files")]

    def _fired(self, fleet: Fleet, faults: Counter[tuple[str, str]]) -> dict[str, int]:
        """How often each planned class fired: proxy faults by kind, kills by step, pauses."""
        fired: dict[str, int] = {}
        if self.stage.can_proxy:
            fired = {str(rule.kind): 0 for rule in self.arm.faults}
            for (_, kind), count in faults.items():
                fired[kind] = fired.get(kind, 0) + count
        for writer in self.arm.writers:
            for trap in writer.traps:
                if trap["seq"] is not None and writer.judged:
                    tally = fleet.tally.kills if trap["action"] == "kill" else fleet.tally.pauses
                    name = f"{trap['step']}:{trap['when']}"
                    fired[f"{trap['action']} {trap['when']} {trap['step']}"] = tally[name]
        return fired


_MARKED = (Event.KILL, Event.PAUSE, Event.RESUME)


def _plain(counts: Counter[Any]) -> Counter[tuple[str, str]]:
    return Counter({(str(step), str(kind)): count for (step, kind), count in counts.items()})


def _unfinished(fleet: Fleet) -> list[str]:
    ended = {
        event["writer"]
        for path in fleet.histories
        for event in read_events(path)
        if event["event"] == Event.DONE
    }
    return [f"writer {spec.number} ({spec.kind})" for spec in fleet.specs if spec.number not in ended]
