"""T4-A9: names of columns that a format keeps for itself are refused where a column is made, as names that Spark refuses are."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite
from safewrite.iceberg.maintenance.doctor import examine
from safewrite.values.kept_names import DELTA_FEED, DELTA_VECTORS, ICEBERG

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
DELTA = [(FEED, name) for name in (*sorted(DELTA_FEED), "_Change_Type")] + [
    (VECTORS, name) for name in sorted(DELTA_VECTORS)
]


@pytest.mark.sweep("properties1", "properties5", "properties2")
@pytest.mark.parametrize(("properties", "name"), DELTA)
def test_delta_keeps_names_where_a_feature_uses_them(tmp_path: Path, properties: dict[str, str], name: str):
    schema = pa.schema([("id", pa.int64()), (name, pa.string())])
    row = [{"id": 1, name: "x"}]
    with pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Delta keeps"):
        safewrite.create(str(tmp_path / "new"), schema, properties=properties)
    with pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Delta keeps"):
        safewrite.open(str(tmp_path / "first"), create=True, properties=properties).append(row)
    table = safewrite.create(str(tmp_path / "merged"), schema.remove(1), properties=properties)
    for write in (
        lambda: table.append(row, schema_mode="merge"),
        lambda: table.overwrite(row, schema_mode="merge"),
    ):
        with pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Delta keeps"):
            write()
    one, other = table.append_many([("a", [{"id": 1}]), ("b", row)], schema_mode="merge")
    assert one.outcome == "committed"
    assert "name that Delta keeps" in str(other)
    assert not list(tmp_path.glob("*/*.parquet"))[1:]
    plain = safewrite.create(
        str(tmp_path / "plain"), schema
    )  # without the feature each is a name like others
    plain.append(row)
    nested = safewrite.create(str(tmp_path / "nested"), schema.remove(1), properties=properties)
    nested.append([{"id": 1, "s": {name: "x"}}], schema_mode="merge")


def test_a_table_whose_feed_cannot_be_read_says_the_way_out_and_is_read(tmp_path: Path):
    """Earlier builds made such tables; Spark writes to none of them either."""
    at = str(tmp_path / "t")
    deltalake.write_deltalake(at, pa.table({"id": [1], "_commit_version": [7]}))
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"] |= FEED
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 1, "minWriterVersion": 4}
    log.write_text("\n".join(map(json.dumps, actions)))
    for write in (
        lambda: safewrite.open(at).append([{"id": 2, "_commit_version": 8}]),
        lambda: safewrite.open(at).delete("id = 1"),
    ):
        with pytest.raises(
            safewrite.UnsupportedTableError,
            match=r"_commit_version are columns of its change data feed.*enableChangeDataFeed = false",
        ):
            write()


@pytest.mark.sweep(
    "_spec_id",
    "_row_id",
    "_partition",
    "_pos",
    "_deleted",
    "_change_type",
    "_change_ordinal",
    "_commit_snapshot_id",
)
@pytest.mark.parametrize("name", [*sorted(ICEBERG), "_POS"])
def test_iceberg_keeps_names_of_columns_and_none_of_fields(tmp_path: Path, name: str):
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    schema, row = pa.schema([("id", pa.int64()), (name, pa.string())]), [{"id": 1, name: "x"}]
    refusal = pytest.raises(safewrite.InvalidInputError, match=f"'{name}' has a name that Iceberg keeps")
    with refusal:
        safewrite.create("db.new", schema, catalog=catalog, create_namespace=True)
    with refusal:
        safewrite.open("db.first", catalog=catalog, create=True, create_namespace=True).append(row)
    table = safewrite.create("db.t", schema.remove(1), catalog=catalog, create_namespace=True)
    with refusal:
        table.append(row, schema_mode="merge")
    with refusal:
        table.append(row, schema_mode="widen")
    assert not list(tmp_path.rglob("*.parquet"))
    table.append([{"id": 1, "s": {name: 1}}], schema_mode="merge")
    table.append([{"id": 1, "s": {name: 2**40}}], schema_mode="widen")


def test_an_iceberg_table_that_has_such_a_column_is_written_and_read_and_doctor_tells(tmp_path: Path):
    """Earlier builds made such tables, and no row of them is lost."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("db")
    catalog.create_table("db.t", pa.schema([("id", pa.int64()), ("_pos", pa.int32())]))
    table = safewrite.open("db.t", catalog=catalog)
    table.append([{"id": 1, "_pos": 1}])
    table.append([{"id": 2, "_pos": 2**40}], schema_mode="widen")
    table.append([{"id": 3, "_pos": 3, "more": 1}], schema_mode="merge")
    assert table.rows(where="id > 1").column("_pos").to_pylist() in ([2**40, 3], [3, 2**40])
    connection = table._format.connection
    assert "kept_name" in {one.code for one in examine(connection).findings}
    catalog.load_table("db.t").update_schema().rename_column("_pos", "place").commit()
    assert "kept_name" not in {one.code for one in examine(connection).findings}
