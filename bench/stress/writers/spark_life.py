"""Runs one life of a Spark driver: driver and JVM may end at a planned step, both at once.

Started by ``spark_lives.py``, which it does not outlive.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

import common
import spark_session
from common import history
from spark_lives import ANY_MOMENT

NEXT_STEP = common.of_stress("plans.spark_writers").NEXT_STEP

_BATCHES_MAX = 2


class Life(common.Writer):
    """A writer whose traps are the ends of its lives, one after the other."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        kills = [event for event in self._before if event["event"] == history.EventKind.KILL]
        ends = config["traps"]
        self._end = ends[len(kills)] if len(kills) < len(ends) else None
        self._ended_at = {(kill["step"], kill["when"]) for kill in kills}
        self._passed = 0
        self.batches = 0
        """Writes that are over, in this life."""

    @property
    def is_first(self) -> bool:
        """Whether no driver of this writer has been at work before."""
        return not any(event["event"] == history.EventKind.START for event in self._before)

    @property
    def is_last(self) -> bool:
        """Whether no kill is planned for this life."""
        return self._end is None

    def wait_for_the_start(self) -> None:
        """Wait for the start line in the first life; it has been passed when the others begin."""
        if self.is_first:
            super().wait_for_the_start()
        else:
            self.ledger.record(history.EventKind.START, kind=self.kind, writer=self.number)

    def _trap(self, seq: int, step: str, when: str) -> None:
        """Die here, with the JVM, if this is where this life ends."""
        if self._end is None or not self._ends_at(self._end, step, when):
            return
        place = {"step": step, "when": when, "end": self._end["end"]}
        self.ledger.record(history.EventKind.KILL, kind=self.kind, writer=self.number, seq=seq, **place)
        self.say(history.EventKind.KILL, seq, step, when, os.getpid())
        os.killpg(0, signal.SIGKILL)

    def _ends_at(self, end: dict[str, Any], step: str, when: str) -> bool:
        if end["end"] == ANY_MOMENT:
            return False
        if end["end"] == NEXT_STEP:
            self._passed += 1
            # Where every place in two batches has ended a life before, any will do.
            new = (step, when) not in self._ended_at or self.batches > _BATCHES_MAX
            return new and self._passed > end["places"]
        return (step, when) == (end["step"], end["when"]) and self.batches >= end["batches"]


def live(work: Callable[[dict[str, Any], Any], None]) -> NoReturn:
    """Start a session and do ``work`` with it until it is done, or killed; does not return."""
    # Ask Linux to end us with our parent; the JVM ends with its standard input, which is ours.
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))
    if os.getppid() != int(sys.argv[2]):
        os._exit(1)
    config = common.read_config()

    def with_session() -> None:
        session = spark_session.start(config, common.spark_folder(config) / f"spark-{os.getpid()}")
        work(config, session)
        session.stop()

    common.leave_after(with_session)
