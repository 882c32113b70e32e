"""A name that is no Iceberg table, or one that PyIceberg cannot read, is refused by what it is (T4-D2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.glue import GlueCatalog as OpenGlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError

import safewrite as sw
from safewrite.iceberg.connect import look
from safewrite.iceberg.maintenance.doctor import examine
from safewrite.wrangler import to_iceberg
from tests.iceberg.memory_glue import DATABASE, MemoryGlue

SCHEMA = pa.schema({"id": pa.int64()})
STORED: dict[str, Any] = {"Columns": [{"Name": "id", "Type": "bigint"}], "Location": "s3a://lake/x/"}
EXTERNAL = {"TableType": "EXTERNAL_TABLE", "StorageDescriptor": STORED}
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "parquet": (
        {**EXTERNAL, "Parameters": {"classification": "parquet"}},
        r"a Hive table of Parquet files at s3://lake/x in Glue.*another name",
    ),
    "hive": ({"TableType": "MANAGED_TABLE", "StorageDescriptor": STORED}, r"a Hive table at s3://lake/x"),
    "view": (
        {"TableType": "VIRTUAL_VIEW", "Parameters": {"presto_view": "true"}},
        r"a view in Glue.*that it reads",
    ),
    "link": (
        {"TargetTable": {"CatalogId": "123456789012", "DatabaseName": "sales", "Name": "orders"}},
        r"a resource link to sales.orders of account 123456789012.*glue.id='123456789012'",
    ),
    "hudi": (
        {**EXTERNAL, "Parameters": {"spark.sql.sources.provider": "hudi"}},
        r"a Hudi table at s3://lake/x.*writes Delta and Iceberg",
    ),
    "delta": (
        {**EXTERNAL, "Parameters": {"table_type": "DELTA"}},
        r"a Delta table at s3://lake/x .*safewrite.open\('s3://lake/x'\)",
    ),
    "delta of Spark": (
        {
            "TableType": "MANAGED_TABLE",
            "Parameters": {"spark.sql.sources.provider": "delta"},
            "StorageDescriptor": {
                "Location": "s3://lake/t-__PLACEHOLDER__",
                "SerdeInfo": {"Parameters": {"path": "s3://lake/t"}},
            },
        },
        r"safewrite.open\('s3://lake/t'\)",
    ),
    "half": ({**EXTERNAL, "Parameters": {"table_type": "ICEBERG"}}, r"without metadata_location.*set it"),
}


@pytest.mark.sweep("view")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("made_by", ["safewrite", "PyIceberg"])
def test_t4_d2_another_kind_of_table_is_told_by_every_way_in(
    other: str, made_by: str, tmp_path: Path
) -> None:
    """Opened, created, read and inspected: the same refusal, and the entry stays as it is."""
    glue = MemoryGlue()
    entry, told = OTHERS[other]
    glue.enter("t", **entry)
    before = dict(glue.entries["t"])
    catalog: Any = (
        glue.catalog(tmp_path)
        if made_by == "safewrite"
        else OpenGlueCatalog("mine", client=glue.client, warehouse=tmp_path.as_uri())
    )
    name = f"{DATABASE}.t"
    for way in (
        lambda: sw.open(name, catalog=catalog),
        lambda: sw.open(name, catalog=catalog, create=True),
        lambda: sw.open(name, catalog=catalog, create=True, schema=SCHEMA),
        lambda: sw.create(name, SCHEMA, catalog=catalog),
        lambda: to_iceberg(SCHEMA.empty_table().to_pandas().assign(id=[1]), DATABASE, "t", catalog=catalog),
        lambda: examine(look(name, catalog)),
    ):
        with pytest.raises(sw.UnsupportedTableError, match=told) as caught:
            way()
        assert "often passes" not in str(caught.value)
        assert name in str(caught.value)
    assert glue.entries["t"] == before
    assert not list(tmp_path.rglob("*.parquet"))


def test_t4_d2_a_name_that_became_another_table_is_told_by_a_write(tmp_path: Path) -> None:
    glue = MemoryGlue()
    table = sw.create(f"{DATABASE}.t", SCHEMA, catalog=glue.catalog(tmp_path))
    table.append([{"id": 1}])
    glue.edit("t", Parameters={"table_type": "DELTA"}, StorageDescriptor=STORED)
    for call in (table.refresh, lambda: table.overwrite([{"id": 1}]), lambda: table.append([{"id": 1}])):
        with pytest.raises(sw.UnsupportedTableError, match="a Delta table at s3://lake/x"):
            call()


def test_t4_d2_a_name_that_was_taken_in_between_is_told_by_a_creation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue = MemoryGlue()
    catalog = glue.catalog(tmp_path)
    really = catalog.glue.create_table

    def after_a_rival(**request: Any) -> Any:
        glue.enter("t", **OTHERS["view"][0])
        return really(**request)

    monkeypatch.setattr(catalog.glue, "create_table", after_a_rival)
    with pytest.raises(sw.UnsupportedTableError, match="a view in Glue"):
        sw.create(f"{DATABASE}.t", SCHEMA, catalog=catalog)


def test_t4_d2_a_table_in_a_database_that_is_a_link_is_written_by_the_names_that_were_given(
    tmp_path: Path,
) -> None:
    """Glue follows a link to another account's database, and says that one's name, which this account does not have."""
    glue = MemoryGlue()
    catalog = glue.catalog(tmp_path)
    sw.create(f"{DATABASE}.t", SCHEMA, catalog=catalog)
    glue.edit("t", DatabaseName="gov-shop", Description="Orders")
    for one in (catalog, OpenGlueCatalog("mine", client=glue.client, warehouse=tmp_path.as_uri())):
        table = sw.open(f"{DATABASE}.t", catalog=one)
        assert table.append([{"id": 1}]).outcome == "committed"
    assert sw.open(f"{DATABASE}.t", catalog=catalog).row_count() == 2
    assert glue.entries["t"]["Description"] == "Orders"


def made_by_spark(folder: Path, kind: object) -> dict[str, str]:
    """A catalog with a table that has a column of a type that PyIceberg does not know, as Spark makes one."""
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": folder.as_uri()}
    catalog = SqlCatalog("default", **properties)
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", pa.schema({"id": pa.int64(), "x": pa.string()}))
    made.append(pa.table({"id": [1, 2], "x": ["a", "b"]}))
    path = Path(made.refresh().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}
    metadata["schemas"][0]["fields"][1]["type"] = kind
    path.write_text(json.dumps(metadata))
    catalog.close()
    return properties


def test_t4_d2_a_table_with_a_type_that_pyiceberg_does_not_read_is_read_by_its_other_columns(
    tmp_path: Path,
) -> None:
    properties = made_by_spark(tmp_path, "variant")
    table = sw.open("db.t", catalog=properties)
    assert table.schema.names == ["id"]
    assert table.rows({"id": [2]}, columns=["id"]).to_pylist() == [{"id": 2}]
    assert (table.row_count(), table.added_since(None)[0].read(["id"])["id"].to_pylist()) == (2, [1, 2])
    with pytest.raises(
        sw.UnsupportedTableError, match=r"'x' has the Iceberg type 'variant'.*columns=\['id'\]"
    ):
        table.rows(where="true")
    with pytest.raises(sw.UnsupportedTableError, match=r"types: values of x would have to be carried along"):
        table.apply_changes([{"id": 2, "n": 1}], keys=["id"], sequence_by=["n"])
    assert examine(look("db.t", properties)).findings[0].details["reads"]
    with pytest.raises(Exception, match=r"variant|OpaqueType"):  # PyIceberg's own scan passes over nothing
        table.iceberg.scan().to_arrow()
    with pytest.raises(
        ValidationError, match="Unsupported field type"
    ):  # what PyIceberg does for others stays
        SqlCatalog("default", **properties).load_table("db.t")


def test_t4_d2_such_a_type_inside_of_a_list_is_read_around_too(tmp_path: Path) -> None:
    variants = {"type": "list", "element-id": 9, "element": "variant", "element-required": False}
    properties = made_by_spark(tmp_path, variants)
    table = sw.open("db.t", catalog=properties)
    assert table.rows({"id": [2]}, columns=["id"]).to_pylist() == [{"id": 2}]
    with pytest.raises(sw.UnsupportedTableError, match=r"'x\.element' has the Iceberg type 'variant'"):
        table.rows(where="true")
    with pytest.raises(sw.ConflictError, match="already"):
        sw.create("db.t", SCHEMA, catalog=properties)
    assert examine(look("db.t", properties)).findings[0].details["appends"]


def test_y5_a_transform_of_several_columns_is_unsupported(tmp_path: Path) -> None:
    properties = made_by_spark(tmp_path, "string")
    (path,) = tmp_path.rglob("00001-*.metadata.json")
    metadata = json.loads(path.read_text())
    field = {"source-ids": [1, 2], "field-id": 1000, "name": "b", "transform": "bucket[4]"}
    metadata["partition-specs"][0]["fields"].append(field)
    path.write_text(json.dumps(metadata))
    with pytest.raises(sw.UnsupportedTableError, match="several columns"):
        sw.open("db.t", catalog=properties)
