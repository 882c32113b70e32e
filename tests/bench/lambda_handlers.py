"""Handlers of Lambda functions for tests; they import nothing that is slow to load."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

LOADED_AT = time.monotonic_ns()
_calls = 0


def count(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Which call of this environment it is, what the environment is, and what the context says."""
    global _calls  # noqa: PLW0603 - a module's state is what stays warm
    _calls += 1
    return {
        "calls": _calls,
        "loaded": LOADED_AT,
        "event": event,
        "group": os.getpgrp(),
        "request_id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "memory": context.memory_limit_in_mb,
        "remaining_ms": context.get_remaining_time_in_millis(),
        "task_root": os.environ["LAMBDA_TASK_ROOT"],
        "handler": os.environ["_HANDLER"],
    }


def fail(event: dict[str, Any], context: Any) -> None:
    """Raise, as the event says."""
    raise ValueError(event["text"])


def sleep(event: dict[str, Any], context: Any) -> int:
    """Take as long as the event says, if it says so."""
    time.sleep(event.get("seconds", 0))
    return os.getpid()


def leave(event: dict[str, Any], context: Any) -> None:
    """End the process in the middle of the invocation."""
    os.kill(os.getpid(), signal.SIGKILL)


def parent(event: dict[str, Any], context: Any) -> int:
    """Start a process that would outlive its parent; returns its id."""
    return subprocess.Popen(["sleep", "600"]).pid


def batch(event: dict[str, Any], context: Any) -> Any:
    """Do with each message what its body says, and write down in a file that it was delivered."""
    failed: list[dict[str, Any]] = []
    records = event["Records"]
    ids = [record["messageId"] for record in records]
    with Path(os.environ["DELIVERIES"]).open("a") as file:
        file.write(json.dumps(ids) + "\n")
    for record in records:
        match json.loads(record["body"]):
            case "fail":
                failed.append({"itemIdentifier": record["messageId"]})
            case "fail once" if record["attributes"]["ApproximateReceiveCount"] == "1":
                failed.append({"itemIdentifier": record["messageId"]})
            case "raise once" if record["attributes"]["ApproximateReceiveCount"] == "1":
                raise RuntimeError("the whole batch fails")
            case "wait for another":
                _wait_for_another(record["messageId"])
            case "stranger once" if record["attributes"]["ApproximateReceiveCount"] == "1":
                failed.append({"itemIdentifier": "no message of this batch"})
    return {"batchItemFailures": failed}


def _wait_for_another(message_id: str) -> None:
    """Wait until a message has been delivered twice, or half a minute."""
    for _ in range(600):
        if Path(os.environ["DELIVERIES"]).read_text().count(message_id) > 1:
            return
        time.sleep(0.05)
