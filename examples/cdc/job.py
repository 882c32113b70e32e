"""Lands change data of Kafka in tables: ``spark-submit --packages ... examples/cdc/job.py examples/cdc/tables.json``."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from safewrite import cdc


def main(config: Path) -> None:
    """Run the job until its query ends, and say what the last batch was."""
    pipeline = cdc.Pipeline(config)
    pipeline.start(SparkSession.builder.appName("cdc").getOrCreate()).awaitTermination()
    for line in pipeline.last:
        print(
            f"{line.table or 'no table'}: {line.records} records, {line.applied} applied, {line.dead} dead letters"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
