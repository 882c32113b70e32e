"""Forks a child for each mutant, from one process that has imported what is slow to import.

``python -m tests.mutants.warm`` reads requests from its input, one JSON object a line, and answers each
with a line: see ``tests.mutants.killers.Warm``, which starts it.  A child imports safewrite and the tests
for the first time, and the modules that the mutant changes from the text of the request: their files, and
the bytecode beside them, stay as they are.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

SLOW_IMPORTS = (
    "boto3",
    "botocore.stub",
    "hypothesis.stateful",
    "numpy",
    "pandas",
    "polars",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "pyiceberg.table",
    "pytest",
    "sqlglot",
    "tenacity",
)
OUTPUT_BYTES_MAX = 1 << 20
MEMORY_BYTES_MAX = 8 << 30
"""Of addresses: allocators reserve far more than they use, but a mutant that never stops must stop here."""


class MutatedModule(SourceFileLoader):
    """Compiles a module from another text than its file's; reads and writes no bytecode."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_source(self, fullname: str) -> str:
        """The mutated text."""
        return self.text

    def get_code(self, fullname: str) -> CodeType:
        """What the mutated text compiles to."""
        code = compile(self.text, self.path, "exec", dont_inherit=True)
        assert isinstance(code, CodeType)
        return code


class MutatedModules(MetaPathFinder):
    """Finds the modules of safewrite whose text is another one, by the paths of their files."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.found: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """The spec of a mutated module; None leaves a module to the usual finders."""
        if fullname.partition(".")[0] != "safewrite":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin not in self.texts:
            return None
        spec.loader = MutatedModule(fullname, spec.origin, self.texts[spec.origin])
        self.found.add(spec.origin)
        return spec


def serve(imports: Sequence[str]) -> None:
    """Answer requests until the input ends."""
    for name in (*SLOW_IMPORTS, *imports):
        importlib.import_module(name)
    early = sorted(name for name in sys.modules if name.partition(".")[0] == "safewrite")
    if early and not imports:
        raise RuntimeError(f"imported before any mutant: {early}")
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it shares
    for line in sys.stdin:
        sys.stdout.write(json.dumps(_answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="safewrite-mutant-"))
    started = time.monotonic()
    try:
        child = os.fork()
        if child == 0:
            _be_child(request, folder)
        watch = os.pidfd_open(child)
        ended, _, _ = select.select([watch], [], [], request["limit_s"])
        os.close(watch)
        if not ended:
            os.kill(child, signal.SIGKILL)
        _, status, used = os.wait4(child, 0)
        _end_group(child)
        noted = folder / "killer"
        return {
            "code": os.waitstatus_to_exitcode(status),
            "printed": (folder / "output").read_bytes()[-OUTPUT_BYTES_MAX:].decode(errors="replace"),
            "killer": int(noted.read_text()) if noted.exists() else 0,
            "seconds": time.monotonic() - started,
            "cpu_s": used.ru_utime + used.ru_stime,
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_group(child: int) -> None:
    """End what the child started and left."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def _be_child(request: dict[str, Any], folder: Path) -> None:
    """Run the killers one after another until one fails; never returns."""
    code = 70
    try:
        os.setsid()
        signal.alarm(int(request["limit_s"]) + 5)  # if the warm process is killed, nobody else ends this one
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        _redirect(folder / "output")
        _live_in(folder)
        finder = MutatedModules(request["texts"])
        sys.meta_path.insert(0, finder)
        reached: list[str] = []
        if request["fault"]:
            faults = importlib.import_module("tests.mutants.faults")
            faults.named(request["fault"]).switch_on(reached)
        for number, (module, arguments) in enumerate(request["killers"]):
            (folder / "killer").write_text(str(number))
            code = _run(module, arguments)
            if code != 0:
                break
        for path in sorted(request["texts"].keys() - finder.found):
            sys.stdout.write(f"{path} was never imported\n")
        if request["fault"] and not reached:
            sys.stdout.write(f"{request['fault']} was never reached\n")
    except BaseException:  # noqa: BLE001 - the child ends here, whatever it was
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(output: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, written), (2, written)):
        os.dup2(source, target)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the parent's buffer must not be read on
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _live_in(folder: Path) -> None:
    """Leave nothing behind, neither temporary files nor what Hypothesis found in broken code; no luck in its examples."""
    from hypothesis import Phase, settings
    from hypothesis.configuration import set_hypothesis_home_dir

    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    set_hypothesis_home_dir(folder / "hypothesis")
    phases = (Phase.explicit, Phase.generate)  # a counterexample will do, it need not be the smallest
    settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
    settings.load_profile("mutants")


def _run(module: str, arguments: list[str]) -> int:
    """Run a module as ``python -m`` does, but in this process; its exit code."""
    if module == "pytest":
        import pytest

        return int(pytest.main(arguments))
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1:])
