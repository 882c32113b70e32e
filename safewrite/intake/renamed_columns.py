"""Knows columns that another engine renamed: by their field ids on Iceberg, by the names that files keep on Delta."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.values.column_names import names_by_files


def renamed(found: sw.Table, fields: Iterable[pa.Field]) -> dict[str, str]:
    """What those of ``fields`` are called today that the table had and that another engine renamed.

    To add such a column again would leave its values in two columns, by when they came.  One that is there again is none of them.
    """
    there = getattr(found, "iceberg", None)
    now = names_by_files(found.schema) if there is None else _by_ids(there.metadata)
    return {one.name: now[one.name] for one in fields if one.name in now and one.name not in now.values()}


def _by_ids(metadata: Any) -> Mapping[str, str]:
    """What columns of an Iceberg table are called today, by each name that they had."""
    now = {one.field_id: one.name for one in metadata.schema().fields}
    once = {one.name: one.field_id for schema in metadata.schemas for one in schema.fields}
    return {name: now[number] for name, number in once.items() if number in now}
