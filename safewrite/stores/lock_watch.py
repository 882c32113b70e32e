"""Looks at what is open in a lock table: unfinished claims of versions, and turns in the queues of writers.

Of tables that are named it also shows the writes that wait to share a commit, which are objects under its address.

It writes nothing, and no writer decides anything by it.  The lock table has no times and no names of writers.  A
claim's age is that of its temp file, by the store's own clock, and its owner stands in the commit that the temp file
holds.  A queue is two counters: only a watcher that looks twice can tell that a turn does not move.
"""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from safewrite.arguments.options import Address, parse_address
from safewrite.errors import InvalidInputError, StorageError
from safewrite.protocol.effects import Ok
from safewrite.protocol.member_queue import FOLDER, waiting
from safewrite.protocol.values import Entry
from safewrite.stores.advice import cause_of
from safewrite.stores.aws import ServerClock, scanned
from safewrite.stores.dynamodb import (
    ICEBERG,
    QUEUE,
    DynamoDBLocks,
    DynamoDBQueue,
    read_entry,
    read_queue,
    spark_path,
)
from safewrite.stores.s3 import S3Objects
from safewrite.text.rendering import said

PAGES_MAX = 200
"""How many pages (of 1 MB) of a lock table one look reads at most."""
TEMPS_MAX = 500
"""How many temp files one look reads at most; claims beyond them have no age until they were watched for a while."""
HEAD_BYTES = 65_536
"""How much of a temp file is read: ``commitInfo``, which names the writer, is the first line of most commits."""
_UNFINISHED = (
    "(attribute_exists(tempPath) AND NOT (complete = :true AND attribute_exists(expireTime))) "
    "OR begins_with(tablePath, :queue)"
)


@dataclass(frozen=True, slots=True)
class StuckClaim:
    """A version that was claimed, and whose claim is not finished.

    ``age_s`` is None where nothing tells it; ``stuck``: it is older than what was asked for, or its temp file is gone.
    ``owner`` is the writer's engine, ``keys`` its writes, as the temp file has them.
    """

    table: str
    version: int
    temp_path: str
    age_s: float | None = None
    owner: str | None = None
    keys: tuple[str, ...] = ()
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A queue in which writers wait; ``unmoved_s``: since when this watcher has seen the same turn (None: one look)."""

    table: str
    serving: int
    waiting: int
    unmoved_s: float | None = None
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class WaitingMembers:
    """Writes that wait where writers of a table share commits; ``age_s`` is that of the oldest, by the store's clock."""

    table: str
    waiting: int
    age_s: float
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found; ``whole`` is False if the lock table was too large to be read to its end."""

    claims: tuple[StuckClaim, ...]
    turns: tuple[WaitingTurn, ...]
    whole: bool = True
    shared: tuple[WaitingMembers, ...] = ()

    @property
    def stuck_entries(self) -> int:
        """Claims that are stuck."""
        return sum(claim.stuck for claim in self.claims)

    @property
    def stuck_turns(self) -> int:
        """Queues whose turn did not move."""
        return sum(turn.stuck for turn in self.turns)

    @property
    def stuck_shared(self) -> int:
        """Queues of shared commits in which a write was left behind."""
        return sum(queue.stuck for queue in self.shared)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        counts = {"stuck_entries": self.stuck_entries, "stuck_turns": self.stuck_turns, "whole": self.whole}
        return counts | {
            "claims": [asdict(one) for one in self.claims],
            "turns": [asdict(one) for one in self.turns],
            "shared": [asdict(one) for one in self.shared],
        }


class Watcher:
    """Looks at a lock table again and again, and remembers since when it has seen what is open.

    ``tables`` are addresses (``s3://bucket/path``, or ``iceberg:UUID``), each read by its keys; without them the whole
    lock table is scanned.  ``s3`` tells ages and owners; without rights on the buckets they stay unknown.
    """

    def __init__(
        self,
        dynamodb: Any,
        lock_table: str,
        *,
        s3: Any,
        tables: Sequence[str] = (),
        older_than_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.dynamodb = dynamodb
        self.lock_table = lock_table
        self.s3 = s3
        self.paths = [path for table in tables for path in _paths(table)]
        self.addresses = [parse_address(table) for table in tables if not table.startswith(ICEBERG)]
        self.older_than_s = older_than_s
        self.monotonic = monotonic
        self._first_seen_s: dict[object, float] = {}

    def look(self) -> Look:
        """Read what is open now.

        Raises:
            StorageError: the lock table cannot be read.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            items, whole = (list(self._asked()), True) if self.paths else self._scanned()
            now_s = self.monotonic()
            entries = [(item["tablePath"]["S"], read_entry(item)) for item in items if _is_entry(item)]
            unfinished = [(path, entry) for path, entry in entries if not entry.settled]
            looked = [self._claim(path, entry) for path, entry in unfinished[:TEMPS_MAX]]
            claims = [claim for claim in looked if claim is not None]
            claims += [
                StuckClaim(path, entry.version, entry.temp_path) for path, entry in unfinished[TEMPS_MAX:]
            ]
        except (BotoCoreError, ClientError) as error:
            cause = cause_of(error)
            raise StorageError(
                f"The lock table {self.lock_table!r} cannot be read: {said(error).rstrip('.')}. Nothing was written. "
                + (
                    cause.advice
                    if cause
                    else "Check its name, the region and the permissions (dynamodb:Query, Scan, GetItem)."
                )
            ) from error
        turns = [
            WaitingTurn(path, queue.serving, queue.next - queue.serving)
            for path, queue in ((_table_of(item), read_queue(item)) for item in items if "serving" in item)
            if queue.next > queue.serving
        ]
        before = self._first_seen_s
        seen: list[StuckClaim | WaitingTurn] = [*claims, *turns]
        self._first_seen_s = {_mark(one): before.get(_mark(one), now_s) for one in seen}
        return Look(
            tuple(self._aged(claim, now_s) for claim in claims),
            tuple(self._held(turn, now_s) for turn in turns),
            whole,
            tuple(found for address in self.addresses if (found := self._shared(address)) is not None),
        )

    # --- reading --------------------------------------------------------------------------------------
    def _asked(self) -> Iterator[dict[str, Any]]:
        """The items of the tables that were named."""
        for path in self.paths:
            if not path.startswith(ICEBERG):
                yield from DynamoDBLocks(self.dynamodb, self.lock_table, path).items()
            key = DynamoDBQueue(self.dynamodb, self.lock_table, path).item_key
            answer = self.dynamodb.get_item(TableName=self.lock_table, Key=key, ConsistentRead=True)
            if "Item" in answer:
                yield answer["Item"]

    def _scanned(self) -> tuple[list[dict[str, Any]], bool]:
        """What is open in the whole lock table, and whether it was read to its end."""
        pages = scanned(
            self.dynamodb,
            TableName=self.lock_table,
            ConsistentRead=True,
            FilterExpression=_UNFINISHED,
            ExpressionAttributeValues={":true": {"S": "true"}, ":queue": {"S": QUEUE}},
        )
        found: list[dict[str, Any]] = []
        for number, page in enumerate(pages, start=1):
            found += page.get("Items", ())
            if number == PAGES_MAX:
                return found, not page.get("LastEvaluatedKey")
        return found, True

    def _shared(self, address: Address) -> WaitingMembers | None:
        """The queue in which writers of a table share commits; None if it is empty, or may not be listed."""
        clock = ServerClock()
        answer = S3Objects(self.s3, address.bucket, address.prefix, clock=clock).list(FOLDER, "", 0)
        there = waiting(answer) if isinstance(answer, Ok) else []
        if not there:
            return None
        age_s = max(0.0, (clock() - there[0].modified_ms) / 1000)
        return WaitingMembers(address.uri, len(there), age_s, age_s >= self.older_than_s)

    def _claim(self, path: str, entry: Entry) -> StuckClaim | None:
        """A claim with what its temp file tells; None if it was finished meanwhile."""
        claim = StuckClaim(path, entry.version, entry.temp_path)
        bucket, _, prefix = path.partition("://")[2].partition("/")
        key = "/".join(part for part in (prefix, "_delta_log", entry.temp_path) if part)
        try:
            answer = self.s3.get_object(Bucket=bucket, Key=key, Range=f"bytes=0-{HEAD_BYTES - 1}")
            head = answer["Body"].read()
        except Exception as error:  # noqa: BLE001 - no rights, no such store: the age stays unknown
            if not _is_gone(error):
                return claim
            # Its owner removes the temp file after it has finished the claim.
            again = self.dynamodb.get_item(
                TableName=self.lock_table,
                Key={"tablePath": {"S": path}, "fileName": {"S": entry.file_name}},
                ConsistentRead=True,
            )
            return (
                replace(claim, stuck=True)
                if "Item" in again and not read_entry(again["Item"]).settled
                else None
            )
        owner, keys = _named_in(head)
        return replace(claim, age_s=_age_s(answer), owner=owner, keys=keys)

    # --- what only a second look tells ------------------------------------------------------------------
    def _aged(self, claim: StuckClaim, now_s: float) -> StuckClaim:
        ages = [age_s for age_s in (claim.age_s, self._watched_s(claim, now_s)) if age_s is not None]
        if not ages:
            return claim
        return replace(claim, age_s=max(ages), stuck=claim.stuck or max(ages) >= self.older_than_s)

    def _held(self, turn: WaitingTurn, now_s: float) -> WaitingTurn:
        unmoved_s = self._watched_s(turn, now_s)
        stuck = unmoved_s is not None and unmoved_s >= self.older_than_s
        return replace(turn, unmoved_s=unmoved_s, stuck=stuck)

    def _watched_s(self, one: StuckClaim | WaitingTurn, now_s: float) -> float | None:
        """For how long this watcher has seen it; None at the first look."""
        first_s = self._first_seen_s[_mark(one)]
        return now_s - first_s if first_s < now_s else None


def _mark(one: StuckClaim | WaitingTurn) -> tuple[object, ...]:
    """What stays the same of a claim or a turn for as long as it is the same one."""
    if isinstance(one, StuckClaim):
        return one.table, one.version, one.temp_path
    return one.table, one.serving


def _is_entry(item: dict[str, Any]) -> bool:
    """Whether an item is a claim of a table's version; scratch entries of a probe are none."""
    name = str(item["fileName"]["S"]).removesuffix(".json")
    return "tempPath" in item and name.isdigit() and not str(item["tablePath"]["S"]).startswith("safewrite:")


def _paths(table: str) -> tuple[str, ...]:
    """The hash keys under which a table's entries and its queue may be."""
    if table.startswith(ICEBERG):
        return (table,)
    address = parse_address(table)
    if not address.is_s3:
        raise InvalidInputError(
            f"{table} is a local path, which has no lock table. Nothing was written. Name tables on S3, or iceberg:UUID."
        )
    path = spark_path(address.uri)
    return (path, "s3" + path.removeprefix("s3a"))


def _table_of(item: dict[str, Any]) -> str:
    return str(item["tablePath"]["S"]).removeprefix(QUEUE)


def _is_gone(error: Exception) -> bool:
    response: dict[str, Any] = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code")) in ("NoSuchKey", "404")


def _age_s(answer: dict[str, Any]) -> float | None:
    """The age of an object by its server's clock alone; whole seconds."""
    with suppress(KeyError, TypeError, ValueError):
        headers = answer["ResponseMetadata"]["HTTPHeaders"]
        now, written = (
            email.utils.parsedate_to_datetime(headers[name]) for name in ("date", "last-modified")
        )
        return max(0.0, (now - written).total_seconds())
    return None


def _named_in(head: bytes) -> tuple[str | None, tuple[str, ...]]:
    """The engine that wrote a commit, and the keys of safewrite's writes in it, as its first lines say."""
    for line in head.splitlines():
        with suppress(ValueError, AttributeError, KeyError, TypeError, RecursionError):
            info = json.loads(line)["commitInfo"]
            owner = info.get("engineInfo") or info.get("clientVersion")
            writes = info.get("safewrite", {}).get("writes", ())
            return (None if owner is None else str(owner)), tuple(str(write["key"]) for write in writes)
    return None, ()
