"""Reads a table as meanings, whole or by a condition, with readers that are not the writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import deltalake
import duckdb
import polars as pl
import pyarrow as pa

from safewrite.testing.crosscheck import conditions
from safewrite.testing.crosscheck.meaning import Meaning, read
from safewrite.testing.crosscheck.program import Where

Found = list[dict[str, Meaning]]
Types = Mapping[str, pa.DataType]


class Reader(Protocol):
    """Reads the table that is there now; raises whatever its library raises."""

    def __call__(self, types: Types, where: Where | None) -> Found: ...


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    """One of a process: to start one takes longer than to read a table.  It keeps nothing of a file."""
    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def duck() -> duckdb.DuckDBPyConnection:
    """A connection to DuckDB, whose times are in UTC."""
    connection = _engine().cursor()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def meanings(table: Any, types: Types) -> Found:
    """The rows of an Arrow table (or what can become one) as meanings."""
    known = table if isinstance(table, pa.Table) else pa.table(table)
    return [
        {
            name: read(value, types.get(name, pa.null())) if name in types else value
            for name, value in row.items()
        }
        for row in known.to_pylist()
    ]


# --- Delta -------------------------------------------------------------------------------------------
def delta_readers(uri: str, options: Mapping[str, str]) -> dict[str, Reader]:
    """All readers of a Delta table that need no JVM."""

    def table() -> deltalake.DeltaTable:
        return deltalake.DeltaTable(uri, storage_options=dict(options) or None)

    def by_deltalake(types: Types, where: Where | None) -> Found:
        dataset = table().to_pyarrow_dataset()
        chosen = None if where is None else conditions.expression(where, types)
        return meanings(dataset.to_table(filter=chosen), types)

    def by_datafusion(types: Types, where: Where | None) -> Found:
        engine = deltalake.QueryBuilder().register("t", table())
        chosen = "" if where is None else f" WHERE {conditions.sql(where, 'datafusion', types)}"
        return meanings(pa.table(engine.execute(f"SELECT * FROM t{chosen}").read_all()), types)

    def by_polars(types: Types, where: Where | None) -> Found:
        frame = pl.scan_delta(uri, storage_options=dict(options) or None)
        return meanings(_filtered(frame, where, types).collect().to_arrow(), types)

    def by_duckdb(types: Types, where: Where | None) -> Found:
        known = table()
        files = pa.table(known.get_add_actions(flatten=True)).to_pylist()
        paths = dict(zip(known.file_uris(), files, strict=True))
        partitions = known.metadata().partition_columns
        found: Found = []
        for path, action in paths.items():
            constants = {name: read(action[f"partition.{name}"], types[name]) for name in partitions}
            found += [row | constants for row in _in_file(path, types)]
        return found if where is None else [row for row in found if conditions.holds(where, row)]

    return {"deltalake": by_deltalake, "datafusion": by_datafusion, "polars": by_polars} | (
        {} if "://" in uri else {"duckdb": by_duckdb}
    )


def _filtered(frame: pl.LazyFrame, where: Where | None, types: Types) -> pl.LazyFrame:
    return frame if where is None else frame.filter(polars_expression(where, types))


def polars_expression(where: Where, types: Types) -> pl.Expr:
    """The condition as one of polars'."""
    column = pl.col(where.column)
    match where.op:
        case "and" | "or":
            parts = [polars_expression(part, types) for part in where.parts]
            return pl.all_horizontal(parts) if where.op == "and" else pl.any_horizontal(parts)
        case "not":
            return ~polars_expression(where.parts[0], types)
        case "is null":
            return column.is_null()
    if where.op == "in":
        return column.is_in(pl.Series(pa.array(list(where.value), types[where.column])).to_list())
    series = pl.from_arrow(pa.array([where.value], types[where.column]))
    assert isinstance(series, pl.Series)
    literal = pl.lit(series).first()
    operators: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
        "=": pl.Expr.eq,
        "!=": pl.Expr.ne,
        "<": pl.Expr.lt,
        "<=": pl.Expr.le,
        ">": pl.Expr.gt,
        ">=": pl.Expr.ge,
    }
    return operators[where.op](column, literal)


def _in_file(path: str, types: Types) -> Iterator[dict[str, Meaning]]:
    """The rows of one Parquet file as DuckDB's own reader of Parquet sees them."""
    with duck() as connection:
        held = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning=false)", [path])
        for row in meanings(held.to_arrow_table(), types):
            yield {name: row.get(name) for name in types} | row


# --- Iceberg -----------------------------------------------------------------------------------------
def iceberg_readers(load: Callable[[], Any]) -> dict[str, Reader]:
    """All readers of an Iceberg table that need no JVM; ``load`` gives PyIceberg's own object of it."""

    def by_pyiceberg(types: Types, where: Where | None) -> Found:
        scan = load().scan() if where is None else load().scan(row_filter=conditions.iceberg(where))
        return meanings(scan.to_arrow(), types)

    def by_polars(types: Types, where: Where | None) -> Found:
        frame = pl.scan_iceberg(load(), reader_override="native")
        return meanings(_filtered(frame, where, types).collect().to_arrow(), types)

    def by_duckdb(types: Types, where: Where | None) -> Found:
        table = load()
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            return by_polars(types, where)
        numbers = {field.name: field.field_id for field in table.schema().fields}
        found: Found = []
        for task in tasks:
            found += _by_field_ids(task.file.file_path.removeprefix("file://"), numbers, types)
        return found if where is None else [row for row in found if conditions.holds(where, row)]

    return {"pyiceberg": by_pyiceberg, "polars": by_polars, "duckdb": by_duckdb}


def _by_field_ids(path: str, numbers: Mapping[str, int], types: Types) -> Found:
    """The rows of one file, with columns found by Iceberg's field ids."""
    with duck() as connection:
        held = connection.execute("SELECT name, field_id FROM parquet_schema(?)", [path]).fetchall()
        names = {number: name for name, number in reversed(held) if number is not None}
        rows = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning=false)", [path])
        table: Any = rows.to_arrow_table()
    there = {
        name: names[number] for name, number in numbers.items() if names.get(number) in table.column_names
    }
    renamed = table.select(list(there.values())).rename_columns(list(there))
    return [{name: row.get(name) for name in types} for row in meanings(renamed, types)]


def whole(
    readers: Mapping[str, Reader], types: Types, where: Where | None
) -> Sequence[tuple[str, Found | Exception]]:
    """What each reader finds, or what it raised."""
    found: list[tuple[str, Found | Exception]] = []
    for name, reader in readers.items():
        try:
            found.append((name, reader(types, where)))
        except BaseException as error:  # polars panics with an exception that is none of Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            found.append(
                (
                    name,
                    error
                    if isinstance(error, Exception)
                    else RuntimeError(f"{type(error).__name__}: {error}"),
                )
            )
    return found
