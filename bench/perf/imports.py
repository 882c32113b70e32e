"""Measures import time: what a cold Lambda function pays before its first row is safe."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from . import writers
from .figures import Aim, Line, Scenario, at_most, interleave, paired
from .harness import ROOT, Harness, child
from .scale import Scale

LIMIT_S = 120.0
DEAREST = 20
_SCRIPT = str(Path(__file__).resolve().parent / "startup.py")
WRANGLER = "awswrangler"
LEAN = f"{writers.DYNAMODB}, no pandas"
"""As in the Lambda layer: where pandas is installed pyarrow imports it, as soon as it makes an array."""
_STEPS = ("import", "frame", "first append", "second append")


def run(scale: Scale, folder: Path) -> Scenario:
    """Start processes that import and append, turn by turn."""
    arms: dict[str, Callable[[], dict[str, Any]]] = {}
    notes = [
        (
            "to first ack: from the first line of the program, so without the start of Python itself. The table is "
            "opened in the first append and again in the second; the difference of the two is what is loaded, "
            "connected and made once."
        ),
        (
            "by package and module: an append with a lock table where pandas is not installed, by Python's -X importtime, each "
            "module without those that it imports in turn."
        ),
        (
            "modules: entries of sys.modules beyond those of bare Python. Python code of one library beside a "
            "compiled one of another: sizes on disk differ too, and are not measured here."
        ),
    ]
    with Harness(folder) as lab:
        for arm in writers.ARMS:
            place = lab.place(arm)
            _create(arm, place)
            library = writers.DELTALAKE if arm == writers.DELTALAKE else "safewrite"
            arms[arm] = partial(
                child, [sys.executable, "-P", _SCRIPT, library, arm], place.to_dict(), timeout_s=LIMIT_S
            )
        place = lab.place(writers.DYNAMODB)
        _create(writers.DYNAMODB, place)
        lean = [sys.executable, "-P", _SCRIPT, "safewrite", writers.DYNAMODB, "no pandas"]
        arms[LEAN] = partial(child, lean, place.to_dict(), timeout_s=LIMIT_S)
        python = wrangler_python()
        if python is None:
            notes.append("awswrangler was not measured: its environment is not built (make arms).")
        else:
            arms[WRANGLER] = partial(child, [str(python), "-P", _SCRIPT, WRANGLER], {}, timeout_s=LIMIT_S)
        for start in arms.values():
            start()  # fills the disk cache and writes .pyc files
        found = interleave(arms, scale.import_rounds)
        place = lab.place(writers.DYNAMODB)
        _create(writers.DYNAMODB, place)
        costs = [_costs(lean, place) for _ in range(scale.import_rounds)]
    return Scenario(
        name="imports",
        title="From nothing to the first row",
        measures="Milliseconds in a new process: `import` of the library alone, and until the first append of 100 "
        "rows to S3 is acked. Ratios are to deltalake in the same round.",
        lines=(
            *_lines("import", found),
            *_lines("to first ack", found),
            *_beside_wrangler(found),
            *_by_module(costs),
        ),
        aims=tuple(_aims(_beside_wrangler(found))),
        notes=tuple(notes),
    )


def _costs(command: list[str], place: writers.Place) -> dict[str, float]:
    """Milliseconds that each module took to import, without those that it imported in turn."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    done = subprocess.run(
        timed, input=json.dumps(place.to_dict()), capture_output=True, text=True, timeout=LIMIT_S, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    found: dict[str, float] = {}
    for line in done.stderr.splitlines():
        own, _, rest = line.removeprefix("import time:").partition("|")
        if line.startswith("import time:") and own.strip().isdigit():
            found[rest.partition("|")[2].strip()] = int(own) / 1000
    return found


def _by_module(costs: list[dict[str, float]]) -> list[Line]:
    """What importing costs in a process that appends once, by package and for the dearest modules."""
    names = {name for cost in costs for name in cost}
    packages = {name: tuple(cost.get(name, 0.0) for cost in costs) for name in names}
    by_package: dict[str, list[float]] = {}
    for name, values in packages.items():
        package = name.partition(".")[0]
        package = "the standard library" if package in sys.stdlib_module_names else package
        total = by_package.setdefault(package, [0.0] * len(costs))
        by_package[package] = [before + own for before, own in zip(total, values, strict=True)]
    lines = []
    for case, of in (("import, by package", by_package), ("import, the dearest modules", packages)):
        medians = {name: statistics.median(values) for name, values in of.items()}
        dearest = sorted((name for name in of if medians[name] >= 0.5), key=lambda name: -medians[name])[
            :DEAREST
        ]
        lines += [
            Line(case=f"{case}, in ms", arm=name, unit="ms", values=tuple(of[name])) for name in dearest
        ]
    return lines


def _create(arm: str, place: writers.Place) -> None:
    import pyarrow as pa

    writers.create(arm, place, pa.schema([("id", pa.int64()), ("value", pa.float64())]))


def wrangler_python() -> Path | None:
    """The interpreter that has awswrangler, if its environment is built."""
    python = ROOT / ".envs" / WRANGLER / "bin" / "python"
    return python if python.exists() else None


def _lines(case: str, found: dict[str, list[dict[str, Any]]]) -> list[Line]:
    last = "import" if case == "import" else "first append"
    times = {arm: _until(last, cells) for arm, cells in found.items() if last in cells[0]["steps"]}
    lines = []
    for arm, values in times.items():
        cells = found[arm]
        extra: dict[str, Any] = {"modules": cells[0]["steps"][last]["modules"] - cells[0]["modules"]}
        if case != "import":
            for step in _STEPS:
                extra[f"{step} ms"] = round(
                    statistics.median(cell["steps"][step]["s"] for cell in cells) * 1000
                )
        ratios = () if arm == writers.DELTALAKE else paired(values, times[writers.DELTALAKE])
        peer = None if arm == writers.DELTALAKE else writers.DELTALAKE
        lines.append(
            Line(case=case, arm=arm, unit="ms", values=values, peer=peer, ratios=ratios, extra=extra)
        )
    return lines


def _beside_wrangler(found: dict[str, list[dict[str, Any]]]) -> list[Line]:
    """Time until safewrite's first ack, and its peak memory, against awswrangler's import alone."""
    if WRANGLER not in found:
        return []
    theirs = {"time": _until("import", found[WRANGLER]), "peak memory": _peaks(found[WRANGLER])}
    own = {
        arm: {"time": _until("first append", found[arm]), "peak memory": _peaks(found[arm])}
        for arm in (LEAN, *writers.SAFE)
    }
    peer = f"import {WRANGLER}"
    lines = []
    for what, unit in (("time", "ms"), ("peak memory", "MiB")):
        case = f"import and first append, {what} in {unit}"
        lines.append(Line(case=case, arm=peer, unit=unit, values=theirs[what]))
        for arm, values in own.items():
            ratios = paired(values[what], theirs[what])
            lines.append(Line(case=case, arm=arm, unit=unit, values=values[what], peer=peer, ratios=ratios))
    return lines


def _peaks(cells: list[dict[str, Any]]) -> tuple[float, ...]:
    """Peak RSS of the whole process in MiB, both appends included."""
    return tuple(cell["peak_kib"] / 1024 for cell in cells)


def _aims(lines: list[Line]) -> list[Aim]:
    return [
        at_most(f"{line.case}, {line.arm} : {line.peer}", 0.5, line.ratio.median)
        for line in lines
        if line.ratio is not None
    ]


def _until(last: str, cells: list[dict[str, Any]]) -> tuple[float, ...]:
    steps = _STEPS[: _STEPS.index(last) + 1]
    return tuple(1000 * sum(cell["steps"][step]["s"] for step in steps) for cell in cells)
