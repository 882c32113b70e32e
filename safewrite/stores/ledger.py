"""Keeps idempotency keys as objects in the table's folder, where the object store is the only arbiter."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

from safewrite.protocol.effects import Missing, Ok, Outcome, Unknown
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.abc import ObjectStore
from safewrite.texts import said

FOLDER = "_safewrite/ledger/"
"""The underscore keeps Delta's VACUUM away (PROTOCOL.md: hidden directories)."""


class ObjectLedger:
    """INTENT is created with ``If-None-Match``; COMMITTED is an object of its own next to it."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects

    def get(self, key: str) -> Outcome:
        for state in ("committed", "doubt", "intent"):
            outcome = self._read(key, state)
            if not isinstance(outcome, Missing):
                return outcome
        return Missing()

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        return self.objects.put_if_absent(_path(record.key, "intent"), _body(record, expire_time_s))

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        state = "doubt" if record.version is None else "committed"
        return self.objects.put(_path(record.key, state), _body(record, expire_time_s))

    def _read(self, key: str, state: str) -> Outcome:
        outcome = self.objects.get(_path(key, state))
        if not isinstance(outcome, Ok):
            return outcome
        assert isinstance(outcome.value, bytes)
        try:
            fields = json.loads(outcome.value)
            fields.pop("expire_time_s")
            return Ok(LedgerRecord(**fields))
        except (ValueError, KeyError, TypeError) as error:
            return Unknown(f"unreadable ledger object: {said(error)}")


def _path(key: str, state: str) -> str:
    digest = hashlib.sha256(key.encode()).hexdigest()[:40]
    return f"{FOLDER}{digest}.{state}.json"


def _body(record: LedgerRecord, expire_time_s: int) -> bytes:
    return json.dumps(asdict(record) | {"expire_time_s": expire_time_s}).encode()
