"""Reads unwrapped events of one schema as columns, where columns tell of the change: what ``events`` does row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.cdc.connect.columns import RowReader, UnsuitedError
from safewrite.cdc.connect.converters import Converter
from safewrite.cdc.connect.logical_types.column import RowFallback
from safewrite.cdc.connect.placeholder import Placeholder
from safewrite.cdc.envelopes.debezium.event_columns import Events
from safewrite.cdc.envelopes.event_fields import SchemaReader, given_by, text_of
from safewrite.cdc.envelopes.unwrapped.metadata import ADDED, POSITIONS
from safewrite.cdc.records.change_set import AFTER, BEFORE

TABLES = r'"__(?:source_)?table":\s*"(?P<table>[^"\\]*)"'
"""Where a row in JSON names its table."""


@dataclass(frozen=True, slots=True)
class UnwrappedReader(SchemaReader):
    """How rows of one schema are read."""

    added: Mapping[tuple[str, str], str]
    """The columns that tell of the change, by their struct and name in the event."""

    @classmethod
    def of(cls, schema: Mapping[str, Any], converter: Converter, placeholder: Placeholder) -> Self:
        """The reader of a row's schema.

        Raises:
            UnsuitedError: its rows cannot be read by columns, or headers tell of their changes.
        """
        names = [str(one.get("field")) for one in schema["fields"]]
        added = {ADDED[name]: name for name in names if name in ADDED}
        if ("source", "table") not in added or not {"op", "deleted"} & {name for _, name in added}:
            raise UnsuitedError("no columns of the change")
        plain = {**schema, "fields": [one for one in schema["fields"] if one.get("field") not in ADDED]}
        rows = RowReader.of(plain, converter.carried, placeholder)
        return cls(converter, given_by(schema, converter), rows, added)

    def read(self, payloads: Any, _: pa.RecordBatch, fallback: RowFallback) -> Events:
        found, length = self.fields(payloads), len(payloads)
        structs: dict[str, dict[str, pa.Array]] = {"event": {}, "source": {}, "transaction": {}}
        for (struct, name), column in self.added.items():
            structs[struct][name] = found[column]
        event, source = structs["event"], structs["source"]
        deletes = pc.fill_null(pc.equal(text_of(event, "deleted", length), "true"), False)
        op = pc.if_else(deletes, "d", pc.fill_null(text_of(event, "op", length), "u"))
        deletes = pc.equal(op, "d")
        read = pc.if_else(pc.equal(op, "r"), "true", pa.scalar(None, pa.string()))
        source["snapshot"] = pc.coalesce(text_of(source, "snapshot", length), read)
        known = next((connector for name, connector in POSITIONS.items() if name in source), "")
        source["connector"] = pc.fill_null(text_of(source, "connector", length), known)
        rows = pa.StructArray.from_arrays(
            [found[name] for name in self.rows.columns], list(self.rows.columns)
        )
        columns = self.rows.read(rows, fallback)
        said = {
            **event, "op": op, "source": _struct(source), "transaction": _struct(structs["transaction"]),
            BEFORE: pc.if_else(deletes, True, None), AFTER: pc.if_else(deletes, None, True),
        }  # fmt: skip
        before = {name: pc.if_else(deletes, values, None) for name, values in columns.items()}
        after = {name: pc.if_else(deletes, None, values) for name, values in columns.items()}
        return Events(said, before, after)


def _struct(found: Mapping[str, pa.Array]) -> pa.StructArray | None:
    return pa.StructArray.from_arrays(list(found.values()), list(found)) if found else None
