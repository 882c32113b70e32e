"""States of a table that came after it was opened: each passes the checks of ``open``, whoever reads it first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import deltalake
import pytest

import safewrite as sw
from tests.integration.places import Place, once, rows

LOOKS: dict[str, Callable[[sw.Table], Any]] = {
    "none": lambda table: None,
    "refresh": lambda table: table.refresh(),
    "overwrite": lambda table: table.overwrite(rows(5), where="id = 5"),
    "delete": lambda table: table.delete("id = 5"),
    "checkpoint": lambda table: table.checkpoint(),
}
WRITES: dict[str, Callable[[sw.Table], Any]] = {
    "append": lambda table: table.append(rows(-5)),
    "overwrite": lambda table: table.overwrite(rows(-5)),
    "delete": lambda table: table.delete("id = 5"),
}


@pytest.mark.sweep("overwrite", "refresh")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("look", LOOKS)
def test_a_feature_that_came_later_is_met_by_every_verb(
    new_place: Callable[[str], Place], look: str, write: str
) -> None:
    """Also by the second: a look, which may read on, must not have moved the state past what is refused.

    The condition is one that safewrite does not evaluate.
    """
    place = new_place("local")
    table = place.open(create=True)
    table.append(rows(1))
    place.delta().alter.add_constraint({"positive": "abs(id) > 0"})
    reads = look in {"none", "refresh"}
    with nullcontext() if reads else pytest.raises(sw.UnsupportedTableError, match="positive"):
        LOOKS[look](table)
    with pytest.raises(sw.UnsupportedTableError, match="positive"):
        WRITES[write](table)
    assert place.ids() == once(1)


@pytest.mark.sweep("refresh", "overwrite")
@pytest.mark.parametrize("look", LOOKS)
def test_an_arbiter_that_was_recorded_later_is_met_by_every_verb(
    new_place: Callable[[str], Place], look: str
) -> None:
    """A12, faults A3: two writers of safewrite never disagree about who arbitrates."""
    guarded = new_place("dynamodb")
    deltalake.write_deltalake(guarded.uri, rows(1), storage_options=dict(guarded.storage_options))
    alone = sw.open(guarded.uri, arbiter="object-store", storage_options=dict(guarded.storage_options))
    guarded.open().append(rows(2))
    if look != "none":
        with pytest.raises(sw.UnsafeConfigError):
            LOOKS[look](alone)
    for write in WRITES.values():
        with pytest.raises(sw.UnsafeConfigError) as caught:
            write(alone)
        assert caught.value.kind is sw.Kind.ARBITER_MISMATCH
    with pytest.raises(sw.UnsafeConfigError):
        alone.resolve("event")
    assert guarded.ids() == once(1, 2)


def test_a_retention_that_was_shortened_later_is_met(new_place: Callable[[str], Place]) -> None:
    place = new_place("local")
    table = place.open(create=True)
    table.append(rows(1))
    place.delta().alter.set_table_properties({"delta.logRetentionDuration": "interval 1 hours"})
    for _ in range(2):
        with pytest.raises(sw.UnsafeConfigError) as caught:
            table.refresh()
        assert caught.value.kind is sw.Kind.RETENTION_TOO_SHORT
    with pytest.raises(sw.UnsafeConfigError):
        table.append(rows(2))


def test_what_was_refused_goes_on_once_the_feature_is_gone(new_place: Callable[[str], Place]) -> None:
    place = new_place("local")
    table = place.open(create=True)
    table.append(rows(1))
    place.delta().alter.add_constraint({"positive": "abs(id) > 0"})
    with pytest.raises(sw.UnsupportedTableError):
        table.append(rows(2))
    place.delta().alter.drop_constraint("positive")
    assert table.append(rows(2)).outcome == "committed"
    assert place.ids() == once(1, 2)
