"""Reads rows of a job's tables by keys of their source, which may not fit the table's types any more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import safewrite as sw


def rows_with(
    found: sw.Table, keys: Sequence[str], wanted: Sequence[tuple[Any, ...]]
) -> list[dict[str, Any]]:
    """The rows of a table, as it was loaded last, that have one of these keys.

    Raises:
        SafewriteError: the table cannot be read.
    """
    fitting = [key for key in wanted if _fits(key, found.schema, keys)]
    if not fitting:
        return []
    columns = [
        pa.array(values, found.schema.field(name).type)
        for name, values in zip(keys, zip(*fitting, strict=True), strict=True)
    ]
    rows: list[dict[str, Any]] = found.rows(pa.table(columns, names=list(keys))).to_pylist()
    return rows


def _fits(key: tuple[Any, ...], schema: pa.Schema, names: Sequence[str]) -> bool:
    """Whether a table can have a key at all: a source's column may have got another type since."""
    try:
        for value, name in zip(key, names, strict=True):
            pa.scalar(value, schema.field(name).type)
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError, AttributeError, KeyError):
        return False
    return True
