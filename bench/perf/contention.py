"""Measures contention: acked commits per second, attempts and errors of many processes on one table."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..stress.proxies.proxy import CONTROL_PATH
from .contest import DELTA, Contest, Place
from .figures import Aim, Line, Scenario, at_least, at_most, interleave, paired
from .harness import child, module
from .scale import Scale

LIMIT_S = 400.0
"""Patience with one cell: safewrite's own limit of a write is 300 s."""


def run(scale: Scale, folder: Path, contest: Contest = DELTA) -> Scenario:
    """Let every arm contend at every number of processes, near and far."""
    lines: list[Line] = []
    broken: list[str] = []
    with contest.ground(folder, scale.delay_s) as lab:
        for slow, counts in ((False, scale.processes), (True, scale.processes_slow)):
            for processes in counts:
                cells: dict[str, Callable[[], dict[str, Any]]] = {
                    arm: partial(cell_of, contest, lab, arm, processes, scale, slow=slow)
                    for arm in (*contest.contended, contest.peer)
                }
                found = interleave(cells, scale.contention_rounds)
                away = f", {scale.delay_s * 1000:.0f} ms away" if slow else ""
                lines += _lines(f"{processes} processes{away}", found, contest)
                broken += _broken(f"{processes} processes{away}", found, contest)
    return Scenario(
        name="contention",
        title="Many processes on one table",
        measures=f"Commits acked per second within a window of {scale.window_s:g} s and "
        f"{scale.window_s_per_process:g} s more for each process. Each process has imported its library and opened the table before all start "
        "together, and then appends "
        f"{scale.contention_rows:,} rows at a time without a pause. {contest.contending} Ratios are to {contest.peer} in the same round.",
        lines=tuple(lines),
        aims=tuple(_aims(lines, broken, contest)),
        notes=(
            (
                f"attempts/ack: safewrite's receipts; for {contest.peer}, {contest.attempt_step} per ack as the slowed "
                "way counts them (so only there). Its failed appends' attempts are included: they were paid for."
            ),
            "errors: appends that raised. Every one of them is an append whose caller has to decide what to do.",
            "acked/s to the end: over the time to the last ack, the appends begun in the window all included.",
            "p50 and max are of acked appends, in s; fewest is what the unluckiest process got acked.",
            f"After each cell the rows of the table, as {contest.peer} reads it, are compared with the acks.",
        ),
        broken=tuple(broken),
    )


def cell_of(
    contest: Contest,
    lab: Place,
    arm: str,
    processes: int,
    scale: Scale,
    *,
    slow: bool,
    look: Callable[[Any], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """What one arm's writers did on a table of their own; ``look`` tells more of the table at the end."""
    writers = contest.calls
    place = lab.place(arm, slow=slow)
    writers.create(arm, place, writers.schema())
    window_s = scale.window_of(processes)
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        config = {
            "writers": contest.writers, "arm": arm, "place": place.to_dict(), "processes": processes,
            "rows": scale.contention_rows, "window_s": window_s, "folder": folder,
            "proxy": lab.proxy.endpoint_url + CONTROL_PATH if slow else None,
        }  # fmt: skip
        found = child(module("contender"), config, timeout_s=LIMIT_S)
    found["commits_per_s"] = found["acked_in_window"] / window_s
    if look is not None:
        found |= look(place)
    found["missing_rows"] = found["acked"] * scale.contention_rows - writers.rows_in(place)
    return found


def _lines(case: str, found: dict[str, list[dict[str, Any]]], contest: Contest) -> list[Line]:
    rates = {arm: tuple(cell["commits_per_s"] for cell in cells) for arm, cells in found.items()}
    return [
        Line(
            case=case,
            arm=arm,
            unit="commits/s",
            values=rates[arm],
            peer=None if arm == contest.peer else contest.peer,
            ratios=() if arm == contest.peer else paired(rates[arm], rates[contest.peer]),
            extra=extra_of(cells, contest.attempt_step),
        )
        for arm, cells in found.items()
    ]


def extra_of(cells: list[dict[str, Any]], attempt_step: str) -> dict[str, Any]:
    acked = sum(cell["acked"] for cell in cells)
    attempts = [count for cell in cells for count in cell["attempts"]]
    latencies = sorted(second for cell in cells for second in cell["latencies_s"])
    requests: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for cell in cells:
        requests.update(cell["requests"])
        errors.update(cell["errors"])
    per_ack: float | None = None
    if attempts:
        per_ack = statistics.fmean(attempts)
    elif acked and requests:
        per_ack = requests[attempt_step] / acked
    return {
        "acked": acked,
        "errors": errors.total(),
        "attempts/ack": None if per_ack is None else round(per_ack, 2),
        "requests/ack": round(requests.total() / acked, 1) if requests and acked else None,
        "acked/s to the end": round(acked / sum(cell["last_s"] for cell in cells), 2) if acked else 0.0,
        "p50": round(statistics.median(latencies), 3) if latencies else None,
        "max": round(latencies[-1], 3) if latencies else None,
        "fewest": min(cell["fewest"] for cell in cells),
        "error_texts": dict(errors.most_common(5)),
        "requests_by_step": {step: round(count / acked, 2) for step, count in sorted(requests.items())} if acked else {},
    }  # fmt: skip


def unsound(case: str, cell: Mapping[str, Any]) -> list[str]:
    """The writes of a cell that got no ack, and by how much its acked rows are not the table's rows."""
    said = []
    if cell["errors"]:
        said.append(f"{case}: writes without an ack: {cell['errors']}")
    if cell["missing_rows"]:
        said.append(f"{case}: the table has {-cell['missing_rows']:+} rows besides those acked")
    return said


def _broken(case: str, found: dict[str, list[dict[str, Any]]], contest: Contest) -> list[str]:
    return [
        told for arm in contest.contended for cell in found[arm] for told in unsound(f"{case}, {arm}", cell)
    ]


def _aims(lines: list[Line], broken: list[str], contest: Contest) -> list[Aim]:
    aims = [at_most("contention: safewrite appends not acked, or not in the table as acked", 0, len(broken))]
    numbers = {line.case: int(line.case.split()[0]) for line in lines}
    most = max(numbers.values())
    for line in lines:
        if line.arm not in contest.contended or numbers[line.case] != most or line.ratio is None:
            continue
        text = f"{line.case}, {line.arm}"
        least = contest.contended[line.arm]["away" in line.case]
        aims.append(at_least(f"{text} : {contest.peer}, acked commits/s", least, line.ratio.median))
        if line.arm in contest.queued:
            aims.append(at_most(f"{text}, attempts per ack", 3.0, line.extra["attempts/ack"] or math.inf))
    return aims
