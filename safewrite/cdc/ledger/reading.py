"""Reads rows of a job's tables by their keys."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw

log = logging.getLogger("safewrite")


def rows_with(
    found: sw.Table, keys: Sequence[str], wanted: Sequence[tuple[Any, ...]], options: Mapping[str, str]
) -> list[dict[str, Any]]:
    """The rows of a table, as it was loaded last, that have one of these keys.

    Raises:
        MissingExtraError: nothing is installed that reads a Delta table.
        StorageError: the table cannot be read.
    """
    wanted = [key for key in wanted if _fits(key, found.schema, keys)]
    if not wanted:
        return []
    try:
        data = _read(found, keys, wanted, options)
    except sw.SafewriteError:
        raise
    except Exception as error:  # of whatever library reads it
        raise sw.StorageError(
            f"Rows of {found.uri} cannot be read, and changes lack values that only they have ({error}). Nothing of the batch was "
            "committed; it is read again. See whether the table can be read."
        ) from error
    some = set(wanted)
    return [row for row in data.to_pylist() if tuple(row[name] for name in keys) in some]


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


def _read(
    found: sw.Table, keys: Sequence[str], wanted: Sequence[tuple[Any, ...]], options: Mapping[str, str]
) -> pa.Table:
    """Rows whose key columns each have one of the values wanted: those with the keys, and maybe others."""
    iceberg: Any = getattr(found, "iceberg", None)
    if iceberg is not None:
        return _iceberg_rows(found, keys, wanted)
    try:
        import deltalake
    except ModuleNotFoundError as error:
        raise sw.MissingExtraError(
            "Changes lack values that only rows of a Delta table have, and deltalake, which reads them, is not installed. Nothing "
            f"of the batch was committed. Install it: {sw.MissingExtraError.command('cdc')}."
        ) from error
    condition = _condition(found, keys, wanted)
    table = deltalake.DeltaTable(found.uri, version=found.version, storage_options=dict(options) or None)
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return pa.table(table.to_pyarrow_dataset().to_table(filter=condition))
    # deltalake's dataset knows no deletion vectors; its query engine does, and gives all rows in turn.
    answer = deltalake.QueryBuilder().register("rows", table).execute("SELECT * FROM rows")
    parts = (
        pa.Table.from_batches([part]).cast(found.schema) for part in pa.RecordBatchReader.from_stream(answer)
    )
    return pa.concat_tables([found.schema.empty_table(), *(part.filter(condition) for part in parts)])


def _condition(found: sw.Table, keys: Sequence[str], wanted: Sequence[tuple[Any, ...]]) -> Any:
    """That each key column has one of its values wanted."""
    condition = None
    for place, name in enumerate(keys):
        values = pa.array([key[place] for key in wanted], found.schema.field(name).type)
        one = pc.field(name).isin(values)
        condition = one if condition is None else condition & one
    return condition


def _iceberg_rows(found: Any, keys: Sequence[str], wanted: Sequence[tuple[Any, ...]]) -> pa.Table:
    """PyIceberg finds the files; what it makes of nested values that are NULL must not be carried to another key."""
    tasks = list(found.iceberg.scan(row_filter=_iceberg_filter(keys, wanted)).plan_files())
    condition = _condition(found, keys, wanted)
    parts = [part.filter(condition) for part in found.read_files(tasks)]
    return pa.concat_tables(parts, promote_options="permissive") if parts else found.schema.empty_table()


def _iceberg_filter(keys: Sequence[str], wanted: Sequence[tuple[Any, ...]]) -> Any:
    from pyiceberg.expressions import AlwaysTrue, And, In

    one_of: Any = In
    condition: Any = AlwaysTrue()
    for place, name in enumerate(keys):
        values = {key[place] for key in wanted}
        if all(type(value) in {int, str} for value in values):  # others are compared by the caller
            condition = And(condition, one_of(name, values))
    return condition
