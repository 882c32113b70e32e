"""A driver that is killed: ``python -m tests.cdc.killed FOLDER FORMAT SEED SIZE KIND`` lands a source's records from the start."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cdc.jobs import Job, Source, cut

CHANGES = 400


def changes(folder: Path, form: str) -> Job:
    """A job of three tables that are as their sources."""
    return Job(folder, [{"table": name} for name in "abc"], form)


def appended(folder: Path, form: str) -> Job:
    """The same, each record a row of its own."""
    metadata = {"op": "op", "part": "partition", "at": "offset"}
    tables = [{"table": name, "mode": "append", "metadata": metadata} for name in "abc"]
    return Job(folder, tables, form)


KINDS = {"changes": changes, "appended": appended}


def main(folder: Path, form: str, seed: int, size: int, kind: str) -> None:
    """Land all batches, each of ``size`` records; every driver cuts them otherwise, as after a lost checkpoint."""
    job = KINDS[kind](folder, form)
    source = Source(seed)
    source.run(CHANGES)
    landing = job.landing()
    print("ready", flush=True)  # noqa: T201 - its parent waits for it
    for number, records in enumerate(cut(source.records, size)):
        landing.land(job.batch(records, number))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
