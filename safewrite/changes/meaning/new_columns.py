"""Says which columns of changes may make their table another one: one that has more columns, or wider ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from safewrite.changes.meaning.reading import telling
from safewrite.frames.source import as_frame

if TYPE_CHECKING:
    from safewrite.changes.meaning.spec import Spec


def brought(found: pa.Schema, spec: Spec, schema: pa.Schema) -> pa.Schema:
    """Those of the columns that data was found to have.

    Keys and sequences are none of them: files that are there, and what is remembered of deleted keys, have them as they are.  Nor
    are columns that only tell what a change does.

    Raises:
        InvalidInputError: a condition cannot be used.
    """
    told, fixed = telling(found, spec), {*spec.keys, *spec.sequence_by}

    def counts(name: str) -> bool:
        if spec.columns is not None:
            return name in spec.columns
        return name in schema.names or name not in told

    return pa.schema([one for one in found if one.name not in fixed and counts(one.name)])


def schema_of(data: Any, target: pa.Schema) -> pa.Schema:
    """The columns that data has."""
    return as_frame(data, target=target).arrow_schema()
