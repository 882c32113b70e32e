"""Keeps with a field inside of a struct what it gets where data lacks it: in the field's metadata, which goes with the schema to tasks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

_KEY = b"safewrite.default"


def with_default(field: pa.Field, value: Any) -> pa.Field:
    """The field with a default; ``value`` is one of its type, in Python."""
    row = pa.record_batch([pa.array([value], field.type)], [field.name])
    return field.with_metadata({**(field.metadata or {}), _KEY: row.serialize().to_pybytes()})


def default_of(field: pa.Field) -> pa.Scalar | None:
    """The default of a field; None where it has none."""
    found = (field.metadata or {}).get(_KEY)
    if found is None:
        return None
    row = pa.ipc.read_record_batch(pa.py_buffer(found), pa.schema([pa.field(field.name, field.type)]))
    return row.column(0)[0]
