"""to_iceberg on a SQL catalog and on Glue; PyIceberg reads what it wrote."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.wrangler import iceberg, to_iceberg
from tests.wrangler.conftest import House, Lake

FRAME = pd.DataFrame({"id": [1, 2, 3, 4], "name": ["a", "b", "c", "a"]})
MOVIES = pd.DataFrame({"title": ["Dune", "Fargo"], "year": ["1984", "1996"], "gross": [35, 60]})


def write(house: House, df: pd.DataFrame, **given: Any) -> sw.Receipt:
    return to_iceberg(df, house.database, house.table, catalog=house.properties, **given)


def rows(df: pd.DataFrame) -> list[dict[str, Any]]:
    return sorted(df.to_dict("records"), key=str)


# --- a new table ----------------------------------------------------------------------------------------
@pytest.mark.sweep("partition_cols1")
@pytest.mark.parametrize("partition_cols", [None, ["name"], ["name", "day(ts)"]])
def test_a_table_is_made_with_its_partitions_and_properties(
    house: House, partition_cols: list[str] | None
) -> None:
    frame = FRAME.assign(
        ts=pd.to_datetime(["2020-01-01", "2020-01-02 00:00:01", "2020-01-03", None], format="ISO8601")
    )
    properties = {
        "write_target_data_file_size_bytes": 536870912,
        "optimize_rewrite_delete_file_threshold": 10,
        "vacuum_max_snapshot_age_seconds": 2_000_000,
        "write_compression": "SNAPPY",
    }
    receipt = write(house, frame, partition_cols=partition_cols, additional_table_properties=properties)
    assert (receipt.outcome, receipt.rows) == ("committed", 4)
    table = house.iceberg()
    assert [field.name for field in table.spec().fields] == ["name", "ts_day"][: len(partition_cols or ())]
    assert (
        properties.items()
        <= {
            name: int(value) if value.isdecimal() else value for name, value in table.properties.items()
        }.items()
    )
    assert table.properties["write.target-file-size-bytes"] == "536870912"
    assert table.properties["history.expire.max-snapshot-age-ms"] == "2000000000"
    assert table.properties["write.parquet.compression-codec"] == "snappy"
    assert {one["ts"] for one in house.rows()} == {
        None,
        *(moment.to_pydatetime() for moment in frame.ts.dropna()),
    }


def test_columns_are_in_lower_case_as_athena_has_them_and_found_in_any(house: House) -> None:
    upper = pd.DataFrame({"ID": [1], "Day": ["a"]})
    write(house, upper, partition_cols=["Day"], glue_table_settings={"columns_comments": {"ID": "the id"}})
    write(house, upper.assign(ID=2), merge_cols=["ID"], schema_evolution=True)
    write(house, upper.assign(ID=3), mode="overwrite_partitions", partition_cols=["DAY"])
    assert house.rows() == [{"id": 3, "day": "a"}]
    assert house.iceberg().schema().find_field("id").doc == "the id"


@pytest.mark.long
def test_columns_of_other_engines_keep_their_case(house: House) -> None:
    sw.open("sales.orders", catalog=house.properties, create=True).append([{"Id": 1}])
    write(house, pd.DataFrame({"ID": [2]}))
    assert house.rows() == [{"Id": 1}, {"Id": 2}]


def test_names_that_differ_in_case_alone_are_refused(house: House) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"case.*Nothing was written"):
        write(house, pd.DataFrame({"id": [1], "ID": [2]}))


def test_comments_that_cannot_be_stored_take_nothing_back(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = write(house, FRAME, glue_table_settings={"columns_comments": {"nope": "x"}})
    assert receipt.outcome == "committed"
    assert "columns_comments were not stored" in caplog.text
    assert len(house.rows()) == 4


def test_what_glue_table_settings_say_besides_comments_has_no_effect(house: House) -> None:
    write(house, FRAME, glue_table_settings={"description": "x", "regular_partitions": False})
    assert house.rows() == rows(FRAME)


# --- modes ----------------------------------------------------------------------------------------------
@pytest.mark.sweep("None")
@pytest.mark.parametrize("partition_cols", [None, ["name"]])
def test_append_and_overwrite_are_one_commit_each(house: House, partition_cols: list[str] | None) -> None:
    write(house, FRAME, partition_cols=partition_cols)
    write(house, FRAME.assign(id=9), partition_cols=partition_cols)
    assert (house.commits(), len(house.rows())) == (2, 8)
    write(house, FRAME.tail(1), mode="overwrite")
    assert house.commits() == 3
    assert house.rows() == [{"id": 4, "name": "a"}]


def test_partitions_of_the_frame_are_replaced_in_one_commit(house: House) -> None:
    by_day: dict[str, Any] = {"mode": "overwrite_partitions", "partition_cols": ["name"]}
    write(house, FRAME, **by_day)
    receipt = write(house, pd.DataFrame({"id": [7, 8], "name": ["a", "d"]}), **by_day)
    assert house.commits() == 2
    assert receipt.removed_rows == 2
    assert house.rows() == rows(pd.DataFrame({"id": [2, 3, 7, 8], "name": ["b", "c", "a", "d"]}))


@pytest.mark.long
def test_null_is_a_partition_as_any_other(house: House) -> None:
    by_name: dict[str, Any] = {"mode": "overwrite_partitions", "partition_cols": ["name"]}
    for number in (1, 2):
        write(house, pd.DataFrame({"id": [number, number], "name": [None, "a"]}), **by_name)
    write(house, pd.DataFrame({"id": [3], "name": [None]}), **by_name, dtype={"name": "string"})
    assert house.rows() == [{"id": 2, "name": "a"}, {"id": 3, "name": None}]


@pytest.mark.long
def test_partitions_of_two_columns_are_replaced_pair_by_pair(house: House) -> None:
    by_both: dict[str, Any] = {"mode": "overwrite_partitions", "partition_cols": ["p", "q"]}
    frame = pd.DataFrame({"p": ["a", "a", "b"], "q": [1, 2, 2], "v": [0, 0, 0]})
    write(house, frame, **by_both)
    write(house, pd.DataFrame({"p": ["a"], "q": [2], "v": [1]}), **by_both)
    assert house.rows() == rows(frame.assign(v=[0, 1, 0]))


@pytest.mark.long
def test_a_column_may_come_while_partitions_are_replaced_in_any_order_of_columns(house: House) -> None:
    """awswrangler's own test: a column is added, then the order of columns changes."""
    by_part: dict[str, Any] = {
        "mode": "overwrite_partitions",
        "partition_cols": ["part"],
        "schema_evolution": True,
    }
    write(house, pd.DataFrame({"part": [1, 2, 2], "c": ["X", "Z", "Z"]}), **by_part)
    wider = pd.DataFrame({"part": [2, 2], "c": ["C", "D"], "new": [True, False]})
    write(house, wider, **by_part)
    write(house, wider[["new", "part", "c"]], **by_part)
    assert house.rows() == sorted([{"part": 1, "c": "X", "new": None}, *wider.to_dict("records")], key=str)


# --- keys -------------------------------------------------------------------------------------------------
@pytest.mark.sweep("merge_cols1")
@pytest.mark.parametrize(
    ("merge_cols", "left"),
    [(["title"], [("Dune", "2021", 400), ("Fargo", "1996", 61)]),
     (["title", "year"], [("Dune", "1984", 35), ("Dune", "2021", 400), ("Fargo", "1996", 61)])],
)  # fmt: skip
def test_rows_with_the_keys_of_the_frame_are_replaced_in_one_commit(
    house: House, merge_cols: list[str], left: list[tuple[Any, ...]]
) -> None:
    """awswrangler's own test of MERGE INTO."""
    write(house, MOVIES)
    newer = pd.DataFrame({"title": ["Dune", "Fargo"], "year": ["2021", "1996"], "gross": [400, 61]})
    write(house, newer, merge_cols=merge_cols)
    assert house.commits() == 2
    assert [tuple(row.values()) for row in house.rows()] == left


@pytest.mark.long
def test_thousands_of_keys_are_replaced_in_one_commit(house: House) -> None:
    """Each row is looked up among them once."""
    write(house, pd.DataFrame({"id": range(12_000), "n": 0}))
    write(house, pd.DataFrame({"id": range(0, 12_000, 2), "n": 1}), merge_cols=["id"])
    found = house.rows()
    assert house.commits() == 2
    assert (len(found), sum(row["n"] for row in found)) == (12_000, 6_000)
    assert {row["id"] % 2 for row in found if row["n"]} == {0}


def test_the_last_writer_of_a_key_wins_and_a_repeat_in_another_order_is_recognised(house: House) -> None:
    write(house, MOVIES)
    newer = MOVIES.assign(gross=[1, 2])
    outcomes = [
        write(house, frame, merge_cols=["title"], key="event").outcome for frame in (newer, newer[::-1])
    ]
    assert outcomes == ["committed", "already_committed"]
    assert house.rows() == rows(newer)


@pytest.mark.sweep("moments", "dates", "nullable integers", "instants")
@pytest.mark.parametrize(
    "keys",
    [pd.to_datetime(["2020-01-01", "2020-01-02"]), [dt.date(2020, 1, 1), dt.date(2020, 1, 2)],
     pd.array([1, 2], dtype="Int64"), [True, False], pd.to_datetime(["2020-01-01", "2020-01-02"]).tz_localize("UTC")],
    ids=["moments", "dates", "nullable integers", "flags", "instants"],
)  # fmt: skip
def test_a_key_may_have_any_type_that_has_no_fractions(house: House, keys: Any) -> None:
    frame = pd.DataFrame({"key": keys, "value": ["old", "old"]})
    write(house, frame)
    write(house, frame.head(1).assign(value="new"), merge_cols=["key"])
    assert [row["value"] for row in house.rows()].count("new") == 1
    assert len(house.rows()) == 2


@pytest.mark.long
def test_overwrite_needs_no_keys_and_takes_them(house: House) -> None:
    write(house, MOVIES)
    write(house, MOVIES.head(1), mode="overwrite", merge_cols=["title"], merge_condition="ignore")
    assert house.rows() == rows(MOVIES.head(1))


# --- schema -----------------------------------------------------------------------------------------------
@pytest.mark.sweep("True")
@pytest.mark.parametrize("schema_evolution", [False, True])
def test_missing_columns_are_null_and_a_warning_names_them(
    house: House, caplog: pytest.LogCaptureFixture, schema_evolution: bool
) -> None:
    write(house, FRAME)
    with caplog.at_level(logging.WARNING, "safewrite"):
        write(house, pd.DataFrame({"id": [9]}), schema_evolution=schema_evolution)
    assert {"id": 9, "name": None} in house.rows()
    told = [record.getMessage() for record in caplog.records if "lacks name" in record.getMessage()]
    assert len(told) == 1
    assert "fill_missing_columns_in_df=False" in told[0]


@pytest.mark.long
def test_a_frame_with_all_columns_is_no_reason_for_a_warning(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        write(house, FRAME)
    assert "lacks" not in caplog.text


def test_new_columns_come_with_schema_evolution(house: House) -> None:
    write(house, FRAME)
    write(house, pd.DataFrame({"id": [9], "new": [1.5]}), schema_evolution=True)
    assert {"id": 9, "name": None, "new": 1.5} in house.rows()
    assert house.commits() == 2


def test_values_of_a_wider_type_go_into_a_column_that_holds_them(house: House) -> None:
    write(house, pd.DataFrame({"n": pd.Series([1], dtype="int32"), "f": pd.Series([1.0], dtype="float32")}))
    write(house, pd.DataFrame({"n": [2], "f": [0.5]}))
    assert house.rows() == [{"n": 1, "f": 1.0}, {"n": 2, "f": 0.5}]
    with pytest.raises(sw.WouldAlterError):
        write(house, pd.DataFrame({"n": [2**40], "f": [0.5]}))


def test_columns_become_as_wide_as_the_frames_with_schema_evolution(house: House) -> None:
    """As Athena's CHANGE COLUMN; by each mode, in one commit."""
    narrow = pd.DataFrame(
        {"n": pd.Series([1], dtype="int32"), "f": pd.Series([1.0], dtype="float32"), "p": ["a"]}
    )
    wide = pd.DataFrame({"n": [2**40], "f": [0.1], "p": ["b"]})
    for table, given in (
        ("appended", {}),
        ("overwritten", {"mode": "overwrite"}),
        ("by_part", {"mode": "overwrite_partitions", "partition_cols": ["p"]}),
        ("merged", {"merge_cols": ["p"]}),
    ):
        place = replace(house, table=table)
        write(place, narrow, **({"partition_cols": ["p"]} if "partition_cols" in given else {}))
        write(place, wide, schema_evolution=True, **given)
        assert {"n": 2**40, "f": 0.1, "p": "b"} in place.rows()
        fields = {one.name: str(one.field_type) for one in place.iceberg().schema().fields}
        assert (fields["n"], fields["f"]) == ("long", "double")
        assert place.commits() <= 3  # PyIceberg's readers see the deletion and the rows of an overwrite apart


@pytest.mark.long
def test_maps_and_structs_by_dtype_and_a_frame_that_lacks_them(house: House) -> None:
    """awswrangler's own test of complex types."""
    dtype = {"part": "int", "m": "map<string, string>", "s": "struct<a: string, b: struct<c: string>>"}
    frame = pd.DataFrame({"part": [1, 2], "m": [{"s": "d"}, {}], "s": [{"a": "v", "b": {"c": "x"}}, {}]})
    by_part: dict[str, Any] = {"mode": "overwrite_partitions", "partition_cols": ["part"], "dtype": dtype}
    write(house, frame, **by_part)
    write(house, pd.DataFrame({"part": [2]}), **by_part)
    assert house.rows() == [
        {"part": 1, "m": [("s", "d")], "s": {"a": "v", "b": {"c": "x"}}},
        {"part": 2, "m": None, "s": None},
    ]


def test_the_index_is_written_where_it_is_asked_for(house: House) -> None:
    write(house, FRAME.set_index("id"), index=True)
    assert house.rows() == [{"name": name, "id": number} for number, name in sorted(zip(FRAME.id, FRAME.name, strict=True), key=lambda one: str({"name": one[1], "id": one[0]}))]  # fmt: skip


def test_a_second_delivery_is_recognised_by_its_key_or_batch(house: House) -> None:
    for name in ({"key": "event"}, {"txn": ("app", 1)}):
        outcomes = [write(house, FRAME, **name).outcome for _ in range(2)]
        assert outcomes == ["committed", "already_committed"]
    assert house.commits() == 2


# --- Glue -------------------------------------------------------------------------------------------------
def test_without_a_catalog_the_table_is_in_glue_at_its_location(lake: Lake, bucket: str) -> None:
    location = f"s3://{bucket}/sales-{bucket}/orders"
    for number in (1, 2):
        to_iceberg(
            FRAME.assign(id=number),
            f"sales_{bucket.replace('-', '_')}",
            "orders",
            table_location=location,
            boto3_session=lake.session,
            create_namespace=True,
        )
    entry = lake.server.boto3_client("glue").get_table(
        DatabaseName=f"sales_{bucket.replace('-', '_')}", Name="orders"
    )["Table"]
    assert entry["Parameters"]["table_type"] == "ICEBERG"
    assert entry["Parameters"]["metadata_location"].startswith(location + "/metadata/")
    catalog = load_catalog("default", **glue_properties(lake.server))
    found = catalog.load_table((f"sales_{bucket.replace('-', '_')}", "orders")).scan().to_arrow()
    assert sorted(found.column("id").to_pylist()) == [1] * 4 + [2] * 4


def glue_properties(server: Ministack) -> dict[str, str]:
    options = server.storage_options()
    named = {
        "access-key-id": "AWS_ACCESS_KEY_ID",
        "secret-access-key": "AWS_SECRET_ACCESS_KEY",
        "region": "AWS_REGION",
        "endpoint": "AWS_ENDPOINT_URL",
    }
    return {"type": "glue"} | {
        f"{of}.{name}": options[option] for of in ("s3", "glue") for name, option in named.items()
    }


def test_a_new_table_in_glue_needs_a_location(lake: Lake) -> None:
    with pytest.raises(sw.InvalidInputError, match=r"table_location=.*Nothing was written"):
        to_iceberg(FRAME, "sales", "nowhere", boto3_session=lake.session)


def test_a_new_table_of_another_catalog_needs_none(house: House) -> None:
    write(house, FRAME, table_location=None)
    assert len(house.rows()) == 4


@pytest.mark.long
def test_the_location_of_a_table_that_is_there_stays(house: House, tmp_path: Any) -> None:
    write(house, FRAME, table_location=str(tmp_path / "first"))
    write(house, FRAME, table_location=str(tmp_path / "second"))
    assert house.iceberg().location() == str(tmp_path / "first")
    assert not (tmp_path / "second").exists()


def test_glue_is_asked_with_the_sessions_credentials_in_the_account_that_is_named(lake: Lake) -> None:
    found = iceberg._glue(lake.session, "123456789012")
    assert found["glue.id"] == "123456789012"
    for of in ("glue", "s3"):
        assert found[f"{of}.access-key-id"] == lake.session.get_credentials().access_key
        assert found[f"{of}.region"] == lake.session.region_name


def test_a_refused_call_makes_no_table(house: House) -> None:
    with pytest.raises(sw.InvalidInputError):
        write(house, FRAME, mode="overwrite_partitions", partition_cols=["nope"])
    with pytest.raises(NoSuchTableError):
        house.iceberg()
