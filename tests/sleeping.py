"""Replaces ``time.sleep`` for the thread of a test only.

The module ``time`` is one for the whole process: threads of servers that other tests started sleep by it too, and an
interrupt that is meant for the caller would end them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest


def sleeps_by(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """Let this thread call ``sleep`` where it would sleep; all others sleep as before."""
    caller, own = threading.get_ident(), time.sleep

    def chosen(seconds: float) -> None:
        (sleep if threading.get_ident() == caller else own)(seconds)

    monkeypatch.setattr(time, "sleep", chosen)
