"""Brings a table's columns to those that are declared, or refuses what cannot be followed without loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.errors import CommitUnknownError, InvalidInputError, NotCommittedError
from safewrite.intake.renamed_columns import renamed
from safewrite.medallion.config.bronze_columns import FILE, STORED_FILE
from safewrite.values.widening import wider, with_fields

_TRIES = 3


def fit(table: sw.Table, wanted: pa.Schema, name: str, *, read_only: bool) -> sw.Table:
    """The table with all columns that are declared, each wide enough.

    New columns are added and Iceberg's are widened, for the configuration says so; rows that are there have NULL in new ones.
    Columns that the table computes (Delta's generated columns and defaults) need not be declared.

    Raises:
        InvalidInputError: a column is missing that needs a value, is not declared, cannot be widened, or was renamed by another engine.
        SafewriteError: as ``append``.
    """
    have = table.schema
    for was, now in renamed(table, wanted).items():
        raise InvalidInputError(
            f"The column {was} of {table.uri} of {name} is called {now} now: another engine renamed it. It was not added again, for its values "
            f"would be in two columns. Nothing was written. Rename it back; or rename it in columns and at the source too. If {was} is to be a "
            f"column of its own from now on, add it with that engine (ALTER TABLE ... ADD COLUMN {was}), declare {now} too, and name it in "
            "files.optional."
        )
    computed = table.row_rules.fill_names
    undeclared = sorted(set(have.names) - set(wanted.names) - computed)
    if undeclared:
        raise InvalidInputError(
            f"{table.uri} of {name} has the columns {undeclared}, which are not declared, and rows would have NULL there. "
            "Nothing was written. Declare them in columns; if files bring them no longer, name them in files.optional. Those that "
            "begin with _old_ come from files.before_image, _unchanged from files.no_sup_value."
        )
    there = frozenset(have.names)
    lacking = [one for one in wanted if one.name not in there]
    unfit = [one.name for one in lacking if not one.nullable]
    if unfit:
        raise InvalidInputError(
            f"{table.uri} of {name} lacks the columns {unfit}, which have a value in each row that the job writes: the table is not as the job "
            "makes it, and its rows have no place beside those of the job. Nothing was written to it. Give the configuration a new address "
            "for it, where the next run makes it (silver is made of all that bronze holds), and declare columns if the job took them from this "
            "table. Drop it only if none of its rows is needed."
        )
    if lacking and read_only:
        raise InvalidInputError(
            f"{table.uri} of {name} lacks the columns {[one.name for one in lacking]}. Nothing was written. The next run adds them."
        )
    wide = [one for one in wanted if one.name in there and is_wider(have.field(one.name).type, one.type)]
    if read_only or not (wide or lacking):
        return table
    _refuse_narrow(table, wide, name)
    table.append(
        pa.schema([*with_fields(have, wide), *lacking]).empty_table(),
        schema_mode="widen" if wide else "merge",
    )
    return table.refresh()


def is_wider(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether a declared type takes more values than a column of the same kind."""
    if pa.types.is_integer(have) and pa.types.is_integer(want):
        return bool(want.bit_width > have.bit_width)
    if pa.types.is_floating(have) and pa.types.is_floating(want):
        return bool(want.bit_width > have.bit_width)
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return bool(want.precision > have.precision or want.scale > have.scale)
    return False


def _refuse_narrow(table: sw.Table, fields: Sequence[pa.Field], name: str) -> None:
    """Refuse columns that cannot become as wide as they are declared."""
    of_iceberg, have = hasattr(table, "iceberg"), table.schema
    left = [
        f"{one.name} to {one.type}"
        for one in fields
        if not of_iceberg or wider(have.field(one.name).type, one.type, "iceberg") != one.type
    ]
    if left:
        why = (
            "Iceberg has no such change"
            if of_iceberg
            else "Delta needs a table feature for that which readers lack, deltalake among them, by which verify reads"
        )
        raise InvalidInputError(
            f"{table.uri} of {name} cannot be widened ({', '.join(left)}): {why}. Nothing was written. Give bronze and silver of the table "
            "new addresses, and all files that are still there land again with the wider type; or keep the type, and values that do not "
            "fit go to quarantine."
        )


def rename_file_column(table: Any, name: str) -> None:
    """Rename the column of an Iceberg bronze that an earlier release made, in a commit of its own; its field id stays, and so do all files.

    Raises:
        InvalidInputError: it has a column of the new name.
        CommitUnknownError: it may be renamed.
        NotCommittedError: others changed the table each time.
    """
    for left in reversed(range(_TRIES)):
        there = frozenset(table.schema.names)
        if FILE not in there:
            return
        if taken := [one for one in there if one.lower() == STORED_FILE]:
            raise InvalidInputError(
                f"{table.uri} of {name} has a column {taken[0]!r} of the source: bronze needs that name for its own column {FILE!r}, whose "
                "name Iceberg keeps for itself. Nothing was written. Rename the column of the source in bronze and silver, in columns, and in "
                "the files (a transformation rule of DMS), and run again."
            )
        try:
            with table.iceberg.update_schema() as update:
                update.rename_column(FILE, STORED_FILE)
        except (NotCommittedError, CommitUnknownError) as error:
            table.refresh()
            is_there = FILE in frozenset(table.schema.names)
            if is_there and (isinstance(error, CommitUnknownError) or not left):
                raise
        else:
            table.refresh()
