"""Places kills and pauses at the steps of writers that share commits: of those who lead, and of those who wait."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from safewrite.testing.history import EventKind

from .plan import ArmPlan, Settings

LEADER_STEPS = ("share.get_member", "lead.put_commit", "lead.verify", "share.delete")
"""Only who commits for others comes by these, on Delta."""
ICEBERG_LEADER_STEPS = ("share.get_member", "lead.commit", "lead.verify_and_close", "share.delete")
COMMIT_STEPS = ("lead.put_commit", "lead.commit")
WAITING_STEPS = ("share.put_member", "share.look", "share.poll", "share.leave")
_SIDES = ("before", "after")
KILLED = "kill of a writer that commits for others"


def place_traps(arm: ArmPlan, settings: Settings) -> ArmPlan:
    """Give the writers of an arm that shares commits their kills and pauses, by the seed.

    Who leads is decided as they meet, so none of them must come; one of those who lead must be killed at least.
    """
    judged = [writer for writer in arm.writers if writer.judged and not writer.spark]
    again = [writer for writer in judged if writer.identity != "none"]
    if not arm.shares:
        return arm
    rng = random.Random(f"{settings.seed}/{arm.name}/leaders")
    leading = steps_of(arm)
    kills = [(step, when, "kill") for step in (*leading, *WAITING_STEPS) for when in _SIDES]
    pauses = [(step, when, "pause") for step in leading if step in COMMIT_STEPS for when in _SIDES]
    wanted = {
        trap: settings.kills_per_step
        for trap in kills + pauses
        if not settings.steps or trap[0] in settings.steps
    }
    aimed = [trap for trap in wanted if trap[0] in leading and trap[2] == "kill"]
    for trap in aimed:
        wanted[trap] = max(wanted[trap], -(-settings.leader_kills // len(aimed)))
    traps: dict[int, list[dict[str, Any]]] = {writer.number: [] for writer in again}
    # No two at one place: the ledger would take the second for the first.
    places = [(writer.number, seq) for writer in again for seq in range(max(1, writer.appends // 2))]
    for (step, when, action), count in wanted.items():
        for number, seq in rng.sample(places, min(count, len(places))):
            traps[number].append({"seq": seq, "step": step, "when": when, "action": action, "lucky": True})
    writers = tuple(replace(w, traps=(*w.traps, *traps.get(w.number, ()))) for w in arm.writers)
    return replace(arm, writers=writers)


def steps_of(arm: ArmPlan) -> tuple[str, ...]:
    """The steps by which only who commits for others comes."""
    return LEADER_STEPS if arm.catalog is None else ICEBERG_LEADER_STEPS


def fired(arm: ArmPlan, marked: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How often a writer was killed that committed for others."""
    leading = steps_of(arm)
    if not any(trap["step"] in leading for writer in arm.writers for trap in writer.traps):
        return {}
    kills = [e for e in marked if e["event"] == EventKind.KILL and e["step"] in leading]
    return {KILLED: len(kills)}
