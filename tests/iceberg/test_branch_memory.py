"""What a branch knows of the writes of before it began, and of branches of its name that were dropped, once snapshots have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.errors import Kind
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.catalog.world import CatalogWorld
from safewrite.iceberg.connect import connect
from safewrite.iceberg.maintenance.repair import forget_branches
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Effect, Ok, Outcome, Together
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


def remove_old_metadata(catalog: SqlCatalog) -> None:
    """Remove all metadata files but the newest, as Spark does where a table says so."""
    for entry in catalog.load_table("db.t").metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink()


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


@pytest.mark.long
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


@pytest.mark.long
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
    assert branch.resolve("m") is not None  # earlier metadata files show it
    remove_old_metadata(catalog)
    for key, number in (("k", 3), ("m", 4)):
        with pytest.raises(sw.CommitUnknownError, match="before the branch began"):
            branch.append(rows(number), key=key)
        with pytest.raises(sw.CommitUnknownError, match="before the branch began"):
            branch.resolve(key)
    (fault, answer) = branch.append_many([("k", rows(3)), ("new", rows(6))])
    assert isinstance(fault, sw.CommitUnknownError)
    assert (answer.outcome, ids(catalog, "audit")) == ("committed", sorted([*before, 6]))


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed before", "killed after", "main was faster"])
def test_keys_of_a_fast_forward_that_did_not_land_are_decided_by_the_line_of_main(
    main: IcebergTable, catalog: SqlCatalog, how: str
) -> None:
    """T4-A4: its intents stay in the ledger of main; once main's snapshot of then had expired, no repeat on the branch was decided."""
    branch = sw.open("db.t", catalog=catalog, branch="audit")
    branch.append(rows(3), key="k")
    branch.append_many([("a", rows(4)), ("b", rows(5))])
    published = how == "killed after"
    faster = [lambda: main.refresh().append(rows(19), key="faster")] if how == "main was faster" else []
    step = "ledger.commit" if published else "swap.commit"
    with meanwhile(step, faster), pytest.raises((Killed, sw.ConflictError)):
        branch.fast_forward()
    drop(catalog)
    main.refresh().append(rows(20))
    expire_what_nothing_names(catalog)
    again = sw.open("db.t", catalog=catalog, branch="audit")
    found = [again.append(rows(3), key="k"), *again.append_many([("a", rows(4)), ("b", rows(5))])]
    assert {one.outcome for one in found} == {"already_committed" if published else "committed"}
    assert set(ids(catalog, "audit")) >= {1, 2, 3, 4, 5, 20}
    assert len(set(ids(catalog, "audit"))) == len(ids(catalog, "audit"))


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def meanwhile(step: str, calls: list[Callable[[], object]]) -> Iterator[None]:
    """Make calls before the first such step of a fast-forward, or end its process there."""
    perform = CatalogWorld.perform

    def bent(world: CatalogWorld, effect: Effect) -> Outcome:
        parts = effect.effects if isinstance(effect, Together) else (effect,)
        if any(part.name == step for part in parts):
            patched.setattr(CatalogWorld, "perform", perform)
            if not calls:
                raise Killed
            calls.pop()()
        return perform(world, effect)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CatalogWorld, "perform", bent)
        yield


# --- a branch that another engine makes again --------------------------------------------------------------
@pytest.mark.sweep("known", "as it was made", "with their rows-main stood")
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


@pytest.mark.long
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


# --- what a dropped branch leaves --------------------------------------------------------------------------
def left(catalog: SqlCatalog) -> tuple[list[str], list[str]]:
    """Properties and tags of branches."""
    metadata = catalog.load_table("db.t").metadata
    named = [
        name for name in metadata.properties if name.startswith("safewrite.branch.") and ".main" not in name
    ]
    return named, [name for name in metadata.refs if name.startswith("safewrite-changes-")]


def repaired(catalog: SqlCatalog, *, dry_run: bool = False) -> list[tuple[str, str]]:
    steps = forget_branches(connect("db.t", catalog), dry_run=dry_run)
    return [(step.target, step.status) for step in steps]


def test_what_a_dropped_branch_left_goes_once_no_branch_can_be_made_of_it_any_more(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    kept = sw.open("db.t", catalog=catalog, branch="kept")
    kept.append(rows(8), positions={"p": (1, 9)})
    for name in ("a.b", "deletes"):
        audit = sw.open("db.t", catalog=catalog, branch=name)
        audit.append(rows(3), positions={"p": (1, 2)})
    audit.apply_changes(
        rows(1, s=9, op="d"), key="d", keys=["id"], sequence_by=["s"], delete_when=[("op", "=", "d")]
    )
    assert repaired(catalog) == []
    drop(catalog, "a.b")
    drop(catalog, "deletes")
    last = audit.version
    assert repaired(catalog, dry_run=True) == [("a.b", "skipped"), ("deletes", "would")]
    # The snapshots are still there: a branch that another engine makes of them has what counted on the dropped one.
    assert repaired(catalog) == [("a.b", "skipped"), ("deletes", "done")]
    assert left(catalog)[1] == []
    catalog.load_table("db.t").manage_snapshots().create_branch(last, "deletes").commit()
    again = sw.open("db.t", catalog=catalog, branch="deletes")
    changes = pa.concat_tables([rows(1, s=3), rows(7)])
    late = again.apply_changes(
        changes, key="e", keys=["id"], sequence_by=["s"], delete_when=[("op", "=", "d")]
    )
    assert (again.positions(), late.changes["late"]) == ({"p": 2}, 1)  # type: ignore[index]
    drop(catalog, "deletes")
    repaired(catalog)
    expire_what_nothing_names(catalog)
    assert repaired(catalog) == [("a.b", "done"), ("deletes", "done")]
    names, tags = left(catalog)
    assert ({name.split(".")[2] for name in names}, tags, repaired(catalog)) == ({"kept"}, [], [])
    assert (kept.refresh().positions(), main.refresh().positions()) == ({"p": 9}, {"p": 1})


def test_what_counts_on_another_branch_stays(main: IcebergTable, catalog: SqlCatalog) -> None:
    """Another engine published the branch, and dropped it: the main branch has its positions by the branch's record alone."""
    audit = sw.open("db.t", catalog=catalog, branch="audit")
    audit.append(rows(3), positions={"p": (1, 2)})
    catalog.load_table("db.t").manage_snapshots().set_current_snapshot(audit.version).commit()
    drop(catalog)
    expire_what_nothing_names(catalog)
    assert repaired(catalog) == []
    assert main.refresh().positions() == {"p": 2}


def test_a_branch_that_is_begun_meanwhile_loses_nothing(
    main: IcebergTable, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    sw.open("db.t", catalog=catalog, branch="audit").append(rows(3), positions={"p": (1, 2)})
    drop(catalog)
    expire_what_nothing_names(catalog)
    commit, other = SafeCatalog.commit_table, SqlCatalog(catalog.name, **catalog.properties)

    def after_another(own: SafeCatalog, *given: Any) -> Any:
        monkeypatch.setattr(SafeCatalog, "commit_table", commit)
        sw.open("db.t", catalog=other, branch="audit").append(rows(7), positions={"p": (1, 5)})
        return commit(own, *given)

    monkeypatch.setattr(SafeCatalog, "commit_table", after_another)
    assert repaired(catalog) == [("audit", "failed")]
    assert sw.open("db.t", catalog=catalog, branch="audit").positions() == {"p": 5}
