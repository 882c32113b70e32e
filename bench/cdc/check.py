"""Compares a lake with PostgreSQL, row by row and value by value; reads with engines that did not write."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import psycopg2
import psycopg2.extras
import pyarrow as pa

from bench.cdc.modes import OURS, current
from bench.cdc.source_stack import DATABASE, Job
from bench.cdc.workload import TABLES, Key, SourceTable

Rows = dict[Key, list[dict[str, Any]]]
_AS_TEXT = frozenset({"json", "jsonb", "uuid"})


@dataclass(frozen=True)
class Difference:
    """How the rows of one table differ from their source."""

    table: str
    rows: int
    lost: int
    revived: int
    doubled: int
    stale: int
    examples: tuple[str, ...] = ()

    @property
    def flaws(self) -> int:
        return self.lost + self.revived + self.doubled + self.stale


def source_rows(address: str, table: SourceTable) -> Rows:
    """The rows of a table of PostgreSQL by key, each value as Debezium's documentation maps its type."""
    with closing(psycopg2.connect(address)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'public' AND table_name = %s ORDER BY ordinal_position",
            (table.name,),
        )
        parts = []
        for name, kind in cursor.fetchall():
            if kind in _AS_TEXT:
                parts.append(f"{name}::text AS {name}")
            elif kind == "interval":
                parts.append(f"(extract(epoch FROM {name}) * 1000000)::bigint AS {name}")
            else:
                parts.append(name)
        cursor.execute("SET timezone TO 'UTC'")
        cursor.execute(f"SELECT {', '.join(parts)} FROM {table.name}")
        names = [one.name for one in cursor.description or ()]
        found: Rows = {}
        for values in cursor.fetchall():
            row = {name: _plain(value) for name, value in zip(names, values, strict=True)}
            found.setdefault(_key(table, row), []).append(row)
    return found


def read(job: Job, name: str, database: str = DATABASE) -> pa.Table | None:
    """A table of a job; None before it is made."""
    if job.form == "delta":
        try:
            return pa.table(deltalake.DeltaTable(str(job.lake / database / name)).to_pyarrow_table())
        except deltalake.exceptions.TableNotFoundError:
            return None
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    try:
        return load_catalog(**job.catalog).load_table(f"{database}.{name}").scan().to_arrow()
    except NoSuchTableError:
        return None


def lake_rows(table: SourceTable, data: pa.Table) -> Rows:
    """The rows of a table of a lake by key."""
    found: Rows = {}
    for row in data.drop_columns([name for name in data.column_names if name in OURS]).to_pylist():
        found.setdefault(_key(table, row), []).append(row)
    return found


def compare(
    table: SourceTable, expected: Rows, found: Rows, columns: Sequence[str] | None = None
) -> Difference:
    """What is lost, revived (or never was), there more than once, or has another value (in some columns only)."""
    lost = [key for key in expected if key not in found]
    revived = [key for key in found if key not in expected]
    doubled = [key for key, rows in found.items() if len(rows) > 1]
    stale = []
    for key, (row,) in expected.items():
        if key in found and (column := _differs(row, found[key][0], columns)) is not None:
            stale.append(f"{key}: {column} is {found[key][0].get(column)!r:.80}, not {row[column]!r:.80}")
    examples = [f"lost {key}" for key in lost[:3]] + [f"revived {key}" for key in revived[:3]]
    examples += [f"doubled {key}" for key in doubled[:3]] + stale[:3]
    return Difference(
        table.name, len(expected), len(lost), len(revived), len(doubled), len(stale), tuple(examples)
    )


def differences(address: str, job: Job) -> list[Difference]:
    """All tables of a job behind PostgreSQL."""
    return differences_from(lambda table: source_rows(address, table), TABLES, job)


def differences_from(
    rows: Callable[[SourceTable], Rows], tables: Sequence[SourceTable], job: Job
) -> list[Difference]:
    """All tables of a job whose source has these rows."""
    made = []
    for table in tables:
        data = read(job, table.name)
        mode = job.modes.get(table.name, "upsert")
        found = {} if data is None else lake_rows(table, current(table, mode, data))
        made.append(compare(table, rows(table), found))
    return made


def rival_differences(address: str, lake: Path) -> list[Difference]:
    """All tables that a rival wrote, by their columns of plain types: what it makes of the others is another question."""
    made = []
    for table in TABLES:
        try:
            data = deltalake.DeltaTable(str(lake / DATABASE / table.name)).to_pyarrow_table()
            found = lake_rows(table, pa.table(data))
        except deltalake.exceptions.TableNotFoundError:
            found = {}
        made.append(compare(table, source_rows(address, table), found, table.plain))
    return made


def is_marked(job: Job) -> bool:
    """Whether the lake has the rows that were written last."""
    for table in TABLES:
        data = read(job, table.name)
        if data is None or table.marker not in lake_rows(table, data.select([*table.key])):
            return False
    return True


def _key(table: SourceTable, row: Mapping[str, Any]) -> Key:
    return tuple(row[name] for name in table.key)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _differs(
    expected: Mapping[str, Any], found: Mapping[str, Any], columns: Sequence[str] | None
) -> str | None:
    """The first column whose values are not the same."""
    if columns is None and (extra := set(found) - set(expected)):
        return min(extra)
    names = expected if columns is None else columns
    return next((name for name in names if not _same(expected[name], found.get(name))), None)


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected):
        return math.isnan(found)
    if isinstance(expected, time) and isinstance(found, str):  # Delta has no type for it
        return expected == time.fromisoformat(found)
    if isinstance(expected, Decimal) and isinstance(
        found, str
    ):  # no fixed scale: PostgreSQL keeps zeros at the end
        return expected == Decimal(found)
    return type(expected) is type(found) and bool(expected == found)
