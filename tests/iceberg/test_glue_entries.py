"""A commit on Glue leaves in a table's entry what people and other tools wrote there (T4-D3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog as OpenGlueCatalog

import safewrite as sw
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from tests.iceberg.memory_glue import DATABASE, MemoryGlue
from tests.iceberg.places import Place
from tests.integration.places import rows

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string()})
NAME = f"{DATABASE}.t"
ENTERED: dict[str, Any] = {
    "Description": "Orders",
    "Owner": "sales",
    "Retention": 30,
}
STORED: dict[str, Any] = {
    "InputFormat": "org.apache.iceberg.mr.hive.HiveIcebergInputFormat",
    "Parameters": {"crawler": "nightly"},
    "SerdeInfo": {"Name": "iceberg"},
    "AdditionalLocations": ["s3://lake/more"],
}


@pytest.fixture
def glue() -> MemoryGlue:
    return MemoryGlue()


def made(glue: MemoryGlue, folder: Path) -> Any:
    """A catalog with a table, whose entry people have described."""
    catalog = glue.catalog(folder)
    sw.create(NAME, SCHEMA, catalog=catalog)
    storage = glue.entries["t"]["StorageDescriptor"]
    storage["Columns"][0] |= {"Comment": "the key"}
    storage["Columns"][1]["Parameters"] |= {"pii": "yes"}
    parameters = {**glue.entries["t"]["Parameters"], "team": "a"}
    glue.edit("t", **ENTERED, Parameters=parameters, StorageDescriptor=storage | STORED)
    return catalog


def columns(glue: MemoryGlue) -> dict[str, dict[str, Any]]:
    return {one["Name"]: one for one in glue.entries["t"]["StorageDescriptor"]["Columns"]}


def check(glue: MemoryGlue) -> None:
    entry = glue.entries["t"]
    assert {name: entry.get(name) for name in ENTERED} == ENTERED
    assert {name: entry["StorageDescriptor"].get(name) for name in STORED} == STORED
    assert entry["Parameters"]["team"] == "a"
    assert columns(glue)["id"]["Comment"] == "the key"
    assert columns(glue)["v"]["Parameters"]["pii"] == "yes"


def test_t4_d3_every_verb_keeps_what_was_entered(glue: MemoryGlue, tmp_path: Path) -> None:
    """By each verb, by PyIceberg's own calls through the decorator, and by a catalog that a user made."""
    catalog = made(glue, tmp_path)
    table: Any = sw.open(NAME, catalog=catalog)
    table.append([{"id": 1, "v": "a"}], key="k")
    check(glue)
    table.overwrite([{"id": 1, "v": "b"}], where="id = 1")
    table.apply_changes([{"id": 5, "v": "c"}], keys=["id"], sequence_by=["v"])
    table.delete(where="id = 2")
    check(glue)
    SafeCatalog(catalog).load_table(NAME).append(pa.table({"id": [3], "v": ["c"]}))
    check(glue)
    users = OpenGlueCatalog("mine", client=glue.client, warehouse=tmp_path.as_uri())
    sw.open(NAME, catalog=users).append([{"id": 4, "v": "d", "new": 1}], schema_mode="merge")
    check(glue)
    assert set(columns(glue)) == {"id", "v", "new"}


def test_t4_d3_no_request_more_is_made(glue: MemoryGlue, tmp_path: Path) -> None:
    table = sw.open(NAME, catalog=made(glue, tmp_path))
    before = glue.asked["GetTable"]
    table.append([{"id": 1, "v": "a"}])
    guarded = glue.asked["GetTable"] - before
    plain = MemoryGlue()
    plain.entries = {"t": glue.entries["t"]}
    loaded = OpenGlueCatalog("p", client=plain.client, warehouse=tmp_path.as_uri()).load_table(NAME)
    loaded.append(pa.table({"id": [3], "v": ["c"]}))
    assert "Comment" not in columns(plain)["id"], "PyIceberg keeps them by itself now: take ours out"
    assert guarded <= 3  # before the commit, by it, and to see it


def test_t4_d3_a_comment_follows_its_column_and_gives_way_to_icebergs_own(
    glue: MemoryGlue, tmp_path: Path
) -> None:
    table: Any = sw.open(NAME, catalog=made(glue, tmp_path))
    with table.iceberg.update_schema() as update:
        update.rename_column("id", "order_id")
        update.update_column("v", doc="Iceberg's own")
    assert columns(glue)["order_id"]["Comment"] == "the key"
    assert columns(glue)["v"]["Comment"] == "Iceberg's own"
    lowered = [one | {"Name": one["Name"].upper()} for one in columns(glue).values()]
    for one in lowered:
        del one["Parameters"]  # as a tool that knows names alone enters them
    glue.edit("t", StorageDescriptor=glue.entries["t"]["StorageDescriptor"] | {"Columns": lowered})
    sw.open(NAME, catalog=glue.catalog(tmp_path)).append([{"order_id": 1, "v": "a"}])
    assert columns(glue)["order_id"]["Comment"] == "the key"


def test_t4_d3_an_entry_that_was_edited_after_it_was_read_is_not_written_over(
    glue: MemoryGlue, tmp_path: Path
) -> None:
    """The edit makes a new version of the entry, so the update is refused, and made again with the edit in it."""
    catalog = made(glue, tmp_path)
    table = sw.open(NAME, catalog=catalog)
    really, edits = catalog.glue.update_table, iter([True])

    def after_an_edit(**request: Any) -> Any:
        if next(edits, False):
            glue.edit("t", Description="Orders of today")
        return really(**request)

    catalog.glue.update_table = after_an_edit
    table.append([{"id": 1, "v": "a"}])
    assert glue.entries["t"]["Description"] == "Orders of today"
    assert columns(glue)["id"]["Comment"] == "the key"


def test_t4_d3_a_table_of_s3_tables_gets_its_texts_back_alone(glue: MemoryGlue, tmp_path: Path) -> None:
    table = sw.open(NAME, catalog=made(glue, tmp_path))
    glue.edit("t", FederatedTable={"ConnectionName": "aws:s3tables"})
    table.append([{"id": 1, "v": "a"}])
    entry = glue.entries["t"]
    assert (entry["Description"], columns(glue)["id"]["Comment"]) == ("Orders", "the key")
    assert "Owner" not in entry
    assert not set(STORED) & set(entry["StorageDescriptor"])


@pytest.mark.parametrize("lab", ["glue"], indirect=True)
def test_t4_d3_comments_stay_on_a_server(place: Place) -> None:
    place.create(1)
    glue: Any = place.catalog().glue  # type: ignore[attr-defined]
    database, name = place.name.split(".")
    entry = glue.get_table(DatabaseName=database, Name=name)["Table"]
    entry["StorageDescriptor"]["Columns"][0]["Comment"] = "the key"
    sent = {one: entry[one] for one in ("Name", "Parameters", "StorageDescriptor", "TableType")}
    glue.update_table(DatabaseName=database, TableInput=sent, VersionId=entry["VersionId"])
    place.open().append(rows(2), key="k")
    found = glue.get_table(DatabaseName=database, Name=name)["Table"]["StorageDescriptor"]["Columns"][0]
    assert found["Comment"] == "the key"
