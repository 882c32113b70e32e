"""Measures how batch size, frequency and number of writers decide on commits, latency and files, on both arbiters."""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import writers
from .contention import unsound
from .figures import Curve, Line, Scenario, at_most
from .harness import Harness, child, module
from .scale import Scale

EVENT_ROWS = 10
RATE_PER_S = 4
"""Events that come to each writer of the curve over windows."""
FILE_ROWS = 100_000
"""Rows of the table that is read from ever more files."""
LIMIT_S = 400.0
_FLAT_OUT, _GATHERED, _FILES = "flat out", "gathered", "read"


@dataclass(frozen=True, slots=True)
class Cell:
    """Writers of one arm, each with ``events`` in a commit; a commit every ``every_s``, or flat out (0)."""

    arm: str
    writers: int
    events: int
    every_s: float = 0.0

    @property
    def case(self) -> str:
        """What the table calls it."""
        if self.every_s:
            return f"{_GATHERED}, {self.writers} writers, {RATE_PER_S}/s each"
        return f"{_FLAT_OUT}, {self.writers} writer{'s' * (self.writers > 1)}"

    @property
    def name(self) -> str:
        """What the table calls its arm."""
        if self.every_s:
            return f"{self.arm}, every {self.every_s:g} s"
        return f"{self.arm}, {self.events} event{'s' * (self.events > 1)}"


def run(scale: Scale, folder: Path) -> Scenario:
    """Let few and many writers commit small and large batches; read a table of few and of many files."""
    over_at = time.monotonic() + scale.curve_budget_s
    found: dict[Cell, dict[str, Any]] = {}
    left_out: list[str] = []
    with Harness(folder, delay_s=scale.delay_s) as lab:
        reads = _reads(lab, scale)
        for cell in cells(scale):
            if time.monotonic() > over_at:
                left_out.append(f"{cell.case}, {cell.name}")
            else:
                found[cell] = _measure(lab, cell, scale)
    broken = [text for cell, one in found.items() for text in unsound(f"{cell.case}, {cell.name}", one)]
    return Scenario(
        name="curves",
        title="Batches, windows and writers",
        measures=f"Events acked per second, each of {EVENT_ROWS} rows under its own key; a commit (append_many) has all events of a batch. Flat out: "
        f"each writer begins its next commit when the last has ended. Gathered: {RATE_PER_S} events a second come to each writer, "
        "which commits what has come every so often.",
        lines=(*(_line(cell, one) for cell, one in found.items()), *_read_lines(reads)),
        aims=(at_most("curves: appends not acked, or not in the table as acked", 0, len(broken)),),
        notes=tuple(_notes(scale, left_out)),
        broken=tuple(broken),
        curves=tuple(curve for curve in _curves(found, reads) if curve.series),
    )


def cells(scale: Scale) -> list[Cell]:
    """Every cell of the curves, those over windows first; an arm's next to the same of the other arm."""
    gathered = [
        Cell(arm, scale.curve_paced, max(1, round(RATE_PER_S * every_s)), every_s)
        for every_s in scale.curve_every_s
        for arm in writers.SAFE
    ]
    flat_out = [
        Cell(arm, count, events)
        for count in scale.curve_writers
        for events in scale.curve_events
        for arm in writers.SAFE
        if is_bearable(arm, count, events)
    ]
    return gathered + flat_out


def is_bearable(arm: str, count: int, events: int) -> bool:
    """Whether every writer gets a commit done in a minute: an object store has an object for each key, twice."""
    return arm != writers.OBJECT_STORE or count * events <= 1_600


def _notes(scale: Scale, left_out: Sequence[str]) -> Iterator[str]:
    yield (
        "p50, p99: seconds of a commit; gathered, from when it was due, and an event waits half the window before that, on average. "
        "offered: commits/s that were due. A commit makes one data file, so commits/s are also files/s."
    )
    yield (
        f"read: milliseconds in which deltalake, {scale.delay_s * 1000:.0f} ms away, reads a table of {FILE_ROWS:,} rows from so many files."
    )
    yield "All writers share the cores of this machine with the servers, and stop to scale when those are busy."
    if left_out:
        yield f"Left out, as the time was over: {'; '.join(left_out)}."


# --- writing ------------------------------------------------------------------------------------------
def _measure(lab: Harness, cell: Cell, scale: Scale) -> dict[str, Any]:
    place = lab.place(cell.arm)
    writers.create(cell.arm, place, writers.schema())
    window_s = max(scale.curve_window_s, 2.5 * cell.every_s) + 0.1 * cell.writers * (not cell.every_s)
    with tempfile.TemporaryDirectory(dir=lab.folder) as folder:
        config = {
            "writers": "writers", "arm": cell.arm, "place": place.to_dict(), "processes": cell.writers,
            "rows": cell.events * EVENT_ROWS, "events": cell.events, "every_s": cell.every_s,
            "window_s": window_s, "folder": folder,
        }  # fmt: skip
        found = child(module("contender"), config, timeout_s=LIMIT_S)
    found["window_s"] = window_s
    found["files"] = writers.files_in(place)
    found["missing_rows"] = found["acked"] * cell.events * EVENT_ROWS - writers.rows_in(place)
    return found


def commits_per_s(found: Mapping[str, Any]) -> float:
    """Within the window, or to the last ack where nobody got one within it."""
    if found["acked_in_window"]:
        return float(found["acked_in_window"] / found["window_s"])
    return float(found["acked"] / found["last_s"]) if found["acked"] else 0.0


def quantile(ordered: Sequence[float], q: float) -> float:
    """The value below which a share ``q`` of the values lies; not a number where there is none."""
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else math.nan


def _line(cell: Cell, found: Mapping[str, Any]) -> Line:
    rate, attempts = commits_per_s(found), found["attempts"]
    return Line(
        case=cell.case, arm=cell.name, unit="events/s", values=(rate * cell.events,),
        extra={
            "commits/s": round(rate, 2),
            "offered": round(cell.writers / cell.every_s, 2) if cell.every_s else None,
            "p50": round(quantile(found["latencies_s"], 0.5), 3) if found["acked"] else None,
            "p99": round(quantile(found["latencies_s"], 0.99), 3) if found["acked"] else None,
            "attempts/ack": round(sum(attempts) / len(attempts), 2) if attempts else None,
            "files": found["files"], "acked": found["acked"], "errors": sum(found["errors"].values()),
            "error_texts": dict(Counter(found["errors"]).most_common(3)),
        },
    )  # fmt: skip


# --- reading ------------------------------------------------------------------------------------------
def _reads(lab: Harness, scale: Scale) -> dict[int, float]:
    """Of each number of files: milliseconds to read them all."""
    _read(lab, 1)  # loads the reader
    return {files: _read(lab, files) for files in scale.curve_files}


def _read(lab: Harness, files: int) -> float:
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    assert lab.cloud is not None
    place, rows = lab.place("files", slow=True), FILE_ROWS // files
    # A file for each value of a partition column: so many files by one commit.
    parts = pa.array([row // rows for row in range(files * rows)], pa.int64())
    frame = pa.table({"part": parts, "value": pa.array(range(files * rows), pa.int64())})
    write_deltalake(place.uri, frame, partition_by=["part"], storage_options=lab.cloud.storage_options())
    began = time.perf_counter()
    read = DeltaTable(place.uri, storage_options=dict(place.storage_options)).to_pyarrow_table()
    elapsed_s = time.perf_counter() - began
    assert read.num_rows == files * rows
    return elapsed_s * 1000


def _read_lines(reads: Mapping[int, float]) -> list[Line]:
    return [
        Line(case=f"{_FILES}, {files:,} files", arm="deltalake", unit="ms", values=(read,))
        for files, read in reads.items()
    ]


# --- curves -------------------------------------------------------------------------------------------
def _curves(found: Mapping[Cell, Mapping[str, Any]], reads: Mapping[int, float]) -> list[Curve]:
    flat_out = {cell: one for cell, one in found.items() if not cell.every_s and one["acked"]}
    gathered = {cell: one for cell, one in found.items() if cell.every_s and one["acked"]}

    def over_writers(
        value: Callable[[Cell, Mapping[str, Any]], float],
    ) -> dict[str, list[tuple[float, float]]]:
        series: dict[str, list[tuple[float, float]]] = {}
        for cell, one in flat_out.items():
            series.setdefault(cell.name, []).append((cell.writers, value(cell, one)))
        return series

    def over_windows(q: float) -> dict[str, list[tuple[float, float]]]:
        series: dict[str, list[tuple[float, float]]] = {}
        for cell, one in gathered.items():
            point = (cell.every_s, quantile(one["latencies_s"], q))
            series.setdefault(f"{cell.arm}, p{100 * q:.0f}", []).append(point)
        return series

    return [
        Curve(title="Flat out: events", x="writers", y="events/s", series=over_writers(lambda cell, one: cell.events * commits_per_s(one))),
        Curve(title="Flat out: commits, and so files", x="writers", y="commits/s", series=over_writers(lambda _, one: commits_per_s(one))),
        Curve(title="Flat out: latency", x="writers", y="s of a commit, median", series=over_writers(lambda _, one: quantile(one["latencies_s"], 0.5))),
        Curve(title="Gathered: latency", x="s between a writer's commits", y="s from when it was due", series={**over_windows(0.5), **over_windows(0.99)}),
        Curve(title="Files", x="files of the same rows", y="ms", series={
            "read by deltalake": list(reads.items()),
        }),
    ]  # fmt: skip
