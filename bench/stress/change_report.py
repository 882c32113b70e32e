"""Says of an arm under a change log what became of its keys: for the JSON, the page and the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.table import Table

from . import glossary
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
    log = change_log.drawn(arm.seed, plan)
    return {
        "changes": len(log.changes), "operations": dict(sorted(Counter(one.op for one in log.changes).items())),
        "keys_changed": len(log.moves), "keys": found.keys, "batches": len(log.batches),
        "in_batches": sum(map(len, log.batches)), "deliveries": len(log.deliveries),
        "delivered_twice": change_log.twice(log), "acked_batches": found.acked_batches,
        "acked_changes": found.acked_changes, "uncertain_keys": found.uncertain, "flaws": found.counts(),
        "receipts": found.receipts, "counted_changes": found.counted_changes, "told": dict(found.told), "examples": found.examples, "readers": list(dict.fromkeys(arm.verdict.reads)),
    }  # fmt: skip


def table(summary: Mapping[str, Any]) -> Table:
    """The closing table of all arms under a change log; without a row where there is none."""
    arms = [arm for arm in summary["arms"] if arm["changes"]]
    found = Table(title="Change logs", box=box.SIMPLE_HEAD)
    found.add_column("")
    for arm in arms:
        found.add_column(
            arm["name"].replace("-", "\n"), justify="right", style="yellow" if arm["naive"] else ""
        )
    columns = [cells(arm) for arm in arms]
    for name in columns[0] if columns else ():
        found.add_row(name, *(str(one[name]) for one in columns))
    return found


def cells(arm: Mapping[str, Any]) -> dict[str, object]:
    """What the closing table says of an arm."""
    log = arm["changes"]
    flaws = {name: f"{log['flaws'][name]:,}" for name in MAIN_FLAWS}
    others = sum(count for name, count in log["flaws"].items() if name not in MAIN_FLAWS)
    return {
        "verdict": "destroyed" if arm["destroyed"] else arm["verdict"], "processes": arm["processes"],
        "changes": f"{log['changes']:,}", "keys": f"{log['keys']:,}", "batches": f"{log['acked_batches']} of {log['batches']}",
        "twice": log["delivered_twice"], **flaws, "other flaws": others, "acks/s": f"{arm['commits_per_s']:.1f}",
        "tries/ack": arm["attempts_per_ack"] or "–", "faults": sum(glossary.faults_of(arm).values()),
        "kills": sum(arm["kills"].values()), "pauses": sum(arm["pauses"].values()),
    }  # fmt: skip


def sentence(summary: Mapping[str, Any]) -> str:
    """What the change logs have shown; empty where there was none."""
    arms = [arm for arm in summary["arms"] if arm["changes"]]
    return " ".join(
        part
        for part in (_of([a for a in arms if not a["naive"]]), _of_others([a for a in arms if a["naive"]]))
        if part
    )


def _of(arms: list[dict[str, Any]]) -> str:
    if not arms:
        return ""
    changes, keys = (sum(arm["changes"][name] for arm in arms) for name in ("changes", "keys"))
    flaws = _flaws(arms)
    said = ", ".join(f"{count:,} {name}" for name, count in flaws.items() if count)
    kills = sum(sum(arm["kills"].values()) for arm in arms)
    faults = sum(sum(glossary.faults_of(arm).values()) for arm in arms)
    under = f"{glossary.counted(faults, 'fault')} and {glossary.counted(kills, 'kill')}"
    told = f"{said}" if said else f"0 of {keys:,} keys were doubled, revived, stale, missing or altered"
    return f"After {changes:,} changes by apply_changes, {told}, under {under}."


def _of_others(arms: list[dict[str, Any]]) -> str:
    if not arms:
        return ""
    keys = sum(arm["changes"]["keys"] for arm in arms)
    said = ", ".join(
        f"{count:,} {name}" for name, count in _flaws(arms).items() if count or name in MAIN_FLAWS[:4]
    )
    return f"By merges and upserts of other libraries, in tables that should have {keys:,} keys: {said}."


def _flaws(arms: list[dict[str, Any]]) -> dict[str, int]:
    return {str(flaw): sum(arm["changes"]["flaws"][str(flaw)] for arm in arms) for flaw in ChangeFlaw}
