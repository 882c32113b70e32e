"""Refuses what PyIceberg's own calls would do to rows of format version 3: it uploads their files, and writes no manifest of them.

It goes when PyIceberg (0.12.0) writes that version.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table, Transaction

from safewrite.errors import UnsupportedTableError


class NumberedTable(Table):
    """A table whose rows have ids, as a ``SafeCatalog`` hands it out: PyIceberg's own calls read it, and change all but its rows."""

    def transaction(self) -> Transaction:
        """A transaction that makes no snapshot."""
        return _OfNoRows(self)


class _OfNoRows(Transaction):
    def update_snapshot(self, *_: Any, **__: Any) -> Any:
        """Refuse a snapshot before a file of it is uploaded.

        Raises:
            UnsupportedTableError: always.
        """
        name = ".".join(self._table.name())
        raise UnsupportedTableError(
            f"{name} has format version 3, whose rows have ids, and PyIceberg's own calls give them none. Nothing was written. Write by "
            f"safewrite's: safewrite.open({name!r}, catalog=...).append(rows), with the catalog's properties as a dict, or its name."
        )
