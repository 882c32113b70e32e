"""Lambda functions: ids of events as keys, one commit for each invocation, partial batch answers."""

from __future__ import annotations

from safewrite.aws_lambda.events import Record, objects_of, records_of
from safewrite.aws_lambda.writer import BatchWriter

__all__ = ["BatchWriter", "Record", "objects_of", "records_of"]
