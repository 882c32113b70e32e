"""Appends SQS messages by safewrite, each under its id: the handler of a Lambda function."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import common
import lambda_common

from safewrite.aws_lambda import BatchWriter

# Outside the handler, as a warm environment keeps it.
config = lambda_common.read_config()
traps = lambda_common.Traps(config["traps_folder"])
table = common.open_by_safewrite(config)
traps.set_in(table.world)


write = BatchWriter(table, rows=lambda record: lambda_common.frame_of(record.raw["body"]))


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer with the messages that failed."""
    answer = write(event, context)
    traps.spring("caller.record_ack", "before")
    return answer
