"""A Delta table on S3 that Spark writes through safewrite's hook, by way of a fault proxy."""

from __future__ import annotations

from collections import Counter
from typing import Any

from safewrite.delta.spark.log_store import SparkTable
from safewrite.delta.spark.session import hook_of
from safewrite.protocol.ask import Limits
from safewrite.spark import attach
from tests.integration.places import LEASE_S, Place, rows
from tests.servers import PlannedProxy
from tests.spark.session import Spark


class HookedTable:
    """Spark's data goes straight to the store, safewrite's requests for its commits go through the proxy."""

    def __init__(self, spark: Spark, place: Place, proxy: PlannedProxy) -> None:
        self.spark, self.place, self.proxy = spark, place, proxy
        self.uri = place.uri.replace("s3://", "s3a://")
        named = {"lock_table": place.lock_table} if place.lock_table else {"arbiter": place.arbiter}
        attach(spark.session, storage_options=proxy.storage_options(), **named)

    def hook(self) -> SparkTable:
        """The table as the hook knows it."""
        return hook_of(self.spark.session).commits.table(self.uri)

    def impatient(self) -> None:
        """Ask little and wait little, where the test wants an answer to stay lost."""
        self.hook().limits = Limits(asks=2, attempts=5, lease_s=LEASE_S, timeout_s=20.0)

    def write(self, *ids: int, mode: str = "append", **options: Any) -> None:
        """Write rows as a Spark job does that knows nothing of safewrite."""
        self.spark.write(self.uri, rows(*ids), mode=mode, **options)

    def run(self, statement: str) -> None:
        """Run SQL in which ``{t}`` is the table."""
        self.spark.run(statement.format(t=f"delta.`{self.uri}`"))

    def ids(self) -> Counter[int]:
        """How often each id is in the table, by Spark."""
        return self.spark.ids({"t": self.uri})["t"]

    def readers(self) -> list[Counter[int]]:
        """The same by Spark, deltalake and a plain replay of the log."""
        return [self.ids(), self.place.ids(), self.place.replayed_ids()]
