"""Appends the CSV files that come to a bucket to a Delta table: awswrangler reads, safewrite writes, each file once."""

from __future__ import annotations

import os
from typing import Any

import awswrangler as wr

import safewrite as sw
from safewrite.aws_lambda import BatchWriter, Record

# Outside the handler: connections, credentials and the table's state are kept by a warm function.
orders = sw.open(os.environ["ORDERS"], lock_table=os.environ["LOCK_TABLE"])


def rows(record: Record) -> Any:
    """The rows of one object, in the version that the event is about: its name may have been written again since."""
    path = f"s3://{record.bucket}/{record.object_key}"
    version = record.raw["s3"]["object"].get("versionId")
    # A list: awswrangler takes a text for a prefix, and for a pattern if it has * ? or [ in it.
    return wr.s3.read_csv([path], version_id={path: version} if version else None, dtype={"id": "int64"})


lambda_handler = BatchWriter(orders, rows=rows)
