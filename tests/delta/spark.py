"""A table on S3 with a lock table, and writers beside safewrite that leave the traces Spark leaves."""

from __future__ import annotations

import io
import json
import uuid
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

import safewrite as sw
from bench.servers.servers import Ministack, create_lock_table
from safewrite.delta.maintenance.inspection import Inspection, inspect_table
from safewrite.stores import lock_table as lock_tables

SCHEMA = pa.schema({"id": pa.int64()})
PREFIX = "lake/orders"
SPARK_INFO = {
    "timestamp": 1_700_000_000_000, "operation": "WRITE", "isBlindAppend": True,
    "operationParameters": {"mode": "Append", "partitionBy": "[]"},
    "engineInfo": "Apache-Spark/4.1.4 Delta-Lake/4.4.0",
}  # fmt: skip


@cache
def clients(server: Ministack) -> tuple[Any, Any]:
    """S3 and DynamoDB, made once: making a client takes longer than a test."""
    return server.boto3_client("s3"), server.boto3_client("dynamodb")


def rows(*ids: int) -> pa.Table:
    """A frame of the table's schema."""
    return pa.table({"id": list(ids)}, schema=SCHEMA)


@dataclass
class Neighbourhood:
    """A bucket and a lock table in which several kinds of writers meet."""

    server: Ministack
    bucket: str
    lock_table: str

    def __post_init__(self) -> None:
        self.s3, self.dynamodb = clients(self.server)
        lock_tables.enable_ttl(self.dynamodb, self.lock_table)

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{PREFIX}"

    @property
    def options(self) -> dict[str, str]:
        return self.server.storage_options()

    def create(self, **more: Any) -> sw.Table:
        return sw.create(
            self.uri, schema=SCHEMA, lock_table=self.lock_table, storage_options=self.options, **more
        )

    def inspect_table(self, **more: Any) -> Inspection:
        return inspect_table(self.uri, storage_options=self.options, **more)

    def ids(self) -> list[int]:
        """What a reader that knows nothing of safewrite sees."""
        table = DeltaTable(self.uri, storage_options=self.options).to_pyarrow_table()
        return sorted(table.column("id").to_pylist())

    def by_conditional_put(self, *ids: int) -> None:
        write_deltalake(self.uri, rows(*ids), mode="append", storage_options=self.options)

    # --- what Spark does, step by step ---------------------------------------------------------------
    def put(self, path: str, body: bytes) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=f"{PREFIX}/{path}", Body=body)

    def delete(self, path: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=f"{PREFIX}/{path}")

    def data_file(self, *ids: int) -> dict[str, Any]:
        """Upload a Parquet file; returns its add action."""
        sink = io.BytesIO()
        pq.write_table(rows(*ids), sink)
        path = f"part-00000-{uuid.uuid4()}.snappy.parquet"
        self.put(path, sink.getvalue())
        return {
            "path": path, "partitionValues": {}, "size": len(sink.getvalue()), "modificationTime": 1_700_000_000_000,
            "dataChange": True, "stats": json.dumps({"numRecords": len(ids)}),
        }  # fmt: skip

    def spark_temp(self, version: int, *actions: dict[str, Any], info: dict[str, Any] | None = None) -> str:
        """T(N) with a commit in it; returns its tempPath."""
        lines = [{"commitInfo": SPARK_INFO | (info or {})}, *actions]
        path = f".tmp/{version:020d}.json.{uuid.uuid4()}"
        self.put(f"_delta_log/{path}", "\n".join(json.dumps(line) for line in lines).encode())
        return path

    def spark_entry(
        self, version: int, temp_path: str, *, complete: bool = True, path: str = "", **more: str
    ) -> None:
        """E(N), as Spark puts it."""
        item = {
            "tablePath": path or f"s3a://{self.bucket}/{PREFIX}", "fileName": f"{version:020d}.json",
            "tempPath": temp_path, "complete": "true" if complete else "false", **more,
        }  # fmt: skip
        self.dynamodb.put_item(
            TableName=self.lock_table, Item={name: {"S": value} for name, value in item.items()}
        )

    def vanish(
        self, version: int, *ids: int, complete: bool = True, txn: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Spark claims a version, deltalake takes its commit file, Spark believes that it has won."""
        add = self.data_file(*ids)
        actions = [{"txn": txn}] if txn else []
        self.spark_entry(version, self.spark_temp(version, *actions, {"add": add}), complete=complete)
        self.by_conditional_put(version * 1000)
        return add


def neighbourhood(server: Ministack) -> Neighbourhood:
    """A new bucket and a new lock table."""
    s3, dynamodb = clients(server)
    name = f"mixed-{uuid.uuid4().hex[:12]}"
    s3.create_bucket(Bucket=name)
    return Neighbourhood(server, name, create_lock_table(dynamodb, name))
