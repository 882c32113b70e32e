"""Keeps commit entries of a Delta table, and the ticket queue of any table, in the lock table in DynamoDB.

Entries have the schema of Delta's ``S3DynamoDBLogStore`` (``tablePath`` HASH, ``fileName`` RANGE,
``tempPath``, ``complete`` as text, ``expireTime``), under the table path as Spark spells it
(``s3a://bucket/path``): another spelling would be another lock domain (A15).  Ledger and queue live
in the same DynamoDB table under hash keys of their own, where no Spark query looks.  An Iceberg table has
these two only, under ``iceberg:`` and its UUID: its catalog arbitrates.
"""

from __future__ import annotations

from typing import Any

from safewrite.protocol.effects import Failed, Missing, Ok, Outcome
from safewrite.protocol.values import Entry, Queue
from safewrite.stores import call_limit
from safewrite.stores.aws import classify_error

Item = dict[str, Any]

_ABSENT = {"ConditionExpression": "attribute_not_exists(fileName)"}

ICEBERG = "iceberg:"
"""The start of an Iceberg table's path in a lock table; no Delta table's path has it."""
QUEUE = "safewrite:lease:"
"""The start of the hash key of a table's ticket queue; the table's path follows."""


def spark_path(uri: str) -> str:
    """A table's address as Spark's log store spells it: ``s3a://bucket/path``, no slash at the end."""
    scheme, _, rest = uri.partition("://")
    bucket, *parts = [part for part in rest.split("/") if part]
    return "/".join(["s3a:/" if scheme.startswith("s3") else f"{scheme}:/", bucket, *parts])


class DynamoDBLocks:
    """Commit entries; every read is consistent, every create conditional (A13, A14).

    deltalake before 1.6 spells the table path as its user does, mostly ``s3://...``: see ``respell``.
    """

    def __init__(self, client: Any, table_name: str, table_path: str) -> None:
        self.client = client
        self.table_name = table_name
        self.table_path = table_path

    @property
    def other_path(self) -> str:
        """The other spelling of the path: ``s3://`` for ``s3a://`` and the reverse."""
        scheme, separator, rest = self.table_path.partition("://")
        return {"s3a": "s3", "s3": "s3a"}.get(scheme, scheme) + separator + rest

    def respell(self, table_path: str) -> None:
        """Claim versions under this spelling from now on."""
        self.table_path = table_path

    def newest(self, *, other_spelling: bool = False) -> Outcome:
        try:
            answer = self.client.query(
                TableName=self.table_name,
                ConsistentRead=True,
                KeyConditionExpression="tablePath = :path",
                ExpressionAttributeValues={
                    ":path": {"S": self.other_path if other_spelling else self.table_path}
                },
                ScanIndexForward=False,
                Limit=1,
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return read_meaning(error, self.table_name)
        items = answer.get("Items", [])
        return Ok(read_entry(items[0])) if items else Missing()

    def entries_after(self, file_name: str) -> Outcome:
        try:
            return Ok(tuple(self.entries(file_name)))
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return read_meaning(error, self.table_name)

    def get_entry(self, file_name: str) -> Outcome:
        try:
            answer = self.client.get_item(
                TableName=self.table_name, Key=self._key(file_name), ConsistentRead=True
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return read_meaning(error, self.table_name)
        item = answer.get("Item")
        return Ok(read_entry(item)) if item else Missing()

    def put_entry_if_absent(self, entry: Entry) -> Outcome:
        item = self._key(entry.file_name) | {
            "tempPath": {"S": entry.temp_path},
            "complete": {"S": "true" if entry.complete else "false"},
        }
        if entry.expire_time_s is not None:
            item["expireTime"] = {"N": str(entry.expire_time_s)}
        ours = {"tableId": entry.table_id, "digest": entry.digest, "summary": entry.summary}
        item |= {name: {"S": value} for name, value in ours.items() if value is not None}
        try:
            self.client.put_item(
                TableName=self.table_name, Item=item, ConditionExpression="attribute_not_exists(fileName)"
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        return Ok()

    def complete_entry(self, entry: Entry, expire_time_s: int) -> Outcome:
        try:
            self.client.update_item(
                TableName=self.table_name,
                Key=self._key(entry.file_name),
                UpdateExpression="SET complete = :true, expireTime = :expire",
                ConditionExpression="tempPath = :temp",
                ExpressionAttributeValues={
                    ":true": {"S": "true"},
                    ":expire": {"N": str(expire_time_s)},
                    ":temp": {"S": entry.temp_path},
                },
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        return Ok()

    def entries(self, after: str = "") -> list[Entry]:
        """Entries of this table after a file name, oldest first.  Raises botocore errors."""
        return [read_entry(item) for item in self.items(after)]

    def items(self, after: str = "") -> list[Item]:
        """The same as DynamoDB holds them."""
        request: Item = {
            "TableName": self.table_name,
            "ConsistentRead": True,
            "KeyConditionExpression": "tablePath = :path AND fileName > :after",
            "ExpressionAttributeValues": {":path": {"S": self.table_path}, ":after": {"S": after or " "}},
        }
        found: list[Item] = []
        while True:
            call_limit.check()
            answer = self.client.query(**request)
            found += answer.get("Items", ())
            if not answer.get("LastEvaluatedKey"):
                return found
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def remove(self, entry: Entry) -> None:
        """Delete an entry of a dropped table; for ``locks clear``.  Raises botocore errors."""
        self.client.delete_item(TableName=self.table_name, Key=self._key(entry.file_name))

    def _key(self, file_name: str) -> Item:
        return {"tablePath": {"S": self.table_path}, "fileName": {"S": file_name}}


class DynamoDBQueue:
    """The ticket queue: two counters in one item."""

    def __init__(self, client: Any, table_name: str, table_path: str) -> None:
        self.client = client
        self.table_name = table_name
        self.item_key: Item = {"tablePath": {"S": f"{QUEUE}{table_path}"}, "fileName": {"S": "queue"}}

    def take(self) -> Outcome:
        try:
            answer = self.client.update_item(
                TableName=self.table_name,
                Key=self.item_key,
                UpdateExpression="SET nextTicket = if_not_exists(nextTicket, :zero) + :one, "
                "serving = if_not_exists(serving, :zero)",
                ExpressionAttributeValues={":zero": {"N": "0"}, ":one": {"N": "1"}},
                ReturnValues="ALL_NEW",
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        queue = read_queue(answer["Attributes"])
        return Ok((queue.next - 1, queue))

    def read(self) -> Outcome:
        try:
            answer = self.client.get_item(TableName=self.table_name, Key=self.item_key, ConsistentRead=True)
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return read_meaning(error, self.table_name)
        item = answer.get("Item")
        return Ok(read_queue(item)) if item else Missing()

    def pass_turn(self, ticket: int) -> Outcome:
        try:
            self.client.update_item(
                TableName=self.table_name,
                Key=self.item_key,
                UpdateExpression="SET serving = :after",
                ConditionExpression="serving = :ticket",
                ExpressionAttributeValues={":after": {"N": str(ticket + 1)}, ":ticket": {"N": str(ticket)}},
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        return Ok()

    def hold_turn(self, ticket: int, hold_s: float) -> Outcome:
        try:
            self.client.update_item(
                TableName=self.table_name,
                Key=self.item_key,
                # With its ticket: a writer of an earlier version that ends a turn leaves what it does not know.
                UpdateExpression="SET holdSeconds = :hold, holdTicket = :ticket",
                ConditionExpression="serving = :ticket",
                ExpressionAttributeValues={":hold": {"N": f"{hold_s:.3f}"}, ":ticket": {"N": str(ticket)}},
            )
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        return Ok()


def read_entry(item: Item) -> Entry:
    """A commit entry as DynamoDB holds it."""
    expire = item.get("expireTime", {}).get("N")
    return Entry(
        file_name=item["fileName"]["S"],
        temp_path=item["tempPath"]["S"],
        complete=item.get("complete", {}).get("S") == "true",
        expire_time_s=int(expire) if expire else None,
        table_id=item.get("tableId", {}).get("S"),
        digest=item.get("digest", {}).get("S"),
        summary=item.get("summary", {}).get("S"),
    )


def read_queue(item: Item) -> Queue:
    """A ticket queue as DynamoDB holds it."""
    is_held = item.get("holdTicket") == item["serving"]
    hold_s = float(item.get("holdSeconds", {}).get("N", 0)) if is_held else 0.0
    return Queue(serving=int(item["serving"]["N"]), next=int(item["nextTicket"]["N"]), hold_s=hold_s)


def read_meaning(error: Exception, table_name: str) -> Outcome:
    """What an error of a read means."""
    return _named(classify_error(error, write=False), table_name)


def write_meaning(error: Exception, table_name: str) -> Outcome:
    """What an error of a write means: performed, not performed, or unknown."""
    return _named(classify_error(error, write=True), table_name)


def _named(outcome: Outcome, table_name: str) -> Outcome:
    if isinstance(outcome, Failed) and "ResourceNotFound" in outcome.detail:
        return Failed(
            f"the DynamoDB table {table_name!r} does not exist",
            f"Make it: `safewrite locks create --lock-table {table_name}`; or check its name, AWS_REGION and the account.",
        )
    return outcome
