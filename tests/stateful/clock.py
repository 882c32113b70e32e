"""A clock of which nothing but the test decides."""

from __future__ import annotations

START_MS = 1_790_000_000_000


class Clock:
    """Time that passes by being looked at."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.wall_ms = START_MS

    def monotonic(self) -> float:
        self.sleep(0.001)
        return self.now_s

    def wall(self) -> int:
        self.wall_ms += 1
        return self.wall_ms

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_ms += int(seconds * 1000)
