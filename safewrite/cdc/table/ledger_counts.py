"""Counts what became of the changes of a table: by a receipt, by versions, and those that are dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.ledger.ledger import LedgerEntry
from safewrite.cdc.records.change import DeadLetter


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


def counts_of_versions(changes: int, ends: int) -> Mapping[str, int]:
    """What became of changes of which all versions are kept: each begins or ends one, or is a copy of one that does."""
    return {"applied": changes, "inserted": changes - ends, "deleted": ends}


def count_again(table: TargetTable, entry: LedgerEntry, ranked: int, counts: Mapping[str, int]) -> None:
    """What a commit before did not count: dead letters, and deletes that had nothing to delete, which are known no more.

    Args:
        ranked: how many deletes' places were looked for.
    """
    idle = ranked + (entry.ignored if table.is_appended else 0)
    entry.earlier = 0
    entry.count(counts)
    entry.split = max(entry.split, entry.changes - entry.records)
    rest = entry.records - entry.changes + entry.split
    entry.dead = max(entry.dead, rest - idle)
    entry.ignored = rest - entry.dead
