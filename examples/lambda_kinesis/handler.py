"""Appends the records of a Kinesis stream to a Delta table: one commit for each invocation, each record once."""

from __future__ import annotations

import os

import safewrite as sw
from safewrite.aws_lambda import BatchWriter

# Outside the handler: connections, credentials and the table's state are kept by a warm function.
orders = sw.open(os.environ["ORDERS"], lock_table=os.environ["LOCK_TABLE"])

# A record's data is the JSON of one row or of a list of rows.
lambda_handler = BatchWriter(
    orders, rows=lambda record: record.body if isinstance(record.body, list) else [record.body]
)
