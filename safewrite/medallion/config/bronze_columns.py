"""Names the columns that bronze has besides those of its source."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

BRONZE_COLUMNS = pa.schema(
    [
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_epoch", pa.int64(), nullable=False),
        pa.field("_seq", pa.decimal128(38, 0), nullable=False),
        pa.field("_commit_time", pa.timestamp("us", "UTC")),
        pa.field("_file", pa.string(), nullable=False),
        pa.field("_tag", pa.string(), nullable=False),
        pa.field("_line", pa.int64(), nullable=False),
    ]
)
"""Columns that a bronze row has besides those of its source, by the names that the code calls them."""
FILE, STORED_FILE = "_file", "_raw_file"
"""The column of the raw file's path, and what it is called in an Iceberg table: Iceberg keeps ``_file``, and Spark refuses the table."""
COMMIT_DATE = pa.field("_commit_date", pa.date32())
"""The day of ``_commit_time`` in UTC: of a bronze or silver that is partitioned by it."""
SEQUENCE = ("_epoch", "_seq")
"""The columns that order the changes of a key; silver has them too."""
UNCHANGED = "_unchanged"
"""The column of bronze that lists the columns of which an update brings no value."""
UNCHANGED_FIELD = pa.field(UNCHANGED, pa.list_(pa.string()))
OLD = "_old_"
"""Before a key column: its value before an update, where files bring that."""
LOADED_OP = "L"
"""The ``_op`` of a row of a full load."""
TRUNCATED_OP = "T"
"""The ``_op`` of a truncate of the source, which is in no file."""
TRUNCATE_FILE = "(truncate)"
"""The ``_file`` of a truncate."""
BEFORE_ALL = Decimal(-(10**37))
"""Older than every row of a full load, and so only newer than earlier epochs."""
