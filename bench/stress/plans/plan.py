"""Draws what a run will do from one seed: writers, kills, pauses and faults."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safewrite.testing.faults import FaultKind, Rule

from ...servers.catalogs import CatalogKind
from ..writers.change_log import LogPlan

MAIN, OLD, WRANGLER = "main", "deltalake-0.22", "awswrangler"
WRITERS_PER_ARM_MAX = 100
SOAK_FACTOR = 100
"""How many times as many appends the long run makes as the usual one."""
# Writers meet these only when they collide, or do not, or repair, so a plan cannot place them: each traps its
# first visitor.
LUCKY_STEPS = (
    "lease.take", "lease.read", "lease.pass", "commit.get_commit", "commit.get_entry", "commit.read_back",
    "repair.get_temp", "repair.put_commit", "repair.complete", "swap.look", "swap.load", "swap.verify",
    "swap.verify_and_close", "swap.read_metadata", "recall.read_metadata", "write.delete_lost",
)  # fmt: skip
SPARK_KILLS, SPARK_KILLS_SOAK = 3, 60
"""How often each Spark driver is killed in a usual run, and in the long one; each kill costs a start of Spark."""
SPARK_LIFE_MAX_S = 60.0
"""What a life of a Spark driver may add to the time of an arm, on a busy machine."""
CALLER_STEP = "caller.record_ack"
"""After the library has returned and before the caller has noted it."""
FRESH_STEPS = ("together",)
"""Only an append meets these whose process has just looked at the log and knows of no rival: the rehearsal's,
and the retry of a killed one under the same key.  So they are placed in such a retry.
"""
ALONE_STEPS = (*FRESH_STEPS, "commit.get_anchor")
"""Writers that share commits seldom come by these, so that their kills need not come."""
PEER_THINK_S = 2.0
"""Mean time between the appends of a peer, so that it is there for most of the run."""
PAUSES = (
    ("stage.put_data", "after"), ("commit.put_entry", "after"), ("commit.put_commit", "before"),
    ("commit.put_commit", "after"), ("commit.complete", "after"),
    ("stage.put_manifest_list", "after"), ("swap.commit", "before"), ("swap.commit", "after"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """A user's choices.  ``rows`` is per append, ``appends`` per writer; times in seconds."""

    seed: int
    writers: int = 16
    appends: int = 14
    rows: int = 400
    store: str = "ministack"
    arms: tuple[str, ...] = ()
    pause_s: float = 5.0
    lease_s: float = 1.0
    arm_limit_s: float = 300.0
    acked_rows_min: int = 50_000
    out: Path = Path("out/stress")
    table: str | None = None
    endpoint: str | None = None
    lock_table: str = "delta_log"
    proxy: bool = True
    kills_per_step: int = 1
    leader_kills: int = 0
    """At least so many kills are planned at the steps of writers that commit for others."""
    steps: tuple[str, ...] = ()
    """Kill and pause at these steps alone; empty: at all."""
    spark_reader: bool = False
    """Read Iceberg tables by Spark too; Delta tables where Spark writes them."""
    spark: int = 0
    """Spark streams in each of safewrite's arms, and as many plain writers of Spark in those of Delta."""
    spark_kills: int = SPARK_KILLS
    """How often the driver of each of them is killed."""
    log_store: str = ""
    """The folder of the jars of Delta's S3DynamoDBLogStore, by which one more driver commits as a peer; empty: none does."""
    lambda_: int = 0
    """Environments of the function in each arm in Lambda; 0: as many as such an arm has by itself."""
    changes: int = 0
    """Changes in the log of each arm under a change log; 0: as many as such an arm has by itself."""
    change_keys: int = 0
    """Keys in that log; 0: a tenth of its changes."""
    change_batch: int = 0
    """Mean number of changes in a batch of it; 0: 4 to 40, by the log's length."""
    change_writers: int = 6
    """The most processes of safewrite, besides Spark's streams, that apply it."""


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """One writer process.  ``judged`` writers are safewrite's: any flaw of theirs fails the run.

    ``chores`` is set for a process that writes no rows of its own: it maintains the table, by safewrite, as
    many times as it has ``appends``; a ``foreign`` one by another library, which does not look whether its uploads
    arrived whole, and so meets none of safewrite's faults.  The traps of a writer of ``spark`` are the ends of its driver's lives,
    one after the other.  A writer with ``functions`` is a Lambda function with so many environments, and an
    append is a message.
    """

    number: int
    kind: str
    program: str
    environment: str = MAIN
    judged: bool = False
    chores: bool = False
    foreign: bool = False
    spark: bool = False
    functions: int = 0
    appends: int = 10
    rows: int = 100
    storage: tuple[tuple[str, str], ...] = ()
    habits: tuple[tuple[str, Any], ...] = ()
    traps: tuple[dict[str, Any], ...] = ()

    @property
    def identity(self) -> str:
        """How its appends are identified: ``key``, ``txn`` or ``none``."""
        habits = dict(self.habits)
        return "key" if habits.get("keyed") else "txn" if habits.get("txn") else "none"

    @property
    def ours(self) -> bool:
        """Whether safewrite does the work, so that safewrite's faults hit it."""
        return self.judged or (self.chores and not self.foreign)


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """Writers on one table, and what happens to them.

    ``faults`` hit safewrite's writers, ``peer_faults`` the others (through a proxy of their own, so
    that counts are not mixed).  ``naive`` arms must show loss or doubling.  ``catalog`` is set for an
    Iceberg table.
    """

    name: str
    title: str
    writers: tuple[WriterPlan, ...]
    faults: tuple[Rule, ...] = ()
    peer_faults: tuple[Rule, ...] = ()
    arbiter: str | None = None
    catalog: CatalogKind | None = None
    naive: bool = False
    change_feed: bool = False
    shares: bool = False
    """Its writers share commits from their first try on, and who commits for others is killed."""
    log: LogPlan | None = None
    """The change log that its writers apply; None where they append."""

    @property
    def environments(self) -> set[str]:
        """The environments whose interpreters it needs."""
        return {writer.environment for writer in self.writers}


FAULT_CLASSES = (
    FaultKind.LOST_ANSWER, FaultKind.LOST_ANSWER_500, FaultKind.PRECONDITION_412, FaultKind.CONFLICT_409,
    FaultKind.LATE, FaultKind.THROTTLE, FaultKind.TRUNCATE_BODY, FaultKind.ERROR_500, FaultKind.ERROR_503,
    FaultKind.CUT, FaultKind.DELAY,
)  # fmt: skip


# --- kills and pauses -----------------------------------------------------------------------------
def place_traps(arm: ArmPlan, steps: Mapping[str, Sequence[str]], settings: Settings) -> ArmPlan:
    """Give every step of a commit its SIGKILL, before and after, and some a SIGSTOP.

    ``steps`` are the names of the effects that one lone append performs, by how it is identified
    (``key``, ``txn``, ``none``).  By the seed, each (step, before or after) falls to another writer that
    performs it, and another append, in the first two thirds of the run.  Where an append happens to go
    without the step, a later one is hit.  A kill uses an append of a writer without keys up, so such a
    writer gets no more of them than it has appends for.
    """
    rng = random.Random(f"{settings.seed}/{arm.name}/traps")
    judged = [writer for writer in arm.writers if writer.judged and not writer.spark and not writer.functions]
    if not judged:
        return arm
    slots = [(writer, seq) for writer in judged for seq in range(1, max(2, writer.appends * 2 // 3))]
    rng.shuffle(slots)
    traps: dict[int, list[dict[str, Any]]] = {writer.number: [] for writer in judged}
    taken: set[tuple[int, int]] = set()
    for step, when, action in _wanted(steps, settings):
        fresh = step in FRESH_STEPS
        fit = [
            (w, seq)
            for w, seq in slots
            if step == CALLER_STEP or (step in steps[w.identity] and (w.identity == "key" or not fresh))
        ]
        # An append of its own while there are any; in a short run some are killed twice, and only
        # those can be that are tried again.
        again = [slot for slot in fit if slot[0].identity != "none"] or fit
        writer, seq = next(
            (slot for slot in fit if (slot[0].number, slot[1]) not in taken), rng.choice(again)
        )
        number = writer.number
        taken.add((number, seq))
        if fresh:
            traps[number].append({"seq": seq, "step": "stage.put_data", "when": "before", "action": "kill"})
        trap = {"seq": seq, "step": step, "when": when, "action": action}
        traps[number].append({**trap, "lucky": True} if arm.shares and step in ALONE_STEPS else trap)
    keyed = [writer.number for writer in judged if writer.identity == "key"]
    for index, step in enumerate(LUCKY_STEPS if not settings.steps else ()):
        when = ("before", "after")[index % 2]
        traps[keyed[index % len(keyed)]].append({"seq": None, "step": step, "when": when, "action": "kill"})
    writers = tuple(replace(w, traps=(*w.traps, *traps.get(w.number, ()))) for w in arm.writers)
    return replace(arm, writers=writers)


def wanted_kills(steps: Mapping[str, Sequence[str]], settings: Settings) -> list[tuple[str, str]]:
    """(step, before or after) of every planned kill."""
    return [(step, when) for step, when, action in _wanted(steps, settings) if action == "kill"]


def _wanted(steps: Mapping[str, Sequence[str]], settings: Settings) -> list[tuple[str, str, str]]:
    """(step, when, action) of every planned trap; steps that few kinds of writers perform are first."""
    met = dict.fromkeys(step for names in steps.values() for step in names)
    everywhere = [step for step in met if step not in LUCKY_STEPS]
    wanted = [(step, when, "kill") for step in everywhere for when in ("before", "after")]
    wanted.append((CALLER_STEP, "before", "kill"))
    wanted *= settings.kills_per_step
    wanted += [(step, when, "pause") for step, when in PAUSES if step in everywhere]
    wanted = [trap for trap in wanted if not settings.steps or trap[0] in settings.steps]
    return sorted(wanted, key=lambda trap: sum(trap[0] in names for names in steps.values()) or 9)
