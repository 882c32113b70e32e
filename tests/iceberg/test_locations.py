"""Locations that PyIceberg cuts, or that other engines do not read, are refused before anything is made (T3-A11)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw

SCHEMA = pa.schema({"id": pa.int64()})
BAD = ["#", "?", "%3F?", "\t", "\x01", "a//b"]
GOOD = ["%", "%20", "%23", " ", "+", "é", "[x]", "..", ";&", "'", "a/b"]


def given(where: str, text: str, folder: Path) -> tuple[SqlCatalog, Any, dict[str, Any]]:
    """A catalog, a table's name and settings that have this text in one of the places that a path is made of."""
    lake = folder.as_uri() + (f"/q{text}z" if where == "the catalog's warehouse" else "/lake")
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=lake)
    at = f"{folder.as_uri()}/lake/q{text}z"
    if where == "the namespace's location":
        catalog.create_namespace("db", {"location": at})
    settings: dict[str, Any] = {
        "location=": {"location": at},
        "write.data.path": {"properties": {"write.data.path": at}},
        "write.metadata.path": {"properties": {"write.metadata.path": at}},
    }.get(where, {})
    return catalog, ("db", f"t{text}z" if where == "the table's name" else "t"), settings


PLACES = ["location=", "the table's name", "the catalog's warehouse", "the namespace's location",
          "write.data.path", "write.metadata.path"]  # fmt: skip


@pytest.mark.sweep(
    "the namespace's location", "the catalog's warehouse", "write.metadata.path", "the table's name"
)
@pytest.mark.parametrize("where", PLACES)
def test_a_location_that_is_cut_is_refused_by_name_and_nothing_is_made(tmp_path: Path, where: str) -> None:
    """The table was made, and its first write ended in CommitUnknownError; with a data path cut, each file replaced the last."""
    for at, text in enumerate(BAD):
        folder = tmp_path / str(at)
        folder.mkdir()
        catalog, name, settings = given(where, text, folder)
        for call in (
            lambda: sw.create(name, SCHEMA, catalog=catalog, **settings),  # noqa: B023 - called at once
            lambda: sw.open(name, catalog=catalog, create=True, **settings).append([{"id": 1}]),  # noqa: B023
        ):
            with pytest.raises(sw.InvalidInputError, match="(?i)" + where) as told:
                call()
            assert "no table was made" in str(told.value)
        assert [path.name for path in folder.iterdir()] == ["c.db"]
        assert all(not catalog.list_tables(one) for one in catalog.list_namespaces())


@pytest.mark.sweep("the table's name")
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
@pytest.mark.parametrize(
    "where", PLACES[:2] + [pytest.param(one, marks=pytest.mark.long) for one in PLACES[2:]]
)
def test_other_locations_are_where_every_engine_looks(tmp_path: Path, where: str) -> None:
    """A ``%`` too, unlike in Delta's addresses: nobody decodes the paths of Iceberg's manifests."""
    for at, text in enumerate(GOOD):
        folder = tmp_path / str(at)
        folder.mkdir()
        catalog, name, settings = given(where, text, folder)
        sw.open(name, catalog=catalog, create=True, **settings).append([{"id": 1}])
        sw.open(name, catalog=catalog).append([{"id": 2}])
        read = pl.scan_iceberg(catalog.load_table(name), reader_override="native").collect()
        assert sorted(read["id"].to_list()) == [1, 2], text


@pytest.mark.sweep("write.data.path")
@pytest.mark.parametrize("where", ["location=", "write.data.path"])
def test_a_table_that_another_engine_made_there_is_refused_when_it_is_opened(
    tmp_path: Path, where: str
) -> None:
    catalog, name, settings = given(where, "#", tmp_path)
    catalog.create_namespace("db")
    catalog.create_table(name, SCHEMA, **settings)
    with pytest.raises(sw.UnsupportedTableError, match=r"'#'.*Nothing was written.*Copy the table"):
        sw.open(name, catalog=catalog)


@pytest.mark.long
def test_a_data_path_that_is_cut_later_is_refused_by_the_next_write(tmp_path: Path) -> None:
    catalog, name, _ = given("location=", "", tmp_path)
    table = sw.create(name, SCHEMA, catalog=catalog)
    with catalog.load_table(name).transaction() as change:
        change.set_properties({"write.data.path": f"{tmp_path.as_uri()}/a?b"})
    for call in (table.refresh, lambda: sw.open(name, catalog=catalog)):
        with pytest.raises(sw.UnsupportedTableError, match=r"write\.data\.path"):
            call()
