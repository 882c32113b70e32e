"""Taking away any protection makes a model or a test fail (docs/failure-modes.md)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from safewrite.testing.explorer.__main__ import MODELS
from tests.mutants.faults import FAULTS
from tests.mutants.killers import ROOT, Killer, Warm
from tests.mutants.seams import Fault, Seam

SAMPLE = [pytest.param(one, id=str(one)) for one in FAULTS]
TESTS = [one for one in FAULTS if one.killer.is_test]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    """A process that has imported safewrite, for faults."""
    with Warm(
        "tests.mutants.faults", "safewrite.tables", "safewrite.delta.format", "safewrite.iceberg.format"
    ) as process:
        yield process


@pytest.fixture(scope="module")
def bare() -> Iterator[Warm]:
    """A process that has imported nothing of safewrite, for other texts of modules."""
    with Warm() as process:
        yield process


@pytest.mark.sweep(
    "A2-an_engine",
    "A21-a_summary",
    "A21-files_with",
    "A21-rows_that",
    "B4-a_compaction",
    "B4-rows",
    "B4-the_vectors",
    "B6-null",
    "B7-a_",
    "B7-no_version",
    "B7-no_clock",
    "B7-the_log",
    "B7-the_newest",
    "B7-what_time",
    "B7-snapshots_",
    "B7-what_did",
    "C3-an_own_key",
    "C9-what",
    "C9-a_file",
    "C11-a_try",
    "C11-numbers",
    "C11-a_row",
    "C11-ids",
    "C11-a_vector",
    "H1-values_of",
    "I3-tombstones",
    "I7-a_file_that",
    "I7-a_union",
    "I7-a_verdict_is_kept_before_its_delete",
    "I7-files",
    "I7-rows",
    "I7-tasks",
)
@pytest.mark.parametrize("fault", SAMPLE)
def test_the_fault_is_noticed(fault: Fault, warm: Warm) -> None:
    done = warm.run([fault.killer], fault=str(fault))
    assert done.code == 1, done.printed
    assert fault.says in done.printed
    assert "was never reached" not in done.printed


@pytest.mark.long
@pytest.mark.parametrize("fault", TESTS, ids=str)
def test_what_notices_it_passes_on_the_code_as_it_is(fault: Fault, warm: Warm) -> None:
    done = warm.run([fault.killer])
    assert done.code == 0, done.printed


def test_models_that_notice_faults_are_explored_by_tests_with_as_many_faults_on_the_code_as_it_is() -> None:
    found = [one.killer for one in FAULTS if not one.killer.is_test]
    assert found
    for killer in found:
        _, name, _, faults = killer.arguments
        assert int(faults) <= MODELS[name].long_faults
        assert not MODELS[name].flaw


def test_every_seam_and_every_killer_is_there() -> None:
    """Those of ``long`` faults too: code that moves takes its seams along."""
    for one in FAULTS:
        assert callable(one.seam.found()[2]), one
    for one in TESTS:
        file, _, test = one.killer.arguments[-1].partition("::")
        assert f"def {test}(" in (ROOT / file).read_text(), one


def test_a_seam_that_has_gone_is_an_error() -> None:
    gone = replace(FAULTS[0], seam=Seam.of("stores.s3:S3Objects.no_such_method"))
    with pytest.raises(AttributeError, match="no_such_method"):
        gone.switch_on([])


def test_a_fault_that_is_not_reached_is_told(warm: Warm) -> None:
    done = warm.run([Killer("this", ())], fault=str(FAULTS[0]))
    assert (done.code, f"{FAULTS[0]} was never reached" in done.printed) == (0, True)


# --- the process that runs what a machine draws --------------------------------------------------------
ERRORS = str(ROOT / "safewrite" / "errors.py")
TELLS = Killer("safewrite.errors", ())


@pytest.mark.long
def test_a_mutated_text_is_run_and_leaves_no_trace(bare: Warm, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (ROOT / "safewrite").rglob("errors*.py*")}
    assert bare.run([TELLS]).code == 0
    done = bare.run([TELLS], {ERRORS: "raise SystemExit(3)\n"})
    assert (done.code, done.killer) == (3, 0)
    assert bare.run([TELLS]).code == 0
    assert {path: path.read_bytes() for path in (ROOT / "safewrite").rglob("errors*.py*")} == before


@pytest.mark.long
def test_killers_run_until_one_fails(bare: Warm) -> None:
    fails = Killer("json.tool", ("no-such-file",))
    done = bare.run([TELLS, fails, TELLS])
    assert done.killer == 1
    assert done.code != 0
    assert "no-such-file" in done.printed


@pytest.mark.long
def test_a_child_that_hangs_is_killed(bare: Warm) -> None:
    done = bare.run([TELLS], {ERRORS: "while True:\n    pass\n"}, limit_s=0.5)
    assert done.code == -signal.SIGKILL
    assert bare.run([TELLS]).code == 0


@pytest.mark.long
def test_a_mutated_module_that_nothing_imports_is_told(bare: Warm) -> None:
    done = bare.run([Killer("this", ())], {ERRORS: ""})
    assert (done.code, f"{ERRORS} was never imported" in done.printed) == (0, True)
