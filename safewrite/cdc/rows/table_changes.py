"""Makes rows of the changes of one table: as columns where both ways are sure to make the same, else one by one.

This module alone chooses between the two ways; ``project_columns`` and ``rows`` are the ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from safewrite.cdc.config.column_rules import ColumnRules
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.envelopes.decoding import Decoder
from safewrite.cdc.records.change import SourceChange
from safewrite.cdc.records.change_set import ChangeSet
from safewrite.cdc.rows.project_columns import projected
from safewrite.cdc.rows.rows import ChangeRows, rows_of
from safewrite.cdc.rows.snapshot_boundary import SnapshotBoundary
from safewrite.cdc.rows.unavailable_values import taking

Keys = tuple[str, ...] | None


@dataclass(frozen=True)
class Made:
    """The rows of a table's changes.

    ``changes`` are those that were made to rows one by one, and ``ignored`` counts records that say nothing of a row.
    """

    rows: ChangeRows
    changes: Sequence[SourceChange]
    snapshots: SnapshotBoundary
    ignored: int = 0


@dataclass(frozen=True)
class TableChanges:
    """The changes of one table, and what reads them."""

    changes: ChangeSet
    rules: ColumnRules
    decoder: Decoder
    is_whole: bool = True
    """Whether these are all changes of the batch.  Then all are made one by one where a changed key takes values of a row with another
    key, and a truncate needs a key that one of them names."""

    def made(self, snapshots: SnapshotBoundary, keys: Keys) -> Made:
        """The rows of the changes, as columns as far as they can be."""
        return self._as_columns(snapshots, keys) or self.made_each(snapshots, keys)

    def _as_columns(self, snapshots: SnapshotBoundary, keys: Keys) -> Made | None:
        """The rows as columns, and one by one those in doubt; None where all changes have to be made one by one."""
        table, changes = self.rules.table, self.changes
        keys = keys or table.key or named_keys(changes.keys, table)
        keys = () if table.is_appended else keys
        columns = snapshots.ordered_columns(changes)
        if not changes.columns or columns is None or not (keys or table.is_appended):
            return None
        parts = [projected(self.rules, batch, keys) for batch in columns]
        others = self.decoder.each(ChangeSet(changes.rows, [rest for _, rest in parts if rest is not None]))
        if others.dead or others.ignored:
            return None
        ordered = snapshots.ordered(others.rows)
        sure = [one for one, _ in parts if one is not None]
        made = rows_of(self.rules, ordered, keys, projected=sure, is_whole=self.is_whole)
        if self.is_whole and taking(made.rows, keys):
            return None
        return Made(made, ordered, snapshots)

    def made_each(self, snapshots: SnapshotBoundary, keys: Keys) -> Made:
        """The rows of all changes, made one by one."""
        read = self.decoder.each(self.changes)
        ordered = snapshots.ordered(read.rows)
        made = rows_of(self.rules, ordered, keys, is_whole=self.is_whole)
        made.dead += [replace(letter, table=self.rules.table.name) for letter in read.dead]
        return Made(made, ordered, snapshots, len(read.ignored))


def named_keys(keys: Sequence[str], table: TargetTable) -> tuple[str, ...]:
    """The key of a table that has none yet, as the records' keys name it."""
    if not keys:
        return ()
    first = (table.shard_column,) if table.shard_column is not None and table.writes_shard else ()
    return (*first, *(table.column_of(name) for name in keys if name not in table.leave_out))
