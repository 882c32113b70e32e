"""A child process that runs a module, and what it and its parent say to each other."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

_ROOT = Path(__file__).resolve().parents[2]


class _Side:
    def __init__(self, incoming: IO[bytes] | None, outgoing: IO[bytes] | None) -> None:
        assert incoming is not None
        assert outgoing is not None
        self._incoming, self._outgoing = incoming, outgoing

    def say(self, what: object) -> None:
        """Say anything that can be pickled."""
        pickle.dump(what, self._outgoing)
        self._outgoing.flush()

    def hear(self) -> Any:
        """Wait for what the other side says next."""
        for what in self.heard():
            return what
        raise AssertionError("the other side ended; it said why on its standard error")

    def heard(self) -> Iterator[Any]:
        """What the other side says, until it ends."""
        with suppress(EOFError):
            while True:
                yield pickle.load(self._incoming)


class Child(_Side):
    """The process that runs ``module``, as its parent sees it; ``task`` is what it hears first."""

    def __init__(self, module: str, task: object) -> None:
        command = [sys.executable, "-m", module]
        self._process = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        super().__init__(self._process.stdout, self._process.stdin)
        self.say(task)

    def ready(self) -> None:
        """Wait until it has come to where it waits for us."""
        assert self.hear() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process as process:
            if kind is not None:
                process.kill()  # the Java process of a driver ends with the pipe between the two


class Parent(_Side):
    """The parent, as the process sees it; what anybody prints, such as Java, goes to standard error instead."""

    def __init__(self) -> None:
        super().__init__(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
        os.dup2(2, 1)
