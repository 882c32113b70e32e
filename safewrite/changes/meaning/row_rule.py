"""Declares how rows of a table may come and go by changes in another way than the last change of a key taking its row's place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from safewrite.changes.meaning.positions import Flags, Numbers


@dataclass(frozen=True)
class RuledRows:
    """Rows that come, under the columns of the changes, and the places of those of the table that go for others which come.

    ``late`` counts changes that are older than what the table has of their keys.
    """

    come: pa.Table
    gone: Numbers
    late: int = 0


class RowRule(Protocol):
    """Says which rows come and go; picklable.

    What it says of a key rests on nothing but all changes of that key and all rows of the table that have it.
    """

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which changes find rows of the table, some of those that name a row."""

    def decided(self, changes: pa.Table, deletes: Flags, rows: pa.Table) -> RuledRows:
        """What becomes of these keys.

        Args:
            changes: all of these keys; of deletes only some columns count.
            rows: those of the table, with the same columns.

        Raises:
            InvalidInputError: a row is none of the rule's; nothing was written.
        """
