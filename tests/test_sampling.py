"""Samples of long tables: nothing that makes a case what it is is left out, and the rest is ``long``."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from safewrite.testing.steps import points
from tests import sampling
from tests.sampling import some, some_points

TABLES: dict[str, list[Any]] = {
    "one column": list("abcdefghij"),
    "a table as wide as its sample": list(product(range(4), range(4), range(4))),
    "a column of two values": list(product("ab", range(9))),
    "not every pair": [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)],
    "one case": [("a", 1)],
}


def is_long(case: Any) -> bool:
    return any(mark.name == "long" for mark in case.marks)


def short(cases: list[Any]) -> list[tuple[Any, ...]]:
    return [case.values for case in cases if not is_long(case)]


@pytest.mark.parametrize("every", [2, 3, 4, 100])
@pytest.mark.parametrize("name", TABLES)
def test_every_value_of_every_column_is_in_the_sample_and_every_case_in_the_whole(
    name: str, every: int
) -> None:
    table = [sampling.columns(case) for case in TABLES[name]]
    cases = some(TABLES[name], every=every)
    assert [case.values for case in cases] == table
    chosen = short(cases)
    for column, kept in zip(zip(*table, strict=True), zip(*chosen, strict=True), strict=True):
        assert set(kept) == set(column)
    assert chosen == short(some(TABLES[name], every=every))


def test_a_sample_is_about_as_small_as_it_should_be() -> None:
    assert len(short(some(product(range(8), range(8)), every=4))) == 16
    assert len(short(some(range(12), every=100))) == 12


def test_what_the_sample_meets_a_few_times_is_met_as_often_as_ever_where_all_run() -> None:
    cases = sampling.short_and_long(product("ab", "xyz"), 2, 9, every=3)
    assert [case.values for case in cases if is_long(case)] == [(*pair, 9) for pair in product("ab", "xyz")]
    assert {case[-1] for case in short(cases)} == {2}
    assert {case[1] for case in short(cases)} == set("xyz")


def test_the_first_few_are_short_and_all_are_there() -> None:
    cases = sampling.first("abc", 2)
    assert [case.values for case in cases] == [("a",), ("b",), ("c",)]
    assert short(cases) == [("a",), ("b",)]


STEPS = ("look", "put", "put#2", "claim", "look#2", "commit", "verify", "claim#2", "done")


@pytest.mark.parametrize("met", [(), ("look", "verify")])
def test_every_kind_of_step_is_killed_at_and_both_sides_are(met: tuple[str, ...]) -> None:
    chosen = some_points(points(STEPS), met=met)
    assert set(chosen) <= set(points(STEPS))
    assert {sampling.kind_of(point) for point in chosen} >= {*map(sampling.kind_of, STEPS)} - {*met}
    assert {point.partition(":")[2] for point in chosen} == {"before", "after"}
    assert f"{STEPS[0]}:before" in chosen
    assert len(chosen) < len(points(STEPS)) / 2 + 1


@pytest.mark.parametrize(
    "module",
    [
        "integration.test_lost_answers",
        "integration.test_landed_and_raised",
        "integration.test_recreated",
        "iceberg.test_datafiles",
        "iceberg.test_lost_answers",
        "iceberg.test_users_calls",
        "iceberg.test_kill_points",
    ],
)
def test_the_suites_samples_hold_every_kind_of_fault_step_arbiter_and_catalog(module: str) -> None:
    """All that a table has in a column, but how often a fault comes."""
    tables = {
        name: table
        for name, table in vars(import_module(f"tests.{module}")).items()
        if name.startswith("SAMPLED_")
    }
    assert tables
    for name, cases in tables.items():
        everything, chosen = [case.values for case in cases], short(cases)
        assert 0 < len(chosen) < len(everything), name
        for column, kept in zip(zip(*everything, strict=True), zip(*chosen, strict=True), strict=True):
            assert {*kept} == {*column} or {*map(type, column)} == {int}, name


def test_t4_b9_properties_draw_the_same_examples_on_each_machine_and_day() -> None:
    """Of the default profile; also where a module with other numbers and texts has been loaded in between."""
    profile = settings.get_profile("default")
    assert profile.derandomize
    assert profile.database is None

    def drawn() -> list[Any]:
        found = []

        @settings(profile)
        @given(st.integers(), st.text())
        def check(number: int, text: str) -> None:
            found.append((number, text))

        check()
        return found

    first = drawn()
    if settings().derandomize:
        assert len(providers._get_local_constants()) == 0
        import_module("tests.scheduling")
    assert drawn() == first
