"""Places for tables that are written by awswrangler's calls: S3, DynamoDB and Glue as a session finds them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import deltalake
import pandas as pd
import pytest
from pyiceberg.catalog import load_catalog

from bench.servers.servers import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, Ministack


@dataclass(frozen=True)
class Lake:
    """A Delta table's address on S3, and the session of a user who has set no endpoint but in the environment."""

    uri: str
    session: Any
    server: Ministack

    def rows(self, version: int | None = None) -> pd.DataFrame:
        """What deltalake reads, in order."""
        table = deltalake.DeltaTable(self.uri, version, storage_options=self.server.storage_options())
        found = table.to_pandas()
        return found.sort_values(list(found.columns)).reset_index(drop=True)

    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.uri, storage_options=self.server.storage_options())

    def objects(self) -> list[str]:
        """The keys of all objects of the table."""
        bucket, _, prefix = self.uri.removeprefix("s3://").partition("/")
        listed = self.server.boto3_client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix + "/")
        return [item["Key"] for item in listed.get("Contents", ())]


@pytest.fixture
def lake(ministack: Ministack, bucket: str, no_aws_settings: None, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Where no Delta table has been yet."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack.endpoint_url)
    session = boto3.Session(
        aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION
    )
    return Lake(f"s3://{bucket}/orders", session, ministack)


@dataclass(frozen=True)
class House:
    """An Iceberg catalog in a folder, and where a table is to be in it."""

    properties: dict[str, str]
    database: str = "sales"
    table: str = "orders"

    def iceberg(self) -> Any:
        """PyIceberg's own table, loaded now."""
        return load_catalog("default", **self.properties).load_table((self.database, self.table))

    def rows(self) -> list[dict[str, Any]]:
        """What PyIceberg reads, in order."""
        return sorted(self.iceberg().scan().to_arrow().to_pylist(), key=str)

    def commits(self) -> int:
        return len(self.iceberg().metadata.snapshots)


@pytest.fixture
def house(tmp_path: Path, no_aws_settings: None) -> House:
    """Where no Iceberg table has been yet."""
    name = uuid.uuid4().hex[:8]
    return House(
        {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/{name}.db",
            "warehouse": str(tmp_path / "warehouse"),
        }
    )
