"""Understands AWS DMS records in JSON: data, metadata, and control records of the same topic.

Sources: "Using Apache Kafka as a target for AWS DMS": message format, IncludeTransactionDetails, BeforeImageSettings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from safewrite.cdc.connect.converters import BareConverter, Converter
from safewrite.cdc.connect.inference import rows_alike
from safewrite.cdc.connect.json import json_of
from safewrite.cdc.envelopes.dms.event_columns import TABLES, DmsReader
from safewrite.cdc.envelopes.dms.metadata import DATA, METADATA, milliseconds, of_dms
from safewrite.cdc.envelopes.event_fields import NoKeys
from safewrite.cdc.envelopes.position import LOWEST, or_none, with_offset
from safewrite.cdc.records.change import Ignored, KafkaRecord, Op, SourceChange, SourceTable, UndecodableError

log = logging.getLogger("safewrite")

BEFORE_IMAGE = "before-image"
"""The default of ``BeforeImageSettings.FieldName``."""
_OPS = {"load": Op.UPSERT, "insert": Op.UPSERT, "update": Op.UPSERT, "delete": Op.DELETE}
_FOLLOWED = frozenset({"create-table", "add-column", "change-columns", "drop-column", "column-type-change"})
"""Control records of what the rows themselves show."""


class Dms(NoKeys):
    """Records of AWS DMS."""

    def __init__(self, *, before_image: str = BEFORE_IMAGE) -> None:
        self._before_image = before_image
        self._told: set[str] = set()
        self.converter: Converter = BareConverter(rows_alike(DATA, before_image), TABLES)

    def reader(self, schema: Mapping[str, Any]) -> DmsReader:
        return DmsReader.of(schema, self.converter, self._before_image, self.tell_imageless)

    def tell_imageless(self, table: str) -> None:
        """Warn once of each table whose updates come without the row before: one of them may have changed its key."""
        if table not in self._told:
            self._told.add(table)
            log.warning(
                "updates of %s come without %s: one that changed the primary key cannot be told from others, and the row of the old key "
                "stays. Set BeforeImageSettings of the DMS task (EnableBeforeImage, ColumnFilter: pk-only is enough), and "
                "before_image_field if its FieldName is another.",
                table,
                self._before_image,
            )

    def changes(self, record: KafkaRecord) -> Sequence[SourceChange] | Ignored:
        """What a record says.

        Raises:
            UndecodableError: no record of DMS, or a control record of what a table cannot follow.
        """
        value = json_of(record.value)
        if value is None:
            return Ignored(record, "tombstone")
        metadata = value.get(METADATA) if isinstance(value, dict) else None
        if not isinstance(metadata, dict):
            raise UndecodableError("the value has no metadata of DMS")
        operation = str(metadata.get("operation"))
        if metadata.get("record-type") == "control":
            return _control(record, operation)
        op = _OPS.get(operation)
        if metadata.get("record-type") != "data" or op is None:
            raise UndecodableError(
                f"the record is no data of DMS: record-type {metadata.get('record-type')!r}, operation {operation!r}"
            )
        row, before = value.get(DATA), value.get(self._before_image)
        if not isinstance(row, dict) or not isinstance(before, dict | None):
            raise UndecodableError("the record has no row")
        table = metadata.get("table-name")
        if not isinstance(table, str) or not table:
            raise UndecodableError("the metadata names no table")
        if operation == "update" and before is None:
            self.tell_imageless(table)
        core, unordered = (LOWEST, None) if operation == "load" else or_none(of_dms, metadata)
        change = SourceChange(
            op,
            SourceTable("", str(metadata.get("schema-name") or ""), table),
            with_offset(core, record.offset),
            record,
            after=dict(row) if op is Op.UPSERT else None,
            before=_before(op, row, before),
            source_time_ms=milliseconds(metadata.get("commit-timestamp") or metadata.get("timestamp")),
            unordered=unordered,
        )
        return [change if operation != "load" else replace(change, before=None, is_read=True)]


def _before(op: Op, row: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any] | None:
    """The row before: a delete carries it as its data; a before-image has the columns that changed."""
    if op is Op.DELETE:
        return {**row, **(before or {})}
    return None if not before else {**row, **before}


def _control(record: KafkaRecord, operation: str) -> Ignored:
    if operation in _FOLLOWED:
        return Ignored(record, "control")
    raise UndecodableError(
        f"the source's table went through {operation!r}, which no table here follows: decide what becomes of its rows"
    )
