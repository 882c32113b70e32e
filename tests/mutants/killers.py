"""What must notice a fault or a mutant, a model of the explorer or a test, and the process in which it runs.

Faults and mutants live in a forked process and end with it, so production code has no unsafe switches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
"""How long a killer may take on a machine that has a core for it."""


@dataclass(frozen=True, slots=True)
class Killer:
    """A command that passes on sound code; its first argument is what Python runs as a module."""

    module: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.module.rpartition(".")[2], *self.arguments))

    @property
    def is_test(self) -> bool:
        """Whether it is one of pytest's."""
        return self.module == "pytest"

    def only(self, test: str) -> Killer:
        """The one test of it that is called so."""
        return replace(self, arguments=(*self.arguments, "-k", test))


def model(name: str, faults: int) -> Killer:
    """A model of the explorer, with so many faults."""
    return Killer("safewrite.testing.explorer", ("--model", name, "--faults", str(faults)))


def alone(node: str) -> Killer:
    """Tests of a module, or of a function, that need none of the shared fixtures; until the first failure."""
    return Killer("pytest", ("-q", "-x", "-p", "no:cacheprovider", "--noconftest", f"tests/{node}"))


def sharing(node: str) -> Killer:
    """The same for tests that need some of the shared fixtures."""
    return Killer("pytest", ("-q", "-x", "-p", "no:cacheprovider", f"tests/{node}"))


HISTORIES = Killer("tests.stateful.histories", ("0", "12"))
"""Random histories of some seeds, on memory stores against a dict oracle."""


@dataclass(frozen=True, slots=True)
class Run:
    """How killers ended: the exit code of the last one that ran, which it was, and all that was printed.

    The code is negative if a signal ended them, as one does when they take longer than they may.
    """

    code: int
    printed: str
    killer: int
    seconds: float
    cpu_s: float


class Warm:
    """A process from which a child is forked for each mutant; see ``tests.mutants.warm``.

    With ``imports`` it has imported these modules of safewrite, too, and its children switch faults on in them.
    """

    def __init__(self, *imports: str) -> None:
        self.imports = imports

    def __enter__(self) -> Warm:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
        # With these pytest cuts no message short, and that of a large batch hides the test's name.
        for name in ("CI", "BUILD_NUMBER"):
            kept.pop(name, None)
        settings = {
            "PYTHONPATH": str(ROOT),
            "AWS_EC2_METADATA_DISABLED": "true",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # reading what is installed takes as long as many a test
            "OPENBLAS_NUM_THREADS": "1",  # a thread would not live on in a forked child
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.warm", *self.imports],
            cwd=ROOT,
            env=kept | settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(
        self,
        killers: Sequence[Killer],
        texts: Mapping[str, str] | None = None,
        *,
        fault: str = "",
        limit_s: float = LIMIT_S,
    ) -> Run:
        """Run killers until one fails, in a child in which the files named in ``texts`` have these texts, or a fault is on."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {
            "killers": [(killer.module, killer.arguments) for killer in killers],
            "texts": dict(texts or {}),
            "fault": fault,
            "limit_s": limit_s * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)),
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the warm process ended with {self._process.wait()}")
        return Run(**json.loads(answer))
