"""Taking away any protection makes a model or a test fail (docs/failure-modes.md)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from safewrite.testing.explorer.__main__ import MODELS
from tests.mutants.catalogue import MUTANTS, PROTOCOL
from tests.mutants.cdc import CDC_MUTANTS
from tests.mutants.changes import CHANGE_MUTANTS
from tests.mutants.groups import GROUP_MUTANTS
from tests.mutants.iceberg import ICEBERG_MUTANTS
from tests.mutants.killers import HISTORIES, ROOT, Killer, Mutant, Warm, mutated
from tests.mutants.medallion import MEDALLION_MUTANTS
from tests.mutants.positions import POSITION_MUTANTS
from tests.mutants.row_sql import ROW_SQL_MUTANTS
from tests.mutants.secure import SECURE_MUTANTS
from tests.mutants.sharing import SHARING_MUTANTS
from tests.mutants.spark import SPARK_MUTANTS

ROOMS = (
    MUTANTS,
    ICEBERG_MUTANTS,
    GROUP_MUTANTS,
    SHARING_MUTANTS,
    CHANGE_MUTANTS,
    POSITION_MUTANTS,
    MEDALLION_MUTANTS,
    CDC_MUTANTS,
    ROW_SQL_MUTANTS,
    SECURE_MUTANTS,
    SPARK_MUTANTS,
)
ALL = tuple(mutant for room in ROOMS for mutant in room)
KILLERS = list(dict.fromkeys(mutant.killer for mutant in ALL))
TESTS = [killer for killer in KILLERS if killer.is_test]
WAYS = list(dict.fromkeys(killer.arguments[:-1] for killer in TESTS))
"""How pytest is called; its last argument says what is run."""


GATE = {"M2-repair", "M20", "M25"}
"""Mutants that ``make test`` has too: by a model, by a test of the stores, by one of changes; the others are ``long``."""
SAMPLE = [
    pytest.param(mutant, id=mutant.id, marks=() if mutant.id in GATE else pytest.mark.long) for mutant in ALL
]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with Warm() as process:
        yield process


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_killers_that_are_tests_pass_on_the_code_as_it_is(way: tuple[str, ...], warm: Warm) -> None:
    """Those of their tests that a mutant names: the others are tests of the suite as any."""
    nodes = [killer.arguments[-1] for killer in TESTS if killer.arguments[:-1] == way]
    names = {name_of(mutant) for mutant in ALL if mutant.killer.is_test}
    done = warm.run([Killer("pytest", (*way, *nodes, "-k", " or ".join(sorted(names))))])
    assert done.code == 0, done.printed


def name_of(mutant: Mutant) -> str:
    """The test that must fail."""
    node = mutant.killer.arguments[-1].rpartition("::")[2]
    return mutant.told if mutant.told.startswith("test_") else node


@pytest.mark.long
def test_random_histories_pass_on_the_code_as_it_is(warm: Warm) -> None:
    done = warm.run([HISTORIES])
    assert done.code == 0, done.printed


def test_killers_that_are_models_are_explored_by_tests_with_as_many_faults_on_the_code_as_it_is() -> None:
    found = [killer for killer in KILLERS if not killer.is_test and killer != HISTORIES]
    assert found
    for killer in found:
        _, name, _, faults = killer.arguments
        assert int(faults) <= MODELS[name].long_faults
        assert not MODELS[name].flaw


@pytest.mark.parametrize("mutant", SAMPLE)
def test_the_mutant_is_killed(mutant: Mutant, warm: Warm) -> None:
    killer = mutant.killer.only(mutant.told) if mutant.told.startswith("test_") else mutant.killer
    done = warm.run([killer], mutated(mutant))
    assert done.code == 1, done.printed
    assert mutant.told in done.printed


def test_every_mutants_text_is_there_and_its_killer_too() -> None:
    """Those that are ``long`` too: code that moves takes its mutants along."""
    assert all(mutated(mutant) for mutant in ALL)
    nodes = {killer.arguments[-1].partition("::")[0] for killer in TESTS}
    assert [node for node in nodes if not (ROOT / node).exists()] == []


def test_a_mutant_whose_text_has_gone_is_an_error() -> None:
    gone = replace(MUTANTS[0], file=PROTOCOL, edits=(("no such text in there", ""),))
    with pytest.raises(LookupError, match="0 times in protocol"):
        mutated(gone)


# --- the process that runs them -----------------------------------------------------------------------
ERRORS = str(ROOT / "safewrite" / "errors.py")
TELLS = Killer("safewrite.errors", ())


def test_a_mutated_text_is_run_and_leaves_no_trace(warm: Warm, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (ROOT / "safewrite").rglob("errors*.py*")}
    assert warm.run([TELLS]).code == 0
    done = warm.run([TELLS], {ERRORS: "raise SystemExit(3)\n"})
    assert (done.code, done.killer) == (3, 0)
    assert warm.run([TELLS]).code == 0
    assert {path: path.read_bytes() for path in (ROOT / "safewrite").rglob("errors*.py*")} == before


def test_killers_run_until_one_fails(warm: Warm) -> None:
    fails = Killer("json.tool", ("no-such-file",))
    done = warm.run([TELLS, fails, TELLS])
    assert done.killer == 1
    assert done.code != 0
    assert "no-such-file" in done.printed


def test_a_child_that_hangs_is_killed(warm: Warm) -> None:
    done = warm.run([TELLS], {ERRORS: "while True:\n    pass\n"}, limit_s=0.5)
    assert done.code == -signal.SIGKILL
    assert warm.run([TELLS]).code == 0


def test_a_mutated_module_that_nothing_imports_is_told(warm: Warm) -> None:
    done = warm.run([Killer("this", ())], {ERRORS: ""})
    assert (done.code, f"{ERRORS} was never imported" in done.printed) == (0, True)


def test_every_protection_of_delta_appends_has_a_mutant() -> None:
    wanted = {*(f"M{n}" for n in (*range(1, 10), 11, 12, 13, 21, 22, 23, 24, 27, 28, 30))}
    assert {mutant.id.partition("-")[0] for mutant in MUTANTS if mutant.id.startswith("M")} == wanted


def test_every_protection_that_iceberg_has_of_its_own_has_a_mutant() -> None:
    named = {mutant.id.partition("-")[0] for mutant in ICEBERG_MUTANTS}
    assert named >= {"M14", "M15", "M16", "M27", "M28"}
