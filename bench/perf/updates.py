"""Measures what a batch of random keys costs in a small table and in one that is ten times as large."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import update_tables
from .figures import Aim, Line, Scenario, at_most
from .harness import child, module
from .scale import Scale
from .update_tables import NUMBER, UUID, Load

LIMIT_S = 1_800.0
MIB = 2**20
DELTA, ICEBERG = "delta", "iceberg"
MODES = ("merge-on-read", "copy-on-write")
_COLD, _BUILDS, _WARM = "cold", "second batch, which makes the indexes", "warm"
TIMES_MAX = 1.3
"""So many times may a batch cost in the large table, merge-on-read and warm."""


def run(scale: Scale, folder: Path) -> Scenario:
    """Apply the same kind of batches to both tables, each in a process of its own."""
    lines: list[Line] = []
    broken: list[str] = []
    for form in (DELTA, ICEBERG):
        for mode in MODES:
            for keys in (UUID, NUMBER):
                cells = [_cell(scale, rows, folder, (form, mode, keys), broken) for rows in scale.update_rows]
                lines += _lines(f"{form}, {mode}, {keys}", scale, cells)
    small, large = scale.update_rows
    return Scenario(
        name="updates",
        title="Updates of random keys",
        measures=f"CPU seconds of a batch of {scale.changes:,} changes (60 % updates, 20 % deletes, 20 % inserts) of keys that lie in all files, in a "
        f"process of its own, into tables of {small:,} and {large:,} small rows in {scale.update_files} files each, on local disk. Ratios are those of "
        "the large table to the small one.",
        lines=tuple(lines),
        aims=tuple(_aims(lines)),
        notes=(
            (
                "cold: the first batch of a process, which reads the key columns of every file. The second makes an index of the keys of each file, "
                "and the others look keys up in these."
            ),
            "read, written: bytes that the process moved through system calls; what is mapped into memory is not among them.",
        ),
        broken=tuple(broken),
    )


def _cell(
    scale: Scale, rows: int, folder: Path, what: tuple[str, str, Any], broken: list[str]
) -> list[dict[str, float]]:
    """What each batch took in one table."""
    form, mode, keys = what
    load = Load(
        rows=rows, files=scale.update_files, changes=scale.changes, rounds=scale.update_rounds, keys=keys
    )
    place = folder / f"{form}-{mode}-{rows}".replace(" ", "-")
    if form == DELTA:
        update_tables.make_delta(load, str(place), vectors=mode == "merge-on-read")
    else:
        update_tables.make_iceberg(load, place, mode)
    config = {"folder": str(place), "load": load.to_dict(), "format": form}
    took: list[dict[str, float]] = child(module("updates_child"), config, timeout_s=LIMIT_S)["took"]
    seen = (update_tables.read_delta if form == DELTA else update_tables.read_iceberg)(place)
    wanted = update_tables.wanted(load)
    if seen != wanted:
        broken.append(f"{form}, {mode}, {keys}, {rows:,} rows: adds up to {seen}, and should to {wanted}")
    shutil.rmtree(place)
    return took


def _lines(case: str, scale: Scale, cells: Sequence[list[dict[str, float]]]) -> Iterator[Line]:
    parts = {_COLD: slice(1), _BUILDS: slice(1, 2), _WARM: slice(2, None)}
    arms = [f"{rows:,} rows" for rows in scale.update_rows]
    for name, part in parts.items():
        cpu = [tuple(one["cpu_s"] for one in cell[part]) for cell in cells]
        for at, cell in enumerate(cells):
            extra = {
                "wall": round(statistics.median(one["wall_s"] for one in cell[part]), 3),
                "read MiB": round(statistics.median(one["read_bytes"] for one in cell[part]) / MIB, 1),
                "written MiB": round(statistics.median(one["written_bytes"] for one in cell[part]) / MIB, 1),
            }
            ratios = (
                () if at == 0 else tuple(mine / theirs for mine, theirs in zip(cpu[at], cpu[0], strict=True))
            )
            yield Line(
                case=f"{case}, {name}", arm=arms[at], unit="CPU s", values=cpu[at], peer=None if at == 0 else arms[0],
                ratios=ratios, extra=extra,
            )  # fmt: skip


def _aims(lines: Sequence[Line]) -> Iterator[Aim]:
    for line in lines:
        if line.ratio is not None and MODES[0] in line.case and line.case.endswith(_WARM):
            yield at_most(f"{line.case}, {line.arm} : {line.peer}", TIMES_MAX, line.ratio.median)
