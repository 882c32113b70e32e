"""Reads all rows of a table by a reader that is not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa


def rows_of(
    table: Any, storage_options: Mapping[str, str] | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """The rows of an open table: of Iceberg by PyIceberg, of Delta by deltalake; of ``columns`` those that it has."""
    names = None if columns is None else [one for one in table.schema.names if one in columns]
    iceberg = getattr(table, "iceberg", None)
    if iceberg is not None:
        return pa.table(iceberg.scan(selected_fields=("*",) if names is None else tuple(names)).to_arrow())
    import deltalake

    found = deltalake.DeltaTable(table.uri, storage_options=dict(storage_options or {}))
    if "deletionVectors" not in (found.protocol().reader_features or ()):
        return pa.table(found.to_pyarrow_table(columns=names))
    # deltalake's dataset knows no deletion vectors; its query engine does.
    answer = deltalake.QueryBuilder().register("found", found).execute("SELECT * FROM found")
    rows = pa.table(answer.read_all()).cast(table.schema)
    return rows if names is None else rows.select(names)
