"""Keeps idempotency keys in the lock table in DynamoDB, and what became of the keys of one call in one item."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from safewrite.protocol.effects import Busy, Exists, Missing, Ok, Outcome, Unknown
from safewrite.protocol.members import hashed, packed, unpacked
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.abc import LedgerPart
from safewrite.stores.aws import scanned
from safewrite.stores.dynamodb import ICEBERG, DynamoDBQueue, Item, read_meaning, write_meaning
from safewrite.stores.groups import Groups
from safewrite.text.rendering import said

_ABSENT = {"ConditionExpression": "attribute_not_exists(fileName)"}
RESULTS_MAX = 8
"""How many results of groups are kept that were read: a queue delivers the members of a group together again."""
KEPT_LONGER_S = 7 * 24 * 3600
"""By how much the result of a group outlives its intents: DynamoDB removes expired items days late, in any order."""


def aws_ledger(
    client: Any, lock_table_name: str, table_id: object, scope: object = None
) -> tuple[DynamoDBLedger, DynamoDBQueue]:
    """Ledger and queue of the Iceberg table with this UUID, in a lock table that Delta tables may share.

    ``scope`` is what keys are unique in, where that is a branch of the table: writers of all branches take turns, for most catalogs
    swap the whole table.

    Each key tells what became of it: snapshots expire sooner than keys, and a writer of an earlier release reads no group.
    """
    path = f"{ICEBERG}{table_id}"
    ledger = DynamoDBLedger(client, lock_table_name, f"{ICEBERG}{scope or table_id}")
    return ledger, DynamoDBQueue(client, lock_table_name, path)


class DynamoDBLedger:
    """Idempotency keys, one item each, removed by the table's TTL after the replay horizon.

    Many keys go into one transaction, which needs no other permissions than GetItem, PutItem and UpdateItem, and costs
    twice the capacity units.  With ``in_groups`` their intents name a group: one item, which is put once, tells which
    version carries which of them.  What a key's own item says of a commit counts before it, a doubt after it.
    """

    batch_max = 100  # the most items of a transaction

    def __init__(self, client: Any, table_name: str, table_path: str, *, in_groups: bool = False) -> None:
        self.client = client
        self.table_name = table_name
        self.table_path = table_path
        self.in_groups = in_groups
        self._groups = Groups()
        self._results: dict[str, dict[str, int]] = {}

    # --- one key ----------------------------------------------------------------------------------
    def get(self, key: str) -> Outcome:
        item = self._item_at(self._key(key))
        return self._told([item])[0] if isinstance(item, dict) else item

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        return self._put(self._item(record, expire_time_s), _ABSENT)

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        if record.version is not None:
            return self._put(self._item(record, expire_time_s), {})
        try:
            self.client.update_item(**self._doubt(record, expire_time_s))
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        return Ok()

    def records(self, pages_max: int) -> tuple[list[LedgerRecord], bool]:
        """The remembered keys, and whether these are all: for ``locks list``.  Raises botocore errors.

        Each key has a hash key of its own, so the whole lock table is read, at most ``pages_max`` pages of it.
        """
        pages = scanned(
            self.client,
            TableName=self.table_name,
            FilterExpression="begins_with(tablePath, :ours)",
            ExpressionAttributeValues={":ours": {"S": self._prefix}},
        )
        found: list[LedgerRecord] = []
        for number, page in enumerate(pages, start=1):
            items = page.get("Items", ())
            told = self._told(items)
            found += [
                one.value if isinstance(one, Ok) and isinstance(one.value, LedgerRecord) else _record(item)
                for item, one in zip(items, told, strict=True)
            ]
            if number == pages_max:
                return found, not page.get("LastEvaluatedKey")
        return found, True

    # --- many keys --------------------------------------------------------------------------------
    def get_many(self, names: Sequence[str]) -> tuple[Outcome, ...]:
        items = self._items_at([self._key(name) for name in names])
        if not isinstance(items, list):
            return (items,) * len(names)
        told = iter(self._told([item for item in items if item]))
        return tuple(next(told) if item else Missing() for item in items)

    def intend_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        group = uuid.uuid4().hex if self.in_groups and len(records) > 1 else None
        outcomes: dict[int, Outcome] = {}
        while left := [at for at in range(len(records)) if at not in outcomes]:
            # A transaction with a key that is known is refused whole, and says which: the others go again.
            items = [self._item(records[at], expire_time_s, group) for at in left]
            found = self._transact([self._putting(item, _ABSENT) for item in items])
            outcomes |= {at: outcome for at, outcome in zip(left, found, strict=True) if outcome is not None}
        if group is not None:
            self._groups.intended(group, {record.key: outcomes[at] for at, record in enumerate(records)})
        return tuple(outcomes[at] for at in range(len(records)))

    def commit_many(self, records: Sequence[LedgerRecord], expire_time_s: int) -> tuple[Outcome, ...]:
        parts = self._groups.parts(records)
        outcomes: dict[str, Outcome] = {}
        for part in parts:
            if part.group is not None:
                outcome = self._put_result(part, part.group, expire_time_s)
                outcomes |= dict.fromkeys((record.key for record in part.records), outcome)
        single = [part.records[0] for part in parts if part.group is None]
        if single:
            found = self._transact([self._telling(record, expire_time_s) for record in single])
            outcomes |= {
                record.key: outcome or Busy("its transaction was refused")
                for record, outcome in zip(single, found, strict=True)
            }
        return tuple(outcomes[record.key] for record in records)

    # --- groups -----------------------------------------------------------------------------------
    def _put_result(self, part: LedgerPart, group: str, expire_time_s: int) -> Outcome:
        landed: dict[int, list[str]] = {}
        for record in part.records:
            assert record.version is not None
            landed.setdefault(record.version, []).append(record.key)
        fresh = json.dumps({str(version): packed(names) for version, names in landed.items()}).encode()
        body = self._groups.body(group, fresh)  # asked again, the same is put
        item = self._group_key(group) | {
            "landed": {"S": body.decode()},
            "expireTime": {"N": str(expire_time_s + KEPT_LONGER_S)},
        }
        outcome = self._put(item, {})
        if isinstance(outcome, Ok):
            self._groups.forget(group)
        return outcome

    def _told(self, items: Sequence[Item]) -> list[Outcome]:
        """What is known of the keys of these items, with what the results of their groups say."""
        named = [None if "version" in item else item.get("group", {}).get("S") for item in items]
        results = self._read_results([group for group in dict.fromkeys(named) if group is not None])
        return [
            Ok(_record(item)) if group is None else _with_result(_record(item), results[group])
            for item, group in zip(items, named, strict=True)
        ]

    def _read_results(self, groups: Sequence[str]) -> dict[str, dict[str, int] | Outcome]:
        """The version of each hashed key, by group; an outcome where it is not known, ``Missing`` where there is none."""
        found: dict[str, dict[str, int] | Outcome] = {
            group: self._results[group] for group in groups if group in self._results
        }
        unread = [group for group in groups if group not in found]
        for start in range(0, len(unread), self.batch_max):
            part = unread[start : start + self.batch_max]
            items = self._items_at([self._group_key(group) for group in part])
            for at, group in enumerate(part):
                if not isinstance(items, list):
                    found[group] = items
                    continue
                item = items[at]
                found[group] = result = Missing() if item is None else _landed(item)
                if isinstance(result, dict):
                    if len(self._results) >= RESULTS_MAX:
                        self._results.clear()
                    self._results[group] = result  # it never changes
        return found

    # --- items ------------------------------------------------------------------------------------
    def _item_at(self, key: Item) -> Item | Outcome:
        try:
            answer = self.client.get_item(TableName=self.table_name, Key=key, ConsistentRead=True)
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return read_meaning(error, self.table_name)
        item: Item | None = answer.get("Item")
        return item or Missing()

    def _items_at(self, keys: Sequence[Item]) -> list[Item | None] | Outcome:
        if len(keys) == 1:
            item = self._item_at(keys[0])
            if isinstance(item, dict):
                return [item]
            return [None] if isinstance(item, Missing) else item
        gets = [{"Get": {"TableName": self.table_name, "Key": key}} for key in keys]
        try:
            answers = self.client.transact_get_items(TransactItems=gets)["Responses"]
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return read_meaning(error, self.table_name)
        return [answer.get("Item") for answer in answers]

    def _transact(self, requests: Sequence[Item]) -> list[Outcome | None]:
        """Write items together; None stands for one that was not written because of others."""
        try:
            self.client.transact_write_items(TransactItems=list(requests))
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            reasons = _reasons(error)
            if len(reasons) == len(requests) and any(reasons):
                return [_reason(reason) for reason in reasons]
            return [write_meaning(error, self.table_name)] * len(requests)
        return [Ok()] * len(requests)

    def _put(self, item: Item, condition: dict[str, str]) -> Outcome:
        try:
            self.client.put_item(TableName=self.table_name, Item=item, **condition)
        except Exception as error:  # noqa: BLE001 - every failure has a meaning
            return write_meaning(error, self.table_name)
        return Ok()

    def _putting(self, item: Item, condition: dict[str, str]) -> Item:
        return {"Put": {"TableName": self.table_name, "Item": item, **condition}}

    def _telling(self, record: LedgerRecord, expire_time_s: int) -> Item:
        if record.version is None:
            return {"Update": self._doubt(record, expire_time_s)}
        return self._putting(self._item(record, expire_time_s), {})

    def _doubt(self, record: LedgerRecord, expire_time_s: int) -> Item:
        """The update that leaves what an item says of a commit, or of the group that will tell of it."""
        item = self._item(record, expire_time_s)
        key = {name: item.pop(name) for name in ("tablePath", "fileName")}
        names = {f"#n{at}": name for at, name in enumerate(item)}
        return {
            "TableName": self.table_name,
            "Key": key,
            "UpdateExpression": "SET " + ", ".join(f"#n{at} = :v{at}" for at in range(len(item))),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {f":v{at}": value for at, value in enumerate(item.values())},
        }

    def _item(self, record: LedgerRecord, expire_time_s: int, group: str | None = None) -> Item:
        item = self._key(record.key) | {
            "key": {"S": record.key},
            "baseVersion": {"N": str(record.base_version)},
            "fingerprint": {"S": record.fingerprint},
            "expireTime": {"N": str(expire_time_s)},
        }
        if record.version is not None:
            item["version"] = {"N": str(record.version)}
        if record.in_doubt_at is not None:
            item["inDoubtAt"] = {"N": str(record.in_doubt_at)}
        if record.table_id is not None:
            item["tableId"] = {"S": record.table_id}
        if group is not None:
            item["group"] = {"S": group}
        return item

    def _key(self, key: str) -> Item:
        digest = hashlib.sha256(key.encode()).hexdigest()[:40]
        return {"tablePath": {"S": f"{self._prefix}{digest}"}, "fileName": {"S": "ledger"}}

    def _group_key(self, group: str) -> Item:
        return {"tablePath": {"S": f"safewrite:group:{self.table_path}:{group}"}, "fileName": {"S": "ledger"}}

    @property
    def _prefix(self) -> str:
        return f"safewrite:ledger:{self.table_path}:"


def _record(item: Item) -> LedgerRecord:
    version, doubt = item.get("version", {}).get("N"), item.get("inDoubtAt", {}).get("N")
    return LedgerRecord(
        key=item["key"]["S"],
        base_version=int(item["baseVersion"]["N"]),
        fingerprint=item["fingerprint"]["S"],
        version=int(version) if version else None,
        in_doubt_at=int(doubt) if doubt else None,
        table_id=item.get("tableId", {}).get("S"),
    )


def _landed(item: Item) -> dict[str, int] | Outcome:
    try:
        versions = json.loads(item["landed"]["S"])
        return {one: int(version) for version, names in versions.items() for one in unpacked(names)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Unknown(f"unreadable result of a group in the ledger: {said(error)}")


def _with_result(record: LedgerRecord, result: dict[str, int] | Outcome) -> Outcome:
    if not isinstance(result, dict):
        return Ok(record) if isinstance(result, Missing) else result
    version = result.get(hashed(record.key))
    return Ok(record if version is None else replace(record, version=version, in_doubt_at=None))


def _reasons(error: Exception) -> list[str]:
    """Why each item of a transaction was refused, "" where it was not; [] for other errors."""
    # Of an error of the connection it is there, and None.
    response = getattr(error, "response", None) or {}
    if response.get("Error", {}).get("Code") != "TransactionCanceledException":
        return []
    codes = [str(one.get("Code") or "None") for one in response.get("CancellationReasons", ())]
    return ["" if code == "None" else code for code in codes]


def _reason(code: str) -> Outcome | None:
    if code in {"", "ConditionalCheckFailed"}:
        return Exists() if code else None
    throttled = code in {"ThrottlingError", "ProvisionedThroughputExceeded"}
    return Busy(f"refused in a transaction: {code}", throttled=throttled)
