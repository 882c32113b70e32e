"""Brings the rows of a partition of an Iceberg table together before tasks write them, as Iceberg's library does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import BinaryType, DateType, DecimalType, IcebergType, StringType, TimestamptzType

from safewrite.frames.spark.hashes import quoted
from safewrite.iceberg.data.schema import struct_path

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import DataFrame

_MODE = "write.distribution-mode"
_NONE = "none"
_BY = "_safewrite_part"
_DAY_US, _HOUR_US = 86_400_000_000, 3_600_000_000


def is_expressible(metadata: TableMetadata) -> bool:
    """Whether Spark's own functions say which rows belong together; the hash of buckets is Iceberg's."""
    return not _distributes(metadata) or not any(
        isinstance(field.transform, BucketTransform) for field in metadata.spec().fields
    )


def distributed(frame: DataFrame, metadata: TableMetadata) -> DataFrame:
    """The rows of each partition together, as far as that is not too much for one task; else a task has rows of many.

    Each task writes a file for every partition that it sees.  A plan that Spark has no words for costs files, not rows.
    """
    import pyspark.sql.functions as f

    if not _distributes(metadata):
        return frame
    schema = metadata.schema()
    texts = [_text(field.transform, field.source_id, schema) for field in metadata.spec().fields]
    prefix = _BY
    while any(name.startswith(prefix) for name in frame.columns):
        prefix += "_"
    known = {f"{prefix}{at}": f.expr(text) for at, text in enumerate(texts) if text is not None}
    if not known:
        return frame
    named = frame.select("*", *(column.alias(name) for name, column in known.items()))
    # By SQL, for DataFrame.hint of Spark 3.5 takes no columns.
    hint = f"REBALANCE({', '.join(map(quoted, known))})"
    return frame.sparkSession.sql(f"SELECT /*+ {hint} */ * FROM {{rows}}", rows=named).drop(*known)


def _distributes(metadata: TableMetadata) -> bool:
    return not metadata.spec().is_unpartitioned() and metadata.properties.get(_MODE, "").lower() != _NONE


def _text(transform: Transform[object, object], source_id: int, schema: Schema) -> str | None:
    """What is the same for rows of one partition, in Spark's SQL; None where that is not known."""
    path = struct_path(schema, source_id)
    if path is None or isinstance(transform, VoidTransform | BucketTransform):
        return None
    column, kind = ".".join(map(quoted, path)), schema.find_type(source_id)
    match transform:
        case IdentityTransform():
            return column
        case TruncateTransform(width=width):
            return _truncated(column, kind, int(width))
        case HourTransform() if isinstance(kind, TimestamptzType):
            return f"unix_micros({column}) DIV {_HOUR_US}"
        case HourTransform():
            return f"date_trunc('HOUR', {column})"
        case DayTransform():
            return _day(column, kind)
        case MonthTransform():
            return f"trunc({_day(column, kind)}, 'MONTH')"
        case YearTransform():
            return f"year({_day(column, kind)})"
    return None


def _day(column: str, kind: IcebergType) -> str:
    """The day in UTC, whatever the session's time zone."""
    if isinstance(kind, DateType):
        return column
    if isinstance(kind, TimestamptzType):
        return f"date_from_unix_date(CAST(floor(unix_micros({column}) / {_DAY_US}) AS INT))"
    return f"CAST({column} AS DATE)"


def _truncated(column: str, kind: IcebergType, width: int) -> str:
    if isinstance(kind, StringType | BinaryType):
        return f"substring({column}, 1, {width})"
    step = f"{width}E-{kind.scale}BD" if isinstance(kind, DecimalType) else str(width)
    return f"{column} - pmod({column}, {step})"
