"""Looks at the processes of a Spark application on a :class:`bench.servers.spark.Cluster`: what each kind of them took."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from .spark import Cluster, processes

KINDS = ("driver's Python", "driver's Java", "executors' Java", "executors' Python")


@dataclass
class Usage:
    """The processes of one application; ``kinds`` names them by id, an executor with the number of its worker."""

    driver: int
    cluster: Cluster
    kinds: dict[int, str] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)
    """Seconds of CPU of each process so far, those that ended too."""
    peaks_mib: dict[int, float] = field(default_factory=dict)
    """The most that each process had in memory."""
    threads_s: dict[int, dict[int, tuple[str, float]]] = field(default_factory=dict)
    """Seconds of CPU of the threads of each Java process, those that ended too: the name and the seconds, by thread."""

    def look(self) -> dict[int, float]:
        """Look again; seconds of CPU of the processes that run."""
        running = processes()
        workers = {pid: number for number, pid in enumerate(self.cluster.pids)}
        found = {}
        for pid in running:
            is_ending = not running[pid][1].strip()  # nothing names its program any more
            kind = self.kinds.get(pid) if is_ending else self._kind(pid, running, workers)
            if kind is not None:
                self.kinds[pid] = kind
                found[pid] = max(_cpu_s(pid), self.cpu_s.get(pid, 0.0))
                self.peaks_mib[pid] = max(_peak_mib(pid), self.peaks_mib.get(pid, 0.0))
                if "Java" in kind:
                    self.threads_s.setdefault(pid, {}).update(_threads_s(pid))
        self.cpu_s |= found
        return found

    def compiling_s(self) -> dict[int, float]:
        """Seconds of CPU so far that Java's compilers took, by process: a job that runs for long pays them once."""
        return {
            pid: sum(spent for name, spent in threads.values() if "CompilerThre" in name)
            for pid, threads in self.threads_s.items()
        }

    def _kind(self, pid: int, running: dict[int, tuple[int, str]], workers: dict[int, int]) -> str | None:
        line, above = running[pid][1], pid
        while above in running:
            if above in workers:
                language = "Java" if "java" in line.split(" ")[0] else "Python"
                return None if pid in workers else f"executors' {language} {workers[above]}"
            if above == self.driver:
                return KINDS[0] if pid == self.driver else KINDS[1]
            above = running[above][0]
        return None


def by_kind(kinds: dict[int, str], spent: dict[int, float]) -> dict[str, float]:
    """Seconds of CPU of processes, by their kind."""
    return {kind: sum(one for pid, one in spent.items() if kinds[pid].startswith(kind)) for kind in KINDS}


def shares_of(kinds: dict[int, str], spent: dict[int, float], kind: str = "executors") -> list[float]:
    """The part of each executor in the CPU of all of them, or of their processes of one kind, ascending."""
    of: dict[str, float] = {}
    for pid, one in spent.items():
        if kinds[pid].startswith(kind):
            name = kinds[pid].rpartition(" ")[2]
            of[name] = of.get(name, 0.0) + one
    whole = sum(of.values())
    return sorted(one / whole for one in of.values() if whole)


def _threads_s(pid: int) -> dict[int, tuple[str, float]]:
    found = {}
    for place in Path(f"/proc/{pid}/task").glob("*"):
        try:
            head, _, rest = (place / "stat").read_text().rpartition(")")
        except OSError:  # it ended just now
            continue
        parts = rest.split()
        found[int(place.name)] = (
            head.partition("(")[2],
            (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK"),
        )
    return found


def _cpu_s(pid: int) -> float:
    try:
        parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
