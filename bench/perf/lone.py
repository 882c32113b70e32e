"""Measures the latency of a lone append: warm and cold, small and large, near and 30 ms away."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .contest import DELTA, Contest, Place
from .figures import Aim, Line, Scenario, at_most, interleave, paired
from .scale import Scale
from .writers import Append

TEMPERATURES = ("warm", "cold")


def run(scale: Scale, folder: Path, contest: Contest = DELTA) -> Scenario:
    """Time appends of one writer that has the table to itself."""
    lines: list[Line] = []
    with contest.ground(folder, scale.delay_s) as lab:
        for rows in scale.lone_rows:
            rounds = scale.lone_rounds if rows <= 10_000 else max(3, scale.lone_rounds // 2)
            for temperature in TEMPERATURES:
                case = f"{rows:,} rows, {temperature}"
                lines += _case(contest, lab, case, temperature, rows=rows, rounds=rounds, slow=False)
        rows, rounds = scale.lone_rows[0], max(3, scale.lone_rounds // 3)
        for temperature in TEMPERATURES:
            case = f"{rows:,} rows, {temperature}, {scale.delay_s * 1000:.0f} ms away"
            lines += _case(contest, lab, case, temperature, rows=rows, rounds=rounds, slow=True)
    return Scenario(
        name="lone",
        title="A lone append",
        measures="Milliseconds from the call to its return, each writer on a table of its own, in turn. "
        f"Warm: one handle for all appends, against {contest.beside['warm']}. Cold: the table is opened "
        f"again at each append, against {contest.beside['cold']}. Ratios are to the arm or call that is named, in the same round.",
        lines=tuple(lines),
        aims=tuple(
            _aims([line for line in lines if line.case.startswith(f"{scale.lone_rows[0]:,} rows")], contest)
        ),
        notes=(*contest.notes, "Requests are counted on the way that is slowed down."),
    )


def _case(
    contest: Contest, lab: Place, case: str, temperature: str, *, rows: int, rounds: int, slow: bool
) -> list[Line]:
    writers = contest.calls
    frame = writers.frame_of(rows)
    named = {arm: (arm, False) for arm in (*contest.arms, *contest.variants)} | {
        f"{arm}, keyed": (arm, True) for arm in contest.safe
    }
    counts: dict[str, list[Counter[str]]] = {}
    arms: dict[str, Callable[[], float]] = {}
    for name, (arm, keyed) in named.items():
        # A table for each arm: on a shared one, the checkpoints that are due would all fall to the same arm.
        place = lab.place(arm, slow=slow)
        writers.create(arm, place, writers.schema())
        append = (writers.opened if temperature == "warm" else writers.opening)(arm, place)
        append(frame)
        counts[name] = []
        arms[name] = _timed(append, frame, keyed, lab if slow else None, counts[name])
    found = interleave(arms, rounds)
    lines = []
    for name, values in found.items():
        other, _ = contest.variants.get(name, (contest.peer, 0))
        peer = contest.beside[temperature] if other == contest.peer else other
        lines.append(
            Line(
                case=case,
                arm=name,
                unit="ms",
                values=tuple(values),
                peer=None if name == contest.peer else peer,
                ratios=() if name == contest.peer else paired(values, found[other]),
                extra=_requests(counts[name]),
            )
        )
    return lines


def _timed(
    append: Append, frame: Any, keyed: bool, lab: Place | None, counts: list[Counter[str]]
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


def _aims(lines: list[Line], contest: Contest) -> list[Aim]:
    aims = []
    for line in lines:
        place = 2 * ("away" in line.case) + ("cold" in line.case)
        peer, limits = contest.peer, contest.lone.get(line.arm, ())
        if line.arm in contest.variants:
            peer, limit = contest.variants[line.arm]
            limits = (limit,) * 4
        if place < len(limits) and line.ratio is not None:
            text = f"lone append, {line.case}, {line.arm} : {peer}"
            aims.append(at_most(text, limits[place], line.ratio.median))
    return aims
