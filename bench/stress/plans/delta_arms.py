"""Plans the arms on Delta: safewrite under every class of fault, and naive writers that must show loss."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from safewrite.testing.faults import FaultKind, RequestStep, Rule

from .plan import FAULT_CLASSES, OLD, PEER_THINK_S, WRANGLER, ArmPlan, Settings, WriterPlan


# --- faults -------------------------------------------------------------------------------------
def safewrite_faults(seed: int) -> tuple[Rule, ...]:
    """Every class that the promise must survive; rates are per request, a few faults for each append.

    The seed also places each class once among the first requests, so that none stays away by chance.
    """
    rng = random.Random(f"{seed}/faults")
    commit, lock = (RequestStep.PUT_COMMIT,), (RequestStep.DDB_PUT_ENTRY, RequestStep.DDB_UPDATE_ENTRY)
    data = (RequestStep.PUT_DATA, RequestStep.PUT_TEMP)
    ledger = (RequestStep.PUT_LEDGER, RequestStep.UPDATE_LEDGER)
    late = {"delay_s": 0.6}
    # No two rules on one request, for the first would take it.
    places = rng.sample(range(1, 2 * len(FAULT_CLASSES) + 1), len(FAULT_CLASSES))
    once = [
        Rule(kind=kind, steps=(RequestStep.PUT_DATA,) if kind is FaultKind.TRUNCATE_BODY else commit, method="PUT",
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
        Rule(
            kind=FaultKind.PRECONDITION_412,
            steps=(RequestStep.DDB_PUT_ENTRY, RequestStep.PUT_LEDGER),
            probability=0.02,
        ),
        Rule(kind=FaultKind.THROTTLE, steps=(*lock, *ledger, *data), probability=0.02),
        Rule(kind=FaultKind.TRUNCATE_BODY, steps=(RequestStep.PUT_DATA,), method="PUT", probability=0.01),
        Rule(kind=FaultKind.ERROR_500, probability=0.005),
        Rule(kind=FaultKind.ERROR_503, probability=0.005),
        Rule(kind=FaultKind.CUT, probability=0.005),
        Rule(kind=FaultKind.DELAY, probability=0.02, delay_s=0.25),
    )


ARBITERS = {"dynamodb": "DynamoDB arbiter", "object-store": "object-store arbiter"}


def member_faults() -> tuple[Rule, ...]:
    """Faults of what writers that share a commit put into their queue, read from it, and take out."""
    put, out = (RequestStep.LEASE,), (RequestStep.DELETE,)
    return (
        Rule(kind=FaultKind.LOST_ANSWER, steps=put, method="PUT", probability=0.05),
        Rule(kind=FaultKind.LATE, steps=put, method="PUT", probability=0.03, delay_s=0.6),
        Rule(kind=FaultKind.LOST_ANSWER, steps=out, probability=0.05),
        Rule(kind=FaultKind.ERROR_503, steps=(*put, *out, RequestStep.LIST_OTHER), probability=0.02),
    )


def faults_of(seed: int, arbiter: str) -> tuple[Rule, ...]:
    """The faults of an arbiter: without a lock table none of DynamoDB."""
    rules = safewrite_faults(seed)
    return _without_lock(rules) if arbiter == "object-store" else rules


def peer_faults() -> tuple[Rule, ...]:
    """The faults that deltalake as a peer meets: enough to trouble it, not to stop it."""
    return (
        Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_COMMIT,), probability=0.03),
        Rule(kind=FaultKind.ERROR_503, probability=0.005),
        Rule(kind=FaultKind.DELAY, probability=0.02, delay_s=0.25),
    )


# --- arms ---------------------------------------------------------------------------------------
_PANDAS = ("safewrite pandas, key", {"frame": "pandas", "keyed": True, "on_unknown": "retry"})
_POLARS = ("safewrite polars, txn", {"frame": "polars", "txn": True, "on_unknown": "retry"})
_ARROW = ("safewrite Arrow, no key", {"frame": "arrow", "on_restart": "give up"})
_PEER = "deltalake 1.6 conditional PUT (peer)"


def _safewrite(
    settings: Settings, base: int, arbiter: str, writers: int, appends: int, **more: Any
) -> tuple[WriterPlan, ...]:
    peers = max(1, writers // 4)
    kinds = [(_PANDAS, _POLARS, _PANDAS, _ARROW)[index % 4] for index in range(writers - peers)]
    common = {"arbiter": arbiter, "on_error": "retry", "calls_max": 12, "lease_s": settings.lease_s, **more}
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


def _spark_default(base: int) -> tuple[WriterPlan, ...]:
    """Two drivers on the log store that Delta takes for S3 by itself: each looks whether the version is
    there, then puts it.  They start together, however long a JVM takes; deltalake is done by then on a slow
    machine.
    """
    drivers = tuple(
        WriterPlan(
            base + i, "Spark df.write, Delta's own log store", "spark_plain.py", spark=True, appends=10
        )
        for i in range(2)
    )
    others = tuple(
        WriterPlan(
            base + 50 + i,
            "deltalake 1.6, conditional PUT",
            "deltalake_put.py",
            appends=40,
            rows=20,
            habits=(("think_s", 0.5),),
        )
        for i in range(2)
    )
    return drivers + others


SAFE_ARMS = ("safewrite-dynamodb", "safewrite-object-store")
SHARED_ARMS = ("safewrite-shared",)
"""Writers that share commits from their first try on, while those who commit for the others are killed."""
NAIVE_ARMS = ("unsafe-rename", "mixed-fleet", "lost-answer", "awswrangler")
SPARK_ARMS = ("spark-default",)
"""Naive arms that need Spark, so they run only with ``--spark``."""


def make_arm(name: str, settings: Settings, base: int) -> ArmPlan:
    """The plan of one arm, whose writers are numbered from ``base``, before kills are placed."""
    slow = (
        Rule(
            kind=FaultKind.DELAY,
            steps=(RequestStep.PUT_COMMIT, RequestStep.LIST_LOG),
            probability=0.2,
            delay_s=0.03,
        ),
    )
    late = (Rule(kind=FaultKind.DELAY, steps=(RequestStep.PUT_COMMIT,), probability=0.3, delay_s=1.0),)
    lost = (Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_COMMIT,), every=3),)
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
                faults_of(settings.seed, "object-store"),
                peer_faults(),
                "object-store",
            )
        case "safewrite-shared":
            more = {"group": "always"}
            writers = _safewrite(settings, base, "dynamodb", settings.writers, settings.appends, **more)
            faults = (*safewrite_faults(settings.seed), *member_faults())
            title = "safewrite, writers that share commits"
            return ArmPlan(name, title, writers, faults, peer_faults(), "dynamodb", shares=True)
        case "unsafe-rename":
            return ArmPlan(name, "deltalake 0.22.3 with unsafe rename", _unsafe_rename(base), naive=True)
        case "mixed-fleet":
            title = "Half on the lock table (0.22.3), half by conditional PUT (1.6)"
            return ArmPlan(name, title, _mixed_fleet(settings, base), peer_faults=slow, naive=True)
        case "lost-answer":
            title = "deltalake 1.6 under lost answers, read by its change feed"
            return ArmPlan(name, title, _lost_answer(base), peer_faults=lost, naive=True, change_feed=True)
        case "spark-default":
            title = "Spark with Delta's own log store, next to deltalake 1.6"
            return ArmPlan(name, title, _spark_default(base), peer_faults=late, naive=True)
        case "awswrangler":
            title = "awswrangler, killed after the commit and run again"
            return ArmPlan(name, title, _wrangler(settings, base), naive=True)
    raise ValueError(f"no Delta arm is named {name!r}")


def _without_lock(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """The same rules without those for DynamoDB."""
    return tuple(
        replace(rule, steps=kept)
        for rule in rules
        if (kept := tuple(s for s in rule.steps if not s.startswith("ddb_"))) or not rule.steps
    )
