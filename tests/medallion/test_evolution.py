"""A source whose columns change is followed where the configuration says so, and refused where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.config.job import load
from tests.delta.deltalog import renamed_by_spark
from tests.medallion.test_jobs import HEAD, Shop, set_in

FORMATS = ("delta", "iceberg")
FIRST = HEAD + "I,1,1.00,10\nI,2,2.00,11\n"
WITH_COLOUR = "Op,id,price,colour,seq\nU,1,1.50,red,20\nI,3,3.00,NULL,21\n"
DECLARED = {"id": "int64", "price": "decimal(10,2)", "colour": "string"}


def shop(folder: Path, table_format: str, columns: dict[str, str] | None = None) -> Shop:
    job = Shop(folder, columns)
    if table_format == "iceberg":
        job.config["catalog"] = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/c.db",
            "warehouse": str(folder / "w"),
        }
        job.config["defaults"] |= {
            "format": "iceberg",
            "bronze": "bronze.{table}",
            "silver": "silver.{table}",
        }
    return job


def rows(job: Shop, layer: str) -> dict[Any, Any]:
    """A layer by another reader, without its own columns."""
    if "catalog" not in job.config:
        found = job.rows(f"{layer}/orders")
    else:
        found = (
            load_catalog("default", **job.config["catalog"])
            .load_table(f"{layer}.orders")
            .scan()
            .to_arrow()
            .to_pylist()
        )
    return {row["id"]: {k: v for k, v in row.items() if not k.startswith("_") and k != "id"} for row in found}


def put(job: Shop, second: int, text: str) -> None:
    job.put(f"shop/orders/20261101-0000{second:02}000.csv", text)


def refused(job: Shop) -> str:
    run = job.run()
    assert not run.ok
    return str(run.tables[0].error)


def clean(job: Shop) -> bool:
    return [one.clean for one in verify(Pipeline(job.config))] == [True]


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_new_column_is_refused_until_it_is_declared_and_then_added(
    table_format: str, tmp_path: Path
) -> None:
    job = shop(tmp_path, table_format)
    put(job, 1, FIRST)
    assert job.run().ok
    put(job, 2, WITH_COLOUR)
    assert "not known ['colour']" in refused(job)
    set_in(job, "tables", "shop.orders", "columns", to=DECLARED)
    assert not clean(job)  # verify changes no table
    assert "colour" not in rows(job, "silver")[1]
    assert job.run().ok
    assert {key: row["colour"] for key, row in rows(job, "silver").items()} == {1: "red", 2: None, 3: None}
    assert clean(job)
    put(job, 3, HEAD + "U,1,9.00,30\n")  # from before the column, and late
    assert "missing ['colour']" in refused(job)
    set_in(job, "defaults", "files", "optional", to=["colour"])
    assert job.run().ok
    assert rows(job, "silver")[1]["colour"] is None  # the configuration says so
    assert clean(job)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("layer", ["bronze", "silver"])
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_column_that_an_engine_renamed_is_not_added_again(
    table_format: str, layer: str, tmp_path: Path
) -> None:
    """Not where its new name is declared, either: its values would be in two columns."""
    job = shop(tmp_path, table_format)
    put(job, 1, FIRST)
    assert job.run().ok
    if table_format == "iceberg":
        table = load_catalog("default", **job.config["catalog"]).load_table(f"{layer}.orders")
        with table.update_schema() as schema:
            schema.rename_column("price", "cost")
    else:
        renamed_by_spark(tmp_path / layer / "orders" / "_delta_log", "price", "cost")
    put(job, 2, HEAD + "U,1,7.00,30\n")
    both = {"id": "int64", "price": "decimal(10,2)", "cost": "decimal(10,2)"}
    for columns in (None, both):
        if columns is not None:
            set_in(job, "tables", "shop.orders", "columns", to=columns)
            set_in(job, "defaults", "files", "optional", to=["cost"])
        assert "is called cost now: another engine renamed it" in refused(job)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_column_that_went_is_never_null_in_silence(table_format: str, tmp_path: Path) -> None:
    job = shop(tmp_path, table_format, DECLARED)
    put(job, 1, WITH_COLOUR)
    assert job.run().ok
    before = rows(job, "silver")
    put(job, 2, HEAD + "U,1,7.00,30\n")
    assert "missing ['colour']" in refused(job)
    set_in(job, "tables", "shop.orders", "columns", to={"id": "int64", "price": "decimal(10,2)"})
    assert "has the columns ['colour'], which are not declared" in refused(job)
    assert rows(job, "silver") == before
    set_in(job, "tables", "shop.orders", "columns", to=DECLARED)
    set_in(job, "defaults", "files", "optional", to=["colour"])
    assert job.run().ok
    assert rows(job, "silver")[1]["colour"] is None
    assert rows(job, "silver")[3] == before[3]
    assert clean(job)


NARROW = {"id": "int32", "price": "decimal(10,2)", "score": "float32"}
WIDE = {"id": "int64", "price": "decimal(20,2)", "score": "float64"}
SCORED = "Op,id,price,score,seq\n"
TOO_WIDE = SCORED + "I,5000000000,123456789012345.00,0.1,20\nD,2,NULL,NULL,21\n"


def test_a_wider_type_of_iceberg_is_refused_until_it_is_declared_and_then_taken(tmp_path: Path) -> None:
    """Also that of a key, with the memory of a key that was deleted under the narrow type."""
    job = shop(tmp_path, "iceberg", NARROW)
    set_in(job, "defaults", "quality", to={"quarantined_share_max": 0.1})
    put(job, 1, SCORED + "I,1,1.00,0.5,10\nI,2,2.00,0.5,11\nI,4,4.00,0.5,12\nD,4,NULL,NULL,15\n")
    assert job.run().ok
    put(job, 2, TOO_WIDE)
    assert "id is no int32: '5000000000'" in refused(job)
    set_in(job, "tables", "shop.orders", "columns", to=WIDE)
    run = job.run()
    assert run.ok, run.tables[0].error
    found = rows(job, "silver")
    assert sorted(found) == [1, 5000000000]
    assert (str(found[5000000000]["price"]), found[5000000000]["score"]) == ("123456789012345.00", 0.1)
    put(job, 3, SCORED + "U,4,9.00,0.5,13\n")  # older than the deletion
    assert job.run().ok
    assert sorted(rows(job, "silver")) == [1, 5000000000]
    assert clean(job)


def test_a_wider_type_of_delta_is_refused_and_new_addresses_take_it(tmp_path: Path) -> None:
    job = shop(tmp_path, "delta", NARROW)
    put(job, 1, SCORED + "I,1,1.00,0.5,10\nI,2,2.00,0.5,11\n")
    assert job.run().ok
    set_in(job, "tables", "shop.orders", "columns", to=WIDE)
    put(job, 2, TOO_WIDE)
    assert "Give bronze and silver of the table new addresses" in refused(job)
    set_in(job, "defaults", "bronze", to=f"{tmp_path}/bronze/wide/{{table}}")
    set_in(job, "defaults", "silver", to=f"{tmp_path}/silver/wide/{{table}}")
    run = job.run()
    assert run.ok, run.tables[0].error
    found = {row["id"]: row for row in job.rows("silver/wide/orders")}
    assert sorted(found) == [1, 5000000000]
    assert str(found[5000000000]["price"]) == "123456789012345.00"
    assert clean(job)


def test_a_column_of_parquet_may_be_optional_too(tmp_path: Path) -> None:
    job = shop(tmp_path, "delta", DECLARED)
    set_in(job, "defaults", "files", to={"kind": "parquet", "change_seq": "seq", "optional": ["colour"]})
    place = tmp_path / "raw" / "shop" / "orders" / "20261101-000000001.parquet"
    place.parent.mkdir(parents=True)
    pa.parquet.write_table(
        pa.table({"Op": ["I"], "id": [1], "price": pa.array([None], pa.decimal128(10, 2)), "seq": ["1"]}),
        place,
    )
    run = job.run()
    assert run.ok, run.tables[0].error
    assert rows(job, "silver") == {1: {"price": None, "colour": None}}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"optional": ["id"]}, "are keys"),
        ({"optional": ["size"]}, "not among columns"),
        ({"optional": ["price"], "header": False, "order": ["Op", "*", "seq"]}, "AddColumnName"),
    ],
)
def test_columns_that_cannot_be_optional_are_refused(
    files: dict[str, Any], told: str, tmp_path: Path
) -> None:
    job = Shop(tmp_path)
    job.config["defaults"]["files"] |= files
    with pytest.raises(Exception, match=told):
        load(job.config)


@pytest.mark.long
def test_a_namespace_that_may_be_a_slip_is_made_only_where_the_job_says_so(tmp_path: Path) -> None:
    """T3-D4, of jobs: on Glue and REST catalogs each missing namespace is refused, in SQL one that is near another."""
    job = shop(tmp_path, "iceberg")
    load_catalog("default", **job.config["catalog"]).create_namespace("bronzes")
    put(job, 1, FIRST)
    assert "create_namespace" in refused(job)
    job.config["create_namespace"] = True
    assert job.run().ok


def test_a_refusal_of_other_keys_names_the_command_that_begins_silver_anew(tmp_path: Path) -> None:
    """It spoke of arguments that no configuration has."""
    job = shop(tmp_path, "delta")
    put(job, 1, FIRST)
    assert job.run().ok
    job.config["tables"]["shop.orders"]["keys"] = ["id", "price"]
    put(job, 2, HEAD + "I,3,3.00,20\n")
    assert "reset" in refused(job)
    Pipeline(job.config).reset(["shop.orders"])
    assert job.run().ok
    assert clean(job)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_silver_of_another_maker_is_refused_and_its_rows_stay(tmp_path: Path, table_format: str) -> None:
    """It has no columns for the order of changes.  The advice was to drop it, with rows that bronze may not have."""
    job = shop(tmp_path, table_format)
    put(job, 1, FIRST)
    catalog = job.config.get("catalog")
    address = str(tmp_path / "silver/orders") if catalog is None else "silver.orders"
    theirs = pa.table({"id": pa.array([9], pa.int64())})
    sw.create(address, theirs.schema, catalog=catalog, create_namespace=catalog is not None).append(theirs)
    (before,) = verify(Pipeline(job.config))
    assert "bronze" in str(before.error)
    assert "Run the job" in str(before.error)
    why = refused(job)
    assert "lacks the columns ['_epoch', '_seq']" in why
    assert [one.error for one in verify(Pipeline(job.config))] == [why]
    assert "a new address" in why
    assert rows(job, "silver") == {9: {}}
    job.config["tables"]["shop.orders"]["silver"] = address + "_of_dms"
    assert job.run().ok
    assert clean(job)


def test_t4_c9_a_header_in_another_case_is_refused_with_a_word_on_case(tmp_path: Path) -> None:
    job = shop(tmp_path, "delta")
    put(job, 1, FIRST.replace("id", "ID", 1))
    why = refused(job)
    assert "missing ['id'], not known ['ID']" in why
    assert "Names that differ by case alone are others: the file has ID for id." in why
