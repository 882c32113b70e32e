"""A writer in the manner of Spark's ``S3DynamoDBLogStore``, as its sources show it: entry, HEAD, plain PUT, complete.

It swallows "exists" when it copies, and never reads back: what it believes and what is there may differ.
"""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq

from tests.integration.places import Place, rows


class SparkLike:
    """One driver; ``acked`` are the ids that it believes it has written."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.acked: list[int] = []

    def append(self, *ids: int, before_copy: Callable[[], object] = lambda: None) -> None:
        """Commit one file, trying the next version while entries are taken."""
        name, body = f"{uuid.uuid4()}.parquet", io.BytesIO()
        pq.write_table(rows(*ids), body)
        self.place.put(name, body.getvalue())
        add = {
            "path": name,
            "partitionValues": {},
            "size": body.tell(),
            "modificationTime": 0,
            "dataChange": True,
        }
        lines = [{"commitInfo": {"operation": "WRITE", "txnId": str(uuid.uuid4())}}, {"add": add}]
        actions = "".join(json.dumps(line) + "\n" for line in lines).encode()
        while not self._try(self._next_version(), actions, before_copy):
            pass
        self.acked += ids

    def _next_version(self) -> int:
        entries = self.place.entries()
        if entries and entries[-1]["complete"]["S"] == "false":
            temp = entries[-1]["tempPath"]["S"]
            self._copy(
                entries[-1]["fileName"]["S"], self.place.objects(f"_delta_log/{temp}")[f"_delta_log/{temp}"]
            )
            self._complete(entries[-1])
        return len(self.place.commits())

    def _try(self, version: int, actions: bytes, before_copy: Callable[[], object]) -> bool:
        name = f"{version:020d}.json"
        temp = f".tmp/{name}.{uuid.uuid4()}"
        self.place.put(f"_delta_log/{temp}", actions)
        item = {
            "tablePath": {"S": self.place.uri.replace("s3://", "s3a://")},
            "fileName": {"S": name},
            "tempPath": {"S": temp},
            "complete": {"S": "false"},
        }
        client = self.place.dynamodb()
        try:
            client.put_item(
                TableName=self.place.lock_table,
                Item=item,
                ConditionExpression="attribute_not_exists(fileName)",
            )
        except client.exceptions.ConditionalCheckFailedException:
            return False
        before_copy()
        self._copy(name, actions)
        self._complete(item)
        return True

    def _copy(self, name: str, actions: bytes) -> None:
        if not self.place.objects(f"_delta_log/{name}"):
            self.place.put(f"_delta_log/{name}", actions)

    def _complete(self, item: dict[str, Any]) -> None:
        done = {"complete": {"S": "true"}, "expireTime": {"N": str(int(time.time()) + 86400)}}
        self.place.dynamodb().put_item(TableName=self.place.lock_table, Item=item | done)
