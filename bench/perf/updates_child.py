"""Applies batches of random keys to one table, and says what each took; configuration on stdin."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from .change_tables import TABLE, catalog
from .update_tables import Load, batch


def main() -> None:
    """Time each batch: the first on a cold process, the others on what it keeps."""
    config = json.load(sys.stdin)
    load = Load(**config["load"])
    import safewrite as sw

    folder = Path(config["folder"])
    table: Any = (
        sw.open(str(folder)) if config["format"] == "delta" else sw.open(TABLE, catalog=catalog(folder))
    )
    took = []
    for number in range(load.rounds):
        changes = batch(load, number)
        began, cpu_s, moved = time.monotonic(), _cpu_s(), _moved()
        table.apply_changes(changes, keys=["id"], sequence_by=["lsn"], delete_when=[("op", "=", "d")])
        after = _moved()
        took.append(
            {
                "wall_s": time.monotonic() - began, "cpu_s": _cpu_s() - cpu_s,
                **{name: after[name] - moved[name] for name in after},
            }
        )  # fmt: skip
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"took": took, "peak_bytes": peak}), flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _moved() -> dict[str, int]:
    """Bytes that this process read and wrote through system calls, and how many calls."""
    told = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return {name: int(told[key]) for name, key in _COUNTED.items()}


_COUNTED = {"read_bytes": "rchar", "written_bytes": "wchar"}

if __name__ == "__main__":
    main()
