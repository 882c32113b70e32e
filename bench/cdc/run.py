"""Runs the workload while jobs land it, kills their drivers, restarts the broker, and judges what is there at the end."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from bench.cdc import sink
from bench.cdc.check import Difference, differences_from, read, rival_differences
from bench.cdc.cluster import ExecutorKiller, on_cluster, short_lived
from bench.cdc.modes import Mode, events_of, faults_of
from bench.cdc.registry import Registry
from bench.cdc.rivals import land
from bench.cdc.row_sql import RowSql
from bench.cdc.source_stack import LANDED, Form, Job
from bench.cdc.sources import Captured, ChangeSource, SourceName, change_source
from bench.cdc.topic import copy
from bench.servers.spark import Cluster
from safewrite.cdc import verify

_WAITS = "The batch waits"
"""What a driver says while the registry is away."""
_IDLES = "nothing new in its topics"
"""What a driver says now and then while it has landed all."""
_AIM_S = 30.0
"""How long a kill waits for a batch that executors land."""
_STUCK_S = 600.0
"""A job that lands nothing for so long has failed."""


@dataclass(frozen=True)
class Plan:
    """What a run does; one seed gives one workload."""

    seed: int = 1
    changes: int = 2000
    kills: int = 2
    broker_restarts: int = 1
    forms: tuple[Form, ...] = ("delta", "iceberg")
    batch: int = 500
    rivals: tuple[str, ...] = ()
    rival_batches: int = 5
    part: int = 100_000
    source: SourceName = "debezium"
    outages: int = 0
    """How often the schema registry goes away (avro)."""
    engine: Literal["auto", "local", "spark"] = "local"
    """``spark``: the drivers are clients of a cluster of two workers, and their executors decode."""
    executor_kills: int = 0
    modes: tuple[Mode, ...] = ("upsert",)
    """Modes of tables, by turns (debezium)."""
    sql: bool = False
    """Whether tables have a filter, a computed column, or both (debezium)."""


@dataclass
class Verdict:
    """What became of one job."""

    form: Form
    tables: list[Difference]
    records: int
    landed: int
    dead: int
    ignored: int
    faults: tuple[str, ...]
    kills: int
    batches: int
    by_executors: int = 0
    """Records that executors landed."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many records the driver landed where executors were to, by reason."""
    hits: int = 0
    """Drivers that were killed within a batch that executors landed."""
    expected_dead: int = 0
    """Records that the source made so that no table can take them."""

    @property
    def is_exact(self) -> bool:
        has_letters = self.dead == self.expected_dead
        return not self.faults and has_letters and all(one.flaws == 0 for one in self.tables)

    def idle_faults(self) -> list[str]:
        """What was to happen to batches of executors and never did."""
        found = [] if self.by_executors else [f"executors landed no record of {self.form}"]
        if self.kills and not self.hits:
            found.append(f"no driver of {self.form} was killed while executors landed a batch")
        return found


@dataclass
class Outcome:
    """A whole run."""

    plan: Plan
    workload: dict[str, int]
    changes: int
    verdicts: list[Verdict] = field(default_factory=list)
    broker_restarts: int = 0
    outages: int = 0
    executor_kills: int = 0
    python_kills: int = 0
    """Python processes of executors that were killed."""
    executor_hits: int = 0
    """Of these kills those within a batch that executors landed."""
    is_hard: bool = False
    """Whether a transaction was under way during Debezium's snapshot, as it always is to be."""
    topic: int = 0
    """Records that Kafka has."""
    rivals: dict[str, list[Difference]] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    """Rivals that failed before the end, and why."""
    elapsed_s: float = 0.0

    @property
    def idle_faults(self) -> list[str]:
        """What the plan has and the run did not see: a run without it proves less than it says."""
        if self.plan.engine == "local":
            return []
        found = [text for one in self.verdicts for text in one.idle_faults()]
        if self.executor_kills < self.plan.executor_kills:
            found.append(f"{self.executor_kills} of {self.plan.executor_kills} executors were killed")
        if self.plan.executor_kills and not self.executor_hits:
            found.append("no executor was killed while it landed a batch")
        return found

    @property
    def is_exact(self) -> bool:
        if self.idle_faults:
            return False
        counted = all(
            one.records == self.topic == one.landed + one.dead + one.ignored for one in self.verdicts
        )
        return bool(self.verdicts) and self.is_hard and counted and all(one.is_exact for one in self.verdicts)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(plan: Plan, folder: Path, say: Any = print) -> Outcome:
    """Run a plan in a folder."""
    started = time.monotonic()
    with ExitStack() as stack:
        source = stack.enter_context(change_source(plan.source, folder, plan.seed, plan.modes, sql=plan.sql))
        say(f"the servers run; {plan.changes} changes, seed {plan.seed}")
        settings = {"parts": {"records": plan.part}, "engine": plan.engine}
        jobs = [source.job(form, plan.batch, settings) for form in plan.forms]
        for job in jobs:
            stack.callback(job.kill)
        killer = None
        if plan.engine != "local":
            cluster = stack.enter_context(Cluster(folder, memory="2g"))
            for job in jobs:
                job.spark = on_cluster(cluster, len(jobs)) | short_lived()
            killer = stack.enter_context(ExecutorKiller(cluster, jobs, plan.executor_kills, plan.seed))
        outcome = _under_faults(plan, source, jobs, say)
        outcome.is_hard = source.is_hard
        for job in jobs:
            job.kill()
        if killer is not None:
            outcome.executor_kills, outcome.python_kills = killer.done, killer.python
            outcome.executor_hits = killer.hits
        for job, verdict in zip(jobs, outcome.verdicts, strict=True):
            verdict.tables.extend(differences_from(source.rows, source.tables, job))
            verdict.expected_dead = source.dead
        topic = copy(source.kafka.endpoint_url, folder / "topic", source.pattern)
        outcome.topic = topic.num_rows
        for job, verdict in zip(jobs, outcome.verdicts, strict=True):
            verdict.faults += tuple(_faults_of_modes(source, job, topic))
        for name in plan.rivals if isinstance(source, Captured) else ():
            stopped, outcome.rivals[name] = _rival(name, source, topic, folder, plan)
            if stopped is not None:
                outcome.stopped[name] = stopped
    outcome.elapsed_s = time.monotonic() - started
    return outcome


def _faults_of_modes(source: ChangeSource, job: Job, topic: pa.Table) -> list[str]:
    """What tables that keep each change have otherwise than the topics."""
    found = []
    for table in source.tables:
        mode, sql = job.modes.get(table.name, "upsert"), job.sql.get(table.name, RowSql())
        if mode != "upsert":
            events = events_of(table, topic, mode, sql.passes)
            found += faults_of(table, mode, events, read(job, table.name))
    return found


def _rival(
    name: str, source: Captured, topic: pa.Table, folder: Path, plan: Plan
) -> tuple[str | None, list[Difference]]:
    """Why a rival stopped, if it did, and what differs in its tables."""
    address = source.servers.postgres
    if name == sink.NAME:
        topics = sorted(topic.column("topic").unique().to_pylist())
        events = sum(sink.is_row(value) for value in topic.column("value").to_pylist())
        catalog, stopped = sink.land(source.kafka, topics, folder / name, events)
        return stopped, sink.differences(address, catalog)
    stopped = land(name, folder / "topic", folder / name, plan.rival_batches)
    return stopped, rival_differences(address, folder / name)


def _under_faults(plan: Plan, servers: ChangeSource, jobs: Sequence[Job], say: Any) -> Outcome:
    draws = {job.form: random.Random(f"{plan.seed}/{job.form}") for job in jobs}
    failed: list[BaseException] = []

    def work() -> None:
        parts = max(1, plan.kills)
        try:
            for part in range(parts):
                share = plan.changes * (part + 1) // parts - plan.changes * part // parts
                servers.workload.run(share, plan.changes, plan.changes * part // parts)
                sent[part].set()
                reached[part].wait()
            servers.workload.mark()
        except BaseException as error:
            failed.append(error)
            raise

    sent, reached = ([threading.Event() for _ in range(max(1, plan.kills))] for _ in range(2))
    worker = threading.Thread(target=work, name="workload")
    worker.start()
    restarts = outages = 0
    hits: Counter[Form] = Counter()
    for kill in range(plan.kills):
        if servers.registry is not None and kill in _chosen(plan.kills, plan.outages):
            _without_registry(servers.registry, jobs)
            outages += 1
            say(f"the registry was away ({outages})")
        files = {job.form: job.files for job in jobs}
        for job in jobs:
            if not job.runs:
                job.start()
        for job in jobs:
            landed = _landed(job, files[job.form], sent[kill])
            _wait(lambda landed=landed: landed() or not worker.is_alive(), job, failed)
        if kill in _chosen(plan.kills, plan.broker_restarts):
            servers.kafka.restart()
            restarts += 1
            say(f"the broker was restarted ({restarts})")
        reached[kill].set()
        with ThreadPoolExecutor(len(jobs)) as pool:
            for form, is_hit in zip(draws, pool.map(_killed, jobs, draws.values()), strict=True):
                hits[form] += is_hit
        say(f"both drivers were killed ({kill + 1})")
    for event in reached:
        event.set()
    for job in jobs:
        job.start()
    worker.join()
    if failed:
        raise failed[0]
    outcome = Outcome(
        plan, servers.workload.told, servers.workload.changes, broker_restarts=restarts, outages=outages
    )
    for job in jobs:
        _wait(lambda job=job: servers.is_complete(job), job, failed)
        _wait(lambda job=job: _is_closed(job), job, failed)
        job.kill()
        verdict = _books(job, plan.kills)
        verdict.hits = hits[job.form]
        outcome.verdicts.append(verdict)
    return outcome


def _killed(job: Job, draw: random.Random) -> bool:
    """Kill a driver, some time after; whether executors were landing a batch of it."""
    if job.engine != "local":
        until, landed = time.monotonic() + _AIM_S, job.said(LANDED[0].decode()) + draw.randrange(3)
        while time.monotonic() < until and not (
            job.is_with_executors and job.said(LANDED[0].decode()) >= landed
        ):
            time.sleep(0.05)
        time.sleep(draw.uniform(0.0, 1.0))
    else:
        time.sleep(draw.uniform(0.0, 3.0))
    is_hit = job.is_with_executors
    job.kill()
    return is_hit


def _without_registry(registry: Registry, jobs: Sequence[Job]) -> None:
    """Let new drivers find no registry, until each has said that it waits."""
    registry.stop()
    for job in jobs:
        job.start()
    for job in jobs:
        said = job.said(_WAITS)
        _wait(lambda job=job, said=said: job.said(_WAITS) > said, job, ())
    registry.start()


def _landed(job: Job, before: int, sent: threading.Event) -> Callable[[], bool]:
    """Whether a driver has landed more; or has nothing to land, for the one before it landed all that was sent."""
    idle: list[int] = []

    def done() -> bool:
        if sent.is_set():
            idle.append(job.said(_IDLES))
        return job.files > before or (len(idle) > 0 and idle[-1] > idle[0] + 1)

    return done


def _chosen(kills: int, times: int) -> set[int]:
    """The kills before which something else happens so many times."""
    return {kills * (2 * number + 1) // (2 * times) for number in range(times)}


def _wait(done: Any, job: Job, failed: Sequence[BaseException]) -> None:
    deadline, files = time.monotonic() + _STUCK_S, job.files
    while not done():
        if failed:
            raise failed[0]
        if job.ended is not None:
            tail = job.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the driver of {job.form} ended by itself with {job.ended}:\n{tail}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the job of {job.form} is stuck; see {job.log}")
        time.sleep(0.3)
        if job.files > files:
            deadline, files = time.monotonic() + _STUCK_S, job.files


def _is_closed(job: Job) -> bool:
    """Whether the ledger has a line for all that landed: its last batch came after the tables'."""
    before = read(job, f"{job.name}_ledger", "cdc")
    time.sleep(2.0)
    after = read(job, f"{job.name}_ledger", "cdc")
    return before is not None and after is not None and before.num_rows == after.num_rows


def _books(job: Job, kills: int) -> Verdict:
    """The sums of a job's ledger."""
    name = job.name
    ledger = read(job, f"{name}_ledger", "cdc")
    letters = read(job, f"{name}_dead_letters", "cdc")
    told = verify(name, ledger if ledger is not None else pa.table({}), letters)

    def total(what: str) -> int:
        return sum(account.totals[what] for account in told.accounts)

    landed = total("changes") - total("split") + total("earlier")
    return Verdict(
        job.form,
        [],
        total("records"),
        landed,
        total("dead"),
        total("ignored"),
        told.faults,
        kills,
        told.batches,
        sum(ledger.column("by_executors").to_pylist() if ledger is not None else []),
        dict(job.reasons),
    )
