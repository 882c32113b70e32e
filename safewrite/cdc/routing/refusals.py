"""Refuses a table that is not what the job left: another one under its name, or changes of an epoch that is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

import safewrite as sw
from safewrite.cdc.config.own_columns import OwnNames
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.ledger.target_tables import TargetTables, keys_of, own_names_of
from safewrite.intake.reporting import command

LAST_EPOCH = "epoch"
"""The position of a table that says which epoch its last changes were of, if it is not the first."""


def knows_job(positions: Mapping[str, int], job: str) -> bool:
    """Whether a table has positions of a job."""
    return any(name.startswith(f"{job}/") for name in positions)


def refuse_made_anew(
    job: str, table: TargetTable, targets: TargetTables, positions: Mapping[str, int], *, landed: int
) -> None:
    """A table that had rows of the job and has no positions of it is another one, without those rows."""
    if landed and not knows_job(positions, job):
        what, advice = made_anew(job, table, targets)
        raise sw.ConflictError(
            f"{what}. Nothing of the batch was committed. {advice}.", kind=sw.Kind.TABLE_REPLACED
        )


def made_anew(job: str, table: TargetTable, targets: TargetTables) -> tuple[str, str]:
    """What happened to a table that has no positions of the job which landed rows in it, and what to do.

    To begin again is for a table that was dropped: where the configuration names another place, the rows are in the place of before.
    """
    landed = f"The job {job!r} landed rows in {table.name}"
    if (other := targets.other_format(table)) is not None and knows_job(other.positions(), job):
        before = "delta" if table.format == "iceberg" else "iceberg"
        what = f"{landed} of format {before}, and the configuration says {table.format}: rows from before would not be in that table"
        return what, (
            f"Set format to {before}, as it was; or land in a table of another name, and have the source send its rows again (a snapshot)"
        )
    what = (
        f"{landed}, and the table there has no positions of it: rows from before are not in it. It was dropped, or dropped and created again; "
        "or the configuration names another place than before (format, location, warehouse, catalog)"
    )
    return what, (
        "If the configuration changed, set it as it was. If the table was dropped, restore it; or declare that it begins now with "
        f"`{command('cdc', 'restart', table.name)}`, and have the source send its rows again (a snapshot)"
    )


def refuse_set_back(job: str, table: TargetTable, positions: Mapping[str, int]) -> None:
    """Changes of an epoch before would be older than all that the table has of later ones."""
    last = positions.get(f"{job}/{LAST_EPOCH}", 0)
    if table.epoch < last:
        raise sw.InvalidInputError(
            f"The configuration says epoch {table.epoch} of {table.name}, and the job landed changes of epoch {last} there: new ones "
            "would be older than all of those, and the table would pass over them. Nothing of the batch was committed. Was the "
            f"configuration set back, or does another version of it run elsewhere? Set epoch to {last}, or higher if the source "
            "counts from its beginning."
        )


def refuse_other_key(
    table: TargetTable, recorded: tuple[str, ...] | None, schema: pa.Schema | None = None
) -> None:
    """Rows that the table has go by the key that it was created with; it has none where each record is a row."""
    way = (
        "append"
        if not recorded
        else "history"
        if schema is not None and table.own.until in schema.names
        else "upsert"
    )
    if recorded is not None and table.mode != way:
        raise sw.InvalidInputError(
            f"The table {table.name} was created with mode {way}, and the configuration says {table.mode}. Nothing of the batch was "
            "committed. Correct mode, or land in a table of another name."
        )
    if recorded is not None and table.key and recorded != table.key:
        raise sw.InvalidInputError(
            f"The table {table.name} was created with the key {list(recorded)}, and the configuration says {list(table.key)}. Nothing "
            "of the batch was committed. Correct primary_key, or land in a table of another name."
        )


def refuse_key_in_order(table: TargetTable, keys: Sequence[str]) -> None:
    """Columns of the key, which a record's key may name, are the same in all changes of a row."""
    if both := [name for name in table.precombine_key or () if name in keys]:
        raise sw.InvalidInputError(
            f"precombine_key of {table.name} has {', '.join(both)}, which {'are' if len(both) > 1 else 'is'} part of the key of its rows "
            f"({', '.join(keys)}): a key cannot order its changes. Nothing of the batch was committed. Take it out of precombine_key, or name the "
            "key in primary_key."
        )


def refuse_other_names(
    job: str, table: TargetTable, found: sw.Table | None, positions: Mapping[str, int]
) -> None:
    """Rows that the table has keep their order in the columns that they were landed with."""
    if found is None or table.is_appended:
        return
    names = frozenset(found.schema.names)
    missing = sorted({*table.own.of_order} - names)
    if keys_of(found) is not None:
        recorded = own_names_of(found)
        wrong = {has: to for has, to in zip(recorded, table.own, strict=True) if has != to}
        if wrong or missing:
            what = ", ".join(f"{has} is {to} in the configuration" for has, to in wrong.items())
            raise _other_names(table, what or f"{', '.join(missing)} is not there")
    elif missing and (knows_job(positions, job) or names & {*OwnNames().of_order}):
        raise _other_names(table, f"{', '.join(missing)} is not there")


def _other_names(table: TargetTable, what: str) -> sw.InvalidInputError:
    return sw.InvalidInputError(
        f"Rows were landed in {table.name} with their order in other columns than the configuration names: {what}. Nothing of the batch was "
        "committed. Set own_names as it was; or let an engine rename the columns, set the property cdc.own_names of the table to the JSON of "
        "the new own_names where the job created it, and start the job again."
    )


def refuse_other_rows(
    job: str, table: TargetTable, found: sw.Table | None, positions: Mapping[str, int]
) -> None:
    """Rows of a table that the job did not create are versions if its columns say so; others have no beginning to go by."""
    refuse_other_names(job, table, found, positions)
    _refuse_other_mark(table, found)
    if found is None or keys_of(found) is not None:
        return
    names = frozenset(found.schema.names)
    if table.is_appended and knows_job(positions, job) and {*table.own.of_order} <= names:
        raise sw.InvalidInputError(
            f"The job {job!r} landed rows in {table.name} by their keys, and the configuration says append: rows of both kinds would be in it. "
            "Nothing of the batch was committed. Correct mode, or land in a table of another name."
        )
    are_versions = table.own.until in names
    if are_versions and not table.has_versions:
        raise sw.InvalidInputError(
            f"The rows of {table.name} are versions, as mode history writes them, and the configuration says {table.mode}. Nothing of the "
            "batch was committed. Correct mode, or land in a table of another name."
        )
    if table.has_versions and not are_versions and found.row_count():
        raise sw.InvalidInputError(
            f"{table.name} was there before with rows that are no versions: nothing says from when on they held, and mode history cannot "
            "end them. Nothing of the batch was committed. Land in a table of another name, or in one without rows."
        )


def _refuse_other_mark(table: TargetTable, found: sw.Table | None) -> None:
    """A column that cannot hold true and false would make a dead letter of every record."""
    name = table.deleted_column
    if name is None or found is None or name not in found.schema.names:
        return
    if (kind := found.schema.field(name).type) != pa.bool_():
        raise sw.InvalidInputError(
            f"deleted_column of {table.name} names {name}, which is {kind} in the table: it has to be boolean. Nothing of the batch was "
            "committed. Name another column, which the job adds if it is not there; or let an engine rename this one."
        )


def refuse_unplaced(table: TargetTable, stored: pa.Table) -> None:
    """Versions without a position, which another writer added, have no place among those of the job."""
    if any(stored[name].null_count for name in table.own.of_order):
        raise sw.InvalidInputError(
            f"{table.name} has rows without {' or '.join(table.own.of_order)}, which another writer added, of a key that changes now: they have no place "
            "among its versions. Nothing of the batch was committed. Delete these rows, and start the job again."
        )
