"""Measures shared commits: many processes on one table 30 ms away, that share, that do not, and that commit nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import contention, writers
from .contest import DELTA, Contest, alone
from .figures import Aim, Line, Scenario, at_least, at_most, interleave, paired
from .scale import Scale

PART_OF_STAGING, MEMBERS_MIN = 0.8, 24
Cells = Mapping[str, Sequence[dict[str, Any]]]


def run(scale: Scale, folder: Path, contest: Contest = DELTA) -> Scenario:
    """Let writers that share commits, writers that do not, the peer, and writers that only upload contend."""
    lines: list[Line] = []
    aims: list[Aim] = []
    broken: list[str] = []
    judged, peer = (*contest.safe, *alone(contest.safe)), contest.peer

    def look(place: Any) -> dict[str, Any]:
        return {"versions": contest.calls.versions_in(place)}

    with contest.ground(folder, scale.delay_s) as lab:
        for processes in scale.group_processes:
            cells = {
                arm: partial(contention.cell_of, contest, lab, arm, processes, scale, slow=True, look=look)
                for arm in (*judged, writers.STAGED, peer)
            }
            found = interleave(cells, scale.contention_rounds)
            case = f"{processes} processes, {scale.delay_s * 1000:.0f} ms away"
            lines += [_line(case, arm, found, contest) for arm in found]
            aims += _aims(case, processes, found, contest)
            broken += [
                said
                for arm in judged
                for cell in found[arm]
                for said in contention.unsound(f"{case}, {arm}", cell)
            ]
    return Scenario(
        name="group",
        title="Writers that share commits",
        measures=f"Writes acked per second of many processes on one table {scale.delay_s * 1000:.0f} ms away, each of "
        f"{scale.contention_rows:,} rows and one after the other, within the window of `contention`. {writers.STAGED!r} encodes and "
        f"uploads the same rows and commits nothing: no writer can be quicker. Ratios are to {peer} in the same round.",
        lines=tuple(lines),
        aims=(*aims, at_most("group: safewrite appends not acked, or not in the table as acked", 0, len(broken))),
        notes=(
            "acks/commit: acked writes for each version of the table.",
            (f"'alone' is group=\"never\", the others group=\"auto\", the default. {writers.STAGED!r} shows what the cores give: where its "
            "rate is near, sharing is limited by them."),
        ),
        broken=tuple(broken),
    )  # fmt: skip


def _line(case: str, arm: str, found: Cells, contest: Contest) -> Line:
    rates = {name: tuple(cell["commits_per_s"] for cell in cells) for name, cells in found.items()}
    extra = contention.extra_of(list(found[arm]), contest.attempt_step)
    peer = contest.peer
    versions = sum(cell["versions"] for cell in found[arm])
    return Line(
        case=case, arm=arm, unit="acked/s", values=rates[arm], peer=None if arm == peer else peer,
        ratios=() if arm == peer else paired(rates[arm], rates[peer]),
        extra={**extra, "acks/commit": round(extra["acked"] / versions, 1) if versions else None, "p99": _p99(found[arm])},
    )  # fmt: skip


def _p99(cells: Sequence[dict[str, Any]]) -> float | None:
    ordered = sorted(second for cell in cells for second in cell["latencies_s"])
    return round(ordered[int(0.99 * (len(ordered) - 1))], 3) if ordered else None


def _aims(case: str, processes: int, found: Cells, contest: Contest) -> list[Aim]:
    aims = []
    for shared, lone in zip(contest.safe, alone(contest.safe), strict=True):
        line, apart, staged = (_line(case, arm, found, contest) for arm in (shared, lone, writers.STAGED))
        of_peer = line.ratio.median / contest.sharing if line.ratio is not None else 0.0
        of_staging = line.spread.median / max(staged.spread.median, 1e-9) / PART_OF_STAGING
        text = f"{case}, {shared}: acked/s over {contest.sharing:g} times {contest.peer}'s, or over {PART_OF_STAGING:g} of staging"
        aims.append(at_least(text, 1.0, max(of_peer, of_staging)))
        if processes >= 2 * MEMBERS_MIN:
            aims.append(
                at_least(f"{case}, {shared}: acks/commit", MEMBERS_MIN, line.extra["acks/commit"] or 0)
            )
        slowest = (line.extra["p99"] or math.inf) / (apart.extra["p99"] or math.inf)
        aims.append(at_most(f"{case}, {shared}: p99 : alone", 1.0, slowest))
    return aims
