"""Latency of a lone append: warm and cold, small and large, near and 30 ms away."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import writers
from .figures import Aim, Line, Scenario, at_most, interleave, paired
from .lab import Lab
from .scale import Scale

TEMPERATURES = {"warm": writers.opened, "cold": writers.opening}
_NAMED = {
    **{arm: (arm, False) for arm in writers.ARMS},
    **{f"{arm}, keyed": (arm, True) for arm in writers.SAFE},
}
_BESIDE = {"warm": "write_deltalake(handle)", "cold": "write_deltalake(uri)"}


def run(scale: Scale, folder: Path) -> Scenario:
    """Time appends of one writer that has the table to itself."""
    lines: list[Line] = []
    with Lab(folder, delay_s=scale.delay_s) as lab:
        for rows in scale.lone_rows:
            rounds = scale.lone_rounds if rows <= 10_000 else max(3, scale.lone_rounds // 2)
            for temperature in TEMPERATURES:
                lines += _case(lab, f"{rows:,} rows, {temperature}", rows, temperature, rounds, slow=False)
        rows, rounds = scale.lone_rows[0], max(3, scale.lone_rounds // 3)
        for temperature in TEMPERATURES:
            case = f"{rows:,} rows, {temperature}, {scale.delay_s * 1000:.0f} ms away"
            lines += _case(lab, case, rows, temperature, rounds, slow=True)
    return Scenario(
        name="lone",
        title="A lone append",
        measures="Milliseconds from the call to its return for a pandas frame, each writer on a table of its own, "
        "in turn. Warm: one handle for all appends, beside write_deltalake(DeltaTable). Cold: the table is opened "
        "anew at each append, beside write_deltalake(uri). Ratios are to deltalake in the same round.",
        lines=tuple(lines),
        aims=tuple(_aims(lines)),
        notes=(
            (
                "Medians leave out the appends that write a checkpoint: safewrite's every 10 versions (its default), "
                "within the append that is due; deltalake's every 100. They show in max."
            ),
            (
                "deltalake has no idempotency key, reads nothing back and verifies nothing; keyed lines are held "
                "against its plain append."
            ),
            "Requests are counted on the way that is slowed down.",
        ),
    )


def _case(lab: Lab, case: str, rows: int, temperature: str, rounds: int, *, slow: bool) -> list[Line]:
    frame = writers.make_frame(rows)
    counts: dict[str, list[Counter[str]]] = {}
    arms: dict[str, Callable[[], float]] = {}
    for name, (arm, keyed) in _NAMED.items():
        # A table each: on a shared one, the checkpoints that are due would all fall to the same arm.
        place = lab.place(arm, slow=slow)
        writers.create(arm, place, writers.schema())
        append = TEMPERATURES[temperature](arm, place)
        append(frame)
        counts[name] = []
        arms[name] = _timed(append, frame, keyed, lab if slow else None, counts[name])
    found = interleave(arms, rounds)
    beside = found[writers.DELTALAKE]
    return [
        Line(
            case=case,
            arm=name,
            unit="ms",
            values=tuple(values),
            peer=None if name == writers.DELTALAKE else _BESIDE[temperature],
            ratios=() if name == writers.DELTALAKE else paired(values, beside),
            extra=_requests(counts[name]),
        )
        for name, values in found.items()
    ]


def _timed(
    append: writers.Append, frame: Any, keyed: bool, lab: Lab | None, counts: list[Counter[str]]
) -> Callable[[], float]:
    def once() -> float:
        key = f"event-{len(counts)}" if keyed else None
        before = lab.requests() if lab else Counter()
        began = time.perf_counter()
        append(frame, key)
        elapsed_s = time.perf_counter() - began
        counts.append(lab.requests() - before if lab else Counter())
        return elapsed_s * 1000

    return once


def _requests(counts: list[Counter[str]]) -> dict[str, Any]:
    if not any(counts):
        return {}
    median = statistics.median_low([count.total() for count in counts])
    typical = next(count for count in counts if count.total() == median)
    return {"requests": median, "requests_by_step": dict(sorted(typical.items()))}


def _aims(lines: list[Line]) -> list[Aim]:
    return [
        at_most(f"lone append, {line.case}, {line.arm} : deltalake", 1.0, line.ratio.median)
        for line in lines
        if line.arm in writers.SAFE and line.ratio is not None
    ]
