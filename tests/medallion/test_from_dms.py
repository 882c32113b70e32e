"""A user of DMS brings what the AWS CLI says of the endpoint and the task; the job runs with what they become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore.session
import deltalake
import pytest
from pydantic.alias_generators import to_pascal
from pyiceberg.catalog import load_catalog
from typer.testing import CliRunner

from safewrite.cli.app import app
from safewrite.errors import InvalidInputError
from safewrite.medallion.config.dms_endpoint import S3Settings
from safewrite.medallion.config.dms_mappings import mappings
from safewrite.medallion.config.from_dms import Lake, from_dms
from safewrite.medallion.config.source_columns import source_tables

ARN = "arn:aws:dms:eu-west-1:123456789012:endpoint:"
ENDPOINTS: dict[str, Any] = {
    "Endpoints": [
        {"EndpointIdentifier": "erp", "EndpointType": "SOURCE", "EngineName": "postgres", "EndpointArn": f"{ARN}ERP"},
        {
            "EndpointIdentifier": "lake", "EndpointType": "TARGET", "EngineName": "s3", "EndpointArn": f"{ARN}LAKE",
            "ExtraConnectionAttributes": "bucketName=raw;timestampColumnName=committed;csvNoSupValue=@none;useCsvNoSupValue=true;",
            "S3Settings": {
                "ServiceAccessRoleArn": "arn:aws:iam::123456789012:role/dms", "CsvRowDelimiter": "\\n", "CsvDelimiter": ",",
                "BucketFolder": "dms", "BucketName": "raw", "CompressionType": "NONE", "EnableStatistics": True,
                "AddColumnName": True, "IncludeOpForFullLoad": True, "DatePartitionEnabled": False,
            },
        },
    ]
}  # fmt: skip
LOCATOR = {"schema-name": "Shop", "table-name": "%"}


def rule(kind: str, action: str, **more: Any) -> dict[str, Any]:
    return {
        "rule-type": kind,
        "rule-id": "1",
        "rule-name": "1",
        "rule-action": action,
        "object-locator": LOCATOR,
    } | more


RULES = [
    rule("selection", "include"),
    rule("selection", "exclude", **{"object-locator": {"schema-name": "Shop", "table-name": "tmp[_]%"}}),
    rule("transformation", "convert-lowercase", **{"rule-target": "schema"}),
    rule(
        "transformation", "add-column", value="seq", expression="$AR_H_CHANGE_SEQ",
        **{"rule-target": "column", "data-type": {"type": "string", "length": 40}},
    ),
    rule(
        "transformation", "add-before-image-columns",
        **{"rule-target": "column", "before-image-def": {"column-prefix": "BI_", "column-suffix": "", "column-filter": "pk-only"}},
    ),
    rule(
        "transformation", "remove-column",
        **{"rule-target": "column", "object-locator": {"schema-name": "Shop", "table-name": "orders", "column-name": "secret"}},
    ),
]  # fmt: skip
TASK: dict[str, Any] = {
    "ReplicationTasks": [
        {
            "ReplicationTaskIdentifier": "shop", "SourceEndpointArn": f"{ARN}ERP", "TargetEndpointArn": f"{ARN}LAKE",
            "MigrationType": "full-load-and-cdc", "TableMappings": json.dumps({"rules": RULES}),
            "ReplicationTaskSettings": json.dumps({"TargetMetadata": {"SupportLobs": True, "LimitedSizeLobMode": True, "LobMaxSize": 32}}),
        }
    ]
}  # fmt: skip
COLUMNS = """table_schema,table_name,column_name,data_type,numeric_precision,numeric_scale,key_position
Shop,orders,line,smallint,16,0,2
Shop,orders,id,bigint,64,0,1
Shop,orders,price,numeric,10,2,
Shop,orders,secret,text,,,
Shop,orders,note,character varying,,,
Shop,tmp_orders,id,bigint,64,0,1
"""


def convert(
    endpoint: Any = None, task: Any = None, columns: str | None = COLUMNS, lake: Lake | None = None
) -> Any:
    return from_dms(
        json.dumps(endpoint or ENDPOINTS), json.dumps(task or TASK), lake or Lake("/lake"), columns=columns
    )


def settings(**more: Any) -> dict[str, Any]:
    return {"BucketName": "raw", "AddColumnName": True, "TimestampColumnName": "committed", **more}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_from_an_endpoint_to_the_first_silver(tmp_path: Path, table_format: str) -> None:
    """The walk of a user: convert, check, run on files as DMS writes them, read by another reader, verify."""
    for name, content in (
        ("endpoint.json", json.dumps(ENDPOINTS)),
        ("task.json", json.dumps(TASK)),
        ("columns.csv", COLUMNS),
    ):
        (tmp_path / name).write_text(content)
    given = [str(tmp_path / name) for name in ("endpoint.json", "task.json")]
    made = tmp_path / "job.json"
    options = [
        "--lake",
        str(tmp_path),
        "--columns",
        str(tmp_path / "columns.csv"),
        "--format",
        table_format,
        "--write",
        str(made),
    ]
    found = CliRunner().invoke(app, ["medallion", "from-dms", *given, *options])
    assert found.exit_code == 0, found.output
    assert "LobMaxSize is 32 KB" in " ".join(found.output.split())
    config = json.loads(made.read_text())
    assert config["raw"] == {"location": "s3://raw/dms"}
    config["raw"]["location"] = str(tmp_path / "raw")  # the bucket is a folder here
    if table_format == "iceberg":
        config["catalog"] = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/c.db",
            "warehouse": str(tmp_path / "w"),
        }
    made.write_text(json.dumps(config))

    folder = tmp_path / "raw/shop/orders"
    folder.mkdir(parents=True)
    head = "Op,committed,line,id,price,note,seq,BI_line,BI_id\n"
    at, (first, second, third) = (
        "2026-11-01 10:00:00.000000",
        (f"2026110110000000{number:019}" for number in (1, 2, 3)),
    )
    # What DMS writes for before images of a row that has none are empty texts.
    (folder / "LOAD00000001.csv").write_text(f"{head}I,{at},1,7,1.50,a,,,\nI,{at},2,7,NULL,b,,,\n")
    (folder / "20261101-100000000.csv").write_text(
        f"{head}U,{at},1,7,9.00,@none,{first},1,7\nU,{at},2,9,5.00,c,{second},2,7\nI,{at},1,8,2.00,NULL,{third},,\n"
    )
    run = ["medallion", "run", "--config", str(made)]
    for command in (
        ["medallion", "check", "--config", str(made)],
        run,
        ["medallion", "verify", "--config", str(made)],
    ):
        said = CliRunner().invoke(app, command)
        assert said.exit_code == 0, said.output
    if table_format == "delta":
        have = deltalake.DeltaTable(f"{tmp_path}/silver/shop/orders").to_pyarrow_table().to_pylist()
    else:
        have = (
            load_catalog("default", **config["catalog"])
            .load_table("silver.shop_orders")
            .scan()
            .to_arrow()
            .to_pylist()
        )
    assert sorted((row["id"], row["line"], str(row["price"]), row["note"]) for row in have) == [
        (7, 1, "9.00", "a"), (8, 1, "2.00", None), (9, 2, "5.00", "c")
    ]  # fmt: skip


def test_the_settings_are_those_that_dms_has() -> None:
    model = botocore.session.get_session().get_service_model("dms")
    assert {to_pascal(name) for name in S3Settings.model_fields} == set(model.shape_for("S3Settings").members)
    assert set(TASK["ReplicationTasks"][0]) <= set(model.shape_for("ReplicationTask").members)
    assert {name for one in ENDPOINTS["Endpoints"] for name in one} <= set(
        model.shape_for("Endpoint").members
    )


def test_each_setting_becomes_what_it_means() -> None:
    given = settings(
        BucketFolder="/a/b/", DataFormat="CSV", CsvDelimiter="\\t", CsvRowDelimiter="\\x1e", CsvNullValue="''", Rfc4180="n",
        UseCsvNoSupValue="y", CsvNoSupValue="@", IncludeOpForFullLoad="true", CdcInsertsAndUpdates=True, MaxFileSize="1000",
    )  # fmt: skip
    made = convert(given)
    assert made.config["raw"] == {"location": "s3://raw/a/b"}
    assert made.config["defaults"]["files"] == {
        "kind": "csv", "op_in_full_load": True, "timestamp": "committed", "changes": "inserts_and_updates", "header": True,
        "rfc4180": False, "delimiter": "\t", "row_delimiter": "\x1e", "null_value": "", "no_sup_value": "@",
    }  # fmt: skip
    assert made.config["tables"]["shop.orders"] == {
        "columns": {"line": "int16", "id": "int64", "price": "decimal(10,2)", "note": "string"}, "keys": ["id", "line"],
        "files": {"change_seq": "seq", "before_image": "BI_"},
    }  # fmt: skip
    assert list(made.config["tables"]) == ["shop.orders"], "shop.tmp_orders is excluded"


def test_files_without_names_of_columns_have_an_order() -> None:
    made = convert(settings(AddColumnName=False))
    order = ["Op", "committed", "*", "seq", "BI_line", "BI_id"]
    assert made.config["tables"]["shop.orders"]["files"]["order"] == order
    assert any(one.startswith("AddColumnName is not true") for one in made.warnings)
    made = convert(
        settings(AddColumnName=False, BucketFolder="a", PreserveTransactions=True, CdcPath="a/all")
    )
    assert made.config["raw"] == {
        "location": "s3://raw/a", "layout": "mixed", "mixed_folder": "all", "table_column": "_table", "schema_column": "_schema"
    }  # fmt: skip
    order = ["Op", "_table", "_schema", "committed", "*", "seq", "BI_line", "BI_id"]
    assert made.config["tables"]["shop.orders"]["files"]["order"] == order


LOSSES: dict[str, tuple[dict[str, Any], str]] = {
    "names": ({"AddColumnName": None}, "AddColumnName is not true"),
    "times": ({"TimestampColumnName": None}, "TimestampColumnName is not set"),
    "inserts": ({"CdcInsertsOnly": True}, "files lack the updates and deletes"),
    "updates": ({"CdcInsertsAndUpdates": True}, "files lack the deletes"),
    "log": ({}, "UseCsvNoSupValue and CsvNoSupValue are not set"),
    "half": ({"UseCsvNoSupValue": True}, "UseCsvNoSupValue and CsvNoSupValue are not set"),
    "parquet": ({"DataFormat": "parquet"}, "DataFormat is parquet"),
    "zone": ({"DatePartitionTimezone": "Europe/Berlin"}, "names of change files are local times"),
    "millis": (
        {"DataFormat": "parquet", "ParquetTimestampInMillisecond": True},
        "times lose their microseconds",
    ),
    "padding": ({"AddTrailingPaddingCharacter": True}, "texts come with blanks"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_setting_that_loses_is_warned_of(name: str) -> None:
    more, says = LOSSES[name]
    sound = settings(UseCsvNoSupValue=True, CsvNoSupValue="@")
    if name not in ("log", "half"):
        assert not any(says in one for one in convert(sound).warnings)
    given = settings(**more) if name in ("log", "half") else sound | more
    assert any(says in one for one in convert(given).warnings)


def test_a_task_that_loses_is_warned_of() -> None:
    errors = {"DataErrorPolicy": "LOG_ERROR", "ApplyErrorUpdatePolicy": "SUSPEND_TABLE"}
    ddl = {"HandleSourceTableTruncated": True}
    task = TASK["ReplicationTasks"][0] | {
        "MigrationType": "cdc",
        "ReplicationTaskSettings": json.dumps(
            {"ErrorBehavior": errors, "ChangeProcessingDdlHandlingPolicy": ddl}
        ),
        "TableMappings": json.dumps(
            {"rules": [rule("selection", "include", filters=[{"filter-type": "source"}])]}
        ),
    }
    said = "\n".join(
        convert(
            task=task, columns="table_schema,table_name,column_name,data_type\nShop,t,id,point\n"
        ).warnings
    )
    for one in (
        "MigrationType is cdc", "ErrorBehavior.DataErrorPolicy is LOG_ERROR", "removes the files of the table", "the selection rule has filters",
        "no rule adds before images", "no rule adds AR_H_CHANGE_SEQ", "its key is not known", "the type point of id says too little",
    ):  # fmt: skip
        assert one in said
    assert "ApplyErrorUpdatePolicy" not in said


def test_without_a_list_of_columns_it_is_said_what_is_to_be_filled_in() -> None:
    only = {
        "rules": [
            rule(
                "selection", "include", **{"object-locator": {"schema-name": "Shop", "table-name": "orders"}}
            )
        ]
    }
    made = convert(task=only, columns=None)
    assert made.config["job"] == "dms"
    assert made.config["tables"] == {"Shop.orders": {}}
    assert [one for one in made.warnings if "Fill in" in one] == [
        "Shop.orders: its key is not known, so `check` refuses the configuration. Fill in tables.Shop.orders.keys, or list the columns of the source (--columns).",
        "Shop.orders: its columns are not known. Fill in tables.Shop.orders.columns, or list the columns of the source (--columns).",
    ]  # fmt: skip
    assert any("The rule for Shop.% selects no table" in one for one in convert(columns=None).warnings)


WRONG: dict[str, tuple[Any, Any, str]] = {
    "unknown setting": (settings(AddColumName=True), None, "AddColumName: there is no such field; did you mean AddColumnName?"),
    "no flag": (settings(Rfc4180="perhaps"), None, "Rfc4180: "),
    "two endpoints": ({"Endpoints": [{"EndpointIdentifier": one, "S3Settings": settings()} for one in "ab"]}, None, "there are: a, b.*--endpoint"),
    "no endpoint": ({"Endpoints": ENDPOINTS["Endpoints"][:1]}, None, "one EndpointIdentifier is needed, and there are: none of S3.*with the endpoint"),
    "mixed with names": (settings(PreserveTransactions=True, CdcPath="all"), None, "PreserveTransactions and AddColumnName are both true"),
    "no rules": (None, {"rules": [1]}, "The table mappings are not an object with"),
    "no tasks": (None, {"ReplicationTasks": []}, "ReplicationTasks is an empty list.*in the region and the account"),
    "no endpoints": ({"Endpoints": []}, None, "Endpoints is an empty list.*in the region and the account"),
    "listed task settings": (None, TASK["ReplicationTasks"][0] | {"ReplicationTaskSettings": "[]"}, "ReplicationTaskSettings is not a JSON object"),
    "counted section": (None, TASK["ReplicationTasks"][0] | {"ReplicationTaskSettings": {"ErrorBehavior": 3}}, "ErrorBehavior is not a JSON object"),
    "listed endpoint settings": ({"EngineName": "s3", "S3Settings": [1]}, None, "S3Settings is not a JSON object"),
    "two tasks": (None, {"ReplicationTasks": TASK["ReplicationTasks"] * 2}, "there are: shop, shop.*--task"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    endpoint, task, says = WRONG[name]
    with pytest.raises(InvalidInputError, match=f"(?is){says}"):
        convert(endpoint, task)


@pytest.mark.parametrize("nothing", [None, "null", {}])
def test_task_settings_of_null_are_no_settings(nothing: Any) -> None:
    task = TASK["ReplicationTasks"][0] | {"ReplicationTaskSettings": nothing}
    assert not any("LobMaxSize" in one for one in convert(task=task).warnings)


@pytest.mark.parametrize("place", ["s3://raw", "s3a://raw/lake/", "s3://raw/"])
@pytest.mark.parametrize("columns", [COLUMNS, None], ids=["listed", "unlisted"])
def test_a_lake_among_the_raw_files_is_refused_by_its_option(place: str, columns: str | None) -> None:
    with pytest.raises(
        InvalidInputError, match=r"--lake .* lies in s3://raw, .*another bucket.*BucketFolder"
    ):
        convert(settings(), columns=columns, lake=Lake(place))
    for folder, lake in (("dms", "s3://raw/lake"), (None, "s3://raws")):
        assert convert(settings(BucketFolder=folder), lake=Lake(lake)).config["state"].startswith(lake)


def test_two_tables_of_one_name_are_refused() -> None:
    both = [
        rule("selection", "include"),
        rule("transformation", "rename", value="all", **{"rule-target": "table"}),
    ]
    with pytest.raises(InvalidInputError, match=r"two tables of the source the name Shop\.all"):
        convert(task={"rules": both})


def test_names_follow_the_rules() -> None:
    rules = [
        rule("selection", "include", **{"object-locator": {"schema-name": "a_b", "table-name": "T[_]%"}}),
        *(
            rule("transformation", action, **{"rule-target": target, "object-locator": {"schema-name": "%", "table-name": "%", "column-name": name}}, **more)
            for target, action, name, more in (
                ("schema", "add-suffix", "", {"value": "_x"}), ("table", "remove-prefix", "", {"value": "T_"}),
                ("column", "replace-prefix", "%", {"old-value": "c_", "value": "k_"}), ("column", "remove-column", "c_gone", {}),
            )
        ),
    ]  # fmt: skip
    found, unmet = mappings({"rules": rules}).tables(["a_b.T_1", "axb.T_2", "a_b.TX3", "zz.T_4"])
    assert [one.name for one in found] == ["a_b_x.1", "axb_x.2"]
    assert [found[0].column(one) for one in ("c_1", "d", "c_gone")] == ["k_1", "d", None]
    assert unmet == []


TYPES = {
    "NUMBER": "decimal(38,10)", "NUMBER(5)": "int32", "NUMBER(18,0)": "int64", "NUMBER(19,0)": "decimal(19,0)", "number(5,-2)": "int32",
    "numeric(60,2)": "decimal(38,10)", "TIMESTAMP(6) WITH TIME ZONE": "timestamptz", "timestamp without time zone": "timestamp",
    "int unsigned": "int64", "bigint unsigned": "decimal(20,0)", "varchar(20)": "string", "bytea": "binary", "time without time zone": "time",
    "bool": "bool", "double precision": "float64", "VARCHAR2(9 CHAR)": "string", "geometry": "string",
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_types_of_sources_have_one_here(name: str) -> None:
    text = f'table_schema,table_name,column_name,data_type\ns,t,c,"{name}"\n'
    found = source_tables(text, has_time=True)["s.t"]
    assert found.columns == {"c": TYPES[name]}
    assert bool(found.guessed) == (name in ("NUMBER", "numeric(60,2)", "geometry"))


def test_a_list_of_columns_that_says_too_little_is_refused() -> None:
    for text, says in (
        ("table_schema,table_name\n", "lacks column_name, data_type"),
        ("table_schema,table_name,column_name,data_type\ns,t,,int\n", "Line 2"),
        (
            "table_schema,table_name,column_name,data_type,key_position\ns,t,a,int,first\n",
            "'first' where a whole number",
        ),
    ):
        with pytest.raises(InvalidInputError, match=says):
            source_tables(text, has_time=True)
