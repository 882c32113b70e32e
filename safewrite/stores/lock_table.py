"""Creates and checks the DynamoDB table that holds lock entries, and tells two of them apart."""

from __future__ import annotations

import time
import uuid
from typing import Any

from safewrite.errors import Kind, StorageError
from safewrite.findings import DANGER, WARNING, Finding, Findings
from safewrite.stores.advice import cause_of
from safewrite.texts import said

IDENTITY = {"tablePath": {"S": "safewrite:identity"}, "fileName": {"S": "identity"}}
_KEYS = {"HASH": "tablePath", "RANGE": "fileName"}


DELTA_WITHOUT = "open the table with arbiter='object-store' if no lock table guards it"
"""What a user of a Delta table without a lock table can do instead."""
ICEBERG_WITHOUT = "leave lock_table= out: an Iceberg table's catalog arbitrates"


def ensure(client: Any, name: str, *, wait_s: float = 60.0) -> bool:
    """Create the lock table if it does not exist: on-demand billing, TTL on ``expireTime``.

    The schema is the one that Delta's ``S3DynamoDBLogStore`` expects.  Returns True if it was made.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        if describe(client, name) is not None:
            return False
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in _KEYS.values()],
            KeySchema=[{"AttributeName": n, "KeyType": kind} for kind, n in _KEYS.items()],
            BillingMode="PAY_PER_REQUEST",
        )
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceInUseException":  # made by another meanwhile
            raise _unusable(client, name, error) from error
    except BotoCoreError as error:
        raise _unusable(client, name, error) from error
    _wait_active(client, name, wait_s)
    enable_ttl(client, name)
    return True


def describe(client: Any, name: str) -> dict[str, Any] | None:
    """DynamoDB's description of the table; None if there is none.  Raises botocore errors."""
    try:
        described: dict[str, Any] = client.describe_table(TableName=name)["Table"]
    except client.exceptions.ResourceNotFoundException:
        return None
    return described


def problems(client: Any, name: str) -> list[str]:
    """What is wrong with the lock table, in sentences; for ``doctor``.  Raises botocore errors."""
    described = describe(client, name)
    if described is None:
        return [
            f"The lock table {name!r} does not exist; `safewrite locks create --lock-table {name}` makes it."
        ]
    found = []
    keys = {part["KeyType"]: part["AttributeName"] for part in described["KeySchema"]}
    if keys != _KEYS:
        found.append(f"The key schema of {name!r} is {keys}, not {_KEYS}: Delta's log store cannot share it.")
    ttl = client.describe_time_to_live(TableName=name).get("TimeToLiveDescription", {})
    if ttl.get("TimeToLiveStatus") not in ("ENABLED", "ENABLING") or ttl.get("AttributeName") != "expireTime":
        found.append(f"{name!r} has no TTL on 'expireTime': finished entries and old keys are kept for ever.")
    return found


def findings(client: Any, name: str) -> Findings:
    """What is wrong with the lock table, as doctor reports it."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        texts = problems(client, name)
    except (BotoCoreError, ClientError) as error:
        yield Finding(
            WARNING, "lock_table_unreadable", f"The lock table {name!r} cannot be described: {said(error)}.",
            "Allow dynamodb:DescribeTable, DescribeTimeToLive, Query and Scan on it.",
        )  # fmt: skip
        return
    for text in texts:
        if "TTL" in text:
            mend = f"safewrite locks create --lock-table {name} enables it."
            yield Finding(WARNING, "lock_table_no_ttl", text, mend)
        else:
            code = "lock_table_missing" if "does not exist" in text else "lock_table_schema"
            yield Finding(
                DANGER, code, text,
                f"Create it: safewrite locks create --lock-table {name} (a wrong one must be renamed).",
            )  # fmt: skip


def enable_ttl(client: Any, name: str) -> None:
    """Let DynamoDB remove what has expired; already enabled is fine."""
    from botocore.exceptions import ClientError

    try:
        client.update_time_to_live(
            TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expireTime"}
        )
    except ClientError as error:
        if "already enabled" not in str(error):
            raise _unusable(client, name, error) from error


_identities: dict[tuple[int, str], tuple[Any, str]] = {}


def identity(client: Any, name: str, *, without: str = DELTA_WITHOUT) -> str:
    """The identity of a lock table, read once per client and process: it never changes (A16).

    ``without`` says what to do instead where there is no such table.
    """
    mark = (id(client), name)
    if mark not in _identities:
        _identities[mark] = (
            client,
            _read_identity(client, name, without),
        )  # the client is kept, so its id is too
    return _identities[mark][1]


def _read_identity(client: Any, name: str, without: str) -> str:
    """``region/name/unique``: the unique part is an item that the first user put there (A16).

    Raises:
        StorageError: the lock table does not exist or does not answer.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    for attempt in range(5):
        try:
            item = client.get_item(TableName=name, Key=IDENTITY, ConsistentRead=True).get("Item")
            if item is None:
                fresh = IDENTITY | {"unique": {"S": uuid.uuid4().hex[:12]}}
                client.put_item(
                    TableName=name, Item=fresh, ConditionExpression="attribute_not_exists(fileName)"
                )
                item = client.get_item(TableName=name, Key=IDENTITY, ConsistentRead=True)["Item"]
            return f"{client.meta.region_name}/{name}/{item['unique']['S']}"
        except client.exceptions.ConditionalCheckFailedException:
            continue
        except (ClientError, BotoCoreError, KeyError) as error:
            cause = cause_of(error)
            asks_max = 5 if cause is None or cause.asks_max is None else cause.asks_max
            if attempt + 1 >= asks_max or "ResourceNotFound" in str(error):
                raise _unusable(client, name, error, without) from error
            time.sleep(0.05 * 2**attempt)
    raise _unusable(client, name, "its identity item cannot be read")


def _wait_active(client: Any, name: str, wait_s: float) -> None:
    limit_s = time.monotonic() + wait_s
    while (describe(client, name) or {}).get("TableStatus") != "ACTIVE":
        if time.monotonic() > limit_s:
            raise _unusable(client, name, f"it did not become active within {wait_s:.0f} s")
        time.sleep(0.2)


def _unusable(client: Any, name: str, why: object, without: str = DELTA_WITHOUT) -> StorageError:
    """The error for a lock table that cannot be used.

    It proposes another arbiter only where the table does not exist.  Writers that bypass an existing one
    because their credentials or network failed would lose rows.
    """
    cause = cause_of(why) if isinstance(why, BaseException) else None
    text = said(why) if isinstance(why, BaseException) else str(why)
    if "ResourceNotFound" in text:
        advice = (
            f"Create it with `safewrite locks create --lock-table {name}`, check AWS_REGION, or {without}."
        )
    elif cause is not None:
        advice = cause.advice
    else:
        advice = (
            f"Check that DynamoDB answers at {client.meta.endpoint_url} in region {client.meta.region_name} "
            "(AWS_ENDPOINT_URL_DYNAMODB, AWS_REGION)."
        )
    return StorageError(
        f"The DynamoDB lock table {name!r} cannot be used: {text.rstrip('.')}. Nothing was written. {advice}",
        kind=Kind.LOCK_TABLE_UNUSABLE,
    )
