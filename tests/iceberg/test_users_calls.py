"""Users' own PyIceberg calls on tables of a ``SafeCatalog``, whose commit's answer is lost or turned into a conflict."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException, TableAlreadyExistsError
from pyiceberg.table import Table
from pyiceberg.types import StringType

import safewrite as sw
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.protocol.ask import Limits
from safewrite.testing.faults import FaultKind, RequestStep, Rule
from tests.iceberg.places import KINDS, Place, check
from tests.integration.places import once, rows
from tests.sampling import some
from tests.servers import CatalogLab

KINDS_LOST = (FaultKind.LOST_ANSWER, FaultKind.PRECONDITION_412)
LOST = pytest.mark.parametrize("kind", KINDS_LOST, ids=str)
"""412: a conflict, as a client that repeats a request by itself sees it (C3)."""


@dataclass(frozen=True)
class Call:
    """A call, the ids that it leaves of 1 and 2, and how many snapshots it adds."""

    act: Callable[[Table], object]
    left: tuple[int, ...]
    snapshots: int = 1


def _update_schema(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("note", StringType())


def _set_properties(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(owner="me")


def _expire(table: Table) -> None:
    oldest = min(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    table.maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()


def _append_and_change(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(owner="me")
        transaction.append(rows(3))


CALLS = {
    "append": Call(lambda table: table.append(rows(3)), (1, 2, 3)),
    "overwrite": Call(lambda table: table.overwrite(rows(3), overwrite_filter="id = 2"), (1, 3), 2),
    "delete": Call(lambda table: table.delete("id = 2"), (1,)),
    "upsert": Call(lambda table: table.upsert(_changed(), join_cols=["id"]), (1, 2, 3), 3),
    "update_schema": Call(_update_schema, (1, 2), 0),
    "set_properties": Call(_set_properties, (1, 2), 0),
    "expire_snapshots": Call(_expire, (1, 2), -1),
    "transaction": Call(_append_and_change, (1, 2, 3)),
}


def _changed() -> pa.Table:
    return pa.table({"id": pa.array([2, 3], pa.int64()), "value": ["new", "v3"]})


SAMPLED_CALLS = some(product(KINDS, CALLS, KINDS_LOST), every=3)


@pytest.mark.sweep(
    "glue-overwrite",
    "glue-set_properties",
    "glue-transaction",
    "glue-update_schema-precondition_412",
    "rest-delete",
    "rest-expire_snapshots-lost_answer",
    "rest-upsert-lost_answer",
    "sql-append",
    "sql-upsert",
    "glue-delete",
    "sql-update_schema",
    "rest-set_properties",
    "sql-transaction",
    "sql-expire_snapshots",
    "rest-append",
)
@pytest.mark.parametrize(("lab", "name", "kind"), SAMPLED_CALLS, indirect=["lab"])
def test_a_users_call_whose_answer_is_lost_is_done_once(
    lab: CatalogLab, place: Place, name: str, kind: FaultKind
) -> None:
    """C1: it is done once, is told so, and PyIceberg's clean-up removes nothing that is in use."""
    place.create(1)
    place.open().append(rows(2), key="second")
    call = CALLS[name]
    table = place.through(lab).safe()
    before = lab.commits.fired()
    lab.commits.plan(Rule(kind=kind, steps=(RequestStep.CATALOG_COMMIT,), nth=1))
    call.act(table)
    assert lab.commits.fired() - before == 1
    lab.commits.clear()
    check(place, *call.left)
    after = place.plain()
    assert len(after.snapshots()) == 2 + call.snapshots
    assert table.metadata_location == after.metadata_location
    if name == "update_schema":
        assert after.schema().column_names == ["id", "value", "note"]
    if name in ("set_properties", "transaction"):
        assert after.properties["owner"] == "me"
    place.open().append(rows(9) if name != "update_schema" else _wide(9), key="next")
    assert place.ids() == Counter((*call.left, 9))


def _wide(number: int) -> pa.Table:
    return rows(number).append_column("note", pa.array(["x"]))


@pytest.mark.sweep("glue-precondition_412", "rest-lost_answer", "rest-precondition_412", "sql")
@LOST
def test_a_table_that_is_made_with_rows_in_it_is_made_once(
    lab: CatalogLab, place: Place, kind: FaultKind
) -> None:
    """CREATE TABLE AS SELECT: the table and its first snapshot in one commit."""
    catalog = SafeCatalog(place.through(lab).catalog())
    steps = (RequestStep.CATALOG_COMMIT,) if lab.kind == "rest" else (RequestStep.CATALOG_CREATE,)
    # A REST catalog is asked to stage the table first, which makes nothing.
    before = lab.commits.fired()
    lab.commits.plan(Rule(kind=kind, steps=steps, nth=1))
    with catalog.create_table_transaction(place.name, rows(1).schema) as transaction:
        transaction.append(rows(1, 2))
    assert lab.commits.fired() - before == 1
    lab.commits.clear()
    check(place, 1, 2)
    assert len(place.plain().snapshots()) == 1
    with pytest.raises(TableAlreadyExistsError):
        SafeCatalog(place.catalog()).create_table(place.name, rows(1).schema)
    assert place.ids() == once(1, 2)


@pytest.mark.sweep("glue", "rest")
def test_a_users_append_in_doubt_deletes_nothing_and_says_so_in_pyicebergs_words(
    lab: CatalogLab, place: Place
) -> None:
    """C1: the commit landed, its answer was lost, and no look is answered."""
    place.create(1)
    catalog = SafeCatalog(
        place.through(lab, {"glue.max-retries": 1}).catalog(), limits=Limits(asks=2, timeout_s=20)
    )
    table = catalog.load_table(place.name)
    loads = 1 if lab.kind == "rest" else 2  # before the first commit: ours, and that of PyIceberg's client
    fine = [
        Rule(kind=FaultKind.DELAY, steps=(RequestStep.CATALOG_LOAD,), nth=number + 1, delay_s=0.001)
        for number in range(loads)
    ]
    lab.commits.plan(
        *fine,
        Rule(kind=FaultKind.CUT, steps=(RequestStep.CATALOG_LOAD,)),
        Rule(kind=FaultKind.LOST_ANSWER, steps=(RequestStep.CATALOG_COMMIT,)),
    )
    with pytest.raises(CommitStateUnknownException) as caught:
        table.append(rows(2))
    assert isinstance(caught.value, sw.CommitUnknownError)
    lab.commits.clear()
    check(place, 1, 2)


@pytest.mark.parametrize(("kind", "library"), [("sql", "sqlalchemy")])
def test_a_catalog_whose_library_is_missing_is_told_with_what_to_install(
    kind: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T4-D5: SQLAlchemy is in no extra of ours; "check its address and credentials" was said, as if a repeat might help."""
    for name in [
        one
        for one in sys.modules
        if one.partition(".")[0] == library or one.endswith((".catalog.sql", ".sql_catalog", ".stores.sql"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(sw.MissingExtraError, match=rf"pip install 'pyiceberg\[{kind}.*Nothing was written"):
        sw.open("a.b", catalog={"type": kind, "uri": f"sqlite:///{tmp_path}/c.db"})
