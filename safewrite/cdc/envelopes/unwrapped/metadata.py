"""Tells which columns and headers ``ExtractNewRecordState`` added to a row, and where an event has what is in them.

Source: ``FieldReference`` of Debezium's ``AbstractExtractNewRecordState``: a name without its struct is one of ``source``,
but for those of the event and of its transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from safewrite.cdc.records.change import KafkaRecord

_EVENT = ("op", "ts_ms", "deleted")
_TRANSACTION = ("total_order",)
_NUMBERS = frozenset({"ts_ms", "lsn", "pos", "row", "event_serial_no", "ssn", "total_order"})
_TEXTS = ("connector", "db", "schema", "table", "snapshot", "sequence", "file", "commit_lsn", "change_lsn", "scn", "commit_scn", "rs_id")  # fmt: skip
_SOURCE = (*_TEXTS, *sorted(_NUMBERS - {*_EVENT, *_TRANSACTION}))
ADDED: Mapping[str, tuple[str, str]] = {
    **{f"__{name}": ("source", name) for name in _SOURCE},
    **{f"__source_{name}": ("source", name) for name in (*_SOURCE, "ts_ms")},
    **{f"__transaction_{name}": ("transaction", name) for name in _TRANSACTION},
    **{f"__{name}": ("transaction", name) for name in _TRANSACTION},
    **{f"__{name}": ("event", name) for name in _EVENT},
}
"""The struct and the name of each column or header that may be added, under the prefix that Debezium has by default."""
POSITIONS: Mapping[str, str] = {
    "lsn": "postgresql",
    "file": "mysql",
    "commit_lsn": "sqlserver",
    "scn": "oracle",
}
"""The connector whose ``source`` has a field, for events that do not name theirs."""


def added_by_headers(record: KafkaRecord) -> dict[str, Any]:
    """What the headers of a record say, by their names."""
    return {
        name: _told(ADDED[name][1], data)
        for name, data in record.headers
        if name in ADDED and data is not None
    }


def event_of(added: Mapping[str, Any], row: Mapping[str, Any] | None) -> dict[str, Any]:
    """The event that was unwrapped: its row is that before a delete, and else that after the change."""
    found: dict[str, dict[str, Any]] = {"event": {}, "source": {}, "transaction": {}}
    for name, value in added.items():
        if value is not None:
            struct, field = ADDED[name]
            found[struct][field] = value
    event, source = found["event"], found["source"]
    is_delete = row is None or event.get("deleted") in {"true", True}
    op = "d" if is_delete else event.get("op", "u")
    if op == "r":
        source.setdefault("snapshot", "true")
    known = next((connector for name, connector in POSITIONS.items() if name in source), "")
    source.setdefault("connector", known)
    rows = {"before": row} if op == "d" else {"after": row}
    return {
        "op": op,
        "ts_ms": event.get("ts_ms"),
        "source": source,
        "transaction": found["transaction"],
        **rows,
    }


def _told(field: str, data: bytes) -> Any:
    """The value of a header, which Connect's simple converter wrote as text, or its JSON converter."""
    text = data.decode("utf-8", "replace")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(content, dict) and set(content) == {"schema", "payload"}:
        content = content["payload"]
    is_value = content is None or isinstance(content, str) or (field in _NUMBERS and type(content) is int)
    return content if is_value else text
