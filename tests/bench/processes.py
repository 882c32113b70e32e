"""What the kernel says about a process: whether it lives and where it listens."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def until_gone(pid: int) -> bool:
    """Whether a process has gone within half a minute."""
    for _ in range(600):
        if not is_alive(pid):
            return True
        time.sleep(0.05)
    return False


def listening_addresses(pid: int) -> set[str]:
    """The addresses, as the kernel writes them, on which a process accepts TCP connections."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            sockets.add(str(descriptor.readlink()))
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and f"socket:[{parts[9]}]" in sockets:
                addresses.add(parts[1].partition(":")[0])
    return addresses
