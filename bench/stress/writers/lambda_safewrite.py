"""Appends SQS messages by safewrite, each under its id: the handler of a Lambda function."""

from __future__ import annotations

import sys
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


def write_batch(table: sw.Table, members: list[lambda_common.Member]) -> list[sw.Receipt | sw.SafewriteError]:
    """The receipt or the error of each member; a commit for each."""
    return [_append(table, key, frame) for key, frame in members]


def _append(table: sw.Table, key: str, frame: Any) -> sw.Receipt | sw.SafewriteError:
    try:
        return table.append(frame, key=key)
    except sw.SafewriteError as error:
        return error


def lambda_handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer with the messages that failed."""
    return lambda_common.answer(event, traps, partial(write_batch, table))
