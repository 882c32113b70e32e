"""Places kills and pauses at the steps of writers that share commits: of those who lead, and of those who wait."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from safewrite.testing.history import EventKind

from .plan import ArmPlan, Settings

LEADER_STEPS = ("share.get_member", "lead.put_commit", "lead.verify", "share.delete")
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
    wanted = [(step, when, "kill") for step in (*LEADER_STEPS, *WAITING_STEPS) for when in _SIDES]
    wanted += [("lead.put_commit", when, "pause") for when in _SIDES]
    wanted = [trap for trap in wanted if not settings.steps or trap[0] in settings.steps]
    traps: dict[int, list[dict[str, Any]]] = {writer.number: [] for writer in again}
    for step, when, action in wanted * settings.kills_per_step:
        writer = rng.choice(again)
        seq = rng.randrange(max(1, writer.appends // 2))
        traps[writer.number].append({"seq": seq, "step": step, "when": when, "action": action, "lucky": True})
    writers = tuple(replace(w, traps=(*w.traps, *traps.get(w.number, ()))) for w in arm.writers)
    return replace(arm, writers=writers)


def fired(arm: ArmPlan, marked: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How often a writer was killed that committed for others."""
    if not any(trap["step"] in LEADER_STEPS for writer in arm.writers for trap in writer.traps):
        return {}
    kills = [e for e in marked if e["event"] == EventKind.KILL and e["step"] in LEADER_STEPS]
    return {KILLED: len(kills)}
