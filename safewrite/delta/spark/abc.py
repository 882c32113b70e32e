"""States what a write by tasks asks of a Delta table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from safewrite.delta.write.recalled import DeltaDone
from safewrite.delta.write.transaction import Transaction
from safewrite.table.format import Format

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.delta.connect import Connection
    from safewrite.delta.log.snapshot import Snapshot
    from safewrite.delta.write.plans import Planner


class SparkTable(Format["Snapshot | None", Transaction, DeltaDone], Protocol):
    """A table that Spark frames are written to."""

    @property
    def planner(self) -> Planner: ...

    @property
    def connection(self) -> Connection: ...

    def ready_for_spark(self, schema: Callable[[], pa.Schema] | None, /) -> Snapshot:
        """The table as it is now, created if it may be, its arbiter recorded."""
