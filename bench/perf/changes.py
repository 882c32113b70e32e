"""Measures changes by key beside merges and upserts: CPU, wall and memory of a batch, and many writers of disjoint keys."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import change_tables, change_writers
from .change_tables import RECENT, SCATTERED, Load
from .changes_child import (
    MERGE,
    ON_DELTA,
    OURS_DELTA,
    OURS_ICEBERG,
    OURS_MARKED,
    OURS_V3,
    OURS_V3_MARKED,
    OURS_VECTORS,
    UPSERT,
)
from .figures import Aim, Line, Scenario, at_least, at_most, interleave, paired
from .harness import Harness, child, module
from .scale import Scale

LIMIT_S = 1_800.0
"""Patience with the batches of one arm."""
MIB = 2**20
_Took = list[dict[str, float]]
"""What each batch took."""
_PEERS = (UPSERT, MERGE, OURS_V3)
_KEEPS_NOTHING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}
"""An allocator that gives back at once what is freed: the peak is what was needed at one time."""


def run(scale: Scale, folder: Path) -> Scenario:
    """Time batches on local disk, then let writers of disjoint keys contend on S3."""
    lines: list[Line] = []
    broken: list[str] = []
    for keys in (RECENT, SCATTERED):
        load = Load(
            rows=scale.change_rows, files=scale.change_files, changes=scale.changes, rounds=scale.change_rounds,
            keys=keys,
        )  # fmt: skip
        lines += _pair(load, folder, (OURS_DELTA, OURS_VECTORS, OURS_ICEBERG, OURS_MARKED, MERGE), broken)
        lines += _pair(load, folder, (OURS_ICEBERG, OURS_MARKED, UPSERT), broken)
        lines += _pair(load, folder, (OURS_V3_MARKED, OURS_V3), broken)
    lines += _pair(_wide(scale), folder, (OURS_DELTA, OURS_VECTORS, OURS_ICEBERG, OURS_MARKED, MERGE), broken)
    lines += _contend(scale, folder, broken)
    return Scenario(
        name="changes",
        title="Changes by key",
        measures=f"CPU seconds of a batch (all threads), in a process of its own that has opened the table and written to it once: {_SHARES} of "
        f"a table of {scale.change_rows:,} rows in {scale.change_files} files of consecutive ids, on local disk. Recent keys are of the newest twentieth, "
        "scattered ones of all files. Ratios are of the same batch.",
        lines=tuple(lines),
        aims=tuple(_aims(lines, scale)),
        notes=(
            (
                "wall: seconds of the same batch, and its ratio to the peer's; peak MiB: how far memory rose above what was held before the first batch; "
                f"files: the same in decoded files of the table, of {change_tables.touched_bytes(load) / MIB:.1f} MiB each; of wide rows "
                f"{change_tables.touched_bytes(_wide(scale)) / MIB:.1f} MiB. Medians."
            ),
            (
                "needed MiB: the peak of another run, whose allocator keeps nothing of what is freed (glibc's, told so by its variables): what "
                "was needed at one time."
            ),
            "PyIceberg's upsert gets the deletes of a batch as a delete and the others as an upsert, in one transaction.",
            (
                "The peers compare sequences (deltalake) or do not (PyIceberg), and remember no deleted key; "
                "safewrite reads back what it wrote, fingerprints it, and keeps tombstones. Equal speed is not equal work."
            ),
            (
                "Many writers: acked batches per second within a window, each writer with keys of its own. After a conflict both call again; "
                "calls/ack says how often. safewrite plans up to five times within a call."
            ),
        ),
        broken=tuple(broken),
    )


_SHARES = ", ".join(
    f"{share:.0%} {name}"
    for name, share in zip(("updates", "deletes", "inserts"), change_tables.SHARES.values(), strict=True)
)


def _wide(scale: Scale) -> Load:
    """A table whose files are large in memory, so that they and not the libraries decide how much is taken."""
    rows = scale.change_rows // scale.change_files * scale.wide_files
    return Load(
        rows=rows, files=scale.wide_files, changes=scale.changes, rounds=scale.change_rounds, keys=SCATTERED,
        columns=scale.wide_columns,
    )  # fmt: skip


def _aims(lines: Sequence[Line], scale: Scale) -> Iterator[Aim]:
    """Of each line that has an aim: its ratio in CPU or in batches, and what it needed of memory."""
    wide = _wide(scale)
    files_max = 3 + change_tables.batch(wide, 0).nbytes / change_tables.touched_bytes(wide)
    for line in lines:
        if "needed files" in line.extra and line.peer is not None:
            yield at_most(f"{line.arm}, {line.case}: files needed", files_max, line.extra["needed files"])
        if line.ratio is None or "of wide rows" in line.case:
            continue
        text = f"{line.arm}, {line.case} : {line.peer}"
        if line.peer == UPSERT:
            yield at_most(text, 0.2, line.ratio.median)
        elif line.peer == OURS_V3:
            yield at_most(text, 0.8, line.ratio.median)
        elif line.peer == MERGE:
            aim = (
                0.25
                if line.case.startswith(RECENT)
                else 1.0
                if line.arm in {OURS_DELTA, OURS_ICEBERG}
                else 0.3
            )
            yield at_most(text, aim, line.ratio.median)
        elif line.case.startswith(f"{max(scale.change_writers)} "):
            yield at_least(text, 5.0, line.ratio.median)


# --- a batch ----------------------------------------------------------------------------------------
def _pair(load: Load, folder: Path, arms: tuple[str, ...], broken: list[str]) -> list[Line]:
    """The same batches by each of the arms, each in a copy of the same table."""
    beside = "" if MERGE in arms else ", beside upsert" if UPSERT in arms else ", beside copy-on-write"
    case = f"{load.keys}{' of wide rows' if load.columns else ''}, {load.changes:,} changes{beside}"
    took, needed = dict[str, _Took](), dict[str, _Took]()
    with tempfile.TemporaryDirectory(dir=folder) as here:
        for arm in arms:
            place = Path(here) / arm.replace(" ", "-")
            took[arm] = _took(arm, load, place, broken)
            if load.columns:
                needed[arm] = _took(arm, load, place, broken, keeps=False)
    return [_line(case, arm, took, load, needed.get(arm)) for arm in arms]


def _took(arm: str, load: Load, place: Path, broken: list[str], *, keeps: bool = True) -> _Took:
    """What the batches of one arm took, on a table made for it; ``keeps`` leaves the process its usual allocator."""
    is_delta = arm in (*ON_DELTA, MERGE)
    if is_delta:
        change_tables.make_delta(load, place, vectors=arm == OURS_VECTORS)
    else:
        mode = "merge-on-read" if arm in {OURS_MARKED, OURS_V3_MARKED} else "copy-on-write"
        change_tables.make_iceberg(load, place, mode, 3 if arm in {OURS_V3, OURS_V3_MARKED} else 2)
    config = {"arm": arm, "folder": str(place), "load": load.to_dict()}
    variables = {} if keeps else _KEEPS_NOTHING
    took: _Took = child(module("changes_child"), config, timeout_s=LIMIT_S, variables=variables)["took"]
    seen = (change_tables.read_delta if is_delta else change_tables.read_iceberg)(place)
    broken += _differences(load, seen, f"{load.keys}, {load.changes:,} changes, {arm}")
    shutil.rmtree(place)
    return took


def _differences(load: Load, seen: Mapping[str, int], who: str) -> list[str]:
    """Where a table does not add up; the row of the warm-up has id -1 and sequence 1."""
    wanted = change_tables.wanted(load)
    meant = {"rows": wanted["rows"] + 1, "ids": wanted["ids"] - 1, "lsns": wanted["lsns"] + 1}
    return [] if seen == meant else [f"{who}: the table adds up to {dict(seen)}, and should to {meant}"]


def _line(case: str, arm: str, took: Mapping[str, _Took], load: Load, needed: _Took | None) -> Line:
    cpu = {name: tuple(one["cpu_s"] for one in found) for name, found in took.items()}
    wall = {name: [one["wall_s"] for one in found] for name, found in took.items()}
    peer = None if arm in _PEERS else next(name for name in _PEERS if name in took)
    peak_bytes = statistics.median(one["peak_bytes"] for one in took[arm])
    extra: dict[str, Any] = {
        "wall": round(statistics.median(wall[arm]), 2),
        "peak MiB": round(peak_bytes / MIB),
        "files": round(peak_bytes / change_tables.touched_bytes(load), 1),
    }
    if needed is not None:
        needed_bytes = statistics.median(one["peak_bytes"] for one in needed)
        extra["needed MiB"] = round(needed_bytes / MIB)
        extra["needed files"] = round(needed_bytes / change_tables.touched_bytes(load), 1)
    if peer is not None:
        extra["wall : peer"] = round(statistics.median(paired(wall[arm], wall[peer])), 2)
    return Line(
        case=case, arm=arm, unit="CPU s", values=cpu[arm], peer=peer,
        ratios=() if peer is None else paired(cpu[arm], cpu[peer]), extra=extra,
    )  # fmt: skip


# --- many writers -------------------------------------------------------------------------------------
def _contend(scale: Scale, folder: Path, broken: list[str]) -> list[Line]:
    lines: list[Line] = []
    with Harness(folder, delay_s=scale.delay_s) as lab:
        for processes in scale.change_writers:
            cells: dict[str, Callable[[], dict[str, Any]]] = {
                arm: partial(_cell, lab, arm, processes, scale) for arm in change_writers.ARMS
            }
            found = interleave(cells, scale.contention_rounds)
            case = f"{processes} writers of disjoint keys"
            rates = {arm: tuple(one["rate"] for one in all_) for arm, all_ in found.items()}
            for arm, all_ in found.items():
                peer = None if arm == change_writers.DELTALAKE else change_writers.DELTALAKE
                broken += [f"{case}, {arm}: {one['wrong']}" for one in all_ if one["wrong"]]
                lines.append(
                    Line(
                        case=case, arm=arm, unit="batches/s", values=rates[arm], peer=peer,
                        ratios=() if peer is None else paired(rates[arm], rates[peer]), extra=_extra(all_),
                    )
                )  # fmt: skip
    return lines


def _cell(lab: Harness, arm: str, processes: int, scale: Scale) -> dict[str, Any]:
    place = lab.place(arm)
    change_writers.create_for(arm, place, processes)
    window_s = scale.change_window_s
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        config = {
            "writers": "change_writers", "arm": arm, "place": place.to_dict(), "processes": processes, "rows": 1,
            "window_s": window_s, "folder": folder, "events": scale.contention_rows, "proxy": None,
        }  # fmt: skip
        found = child(module("contender"), config, timeout_s=LIMIT_S)
    found["rate"] = found["acked_in_window"] / window_s
    found["wrong"] = change_writers.wrong(place, processes)
    if found["errors"] and arm != change_writers.DELTALAKE:
        found["wrong"] = f"batches without an ack: {found['errors']}"
    return found


def _extra(cells: list[dict[str, Any]]) -> dict[str, Any]:
    acked = sum(cell["acked"] for cell in cells)
    attempts = [count for cell in cells for count in cell["attempts"]]
    latencies = [second for cell in cells for second in cell["latencies_s"]]
    return {
        "acked": acked,
        "errors": sum(sum(cell["errors"].values()) for cell in cells),
        "calls/ack": round(statistics.fmean(attempts), 2) if attempts else None,
        "p50": round(statistics.median(latencies), 3) if latencies else None,
        "fewest": min(cell["fewest"] for cell in cells),
    }
