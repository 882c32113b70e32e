"""Understands events of Debezium that were unwrapped: a row is put back into the event that it came from.

Deletes come as rows (``delete.tombstone.handling.mode`` ``rewrite``, ``rewrite-with-tombstone``), or as tombstones, whose
headers tell the position, or nothing.
Source: "New Record State Extraction" of Debezium's documentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from safewrite.cdc.envelopes.debezium.events import Debezium
from safewrite.cdc.envelopes.debezium.rows import NO_SHAPE, RowShape
from safewrite.cdc.envelopes.envelope import Tombstone
from safewrite.cdc.envelopes.unwrapped.event_columns import UnwrappedReader
from safewrite.cdc.envelopes.unwrapped.metadata import ADDED, POSITIONS, added_by_headers, event_of
from safewrite.cdc.records.change import Ignored, KafkaRecord, SourceChange, UndecodableError


class Unwrapped(Debezium):
    """Debezium's events after ``ExtractNewRecordState``.  Not for several threads at once."""

    delete_headers: Sequence[str] = tuple(
        f"{prefix}{name}" for name in POSITIONS for prefix in ("__", "__source_")
    )

    def changes(self, record: KafkaRecord) -> Sequence[SourceChange] | Tombstone | Ignored:
        value, added = self.converter.part(record.value, "value"), added_by_headers(record)
        if value is None or value.payload is None:
            if not set(added) & set(self.delete_headers):
                # Connect's JSON converter writes null for a row that has a schema, and nothing for a tombstone of Debezium.
                return Ignored(record, "tombstone") if record.value is None else self.tombstone(record, True)
            return self.of_event(record, event_of(added, None), lambda: NO_SHAPE)
        row = value.payload
        if not isinstance(row, dict):
            raise UndecodableError(f"the value is of type {type(row).__name__}, not a row")
        added |= {name: one for name, one in row.items() if name in ADDED}
        if not added:
            raise UndecodableError(
                "the row has neither a column nor a header of its change: set add.fields or add.headers of ExtractNewRecordState "
                "(op,db,schema,table,source.ts_ms and the position: lsn,sequence,snapshot of PostgreSQL, file,pos,row of MySQL)"
            )
        plain = {name: one for name, one in row.items() if name not in ADDED}
        return self.of_event(record, event_of(added, plain), lambda: self._shape(value))

    def reader(self, schema: Mapping[str, Any]) -> UnwrappedReader:  # type: ignore[override]
        return UnwrappedReader.of(schema, self.converter, self.placeholder)

    def _shape_of_row(self, schema: Mapping[str, Any], version: str | None) -> RowShape:
        plain = [one for one in schema.get("fields") or () if one.get("field") not in ADDED]
        return self.rows.shape({**schema, "fields": plain}, version)
