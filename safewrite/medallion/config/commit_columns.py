"""Names the columns that say when a change was committed, and makes them of ``_commit_time``: in silver, and in partitions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from safewrite.intake.partitioning import check_partitions, partition_columns
from safewrite.intake.settings import Strict, Text
from safewrite.medallion.config.bronze_columns import BRONZE_COLUMNS, COMMIT_DATE, SEQUENCE

_TIME = BRONZE_COLUMNS.field("_commit_time")
_OF_BRONZE = ("_op", "_epoch", _TIME.name, COMMIT_DATE.name)


class Partitions(Strict):
    """How new tables are partitioned."""

    bronze: list[Text] = Field(default_factory=list)
    """Columns of a bronze that is created; Iceberg takes transforms, such as ``day(_commit_time)``."""
    silver: list[Text] = Field(default_factory=list)
    """Columns of a silver that is created, likewise."""


def check_commit_columns(
    partitions: Partitions,
    table_format: str,
    columns: list[str] | None,
    *,
    commit_time: str | None,
    is_synced: bool,
    has_time: bool,
) -> None:
    """Refuse partitions and a commit time that a table cannot have.  ``has_time``: its files say when changes were committed.

    Raises:
        ValueError: the field is named.
    """
    if is_synced and (commit_time or partitions.bronze):
        raise ValueError(
            "commit_time, partition_by.bronze: of no use with sync, whose bronze others write; name its columns in columns"
        )
    taken = {*BRONZE_COLUMNS.names, COMMIT_DATE.name} - {_TIME.name}
    if commit_time is not None and commit_time.lower() in {one.lower() for one in (*taken, *(columns or ()))}:
        raise ValueError(f"commit_time: silver has another column {commit_time}")
    if partitions.silver and columns is None:
        raise ValueError(
            "partition_by.silver: does nothing without columns, which are those of a silver that is there then"
        )
    for layer, texts, more in (
        ("bronze", partitions.bronze, _OF_BRONZE),
        (
            "silver",
            partitions.silver,
            (SEQUENCE[0], COMMIT_DATE.name, *([commit_time] if commit_time else ())),
        ),
    ):
        field = f"partition_by.{layer}"
        check_partitions(texts, table_format, field=field)
        named = partition_columns(texts)
        unknown = [one for one in named if columns is not None and one not in (*columns, *more)]
        if unknown or (is_synced and COMMIT_DATE.name in named):
            raise ValueError(f"{field}: {unknown or [COMMIT_DATE.name]} are not among its columns")
        if table_format == "delta" and {_TIME.name, commit_time} & {*named}:
            raise ValueError(
                f"{field}: a folder for each commit time; name {COMMIT_DATE.name}, and the table has that column"
            )
        if not has_time and {_TIME.name, COMMIT_DATE.name} & {*named}:
            raise ValueError(f"{field}: files.timestamp is needed for a commit time")
    if commit_time is not None and not has_time:
        raise ValueError("commit_time: files.timestamp is needed, or it would be NULL in all rows")


def commit_fields(partition_by: list[str], commit_time: str | None) -> list[pa.Field]:
    """The columns of a table for the time of a commit: one of a name, and the day where it is partitioned by it."""
    day = [COMMIT_DATE] if COMMIT_DATE.name in partition_columns(partition_by) else []
    return [*([pa.field(commit_time, _TIME.type)] if commit_time else []), *day]


def with_commit_columns(rows: pa.Table, fields: list[pa.Field]) -> pa.Table:
    """Rows of bronze with such columns; a row without a commit time has NULL there."""
    there = {*rows.column_names}
    for field in fields:
        if field.name not in there:
            rows = rows.append_column(field, commit_values(rows[_TIME.name], field))
    return rows


def commit_values(times: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """What a column says of commit times."""
    return times if field.type == times.type else pc.cast(times, field.type, safe=False)
