"""Lambda functions: ids of events as keys, one commit for each invocation, partial batch answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports

if TYPE_CHECKING:
    from safewrite.aws_lambda.events import Record, objects_of, records_of
    from safewrite.aws_lambda.writer import BatchWriter

__all__ = ["BatchWriter", "Record", "objects_of", "records_of"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "Record": "safewrite.aws_lambda.events",
        "objects_of": "safewrite.aws_lambda.events",
        "records_of": "safewrite.aws_lambda.events",
        "BatchWriter": "safewrite.aws_lambda.writer",
    },
)
