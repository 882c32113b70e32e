"""Appends SQS messages by safewrite, each under its id: the handler of a Lambda function."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import common
import lambda_common

import safewrite as sw

# Outside the handler, as a warm environment keeps it.
config = lambda_common.read_config()
traps = lambda_common.Traps(config["traps_folder"])
table = common.open_by_safewrite(config)
traps.set_in(table.world)


def write_batch(table: sw.Table, members: list[lambda_common.Member]) -> Sequence[object]:
    """The receipt or the error of each member: one commit for all, or a plain append of a message that came alone."""
    try:
        if len(members) > 1:
            return table.append_many(members)
        return [table.append(frame, key=key) for key, frame in members]
    except sw.SafewriteError as error:
        return [error] * len(members)


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer with the messages that failed."""
    return lambda_common.answer(event, traps, partial(write_batch, table))
