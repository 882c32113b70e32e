"""Has the Spark of this process read an Iceberg table anew after a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safewrite.frames.spark import cached
from safewrite.iceberg.spark.files import forget

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def read_anew(
    context: SparkContext, session: SparkSession | None, identifier: tuple[str, ...], table_id: str
) -> None:
    """Forget the table in the catalogs of the session that wrote it, and what Spark caches of its rows."""
    if session is not None and session.sparkContext is context:
        forget(session, identifier)

    def is_of(relation: Any) -> bool:
        found = _table_of(relation)
        if found is None or str(found.uuid().toString()) != table_id:
            return False
        found.refresh()  # the cached plan has an object of its own, which stays at the version that it has loaded
        return True

    cached.read_anew(context, is_of)


def _table_of(relation: Any) -> Any:
    """Iceberg's table that a relation of a plan reads; None if it reads something else."""
    if not str(relation.getClass().getName()).endswith(".DataSourceV2Relation"):
        return None
    source = relation.table()
    named = str(source.getClass().getName())
    return source.table() if named == "org.apache.iceberg.spark.source.SparkTable" else None
