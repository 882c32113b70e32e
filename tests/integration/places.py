"""Where a table is and how to open it, in this process or another; and two readers that are not the writer."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

import safewrite as sw
from bench.servers import servers
from safewrite.protocol.ask import Limits
from safewrite.testing.faults import RequestStep
from safewrite.testing.steps import At, Side

ARBITERS = ("dynamodb", "object-store", "local")
LEASE_S = 0.2
WRITES = {
    "dynamodb": (
        RequestStep.PUT_DATA,
        RequestStep.PUT_TEMP,
        RequestStep.DDB_PUT_ENTRY,
        RequestStep.PUT_COMMIT,
        RequestStep.DDB_UPDATE_ENTRY,
        RequestStep.PUT_LEDGER,
    ),
    "object-store": (
        RequestStep.PUT_DATA,
        RequestStep.PUT_COMMIT,
        RequestStep.PUT_LEDGER,
        RequestStep.UPDATE_LEDGER,
    ),
}
"""The steps of an append that change something, by arbiter."""


class CrashError(BaseException):
    """Thrown through a write, as a process would die there, for tests that need no real process."""


@dataclass(frozen=True)
class Place:
    """Everything that a process needs to open one table.  ``storage_options`` go straight to the servers."""

    uri: str
    arbiter: str
    storage_options: Mapping[str, str] = field(default_factory=dict)
    lock_table: str | None = None

    def open(self, **settings: Any) -> sw.Table:
        """Open with the place's arbiter, and little patience."""
        settings = {"checkpoints": False, "lease_s": LEASE_S, **settings}
        if self.arbiter == "object-store":
            settings |= {"arbiter": "object-store"}
        elif self.arbiter == "dynamodb":
            settings |= {"lock_table": self.lock_table}
        return sw.open(self.uri, **({"storage_options": dict(self.storage_options)} | settings))

    def through(self, proxy: servers.Endpoint) -> Place:
        """The same table, by way of a fault proxy."""
        return replace(self, storage_options=proxy.storage_options())

    # --- the store itself ---------------------------------------------------------------------
    def s3(self) -> Any:
        """A plain S3 client."""
        return _client("s3", self.storage_options["AWS_ENDPOINT_URL"])

    def dynamodb(self) -> Any:
        """A plain DynamoDB client."""
        return _client("dynamodb", self.storage_options["AWS_ENDPOINT_URL_DYNAMODB"])

    def objects(self, folder: str = "") -> dict[str, bytes]:
        """Every object under a folder of the table, by path relative to its root."""
        if self.arbiter == "local":
            root = Path(self.uri)
            files = [file for file in (root / folder).rglob("*") if file.is_file()]
            files += [root / folder] if (root / folder).is_file() else []
            return {file.relative_to(root).as_posix(): file.read_bytes() for file in sorted(files)}
        bucket, _, prefix = self.uri.partition("://")[2].partition("/")
        s3, found = self.s3(), {}
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/{folder}")
        for item in (item for page in pages for item in page.get("Contents", ())):
            body = s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
            found[item["Key"].removeprefix(f"{prefix}/")] = body
        return found

    def put(self, path: str, body: bytes) -> None:
        """Write an object by a plain PUT, as writers outside the rules do."""
        if self.arbiter == "local":
            (Path(self.uri) / path).write_bytes(body)
        else:
            bucket, _, prefix = self.uri.partition("://")[2].partition("/")
            self.s3().put_object(Bucket=bucket, Key=f"{prefix}/{path}", Body=body)

    def delete(self, path: str) -> None:
        """Remove an object of a table on S3."""
        bucket, _, prefix = self.uri.partition("://")[2].partition("/")
        self.s3().delete_object(Bucket=bucket, Key=f"{prefix}/{path}")

    def entries(self) -> list[dict[str, Any]]:
        """The table's items in the lock table, oldest first."""
        path = self.uri.replace("s3://", "s3a://")
        answer = self.dynamodb().query(
            TableName=self.lock_table,
            ConsistentRead=True,
            KeyConditionExpression="tablePath = :path",
            ExpressionAttributeValues={":path": {"S": path}},
        )
        items: list[dict[str, Any]] = answer["Items"]
        return items

    # --- readers --------------------------------------------------------------------------------
    def delta(self) -> deltalake.DeltaTable:
        """The table as deltalake sees it."""
        return deltalake.DeltaTable(self.uri, storage_options=dict(self.storage_options))

    def ids(self) -> Counter[int]:
        """How often each id is in the table, by deltalake."""
        return Counter(self.delta().to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def replayed_ids(self) -> Counter[int]:
        """The same by a plain replay of the log, without any Delta library, and pyarrow."""
        found: Counter[int] = Counter()
        objects = self.objects()
        for path in self.live(objects):
            found.update(pq.read_table(io.BytesIO(objects[path]), columns=["id"])["id"].to_pylist())
        return found

    def commits(self, objects: Mapping[str, bytes] | None = None) -> list[list[dict[str, Any]]]:
        """Actions of every version from 0; a hole in the log is an error."""
        objects = self.objects("_delta_log/") if objects is None else objects
        names = [
            p for p in objects if p.startswith("_delta_log/") and p.endswith(".json") and p.count("/") == 1
        ]
        assert sorted(names) == [f"_delta_log/{v:020d}.json" for v in range(len(names))], sorted(names)
        return [[json.loads(line) for line in objects[name].splitlines()] for name in sorted(names)]

    def live(self, objects: Mapping[str, bytes] | None = None) -> list[str]:
        """Paths of the data files that the log leaves in the table."""
        live: dict[str, None] = {}
        for actions in self.commits(objects):
            for action in actions:
                if "remove" in action:
                    live.pop(unquote(action["remove"]["path"]), None)
            for action in actions:
                if "add" in action:
                    live[unquote(action["add"]["path"])] = None
        return list(live)


@cache
def _client(service: str, endpoint_url: str) -> Any:
    return servers.boto3_client(service, endpoint_url)


def rows(*ids: int) -> pa.Table:
    """A small frame: ``id``, and a value made from it."""
    return pa.table({"id": pa.array(ids, pa.int64()), "value": [f"v{number}" for number in ids]})


def once(*ids: int) -> Counter[int]:
    """Each of these ids exactly once."""
    return Counter(ids)


def impatient(table: sw.Table, **limits: Any) -> sw.Table:
    """Ask little and wait little, where the test wants an answer to stay lost."""
    table.limits = Limits(**{"asks": 3, "attempts": 5, "lease_s": LEASE_S, "timeout_s": 20.0, **limits})
    return table


def crash_at(table: sw.Table, step: str, side: Side, data: Any, **naming: Any) -> None:
    """Append, and end at a step as a killed process would; the table object is of no use afterwards."""

    def crash() -> None:
        raise CrashError

    table.world = trap = At(table.world, step, side, crash)
    try:
        table.append(data, **naming)
    except CrashError:
        return
    raise AssertionError(f"the write never came to {step}; it went on to its end ({trap.reached=})")


def visible(counts: Iterable[Counter[int]]) -> Counter[int]:
    """What all readers agree on."""
    first, *others = counts
    assert all(other == first for other in others), (first, others)
    return first
