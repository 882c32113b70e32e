"""Takes pandas' times with a zone to Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def instants_of(values: Any) -> pa.Array | None:
    """The instants of an array of pandas whose times, or categories, have a zone; None of any other.

    pyarrow (25.0) asks pandas for them by a way of which pandas 3.1 warns.
    """
    kind = getattr(values.dtype, "categories", values).dtype
    if getattr(kind, "tz", None) is None:
        return None
    values = values.astype(kind, copy=False)
    return pa.array(values.tz_convert(None).to_numpy(), pa.timestamp(values.dtype.unit, "UTC"))
