"""Counts the rows of a bronze table of others by time, and finds those that silver does not account for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from safewrite.errors import StorageError
from safewrite.intake.duck import closed_duckdb
from safewrite.medallion.config.watermark import Sync
from safewrite.medallion.lineage.external_table import Foreign

ABSENT = "$absent"
"""In rows that silver does not account for: whether it has no row of that key."""
_MODULUS = 2**63
"""Sums of hashes are kept as positions, which end there."""


@dataclass(frozen=True, slots=True)
class Digest:
    """Some rows: how many, and the sum of hashes of their keys, sequences, times and operations."""

    rows: int = 0
    total: int = 0

    def plus(self, other: Digest) -> Digest:
        """Both together."""
        return Digest(self.rows + other.rows, (self.total + other.total) % _MODULUS)


@dataclass(frozen=True, slots=True)
class Survey:
    """All rows of one state: ``below`` a floor or without a time, ``between`` that and the next floor, and ``above``."""

    below: Digest
    between: Digest
    above: Digest
    untimed: int


class Surveyor:
    """Looks at one state of a bronze table.  Times count microseconds since 1970."""

    def __init__(self, bronze: Foreign, sync: Sync, keys: Sequence[str]) -> None:
        self.bronze, self.sync, self.keys = bronze, sync, list(keys)
        names = [sync.time, *self.keys, *sync.sequence, *([sync.op] if sync.op else [])]
        self.narrow = list(dict.fromkeys(names))

    @property
    def _at(self) -> str:
        return f"epoch_us({_quoted(self.sync.time)})"

    @contextmanager
    def _asked(self) -> Iterator[Any]:
        """A connection whose errors are those of safewrite."""
        with closed_duckdb("A sync by time counts") as connection:
            import duckdb

            try:
                with self.bronze.translated():
                    yield connection
            except duckdb.Error as error:
                raise StorageError(
                    f"{self.bronze.uri} cannot be counted: {error}. Nothing was written to silver. Run again; files of the state "
                    "that was read may have been removed meanwhile."
                ) from error

    def newest_us(self) -> int | None:
        """The greatest time; None where no row has one."""
        with self._asked() as connection:
            connection.register("bronze", self.bronze.batches([self.sync.time]))
            (found,) = connection.execute(f"SELECT max({self._at}) FROM bronze").fetchall()
        return None if found[0] is None else int(found[0])

    def survey(self, floor_us: int, next_us: int) -> Survey:
        """Count all rows, in zones that end before ``floor_us`` and ``next_us``."""
        hashed = f"hash({', '.join(map(_quoted, self.narrow))})::HUGEINT"
        query = f"""
            SELECT CASE WHEN coalesce({self._at} < {floor_us}, true) THEN 0 WHEN {self._at} < {next_us} THEN 1 ELSE 2 END,
                count(*), (sum({hashed}) % {_MODULUS}::HUGEINT)::BIGINT, count(*) FILTER ({self._at} IS NULL)
            FROM bronze GROUP BY 1"""
        with self._asked() as connection:
            connection.register("bronze", self.bronze.batches(self.narrow))
            zones_found = connection.execute(query).fetchall()
        found = {zone: (Digest(rows, total), nulls) for zone, rows, total, nulls in zones_found}
        zones = [found.get(zone, (Digest(), 0)) for zone in range(3)]
        return Survey(zones[0][0], zones[1][0], zones[2][0], zones[0][1])

    def unaccounted(self, silver: Foreign, floor_us: int, columns: Sequence[str]) -> pa.Table:
        """``columns`` and ``$absent`` of rows from before a floor, or without a time, that silver neither has nor has a newer row of
        their key for.

        So are deletes of keys that silver has not: whether it took them cannot be seen in it.  A change is accounted for by a
        newer delete of its key in bronze.
        """
        keys, sequence = self.keys, self.sync.sequence
        names = list(dict.fromkeys([*keys, *sequence]))
        have = silver.read(names)
        kinds = pa.schema([self.bronze.schema.field(name).with_nullable(True) for name in names])
        deletes = ", ".join(_text(one) for one in self.sync.delete_values)
        is_delete = (
            f"coalesce(CAST({_quoted(self.sync.op)} AS VARCHAR) IN ({deletes}), false)"
            if self.sync.op
            else "false"
        )
        key, order = ", ".join(map(_quoted, keys)), ", ".join(map(_quoted, sequence))
        no_order = " OR ".join(f"{_quoted(name)} IS NULL" for name in sequence)
        with self._asked() as connection:
            connection.register("have", have.select(names).cast(kinds))
            connection.register("bronze", self.bronze.batches(self.narrow))
            connection.execute(f"""
                CREATE TEMP TABLE changes AS SELECT {key}, row({order}) AS "$place", {is_delete} AS "$gone", {no_order} AS "$unplaced",
                    coalesce({self._at} < {floor_us}, true) AS "$below" FROM bronze;
                CREATE TEMP TABLE ends AS SELECT {key}, max("$place") AS "$place" FROM changes
                    WHERE "$gone" AND NOT "$unplaced" GROUP BY {key};
                CREATE TEMP TABLE silver AS SELECT {key}, row({order}) AS "$place", {no_order} AS "$unplaced" FROM have""")
            # NULL is equal to nothing in a join: a row without a key has no match, and is found as one that silver lacks.
            connection.execute(f"""
                CREATE TEMP TABLE picked AS SELECT DISTINCT {", ".join(f"c.{_quoted(one)}" for one in keys)}, c."$place",
                    s."$place" IS NULL AND NOT c."$unplaced" AS "{ABSENT}" FROM changes c LEFT JOIN silver s ON {_same("c", "s", keys)} LEFT JOIN ends e ON {_same("c", "e", keys)}
                WHERE c."$below" AND CASE
                    WHEN c."$unplaced" THEN true
                    WHEN s."$place" IS NOT NULL THEN s."$unplaced" OR c."$place" > s."$place"
                    ELSE e."$place" IS NULL OR c."$place" > e."$place" OR (c."$gone" AND c."$place" = e."$place") END""")
            connection.register("bronze", self.bronze.batches(list(dict.fromkeys([*columns, *self.narrow]))))
            same = " AND ".join(f"p.{_quoted(one)} IS NOT DISTINCT FROM b.{_quoted(one)}" for one in keys)
            rows = connection.sql(f"""
                SELECT {", ".join(f"b.{_quoted(one)}" for one in columns)}, p."{ABSENT}" FROM bronze b JOIN picked p
                ON {same} AND p."$place" IS NOT DISTINCT FROM row({", ".join(f"b.{_quoted(one)}" for one in sequence)})
                WHERE coalesce({self._at} < {floor_us}, true)""")
            found: pa.Table = rows.to_arrow_table()
        return found


def _same(left: str, right: str, keys: Sequence[str]) -> str:
    return " AND ".join(f"{left}.{_quoted(one)} = {right}.{_quoted(one)}" for one in keys)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
