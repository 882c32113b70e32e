"""Taking away any protection makes a model or a test fail (docs/failure-modes.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from safewrite.testing.explorer.__main__ import MODELS
from tests.mutants.catalogue import (
    HISTORIES,
    MUTANTS,
    PROTOCOL,
    Killer,
    Mutant,
    copy_package,
    mutate,
    run,
)
from tests.mutants.iceberg import ICEBERG_MUTANTS

ALL = (*MUTANTS, *ICEBERG_MUTANTS)
KILLERS = list(dict.fromkeys(mutant.killer for mutant in ALL))
TESTS = [killer for killer in KILLERS if killer.is_test]
WAYS = list(dict.fromkeys(killer.arguments[:-1] for killer in TESTS))
"""How pytest is called; its last argument says what is run."""


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_killers_that_are_tests_pass_on_the_copied_code_as_it_is(
    way: tuple[str, ...], tmp_path: Path
) -> None:
    copy_package(tmp_path)
    nodes = [killer.arguments[-1] for killer in TESTS if killer.arguments[:-1] == way]
    code, printed = run(Killer("pytest", (*way, *nodes)), tmp_path)
    assert code == 0, printed


def test_random_histories_pass_on_the_code_as_it_is(tmp_path: Path) -> None:
    copy_package(tmp_path)
    code, printed = run(HISTORIES, tmp_path)
    assert code == 0, printed


def test_killers_that_are_models_are_explored_by_tests_with_as_many_faults_on_the_code_as_it_is() -> None:
    found = [killer for killer in KILLERS if not killer.is_test and killer != HISTORIES]
    assert found
    for killer in found:
        _, name, _, faults = killer.arguments
        assert int(faults) <= MODELS[name].faults
        assert not MODELS[name].flaw


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.id)
def test_the_mutant_is_killed(mutant: Mutant, tmp_path: Path) -> None:
    copy_package(tmp_path)
    mutate(mutant, tmp_path)
    killer = mutant.killer.only(mutant.told) if mutant.told.startswith("test_") else mutant.killer
    code, printed = run(killer, tmp_path)
    assert code == 1, printed
    assert mutant.told in printed


def test_a_mutant_whose_text_has_gone_is_an_error(tmp_path: Path) -> None:
    copy_package(tmp_path)
    gone = replace(MUTANTS[0], file=PROTOCOL, edits=(("no such text in there", ""),))
    with pytest.raises(LookupError, match="0 times in protocol"):
        mutate(gone, tmp_path)


def test_every_protection_of_delta_appends_has_a_mutant() -> None:
    wanted = {*(f"M{n}" for n in (*range(1, 10), 11, 12, 13, 21, 22, 23, 24, 27, 28, 30))}
    assert {mutant.id.partition("-")[0] for mutant in MUTANTS} == wanted


def test_every_protection_that_iceberg_has_of_its_own_has_a_mutant() -> None:
    named = {mutant.id.partition("-")[0] for mutant in ICEBERG_MUTANTS}
    assert named >= {"M14", "M15", "M16", "M27", "M28"}
