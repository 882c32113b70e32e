"""Shows a lake that follows PostgreSQL, all on this machine: ``python -m examples.cdc.demo``.

It starts PostgreSQL, Kafka and Debezium, changes rows of five tables, and lands them by ``safewrite cdc run`` in Delta
tables.  The driver is killed once on the way.  It ends when the lake equals PostgreSQL row by row.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.cdc.check import Difference, differences
from bench.cdc.source_stack import Job, source_stack

ROUNDS, CHANGES = 3, 300


def main(folder: Path) -> list[Difference]:
    """Change, land and compare; what the last comparison found."""
    found: list[Difference] = []
    with source_stack(folder, seed=7) as servers:
        job = Job(folder, "delta", servers.kafka.endpoint_url)
        job.start()
        try:
            for number in range(1, ROUNDS + 1):
                servers.workload.run(CHANGES, CHANGES * ROUNDS, CHANGES * (number - 1))
                if number == 2:
                    job.kill()
                    job.start()
                    print("the driver was killed, and another one started")
                found = followed(servers.postgres, job)
                print(f"after {servers.workload.changes} changes the lake equals PostgreSQL:")
                for one in found:
                    print(f"  {one.table}: {one.rows} rows")
        finally:
            job.kill()
    return found


def followed(address: str, job: Job, wait_s: float = 300.0) -> list[Difference]:
    """Wait until all tables of the lake equal PostgreSQL's, and how they do."""
    deadline = time.monotonic() + wait_s
    found = differences(address, job)
    while any(one.flaws for one in found):
        if job.ended is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the lake does not follow: {found}; see {job.log}")
        time.sleep(1.0)
        found = differences(address, job)
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
