"""Appends the rows of SQS messages by safewrite, each message under its id: the handler of a Lambda function."""

from __future__ import annotations

import json
import os

import safewrite as sw
from safewrite.aws_lambda import BatchWriter

# Outside the handler, as a warm environment keeps it.
_config = json.loads(os.environ["BENCH_FUNCTION"])
_table = sw.open(_config["uri"], **_config["settings"])

lambda_handler = BatchWriter(_table, rows=lambda record: record.body)
