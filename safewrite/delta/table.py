"""A Delta table with exactly-once writes."""

from __future__ import annotations

from collections.abc import Callable

from safewrite.boundary.public import verb
from safewrite.delta.format import DeltaFormat
from safewrite.table.verbs import Table


class DeltaTable(Table):
    """A Delta table that many writers share; its verbs are those of :class:`safewrite.Table`."""

    _format: DeltaFormat

    def __init__(self, table_format: DeltaFormat, *, reopen: Callable[[], Table] | None = None) -> None:
        super().__init__(table_format, reopen=reopen)

    def __repr__(self) -> str:
        return f"<safewrite.DeltaTable {self.uri} version={self.version} arbiter={self.arbiter}>"

    @verb
    def checkpoint(self) -> bool:
        """Make a checkpoint of the newest version, unless there is one; True if it was made."""
        return self._format.checkpoint()
