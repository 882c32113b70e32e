"""Lands change data of Kafka in tables: ``spark-submit --packages ... examples/cdc/job.py --config examples/cdc/tables.json``.

The configuration is a file, or an object ``s3://bucket/key``, as a cluster's driver has no file of yours.  Further arguments
are passed over: AWS Glue adds its own.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

from safewrite import cdc


def content(config: str) -> str:
    """What ``Pipeline`` takes: the path of a file, or the text of an object of S3."""
    if not config.startswith("s3://"):
        return config
    import boto3

    bucket, _, key = config.removeprefix("s3://").partition("/")
    return boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read().decode()


def main(config: str) -> None:
    """Run the job until its query ends, and say what the last batch was."""
    pipeline = cdc.Pipeline(content(config))
    pipeline.start(SparkSession.builder.appName("cdc").getOrCreate()).awaitTermination()
    for line in pipeline.last:
        print(
            f"{line.table or 'no table'}: {line.records} records, {line.applied} applied, {line.dead} dead letters"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    main(parser.parse_known_args()[0].config)
