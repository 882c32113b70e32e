"""Runs a medallion job on Spark's executors: ``spark-submit examples/medallion/job.py --config s3://bucket/job/shop.json``.

One job serves all tables: ``--tables shop.orders,shop.lines`` names some of them, and without it a run takes all.  The
configuration is a file, or an object ``s3://bucket/key``, as a cluster's driver has no file of yours.  Further arguments are
passed over: AWS Glue adds its own.
"""

from __future__ import annotations

import argparse
import json
import sys

from pyspark.sql import SparkSession

from safewrite.medallion import Pipeline


def content(config: str) -> str:
    """What ``Pipeline`` takes: the path of a file, or the text of an object of S3."""
    if not config.startswith("s3://"):
        return config
    import boto3

    bucket, _, key = config.removeprefix("s3://").partition("/")
    return boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()


def main(config: str, tables: str | None) -> None:
    """Run the job once, print what it did, and fail if a table did."""
    SparkSession.builder.appName("medallion").getOrCreate()
    run = Pipeline(content(config), engine="spark").run(tables.split(",") if tables else None)
    print(json.dumps(run.to_dict(), default=str))
    if not run.ok:
        failed = {one.table: one.error for one in run.tables if one.error}
        sys.exit(f"Tables failed: {failed or run.errors}. All others are done, and the next run goes on.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--tables", help="names, by commas; without them all")
    given, _ = parser.parse_known_args()
    main(given.config, given.tables)
