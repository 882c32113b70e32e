"""Reports what a job did, as a line in the log and an event for metrics, and writes the command that an error advises."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path

import safewrite as sw
from safewrite.metrics import Listener, OnEvent, listener

__all__ = ["Listener", "OnEvent", "command", "listener", "report"]

log = logging.getLogger("safewrite")


def report(line: str, event: sw.Event, on_event: Listener | None, *, level: int = logging.INFO) -> None:
    """Write a line to the log, with the numbers of the event, and give the event to the listener."""
    log.log(level, "%s", line, extra={"table": event.table, "kind": event.kind, **event.details})
    if on_event is not None:
        on_event(event)


def command(job: str, verb: str, table: str, config: Path | str = "FILE") -> str:
    """The command of a job on one of its tables, as a user can copy it; ``config`` is the file of its configuration."""
    return shlex.join(["safewrite", job, verb, "--config", str(config), "--table", table])
