"""A table of either format that Spark writes through safewrite, and what Spark reads in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import safewrite as sw
from safewrite.frames.spark.batch import computed
from safewrite.iceberg.table import IcebergTable
from tests.integration.places import rows
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.string())])


@dataclass(frozen=True)
class End:
    """``open()`` gives the table as another process would have it; ``source`` is its name in SQL."""

    spark: Spark
    open: Callable[[], sw.Table | IcebergTable]
    source: str
    hooked: HookedTable | None = None

    def frame(self, *ids: int) -> Any:
        """Rows as a Spark DataFrame, in two partitions."""
        listed = ", ".join(f"({number}L, 'v{number}')" for number in ids)
        return self.spark.session.sql(f"SELECT * FROM VALUES {listed} t(id, value)").repartition(2)

    def other_driver(self, *ids: int) -> Callable[[tuple[str, int]], sw.Receipt]:
        """What another driver would do: the call commits these rows under a batch, as Spark names them.

        One Java process makes one commit of a Delta table at a time, so for Delta the rows are Arrow's, under
        the fingerprint of Spark's.
        """
        table = self.open()
        if isinstance(table, IcebergTable):
            return lambda txn: table.append(self.frame(*ids), txn=txn)
        with self.spark.careless(), computed(self.frame(*ids)) as batch:
            name = table._format.planner.name
            table._format.planner.name = lambda _, *named: name(batch, *named)  # type: ignore[method-assign]
        return lambda txn: table.append(rows(*ids), txn=txn)

    def ids(self) -> Counter[int]:
        """How often each id is in the table, by Spark."""
        with self.spark.careless():
            self.spark.session.catalog.clearCache()
            rows = self.spark.session.sql(f"SELECT id FROM {self.source}").collect()
        return Counter(row.id for row in rows)

    def versions(self) -> int:
        """How many commits there are."""
        with self.spark.careless():
            table = self.source if self.hooked else f"{self.source}.snapshots"
            query = f"DESCRIBE HISTORY {table}" if self.hooked else f"SELECT * FROM {table}"
            return int(self.spark.session.sql(query).count())


def delta(hooked: HookedTable, schema: pa.Schema = SCHEMA) -> End:
    """A new Delta table on S3."""
    place = hooked.place
    arbiter = {"lock_table": place.lock_table} if place.lock_table else {"arbiter": place.arbiter}
    settings: dict[str, Any] = {"storage_options": dict(place.storage_options), **arbiter}
    sw.create(place.uri, schema, **settings)
    return End(hooked.spark, lambda: sw.open(place.uri, **settings), f"delta.`{hooked.uri}`", hooked)


def iceberg(lake: Lake, partition_by: str = "truncate(2, id)") -> End:
    """A new Iceberg table; tasks write frames to it, but for buckets, which Iceberg's library writes."""
    name = lake.create(SCHEMA, partition_by=[partition_by]).uri
    properties = {"name": lake.name, **lake.properties}

    def opened() -> IcebergTable:
        table = sw.open(name, catalog=properties)
        assert isinstance(table, IcebergTable)
        return table

    return End(lake.spark, opened, lake.sql(name))
