"""Refuses what the options of a table say of its columns twice or in vain, and what its format or its readers do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.intake.partitioning import partition_columns
from safewrite.intake.tables import READ_VECTORS, READ_WIDENED, check_readers

if TYPE_CHECKING:
    from safewrite.cdc.config.table_config import TableOptions


def check_format(table: TableOptions) -> None:
    """Refuse options that the table's format, or its readers, do not have.

    Raises:
        ValueError: what is wrong, for pydantic.
    """
    if table.write_mode == "merge-on-read" and table.format == "delta" and not table.marks_rows:
        lacking = sorted({*table.readers} - READ_VECTORS)
        raise ValueError(
            "write_mode merge-on-read marks rows of Delta tables in deletion vectors, and "
            + (
                f"these readers do not read them: {', '.join(lacking)}"
                if lacking
                else "not every engine reads them"
            )
            + ". Name all engines that read the table in readers, or leave write_mode out: files are rewritten then"
        )
    if table.widen and table.format == "delta" and not (table.readers and {*table.readers} <= READ_WIDENED):
        lacking = sorted({*table.readers} - READ_WIDENED)
        raise ValueError(
            "widen gives Delta tables the feature typeWidening, and "
            + (
                f"these readers do not know it: {', '.join(lacking)}"
                if lacking
                else "not every engine knows it"
            )
            + ". Name all engines that read the table in readers, or leave widen out: values that do not fit are dead letters then"
        )
    check_readers(table.readers, table.format)
    if table.format_version is not None and table.format == "delta":
        raise ValueError("format_version is of Iceberg tables, and does nothing for format delta")
    if table.sort_by and table.format == "delta":
        raise ValueError("sort_by is of Iceberg tables, and does nothing for format delta")


def check_columns(table: TableOptions) -> None:
    """Refuse options that contradict each other.

    Raises:
        ValueError: what is wrong, for pydantic.
    """
    left = set(table.leave_out)
    by_column = {} if isinstance(table.on_misfit, str) else table.on_misfit
    for name, given in (
        ("on_misfit", by_column),
        ("name_mapping", table.name_mapping),
        ("timestamp_fields", table.timestamp_fields),
        ("decimal_fields", table.decimal_fields),
    ):
        idle = sorted(table.dropped & set(given))
        if idle:
            raise ValueError(f"{name} of {', '.join(idle)} does nothing: leave_out has them too")
    mapped = {
        table.column_of(name): field
        for field in ("timestamp_fields", "decimal_fields")
        for name in getattr(table, field)
    }
    for name in sorted(set(mapped) & set(table.column_types)):
        raise ValueError(f"{name} cannot be in column_types and {mapped[name]}")
    both = sorted(set(table.timestamp_fields) & set(table.decimal_fields))
    if both:
        raise ValueError(f"{', '.join(both)} cannot be in timestamp_fields and decimal_fields")
    declared = {**table.timestamp_fields, **table.decimal_fields}
    as_text = sorted(name for name, mode in by_column.items() if mode == "text" and name in declared)
    if as_text:
        raise ValueError(
            f"on_misfit text of {', '.join(as_text)} makes a text of the column, and timestamp_fields or decimal_fields "
            "something else: leave one of them out"
        )
    idle = sorted(
        name for name, mode in by_column.items() if mode == "floor" and name in table.decimal_fields
    )
    if idle:
        raise ValueError(
            f"on_misfit floor of {', '.join(idle)} does nothing: it is of times, and they are decimals"
        )
    needed = {
        "primary_key": getattr(table, "primary_key", None) or (),
        "precombine_key": table.precombine_key or (),
        "partition_by": partition_columns(table.partition_by),
        "sort_by": partition_columns(table.sort_terms),
        "column_types": table.column_types,
    }
    for field, names in needed.items():
        lost = sorted(
            name
            for name in left - (table.only_read if field == "column_types" else set())
            if table.column_of(name) in names
        )
        if lost:
            raise ValueError(
                f"leave_out has {', '.join(lost)}, which {field} needs: no row would have a value there"
            )
    targets = list(table.name_mapping.values())
    if len(set(targets)) < len(targets):
        raise ValueError("name_mapping gives two columns one name")
