"""Sets how large a run is: the whole, the quick form, and a tiny one for tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes of every scenario; the defaults are those of ``make bench``."""

    delay_s: float = 0.03
    lone_rows: tuple[int, ...] = (1_000, 100_000)
    lone_rows_iceberg: tuple[int, ...] = (100,)
    lone_rounds: int = 30
    processes: tuple[int, ...] = (4, 16, 32)
    processes_slow: tuple[int, ...] = (4, 16, 32)
    contention_rows: int = 100
    contention_rounds: int = 2
    window_s: float = 3.0
    window_s_per_process: float = 0.3
    log_versions: tuple[int, int] = (10, 5_000)
    log_rounds: int = 30
    frame_bytes: int = 10**9
    import_rounds: int = 7
    members: int = 100
    member_rows: int = 10
    member_rounds: int = 15
    functions: int = 16
    function_messages: int = 1_600
    function_rows: int = 10
    function_rounds: int = 3
    function_each: bool = True
    """Also awswrangler with a commit for each message, which takes minutes."""

    def window_of(self, processes: int) -> float:
        """Seconds for which this many writers contend: longer for more, or none gets past the first append."""
        return self.window_s + self.window_s_per_process * processes


FULL = Scale()
QUICK = Scale(
    lone_rows=(1_000,),
    lone_rounds=12,
    processes=(4, 32),
    processes_slow=(32,),
    contention_rounds=1,
    window_s=2.0,
    window_s_per_process=0.15,
    log_versions=(10, 1_000),
    log_rounds=10,
    frame_bytes=2 * 10**8,
    import_rounds=3,
    member_rounds=7,
    function_messages=640,
    function_rounds=1,
    function_each=False,
)
TINY = Scale(
    delay_s=0.001,
    lone_rows=(10,),
    lone_rows_iceberg=(10,),
    lone_rounds=2,
    processes=(2,),
    processes_slow=(2,),
    contention_rows=3,
    contention_rounds=1,
    window_s=0.5,
    window_s_per_process=0.0,
    log_versions=(2, 15),
    log_rounds=2,
    frame_bytes=2 * 10**6,
    import_rounds=1,
    members=3,
    member_rounds=1,
    functions=2,
    function_messages=12,
    function_rounds=1,
)
