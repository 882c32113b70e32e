"""Takes awswrangler's calls: the same arguments, and commits that are safe among many writers.

Change one import and keep the calls::

    from safewrite.wrangler import to_deltalake, to_iceberg  # instead of awswrangler.s3 and awswrangler.athena

``docs/wrangler.md`` says for each argument whether it is honoured, refused or without effect.
"""

from __future__ import annotations

from safewrite.wrangler.delta import to_deltalake
from safewrite.wrangler.glue import register_deltalake
from safewrite.wrangler.iceberg import to_iceberg

__all__ = ["register_deltalake", "to_deltalake", "to_iceberg"]
