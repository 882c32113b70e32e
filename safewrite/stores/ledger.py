"""Keeps idempotency keys as objects in the table's folder, where the object store is the only arbiter."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from safewrite.protocol.effects import Missing, Ok, Outcome, Unknown
from safewrite.protocol.keys import MARK
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.abc import LastingStore, LedgerPart, ObjectStore
from safewrite.stores.groups import Groups
from safewrite.text.rendering import said

FOLDER = "_safewrite/ledger/"
"""The underscore keeps Delta's VACUUM away (PROTOCOL.md: hidden directories)."""
RESULTS_MAX = 8
"""How many results are kept that were read: a queue delivers the members of a group together again."""
LISTED_MAX = 10_000
"""Of how many objects of a ledger the newest are looked for."""


class ObjectLedger:
    """INTENT is created with ``If-None-Match``; COMMITTED is an object of its own next to it.

    Intents of one call may name a group instead: then one object, which is never changed, tells what became of all
    of them.  A member's own COMMITTED counts before it, and a doubt after it.
    """

    group_max = 100  # a repeat of one key reads what became of all

    def __init__(self, objects: ObjectStore, *, folder: str = FOLDER) -> None:
        self.objects = objects
        self.folder = folder
        self._groups = Groups()
        self._results: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> Outcome:
        if key == MARK and isinstance(self.objects, LastingStore):
            # No object of the ledger is older: where the store keeps this one, its rules have taken none.
            return _record(_fields(self.objects.get_lasting(self.path_of(key))))
        committed = self._read(key, "committed")
        if not isinstance(committed, Missing):
            return committed
        intent = self._fields(self._path(key, "intent"))
        if isinstance(intent, dict) and "group" in intent:
            told = self._told(intent["group"], key)
            if not isinstance(told, Missing):
                return told
        doubt = self._read(key, "doubt")
        return doubt if not isinstance(doubt, Missing) else _record(intent)

    def intend(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        return self.objects.put_if_absent(self._path(record.key, "intent"), _body(record, expire_time_s))

    def commit(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        state = "doubt" if record.version is None else "committed"
        return self.objects.put(self._path(record.key, state), _body(record, expire_time_s))

    def put_back(self, record: LedgerRecord, expire_time_s: int) -> Outcome:
        # Rules of a bucket go by age, and a key whose intent alone is gone would count as new.
        intent = self.objects.put(
            self._path(record.key, "intent"), _body(replace(record, version=None), expire_time_s)
        )
        return self.commit(record, expire_time_s) if isinstance(intent, Ok) else intent

    def records(self, limit: int) -> Outcome:
        """``Ok`` of the keys whose commits the newest objects tell, this many objects at most, and whether these are all."""
        listed = self.objects.list(self.folder, "", LISTED_MAX)
        if not isinstance(listed, Ok):
            return listed
        assert isinstance(listed.value, tuple)
        told = [one for one in listed.value if one.path.endswith((".committed.json", ".group.json"))]
        found: list[LedgerRecord] = []
        for one in sorted(told, key=lambda one: one.modified_ms, reverse=True)[:limit]:
            fields = self._fields(one.path)
            each = fields.get("records", {one.path: fields}) if isinstance(fields, dict) else {}
            found += [record.value for record in map(_record, each.values()) if isinstance(record, Ok)]  # type: ignore[misc]
        return Ok((found, len(told) <= limit and len(listed.value) < LISTED_MAX))

    # --- keys of one call -------------------------------------------------------------------------
    def intend_in(self, group: str, record: LedgerRecord, expire_time_s: int) -> Outcome:
        body = _body(record, expire_time_s, group=group)
        return self.objects.put_if_absent(self._path(record.key, "intent"), body)

    def intended(self, group: str, answers: Mapping[str, Outcome]) -> None:
        self._groups.intended(group, answers)

    def parts(self, records: Sequence[LedgerRecord]) -> list[LedgerPart]:
        return self._groups.parts(records)

    def commit_part(self, part: LedgerPart, expire_time_s: int) -> Outcome:
        if part.group is None:
            (record,) = part.records
            return self.commit(record, expire_time_s)
        told = {"records": {record.key: asdict(record) for record in part.records}}
        body = self._groups.body(part.group, json.dumps(told | {"expire_time_s": expire_time_s}).encode())
        outcome = self.objects.put(self._group_path(part.group), body)
        if isinstance(outcome, Ok):
            self._groups.forget(part.group)
        return outcome

    def _told(self, group: str, key: str) -> Outcome:
        """What the result of a group says of a key."""
        records = self._results.get(group)
        if records is None:
            fields = self._fields(self._group_path(group))
            if not isinstance(fields, dict):
                return fields
            records = fields.get("records", {})
            if len(self._results) >= RESULTS_MAX:
                self._results.clear()
            self._results[group] = records  # it never changes
        return _record(records[key]) if key in records else Missing()

    def path_of(self, key: str) -> str:
        """The object that tells what became of a key."""
        return self._path(key, "committed")

    def _path(self, key: str, state: str) -> str:
        return f"{self.folder}{_digest(key)}.{state}.json"

    def _group_path(self, group: str) -> str:
        return f"{self.folder}{_digest(group)}.group.json"

    # --- objects ----------------------------------------------------------------------------------
    def _read(self, key: str, state: str) -> Outcome:
        return _record(self._fields(self._path(key, state)))

    def _fields(self, path: str) -> dict[str, Any] | Outcome:
        return _fields(self.objects.get(path))


def _fields(outcome: Outcome) -> dict[str, Any] | Outcome:
    if not isinstance(outcome, Ok):
        return outcome
    assert isinstance(outcome.value, bytes)
    try:
        fields = json.loads(outcome.value)
        fields.pop("expire_time_s")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return _unreadable(error)
    return dict(fields)


def _record(fields: dict[str, Any] | Outcome) -> Outcome:
    if not isinstance(fields, dict):
        return fields
    try:
        return Ok(LedgerRecord(**{name: value for name, value in fields.items() if name != "group"}))
    except TypeError as error:
        return _unreadable(error)


def _unreadable(error: Exception) -> Outcome:
    return Unknown(f"unreadable ledger object: {said(error)}")


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:40]


def _body(record: LedgerRecord, expire_time_s: int, **more: str) -> bytes:
    return json.dumps(asdict(record) | more | {"expire_time_s": expire_time_s}).encode()
