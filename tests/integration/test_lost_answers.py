"""Answers that are lost, refused, delayed or damaged on real HTTP: every write is once and acked, or absent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

import safewrite as sw
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.integration.places import WRITES, Place, impatient, once, rows, visible
from tests.sampling import short_and_long, some
from tests.servers import PlannedProxy

CASES = [(arbiter, step) for arbiter, steps in WRITES.items() for step in steps]
READS = (
    RequestStep.GET_COMMIT,
    RequestStep.GET_DATA,
    RequestStep.LIST_LOG,
    RequestStep.DDB_QUERY,
    RequestStep.DDB_GET_ENTRY,
    RequestStep.GET_LEDGER,
)

CONDITIONAL = (
    RequestStep.PUT_COMMIT,
    RequestStep.DDB_PUT_ENTRY,
    RequestStep.DDB_UPDATE_ENTRY,
    RequestStep.PUT_LEDGER,
)

LOST_ANSWERS = [5, pytest.param(100, marks=pytest.mark.long)]
FEW_FAULTS, OTHER_FAULTS = 2, 5
"""How often a fault comes at each step, in the short form and in the long one."""
APPENDS_MAX = 400

AFTER = (FaultKind.LOST_ANSWER_500, FaultKind.PRECONDITION_412)
BEFORE = (FaultKind.ERROR_503, FaultKind.CONFLICT_409, FaultKind.THROTTLE, FaultKind.CUT)


def append_until(table: sw.Table, proxy: PlannedProxy, faults: int, *, first: int = 0) -> list[int]:
    """Append one row after another, each with a key, until so many faults have fired; every one is acked."""
    before, ids = proxy.fired(), []
    for number in range(first, first + APPENDS_MAX):
        receipt = table.append(rows(number), key=f"event-{number}")
        assert (receipt.outcome, receipt.rows) == ("committed", 1)
        ids.append(number)
        if number % 5 == 4 and proxy.fired() - before >= faults:
            return ids
    raise AssertionError(f"{proxy.fired() - before} of {faults} faults fired in {APPENDS_MAX} appends")


def check(place: Place, ids: list[int]) -> None:
    """Every id once, by deltalake and by a replay of the log; and each in a version of its own."""
    assert visible([place.ids(), place.replayed_ids()]) == once(*ids)
    assert len(place.live()) == len(ids)


@pytest.mark.sweep(
    "object-store-put_data",
    "object-store-put_ledger",
    "dynamodb-put_data",
    "dynamodb-put_temp",
    "object-store-put_commit",
    "dynamodb-put_ledger",
)
@pytest.mark.parametrize("answers", LOST_ANSWERS)
@pytest.mark.parametrize(("arbiter", "step"), CASES)
def test_lost_answers_at_each_write_leave_every_row_once_and_acked(
    new_place: Callable[[str], Place],
    fault_proxy: PlannedProxy,
    arbiter: str,
    step: RequestStep,
    answers: int,
) -> None:
    """A2, A3, G4: the request is performed, its answer is not heard."""
    place = new_place(arbiter)
    table = place.through(fault_proxy).open(create=True)
    # What is read back is not sent again; of the others the repeat must come through.
    every = (
        1 if step in (RequestStep.PUT_COMMIT, RequestStep.DDB_PUT_ENTRY, RequestStep.DDB_UPDATE_ENTRY) else 2
    )
    fault_proxy.plan(Rule(kind=FaultKind.LOST_ANSWER, steps=(step,), every=every))
    check(place, append_until(table, fault_proxy, answers))
    assert set(fault_proxy.counts()) == {(step, FaultKind.LOST_ANSWER)}


SAMPLED_REFUSALS = short_and_long(product(WRITES, [*AFTER, *BEFORE]), FEW_FAULTS, OTHER_FAULTS)


@pytest.mark.sweep(
    "dynamodb-cut",
    "dynamodb-error_503",
    "dynamodb-lost_answer_500",
    "dynamodb-throttle",
    "dynamodb-precondition_412",
)
@pytest.mark.parametrize(("arbiter", "kind", "faults"), SAMPLED_REFUSALS)
def test_writes_that_are_refused_or_answered_wrongly_are_once_and_acked(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str, kind: FaultKind, faults: int
) -> None:
    """A2, A18, G1, G2: 500 and 412 after performing; 503, 409, throttled or cut before."""
    place = new_place(arbiter)
    table = place.through(fault_proxy).open(create=True)
    # Only a conditional request can be answered with 412.
    steps = [
        step for step in WRITES[arbiter] if kind is not FaultKind.PRECONDITION_412 or step in CONDITIONAL
    ]
    ids: list[int] = []
    for step in steps:
        fault_proxy.plan(Rule(kind=kind, steps=(step,), every=2))
        ids += append_until(table, fault_proxy, faults, first=len(ids))
    check(place, ids)
    assert set(fault_proxy.counts()) == {(step, kind) for step in steps}


READ_FAULTS = (FaultKind.FORBIDDEN_403, FaultKind.ERROR_500, FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT)
SAMPLED_READS = some(product(WRITES, READ_FAULTS))


@pytest.mark.sweep("object-store", "dynamodb-error_500", "dynamodb-forbidden_403")
@pytest.mark.parametrize(("arbiter", "kind"), SAMPLED_READS)
def test_reads_that_are_refused_or_damaged_never_decide_a_commit(
    new_place: Callable[[str], Place],
    fault_proxy: PlannedProxy,
    monkeypatch: pytest.MonkeyPatch,
    arbiter: str,
    kind: FaultKind,
) -> None:
    """A19, G5, G10: half of the read-backs fail or lie, while half of the commit's answers are lost."""
    monkeypatch.setattr("safewrite.stores.s3.PROVED", None)  # else no data file is read back
    place = new_place(arbiter)
    table = place.through(fault_proxy).open(create=True)
    damaged = (RequestStep.GET_COMMIT,) if kind in (FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT) else READS
    if kind is FaultKind.FORBIDDEN_403:  # the next test refuses reads of the ledger
        damaged = tuple(step for step in READS if step is not RequestStep.GET_LEDGER)
    fault_proxy.plan(
        Rule(kind=kind, steps=damaged, every=2),
        Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_COMMIT, RequestStep.DDB_PUT_ENTRY), every=2),
    )
    check(place, append_until(table, fault_proxy, 2 * OTHER_FAULTS))
    assert fault_proxy.counts()[RequestStep.GET_COMMIT, kind] > 0


@pytest.mark.sweep("object-store")
@pytest.mark.parametrize("arbiter", WRITES)
def test_a_ledger_that_may_not_be_read_ends_the_call_and_the_same_key_lands_once(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str
) -> None:
    """T4-A3: without the ledger's mark nobody knows whether a key is new, so the write does not go on."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="event-0")
    table = place.through(fault_proxy).open()
    fault_proxy.plan(Rule(kind=FaultKind.FORBIDDEN_403, steps=(RequestStep.GET_LEDGER,)))
    with pytest.raises(sw.StorageError, match="Nothing was committed"):
        table.append(rows(1), key="event-1")
    assert place.ids() == once(0)
    fault_proxy.plan()
    assert [table.append(rows(1), key="event-1").outcome for _ in range(2)] == [
        "committed",
        "already_committed",
    ]
    check(place, [0, 1])


@pytest.mark.sweep("object-store", "truncate_body")
@pytest.mark.parametrize("faults", [FEW_FAULTS, pytest.param(OTHER_FAULTS, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT], ids=str)
@pytest.mark.parametrize("arbiter", WRITES)
def test_uploads_that_are_damaged_on_their_way_are_never_acked(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str, kind: FaultKind, faults: int
) -> None:
    """G5, A19."""
    place = new_place(arbiter)
    table = place.through(fault_proxy).open(create=True)
    steps = tuple(
        step
        for step in WRITES[arbiter]
        if step in (RequestStep.PUT_DATA, RequestStep.PUT_TEMP, RequestStep.PUT_COMMIT)
    )
    ids: list[int] = []
    for step in steps:
        fault_proxy.plan(Rule(kind=kind, steps=(step,), every=2))
        ids += append_until(table, fault_proxy, faults, first=len(ids))
    check(place, ids)


@pytest.mark.sweep("object-store")
@pytest.mark.parametrize("arbiter", WRITES)
def test_delayed_answers_change_nothing(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str
) -> None:
    place = new_place(arbiter)
    table = place.through(fault_proxy).open(create=True)
    fault_proxy.plan(Rule(kind=FaultKind.DELAY, steps=WRITES[arbiter], every=3, delay_s=0.02))
    check(place, append_until(table, fault_proxy, OTHER_FAULTS))


def refusal(table: sw.Table, number: int) -> sw.SafewriteError | None:
    """What the append of a row raised; None if it was acked."""
    try:
        assert table.append(rows(number), key=f"event-{number}").outcome == "committed"
    except (sw.NotCommittedError, sw.CommitUnknownError) as error:
        return error
    return None


FAILING = [kind for kind in FaultKind if kind not in (FaultKind.DELAY, FaultKind.LATE, FaultKind.FLIP_BIT)]


SAMPLED_FAILING = some(product(WRITES, FAILING))


@pytest.mark.sweep(
    "object-store",
    "dynamodb-conflict_409",
    "dynamodb-error_502",
    "dynamodb-error_504",
    "dynamodb-lost_answer_500",
    "dynamodb-lost_answer_502",
    "dynamodb-lost_answer_504",
    "dynamodb-truncate_body",
    "dynamodb-forbidden_403",
    "dynamodb-precondition_412",
    "dynamodb-error_500",
    "dynamodb-cut",
)
@pytest.mark.parametrize(("arbiter", "kind"), SAMPLED_FAILING)
def test_a_write_that_never_gets_an_answer_is_absent_or_unknown_and_the_same_key_decides(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str, kind: FaultKind
) -> None:
    """Promises 1 to 3: one step fails every time; then the fault ends, and the same call is made again."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(-1), key="before")
    for number, step in enumerate(WRITES[arbiter]):
        # A store that throttles is asked until the time is used up.
        limits = {"timeout_s": 5.0} if kind is FaultKind.THROTTLE else {}
        table = impatient(place.through(fault_proxy).open(), **limits)
        table.world.backoff_s = 0.001  # type: ignore[attr-defined]
        fault_proxy.plan(Rule(kind=kind, steps=(step,)))
        error = refusal(table, number)
        acked = error is None
        assert error is None or error.key == f"event-{number}"
        if isinstance(error, sw.NotCommittedError):
            assert place.open().resolve(f"event-{number}") is None
            assert place.ids()[number] == 0
        fault_proxy.clear()
        assert not acked or place.ids()[number] == 1
        place.open().append(rows(1000 + number), key=f"next-{number}")
        receipt = table.append(rows(number), key=f"event-{number}")
        assert not acked or receipt.outcome == "already_committed"
    count = len(WRITES[arbiter])
    expected = once(-1, *range(count), *range(1000, 1000 + count))
    assert visible([place.ids(), place.replayed_ids()]) == expected


@pytest.mark.sweep("object-store", "dynamodb-precondition_412")
@pytest.mark.parametrize("lost", [FaultKind.LOST_ANSWER, FaultKind.PRECONDITION_412], ids=str)
@pytest.mark.parametrize("arbiter", WRITES)
def test_a_commit_that_cannot_be_read_back_is_unknown_never_called_absent(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy, arbiter: str, lost: FaultKind
) -> None:
    """A2, G10: the commit landed, its answer was lost or turned into a refusal, and reading is forbidden."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(1), key="before")
    table = impatient(place.through(fault_proxy).open())
    fault_proxy.plan(
        Rule(kind=lost, steps=(RequestStep.PUT_COMMIT,)),
        Rule(kind=FaultKind.FORBIDDEN_403, path_regex=r"/0{19}1\.json$", method="GET"),
    )
    with pytest.raises(sw.CommitUnknownError) as caught:
        table.append(rows(2), key="event")
    assert place.ids() == once(1, 2)
    fault_proxy.clear()
    assert caught.value.key == "event"
    receipt = place.open().resolve("event")
    assert receipt is not None
    assert table.append(rows(2), key="event").version == receipt.version
    assert place.ids() == once(1, 2)


def test_a_commit_that_is_always_told_to_ask_again_is_known_to_be_absent(
    new_place: Callable[[str], Place], fault_proxy: PlannedProxy
) -> None:
    """A18: 409 is neither "exists" nor "perhaps"."""
    place = new_place("object-store")
    place.open(create=True).append(rows(1), key="before")
    table = impatient(place.through(fault_proxy).open())
    fault_proxy.plan(Rule(kind=FaultKind.CONFLICT_409, steps=(RequestStep.PUT_COMMIT,)))
    with pytest.raises(sw.StorageError, match="ConditionalRequestConflict"):
        table.append(rows(2), key="event")
    fault_proxy.clear()
    assert table.append(rows(2), key="event").version == 1
    assert place.ids() == once(1, 2)


def test_a_claim_that_cannot_be_read_back_is_unknown_never_called_absent(
    guarded: Place, fault_proxy: PlannedProxy
) -> None:
    """A3: the entry stands although the lock table said otherwise, so a repairer may commit it."""
    guarded.open(create=True).append(rows(1), key="before")
    table = impatient(guarded.through(fault_proxy).open())
    fault_proxy.plan(
        Rule(kind=FaultKind.PRECONDITION_412, steps=(RequestStep.DDB_PUT_ENTRY,)),
        Rule(kind=FaultKind.ERROR_500, steps=(RequestStep.DDB_GET_ENTRY,)),
    )
    with pytest.raises(sw.CommitUnknownError):
        table.append(rows(2), key="event")
    fault_proxy.clear()
    with pytest.raises(sw.CommitUnknownError):
        guarded.open().resolve("event")
    guarded.open().append(rows(3), key="next")
    assert guarded.ids() == once(1, 2, 3)
    assert table.append(rows(2), key="event").outcome == "already_committed"
