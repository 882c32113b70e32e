"""resolve(): committed, absent, claimed and not finished, in doubt; keys that were generated, given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import safewrite as sw
from safewrite.protocol.effects import Failed, Unknown
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from safewrite.testing.steps import Answers
from tests.integration.places import Place, crash_at, impatient, once, rows, visible
from tests.servers import PlannedProxy


@pytest.fixture
def table(place: Place) -> sw.Table:
    """A table with one row."""
    table = place.open(create=True)
    table.append(rows(0), key="before")
    return table


@pytest.mark.sweep("object-store")
def test_a_committed_write_resolves_to_its_receipt(place: Place, table: sw.Table) -> None:
    receipt = table.append(rows(1, 2), key="event")
    resolved = place.open().resolve("event")
    assert resolved is not None
    assert (resolved.outcome, resolved.version, resolved.rows) == ("already_committed", receipt.version, 2)
    assert (resolved.key, resolved.fingerprint) == ("event", receipt.fingerprint)


@pytest.mark.sweep("object-store")
def test_a_batch_of_a_stream_resolves_by_app_and_version(place: Place, table: sw.Table) -> None:
    receipt = table.append(rows(1), txn=("app", 7))
    resolved = place.open().resolve(receipt.key)
    assert resolved is not None
    assert (resolved.version, resolved.txn) == (receipt.version, ("app", 7))


@pytest.mark.sweep("object-store")
def test_a_key_that_nobody_used_resolves_to_none(place: Place, table: sw.Table) -> None:
    before = place.objects()
    assert table.resolve("never") is None
    assert place.objects() == before


def test_a_write_that_landed_without_its_writer_knowing_resolves_to_its_receipt(
    place: Place, table: sw.Table
) -> None:
    crash_at(place.open(), "commit.put_commit", "after", rows(1), key="event")
    resolved = table.resolve("event")
    assert resolved is not None
    assert (resolved.version, resolved.rows) == (1, 1)


@pytest.mark.sweep("object-store")
def test_a_write_that_ended_before_its_commit_resolves_to_none(place: Place, table: sw.Table) -> None:
    crash_at(place.open(), "stage.put_data", "after", rows(1), key="event")
    assert table.resolve("event") is None


def test_a_claimed_write_is_undecided_until_somebody_finishes_it(guarded: Place) -> None:
    """A5: any writer may finish it."""
    guarded.open(create=True).append(rows(0), key="before")
    crash_at(guarded.open(), "commit.put_entry", "after", rows(1), key="event")
    before = guarded.objects()
    with pytest.raises(sw.CommitUnknownError, match="safewrite repair") as caught:
        guarded.open().resolve("event")
    assert (caught.value.key, caught.value.version) == ("event", 1)
    assert guarded.objects() == before
    guarded.open().append(rows(2), key="next")
    resolved = guarded.open().resolve("event")
    assert resolved is not None
    assert resolved.version == 1


@pytest.mark.sweep("dynamodb", "object-store", "local-txn")
@pytest.mark.parametrize(
    "naming", [{"key": "event"}, {"txn": ("app", 1)}, {}], ids=["key", "txn", "generated"]
)
def test_a_write_in_doubt_is_undecided_until_its_version_is_taken(
    place: Place, naming: dict[str, object]
) -> None:
    """The commit's requests vanish without an answer: they may be under way for long."""
    place.open(create=True).append(rows(0), key="before")
    table = impatient(place.open())
    table.world = Answers(table.world, "commit.put_commit", Unknown("lost"), perform=False)
    with pytest.raises(sw.CommitUnknownError) as caught:
        table.append(rows(1), **naming)  # type: ignore[arg-type]
    key = str(caught.value.key)
    with pytest.raises(sw.CommitUnknownError) as undecided:
        place.open().resolve(key)
    assert (undecided.value.key, undecided.value.version) == (key, 1)
    place.open().append(rows(2), key="next")
    if place.arbiter == "dynamodb":  # the claim stood: the next writer has finished it
        resolved = place.open().resolve(key)
        assert resolved is not None
        assert place.ids() == once(0, 1, 2)
    else:
        assert place.open().resolve(key) is None
        assert place.ids() == once(0, 2)
    again = naming or {"key": key}
    place.open().append(rows(1), **again)  # type: ignore[arg-type]
    assert visible([place.ids(), place.replayed_ids()]) == once(0, 1, 2)


@pytest.mark.sweep("dynamodb", "object-store", "local-at-once-landed", "local-after-others-lost")
@pytest.mark.parametrize("performed", [True, False], ids=["landed", "lost"])
@pytest.mark.parametrize("others", [0, 2], ids=["at-once", "after-others"])
def test_a_generated_key_can_be_given_back(place: Place, performed: bool, others: int) -> None:
    """It carries its base version, so that a retry knows from where to read."""
    place.open(create=True).append(rows(0), key="before")
    table = impatient(place.open())
    inner = table.world
    table.world = Answers(
        Answers(inner, "commit.read_back", Unknown("no answer")),
        "commit.put_commit",
        Unknown("lost"),
        perform=performed,
    )
    with pytest.raises(sw.CommitUnknownError) as caught:
        table.append(rows(1))
    key = caught.value.key
    assert key is not None
    table.world = inner
    for number in range(others):
        place.open().append(rows(10 + number))
    for opened in (table, place.open(), place.open()):
        opened.append(rows(1), key=key)
    with pytest.raises(sw.ReplayMismatchError):
        place.open().append(rows(2), key=key)
    assert visible([place.ids(), place.replayed_ids()]) == once(0, 1, *range(10, 10 + others))
    resolved = place.open().resolve(key)
    assert resolved is not None
    assert resolved.rows == 1


@pytest.mark.sweep("object-store")
def test_writes_without_a_key_are_writes_of_their_own(place: Place, table: sw.Table) -> None:
    first, second = table.append(rows(1)), table.append(rows(1))
    assert first.key != second.key
    assert place.ids() == {0: 1, 1: 2}


@pytest.mark.sweep("object-store")
def test_what_is_known_to_have_failed_resolves_to_none_for_good(place: Place, table: sw.Table) -> None:
    inner = table.world
    table.world = Answers(inner, "stage.put_data", Failed("403"), perform=False)
    with pytest.raises(sw.NotCommittedError):
        table.append(rows(1), key="event")
    assert place.open().resolve("event") is None
    place.open().append(rows(2), key="next")
    assert place.open().resolve("event") is None
    assert place.ids() == once(0, 2)


def test_resolve_says_that_it_cannot_tell_when_the_store_does_not_answer(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy
) -> None:
    place = new_place("object-store")
    place.open(create=True).append(rows(0), key="before")
    table = impatient(place.through(fault_proxy).open())
    fault_proxy.plan(
        Rule(
            kind=FaultKind.ERROR_500,
            steps=(RequestStep.LIST_LOG, RequestStep.GET_COMMIT, RequestStep.GET_LEDGER),
        )
    )
    with pytest.raises(sw.StorageError):
        table.resolve("event")
