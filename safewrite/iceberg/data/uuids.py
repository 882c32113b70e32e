"""Converts the texts that Spark has for UUIDs to the bytes that Iceberg stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType

from safewrite.errors import WouldAlterError
from safewrite.text.rendering import shown
from safewrite.values.types import is_text

_TEXT = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
_BYTES = 16


def with_uuids(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """The rows with bytes in the schema's columns of UUIDs, which come as texts; other columns stay as they are.

    Raises:
        WouldAlterError: a text is not a UUID.
    """
    names = uuid_columns(schema)
    for batch in batches:
        columns = [
            _bytes(column, name) if name in names and is_text(column.type) else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names) if names else batch


def uuid_columns(schema: Schema) -> set[str]:
    """The names of a schema's columns of UUIDs."""
    return {field.name for field in schema.fields if isinstance(field.field_type, UUIDType)}


def _bytes(texts: pa.Array, name: str) -> pa.Array:
    some = texts.drop_null()
    fits = pc.match_substring_regex(some, _TEXT)
    if not pc.all(fits).as_py():
        text = some.filter(pc.invert(fits))[0].as_py()
        raise WouldAlterError(
            f"Column {name!r}: {shown(text)} is not a UUID. Nothing was written. Correct the value."
        )
    body = bytes.fromhex("".join(some.to_pylist()).replace("-", ""))
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(_BYTES), len(some), [None, pa.py_buffer(body)])
    if not texts.null_count:
        return values
    there = np.asarray(pc.is_valid(texts))
    return values.take(pa.array(np.cumsum(there) - 1, mask=~there))
