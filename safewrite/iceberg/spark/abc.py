"""States what a write by tasks asks of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from safewrite.iceberg.write.append import AppendPlan
from safewrite.iceberg.write.write import IcebergDone
from safewrite.protocol.iceberg.head import TableVersion
from safewrite.table.format import Format

if TYPE_CHECKING:
    from safewrite.iceberg.connect import Connection
    from safewrite.iceberg.write.plans import Planner


class SparkTable(Format[TableVersion, AppendPlan, IcebergDone], Protocol):
    """A table that Spark frames are written to."""

    @property
    def planner(self) -> Planner: ...

    @property
    def connection(self) -> Connection: ...
