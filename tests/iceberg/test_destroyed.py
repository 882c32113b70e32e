"""Attempts that are all answered as conflicts though the last one landed: plain PyIceberg destroys its table.

PyIceberg deletes the files of a commit after the last of its attempts was refused; if that one landed,
the table names files that are gone.  Each fault is shown to bite before it is shown to be survived.
"""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.exc import OperationalError

import safewrite as sw
from safewrite.protocol.ask import Limits
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from safewrite.testing.steps import Answers
from tests.iceberg.places import Place, check
from tests.integration.places import once, rows
from tests.servers import CatalogLab

RETRIES = 2
HASTY = {
    "commit.retry.num-retries": str(RETRIES),
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "2",
}


def destroy(lab: CatalogLab) -> None:
    """From now on commits are refused; what comes as PyIceberg's last attempt lands and is refused all the same."""
    lab.commits.plan(
        Rule(kind=FaultKind.CONFLICT_409, steps=(RequestStep.CATALOG_COMMIT,), times=RETRIES),
        Rule(kind=FaultKind.PRECONDITION_412, steps=(RequestStep.CATALOG_COMMIT,), nth=RETRIES + 1),
    )


@pytest.mark.long
@pytest.mark.parametrize("lab", ["rest", "glue"], indirect=True)
def test_plain_pyiceberg_leaves_an_unreadable_table(lab: CatalogLab, place: Place) -> None:
    """C1: it deletes the manifest list of the snapshot that landed."""
    place.create(1, properties=HASTY)
    destroy(lab)
    with pytest.raises(CommitFailedException):
        place.through(lab).plain().append(rows(2))
    assert len(place.plain().snapshots()) == 2
    with pytest.raises(OSError, match=r"(?i)not found|no such|does not exist"):
        place.ids()


@pytest.mark.long
@pytest.mark.parametrize("lab", ["sql"], indirect=True)
def test_plain_pyiceberg_on_sql_raises_the_drivers_error_and_a_repeat_doubles_the_rows(
    lab: CatalogLab, place: Place
) -> None:
    """C1: on PostgreSQL it does not know that the outcome is unknown, but deletes nothing."""
    place.create(1)
    lab.commits.plan(Rule(kind=FaultKind.PRECONDITION_412, steps=(RequestStep.CATALOG_COMMIT,), nth=1))
    table = place.through(lab).plain()
    with pytest.raises(OperationalError):
        table.append(rows(2))
    place.through(lab).plain().append(rows(2))
    assert place.ids() == once(1, 2, 2)


@pytest.mark.sweep("glue", "rest")
def test_a_users_own_append_through_safecatalog_is_once_and_readable(lab: CatalogLab, place: Place) -> None:
    """C1: the same call on a table that a SafeCatalog gave out."""
    place.create(1, properties=HASTY)
    table = place.through(lab).safe()
    destroy(lab)
    table.append(rows(2))
    assert lab.commits.counts()[RequestStep.CATALOG_COMMIT, FaultKind.PRECONDITION_412] > 0
    lab.commits.clear()
    check(place, 1, 2)
    assert len(place.plain().snapshots()) == 2


@pytest.mark.sweep("glue", "rest", "sql-delete", "sql-overwrite")
@pytest.mark.parametrize("verb", ["append", "overwrite", "delete"])
def test_a_write_of_safewrite_is_once_and_readable(lab: CatalogLab, place: Place, verb: str) -> None:
    place.create(1, 5, properties=HASTY)
    table = place.through(lab).open()
    destroy(lab)
    if verb == "append":
        receipt = table.append(rows(2), key="event")
    elif verb == "overwrite":
        receipt = table.overwrite(rows(2), where="id >= 2", key="event")
    else:
        receipt = table.delete("id = 5", key="event")
    assert receipt.outcome == "committed"
    lab.commits.clear()
    check(place, *{"append": (1, 2, 5), "overwrite": (1, 2), "delete": (1,)}[verb])
    assert place.history() == ["before", "event"]


@pytest.mark.long
def test_every_attempt_landing_as_a_conflict_makes_one_snapshot_each(lab: CatalogLab, place: Place) -> None:
    """C3: a conflict with oneself is no conflict."""
    table = place.create(0)
    table = place.through(lab).open()
    lab.commits.plan(Rule(kind=FaultKind.PRECONDITION_412, steps=(RequestStep.CATALOG_COMMIT,)))
    for number in (1, 2, 3):
        assert table.append(rows(number), key=f"event-{number}").attempts == 1
    lab.commits.clear()
    check(place, 0, 1, 2, 3)


@pytest.mark.sweep("glue", "rest")
def test_a_commit_in_doubt_deletes_nothing_and_the_same_key_decides(lab: CatalogLab, place: Place) -> None:
    """C1: neither the commit nor any look is answered."""
    place.create(1)
    table = place.through(lab).open()
    table.limits = Limits(asks=2, timeout_s=20)
    table.world = Answers(table.world, "swap.look")
    lab.commits.plan(Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.CATALOG_COMMIT,)))
    with pytest.raises(sw.CommitUnknownError) as caught:
        table.append(rows(2), key="event")
    assert caught.value.key == "event"
    lab.commits.clear()
    receipt = place.open().resolve("event")
    assert receipt is not None
    again = place.open().append(rows(2), key="event")
    assert (again.outcome, again.version) == ("already_committed", receipt.version)
    check(place, 1, 2)
