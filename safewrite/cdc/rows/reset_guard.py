"""Refuses late changes whose timestamps are newer than all that their table has: the source was set back.

A source that was set back (restored, failed over to a replica that counts for itself) looks so.  ``all_late`` of
``apply_changes`` sees it only in a batch of which every change is late; one new key in the batch, and it is silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import safewrite as sw
from safewrite.cdc.config.table_config import TargetTable
from safewrite.cdc.records.change import Op
from safewrite.cdc.rows.rows import ChangeRow, ChangeRows

_CHANGES = ("applied", "late", "duplicate", "superseded")
Check = Callable[[Any, Mapping[str, int]], None]


def check_of(
    table: TargetTable,
    rows_left: Callable[[], ChangeRows],
    known_ms: int | None,
    *,
    is_again: bool = False,
) -> Check | None:
    """What ``apply_changes`` is to ask of its counts; None where nothing tells.

    Args:
        rows_left: the rows of all changes that are no dead letters, for these are late by nothing; it is asked if a change is late.
        known_ms: the newest time of the source that the table has; None before it has one.
        is_again: whether no change is newer by that clock: then all of them may be late, for they were sent again.
    """
    if table.all_late == "count":
        return None
    sequence = table.own.sequence

    def check(rows: Any, counts: Mapping[str, int]) -> None:
        if not counts["late"]:
            return
        if not is_again and counts["late"] == sum(counts.get(name, 0) for name in _CHANGES):
            raise all_late_error(table, counts["late"], is_whole=True)
        if known_ms is None or table.sequence != "source":
            return
        whole = rows_left()
        if any(row.op is Op.TRUNCATE for row in whole.rows):  # what it makes late is in the same batch
            return
        excused = _excused(whole, known_ms)
        written = set(rows[sequence].to_pylist())
        lost = [row for row in _last(whole, sequence) if row.op is Op.UPSERT and id(row) not in excused]
        count = sum(row.values[sequence] not in written for row in lost)
        count = max(count, counts["late"] - len(excused))  # of deletes nothing is written
        if count > 0:
            raise all_late_error(table, count)

    return check


def _last(made: ChangeRows, sequence: str) -> Iterable[ChangeRow]:
    """The row of each key that is the last of the batch."""
    last: dict[tuple[Any, ...], ChangeRow] = {}
    for row in made.rows:
        key = tuple(row.values.get(name) for name in made.keys)
        if key not in last or last[key].values[sequence] < row.values[sequence]:
            last[key] = row
    return last.values()


def _excused(made: ChangeRows, known_ms: int) -> set[int]:
    """Rows that may be late: those that were sent again, rows that were read, and those of a changed key."""
    of_change = Counter(id(row.change) for row in made.rows)
    return {
        id(row)
        for row in made.rows
        if row.change.is_read
        or row.change.source_time_ms is None
        or row.change.source_time_ms <= known_ms
        or of_change[id(row.change)] > 1
    }


def all_late_error(table: TargetTable, count: int, *, is_whole: bool = False) -> sw.InvalidInputError:
    """What refuses late changes."""
    what = (
        f"Every change of {table.name} in this batch ({count} in all) is older than the row that the table has of its key"
        if is_whole
        else f"{count} changes of {table.name} have lower log positions but newer timestamps "
        "than the rows already in the table"
    )
    order = (
        ""
        if table.sequence == "source"
        else f"Are the columns right that order them ({', '.join(table.precombine_key or ())})? "
    )
    other = (
        "only late records came (a topic was read again from its beginning, say)"
        if is_whole
        else "only its clock was wrong"
    )
    return sw.InvalidInputError(
        f"{what}: the source may have been set back (restored, failed over, another connector with a new log), and these changes would be "
        f"lost in silence. Nothing of the batch was committed to this table. {order}Look at the source first. If {other}, set all_late to "
        "count: late changes are passed over then, and no row is altered. If the source was set back, raise epoch of the table and have the "
        "source send all its rows again (a snapshot), for under a new epoch a change that was sent again takes the place of a newer row."
    )
