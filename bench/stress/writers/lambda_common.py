"""Gives every handler of a stress run its configuration, its messages, its traps and its answer."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
from common import history

Member: TypeAlias = tuple[str, Any]
"""A message's id and its rows."""


class Traps:
    """Places in a handler where an environment kills itself; each is sprung once, by whoever comes first.

    An armed trap is a file in ``folder``: removing a file succeeds for one process alone.
    """

    def __init__(self, folder: Path | str) -> None:
        self._folder = Path(folder)

    def _file(self, step: str, when: str) -> Path:
        return self._folder / f"{step}.{when}.armed"

    def arm(self, step: str, when: str) -> bool:
        """Arm one; False if it is armed already."""
        try:
            self._file(step, when).open("x").close()
        except FileExistsError:
            return False
        return True

    def is_sprung(self, step: str, when: str) -> bool:
        """Whether one that was armed has been sprung."""
        return not self._file(step, when).exists()

    def spring(self, step: str, when: str) -> None:
        """Kill this process if the trap is armed."""
        try:
            self._file(step, when).unlink()
        except FileNotFoundError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

    def set_in(self, world: Any) -> None:
        """Spring those that are named after the effects of a commit, before and after each."""
        perform = world.perform

        def trapped(effect: Any) -> Any:
            if effect.name:
                self.spring(effect.name, "before")
            outcome = perform(effect)
            if effect.name:
                self.spring(effect.name, "after")
            return outcome

        # On the instance, so that the parts of a Together, which the world performs itself, pass it too.
        world.perform = trapped


def read_config() -> dict[str, Any]:
    """The configuration named by the environment variable ``STRESS_CONFIG``."""
    config: dict[str, Any] = json.loads(Path(os.environ["STRESS_CONFIG"]).read_text())
    return config


def body_of(rows: Sequence[Any], **columns: Any) -> str:
    """A message with these rows; ``columns`` are further ones, with one value for all rows."""
    by_name = dict(zip(history.COLUMNS, zip(*rows, strict=True), strict=True))
    by_name |= {name: [value] * len(rows) for name, value in columns.items()}
    return json.dumps(by_name, default=str)


def frame_of(body: str) -> Any:
    """The rows of a message as a ``pyarrow.Table``, with every column that came."""
    columns = json.loads(body)
    columns["day"] = [None if day is None else dt.date.fromisoformat(day) for day in columns["day"]]
    rows = list(zip(*(columns.pop(name) for name in history.COLUMNS), strict=True))
    frame = common.to_arrow(rows)
    for name, values in columns.items():
        frame = frame.append_column(name, [values])
    return frame


def answer(
    event: dict[str, Any], traps: Traps, write_batch: Callable[[list[Member]], Sequence[Any]]
) -> dict[str, Any]:
    """Write the messages that can be read; the others, and those that ended in an error, are reported as failed."""
    members: list[Member] = []
    failed: list[str] = []
    for record in event["Records"]:
        try:
            members.append((record["messageId"], frame_of(record["body"])))
        except (ValueError, KeyError, TypeError) as error:
            print(f"{record['messageId']}: {common.describe(error)}")
            failed.append(record["messageId"])
    results = write_batch(members) if members else []
    for (message_id, _), result in zip(members, results, strict=True):
        if isinstance(result, Exception):
            print(f"{message_id}: {common.describe(result)}")
            failed.append(message_id)
    traps.spring("caller.record_ack", "before")
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}
