"""Delta tables in Glue's catalog: what is entered, again and again, and beside entries of others."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import safewrite as sw
from safewrite.wrangler import glue as module
from safewrite.wrangler import register_deltalake, to_deltalake
from tests.wrangler.conftest import Lake

FRAME = pd.DataFrame({"id": [1], "day": ["a"], "price": [1.5]})


class Glue:
    """A database of its own."""

    def __init__(self, lake: Lake) -> None:
        self.client = lake.server.boto3_client("glue")
        self.database = f"db_{uuid.uuid4().hex[:8]}"
        self.client.create_database(DatabaseInput={"Name": self.database})

    def entry(self, name: str = "orders") -> dict[str, Any]:
        found: dict[str, Any] = self.client.get_table(DatabaseName=self.database, Name=name)["Table"]
        return found

    def columns(self) -> list[tuple[str, str]]:
        return [(one["Name"], one["Type"]) for one in self.entry()["StorageDescriptor"]["Columns"]]

    def create(self, **described: Any) -> None:
        self.client.create_table(DatabaseName=self.database, TableInput={"Name": "orders"} | described)


@pytest.fixture
def glue(lake: Lake) -> Glue:
    return Glue(lake)


def register(lake: Lake, glue: Glue, **given: Any) -> str:
    return register_deltalake(lake.uri, glue.database, "orders", boto3_session=lake.session, **given)


def write(lake: Lake, df: pd.DataFrame = FRAME, **given: Any) -> None:
    to_deltalake(df, lake.uri, boto3_session=lake.session, **given)


def test_the_entry_is_that_of_a_delta_table(lake: Lake, glue: Glue) -> None:
    write(lake, partition_cols=["day"], dtype={"price": "decimal(10,2)"})
    assert register(lake, glue) == "created"
    entry = glue.entry()
    assert entry["TableType"] == "EXTERNAL_TABLE"
    assert entry["Parameters"]["spark.sql.sources.provider"] == "delta"
    assert entry["Parameters"]["table_type"] == "DELTA"
    assert entry["Parameters"]["classification"] == "delta"
    assert entry["StorageDescriptor"]["Location"] == lake.uri
    assert entry["StorageDescriptor"]["SerdeInfo"]["Parameters"]["path"] == lake.uri
    assert entry["PartitionKeys"] == []
    assert glue.columns() == [("id", "bigint"), ("day", "string"), ("price", "decimal(10,2)")]


def test_a_second_call_changes_nothing_and_new_columns_are_told(lake: Lake, glue: Glue) -> None:
    write(lake)
    register(lake, glue)
    version = glue.entry().get("VersionId")
    write(lake)
    assert register(lake, glue) == "unchanged"
    assert glue.entry().get("VersionId") == version
    write(lake, FRAME.assign(new=True), schema_mode="merge")
    assert register(lake, glue) == "updated"
    assert glue.columns()[-1] == ("new", "boolean")
    assert register(lake, glue) == "unchanged"


@pytest.mark.long
def test_what_others_wrote_into_the_entry_stays(lake: Lake, glue: Glue) -> None:
    """An entry of Athena's own: the location alone, comments, and partition columns apart from the others."""
    write(lake, partition_cols=["day"])
    glue.create(
        Description="sales",
        Parameters={"table_type": "DELTA", "owner": "me"},
        PartitionKeys=[{"Name": "day", "Type": "string"}],
        StorageDescriptor={
            "Location": lake.uri + "/",
            "Columns": [{"Name": "id", "Type": "bigint", "Comment": "the id"}],
        },
    )
    assert register(lake, glue) == "updated"
    entry = glue.entry()
    assert (entry["Description"], entry["Parameters"]["owner"]) == ("sales", "me")
    assert entry["Parameters"]["spark.sql.sources.provider"] == "delta"
    assert entry["PartitionKeys"][0]["Name"] == "day"
    assert glue.columns() == [("id", "bigint"), ("price", "double")]
    assert entry["StorageDescriptor"]["Columns"][0]["Comment"] == "the id"
    assert register(lake, glue) == "unchanged"


OTHERS: dict[str, dict[str, Any]] = {
    "a table of Parquet files": {"Parameters": {"classification": "parquet"}},
    "an Iceberg table": {"Parameters": {"table_type": "ICEBERG"}},
    "a Delta table elsewhere": {"Parameters": {"table_type": "DELTA"}, "elsewhere": True},
}


@pytest.mark.sweep("an Iceberg table", "a table of Parquet files")
@pytest.mark.parametrize("other", OTHERS)
def test_the_name_of_another_table_is_left_as_it_is(lake: Lake, glue: Glue, other: str) -> None:
    write(lake)
    described = dict(OTHERS[other])
    location = "s3://elsewhere/orders" if described.pop("elsewhere", False) else lake.uri
    glue.create(StorageDescriptor={"Location": location, "Columns": []}, **described)
    before = glue.entry()
    with pytest.raises(sw.ConflictError, match="left as it was") as caught:
        register(lake, glue)
    assert caught.value.kind is sw.Kind.TABLE_EXISTS
    assert glue.entry() == before


def test_a_table_that_is_not_there_is_not_registered_and_not_made(lake: Lake, glue: Glue) -> None:
    with pytest.raises(sw.TableNotFoundError, match="Nothing was written"):
        register(lake, glue)
    assert lake.objects() == []
    assert glue.client.get_tables(DatabaseName=glue.database)["TableList"] == []


def test_a_local_folder_is_refused(tmp_path: Path) -> None:
    to_deltalake(FRAME, str(tmp_path / "t"))
    with pytest.raises(sw.InvalidInputError, match=r"local folder.*Nothing was written"):
        register_deltalake(str(tmp_path / "t"), "db", "orders")


def test_t3_d4_a_database_that_is_not_there_is_an_error_that_names_those_that_are(
    lake: Lake, glue: Glue
) -> None:
    write(lake)
    with pytest.raises(sw.InvalidInputError, match=rf"no database .*it has .*'{glue.database}'.* as it was"):
        register_deltalake(lake.uri, "nowhere_" + glue.database, "orders", boto3_session=lake.session)


@pytest.mark.long
def test_an_entry_that_a_rival_made_in_between_is_read_again(
    lake: Lake, glue: Glue, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake)
    connect = module._client
    client = connect(lake.session)
    really = client.create_table

    def after_a_rival(**request: Any) -> Any:
        monkeypatch.setattr(module, "_client", connect)
        register(lake, glue)
        return really(**request)

    monkeypatch.setattr(client, "create_table", after_a_rival)
    monkeypatch.setattr(module, "_client", lambda session: client)
    assert register(lake, glue) == "unchanged"
