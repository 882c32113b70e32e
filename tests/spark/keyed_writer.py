"""A process that makes changes with safewrite when it is told to: ``python -m tests.spark.keyed_writer``."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import safewrite as sw
from tests.spark.serial import Append, Remove

_ROOT = Path(__file__).resolve().parents[2]
ATTEMPTS_MAX = 30


class KeyedWriter:
    """The process, as its parent sees it; ``reopen`` opens the table there."""

    def __init__(self, reopen: Callable[[], Any]) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._owed = 0
        self._say(reopen)

    def ready(self) -> None:
        """Wait until it has opened the table."""
        assert self._hear() == "ready"

    def tell(self, changes: Sequence[Append | Remove]) -> None:
        """Let it make these changes, one after the other; returns at once."""
        for change in changes:
            self._say(change)
            self._owed += 1

    def acked(self) -> list[dict[str, Any]]:
        """Wait for its answers to all that it was told: ``name``, ``version`` and ``outcome`` of each."""
        found = [json.loads(self._hear()) for _ in range(self._owed)]
        self._owed = 0
        return found

    def _say(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(base64.b64encode(pickle.dumps(what)) + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode().strip()
        assert line, "the writer ended; it said why on its standard error"
        return line

    def __enter__(self) -> KeyedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:
            if kind is not None:
                process.kill()


def main() -> None:
    """Open, say so; then read changes until there are no more, and say what became of each."""
    lines = iter(sys.stdin.buffer.readline, b"")
    table = pickle.loads(base64.b64decode(next(lines)))()
    _answer("ready")
    for line in lines:
        change = pickle.loads(base64.b64decode(line))
        receipt = _written(change, table)
        _answer(json.dumps({"name": change.name, "version": receipt.version, "outcome": receipt.outcome}))


def _written(change: Append | Remove, table: Any) -> Any:
    """As its user would: a conflict left nothing, so the same call again."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return change.write(table)
        except sw.ConflictError:
            continue
    raise AssertionError(f"{change.name} met {ATTEMPTS_MAX} conflicts")


def _answer(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
