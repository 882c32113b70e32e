"""Writes to a branch of an Iceberg table, and the fast-forward of its main branch, as PyIceberg reads both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.errors import Kind
from safewrite.iceberg import current
from safewrite.iceberg.table import IcebergTable
from tests.iceberg.branch_tables import drop, expire_what_nothing_names, ids, refs, rows

DELETES = {"keys": ["id"], "sequence_by": ["s"], "delete_when": [("op", "=", "d")]}


@pytest.fixture
def audit(main: IcebergTable, catalog: SqlCatalog) -> IcebergTable:
    return sw.open("db.t", catalog=catalog, branch="audit")


def test_a_branch_begins_at_the_main_branch_and_leaves_it_as_it_is(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    assert refs(catalog)["audit"] == main.version == audit.version
    first = audit.append(rows(3), key="k", positions={"p": (1, 2)})
    assert audit.append(rows(3), key="k", positions={"p": (1, 2)}).outcome == "already_committed"
    assert (ids(catalog), ids(catalog, "audit")) == ([1, 2], [1, 2, 3])
    assert (main.refresh().positions(), audit.positions()) == ({"p": 1}, {"p": 2})
    # A key is one of its branch: the main branch has no such write yet, and says so.
    assert main.resolve("k") is None
    assert main.append(rows(3), key="k", positions={"p": (1, 2)}).outcome == "committed"
    found = audit.resolve("k")
    assert found is not None
    assert (found.version, ids(catalog), ids(catalog, "audit")) == (first.version, [1, 2, 3], [1, 2, 3])
    assert "branch=audit" in repr(audit)


def test_keys_that_were_deleted_on_a_branch_are_remembered_on_it_alone_until_the_fast_forward(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    main.apply_changes(rows(1, s=5, op="d"), key="on main", **DELETES)
    drop(catalog)
    audit = sw.open("db.t", catalog=catalog, branch="audit")
    late = audit.apply_changes(pa.concat_tables([rows(1, s=3), rows(7)]), key="old", **DELETES)
    assert late.changes is not None
    assert late.changes["late"] == 1  # taken over when the branch began
    audit.apply_changes(rows(2, s=9, op="d"), key="gone", **DELETES)
    # On another line the same change is new, and it lands.
    drop_to = sw.open("db.t", catalog=catalog, branch="other")
    assert drop_to.apply_changes(rows(2, s=4), key="there", **DELETES).changes["applied"] == 1  # type: ignore[index]
    audit.fast_forward()
    late = main.refresh().apply_changes(
        pa.concat_tables([rows(2, s=4), rows(1, s=3), rows(8)]), key="m", **DELETES
    )
    assert late.changes is not None
    assert (late.changes["late"], ids(catalog)) == (2, [7, 8])
    expire_what_nothing_names(catalog)  # the tags keep the files
    late = main.refresh().apply_changes(pa.concat_tables([rows(2, s=4), rows(9)]), key="n", **DELETES)
    assert late.changes is not None
    assert late.changes["late"] == 1


def test_a_fast_forward_gives_the_main_branch_all_that_counts_on_the_branch(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    audit.append(rows(3), key="k3", positions={"p": (1, 2)})
    audit.append(rows(4), txn=("app", 7))
    audit.append_many([("k5", rows(5)), ("k6", rows(6))])
    done = audit.fast_forward()
    assert (done.outcome, done.version, done.members) == ("committed", audit.version, 4)
    assert "removed" not in str(done)
    assert audit.fast_forward().outcome == "already_committed"
    assert ids(catalog) == ids(catalog, "audit") == [1, 2, 3, 4, 5, 6]
    main.append(rows(10))
    drop(catalog)
    expire_what_nothing_names(catalog)
    main.refresh()
    assert main.append(rows(3), key="k3").outcome == "already_committed"
    assert main.append(rows(4), txn=("app", 7)).outcome == "already_committed"
    assert main.append(rows(5), key="k5").outcome == "already_committed"
    assert (main.positions(), ids(catalog)) == ({"p": 2}, [1, 2, 3, 4, 5, 6, 10])


def test_a_fast_forward_is_refused_where_the_main_branch_or_the_branch_moved_since(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    audited = audit.append(rows(3)).version
    sw.open("db.t", catalog=catalog, branch="audit").append(rows(4))
    with pytest.raises(sw.ConflictError, match="audit it again") as moved:
        audit.fast_forward(audited)
    assert moved.value.kind == Kind.BRANCH_CHANGED
    main.append(rows(5))
    with pytest.raises(sw.ConflictError, match="others wrote to the main branch") as moved:
        audit.refresh().fast_forward()
    assert moved.value.kind == Kind.BRANCH_CHANGED
    assert ids(catalog) == [1, 2, 5]
    with pytest.raises(sw.InvalidInputError, match="open on its main branch"):
        main.fast_forward()


@pytest.mark.long
def test_a_fast_forward_of_what_was_not_seen_names_no_snapshot(catalog: SqlCatalog) -> None:
    """It said that -1 was audited, where another process had made the table since it was opened."""
    opened = sw.open("db.t", catalog=catalog, branch="audit", create=True)
    with pytest.raises(sw.TableNotFoundError, match="yet"):
        opened.fast_forward()
    sw.open("db.t", catalog=catalog, branch="audit", create=True).append(rows(1))
    with pytest.raises(sw.TableNotFoundError, match="refresh"):
        opened.fast_forward()
    opened.refresh()
    drop(catalog)
    with pytest.raises(sw.ConflictError, match="was dropped"):
        opened.refresh()
    catalog.load_table("db.t").manage_snapshots().create_branch(refs(catalog)["main"], "audit").commit()
    sw.open("db.t", catalog=catalog, branch="audit")
    with pytest.raises(sw.ConflictError, match=r"and \d+ was audited"):
        opened.fast_forward()
    with pytest.raises(sw.ConflictError, match="no snapshot was audited"):
        opened.fast_forward(-1)


def test_what_another_writer_puts_on_the_main_branch_just_before_the_commit_stays(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look shows that the main branch may be moved, and the request has to find it so."""
    audit.append(rows(3))
    other = sw.open("db.t", catalog=SqlCatalog(catalog.name, **catalog.properties))
    commit, asked = SqlCatalog.commit_table, []

    def after_another(own: SqlCatalog, *given: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            other.append(rows(50))
        return commit(own, *given)

    monkeypatch.setattr(SqlCatalog, "commit_table", after_another)
    with pytest.raises(sw.ConflictError, match="others wrote to the main branch"):
        audit.fast_forward()
    assert ids(catalog) == [1, 2, 50]


def test_a_branch_that_was_dropped_is_refused_and_made_again_it_begins_where_the_main_branch_is(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    audit.append(rows(3), key="k", positions={"p": (1, 2)})
    audit.apply_changes(rows(1, s=9, op="d"), key="d", **DELETES)
    drop(catalog)
    with pytest.raises(sw.ConflictError, match="was dropped") as dropped:
        audit.append(rows(4))
    assert dropped.value.kind == Kind.BRANCH_CHANGED
    expire_what_nothing_names(catalog)
    assert main.refresh().positions() == {"p": 1}  # not that of the dropped one, whose snapshots are gone
    again = sw.open("db.t", catalog=catalog, branch="audit")
    assert again.positions() == {"p": 1}
    assert again.append(rows(3), key="k", positions={"p": (1, 2)}).outcome == "committed"
    assert again.apply_changes(rows(1, s=5), key="d", **DELETES).changes["applied"] == 1  # type: ignore[index]
    assert ids(catalog, "audit") == [1, 2, 3]


@pytest.mark.sweep("refresh", "resolve", "history")
@pytest.mark.parametrize("look", ["none", "refresh", "history", "resolve"])
def test_an_object_of_a_dropped_branch_goes_on_in_no_branch_that_is_begun_again(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """What it wrote before is lost: its writer would go on with the next rows, and no one would know."""
    monkeypatch.setattr(current, "FRESH_S", 0)  # it looks again before each write
    audit.append(rows(3), key="before")
    drop(catalog)
    sw.open("db.t", catalog=catalog, branch="audit").append(rows(4), key="before")
    looks = {
        "refresh": audit.refresh, "history": audit.history, "resolve": lambda: audit.resolve("before"),
    }  # fmt: skip
    for call in (looks.get(look, lambda: audit.append(rows(5))), lambda: audit.append(rows(5))):
        with pytest.raises(sw.ConflictError, match="was dropped") as refused:
            call()
        assert refused.value.kind is Kind.BRANCH_CHANGED
        assert sorted(audit.rows(where="id >= 0")["id"].to_pylist()) == [1, 2, 3]
    assert ids(catalog, "audit") == [1, 2, 4]


def fast_forward_by_another_engine(catalog: SqlCatalog) -> None:
    table = catalog.load_table("db.t")
    table.manage_snapshots().set_current_snapshot(refs(catalog)["audit"]).commit()


@pytest.mark.sweep("audit")
@pytest.mark.parametrize("goes_on", ["main", "audit"])
def test_another_engines_fast_forward_brings_what_counts_on_the_branch_too(
    goes_on: str, main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    """Spark's ``fast_forward`` moves the main branch and tells the table nothing; either branch may be written to next."""
    audit.append(rows(3), txn=("app", 7), positions={"p": (1, 2)})
    audit.apply_changes(rows(1, s=9, op="d"), key="d", **DELETES)
    fast_forward_by_another_engine(catalog)
    if goes_on == "audit":
        audit.refresh().apply_changes(rows(2, s=9, op="d"), key="e", positions={"p": (2, 3)}, **DELETES)
    assert main.refresh().positions() == {"p": 2}
    late = main.apply_changes(pa.concat_tables([rows(1, s=3), rows(2, s=3)]), key="m", **DELETES)
    assert late.changes is not None
    assert (late.changes["late"], ids(catalog)) == (1, [2, 3])
    assert main.append(rows(3), txn=("app", 7)).outcome == "already_committed"
    assert main.append(rows(4), positions={"p": (2, 3)}).outcome == "committed"


@pytest.mark.long
def test_a_branch_that_another_engine_moved_to_the_main_branch_has_what_counts_there(
    main: IcebergTable, audit: IcebergTable, catalog: SqlCatalog
) -> None:
    audit.append(rows(3), positions={"p": (1, 2)})
    main.apply_changes(rows(2, s=9, op="d"), key="d", positions={"p": (1, 5)}, **DELETES)
    drop(catalog)
    catalog.load_table("db.t").manage_snapshots().create_branch(main.version, "audit").commit()
    expire_what_nothing_names(catalog)
    with pytest.raises(sw.ConflictError, match="was dropped"):
        audit.append(rows(8))
    audit = sw.open("db.t", catalog=catalog, branch="audit")
    assert audit.positions() == {"p": 5}
    late = audit.apply_changes(pa.concat_tables([rows(2, s=3), rows(8)]), key="e", **DELETES)
    assert late.changes is not None
    assert (late.changes["late"], ids(catalog, "audit")) == (1, [1, 8])


@pytest.mark.long
def test_a_branch_that_another_engine_made_is_taken_where_it_is_known_what_was_deleted(
    main: IcebergTable, catalog: SqlCatalog
) -> None:
    old = main.version
    main.apply_changes(rows(2, s=9, op="d"), key="d", positions={"p": (1, 5)}, **DELETES)
    table = catalog.load_table("db.t")
    table.manage_snapshots().create_branch(old, "older").commit()
    table.refresh().manage_snapshots().create_branch(main.version, "newest").commit()
    table.refresh().append(rows(20), branch="newest")
    with pytest.raises(sw.UnsupportedTableError, match="Drop it"):
        sw.open("db.t", catalog=catalog, branch="older")
    newest = sw.open("db.t", catalog=catalog, branch="newest")
    assert newest.positions() == {"p": 5}
    late = newest.apply_changes(pa.concat_tables([rows(2, s=3), rows(8)]), key="e", **DELETES)
    assert late.changes is not None
    assert (late.changes["late"], ids(catalog, "newest")) == (1, [1, 8, 20])
    newest.fast_forward()
    assert ids(catalog) == [1, 8, 20]


def test_how_long_a_branch_is_kept_stays(audit: IcebergTable, catalog: SqlCatalog) -> None:
    table = catalog.load_table("db.t")
    for name in ("main", "audit"):
        ref = table.metadata.refs[name]
        table.metadata.refs[name] = ref.model_copy(update={"max_snapshot_age_ms": 10**12})
    with table.transaction() as changes:
        for name in ("main", "audit"):
            found = changes._set_ref_snapshot(
                refs(catalog)[name], name, "branch", max_snapshot_age_ms=10**12, min_snapshots_to_keep=4
            )
            changes._apply(*found)
    audit.refresh().append(rows(3))
    audit.fast_forward()
    kept = catalog.load_table("db.t").metadata.refs
    assert {
        name: (kept[name].max_snapshot_age_ms, kept[name].min_snapshots_to_keep) for name in ("main", "audit")
    } == {
        "main": (10**12, 4),
        "audit": (10**12, 4),
    }


def a_tag(catalog: SqlCatalog, main: IcebergTable) -> dict[str, Any]:
    catalog.load_table("db.t").manage_snapshots().create_tag(main.version, "kept").commit()
    return {"catalog": catalog, "branch": "kept"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (a_tag, "is a tag"),
        (lambda catalog, _: {"catalog": catalog, "branch": ""}, "non-empty text"),
        (lambda *_: {"branch": "audit"}, "for Iceberg tables"),
    ],
    ids=["a tag", "no name", "a Delta table"],
)
def test_what_is_no_branch_of_an_iceberg_table_is_refused(
    given: Callable[..., dict[str, Any]],
    text: str,
    main: IcebergTable,
    catalog: SqlCatalog,
    tmp_path: Path,
) -> None:
    place = given(catalog, main)
    with pytest.raises(sw.InvalidInputError, match=text):
        sw.open("db.t" if "catalog" in place else str(tmp_path / "delta"), **place)


def test_a_table_without_a_snapshot_or_not_yet_made_begins_its_branch_too(catalog: SqlCatalog) -> None:
    table = sw.open("db.t", catalog=catalog, branch="audit", create=True)
    table.append(rows(1), key="k")
    assert (ids(catalog), ids(catalog, "audit")) == ([], [1])
    table.fast_forward()
    assert ids(catalog) == [1]


@pytest.mark.sweep("%2E", "main2", "a.b", "audit.safewrite")
@pytest.mark.parametrize("name", ["a.b", "é/ü", "audit.safewrite.position.p", "%2E", "main2"])
def test_a_branch_has_any_name(name: str, main: IcebergTable, catalog: SqlCatalog) -> None:
    found = sw.open("db.t", catalog=catalog, branch=name)
    sw.open("db.t", catalog=catalog, branch="audit").append(rows(5), positions={"p": (1, 8)})
    found.append(rows(3), positions={"p": (1, 2)})
    assert (ids(catalog), ids(catalog, name), found.refresh().positions()) == ([1, 2], [1, 2, 3], {"p": 2})
    found.fast_forward()
    assert main.refresh().positions() == {"p": 2}
