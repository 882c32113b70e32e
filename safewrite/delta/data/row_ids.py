"""Reads the ids of rows, and the versions that changed them last, as columns of the table that rows take along when they are written again.

PROTOCOL.md, "Row Tracking": a value that a file holds counts; else that of its place in the file, or of the file's commit.
"""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from safewrite.delta.log.stamps import stamping
from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    from safewrite.changes.meaning.positions import Numbers
    from safewrite.delta.log.actions import Action
    from safewrite.delta.log.snapshot import Snapshot


def tracked(state: Snapshot) -> Snapshot:
    """The table with the columns of its rows' ids and versions; the same one where rows keep none."""
    return state if stamping(state).kept is None else state.derived(_tracked)


def _tracked(state: Snapshot) -> Snapshot:
    schema = json.loads(state.schema_string)
    hidden = [_field(name) for name in stamping(state).kept or ()]
    text = json.dumps({**schema, "fields": [*schema["fields"], *hidden]})
    return replace(state, metadata={**state.metadata, "schemaString": text})


def _field(name: str) -> dict[str, object]:
    return {"name": name, "type": "long", "nullable": True, "metadata": {}}


def id_column(state: Snapshot) -> str | None:
    """The column in which rows that are changed keep their ids; None where they keep none."""
    kept = stamping(state).kept
    return None if kept is None else kept[0]


def with_ids(schema: pa.Schema, rows: pa.Table, state: Snapshot) -> pa.Schema:
    """A schema with the column of ids, where rows have it."""
    name = id_column(state)
    return (
        schema if name is None or name not in rows.column_names else schema.append(pa.field(name, pa.int64()))
    )


def filled(table: pa.Table, add: Action, asked: Container[str], state: Snapshot, places: Numbers) -> pa.Table:
    """Rows at some places of a file with the id and the version of each, as far as these columns are asked for.

    Raises:
        UnsupportedTableError: the log does not say with which id its rows begin.
    """
    import pyarrow.compute as pc

    kept = [name in asked and name for name in stamping(state).kept or ()]
    if not any(kept):
        return table
    base, version = add.get("baseRowId"), add.get("defaultRowCommitVersion")
    if type(base) is not int or type(version) is not int:
        raise UnsupportedTableError(
            f"The log does not say which ids the rows of {add['path']} have, though the table tracks rows. Nothing was written. Let Spark "
            "give them ids: ALTER TABLE t SET TBLPROPERTIES ('delta.enableRowTracking' = 'false'), then 'true'."
        )
    for name, values in zip(kept, (places + base, np.full(len(places), version)), strict=True):
        if not name:
            continue
        fresh, at = pa.array(values, pa.int64()), table.schema.get_field_index(name)
        if at < 0:
            table = table.append_column(pa.field(name, pa.int64()), fresh)
        else:
            table = table.set_column(at, pa.field(name, pa.int64()), pc.coalesce(table.column(at), fresh))
    return table
