"""Reads rows of a job's tables by their keys."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

import safewrite as sw

log = logging.getLogger("safewrite")


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


def row_count(found: sw.Table, options: Mapping[str, str]) -> int | None:
    """The rows of a table, as it was loaded last, by what its log says of its files; None if nothing here can tell."""
    try:
        iceberg: Any = getattr(found, "iceberg", None)
        if iceberg is not None:
            return int(iceberg.scan().count())
        import deltalake

        return int(
            deltalake.DeltaTable(
                found.uri, version=found.version, storage_options=dict(options) or None
            ).count()
        )
    except Exception as error:  # noqa: BLE001 - a figure for the eye
        log.debug("the rows of %s cannot be counted: %s", found.uri, error)
        return None
