"""Reads ``partition_by`` of a configuration: columns, and Iceberg's transforms of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_NO_FOLDER = pa.array(["", "__HIVE_DEFAULT_PARTITION__"])
"""Texts that readers of a Delta table take for NULL where they are partition values."""
NOT_READ_BACK = "as a partition value of a Delta table is not read back as it is; have the table partitioned by another column"
_CALL = re.compile(r"(\w+)\((.+)\)")
_ONE = frozenset({"year", "month", "day", "hour", "void", "years", "months", "days", "hours", "voids"})
_NUMBERED = frozenset({"bucket", "truncate", "buckets", "truncates"})


def check_partitions(partition_by: Sequence[str], table_format: str, *, field: str = "partition_by") -> None:
    """Refuse what no table of the format can be partitioned by.

    Raises:
        ValueError: a column comes twice, or a text cannot be one in the format.
    """
    divided = [text.strip().lower() for text in partition_by]
    if len(set(divided)) < len(divided):
        raise ValueError(f"{field} has a column twice")
    for text in partition_by:
        call = _CALL.fullmatch(text.strip())
        if call is None:
            continue
        if table_format == "delta":
            raise ValueError(
                f"{field} holds {text!r}: a table of format delta is partitioned by columns, not by transforms; have the source "
                "or a view make such a column, or use format iceberg"
            )
        name, arguments = call[1].lower(), call[2]
        fits = name in _ONE or (name in _NUMBERED and re.fullmatch(r"\s*[1-9][0-9]*\s*,.+", arguments))
        if not fits:
            raise ValueError(
                f"{field} holds {text!r}, which is no transform of Iceberg: write a column, year(c), month(c), day(c), hour(c), "
                "bucket(16, c) or truncate(4, c)"
            )


def partition_columns(partition_by: Sequence[str]) -> list[str]:
    """The columns that ``partition_by`` names, by themselves or in transforms."""
    found = []
    for text in partition_by:
        call = _CALL.fullmatch(text.strip())
        found.append(text if call is None else call[2].rpartition(",")[2].strip())
    return found


def of_no_folder(values: Any) -> Any:
    """Which values readers of a Delta table do not read back from the name of a folder."""
    if pa.types.is_string(values.type):
        refused = pc.is_in(values, _NO_FOLDER)
    elif pa.types.is_decimal(values.type) and values.type.scale > 0:  # deltalake reads -1.50 as -1.-50
        refused = pc.and_(pc.less(values, 0), pc.not_equal(values, pc.round(values)))
    else:
        return np.zeros(len(values), bool)
    return pc.fill_null(refused, False).to_numpy(zero_copy_only=False)


def alike(wanted: Sequence[str], have: Sequence[str]) -> bool:
    """Whether two spellings divide a table in one way."""
    return [_plain(one) for one in wanted] == [_plain(one) for one in have]


def _plain(text: str) -> str:
    call = _CALL.fullmatch(text.strip())
    return text if call is None else f"{call[1].lower().removesuffix('s')}({''.join(call[2].split())})"
