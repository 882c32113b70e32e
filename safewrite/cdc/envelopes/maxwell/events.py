"""Understands Maxwell's records: rows of MySQL, rows of a bootstrap, and statements that change tables.

Sources: "Data Format" and "Bootstrapping" of Maxwell's documentation; ``RowMap`` for the fields of a record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from safewrite.cdc.connect.converters import BareConverter, Converter
from safewrite.cdc.connect.inference import rows_alike
from safewrite.cdc.connect.json import json_of
from safewrite.cdc.envelopes.event_fields import NoKeys, milliseconds
from safewrite.cdc.envelopes.maxwell.event_columns import (
    COMMIT_LAST,
    DATA,
    OLD,
    READ,
    TABLES,
    MaxwellReader,
)  # fmt: skip
from safewrite.cdc.envelopes.position import LOWEST, or_none, padded, with_offset
from safewrite.cdc.records.change import Ignored, KafkaRecord, Op, SourceChange, SourceTable, UndecodableError

_OPS = {"insert": Op.UPSERT, "update": Op.UPSERT, READ: Op.UPSERT, "delete": Op.DELETE}
_CONTROL = frozenset({"bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "database-create", "database-alter"})  # fmt: skip
"""Types of records that say nothing about a row, or what the rows themselves show."""
_DROPS = frozenset({"table-drop", "database-drop"})
_POSITION = re.compile(r".*\.([0-9]+):([0-9]+)")


class Maxwell(NoKeys):
    """Records of Maxwell."""

    def __init__(self) -> None:
        self.converter: Converter = BareConverter(rows_alike(DATA, OLD), TABLES)

    def reader(self, schema: Mapping[str, Any]) -> MaxwellReader:
        return MaxwellReader.of(schema, self.converter)

    def changes(self, record: KafkaRecord) -> Sequence[SourceChange] | Ignored:
        """What a record says.

        Raises:
            UndecodableError: no record of Maxwell, or a statement that no table here follows.
        """
        event = json_of(record.value)
        if event is None:
            return Ignored(record, "tombstone")
        if not isinstance(event, dict):
            raise UndecodableError(f"the value is of type {type(event).__name__}, not a record of Maxwell")
        kind = str(event.get("type"))
        if kind in _CONTROL:
            return Ignored(record, "control")
        if kind in _DROPS:
            raise UndecodableError(
                f"the source's table went through {kind!r}, which no table here follows: decide what becomes of its rows"
            )
        op, row, old = _OPS.get(kind), event.get(DATA), event.get(OLD)
        database, table = event.get("database"), event.get("table")
        if op is None or not isinstance(database, str) or not isinstance(table, str) or not table:
            raise UndecodableError(f"the value is not a change of Maxwell: type {kind!r}, table {table!r}")
        if not isinstance(row, dict) or not isinstance(old, dict | None):
            raise UndecodableError("the record has no row")
        is_read = kind == READ
        core, unordered = (LOWEST, None) if is_read else or_none(of_maxwell, event)
        before = {**row, **(old or {})} if op is Op.DELETE or (old and not is_read) else None
        change = SourceChange(
            op,
            SourceTable(database, "", table),
            with_offset(core, record.offset),
            record,
            before=before,
            after=dict(row) if op is Op.UPSERT else None,
            source_time_ms=_milliseconds(event.get("ts")),
            unordered=unordered,
            is_read=is_read,
        )
        return [change]


def of_maxwell(event: Mapping[str, Any]) -> str:
    """The position of a record: the binlog's file and offset, and the record's place in its transaction.

    Raises:
        UndecodableError: it has none.
    """
    position = _POSITION.fullmatch(str(event.get("position")))
    if position is None:
        raise UndecodableError(
            f"the record has no position that orders it, but {event.get('position')!r}; set output_binlog_position of Maxwell, or order "
            "the table by columns of its rows: precombine_key"
        )
    # The last record of a transaction has commit in the place of xoffset.
    within = COMMIT_LAST if event.get("commit") is True else padded(event.get("xoffset") or 0, 10, "xoffset")
    return f"{padded(position[1], 10, 'binlog file')}{padded(position[2], 20, 'binlog offset')}{within}"


def _milliseconds(seconds: Any) -> int | None:
    return milliseconds(seconds * 1000) if type(seconds) is int else None
