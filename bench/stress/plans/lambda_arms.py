"""Plans the arms in Lambda: functions fed by SQS on one Delta table, and what befalls their environments."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .delta_arms import peer_faults, safewrite_faults
from .plan import CALLER_STEP, MAIN, WRANGLER, ArmPlan, Settings, WriterPlan, wanted_kills

SAFE_ARMS = ("safewrite-lambda",)
NAIVE_ARMS = ("awswrangler-lambda",)
FUNCTIONS = 4
"""How many environments a function has where nobody says."""
ENDS = (
    ("kill", "any-moment", "during"), ("kill", "time-limit", "during"), ("pause", "between-invocations", "during"),
)  # fmt: skip
"""What befalls an environment besides kills at steps: killed from outside, cut off at a deadline, frozen for long."""
DELIVERIES_MAX = 3
"""A message that succeeded is delivered this many times at most."""
LIMIT_S = 120.0
"""The time limit of a function; a write ends well before it.  A message whose earlier delivery was killed makes the next
one look through the log, and one that is killed in turn has found nothing.
"""
SERVING_MAX, STARTING_MAX = 8, 3
"""Environments of a function that serve, and that start, at once: of more, two cores would give each too little time
for a commit to end within its limit.  The others exist, frozen.
"""
FAULTS_MAX, POISON_MAX = 16, 40
"""Of each kind from outside: each kill costs the start of an environment, which is dearer than a commit."""
_ROWS_MAX = 50
"""Rows travel in the message, and SQS takes a megabyte for a batch of them."""
_BATCH_MEAN = 5.5
_STEPS_MAX = 20
"""A commit under a key has fewer."""


def make_arm(name: str, settings: Settings, base: int) -> ArmPlan:
    """The plan of one arm, before kills are placed."""
    if name == "safewrite-lambda":
        writer = _writer(settings, base, "safewrite in Lambda, key", "lambda_safewrite", judged=True)
        faults = safewrite_faults(settings.seed)
        return ArmPlan(name, "safewrite in Lambda, fed by SQS", (writer,), faults, arbiter="dynamodb")
    if name == "awswrangler-lambda":
        writer = _writer(settings, base, "awswrangler in Lambda, lock table", "lambda_wrangler", judged=False)
        title = "awswrangler in Lambda, fed by SQS"
        return ArmPlan(name, title, (writer,), peer_faults=peer_faults(), naive=True)
    raise ValueError(f"no arm in Lambda is named {name!r}")


def _writer(settings: Settings, number: int, kind: str, handler: str, *, judged: bool) -> WriterPlan:
    functions = settings.lambda_ or FUNCTIONS
    messages = settings.appends * functions
    faults = min(FAULTS_MAX, max(2, messages // 20))
    habits: dict[str, Any] = {
        "handler": f"{handler}.lambda_handler", "functions": functions, "limit_s": LIMIT_S, "timeout_s": LIMIT_S / 3,
        "serving_max": min(functions, SERVING_MAX), "starting_max": STARTING_MAX, "lease_s": settings.lease_s,
        "faults": faults, "poison": min(POISON_MAX, max(2, messages // 20)), "frozen_s": settings.pause_s,
        "deliveries_max": DELIVERIES_MAX, "received_max": _received_max(settings, messages, faults),
    }  # fmt: skip
    after_commit = {"action": "kill", "step": CALLER_STEP, "when": "before", "seq": 0}
    return WriterPlan(
        number, kind, "lambda_fleet.py", environment=MAIN if judged else WRANGLER, judged=judged,
        functions=functions, appends=messages, rows=min(settings.rows, _ROWS_MAX), habits=tuple(habits.items()),
        traps=() if judged else (after_commit,),
    )  # fmt: skip


def _received_max(settings: Settings, messages: int, faults: int) -> int:
    """Receives after which a message is a dead letter: no good one must be, however many batches are killed."""
    killed = 2 * faults + 2 * (len(settings.steps) or _STEPS_MAX) * settings.kills_per_step
    return DELIVERIES_MAX + 10 + math.ceil(3 * killed * _BATCH_MEAN / messages)


def place_traps(arm: ArmPlan, steps: Mapping[str, Sequence[str]], settings: Settings) -> ArmPlan:
    """Give every function a kill before and after each step of a commit, and the ends from outside."""
    return replace(
        arm,
        writers=tuple(
            replace(writer, traps=_traps(writer, steps, settings)) if writer.functions else writer
            for writer in arm.writers
        ),
    )


def _traps(
    writer: WriterPlan, steps: Mapping[str, Sequence[str]], settings: Settings
) -> tuple[dict[str, Any], ...]:
    kills = [
        {"action": "kill", "step": step, "when": when, "seq": 0}
        for step, when in wanted_kills({"key": steps["key"]}, settings)
    ]
    random.Random(f"{settings.seed}/{writer.number}/traps").shuffle(kills)
    others = [{"action": action, "step": step, "when": when, "seq": 0} for action, step, when in ENDS]
    return (*kills, *others)
