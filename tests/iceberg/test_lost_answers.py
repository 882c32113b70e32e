"""Answers that are lost, refused or turned into a conflict on real catalogs: every append is once and acked (C1, C3)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from safewrite.iceberg.table import IcebergTable
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.iceberg.places import KINDS, Place, check
from tests.integration.places import rows
from tests.sampling import short_and_long
from tests.servers import CatalogLab, PlannedPgProxy, PlannedProxy

FEW, MANY = 4, 100
"""How often a fault hits a commit in the short form, and in the long one."""
FEW_STEPS, MANY_STEPS = 2, 20
"""The same for each other request of a write."""
APPENDS_PER_FAULT = 4

PERFORMED = (
    FaultKind.LOST_ANSWER,
    FaultKind.LOST_ANSWER_500,
    FaultKind.LOST_ANSWER_502,
    FaultKind.LOST_ANSWER_503,
    FaultKind.LOST_ANSWER_504,
    FaultKind.PRECONDITION_412,
)
REFUSED = (
    FaultKind.CUT,
    FaultKind.ERROR_500,
    FaultKind.ERROR_502,
    FaultKind.ERROR_503,
    FaultKind.ERROR_504,
    FaultKind.CONFLICT_409,
    FaultKind.THROTTLE,
)


def append_until(
    table: IcebergTable | Sequence[IcebergTable],
    proxy: PlannedProxy | PlannedPgProxy,
    faults: int,
    *,
    first: int = 1,
) -> list[int]:
    """Append one row after another, each with a key, until so many faults have fired; every one is acked."""
    tables = [table] if isinstance(table, IcebergTable) else table
    before, ids = proxy.fired(), []
    for number in range(first, first + APPENDS_PER_FAULT * max(faults, 10)):
        receipt = tables[number % len(tables)].append(rows(number), key=f"event-{number}")
        assert (receipt.outcome, receipt.rows) == ("committed", 1)
        ids.append(number)
        if proxy.fired() - before >= faults:
            return ids
    raise AssertionError(f"{proxy.fired() - before} of {faults} faults fired in {len(ids)} appends")


def check_each(place: Place, ids: list[int]) -> None:
    """Every id once, and each in a snapshot of its own, in the order of the appends."""
    check(place, 0, *ids)
    assert place.history() == ["before", *(f"event-{number}" for number in ids)]


SAMPLED_COMMITS = short_and_long(product(KINDS, (*PERFORMED, *REFUSED)), FEW, MANY, every=3)


@pytest.mark.sweep(
    "glue-error_502",
    "glue-lost_answer_502",
    "rest-cut",
    "rest-throttle",
    "sql-error_500",
    "sql-error_504",
    "sql-lost_answer_504",
    "rest-lost_answer_503",
    "glue-precondition_412",
    "rest-error_503",
    "rest-lost_answer",
)
@pytest.mark.parametrize(("lab", "kind", "faults"), SAMPLED_COMMITS, indirect=["lab"])
def test_commits_whose_answer_is_lost_or_wrong_are_once_and_acked(
    lab: CatalogLab, place: Place, kind: FaultKind, faults: int
) -> None:
    """C1, C3: the catalog's clients repeat some requests by themselves, and meet their own first one."""
    place.create(0)
    table = place.through(lab).open()
    # What was not performed must come through when it is asked for again.
    every = 1 if kind in PERFORMED else 2
    lab.commits.plan(Rule(kind=kind, steps=(RequestStep.CATALOG_COMMIT,), every=every))
    before = lab.commits.fired()
    faults = faults if kind in PERFORMED else faults // 2
    ids = append_until(table, lab.commits, faults)
    lab.commits.clear()
    assert lab.commits.fired() - before >= faults
    check_each(place, ids)


UPLOADS = (RequestStep.PUT_DATA, RequestStep.PUT_MANIFEST, RequestStep.PUT_MANIFEST_LIST)
DOWNLOADS = (RequestStep.GET_DATA, RequestStep.GET_MANIFEST_LIST)
TRANSFERS = (FaultKind.LOST_ANSWER, FaultKind.ERROR_503, FaultKind.CUT)
SAMPLED_TRANSFERS = short_and_long(product(KINDS, TRANSFERS), FEW_STEPS, MANY_STEPS, every=3)


@pytest.mark.sweep("rest", "sql")
@pytest.mark.parametrize(("lab", "kind", "faults"), SAMPLED_TRANSFERS, indirect=["lab"])
def test_uploads_and_downloads_whose_answer_is_lost_change_nothing(
    lab: CatalogLab, place: Place, monkeypatch: pytest.MonkeyPatch, kind: FaultKind, faults: int
) -> None:
    """G2: every file has a name of its own, so it may be put again; Iceberg's REST catalog writes its metadata.

    Two writers take turns, for one alone has no need to read the manifest list that it wrote itself.
    """
    place.create(0)
    tables = [place.through(lab).open() for _ in range(2)]
    ids: list[int] = []
    # PyArrow, which PyIceberg writes metadata with, gives up an upload whose completion was answered with 503.
    theirs = lab.kind == "rest" or kind is FaultKind.ERROR_503
    for step in (*UPLOADS, *DOWNLOADS, *(() if theirs else (RequestStep.PUT_METADATA,))):
        if step is RequestStep.GET_DATA:  # as where ETags are no MD5s, which an upload would be proved by
            monkeypatch.setattr("safewrite.stores.s3.PROVED", None)
        lab.proxy.plan(Rule(kind=kind, steps=(step,), every=2))
        ids += append_until(tables, lab.proxy, faults, first=len(ids) + 1)
    lab.proxy.clear()
    check_each(place, ids)


@pytest.mark.sweep("rest", "glue")
@pytest.mark.parametrize(("lab", "kind", "faults"), SAMPLED_TRANSFERS, indirect=["lab"])
def test_loads_of_the_table_that_fail_never_decide_a_commit(
    lab: CatalogLab, place: Place, kind: FaultKind, faults: int
) -> None:
    """C1: a third of the looks fails, while the answers of half of the commits are lost."""
    place.create(0)
    table = place.through(lab).open()
    lab.commits.plan(
        Rule(kind=kind, steps=(RequestStep.CATALOG_LOAD,), every=3),
        Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.CATALOG_COMMIT,), every=2),
    )
    ids = append_until(table, lab.commits, 2 * faults)
    lab.commits.clear()
    check_each(place, ids)


LEDGERS = (FaultKind.LOST_ANSWER, FaultKind.ERROR_500, FaultKind.CUT)
SAMPLED_LEDGERS = short_and_long(product(("sql", "glue"), LEDGERS), FEW_STEPS, MANY_STEPS, every=2)


@pytest.mark.sweep("sql")
@pytest.mark.parametrize(("lab", "kind", "faults"), SAMPLED_LEDGERS, indirect=["lab"])
def test_ledgers_and_queues_whose_answer_is_lost_change_nothing(
    lab: CatalogLab, place: Place, lock_table: str, kind: FaultKind, faults: int
) -> None:
    """The ledger in the catalog's own database, and in DynamoDB beside Glue."""
    place = place if lab.kind == "sql" else place.locked(lock_table)
    proxy = lab.commits
    place.create(0)
    table = place.through(lab).open()
    ids: list[int] = []
    # DynamoDB's ledger puts whole items; that of SQL updates its rows.
    for step in (
        RequestStep.PUT_LEDGER,
        RequestStep.LEASE,
        *((RequestStep.UPDATE_LEDGER,) if lab.kind == "sql" else ()),
    ):
        proxy.plan(Rule(kind=kind, steps=(step,), every=2))
        table._writer.queue_first = 100
        ids += append_until(table, proxy, faults, first=len(ids) + 1)
    proxy.clear()
    check_each(place, ids)


@pytest.mark.sweep("glue")
@pytest.mark.parametrize("lab", ["sql", "glue"], indirect=True)
def test_a_repeat_is_recognised_though_the_ledger_answers_every_other_time(
    lab: CatalogLab, place: Place, lock_table: str
) -> None:
    place = place if lab.kind == "sql" else place.locked(lock_table)
    first = place.create(0).append(rows(1), key="event")
    table = place.through(lab).open()
    lab.commits.plan(
        Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.PUT_LEDGER, RequestStep.GET_LEDGER), every=2)
    )
    before = lab.commits.fired()
    for _ in range(3):
        again = table.append(rows(1), key="event")
        assert (again.outcome, again.version) == ("already_committed", first.version)
    assert lab.commits.fired() > before
    lab.commits.clear()
    check(place, 0, 1)
