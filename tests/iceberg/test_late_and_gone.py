"""Commits that land late, and tables that are changed behind a commit's back before it is examined (C2)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import safewrite as sw
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.ask import Limits
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from safewrite.testing.steps import Answers, At
from tests.iceberg.places import Place, check
from tests.integration.places import once, rows
from tests.servers import CatalogLab

LATE_S = 1.0


def late(lab: CatalogLab, *, times: int | None = None) -> None:
    """From now on the client of a commit is cut off at once, and the commit is performed later."""
    rule = Rule(kind=FaultKind.LATE, steps=(RequestStep.CATALOG_COMMIT,), delay_s=LATE_S, times=times)
    lab.commits.plan(rule)


@pytest.mark.sweep("glue", "rest")
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_commit_that_lands_after_it_was_asked_for_again_lands_once(
    lab: CatalogLab, place: Place, times: int
) -> None:
    """C2: the look shows the base, so the very same change is asked for again."""
    place.create(1)
    table = place.through(lab, {"glue.max-retries": 1}).open()
    late(lab, times=times)
    assert table.append(rows(2), key="event").outcome == "committed"
    time.sleep(LATE_S * 1.5)
    check(place, 1, 2)
    assert place.history() == ["before", "event"]


@pytest.mark.sweep("rest")
@pytest.mark.parametrize("lab", ["rest", "glue"], indirect=True)
def test_a_commit_is_unknown_until_its_base_has_moved_and_lands_once(lab: CatalogLab, place: Place) -> None:
    """C2: a rival commits, then the same key is written again.  PostgreSQL makes the second request wait for the first."""
    place.create(1)
    table = place.through(lab, {"glue.max-retries": 1}).open()
    table.limits = Limits(asks=2, timeout_s=20)
    late(lab)
    with pytest.raises(sw.CommitUnknownError) as caught:
        table.append(rows(2), key="event")
    assert caught.value.key == "event"
    lab.commits.clear()
    place.open().append(rows(3), key="rival")
    found = place.open().resolve("event")
    receipt = place.open().append(rows(2), key="event")
    assert (receipt.outcome == "already_committed") == (found is not None)
    time.sleep(LATE_S * 1.5)
    check(place, 1, 2, 3)
    assert sorted(place.history()) == ["before", "event", "rival"]


@pytest.mark.sweep("glue")
@pytest.mark.parametrize("lab", ["sql", "glue"], indirect=True)
def test_resolve_says_unknown_while_a_commit_may_still_land(
    lab: CatalogLab, place: Place, lock_table: str
) -> None:
    """C2: the ledger remembers on which base an attempt ended in doubt."""
    place = place if lab.kind == "sql" else place.locked(lock_table)
    place.create(1)
    table = place.open()
    table.limits = Limits(asks=2, timeout_s=20)
    table.world = Answers(table.world, "swap.commit", perform=False)
    with pytest.raises(sw.CommitUnknownError):
        table.append(rows(2), key="event")
    with pytest.raises(sw.CommitUnknownError):
        place.open().resolve("event")
    place.open().append(rows(3), key="rival")
    assert place.open().resolve("event") is None
    assert place.open().append(rows(2), key="event").outcome == "committed"
    check(place, 1, 2, 3)


# --- between the landing and the look ---------------------------------------------------------------
def lost_then(table: IcebergTable, act: Callable[[], object]) -> None:
    """The commit's answer is lost, and ``act`` comes before the look."""
    table.world = At(Answers(table.world, "swap.commit", times=1), "swap.look", "before", act)


def current(place: Place) -> int:
    """The current snapshot."""
    found = place.plain().current_snapshot()
    assert found is not None
    return found.snapshot_id


@pytest.mark.sweep("glue", "rest")
def test_a_snapshot_that_landed_and_was_expired_before_the_look_is_acked_once(
    place: Place,
) -> None:
    """C1: the earlier metadata files tell; a snapshot that is not there is no proof."""
    place.create(1)
    landed: list[int] = []

    def expire() -> None:
        landed.append(current(place))
        place.open().append(rows(3), key="rival")
        place.plain().maintenance.expire_snapshots().by_id(landed[0]).commit()

    table = place.open()
    lost_then(table, expire)
    receipt = table.append(rows(2), key="event")
    assert (receipt.outcome, receipt.version) == ("committed", landed[0])
    assert place.ids() == once(1, 2, 3)
    assert landed[0] not in {s.snapshot_id for s in place.plain().snapshots()}


@pytest.mark.sweep("glue", "rest")
def test_a_snapshot_that_was_rolled_back_before_the_look_is_not_acked(place: Place) -> None:
    place.create(1)
    before = current(place)
    table = place.open()
    lost_then(table, lambda: place.plain().manage_snapshots().rollback_to_snapshot(before).commit())
    with pytest.raises(sw.ForeignWriterError, match="rolled the table back"):
        table.append(rows(2), key="event")
    check(place, 1)
    place.open().append(rows(2), key="event")
    assert place.ids() == once(1, 2)


@pytest.mark.sweep("glue", "rest")
def test_a_table_that_is_dropped_during_a_write_is_not_found(place: Place) -> None:
    table = place.create(1)
    table.world = At(table.world, "swap.commit", "before", lambda: place.catalog().drop_table(place.name))
    with pytest.raises(sw.TableNotFoundError, match="Nothing was committed"):
        table.append(rows(2), key="event")


@pytest.mark.long
def test_a_table_that_is_dropped_before_a_lost_answer_is_examined_leaves_the_commit_unknown(
    place: Place,
) -> None:
    place.create(1)
    table = place.open()
    lost_then(table, lambda: place.catalog().drop_table(place.name))
    with pytest.raises(sw.CommitUnknownError, match="dropped or renamed"):
        table.append(rows(2), key="event")


@pytest.mark.sweep("glue", "rest", "sql-swap.look")
@pytest.mark.parametrize("step", ["swap.commit", "swap.look"])
def test_a_table_that_is_dropped_and_made_anew_during_a_write_is_a_conflict(place: Place, step: str) -> None:
    """A17: the rows are not in the new table, which has another UUID under the old name."""
    place.create(1)

    def anew() -> None:
        place.catalog().drop_table(place.name)
        place.create(5)

    table = place.open()
    inner = Answers(table.world, "swap.commit", times=1) if step == "swap.look" else table.world
    table.world = At(inner, step, "before", anew)
    with pytest.raises(sw.ConflictError, match="created anew"):
        table.append(rows(2), key="event")
    check(place, 5)


@pytest.mark.long
@pytest.mark.parametrize("lab", ["rest", "sql"], indirect=True)
def test_a_table_that_is_renamed_during_a_write_is_not_found_and_keeps_its_rows(place: Place) -> None:
    table, renamed = place.create(1), place.another()
    table.world = At(
        table.world,
        "swap.commit",
        "before",
        lambda: place.catalog().rename_table(place.name, renamed.name),
    )
    with pytest.raises(sw.TableNotFoundError, match="dropped or renamed"):
        table.append(rows(2), key="event")
    check(renamed, 1)
    renamed.open().append(rows(2), key="event")
    check(renamed, 1, 2)
