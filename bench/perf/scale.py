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
    group_processes: tuple[int, ...] = (16, 64)
    """Of processes that share commits."""
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
    change_rows: int = 5_000_000
    change_files: int = 50
    changes: int = 10_000
    change_rounds: int = 3
    wide_files: int = 12
    """Files of a table of wide rows, as many rows in each as in the files of the other."""
    wide_columns: int = 24
    update_rows: tuple[int, int] = (1_000_000, 10_000_000)
    update_files: int = 10
    update_rounds: int = 6
    change_writers: tuple[int, ...] = (8, 16)
    change_window_s: float = 20.0
    curve_writers: tuple[int, ...] = (1, 4, 16, 64)
    curve_events: tuple[int, ...] = (1, 10, 100)
    curve_window_s: float = 4.0
    curve_paced: int = 16
    """Writers of the curve over the time that each gathers events."""
    curve_every_s: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0, 8.0)
    curve_files: tuple[int, ...] = (1, 10, 100, 1_000)
    curve_budget_s: float = 540.0
    """Time after which no further cell of the curves begins."""

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
    group_processes=(16,),
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
    change_rows=1_000_000,
    change_files=20,
    wide_files=6,
    change_rounds=2,
    update_rows=(200_000, 2_000_000),
    update_rounds=4,
    change_writers=(8,),
    change_window_s=12.0,
    curve_writers=(1, 4, 16),
    curve_events=(1, 100),
    curve_window_s=2.0,
    curve_every_s=(1.0, 4.0),
    curve_files=(1, 100),
    curve_budget_s=100.0,
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
    group_processes=(2,),
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
    change_rows=2_000,
    change_files=4,
    wide_files=2,
    changes=50,
    change_rounds=2,
    update_rows=(2_000, 4_000),
    update_files=2,
    update_rounds=3,
    change_writers=(2,),
    change_window_s=0.5,
    curve_writers=(1, 2),
    curve_events=(1, 3),
    curve_window_s=0.5,
    curve_paced=2,
    curve_every_s=(0.25,),
    curve_files=(1, 3),
)
