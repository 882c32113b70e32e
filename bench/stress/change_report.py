"""Says of an arm under a change log what became of its keys: for the JSON, the page and the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from . import words
from .arm import ArmResult
from .change_check import ChangeFlaw
from .writers import change_log

MAIN_FLAWS = ("doubled", "revived", "stale", "missing", "altered")
"""The flaws of the closing table; the others are in it where they are not 0."""


def to_dict(arm: ArmResult) -> dict[str, Any] | None:
    """The figures of one arm; None where its writers append."""
    found, plan = arm.comparison, arm.plan.log
    if found is None or plan is None:
        return None
    log = change_log.draw(arm.seed, plan)
    return {
        "changes": len(log.changes), "operations": dict(sorted(Counter(one.op for one in log.changes).items())),
        "keys_changed": len(log.moves), "keys": found.keys, "batches": len(log.batches),
        "in_batches": sum(map(len, log.batches)), "deliveries": len(log.deliveries),
        "delivered_twice": change_log.twice(log), "acked_batches": found.acked_batches,
        "acked_changes": found.acked_changes, "uncertain_keys": found.uncertain, "flaws": found.counts(),
        "told": dict(found.told), "examples": found.examples, "readers": list(dict.fromkeys(arm.verdict.reads)),
    }  # fmt: skip
