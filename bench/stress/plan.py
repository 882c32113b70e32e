"""What a run will do, all of it drawn from one seed: writers, kills, pauses and faults."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safewrite.testing.faults import FaultKind, FaultPlan, Rule, Step

MAIN, OLD, WRANGLER = "main", "deltalake-0.22", "awswrangler"
WRITERS_PER_ARM_MAX = 100
SOAK_FACTOR = 100
"""How many times the appends of a usual run the long one makes."""
# Met only when writers collide or repair, so a plan cannot place them: each traps its first visitor.
LUCKY_STEPS = (
    "lease.take", "lease.read", "lease.pass", "commit.get_commit", "commit.get_entry", "commit.read_back",
    "repair.get_temp", "repair.put_commit", "repair.complete",
)  # fmt: skip
CALLER_STEP = "caller.record_ack"
"""After the library has returned and before the caller has noted it."""
FRESH_STEPS = ("together",)
"""Met only by an append whose process has just looked at the log and knows of no rival: the rehearsal's,
and the retry of a killed one under the same key.  So they are placed in such a retry."""
PEER_THINK_S = 2.0
"""Mean time between the appends of a peer, so that it is there for most of the run."""
PAUSES = (
    ("stage.put_data", "after"), ("commit.put_entry", "after"), ("commit.put_commit", "before"),
    ("commit.put_commit", "after"), ("commit.complete", "after"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user chooses.  ``rows`` is per append, ``appends`` per writer; times in seconds."""

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
    steps: tuple[str, ...] = ()
    """Kill and pause at these steps alone; empty: at all."""


@dataclass(frozen=True, slots=True)
class WriterPlan:
    """One writer process.  ``judged`` writers are safewrite's: any flaw of theirs fails the run."""

    number: int
    kind: str
    program: str
    environment: str = MAIN
    judged: bool = False
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


@dataclass(frozen=True, slots=True)
class ArmPlan:
    """Writers on one table, and what happens to them.

    ``faults`` hit the judged writers, ``peer_faults`` the others (through a proxy of their own, so
    that counts are not mixed).  ``naive`` arms must show loss or doubling.
    """

    name: str
    title: str
    writers: tuple[WriterPlan, ...]
    faults: tuple[Rule, ...] = ()
    peer_faults: tuple[Rule, ...] = ()
    arbiter: str | None = None
    naive: bool = False
    change_feed: bool = False

    @property
    def environments(self) -> set[str]:
        """The environments whose interpreters it needs."""
        return {writer.environment for writer in self.writers}

    def fault_plan(self, seed: int) -> FaultPlan:
        """The plan of the judged writers' proxy."""
        return FaultPlan(seed, self.faults)

    def peer_plan(self, seed: int) -> FaultPlan:
        """The plan of the other writers' proxy."""
        return FaultPlan(seed + 1, self.peer_faults)


FAULT_CLASSES = (
    FaultKind.LOST_ANSWER, FaultKind.LOST_ANSWER_500, FaultKind.PRECONDITION_412, FaultKind.CONFLICT_409,
    FaultKind.LATE, FaultKind.THROTTLE, FaultKind.TRUNCATE_BODY, FaultKind.ERROR_500, FaultKind.ERROR_503,
    FaultKind.CUT, FaultKind.DELAY,
)  # fmt: skip


# --- faults -------------------------------------------------------------------------------------
def safewrite_faults(seed: int) -> tuple[Rule, ...]:
    """Every class that the promise must survive; rates are per request, a few faults for each append.

    Each class is placed once by the seed among the first requests too, so that none stays away by chance.
    """
    rng = random.Random(f"{seed}/faults")
    commit, lock = (Step.PUT_COMMIT,), (Step.DDB_PUT_ENTRY, Step.DDB_UPDATE_ENTRY)
    data = (Step.PUT_DATA, Step.PUT_TEMP)
    ledger = (Step.PUT_LEDGER, Step.UPDATE_LEDGER)
    late = {"delay_s": 0.6}
    # No two on one request, for the first rule would take it.
    places = rng.sample(range(1, 2 * len(FAULT_CLASSES) + 1), len(FAULT_CLASSES))
    once = [
        Rule(kind=kind, steps=(Step.PUT_DATA,) if kind is FaultKind.TRUNCATE_BODY else commit, method="PUT",
             nth=nth, **(late if kind in (FaultKind.LATE, FaultKind.DELAY) else {}))
        for kind, nth in zip(FAULT_CLASSES, places, strict=True)
    ]  # fmt: skip
    return (
        *once,
        Rule(kind=FaultKind.LOST_ANSWER, steps=commit, probability=0.06),
        Rule(kind=FaultKind.LOST_ANSWER_500, steps=commit, probability=0.05),
        Rule(kind=FaultKind.PRECONDITION_412, steps=commit, probability=0.05),
        Rule(kind=FaultKind.CONFLICT_409, steps=commit, probability=0.05),
        Rule(kind=FaultKind.LATE, steps=commit, probability=0.02, delay_s=0.6),
        Rule(kind=FaultKind.LOST_ANSWER, steps=(*data, *lock, *ledger), probability=0.02),
        Rule(kind=FaultKind.LOST_ANSWER_500, steps=(*data, *lock, *ledger), probability=0.02),
        Rule(kind=FaultKind.PRECONDITION_412, steps=(Step.DDB_PUT_ENTRY, Step.PUT_LEDGER), probability=0.02),
        Rule(kind=FaultKind.THROTTLE, steps=(*lock, *ledger, *data), probability=0.02),
        Rule(kind=FaultKind.TRUNCATE_BODY, steps=(Step.PUT_DATA,), method="PUT", probability=0.01),
        Rule(kind=FaultKind.ERROR_500, probability=0.005),
        Rule(kind=FaultKind.ERROR_503, probability=0.005),
        Rule(kind=FaultKind.CUT, probability=0.005),
        Rule(kind=FaultKind.DELAY, probability=0.02, delay_s=0.25),
    )


def peer_faults() -> tuple[Rule, ...]:
    """What deltalake as a peer meets: enough to trouble it, not to stop it."""
    return (
        Rule(kind=FaultKind.LOST_ANSWER, steps=(Step.PUT_COMMIT,), probability=0.03),
        Rule(kind=FaultKind.ERROR_503, probability=0.005),
        Rule(kind=FaultKind.DELAY, probability=0.02, delay_s=0.25),
    )


# --- arms ---------------------------------------------------------------------------------------
_PANDAS = ("safewrite pandas, key", {"frame": "pandas", "keyed": True, "on_unknown": "retry"})
_POLARS = ("safewrite polars, txn", {"frame": "polars", "txn": True, "on_unknown": "retry"})
_ARROW = ("safewrite Arrow, no key", {"frame": "arrow", "on_restart": "give up"})
_PEER = "deltalake 1.6 conditional PUT (peer)"


def _safewrite(
    settings: Settings, base: int, arbiter: str, writers: int, appends: int
) -> tuple[WriterPlan, ...]:
    peers = max(1, writers // 4)
    kinds = [(_PANDAS, _POLARS, _PANDAS, _ARROW)[index % 4] for index in range(writers - peers)]
    common = {"arbiter": arbiter, "on_error": "retry", "calls_max": 12, "lease_s": settings.lease_s}
    ours = tuple(
        WriterPlan(
            base + index,
            kind,
            "safewrite_writer.py",
            judged=True,
            appends=appends,
            rows=settings.rows,
            habits=tuple({**habits, **common}.items()),
        )
        for index, (kind, habits) in enumerate(kinds)
    )
    theirs = tuple(
        WriterPlan(
            base + 50 + index,
            _PEER,
            "deltalake_put.py",
            appends=appends,
            rows=50,
            habits=(("think_s", PEER_THINK_S),),
        )
        for index in range(peers)
    )
    return ours + theirs


def _unsafe_rename(base: int) -> tuple[WriterPlan, ...]:
    unsafe = (("AWS_S3_ALLOW_UNSAFE_RENAME", "true"),)
    return tuple(
        WriterPlan(
            base + i, "deltalake 0.22.3, unsafe rename", "deltalake_put.py", OLD, appends=8, storage=unsafe
        )
        for i in range(8)
    )


def _mixed_fleet(settings: Settings, base: int) -> tuple[WriterPlan, ...]:
    lock = (("AWS_S3_LOCKING_PROVIDER", "dynamodb"), ("DELTA_DYNAMO_TABLE_NAME", settings.lock_table))
    old = tuple(
        WriterPlan(
            base + i, "deltalake 0.22.3, lock table", "deltalake_put.py", OLD, appends=12, storage=lock
        )
        for i in range(4)
    )
    new = tuple(
        WriterPlan(base + 50 + i, "deltalake 1.6, conditional PUT", "deltalake_put.py", appends=12)
        for i in range(4)
    )
    return old + new


def _lost_answer(base: int) -> tuple[WriterPlan, ...]:
    return tuple(
        WriterPlan(base + i, "deltalake 1.6, lost answers", "deltalake_put.py", appends=8) for i in range(3)
    )


def _wrangler(settings: Settings, base: int) -> tuple[WriterPlan, ...]:
    killed = ({"seq": 2, "step": "caller.record_ack", "when": "before", "action": "kill"},)
    habits = (
        ("lock_table", settings.lock_table),
        ("on_error", "retry"),
        ("on_unknown", "retry"),
        ("calls_max", 5),
    )
    return tuple(
        WriterPlan(
            base + i,
            "awswrangler, lock table",
            "wrangler.py",
            WRANGLER,
            appends=5,
            traps=killed,
            habits=habits,
        )
        for i in range(4)
    )


SAFE_ARMS = ("safewrite-dynamodb", "safewrite-object-store")
NAIVE_ARMS = ("unsafe-rename", "mixed-fleet", "lost-answer", "awswrangler")
ARMS = SAFE_ARMS + NAIVE_ARMS


def make_arm(name: str, settings: Settings) -> ArmPlan:
    """The plan of one arm, before kills are placed (:func:`place_traps`)."""
    base = WRITERS_PER_ARM_MAX * (1 + ARMS.index(name))
    slow = (
        Rule(kind=FaultKind.DELAY, steps=(Step.PUT_COMMIT, Step.LIST_LOG), probability=0.2, delay_s=0.03),
    )
    lost = (Rule(kind=FaultKind.LOST_ANSWER, steps=(Step.PUT_COMMIT,), every=3),)
    few = max(5, settings.writers // 2)
    match name:
        case "safewrite-dynamodb":
            writers = _safewrite(settings, base, "dynamodb", settings.writers, settings.appends)
            title = "safewrite, DynamoDB arbiter"
            return ArmPlan(name, title, writers, safewrite_faults(settings.seed), peer_faults(), "dynamodb")
        case "safewrite-object-store":
            writers = _safewrite(settings, base, "object-store", few, max(3, settings.appends // 2))
            title = "safewrite, object-store arbiter"
            return ArmPlan(
                name,
                title,
                writers,
                _without_lock(safewrite_faults(settings.seed)),
                peer_faults(),
                "object-store",
            )
        case "unsafe-rename":
            return ArmPlan(name, "deltalake 0.22.3 with unsafe rename", _unsafe_rename(base), naive=True)
        case "mixed-fleet":
            title = "Half on the lock table (0.22.3), half by conditional PUT (1.6)"
            return ArmPlan(name, title, _mixed_fleet(settings, base), peer_faults=slow, naive=True)
        case "lost-answer":
            title = "deltalake 1.6 under lost answers, read by its change feed"
            return ArmPlan(name, title, _lost_answer(base), peer_faults=lost, naive=True, change_feed=True)
        case "awswrangler":
            title = "awswrangler, killed after the commit and run again"
            return ArmPlan(name, title, _wrangler(settings, base), naive=True)
    raise ValueError(f"no arm is named {name!r}; there are {', '.join(ARMS)}")


def _without_lock(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The same rules where no DynamoDB is asked."""
    return tuple(
        replace(rule, steps=kept)
        for rule in rules
        if (kept := tuple(s for s in rule.steps if not s.startswith("ddb_"))) or not rule.steps
    )


# --- kills and pauses -----------------------------------------------------------------------------
def place_traps(arm: ArmPlan, steps: Mapping[str, Sequence[str]], settings: Settings) -> ArmPlan:
    """Give every step of a commit its SIGKILL, before and after, and some a SIGSTOP.

    ``steps`` are the names of the effects that one lone append performs, by how it is identified
    (``key``, ``txn``, ``none``).  Each (step, before or after) falls to another writer that comes
    by it, and another append, by the seed, in the first two thirds of the run: where an append
    happens to go without the step, a later one is hit.
    """
    rng = random.Random(f"{settings.seed}/{arm.name}/traps")
    judged = [writer for writer in arm.writers if writer.judged]
    slots = [(writer, seq) for writer in judged for seq in range(1, max(2, writer.appends * 2 // 3))]
    rng.shuffle(slots)
    traps: dict[int, list[dict[str, Any]]] = {writer.number: [] for writer in judged}
    taken: set[tuple[int, int]] = set()
    for step, when, action in _wanted(steps, settings):
        fresh = step in FRESH_STEPS
        fit = [
            (w.number, seq)
            for w, seq in slots
            if step == CALLER_STEP or (step in steps[w.identity] and (w.identity == "key" or not fresh))
        ]
        # An append of its own while there are any; in a short run some are killed twice.
        number, seq = next((slot for slot in fit if slot not in taken), rng.choice(fit))
        taken.add((number, seq))
        if fresh:
            traps[number].append({"seq": seq, "step": "stage.put_data", "when": "before", "action": "kill"})
        traps[number].append({"seq": seq, "step": step, "when": when, "action": action})
    keyed = [writer.number for writer in judged if writer.identity == "key"]
    for index, step in enumerate(LUCKY_STEPS if not settings.steps else ()):
        when = ("before", "after")[index % 2]
        traps[keyed[index % len(keyed)]].append({"seq": None, "step": step, "when": when, "action": "kill"})
    writers = tuple(replace(w, traps=(*w.traps, *traps.get(w.number, ()))) for w in arm.writers)
    return replace(arm, writers=writers)


def _wanted(steps: Mapping[str, Sequence[str]], settings: Settings) -> list[tuple[str, str, str]]:
    """(step, when, action) of every planned trap; steps that few kinds of writers come by are first."""
    everywhere = list(dict.fromkeys(step for names in steps.values() for step in names))
    wanted = [(step, when, "kill") for step in everywhere for when in ("before", "after")]
    wanted.append((CALLER_STEP, "before", "kill"))
    wanted *= settings.kills_per_step
    wanted += [(step, when, "pause") for step, when in PAUSES if step in everywhere]
    wanted = [trap for trap in wanted if not settings.steps or trap[0] in settings.steps]
    return sorted(wanted, key=lambda trap: sum(trap[0] in names for names in steps.values()) or 9)
