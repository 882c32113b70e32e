"""Answers that are lost between the hook and its stores while Spark commits: once and no error, or an error that says so."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from py4j.protocol import Py4JJavaError

from safewrite.spark import landed
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.integration.places import once, rows, visible
from tests.sampling import sample
from tests.spark.hooked import HookedTable

Hooked = Callable[[str], HookedTable]

CASES = {
    "dynamodb": (
        RequestStep.PUT_TEMP,
        RequestStep.DDB_PUT_ENTRY,
        RequestStep.PUT_COMMIT,
        RequestStep.DDB_UPDATE_ENTRY,
    ),
    "object-store": (RequestStep.PUT_COMMIT,),
}
KINDS = (FaultKind.LOST_ANSWER, FaultKind.LOST_ANSWER_500, FaultKind.PRECONDITION_412, FaultKind.CUT)
LOST_COMMIT = Rule(
    kind=FaultKind.CUT,
    steps=(RequestStep.PUT_COMMIT, RequestStep.GET_COMMIT),
    path_regex=r"0{19}1\.json$",  # the commit before it is read to prove the log
)
IN_DOUBT = re.compile(r"landed\(session, '(\S+)', (\d+), '(\S+)'\)")


FAULTS = [
    (arbiter, step, kind)
    for arbiter, steps in CASES.items()
    for step in steps
    for kind in KINDS
    if (step, kind) != (RequestStep.PUT_TEMP, FaultKind.PRECONDITION_412)  # is put without a condition
]
SAMPLE = [FAULTS[number] for number in sorted(sample(FAULTS))]


def test_the_sample_has_every_arbiter_step_and_kind() -> None:
    for column, kept in zip(zip(*FAULTS, strict=True), zip(*SAMPLE, strict=True), strict=True):
        assert {*kept} == {*column}
    assert len(SAMPLE) < len(FAULTS) / 2


@pytest.mark.sweep("dynamodb-some")
@pytest.mark.parametrize(
    "faults", [SAMPLE, pytest.param(FAULTS, marks=pytest.mark.long)], ids=["some", "every one"]
)
@pytest.mark.parametrize("arbiter", CASES)
def test_an_answer_lost_at_any_step_leaves_the_rows_once_and_spark_without_an_error(
    hooked: Hooked, arbiter: str, faults: list[tuple[str, RequestStep, FaultKind]]
) -> None:
    """A2, A3: performed and not answered, answered with 500, answered as a resend is; and not performed."""
    table = hooked(arbiter)
    table.write(0)
    ids = [0]
    for step, kind in [(step, kind) for whose, step, kind in faults if whose == arbiter]:
        before = table.proxy.fired()
        table.proxy.plan(Rule(kind=kind, steps=(step,), times=1))
        ids.append(len(ids))
        table.write(ids[-1])
        assert table.proxy.fired() == before + 1
    table.proxy.plan()
    assert visible(table.readers()) == once(*ids)
    assert len(table.place.commits()) == len(ids)


def in_doubt(table: HookedTable, *ids: int) -> tuple[str, int, str]:
    """Write rows while the answers are lost; the arguments of ``landed`` that the error names."""
    table.impatient()
    with pytest.raises(Py4JJavaError) as raised:
        table.write(*ids)
    table.proxy.plan()
    text = str(raised.value)
    assert "CommitUnknownError" in text
    assert "Do not write the rows again before you know" in text
    found = IN_DOUBT.search(text)
    assert found is not None, text
    return found[1], int(found[2]), found[3]


@pytest.mark.parametrize("arbiter", CASES)
@pytest.mark.long
def test_a_commit_whose_answers_all_stay_lost_is_an_error_and_landed_says_that_it_did(
    hooked: Hooked, arbiter: str
) -> None:
    table = hooked(arbiter)
    table.write(1)
    table.proxy.plan(
        Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_COMMIT,)),
        Rule(kind=FaultKind.ERROR_503, steps=(RequestStep.GET_COMMIT,)),
    )
    named = in_doubt(table, 2)
    assert named[:2] == (table.uri, 1)
    assert landed(table.spark.session, *named) is True
    assert visible(table.readers()) == once(1, 2)


@pytest.mark.long
def test_a_claim_left_without_its_commit_is_finished_by_whoever_asks(hooked: Hooked) -> None:
    """A5: E(N) stands, N.json was never put."""
    table = hooked("dynamodb")
    table.write(1)
    table.proxy.plan(LOST_COMMIT)
    named = in_doubt(table, 2)
    assert table.place.ids() == once(1)
    assert landed(table.spark.session, *named) is True
    assert visible(table.readers()) == once(1, 2)


@pytest.mark.long
def test_a_commit_that_never_came_is_undecided_until_another_takes_its_version(hooked: Hooked) -> None:
    table = hooked("object-store")
    table.write(1)
    table.proxy.plan(LOST_COMMIT)
    named = in_doubt(table, 2)
    assert landed(table.spark.session, *named) is None
    table.place.open().append(rows(3), key="pandas")
    assert landed(table.spark.session, *named) is False
    assert visible(table.readers()) == once(1, 3)


def test_a_store_that_refuses_the_claim_is_an_error_that_nothing_was_committed(hooked: Hooked) -> None:
    table = hooked("dynamodb")
    table.write(1)
    table.proxy.plan(Rule(kind=FaultKind.FORBIDDEN_403, steps=(RequestStep.DDB_PUT_ENTRY,)))
    with pytest.raises(Py4JJavaError, match=r"StorageError: .*Nothing was committed by this call"):
        table.write(2)
    table.proxy.plan()
    table.write(3)
    assert visible(table.readers()) == once(1, 3)
