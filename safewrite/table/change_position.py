"""Names how far a reader of changes has come, in a text that it keeps."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from safewrite.errors import InvalidInputError
from safewrite.table.added_rows import BEFORE_ALL
from safewrite.text.rendering import shown

if TYPE_CHECKING:
    import pyarrow as pa

    from safewrite.table.history import HistoryEntry

Since: TypeAlias = "str | int | dt.datetime | None"
"""What a caller may give: a position, a version, a time, or None for the beginning."""
_TEXT = re.compile(r"(all:)?(-1|\d+)(?:\+(\d+)\.([0-9a-f]{8}))?@([^@\s]+)")


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """How far the changes of a table were taken.

    ``version`` is the commit that was taken last; with ``rows``, the one of which so many changes were taken.  ``schema`` then
    names the columns that they were given with: others may be other changes.  ``whole``: they are rows of the whole table.
    """

    version: int
    table_id: str | None = None
    rows: int = 0
    schema: str = ""
    whole: bool = False

    def __str__(self) -> str:
        within = f"+{self.rows}.{self.schema}" if self.rows else ""
        return f"{'all:' if self.whole else ''}{self.version}{within}@{self.table_id}"

    def within(self, rows: int, schema: pa.Schema, *, whole: bool) -> ChangePosition:
        """The same commit, once so many of its changes were taken."""
        return replace(self, rows=rows, schema=mark_of(schema), whole=whole)


def mark_of(schema: pa.Schema) -> str:
    """A short name of a schema's columns and types."""
    text = "\n".join(f"{field.name}\x1f{field.type}" for field in schema)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def checked(since: Any) -> ChangePosition | dt.datetime | None:
    """What a caller gave.

    Raises:
        InvalidInputError: it is no position, no version and no time with a zone.
    """
    if since is None or (isinstance(since, dt.datetime) and since.tzinfo is not None):
        return since
    if type(since) is int and since >= BEFORE_ALL:
        return ChangePosition(since)
    found = _TEXT.fullmatch(since) if isinstance(since, str) else None
    if found is None:
        raise InvalidInputError(
            "changes_since() takes the position of a batch that it gave, a Delta version, an Iceberg snapshot id, -1 (before the "
            f"first), a datetime with a time zone, or None (all rows), not {shown(since)}. Nothing was read."
        )
    whole, version, rows, schema, table_id = found.groups()
    return ChangePosition(int(version), table_id, int(rows or 0), schema or "", bool(whole))


def before(at: dt.datetime, history: Sequence[HistoryEntry]) -> int:
    """The version after which all commits of a time and later come; ``history`` has the newest first.

    Clocks of writers differ: a commit before one of that time comes too, whatever its own time is.
    """
    late = [number for number, one in enumerate(history) if one.timestamp is None or one.timestamp >= at]
    if not late:
        return history[0].version if history else BEFORE_ALL
    oldest = late[-1] + 1
    return history[oldest].version if oldest < len(history) else BEFORE_ALL
