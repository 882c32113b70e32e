"""Child processes that open a table, write to it, and are killed or paused at a step.

Run as a program, this module is a warm parent: it has imported everything and made one client of each
kind (so that botocore's models are read), has no thread and no connection, and forks a child for each
line of its input.  It says the child's process id at once, and its exit code when it has ended.
"""

from __future__ import annotations

import base64
import contextlib
import os
import pickle
import signal
import sqlite3  # noqa: F401 - imported before the fork
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pyarrow.parquet  # noqa: F401 - imported before the fork

import safewrite as sw
import safewrite.delta.data.datafiles
import safewrite.delta.log.checkpoint
import safewrite.stores.dynamodb
import safewrite.stores.lock_table
import safewrite.stores.s3
from bench.servers import servers
from safewrite.testing.steps import KillAt, PauseAt, side_of
from tests.integration.places import Place, rows

WAIT_S = 120.0
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Task:
    """One append by a child: ``point`` is where ``kind`` ends or stops it, None for nowhere."""

    place: Place
    ids: tuple[int, ...]
    naming: dict[str, Any]
    point: str | None
    kind: type[KillAt] | type[PauseAt] = KillAt
    settings: dict[str, Any] = field(default_factory=dict)
    queued: bool = False
    rival: int | None = None
    fresh: bool | None = None

    def run(self, session: Any = None) -> sw.Receipt:
        """Open the table and append."""
        given = {} if session is None or self.place.arbiter == "local" else {"boto3_session": session}
        table = self.place.open(**given, **self.settings)
        set_scene(self.place, table, queued=self.queued, rival=self.rival, fresh=self.fresh)
        if self.point is not None:
            table.world = self.kind(table.world, *side_of(self.point))
        return table.append(rows(*self.ids), **self.naming)


def set_scene(
    place: Place, table: sw.Table, *, queued: bool, rival: int | None, fresh: bool | None = None
) -> None:
    """Let the table object believe that writers queue, that it knows the newest state, or be outrun."""
    if fresh is not None:
        table._format._is_fresh = lambda: fresh  # type: ignore[method-assign]
    if queued:
        table._writer.queue_first = 5
    if rival is not None:
        place.open().append(rows(rival), key="rival")


# --- the side of the tests ------------------------------------------------------------------------
class Nursery:
    """Hands tasks to a warm parent, which is started when it is first needed and ends with us.

    ``module`` is the program of the parent.
    """

    def __init__(self, module: str = __name__) -> None:
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        """End the warm parent."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            servers.end(self._process)
            self._process.stdout.close()
            self._process = None

    def killed(self, task: object) -> bool:
        """Run a task: True if its process was killed by SIGKILL, False if it came to its end."""
        self._fork(task)
        code = self._number()
        assert code in (0, -signal.SIGKILL), f"the child ended with {code}"
        return code != 0

    @contextlib.contextmanager
    def paused(self, task: object) -> Iterator[None]:
        """Run a task until it has stopped itself; it goes on, and must succeed, at the end of the block."""
        pid = self._fork(task)
        try:
            _wait_until_stopped(pid)
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
        code = self._number()
        assert code == 0, f"the child ended with {code}"

    def _fork(self, task: object) -> int:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        assert self._process.stdin is not None
        self._process.stdin.write(base64.b64encode(pickle.dumps(task)) + b"\n")
        self._process.stdin.flush()
        return self._number()

    def _number(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def _wait_until_stopped(pid: int) -> None:
    limit_s = time.monotonic() + WAIT_S
    while time.monotonic() < limit_s:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state in "Tt":
            return
        assert state != "Z", "the child ended before it came to its point"
        time.sleep(0.005)
    raise AssertionError("the child did not stop")


# --- the warm parent --------------------------------------------------------------------------------
def _child(work: Callable[[Any], object], task: Any) -> None:
    try:
        work(task)
    except BaseException:  # noqa: BLE001 - the exit code tells, whatever it was
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def serve(work: Callable[[Any], object], before: Callable[[Any], object] = lambda _: None) -> None:
    """Fork a child for each task on standard input, to do ``work(task)``; ``before`` is done by the parent."""
    for line in sys.stdin.buffer:
        task = pickle.loads(base64.b64decode(line))
        before(task)
        pid = os.fork()
        if pid == 0:
            _child(work, task)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def main() -> None:
    """Warm up, and serve."""
    session = boto3.Session(aws_access_key_id="x", aws_secret_access_key="x", region_name="us-east-1")
    for service in ("s3", "dynamodb"):
        session.client(service)
    rows(0)  # pyarrow imports pandas now, not in each child
    serve(lambda task: task.run(session))


if __name__ == "__main__":
    main()
