"""Repeats that come after the table has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import safewrite as sw

ROWS = [{"id": 1, "x": 2.5}]


@pytest.mark.parametrize("name", [{"key": "event"}, {"txn": ("app", 1)}])
def test_a_repeat_is_recognised_after_another_writer_added_a_column(
    tmp_path: Path, name: dict[str, Any]
) -> None:
    """Else it would be told that nothing was written, although its rows are in the table."""
    table = sw.open(tmp_path, create=True)
    first = table.append(ROWS, **name)
    sw.open(tmp_path).append([{"id": 2, "x": 1.0, "added": "new"}], schema_mode="merge")
    for again in (table.refresh(), sw.open(tmp_path)):
        repeat = again.append(ROWS, **name)
        assert (repeat.outcome, repeat.version) == (sw.Outcome.ALREADY_COMMITTED, first.version)


@pytest.mark.parametrize("name", [{}, {"key": "event"}])
def test_new_rows_that_lack_a_column_are_refused_all_the_same(tmp_path: Path, name: dict[str, Any]) -> None:
    table = sw.open(tmp_path, create=True)
    table.append([{"id": 2, "x": 1.0, "added": "new"}])
    with pytest.raises(sw.WouldAlterError):
        table.append(ROWS, **name)
    assert table.refresh().version == 0


def test_other_rows_under_a_committed_key_are_refused_after_a_column_was_added(tmp_path: Path) -> None:
    table = sw.open(tmp_path, create=True)
    table.append(ROWS, key="event")
    table.append([{"id": 2, "x": 1.0, "added": "new"}], schema_mode="merge")
    with pytest.raises(sw.NotCommittedError):
        table.append([{"id": 3, "x": 2.5}], key="event")
    assert table.refresh().version == 1
