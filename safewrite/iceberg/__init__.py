"""Commits to Iceberg tables through a catalog, and knows whether each commit landed.

``safewrite.open("db.table", catalog=...)`` is the usual way in.  :class:`SafeCatalog` makes code safe that
calls PyIceberg itself::

    from safewrite.iceberg import SafeCatalog

    table = SafeCatalog(load_catalog("prod")).load_table("sales.orders")
    table.append(rows)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from safewrite.exports import exports

if TYPE_CHECKING:
    from safewrite.iceberg.catalog.safe_catalog import CommitStateUnknownError, NotLandedError, SafeCatalog
    from safewrite.iceberg.table import IcebergTable

__all__ = ["CommitStateUnknownError", "IcebergTable", "NotLandedError", "SafeCatalog"]

__getattr__, __dir__ = exports(
    __name__,
    {
        "CommitStateUnknownError": "safewrite.iceberg.catalog.safe_catalog",
        "NotLandedError": "safewrite.iceberg.catalog.safe_catalog",
        "SafeCatalog": "safewrite.iceberg.catalog.safe_catalog",
        "IcebergTable": "safewrite.iceberg.table",
    },
)
