"""Threads may import from one package for the first time at the same moment."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import safewrite

PACKAGE = Path(safewrite.__file__).parent
FIRST = {"safewrite", "safewrite.wrangler", "safewrite.cli", "safewrite.testing.crosscheck"}
"""What programs import as they begin; no module of the others asks for them later."""
RACE = """
import sys, threading
from importlib import import_module
sys.setswitchinterval(1e-5)
import safewrite
names, told = sys.argv[1:], []
begin = threading.Barrier(len(names))
def go(name):
    begin.wait()
    try:
        import_module(name)
    except BaseException as error:
        told.append(f"{name}: {error!r}")
threads = [threading.Thread(target=go, args=(name,)) for name in names]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(*told, sep="\\n")
"""


def own_imports(path: Path, package: str) -> list[str]:
    """The modules of a package that it imports itself when it is imported."""
    found: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            is_own = node.module.startswith(f"{package}.")
            found += [node.module] if is_own else []
            within = path.parent if node.module == package else None
            found += [one.name for one in node.names if within and (within / f"{one.name}.py").exists()]
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name.startswith(f"{package}.")]
    return found


def test_a_package_imports_none_of_its_own_modules() -> None:
    """Else two threads wait for each other, and Python gives one of them a module that is half there."""
    found = {}
    for path in PACKAGE.rglob("__init__.py"):
        package = ".".join(("safewrite", *path.parent.relative_to(PACKAGE).parts))
        if package not in FIRST and (own := own_imports(path, package)):
            found[package] = own
    assert found == {}


@pytest.mark.parametrize(
    "names",
    [
        ["frames.prepare", "frames.conform", "frames.source", "frames.fingerprint", "frames.bulk_check"],
        ["metrics.cloudwatch", "metrics.dashboards", "metrics.measures", "metrics.telemetry"],
    ],
)
def test_threads_import_any_modules_of_a_package_at_once(names: list[str]) -> None:
    asked = [sys.executable, "-c", RACE, *(f"safewrite.{name}" for name in names)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "name",
    ["iceberg", "metrics", "aws_lambda", "spark", "cdc", "cdc.config", "medallion", "medallion.config"],
)
def test_a_package_lists_what_it_hands_out(name: str) -> None:
    """As ``help()`` and a shell that completes names ask it."""
    package = import_module(f"safewrite.{name}")
    assert {*package.__all__} <= {*dir(package)}
    assert all(getattr(package, one) is getattr(package, one) for one in package.__all__)
