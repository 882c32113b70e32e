"""Runs PyIceberg's own tests twice, as they are and through SafeCatalog, and compares test by test.

Exits with 1 if a test that passes without safewrite fails with it and is not among DIFFERENCES, if one of those
passes after all, or if fewer catalog tests pass than CATALOG_TESTS_MIN.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".envs" / "pyiceberg-tests" / "bin" / "python"
SOURCE = ROOT / ".envs" / "pyiceberg-tests" / "source"
"""Where the Makefile puts PyIceberg's source distribution."""

CATALOG_TESTS = ("catalog/test_base.py", "catalog/test_sql.py", "catalog/test_catalog_behaviors.py")
CATALOG_TESTS_MIN = 730
OTHER_TESTS = (
    "table",
    "io/test_fileformat.py",
    "io/test_format_writers.py",
    "io/test_io.py",
    "io/test_pyarrow.py",
    "io/test_pyarrow_stats.py",
    "io/test_pyarrow_visitor.py",
    "cli",
    "catalog/test_glue.py",
    "catalog/test_rest.py",
    "catalog/test_rest_auth.py",
    "catalog/test_rest_response.py",
)
LEFT_OUT = ("table/test_datafusion.py",)
"""DataFusion's foreign interface ends the process here, with safewrite and without."""
NO_CLOUD = "not s3 and not adls and not gcs and not integration"

_NO_GET = (
    "the mock of a REST server shows no table after it took the commit; SafeCatalog looks before it believes"
)
DIFFERENCES: Mapping[str, str] = {
    "tests/catalog/test_base.py::test_catalog_repr": "a decorated catalog says that it is one",
    "tests/catalog/test_glue.py::test_commit_table_properties": "a change without a snapshot is known by a property",
    "tests/catalog/test_rest.py::test_create_staged_table_200": _NO_GET,
    "tests/catalog/test_rest.py::test_create_table_200": _NO_GET,
    "tests/catalog/test_rest.py::test_create_table_with_given_location_removes_trailing_slash_200": _NO_GET,
    "tests/catalog/test_rest.py::test_table_identifier_in_commit_table_request": _NO_GET,
    "tests/catalog/test_rest.py::test_table_uuid_check_on_commit": "the mock shows the old table after it took the commit",
}
"""Tests that may fail through SafeCatalog, each with its reason."""


def run(where: Path, tests: tuple[str, ...], *, wrapped: bool) -> dict[str, str]:
    """The outcome of each test: passed, failed or skipped."""
    report = where / "report.json"
    report.unlink(missing_ok=True)
    plugins = ["-p", "safewrite_suite_report", *(["-p", "safewrite_suite_wrapping"] if wrapped else [])]
    command = [
        str(PYTHON),
        "-m",
        "pytest",
        *plugins,
        "-p",
        "no:cacheprovider",
        "-q",
        "--no-header",
        "-m",
        NO_CLOUD,
    ]
    command += [f"tests/{name}" for name in tests] + [f"--ignore=tests/{name}" for name in LEFT_OUT]
    environment = {**os.environ, "PYTHONPATH": str(where / "library"), "SAFEWRITE_SUITE_REPORT": str(report)}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command,
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr, flush=True)
    if not report.exists():
        raise SystemExit(f"pytest ended with {done.returncode} before its end:\n{done.stdout}\n{done.stderr}")
    found: dict[str, str] = json.loads(report.read_text())
    return found


def prepare(where: Path) -> None:
    """PyIceberg's tests without its sources, and safewrite without our tests, which have the same package's name."""
    (archive,) = SOURCE.glob("pyiceberg-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(where, filter="data")
    (unpacked,) = where.glob("pyiceberg-*")
    (unpacked / "tests").rename(where / "tests")
    (unpacked / "pyproject.toml").rename(where / "pyproject.toml")
    library = where / "library"
    library.mkdir()
    (library / "safewrite").symlink_to(ROOT / "safewrite")
    for name in ("wrapping", "report"):
        (library / f"safewrite_suite_{name}.py").symlink_to(Path(__file__).with_name(f"{name}.py"))


def broken(plain: Mapping[str, str], wrapped: Mapping[str, str]) -> list[str]:
    """Tests that pass without safewrite and not with it."""
    return sorted(name for name, outcome in plain.items() if outcome == "passed" != wrapped.get(name))


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        where = Path(folder)
        prepare(where)
        failures: list[str] = []
        for title, tests in (("catalog", CATALOG_TESTS), ("other", OTHER_TESTS)):
            print(f"{title} tests as they are:       ", end=" ", flush=True)
            plain = run(where, tests, wrapped=False)
            print(f"{title} tests through SafeCatalog:", end=" ", flush=True)
            wrapped = run(where, tests, wrapped=True)
            failures += broken(plain, wrapped)
            passed = sum(outcome == "passed" for outcome in wrapped.values())
            if title == "catalog" and passed < CATALOG_TESTS_MIN:
                failures.append(f"only {passed} catalog tests passed, {CATALOG_TESTS_MIN} must")
    unexpected = [name for name in failures if name not in DIFFERENCES]
    needless = [name for name in DIFFERENCES if name not in failures]
    for name in failures:
        print(f"differs: {name} ({DIFFERENCES.get(name, 'NOT LISTED')})")
    for name in needless:
        print(f"listed, and passes: {name}")
    print(f"{len(failures)} differ, {len(unexpected)} of them not listed")
    return 1 if unexpected or needless else 0


if __name__ == "__main__":
    sys.exit(main())
