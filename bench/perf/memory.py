"""Measures the peak memory of the append of one large pandas frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import writers
from .figures import Aim, Line, Scenario, at_most, paired
from .harness import Harness, child, module
from .scale import Scale

LIMIT_S = 600.0
MIB = 2**20


def run(scale: Scale, folder: Path) -> Scenario:
    """Append the frame once by each library, to local disk and to S3, each in a process of its own."""
    lines: list[Line] = []
    with Harness(folder) as lab:
        for case, safe in (("local disk", writers.LOCAL), ("S3", writers.OBJECT_STORE)):
            found = {}
            for arm in (safe, writers.DELTALAKE):
                place = lab.place(arm) if case == "S3" else lab.local(arm)
                config = {"arm": arm, "place": place.to_dict(), "bytes": scale.frame_bytes}
                found[arm] = child(module("memory_child"), config, timeout_s=LIMIT_S)
            lines += _lines(case, found)
    return Scenario(
        name="memory",
        title="Memory of a large frame",
        measures=f"(peak RSS during the append - RSS before the frame existed) / bytes of the frame, which is a "
        f"pandas frame of {scale.frame_bytes / 1e9:g} GB (memory_usage(deep=True)). The frame itself, which the "
        "caller holds, is 1.0 of it. A small append to the same table comes first, so that what is loaded once "
        "does not count.",
        lines=tuple(lines),
        aims=tuple(_aims(lines)),
        notes=(
            "held: RSS that the frame added before the append. `beyond the frame` is what the append added to it.",
            "One measurement per line; the server is a process of its own and not counted.",
        ),
    )


def _lines(case: str, found: dict[str, dict[str, Any]]) -> list[Line]:
    lines: list[Line] = []
    ratio = {arm: (cell["peak"] - cell["before"]) / cell["frame"] for arm, cell in found.items()}
    for arm, cell in found.items():
        extra = {
            "frame MiB": round(cell["frame"] / MIB), "held MiB": round((cell["held"] - cell["before"]) / MIB),
            "peak MiB": round((cell["peak"] - cell["before"]) / MIB),
            "beyond the frame": round((cell["peak"] - cell["held"]) / cell["frame"], 3),
            "seconds": round(cell["elapsed_s"], 1),
        }  # fmt: skip
        beside = () if arm == writers.DELTALAKE else paired([ratio[arm]], [ratio[writers.DELTALAKE]])
        peer = None if arm == writers.DELTALAKE else writers.DELTALAKE
        lines.append(
            Line(
                case=case,
                arm=arm,
                unit="x frame",
                values=(ratio[arm],),
                peer=peer,
                ratios=beside,
                extra=extra,
            )
        )
    return lines


def _aims(lines: list[Line]) -> list[Aim]:
    return [
        at_most(f"peak memory, {line.case}, {line.arm}, frame included : frame", 1.5, line.spread.median)
        for line in lines
        if line.arm != writers.DELTALAKE
    ]
