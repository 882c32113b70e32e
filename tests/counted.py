"""Counts what a call does, so that a test can bound work without a clock."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(call: Callable[[], Any]) -> Counter[str]:
    """How often each function of Python was called, in all threads that began meanwhile: ``package.module:function``."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            found[f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_name}"] += 1

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


def lines(call: Callable[[], Any], *, package: str = "safewrite") -> int:
    """How many lines of a package ran; each round of a loop or comprehension counts, also where it is on one line."""
    count = 0

    def within(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return within

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:
        return within if str(frame.f_globals.get("__name__", "")).startswith(package) else None

    before = sys.gettrace()
    threading.settrace(enter)
    sys.settrace(enter)
    try:
        call()
    finally:
        sys.settrace(before)
        threading.settrace(None)  # type: ignore[arg-type]
    return count
