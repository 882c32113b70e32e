"""What a branch knows of the writes of before it began, and of branches of its name that were dropped, once snapshots have expired."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.errors import Kind
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Ok
from safewrite.stores.sql import SqlLedger
from tests.iceberg.branch_tables import drop, expire_what_nothing_names, ids, rows

FUTURE_S = 1 << 40


def begin_once_expired(main: IcebergTable, catalog: SqlCatalog) -> IcebergTable:
    """A branch whose beginning, and the snapshots before it, have expired: rows 1, 2 (of before) and 9."""
    main.append(rows(9))
    branch = sw.open("db.t", catalog=catalog, branch="audit")
    branch.append(rows(10))
    main.append(rows(20))
    expire_what_nothing_names(catalog)
    return branch.refresh()


def test_a_key_of_before_the_branch_is_written_once_though_its_snapshot_has_expired(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    main.append(rows(3), key="k")
    main.append_many([("a", rows(4)), ("b", rows(5))])
    branch = begin_once_expired(main, catalog)
    before = ids(catalog, "audit")
    found = branch.resolve("k")
    assert found is not None
    assert (found.rows, branch.resolve("never")) == (1, None)
    assert branch.append(rows(3), key="k").outcome == "already_committed"
    again = branch.append_many([("a", rows(4)), ("b", rows(5)), ("c", rows(6))])
    assert [one.outcome for one in again] == ["already_committed", "already_committed", "committed"]
    with pytest.raises(sw.ReplayMismatchError, match="'begin' was committed"):
        branch.append(rows(7), key="begin")
    # From now on the branch's own ledger tells it.
    assert branch.append(rows(3), key="k").outcome == "already_committed"
    assert ids(catalog, "audit") == sorted([*before, 6])


def test_a_key_that_the_main_branch_had_after_the_branch_began_is_new_on_it(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    branch = sw.open("db.t", catalog=catalog, branch="audit")
    main.append(rows(3), key="k")
    main.append_many([("a", rows(4)), ("b", rows(5))])
    branch.append(rows(10))
    main.append(rows(20))
    expire_what_nothing_names(catalog)
    assert branch.refresh().resolve("k") is None
    assert branch.append(rows(3), key="k").outcome == "committed"
    assert [one.outcome for one in branch.append_many([("a", rows(4))])] == ["committed"]
    assert ids(catalog, "audit") == [1, 2, 3, 4, 10]


def test_after_a_fast_forward_what_came_from_the_branch_counts_on_both(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    branch = sw.open("db.t", catalog=catalog, branch="audit")
    branch.append(rows(3), key="k")
    branch.fast_forward()
    main.refresh().append(rows(4), key="m")  # after it: on the main branch alone
    branch.append(rows(10))
    main.append(rows(20))
    expire_what_nothing_names(catalog)
    assert main.refresh().append(rows(3), key="k").outcome == "already_committed"
    branch.refresh()
    assert branch.append(rows(3), key="k").outcome == "already_committed"
    assert branch.append(rows(4), key="m").outcome == "committed"
    assert (ids(catalog), ids(catalog, "audit")) == ([1, 2, 3, 4, 20], [1, 2, 3, 4, 10])


def test_what_cannot_be_told_any_more_is_neither_written_nor_taken_as_written(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    """The main branch's record says no sequence number: an earlier build's, or a call that ended before it was told."""
    main.append(rows(3), key="k")
    main.append(rows(4), key="m")
    ledger = SqlLedger(catalog.engine, main.table_id)
    for key, version in (("k", main.version), ("m", None)):
        answer = ledger.get(key)
        assert isinstance(answer, Ok)
        ledger.commit(replace(answer.value, base_version=7, version=version), FUTURE_S)  # type: ignore[type-var]
    branch = begin_once_expired(main, catalog)
    before = ids(catalog, "audit")
    for key, number in (("k", 3), ("m", 4)):
        with pytest.raises(sw.CommitUnknownError, match="before the branch began"):
            branch.append(rows(number), key=key)
        with pytest.raises(sw.CommitUnknownError, match="before the branch began"):
            branch.resolve(key)
    (fault, answer) = branch.append_many([("k", rows(3)), ("new", rows(6))])
    assert isinstance(fault, sw.CommitUnknownError)
    assert (answer.outcome, ids(catalog, "audit")) == ("committed", sorted([*before, 6]))


# --- a branch that another engine makes again --------------------------------------------------------------
@pytest.mark.parametrize("expired", [False, True], ids=["known", "expired"])
@pytest.mark.parametrize("moved", [False, True], ids=["main stood", "main moved"])
@pytest.mark.parametrize("theirs", [False, True], ids=["as it was made", "with their rows"])
def test_a_branch_that_another_engine_makes_again_has_a_ledger_of_its_own(
    main: IcebergTable, catalog: SqlCatalog, *, expired: bool, moved: bool, theirs: bool
) -> None:
    """Keys of the dropped one counted as written, once its snapshots had expired: their rows were lost."""
    audit = sw.open("db.t", catalog=catalog, branch="audit")
    audit.append(rows(3), key="k", positions={"p": (1, 2)})
    drop(catalog)
    if moved:
        main.append(rows(4), key="m")
    table = catalog.load_table("db.t")
    table.manage_snapshots().create_branch(main.version, "audit").commit()
    if theirs:
        table.refresh().append(rows(5), branch="audit")
    if expired:
        expire_what_nothing_names(catalog)
    with pytest.raises(sw.ConflictError, match="was dropped") as dropped:
        audit.append(rows(3), key="k")
    assert dropped.value.kind == Kind.BRANCH_CHANGED
    audit = sw.open("db.t", catalog=catalog, branch="audit")
    assert audit.positions() == {"p": 1}
    assert audit.append(rows(3), key="k", positions={"p": (1, 2)}).outcome == "committed"
    if moved:
        assert audit.append(rows(4), key="m").outcome == "already_committed"
    assert ids(catalog, "audit") == [1, 2, 3, *[4] * moved, *[5] * theirs]


def test_a_branch_of_which_only_rows_of_another_engine_are_known_is_the_same(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    audit = sw.open("db.t", catalog=catalog, branch="audit")
    audit.append(rows(3), key="k")
    catalog.load_table("db.t").append(rows(5), branch="audit")
    main.append(rows(4))
    expire_what_nothing_names(catalog)
    assert audit.refresh().append(rows(3), key="k").outcome == "already_committed"
    assert ids(catalog, "audit") == [1, 2, 3, 5]
