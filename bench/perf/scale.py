"""How large a run is: the whole, the quick form, and a tiny one for tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of every scenario; the defaults are those of ``make bench``."""

    delay_s: float = 0.03
    lone_rows: tuple[int, ...] = (1_000, 100_000)
    lone_rounds: int = 30
    processes: tuple[int, ...] = (4, 16, 32)
    processes_slow: tuple[int, ...] = (4, 16, 32)
    contention_rows: int = 100
    contention_rounds: int = 2
    window_s: float = 5.0
    window_slow_s: float = 10.0
    log_versions: tuple[int, int] = (10, 5_000)
    log_rounds: int = 30
    frame_bytes: int = 10**9
    import_rounds: int = 7


FULL = Scale()
QUICK = Scale(
    lone_rows=(1_000,),
    lone_rounds=12,
    processes=(4, 32),
    processes_slow=(32,),
    contention_rounds=1,
    window_s=3.0,
    window_slow_s=6.0,
    log_versions=(10, 1_000),
    log_rounds=10,
    frame_bytes=2 * 10**8,
    import_rounds=3,
)
TINY = Scale(
    delay_s=0.001,
    lone_rows=(10,),
    lone_rounds=2,
    processes=(2,),
    processes_slow=(2,),
    contention_rows=3,
    contention_rounds=1,
    window_s=0.5,
    window_slow_s=0.5,
    log_versions=(2, 15),
    log_rounds=2,
    frame_bytes=2 * 10**6,
    import_rounds=1,
)
