"""A namespace that is not there may be a slip of its name: it is made only where nobody can have meant another."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog

import safewrite as sw
from safewrite.wrangler import to_iceberg
from tests.servers import CatalogLab

SCHEMA = pa.schema([("id", pa.int64())])
ROWS = [{"id": 1}]


@pytest.fixture
def sql(tmp_path: Path) -> dict[str, str]:
    """A SQL catalog that has the namespaces ``pantry`` and ``sales_2025``."""
    made = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "w")}
    catalog = load_catalog("default", **made)
    for name in ("pantry", "sales_2025"):
        catalog.create_namespace(name)
    return made


def names(catalog: Any) -> set[str]:
    return {one[0] for one in load_catalog("default", **catalog).list_namespaces()}


def append_many(table: Any) -> None:
    """``append_many`` returns the error of a member."""
    (answer,) = table.append_many([("k", ROWS)])
    if isinstance(answer, Exception):
        raise answer


CALLS: dict[str, Any] = {
    "create": lambda name, catalog, **more: sw.create(name, SCHEMA, catalog=catalog, **more),
    "append": lambda name, catalog, **more: sw.open(name, catalog=catalog, create=True, **more).append(ROWS),
    "append_many": lambda name, catalog, **more: append_many(sw.open(name, catalog=catalog, create=True, **more)),
    "overwrite": lambda name, catalog, **more: sw.open(name, catalog=catalog, create=True, **more).overwrite(ROWS),
    "declared": lambda name, catalog, **more: sw.open(name, catalog=catalog, create=True, schema=SCHEMA, **more),
    "to_iceberg": lambda name, catalog, **more: to_iceberg(
        pa.Table.from_pylist(ROWS).to_pandas(), *name.split("."), catalog=catalog, **more
    ),
}  # fmt: skip


@pytest.mark.sweep("overwrite", "append_many", "to_iceberg", "declared", "append")
@pytest.mark.parametrize("call", CALLS)
def test_t3_d4_a_namespace_near_one_that_is_there_is_refused_with_it(sql: dict[str, str], call: str) -> None:
    """T3-D4: a mistyped database was made, with a receipt."""
    for slip in ("pantri.t", "Pantry.t", "pntry.t"):
        with pytest.raises(
            sw.InvalidInputError,
            match=r"no namespace .*'pantry'.* Nothing was written.* create_namespace=True",
        ):
            CALLS[call](slip, sql)
    assert names(sql) == {"pantry", "sales_2025"}
    CALLS[call]("pantri.t", sql, create_namespace=True)
    assert "pantri" in names(sql)


@pytest.mark.sweep("raw")
@pytest.mark.parametrize("name", ["raw", "sales_2026", "db"])
def test_a_name_unlike_all_others_or_the_next_of_a_series_is_made_in_a_sql_catalog(
    sql: dict[str, str], name: str
) -> None:
    sw.create(f"{name}.t", SCHEMA, catalog=sql)
    assert name in names(sql)


def test_a_table_that_is_there_asks_for_no_namespace(sql: dict[str, str]) -> None:
    sw.create("pantry.t", SCHEMA, catalog=sql)
    assert sw.open("pantry.t", catalog=sql, create=True).append(ROWS).rows == 1
    with pytest.raises(sw.TableNotFoundError):
        sw.open("pantri.t", catalog=sql)


def test_t3_d4_levels_of_a_namespace_are_judged_where_it_parts(tmp_path: Path) -> None:
    catalog = InMemoryCatalog("default", warehouse=(tmp_path / "w").as_uri())
    for level in (("a",), ("a", "orders")):
        catalog.create_namespace(level)
    with pytest.raises(sw.InvalidInputError, match=r"no namespace 'a\.ordres'.*There are: 'orders'"):
        sw.create("a.ordres.t", SCHEMA, catalog=catalog)


@pytest.mark.parametrize("lab", ["glue", pytest.param("rest", marks=pytest.mark.long)], indirect=True)
def test_t3_d4_in_a_shared_catalog_no_namespace_is_made_unasked(lab: CatalogLab) -> None:
    name = f"other_{uuid.uuid4().hex[:8]}"
    for call in (
        lambda: sw.create(f"{name}.t", SCHEMA, catalog=lab.direct),
        lambda: sw.open(f"{name}.t", catalog=lab.direct, create=True).append(ROWS),
    ):
        with pytest.raises(sw.InvalidInputError, match=rf"no namespace '{name}'.* Nothing was written"):
            call()
    near = lab.namespace[:-1]
    with pytest.raises(sw.InvalidInputError, match=lab.namespace):
        sw.create(f"{near}.t", SCHEMA, catalog=lab.direct)
    assert not {(name,), (near,)} & set(lab.load().list_namespaces())
    made = sw.create(f"{name}.t", SCHEMA, catalog=lab.direct, create_namespace=True)
    assert made.append(ROWS).rows == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"create_namespace": "yes", "create": True}, "create_namespace"),
        ({"create_namespace": True}, r"create_namespace= only says how a table is made"),
    ],
)
def test_a_wrong_create_namespace_is_refused(sql: dict[str, str], given: dict[str, Any], text: str) -> None:
    with pytest.raises(sw.InvalidInputError, match=text):
        sw.open("pantry.t", catalog=sql, **given)


def test_create_namespace_is_for_iceberg(tmp_path: Path) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"create_namespace= .*Iceberg"):
        sw.open(tmp_path / "t", create=True, create_namespace=True)
