"""Starts writer processes behind one line, restarts them when killed, wakes them when stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safewrite.testing.history import EventKind

from ..servers import servers

PROGRAMS = Path(__file__).resolve().parent / "writers"
RESTARTS_MAX = 60
READY_LIMIT_S = 300.0
"""Twenty writers that each import PyIceberg and pandas need a minute of CPU before the first is at work."""
STARTING, RUNNING, READING = "starting", "running", "reading back"


@dataclass(frozen=True, slots=True)
class WriterSpec:
    """One writer: which program under which interpreter, and its configuration (see arms/common.py)."""

    kind: str
    python: str
    program: str
    config: dict[str, Any]

    @property
    def number(self) -> int:
        """The writer's number, unique in a run."""
        return int(self.config["writer"])


@dataclass(slots=True)
class Tally:
    """What the writers of one arm said so far."""

    ready: int = 0
    acked_rows: int = 0
    acked: int = 0
    failed: int = 0
    unknown: int = 0
    late: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    pauses: Counter[str] = field(default_factory=Counter)
    restarts: int = 0


class _Process:
    """One running writer and the thread that listens to it."""

    def __init__(self, spec: WriterSpec, config_path: Path, log: Path, fleet: Fleet) -> None:
        self.spec = spec
        self.paused: tuple[int, float] | None = None
        self._fleet = fleet
        self._log = log.open("ab")
        self.popen = servers.spawn(
            [spec.python, str(PROGRAMS / spec.program), str(config_path)], self._log,
            env=_environment(), cwd=config_path.parent, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self._fleet.heard(self, line.decode(errors="replace").split())

    def close(self) -> None:
        """Kill if it still runs, wait for it, and for the last of its words."""
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self._thread.join(timeout=10)
        if self.popen.stdout is not None:
            self.popen.stdout.close()
        self._log.close()


def _environment() -> dict[str, str]:
    """The parent's environment without what could redirect or weaken a writer; Spark's jars may be elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AWS_", "DELTA_", "SAFEWRITE_")) or name == "SAFEWRITE_JARS"
    }
    # Many processes on few cores: one thread each is faster, and the native pools stay small.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKIO_WORKER_THREADS"), "1")
    return {**kept, **threads, "POLARS_MAX_THREADS": "1", "PYTHONUNBUFFERED": "1"}


class Fleet:
    """All writers of one arm, as a context manager: nothing outlives it."""

    def __init__(
        self,
        specs: Sequence[WriterSpec],
        folder: Path,
        *,
        pause_s: float = 5.0,
        stop: threading.Event | None = None,
    ) -> None:
        self.specs = tuple(specs)
        self.folder = folder
        self.pause_s = pause_s
        self._stop = stop or threading.Event()
        self.tally = Tally()
        self.state = STARTING
        """For the display: ``STARTING``, ``RUNNING``, ``READING``, then the arm's verdict."""
        self.flaws: tuple[int, int] | None = None
        """Lost and doubled rows; None until the table was read back."""
        self.errors: list[str] = []
        self.recent: deque[float] = deque(maxlen=2000)
        self._lock = threading.Lock()
        self._processes: dict[int, _Process] = {}
        self._restarts: Counter[int] = Counter()
        self.start_file = folder / "start"

    def __enter__(self) -> Fleet:
        self.folder.mkdir(parents=True, exist_ok=True)
        for spec in self.specs:
            self._spawn(spec)
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self._processes.values():
            process.close()
        self.state = READING

    @property
    def histories(self) -> list[Path]:
        """The ledger files of all writers."""
        return [Path(spec.config["history"]) for spec in self.specs if Path(spec.config["history"]).exists()]

    def _spawn(self, spec: WriterSpec) -> None:
        path = self.folder / f"writer-{spec.number}.config.json"
        path.write_text(json.dumps({**spec.config, "start_file": str(self.start_file)}))
        log = self.folder / f"writer-{spec.number}.log"
        self._processes[spec.number] = _Process(spec, path, log, self)

    def heard(self, process: _Process, words: list[str]) -> None:
        """Take in one line of a writer."""
        with self._lock:
            match words:
                case ["ready"]:
                    self.tally.ready += 1
                case ["ok", _seq, rows]:
                    self.tally.acked += 1
                    self.tally.acked_rows += int(rows)
                    self.recent.append(time.monotonic())
                case ["fail", *_]:
                    self.tally.failed += 1
                case ["info", *_]:
                    self.tally.unknown += 1
                case ["late", *_]:
                    self.tally.late += 1
                case ["restart"]:
                    self.tally.restarts += 1
                case [EventKind.KILL, _seq, step, when, _pid]:
                    self.tally.kills[f"{step}:{when}"] += 1
                case [EventKind.PAUSE, _seq, step, when, pid]:
                    self.tally.pauses[f"{step}:{when}"] += 1
                    process.paused = (int(pid), time.monotonic() + self.pause_s)

    def run(self, *, time_limit_s: float, tick: Callable[[Fleet], None] = lambda fleet: None) -> float:
        """Start all at once and look after them until they are done; the seconds it took.

        Writers that did not end by ``time_limit_s`` are killed and named in ``errors``.
        """
        self._wait_until_ready(tick)
        began = time.monotonic()
        self.start_file.write_text("go")
        self.state = RUNNING
        while self._look_after() and not self._stop.is_set():
            tick(self)
            if time.monotonic() - began > time_limit_s:
                self.errors.append(f"not done after {time_limit_s:.0f} s: writers {sorted(self.running)}")
                break
            time.sleep(0.05)
        return time.monotonic() - began

    def _wait_until_ready(self, tick: Callable[[Fleet], None], limit_s: float = READY_LIMIT_S) -> None:
        deadline = time.monotonic() + limit_s
        while self.tally.ready < len(self.specs):
            dead = [p for p in self._processes.values() if p.popen.poll() is not None]
            if dead or time.monotonic() > deadline or self._stop.is_set():
                raise RuntimeError(
                    f"writers did not start:\n{self.log_tail(dead[0].spec.number) if dead else ''}"
                )
            tick(self)
            time.sleep(0.05)

    @property
    def running(self) -> list[int]:
        """Numbers of the writers whose process is alive."""
        return [number for number, process in self._processes.items() if process.popen.poll() is None]

    def _look_after(self) -> bool:
        """Wake the stopped, start the killed again; False when all are done."""
        busy = False
        for number, process in list(self._processes.items()):
            code = process.popen.poll()
            if code is None:
                busy = True
                if process.paused is not None and time.monotonic() > process.paused[1]:
                    pid, _ = process.paused
                    process.paused = None
                    # Our own grandchild: stopped, so its id is not another's.
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            elif code == -signal.SIGKILL:
                busy = True
                self._restart(number, process)
            elif code != 0 and not any(f"writer {number} " in error for error in self.errors):
                self.errors.append(
                    f"writer {number} ({process.spec.kind}) ended with {code}: {self.log_tail(number)}"
                )
        return busy

    def _restart(self, number: int, process: _Process) -> None:
        process.close()
        self._restarts[number] += 1
        if self._restarts[number] > RESTARTS_MAX:
            raise RuntimeError(f"writer {number} was killed more than {RESTARTS_MAX} times")
        self.tally.restarts += 1
        self._spawn(process.spec)

    def log_tail(self, number: int, characters: int = 1500) -> str:
        """The end of what a writer wrote to its standard error."""
        path = self.folder / f"writer-{number}.log"
        return path.read_text(errors="replace")[-characters:] if path.exists() else ""
