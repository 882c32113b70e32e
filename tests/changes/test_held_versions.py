"""A writer that lost a long try asks the others to wait, by a version without rows, in both formats (decision 0093)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from safewrite.protocol.effects import Backoff, Effect, Now, Ok, Outcome, Sleep
from safewrite.protocol.held_version import NAP_S_MAX
from safewrite.testing.steps import Stepwise
from safewrite.upkeep.maintain import TAKEN
from tests.changes.test_decide import up
from tests.changes.test_rivals import Killed
from tests.changes.test_tables import COMMIT, Lake, apply
from tests.changes.test_where_beside_rivals import table_of

FORMS = ["delta", "iceberg"]
LEASE_S = 3.0


class Waiting(Stepwise):
    """A world in which time passes by sleep alone; something happens before one commit after another, or at one sleep after another."""

    def __init__(self, table: Any, form: str, *acts: Callable[[], object], at: str = "") -> None:
        super().__init__(table.world)
        self.now_s, self.acts, self.at = 0.0, [*acts], at or COMMIT[form]
        table.world = self

    def _step(self, step: str, effect: Effect) -> Outcome:
        if step.partition("#")[0] == self.at and self.acts:
            self.acts.pop(0)()
        if isinstance(effect, Now):
            return Ok(self.now_s)
        if isinstance(effect, Sleep | Backoff):
            self.now_s += effect.seconds if isinstance(effect, Sleep) else 0.0
            return Ok(None)
        return self.world.perform(effect)


def die() -> None:
    raise Killed


def lake_of(form: str, folder: Path) -> Lake:
    lake = Lake(form, folder)
    apply(lake.open(), [up((1, 0), "old", (key, "x")) for key in range(6)])
    return lake


def losing(lake: Lake, *then: Callable[[], object], **how: Any) -> Any:
    """A table whose next call loses a try to a rival, and takes it for a long one; ``then`` is before the commits after that."""
    rival, table = lake.open(**how), lake.open(**how)
    table.limits = replace(table.limits, long_s=0.0, timeout_s=20.0)
    theirs = [up((2, 0), "theirs", (2, "x"))]
    Waiting(table, lake.format, lambda: apply(rival, theirs), *then)
    return table


OURS = [up((9, 0), "ours", (5, "x"))]
MADE = {(key, "x"): "theirs" if key == 2 else "old" for key in range(6)}


@pytest.mark.parametrize("form", FORMS)
def test_a_writer_that_lost_a_long_try_holds_the_table_and_lands_in_its_next(
    form: str, tmp_path: Path
) -> None:
    lake = lake_of(form, tmp_path)
    table = losing(lake)
    receipt = apply(table, OURS)
    assert (receipt.attempts, receipt.rebased) == (2, 1)
    assert lake.rows() == MADE | {(5, "x"): "ours"}
    newest = [(one.rows_added, one.write_count) for one in lake.open().history(2)]
    assert newest[0][1] == 1
    assert newest[1] in {(0, 0), (None, 0)}, "no version without rows is before it"


@pytest.mark.parametrize("form", FORMS)
def test_who_dies_while_it_holds_the_table_costs_others_the_time_it_said_and_its_write_is_not_there(
    form: str, tmp_path: Path
) -> None:
    lake = lake_of(form, tmp_path)
    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die), OURS, key="ours")
    rival = lake.open()
    world = Waiting(rival, form)
    for turn in (4, 5):
        apply(rival, [up((turn, 0), "later", (0, "x"))])
        assert LEASE_S <= world.now_s < LEASE_S + NAP_S_MAX
    assert apply(lake.open(), OURS, key="ours").outcome == "committed"
    assert lake.rows() == MADE | {(5, "x"): "ours", (0, "x"): "later"}


@pytest.mark.parametrize("form", FORMS)
def test_who_waits_goes_on_as_soon_as_the_holder_has_landed(form: str, tmp_path: Path) -> None:
    lake = lake_of(form, tmp_path)
    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die), OURS, key="ours")
    rival, holder = lake.open(), lake.open()
    Waiting(holder, form)
    world = Waiting(rival, form, lambda: apply(holder, OURS, key="ours"), at="held.wait")
    receipt = apply(rival, [up((4, 0), "later", (0, "x"))])
    assert not world.acts, "it did not wait"
    assert world.now_s < 0.2
    assert receipt.attempts == 1
    assert lake.rows() == MADE | {(5, "x"): "ours", (0, "x"): "later"}


@pytest.mark.parametrize("form", FORMS)
def test_upkeep_waits_for_a_holder_and_leaves_the_files_that_this_one_took(form: str, tmp_path: Path) -> None:
    lake = lake_of(form, tmp_path)
    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die), OURS, key="ours")
    keeper, holder = lake.open(), lake.open()
    Waiting(holder, form)
    world = Waiting(keeper, form, lambda: apply(holder, OURS, key="ours"), at="held.wait")
    report = keeper.maintain()
    assert not world.acts, "it did not wait"
    assert world.now_s < 0.2
    assert (report.dropped, report.left) == ({TAKEN: 1}, {})
    assert lake.rows() == MADE | {(5, "x"): "ours"}


@pytest.mark.parametrize("form", FORMS)
def test_upkeep_waits_for_a_dead_holder_for_half_of_what_its_call_has_left(form: str, tmp_path: Path) -> None:
    """It took the whole time of a call from when it met the holder, so that a call near its end waited beyond it."""
    lake = lake_of(form, tmp_path)
    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die), OURS, key="ours")
    keeper = lake.open()
    world = Waiting(keeper, form)
    keeper.limits = replace(keeper.limits, until_s=2.0)
    keeper.maintain()
    assert 1.0 <= world.now_s < 1.0 + NAP_S_MAX


@pytest.mark.parametrize("form", FORMS)
def test_who_only_appends_waits_for_nobody(form: str, tmp_path: Path) -> None:
    lake = lake_of(form, tmp_path)
    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die), OURS)
    table = lake.open()
    world = Waiting(table, form)
    table.append(table_of([(50, "x", 2, 0, "came")]))
    assert not world.now_s


def waited_s(table: Any) -> float:
    """For how long a call waits that changes a row."""
    world = Waiting(table, "iceberg")
    apply(table, [up((4, 0), "later", (0, "x"))])
    return world.now_s


def test_who_holds_a_branch_holds_no_other_that_comes_to_its_snapshot(tmp_path: Path) -> None:
    lake = lake_of("iceberg", tmp_path)
    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die, branch="audit"), OURS)
    audit = lake.open(branch="audit")
    audit.fast_forward()
    main = lake.open()
    assert main.version == audit.version
    assert waited_s(audit) >= LEASE_S
    assert not waited_s(main)

    with pytest.raises(Killed):
        apply(losing(lake, lambda: None, die), OURS)
    main, begun = lake.open(), lake.open(branch="begun")
    assert main.version == begun.version
    assert waited_s(main) >= LEASE_S
    assert not waited_s(begun)
