"""Holds what one table gets of a batch, from its changes to its frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import safewrite as sw
from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.job import Config
from safewrite.cdc.config.table_config import Table
from safewrite.cdc.landing.frames import Frame
from safewrite.cdc.landing.origin import TableSource
from safewrite.cdc.landing.rows import Rows
from safewrite.cdc.landing.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.batch import Ranges
from safewrite.cdc.records.change import Change, DeadLetter
from safewrite.cdc.records.change_set import ChangeSet


@dataclass
class TableBatch:
    """What one table gets of a batch."""

    table: Table
    line: LedgerEntry
    found: sw.Table | None
    frame: Frame | None = None
    changes: Sequence[Change] = ()
    made: Rows = field(default_factory=Rows)
    refused: Mapping[str, str] = field(default_factory=dict)
    """Columns that the table cannot have, and why."""
    positions: dict[str, int] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=dict)
    """The offsets of its batch."""
    given: ChangeSet = field(default_factory=ChangeSet)
    snapshots: SnapshotBoundary | None = None
    dead: list[DeadLetter] = field(default_factory=list)
    strange: list[DeadLetter] = field(default_factory=list)
    """Those of other sources than the table's."""
    origin: TableSource | None = None
    ignored: int = 0
    """Records that were read and say nothing of a row."""

    def rules(self, config: Config) -> ColumnRules:
        """How values of the table's source columns are read; the table may not be made yet."""
        schema = None if self.found is None else self.found.schema
        return ColumnRules(self.table, schema, config.decimals)
