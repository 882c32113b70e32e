"""A driver that is killed: ``python -m tests.cdc.killed FOLDER FORMAT SEED SIZE`` lands a source's records from the start."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cdc.jobs import Job, Source, cut

CHANGES = 400


def main(folder: Path, form: str, seed: int, size: int) -> None:
    """Land all batches, each of ``size`` records; every driver cuts them otherwise, as after a lost checkpoint."""
    job = Job(folder, [{"table": name} for name in "abc"], form)
    source = Source(seed)
    source.run(CHANGES)
    landing = job.landing()
    print("ready", flush=True)  # noqa: T201 - its parent waits for it
    for number, records in enumerate(cut(source.records, size)):
        landing.land(job.batch(records, number))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
