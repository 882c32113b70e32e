"""Gathers the rows that came to a part of an exchange."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from safewrite.engine.exchange import Share
from safewrite.frames.columns import filled


def gathered(shares: Iterable[Share], schema: pa.Schema) -> pa.Table:
    """All rows under a schema, NULL in columns that a share lacks."""
    found = [filled(share.table(), schema) for share in shares]
    return pa.concat_tables([schema.empty_table(), *found]).combine_chunks()
