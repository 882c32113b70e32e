"""Appends one large frame and says how far its process's memory rose; configuration on stdin."""

from __future__ import annotations

import ctypes
import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import writers

if TYPE_CHECKING:
    import pandas as pd

_ROW_BYTES = 73
"""Bytes of a row of the frame below: five numbers and times of 8 bytes, and a text of 25 with its offset of 8."""


def large_frame(size: int) -> pd.DataFrame:
    """A pandas frame of about ``size`` bytes: numbers that do not repeat, times, and texts that do not either."""
    import numpy as np
    import pandas as pd
    import pyarrow as pa

    rows = max(1, size // _ROW_BYTES)
    rng = np.random.default_rng(1)
    texts = pa.array(np.char.mod("reading-%017d", np.arange(min(rows, 50_000))))
    text_column = pa.chunked_array([texts] * (rows // len(texts) + 1)).slice(0, rows)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "at": np.datetime64("2026-01-01", "us") + np.arange(rows).astype("timedelta64[us]"),
            "value": rng.standard_normal(rows),
            "weight": rng.standard_normal(rows),
            "count": rng.integers(0, 2**62, rows),
            "name": pd.Series(pd.array(text_column.combine_chunks(), dtype="str")),
        }
    )


def main() -> None:
    """Warm up, note the memory, make the frame, append it, note the peak."""
    config = json.load(sys.stdin)
    place = writers.Place(**config["place"])
    small = large_frame(10_000)
    import pyarrow as pa

    writers.create(config["arm"], place, pa.Schema.from_pandas(small, preserve_index=False).remove_metadata())
    append = writers.opened(config["arm"], place)
    append(small)  # libraries load and allocate once, which is no part of the frame's cost
    release(pa.default_memory_pool())
    before = status("VmRSS")
    frame = large_frame(config["bytes"])
    release(pa.default_memory_pool())
    size = int(frame.memory_usage(index=False, deep=True).sum())
    held = status("VmRSS")
    whole = forget_peak()
    began = time.monotonic()
    append(frame)
    elapsed_s = time.monotonic() - began
    peak = status("VmHWM") if whole else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    answer = {"frame": size, "before": before, "held": held, "peak": peak, "elapsed_s": elapsed_s}
    print(json.dumps({**answer, "rows": len(frame)}), flush=True)


def release(pool: Any) -> None:
    """Give freed memory back: what making the frame left behind would be charged to it, or hide the append's."""
    gc.collect()
    pool.release_unused()
    ctypes.CDLL(None).malloc_trim(0)


def status(name: str) -> int:
    """Bytes, as Linux counts them for this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {name} in /proc/self/status")


def forget_peak() -> bool:
    """Make the peak begin now, so that making the frame does not count; False where that is not allowed."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
