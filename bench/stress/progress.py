"""What a run shows while it goes on: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import threading
import time
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .fleet import Fleet
from .plan import ArmPlan

LINE_EVERY_S = 5.0


class Progress:
    """Told of the fleet many times a second, shows it a few times; a context manager."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self._began = time.monotonic()
        self._last = 0.0
        self._lock = threading.Lock()
        self._arms: dict[str, tuple[ArmPlan, Fleet]] = {}
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tick(self, arm: ArmPlan, fleet: Fleet) -> None:
        """Show the state of the arm that runs."""
        with self._lock:
            self._tick(arm, fleet)

    def _tick(self, arm: ArmPlan, fleet: Fleet) -> None:
        new = arm.name not in self._arms
        self._arms[arm.name] = (arm, fleet)
        now = time.monotonic()
        if self.quiet or (now - self._last < (0.25 if self._live else LINE_EVERY_S) and not new):
            return
        self._last = now
        if self._live is not None:
            self._live.update(self._table())
        else:
            for running in self._running() or [(arm, fleet)]:
                self.console.print(self._line(*running), highlight=False)

    def _running(self) -> list[tuple[ArmPlan, Fleet]]:
        """Arms whose writers are at work."""
        return [(arm, fleet) for arm, fleet in self._arms.values() if fleet.running]

    def _line(self, arm: ArmPlan, fleet: Fleet) -> str:
        tally = fleet.tally
        return (
            f"{time.monotonic() - self._began:6.1f} s  {arm.name}: {tally.acked} acked ({tally.acked_rows:,} rows),"
            f" {_rate(fleet):.1f}/s, {tally.failed} not committed, {tally.unknown} unknown,"
            f" {sum(tally.kills.values())} kills, {sum(tally.pauses.values())} pauses"
        )

    def _table(self) -> Table:
        table = Table(title=f"stress, {time.monotonic() - self._began:.0f} s")
        for name in ("arm", "writers", "acked", "rows", "acks/s", "not committed", "unknown", "kills", "pauses"):
            table.add_column(name, justify="left" if name == "arm" else "right")
        for arm, fleet in self._arms.values():
            tally = fleet.tally
            table.add_row(
                arm.title, str(len(arm.writers)), str(tally.acked), f"{tally.acked_rows:,}", f"{_rate(fleet):.1f}",
                str(tally.failed), str(tally.unknown), str(sum(tally.kills.values())), str(sum(tally.pauses.values())),
            )  # fmt: skip
        return table


def _rate(fleet: Fleet) -> float:
    now = time.monotonic()
    return sum(1 for t in list(fleet.recent) if now - t < 5.0) / 5.0
