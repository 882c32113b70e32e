"""Tells which Delta table a relation of a Spark plan reads."""

from __future__ import annotations

from typing import Any

_DELTA = "org.apache.spark.sql.delta"


def table_id_of(relation: Any) -> str | None:
    """The id of the Delta table that a relation of a plan reads; None if it reads something else."""
    if not str(relation.getClass().getName()).endswith(".LogicalRelation"):
        return None
    source = relation.relation()
    if not str(source.getClass().getName()).startswith(
        f"{_DELTA}."
    ):  # HadoopFsRelation, with Delta's own insert
        return None
    files = source.location()
    return str(files.metadata().id()) if str(files.getClass().getName()).startswith(f"{_DELTA}.") else None
