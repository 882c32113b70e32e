"""What random histories found once, as fixed examples."""

from __future__ import annotations

from pathlib import Path

import pytest

import safewrite as sw
from safewrite.testing.steps import At
from tests.stateful.nemesis import Crash


def _crash() -> None:
    raise Crash


def test_rows_that_never_landed_are_not_taken_for_a_repeat_of_other_rows_under_their_key(
    tmp_path: Path,
) -> None:
    """The ledger kept the fingerprint of a first call that died before its commit (E2)."""
    first, second = [{"x": 1}], [{"x": 2}]
    table = sw.open(str(tmp_path), create=True)
    table.append([{"x": 0}])
    world = table.world
    table.world = At(world, "commit.put_commit", "before", _crash)
    with pytest.raises(Crash):
        table.append(first, key="event")
    table.world = At(world, "ledger.commit", "before", _crash)
    with pytest.raises(Crash):
        table.append(second, key="event")
    table.world = world
    assert table.append(second, key="event").outcome == "already_committed"
    with pytest.raises(sw.ReplayMismatchError):
        table.append(first, key="event")
    assert table.append(second, key="event").outcome == "already_committed"
