"""Counts what became of the changes of a table: by a receipt, by versions, and those that are dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

import safewrite as sw
from safewrite.cdc.columns.frames import OP
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.change import DeadLetter
from safewrite.cdc.rows.ranking import needs_rank
from safewrite.cdc.rows.rows import ChangeRows


def count_dead(table: TargetTable, entry: LedgerEntry, letters: Sequence[DeadLetter]) -> None:
    """Count the records of a table that are dead letters.

    Raises:
        InvalidInputError: the configuration wants none.
    """
    entry.dead = len({id(letter.record) for letter in letters})
    if letters and table.dead_letters == "fail":
        where = letters[0].record
        raise sw.InvalidInputError(
            f"{entry.dead} records cannot land in {table.name}, the first of them {where.topic}/{where.partition} at "
            f"{where.offset}: {letters[0].reason}. Nothing of the batch was committed. Correct the cause, or set dead_letters to "
            "collect."
        )


def counts_of(receipt: sw.Receipt, table: TargetTable) -> Mapping[str, int] | None:
    """What became of changes, by a receipt; each row that was appended is one."""
    return {"applied": receipt.rows, "inserted": receipt.rows} if table.is_appended else receipt.changes


def counts_of_versions(frame: pa.Table) -> Mapping[str, int]:
    """What became of changes of which all versions are kept: each begins or ends one, or is a copy of one that does."""
    deletes = pc.sum(pc.equal(frame.column(OP), "d")).as_py() or 0
    return {"applied": frame.num_rows, "inserted": frame.num_rows - deletes, "deleted": deletes}


def count_again(table: TargetTable, entry: LedgerEntry, made: ChangeRows, counts: Mapping[str, int]) -> None:
    """What a commit before did not count: dead letters, and deletes that had nothing to delete, which are known no more."""
    idle = sum(needs_rank(table, row) for row in made.rows) + (entry.ignored if table.is_appended else 0)
    entry.earlier = 0
    entry.count(counts)
    entry.split = max(entry.split, entry.changes - entry.records)
    rest = entry.records - entry.changes + entry.split
    entry.dead = max(entry.dead, rest - idle)
    entry.ignored = rest - entry.dead
