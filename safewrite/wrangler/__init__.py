"""Takes awswrangler's calls: the same arguments, and commits that are safe among many writers.

Change one import and keep the calls::

    import safewrite.wrangler as wr  # instead of: import awswrangler as wr

    wr.s3.to_deltalake(df, "s3://lake/orders")
    wr.athena.to_iceberg(df, "sales", "orders", table_location="s3://lake/sales/orders")
    wr.s3.read_parquet("s3://landing/orders/")  # awswrangler's own, if it is installed

``docs/wrangler.md`` says for each argument whether it is honoured, refused or without effect.
"""

from __future__ import annotations

from typing import Any

from safewrite.wrangler import athena, s3
from safewrite.wrangler.delta import to_deltalake
from safewrite.wrangler.glue import register_deltalake
from safewrite.wrangler.handing_on import handed_on, names_of
from safewrite.wrangler.iceberg import to_iceberg

__all__ = ["athena", "register_deltalake", "s3", "to_deltalake", "to_iceberg"]


def __getattr__(name: str) -> Any:
    return handed_on("", name)


def __dir__() -> list[str]:
    return names_of("", list(globals()))
