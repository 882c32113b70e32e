"""Commits to Iceberg tables through a catalog, and knows whether each commit landed.

``safewrite.open("db.table", catalog=...)`` is the usual way in.  :class:`SafeCatalog` makes code safe that
calls PyIceberg itself::

    from safewrite.iceberg import SafeCatalog

    table = SafeCatalog(load_catalog("prod")).load_table("sales.orders")
    table.append(rows)
"""

from __future__ import annotations

from safewrite.iceberg.catalog.safe_catalog import CommitStateUnknownError, NotLandedError, SafeCatalog
from safewrite.iceberg.table import IcebergTable

__all__ = ["CommitStateUnknownError", "IcebergTable", "NotLandedError", "SafeCatalog"]
