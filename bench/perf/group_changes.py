"""``python -m bench.perf.group_changes`` lets processes apply small batches of changes flat out, sharing commits and not.

All change the same few keys of one table behind requests of 30 ms.  It is also how its writers call safewrite
(``bench.perf.contender``).
"""

from __future__ import annotations

import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import contention, writers
from .contest import DELTA, alone
from .scale import Scale
from .writers import Append, Place, preload, schema, settings, versions_in

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Place", "create", "opened", "preload", "rows_in", "schema"]
KEYS = 1000
HEAD = ("arm", "acked/s", "acks a commit", "p50 s", "p99 s", "requests an ack", "not acked")


def create(arm: str, place: Place, table_schema: pa.Schema) -> None:
    """A table of all keys."""
    writers.create(arm, place, table_schema)
    opened(arm, place)(writers.make_frame(KEYS))


def opened(arm: str, place: Place) -> Append:
    """Open a table once; each call changes as many of its keys as the frame has rows."""
    import pyarrow as pa

    import safewrite as sw

    table, rng = sw.open(place.uri, **settings(arm, place)), random.Random()

    def apply(frame: Any, key: str | None = None) -> int:
        rows = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame, preserve_index=False)
        ids = range(KEYS) if len(rows) == KEYS else rng.sample(range(KEYS), len(rows))
        sequence = pa.array([time.time_ns()] * len(rows))
        changes = rows.set_column(0, "id", pa.array(ids, pa.int64())).set_column(4, "quality", sequence)
        return table.apply_changes(changes, keys=["id"], sequence_by="quality").attempts

    return apply


def rows_in(place: Place) -> int:
    """Keys are changed, none is added: all are there at the end."""
    found = writers.rows_in(place)
    if found != KEYS:
        raise SystemExit(f"{found} rows, and {KEYS} keys")
    return 0


def main(
    *,
    processes: Annotated[int, typer.Option(help="How many processes.")] = 16,
    rows: Annotated[int, typer.Option(help="Changes of a batch.")] = 10,
    seconds: Annotated[float, typer.Option(help="In which batches begin.")] = 20.0,
    arms: Annotated[str, typer.Option(help="By commas; with 'alone' as with group='never'.")] = ",".join(
        (*writers.SAFE, *alone(writers.SAFE))
    ),
) -> None:
    """Print a table: a line for each arm."""
    contest = replace(DELTA, writers="group_changes")
    scale = replace(Scale(), contention_rows=rows, window_s=seconds, window_s_per_process=0.0)
    print("| " + " | ".join(HEAD) + " |", "| --- " * len(HEAD) + "|", sep="\n", flush=True)
    with tempfile.TemporaryDirectory() as folder, contest.ground(Path(folder), scale.delay_s) as lab:
        for arm in arms.split(","):
            cell = contention.cell_of(
                contest,
                lab,
                arm,
                processes,
                scale,
                slow=True,
                look=lambda at: {"versions": versions_in(at) - 1},
            )
            waits = cell["latencies_s"]
            line = (
                arm,
                f"{cell['commits_per_s']:.1f}",
                f"{cell['acked'] / cell['versions']:.1f}",
                f"{waits[len(waits) // 2]:.2f}",
                f"{waits[int(0.99 * (len(waits) - 1))]:.2f}",
                f"{sum(cell['requests'].values()) / cell['acked']:.1f}",
                f"{sum(cell['errors'].values())}",
            )
            print("| " + " | ".join(line) + " |", *cell["errors"], sep="\n", flush=True)


if __name__ == "__main__":
    typer.run(main)
