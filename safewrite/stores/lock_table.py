"""Creates and checks the DynamoDB table that holds lock entries, and tells two of them apart."""

from __future__ import annotations

import re
import time
import uuid
from collections import OrderedDict
from typing import Any

from safewrite.errors import InvalidInputError, Kind, StorageError
from safewrite.findings import DANGER, WARNING, Finding, Findings, Severity
from safewrite.stores.advice import cause_of, tell_denied
from safewrite.text.rendering import said

IDENTITY = {"tablePath": {"S": "safewrite:identity"}, "fileName": {"S": "identity"}}
_KEYS = {"HASH": "tablePath", "RANGE": "fileName"}
TTL_ATTRIBUTE = "expireTime"
WRITES_OF_A_COMMIT = 6
"""Writes of one Delta commit to the lock table: its entry, twice; its key in the ledger, twice; its turn, twice."""
LOW_UNITS = 10 * WRITES_OF_A_COMMIT
"""Fewer provisioned units of either kind than this are called low: ten commits a second of all tables together."""


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


_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_ARN = re.compile(r"arn:[\w-]+:dynamodb:([\w-]*):(\d*):table/([A-Za-z0-9_.-]+)")


def check_name(name: str) -> None:
    """Refuse what is not a name of a table: two spellings of one lock table would be two arbiters.

    Raises:
        InvalidInputError: an ARN, or letters that DynamoDB does not take.
    """
    arn = _ARN.match(name)
    if arn is not None:
        raise InvalidInputError(
            f"The lock table is {name!r}, an ARN. Nothing was written. Give its name, {arn[3]!r}, with AWS_REGION={arn[1]} and "
            f"credentials of the account {arn[2]}: the name is what every writer must spell alike."
        )
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"The lock table is {name!r:.300}, which is no name of a DynamoDB table (letters, digits, '_', '.', '-'; 3 to 255 of them). Nothing "
            "was written. Correct it."
        )


def describe(client: Any, name: str) -> dict[str, Any] | None:
    """DynamoDB's description of the table; None if there is none.  Raises botocore errors, and as :func:`check_name`."""
    from botocore.exceptions import ClientError

    check_name(name)
    try:
        described: dict[str, Any] = client.describe_table(TableName=name)["Table"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            tell_denied(error)
            raise
        return None
    return described


def findings(client: Any, name: str) -> Findings:
    """What is wrong with the lock table, as doctor reports it."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        described = describe(client, name)
        if described is None:
            yield Finding(
                DANGER, "lock_table_missing", f"The lock table {name!r} does not exist.",
                f"Create it with `safewrite locks create --lock-table {name}`, or name the one that the writers use.",
            )  # fmt: skip
            return
        yield from _schema(name, described)
        yield from _ttl(name, client.describe_time_to_live(TableName=name).get("TimeToLiveDescription", {}))
        yield from _capacity(name, described)
    except (BotoCoreError, ClientError) as error:
        yield _unreadable(name, error, "DescribeTable, DescribeTimeToLive, Query and Scan")


def check(client: Any, name: str) -> list[Finding]:
    """What is wrong with the lock table as a DynamoDB table, for ``locks check``: also its backups.

    Raises:
        StorageError: it cannot be described.
    """
    found = list(findings(client, name))
    for finding in found:
        if finding.code == "lock_table_unreadable":
            raise StorageError(
                f"{finding.message} Nothing was written. {finding.mend}", kind=Kind.LOCK_TABLE_UNUSABLE
            )
    if not any(finding.code == "lock_table_missing" for finding in found):
        found += _recovery(client, name)
    order = list(Severity)
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _schema(name: str, described: dict[str, Any]) -> Findings:
    keys = {part["KeyType"]: part["AttributeName"] for part in described["KeySchema"]}
    types = {part["AttributeName"]: part["AttributeType"] for part in described["AttributeDefinitions"]}
    typed = {kind: f"{key} ({types.get(key)})" for kind, key in keys.items()}
    wanted = {kind: f"{key} (S)" for kind, key in _KEYS.items()}
    if typed != wanted:
        yield Finding(
            DANGER, "lock_table_schema",
            f"The key schema of {name!r} is {_listed(typed)}, not {_listed(wanted)}: no writer can use it as a lock table.",
            "The keys of a DynamoDB table cannot be changed. Make a lock table under another name: `safewrite locks create "
            "--lock-table NAME`.",
            {"is": typed, "wanted": wanted},
        )  # fmt: skip


def _ttl(name: str, ttl: dict[str, Any]) -> Findings:
    is_on = ttl.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
    attribute = ttl.get("AttributeName")
    if is_on and attribute == TTL_ATTRIBUTE:
        return
    other = f" (it is on {attribute!r})" if is_on else ""
    first = (
        f"End it on {attribute!r} (aws dynamodb update-time-to-live), which takes up to an hour; then "
        if is_on
        else ""
    )
    yield Finding(
        WARNING, "lock_table_no_ttl",
        f"{name!r} has no TTL on '{TTL_ATTRIBUTE}'{other}: finished entries and old keys are kept for ever.",
        f"{first}`safewrite locks create --lock-table {name}` enables it.",
        {"ttl_on": attribute if is_on else None},
    )  # fmt: skip


def _capacity(name: str, described: dict[str, Any]) -> Findings:
    units = described.get("ProvisionedThroughput", {})
    reads, writes = (int(units.get(f"{kind}CapacityUnits", 0)) for kind in ("Read", "Write"))
    if 0 < min(reads, writes) < LOW_UNITS:  # both are 0 where each request is paid for
        yield Finding(
            WARNING, "lock_table_capacity",
            f"{name!r} is provisioned with {reads} read and {writes} write units. A commit writes to it {WRITES_OF_A_COMMIT} "
            f"times, so that {writes} units are about {writes // WRITES_OF_A_COMMIT} commits a second of all its tables; "
            "beyond them writers are throttled, wait, and give up in the end.",
            f"aws dynamodb update-table --table-name {name} --billing-mode PAY_PER_REQUEST; or provision {LOW_UNITS} units or "
            "more, with auto scaling.",
            {"read_units": reads, "write_units": writes},
        )  # fmt: skip


def _recovery(client: Any, name: str) -> Findings:
    """Whether a lock table that is deleted or damaged by accident can be had back."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        answer = client.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    except (BotoCoreError, ClientError) as error:
        if not _is_unknown(error):
            yield _unreadable(name, error, "DescribeContinuousBackups")
        return
    if answer.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus") != "ENABLED":
        yield Finding(
            WARNING, "lock_table_no_recovery",
            f"{name!r} has no point-in-time recovery: if it is deleted or damaged by accident, its claims and the keys of the last "
            "14 days are gone.",
            f"`safewrite locks create --lock-table {name}` enables it.",
        )  # fmt: skip


def _unreadable(name: str, error: Exception, actions: str) -> Finding:
    cause = cause_of(error)
    return Finding(
        WARNING, "lock_table_unreadable", f"The lock table {name!r} cannot be described: {said(error).rstrip('.')}.",
        f"Allow dynamodb:{actions} on it." if cause is None or cause.is_denial else cause.advice,
    )  # fmt: skip


def _is_unknown(error: Exception) -> bool:
    """Whether the service does not know such a request: not every DynamoDB is Amazon's."""
    response: dict[str, Any] = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code")) in ("UnknownOperationException", "NotImplemented")


def _listed(keys: dict[str, str]) -> str:
    return ", ".join(f"{kind} {key}" for kind, key in keys.items())


def require_right(client: Any, name: str) -> None:
    """Refuse an existing table that cannot become a lock table, before anything of it is changed.

    Raises:
        StorageError: its keys are others, its TTL is on another attribute, or it cannot be described.
    """
    for finding in findings(client, name):
        unreadable = finding.code == "lock_table_unreadable"
        if finding.severity is DANGER or unreadable or finding.details.get("ttl_on"):
            raise StorageError(
                f"{finding.message} It was left as it was. {finding.mend}", kind=Kind.LOCK_TABLE_UNUSABLE
            )


def enable_recovery(client: Any, name: str, *, wait_s: float = 60.0) -> None:
    """Let DynamoDB keep backups for a recovery to any second of the last 35 days; already enabled is fine.

    Where the service has no such thing (DynamoDB Local), nothing happens.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    limit_s = time.monotonic() + wait_s
    while True:
        try:
            client.update_continuous_backups(
                TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
        except (BotoCoreError, ClientError) as error:
            if "ContinuousBackupsUnavailable" in said(error) and time.monotonic() < limit_s:
                time.sleep(1.0)  # DynamoDB is still preparing the backups of a new table
                continue
            if not _is_unknown(error):
                cause = cause_of(error)
                raise StorageError(
                    f"Point-in-time recovery of the lock table {name!r} was not set: {said(error).rstrip('.')}. The table is there, and "
                    f"writers can use it. {cause.advice if cause else 'Run the same command again.'}",
                    kind=Kind.LOCK_TABLE_UNUSABLE,
                ) from error
        return


def enable_ttl(client: Any, name: str) -> None:
    """Let DynamoDB remove what has expired; already enabled is fine."""
    from botocore.exceptions import ClientError

    try:
        client.update_time_to_live(
            TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
        )
    except ClientError as error:
        if "already enabled" not in str(error):
            raise _unusable(client, name, error) from error


_IDENTITIES_MAX = 64
_identities: OrderedDict[tuple[int, str], tuple[Any, str]] = OrderedDict()


def identity(client: Any, name: str, *, without: str = DELTA_WITHOUT) -> str:
    """The identity of a lock table, read once per client and process: it never changes (A16).

    ``without`` says what to do instead where the table does not exist.
    """
    check_name(name)
    mark = (id(client), name)
    known = _identities.get(mark)
    if known is None:
        # The client is kept, so its id is too.
        known = _identities[mark] = (client, _read_identity(client, name, without))
        while len(_identities) > _IDENTITIES_MAX:
            _identities.popitem(last=False)
    return known[1]


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
        except (ClientError, BotoCoreError, KeyError) as error:
            if "ConditionalCheckFailed" in str(error):  # put there by another meanwhile
                continue
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
