"""Types rows by what a commit did to them, in the words of Delta's change data feed (PROTOCOL.md, "Add CDC File")."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

TYPE = "_change_type"
"""The column that says what became of a row."""
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
FIELD = pa.field(TYPE, pa.string(), nullable=False)


def typed(rows: pa.Table, types: str | npt.NDArray[np.str_]) -> pa.Table:
    """Rows with the type of their change, or of each; no column of such a table has that name."""
    named = pa.repeat(types, rows.num_rows) if isinstance(types, str) else pa.array(types, pa.string())
    return rows.append_column(FIELD, named)
