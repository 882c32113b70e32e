"""A driver of the change data job that is killed: ``python -m tests.spark.parted FOLDER FORMAT SERVERS TOPIC ENGINE`` tells each part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from safewrite.cdc import Pipeline
from safewrite.cdc.records.batch import Batch
from tests.cdc.jobs import Job
from tests.spark.session import Spark

RECORDS = 40
"""Records that a driver takes at once."""


def pipeline(folder: Path, form: str, servers: str, topic: str, engine: str) -> Pipeline:
    """A job whose batch has all that the topic has, and whose driver takes few of its records at once."""
    job = Job(folder, [{"table": name} for name in "abc"], form)
    kafka = {"servers": servers, "topics": [topic], "max_offsets_per_trigger": 1_000_000}
    given = {"kafka": kafka, "checkpoint": str(folder / "checkpoint"), "trigger": {"available_now": True}}
    return Pipeline(job.landing(**given, parts={"records": RECORDS}, engine=engine).config)


def main(folder: Path, *given: str) -> None:
    """Land all that there is."""
    made = pipeline(folder, *given)
    land = made.landing.land

    def tell(batch: Batch, *decode: Any) -> Any:
        assert len(batch.records) <= RECORDS
        found = land(batch, *decode)
        print("part", flush=True)  # noqa: T201 - its parent reads it
        return found

    made.landing.land = tell  # type: ignore[method-assign]
    with Spark(folder / "spark") as spark, spark.careless():
        made.start(spark.session).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
