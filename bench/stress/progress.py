"""Shows a run while it goes on: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import threading
import time
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from .fleet import RUNNING, STARTING, Fleet
from .plans.plan import ArmPlan

LINE_EVERY_S = 5.0


class Progress:
    """Looks at the fleet many times a second, shows it a few times; a context manager."""

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self.console = console
        self.quiet = quiet
        self._began = time.monotonic()
        self._last = 0.0
        self._lock = threading.Lock()
        self._arms: dict[str, tuple[ArmPlan, Fleet]] = {}
        self._states: dict[str, str] = {}
        live = console.is_terminal and not quiet
        self._live = Live(console=console, refresh_per_second=4, get_renderable=self._table) if live else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tick(self, arm: ArmPlan, fleet: Fleet) -> None:
        """Take in the state of an arm; on a terminal the live table shows it by itself."""
        with self._lock:
            known = self._states.get(arm.name)
            self._states[arm.name] = fleet.state
            self._arms[arm.name] = (arm, fleet)
            now = time.monotonic()
            changed = fleet.state != known
            if self.quiet or self._live is not None or (now - self._last < LINE_EVERY_S and not changed):
                return
            if changed:
                self.console.print(self._line(arm, fleet), highlight=False)
                return
            self._last = now
            for running in self._arms.values():
                if running[1].state == RUNNING:
                    self.console.print(self._line(*running), highlight=False)

    def _line(self, arm: ArmPlan, fleet: Fleet) -> str:
        tally = fleet.tally
        return (
            f"{time.monotonic() - self._began:6.1f} s  {arm.name}, {fleet.state}: {tally.acked} acked ({tally.acked_rows:,} rows of all writers),"
            f" {_rate(fleet):.1f}/s, {tally.failed} refused, {tally.unknown} unanswered,"
            f" kills {sum(tally.kills.values())}, pauses {sum(tally.pauses.values())}{_flaws(fleet)}"
        )

    def _table(self) -> Table:
        title = f"stress, {time.monotonic() - self._began:.0f} s"
        caption = "all rows: with those of other engines; lost, doubled: once the table was read back"
        table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        names = (
            "arm",
            "state",
            "acked",
            "all rows",
            "acks/s",
            "refused",
            "unanswered",
            "kills",
            "pauses",
            "lost",
            "doubled",
        )
        for name in names:
            left = name in ("arm", "state")
            table.add_column(name, justify="left" if left else "right", no_wrap=True)
        for arm, fleet in list(self._arms.values()):
            tally = fleet.tally
            state = f"starting {tally.ready}/{len(arm.writers)}" if fleet.state == STARTING else fleet.state
            table.add_row(
                arm.name, state, str(tally.acked), f"{tally.acked_rows:,}",
                f"{_rate(fleet):.1f}" if fleet.state == RUNNING else "", str(tally.failed), str(tally.unknown),
                str(sum(tally.kills.values())), str(sum(tally.pauses.values())),
                *(f"{count:,}" for count in fleet.flaws or ()),
            )  # fmt: skip
        return table


def _flaws(fleet: Fleet) -> str:
    """What the checker found, once the table was read back."""
    return f", {fleet.flaws[0]:,} lost, {fleet.flaws[1]:,} doubled" if fleet.flaws is not None else ""


def _rate(fleet: Fleet) -> float:
    now = time.monotonic()
    return sum(1 for t in list(fleet.recent) if now - t < 5.0) / 5.0
