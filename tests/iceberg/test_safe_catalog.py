"""Tables that users make through a SafeCatalog: usable at once, in namespaces of any depth, with PyIceberg's own errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    TableAlreadyExistsError,
)
from pyiceberg.types import LongType

import safewrite as sw
from safewrite.iceberg import SafeCatalog

ROWS = pa.table({"id": [1, 2]})


@pytest.fixture(params=["sql", "memory"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    if request.param == "memory":
        yield InMemoryCatalog("memory", warehouse=tmp_path.as_uri())
        return
    made = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    yield made
    made.engine.dispose()


@pytest.fixture
def catalog(inner: Catalog) -> SafeCatalog:
    inner.create_namespace("db")
    return SafeCatalog(inner)


def test_a_table_that_was_made_can_be_used_at_once(catalog: SafeCatalog) -> None:
    table = catalog.create_table("db.t", ROWS.schema)
    assert type(table).__name__ == "Table"
    table.append(ROWS)
    assert table.scan().to_arrow().num_rows == 2
    assert table.refresh().catalog is catalog
    table.append(ROWS)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 4


def test_a_table_is_made_if_there_is_none(catalog: SafeCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the decorator's own create_table: what the catalog would do by itself nobody would know of."""
    asked: list[Any] = []
    real = catalog.create_table
    monkeypatch.setattr(catalog, "create_table", lambda *a, **k: (asked.append(a), real(*a, **k))[1])
    first = catalog.create_table_if_not_exists("db.t", ROWS.schema)
    first.append(ROWS)
    again = catalog.create_table_if_not_exists("db.t", ROWS.schema)
    assert len(asked) == 2
    assert again.scan().to_arrow().num_rows == 2
    assert again.catalog is catalog


def test_another_table_of_the_name_is_left_as_it_is(catalog: SafeCatalog) -> None:
    catalog.create_table("db.t", ROWS.schema).append(ROWS)
    with pytest.raises(TableAlreadyExistsError, match="already exists"):
        catalog.create_table("db.t", ROWS.schema)
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 2


@pytest.mark.sweep("memory-a.b.c", "sql-a.b.t", "memory")
@pytest.mark.parametrize("name", ["a.b.t", "a.b.c.t", ("a", "b", "t")])
def test_namespaces_may_have_several_levels(inner: Catalog, name: Any) -> None:
    """As with PyIceberg itself, where the catalog has them."""
    namespace = Catalog.namespace_from(name)
    for depth in range(1, len(namespace) + 1):
        inner.create_namespace(namespace[:depth])
    table = SafeCatalog(inner).create_table(name, ROWS.schema)
    table.append(ROWS)
    assert inner.load_table(name).scan().to_arrow().num_rows == 2
    ours = sw.open(name, catalog=inner)
    ours.append(ROWS, key="k")
    assert ours.append(ROWS, key="k").outcome == "already_committed"


@pytest.mark.sweep("memory")
@pytest.mark.parametrize("make", ["create", "first append"])
def test_safewrite_makes_tables_in_namespaces_of_several_levels(inner: Catalog, make: str) -> None:
    if make == "create":
        table = sw.create("a.b.t", ROWS.schema, catalog=inner)
    else:
        table = sw.open("a.b.t", catalog=inner, create=True)
    table.append(ROWS, key="k")
    assert inner.load_table("a.b.t").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("name", ["t", "nowhere.t", "db.nowhere.t", ("t",)])
def test_without_a_namespace_no_table_is_made(catalog: SafeCatalog, inner: Catalog, name: Any) -> None:
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table(name, ROWS.schema)
    assert inner.list_tables("db") == []


def test_a_transaction_makes_a_table_with_its_rows_in_one_commit(catalog: SafeCatalog) -> None:
    catalog.create_namespace("a.b")
    for name in ("db.t", "a.b.t"):
        with catalog.create_table_transaction(name, ROWS.schema) as transaction:
            with transaction.update_snapshot().fast_append():
                pass
            transaction.set_properties(owner="me")
        assert catalog.load_table(name).properties["owner"] == "me"


def test_a_conflict_says_what_does_not_hold_in_pyicebergs_words(catalog: SafeCatalog) -> None:
    catalog.create_table("db.t", ROWS.schema)
    one, other = catalog.load_table("db.t"), catalog.load_table("db.t")
    with one.update_schema() as update:
        update.add_column("a", LongType())
    late = other.update_schema().add_column("b", LongType())
    with pytest.raises(CommitFailedException, match="Requirement failed: current schema id has changed"):
        late.commit()


def test_of_many_creators_one_makes_the_table_and_the_others_are_told(inner: Catalog) -> None:
    if isinstance(inner, InMemoryCatalog):
        return  # SQLite's memory is one connection's
    inner.create_namespace("db")
    outcomes: list[str] = []

    def create() -> None:
        own = SqlCatalog(inner.name, **inner.properties)
        try:
            SafeCatalog(own).create_table("db.t", ROWS.schema).append(ROWS)
            outcomes.append("made")
        except TableAlreadyExistsError:
            outcomes.append("exists")
        finally:
            own.engine.dispose()

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["exists"] * 5 + ["made"]
    assert inner.load_table("db.t").scan().to_arrow().num_rows == 2


def test_who_cannot_write_a_tables_metadata_is_told_why(tmp_path: Path) -> None:
    """The error said nothing of the reason, and was its own cause: who follows causes never came to an end."""
    (tmp_path / "file").touch()
    warehouse = (tmp_path / "file").as_uri()
    inner = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=warehouse)
    inner.create_namespace("db")
    with pytest.raises(sw.CommitUnknownError, match="Not a directory") as told:
        sw.create("db.t", ROWS.schema, catalog=inner, timeout_s=0.5)
    assert told.value.__cause__ is not told.value
    inner.engine.dispose()


def test_a_table_of_local_files_makes_no_client_of_s3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each catalog made one of boto3, found no credentials and threw it away: twice as much work as an append's."""
    monkeypatch.setattr("safewrite.stores.clients.client", None)
    catalog = SqlCatalog("local", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    sw.create("db.t", pa.schema({"id": pa.int64()}), catalog=catalog).append([{"id": 1}])
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 1


def test_what_is_no_catalog_is_refused_by_name() -> None:
    with pytest.raises(sw.InvalidInputError, match=r"not a dict.*load_catalog"):
        SafeCatalog({"type": "sql"})  # type: ignore[arg-type]
