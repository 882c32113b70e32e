"""Both clients of a service, the steps that the protocol asks of them, and what an outcome is known by."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from safewrite.protocol.effects import Outcome
from safewrite.protocol.values import Entry, LedgerRecord
from safewrite.stores import clients
from safewrite.stores.dynamodb import DynamoDBLocks, DynamoDBQueue
from safewrite.stores.dynamodb_ledger import DynamoDBLedger
from safewrite.stores.s3 import S3Objects
from safewrite.stores.signed import SignedDynamoDB, SignedS3

Step = Callable[[Any], Any]

ENTRY = Entry("00000000000000000007.json", ".tmp/x", complete=False)
RECORDS = [
    LedgerRecord(
        key=f"k{number}", base_version=3, fingerprint="f", version=None, in_doubt_at=None, table_id=None
    )
    for number in range(3)
]

S3_STEPS: Mapping[str, Step] = {
    "get": lambda client: S3Objects(client, "lake", "t").get("ä b+%/c"),
    "get_range": lambda client: S3Objects(client, "lake", "t").get_range("a", 2, 3),
    "get_tail": lambda client: S3Objects(client, "lake", "t").get_tail("a", 4),
    "list": lambda client: S3Objects(client, "lake", "t").list("", "a+b", 0),
    "put": lambda client: S3Objects(client, "lake", "t").put("a", b"body"),
    "put_if_absent": lambda client: S3Objects(client, "lake", "t").put_if_absent("a", b"body"),
    "delete": lambda client: S3Objects(client, "lake", "t").delete("a"),
    "delete_many": lambda client: S3Objects(client, "lake", "t").delete_many(["a", "ä b+%&<'>/c\r\n"]),
}
DYNAMODB_STEPS: Mapping[str, Step] = {
    "newest": lambda client: DynamoDBLocks(client, "locks", "s3a://lake/t").newest(),
    "entries_after": lambda client: DynamoDBLocks(client, "locks", "s3a://lake/t").entries_after("0"),
    "get_entry": lambda client: DynamoDBLocks(client, "locks", "s3a://lake/t").get_entry(ENTRY.file_name),
    "put_entry": lambda client: DynamoDBLocks(client, "locks", "s3a://lake/t").put_entry_if_absent(ENTRY),
    "complete_entry": lambda client: DynamoDBLocks(client, "locks", "s3a://lake/t").complete_entry(ENTRY, 9),
    "ledger.get": lambda client: DynamoDBLedger(client, "locks", "s3a://lake/t").get("k"),
    "ledger.intend": lambda client: DynamoDBLedger(client, "locks", "s3a://lake/t").intend(RECORDS[0], 9),
    "ledger.commit": lambda client: DynamoDBLedger(client, "locks", "s3a://lake/t").commit(RECORDS[0], 9),
    "ledger.get_many": lambda client: DynamoDBLedger(client, "locks", "s3a://lake/t").get_many(["k0", "k1"]),
    "ledger.intend_many": lambda client: DynamoDBLedger(client, "locks", "s3a://lake/t").intend_many(RECORDS, 9),
    "ledger.commit_many": lambda client: DynamoDBLedger(client, "locks", "s3a://lake/t").commit_many(RECORDS, 9),
    "queue.take": lambda client: DynamoDBQueue(client, "locks", "s3a://lake/t").take(),
    "queue.read": lambda client: DynamoDBQueue(client, "locks", "s3a://lake/t").read(),
    "queue.pass_turn": lambda client: DynamoDBQueue(client, "locks", "s3a://lake/t").pass_turn(0),
    "queue.hold_turn": lambda client: DynamoDBQueue(client, "locks", "s3a://lake/t").hold_turn(0, 1.0),
}  # fmt: skip
STEPS = {"s3": S3_STEPS, "dynamodb": DYNAMODB_STEPS}


def both(service: str, options: Mapping[str, str]) -> dict[str, Any]:
    """The client that is used, and boto3's; each with connections of its own."""
    used = clients.client(service, options=options)
    assert type(used) is (SignedS3 if service == "s3" else SignedDynamoDB)
    return {"signed": used, "boto3": clients._boto3_client(service, None, dict(options), 8)}


def known_by(outcome: Any) -> Any:
    """What the protocol and its user see of an outcome: all of it, but for the name of the exception's class and ports, and of tries of which there is one."""
    if isinstance(outcome, tuple | list):
        return [known_by(one) for one in outcome]
    if isinstance(outcome, Outcome) or is_dataclass(outcome):
        found = {one.name: known_by(getattr(outcome, one.name)) for one in fields(outcome)}  # type: ignore[arg-type]
        return type(outcome).__name__, found
    if isinstance(outcome, str):
        plain = outcome.replace(" (reached max retries: 0)", "")
        return re.sub(r"127\.0\.0\.1:\d+", "HOST", re.sub(r"^[A-Za-z]+: (?=An error occurred)", "", plain))
    return outcome
