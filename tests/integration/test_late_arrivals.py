"""A request that is applied after its client gave up: the promise holds whatever was said meanwhile (A2, C2)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

import safewrite as sw
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.integration.places import WRITES, Place, impatient, once, rows, visible
from tests.servers import PlannedProxy

LATE_S = 0.3


def settle(place: Place, read: Callable[[Place], object]) -> object:
    """What is read once nothing late can be on its way any more."""
    time.sleep(1.5 * LATE_S)
    return read(place)


def undecided_or_landed(place: Place, key: str) -> bool:
    """False if ``resolve`` calls absent what is still under way."""
    try:
        return place.open().resolve(key) is not None
    except sw.CommitUnknownError:
        return True


@pytest.mark.long
@pytest.mark.parametrize("arbiter", WRITES)
def test_a_request_that_arrives_late_beside_its_own_repeat_is_once(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str
) -> None:
    place = new_place(arbiter)
    table = place.through(fault_proxy).open(create=True)
    fault_proxy.plan(
        *(Rule(kind=FaultKind.LATE, steps=(step,), every=2, delay_s=0.02) for step in WRITES[arbiter])
    )
    for number in range(30):
        assert table.append(rows(number), key=f"event-{number}").outcome == "committed"
    assert len(fault_proxy.counts()) == len(WRITES[arbiter])
    time.sleep(0.1)
    assert visible([place.ids(), place.replayed_ids()]) == once(*range(30))


@pytest.mark.sweep(
    "object-store",
    "dynamodb-put_data",
    "dynamodb-put_temp",
    "dynamodb-put_ledger",
    "dynamodb-ddb_update_entry",
    "dynamodb-ddb_put_entry",
)
@pytest.mark.parametrize(("arbiter", "step"), [(a, step) for a in WRITES for step in WRITES[a]])
def test_what_a_client_gave_up_on_is_never_lost_doubled_or_called_absent(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str, step: RequestStep
) -> None:
    """Every try of one step is cut, and applied after the call has returned."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="before")
    table = impatient(place.through(fault_proxy).open())
    fault_proxy.plan(Rule(kind=FaultKind.LATE, steps=(step,), delay_s=LATE_S))
    said: sw.Receipt | sw.SafewriteError
    try:
        said = table.append(rows(1), key="event")
    except (sw.NotCommittedError, sw.CommitUnknownError) as error:
        said = error
        assert place.ids()[1] == 0
    fault_proxy.clear()
    if isinstance(said, sw.CommitUnknownError):
        assert undecided_or_landed(place, "event")
    landed = settle(place, Place.ids)
    if isinstance(said, sw.NotCommittedError):
        assert landed == once(0)
    elif isinstance(said, sw.Receipt):
        assert landed == once(0, 1)
    place.open().append(rows(2), key="next")
    assert place.open().append(rows(1), key="event").rows == 1
    assert visible([place.ids(), place.replayed_ids()]) == once(0, 1, 2)


@pytest.mark.long
def test_a_batch_of_a_stream_in_doubt_is_not_called_absent(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy
) -> None:
    """Promise 3 for (app_id, version): its commit arrives late; resolve() does not say None before."""
    place = new_place("object-store")
    place.open(create=True).append(rows(0), key="before")
    table = impatient(place.through(fault_proxy).open())
    fault_proxy.plan(Rule(kind=FaultKind.LATE, steps=(RequestStep.PUT_COMMIT,), delay_s=2.0))
    with pytest.raises(sw.CommitUnknownError) as caught:
        table.append(rows(1), txn=("app", 1))
    fault_proxy.clear()
    assert caught.value.key is not None
    with pytest.raises(sw.CommitUnknownError):
        place.open().resolve(caught.value.key)
    receipt = place.open().append(rows(1), txn=("app", 1))
    time.sleep(2.2)
    assert place.ids() == once(0, 1)
    resolved = place.open().resolve(caught.value.key)
    assert resolved is not None
    assert resolved.version == receipt.version


def test_a_claim_that_arrives_after_others_went_on_is_closed_and_not_committed_twice(
    guarded: Place, fault_proxy: PlannedProxy
) -> None:
    """The late E(N) names a version that a conditional-PUT writer has taken meanwhile (A12)."""
    import deltalake

    guarded.open(create=True).append(rows(0), key="before")
    table = impatient(guarded.through(fault_proxy).open())
    fault_proxy.plan(Rule(kind=FaultKind.LATE, steps=(RequestStep.DDB_PUT_ENTRY,), delay_s=LATE_S))
    with pytest.raises(sw.CommitUnknownError):
        table.append(rows(1), key="event")
    fault_proxy.clear()
    deltalake.write_deltalake(
        guarded.uri, rows(5), mode="append", storage_options=dict(guarded.storage_options)
    )
    assert settle(guarded, Place.ids) == once(0, 5)
    assert guarded.open().append(rows(1), key="event").outcome == "committed"
    assert visible([guarded.ids(), guarded.replayed_ids()]) == once(0, 1, 5)
    assert {item["complete"]["S"] for item in guarded.entries()} == {"true"}
