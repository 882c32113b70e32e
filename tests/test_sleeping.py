"""A test that replaces ``time.sleep`` does so for its own thread: a server's thread must not get what the caller gets."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import pytest

from tests.sleeping import sleeps_by

TESTS = Path(__file__).parent


def test_an_interrupt_that_a_caller_gets_as_it_sleeps_ends_no_other_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    ended: list[str] = []

    def serve() -> None:
        time.sleep(0)
        ended.append("served")

    sleeps_by(monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        time.sleep(0)
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    assert ended == ["served"]


def test_no_test_replaces_the_sleep_of_the_whole_process() -> None:
    replaces = re.compile(r'\btime(, "|\.)sleep"')
    found = [
        str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if replaces.search(path.read_text())
    ]
    assert found == ["sleeping.py"]
