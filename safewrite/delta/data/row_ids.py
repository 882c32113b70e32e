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

from safewrite.delta.data.variants import variant_columns, with_variants
from safewrite.delta.log.column_names import ID
from safewrite.delta.log.iceberg_compat import ROW_ID_FIELDS, materializes, version_of
from safewrite.delta.log.stamps import stamping
from safewrite.errors import UnsupportedTableError

if TYPE_CHECKING:
    from safewrite.changes.meaning.positions import Numbers
    from safewrite.delta.log.actions import Action
    from safewrite.delta.log.snapshot import Snapshot


def tracked(state: Snapshot) -> Snapshot:
    """The table with all that rows take along when they are written again: their ids and versions, and variants as files have them.

    The same one where there is neither.
    """
    return with_variants(state) if stamping(state).kept is None else state.derived(_tracked)


def _tracked(state: Snapshot) -> Snapshot:
    schema = json.loads(with_variants(state).schema_string)
    named = zip(stamping(state).kept or (), ROW_ID_FIELDS, strict=False)
    hidden = [_field(name, number if version_of(state) == 3 else None) for name, number in named]
    text = json.dumps({**schema, "fields": [*schema["fields"], *hidden]})
    return replace(state, metadata={**state.metadata, "schemaString": text})


def _field(name: str, number: int | None) -> dict[str, object]:
    """A column of files that is none of the table's; ``number`` is its id in them."""
    return {
        "name": name,
        "type": "long",
        "nullable": True,
        "metadata": {} if number is None else {ID: number},
    }


def copied_columns(state: Snapshot) -> pa.Schema:
    """The columns of a file of rows that are written again; the partition columns come last, where files have them."""
    own, by = tracked(state).schema, state.partition_by
    kept = [one for one in own if one.name not in by]
    return pa.schema([*kept, *(own.field(name) for name in by)] if materializes(state) else kept)


def lasting_columns(state: Snapshot) -> pa.Schema:
    """The columns in which a row that a change brings has the values of the row of its key before: its id, and what no change can bring."""
    kept = stamping(state).kept
    ids = [] if kept is None else [pa.field(kept[0], pa.int64())]
    return pa.schema([*ids, *variant_columns(state)])


def with_lasting(schema: pa.Schema, rows: pa.Table, state: Snapshot) -> pa.Schema:
    """A schema with those of these columns that rows have."""
    lacking = {*rows.column_names} - {*schema.names}
    more = [one for one in lasting_columns(state) if one.name in lacking]
    return pa.schema([*schema, *more])


def filled(
    table: pa.Table, add: Action, asked: Container[str], state: Snapshot, places: range | Numbers
) -> pa.Table:
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
    if isinstance(places, range):
        places = np.arange(places.start, places.stop)
    for name, values in zip(kept, (places + base, np.full(len(places), version)), strict=True):
        if not name:
            continue
        fresh, at = pa.array(values, pa.int64()), table.schema.get_field_index(name)
        if at < 0:
            table = table.append_column(pa.field(name, pa.int64()), fresh)
        else:
            table = table.set_column(at, pa.field(name, pa.int64()), pc.coalesce(table.column(at), fresh))
    return table
