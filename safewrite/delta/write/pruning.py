"""Tells which data files may hold rows with some keys, by their partition and their statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.delta.data.spans import spans
from safewrite.delta.log.actions import Action
from safewrite.frames.predicate import partition_value


def may_hold(
    add: Action, keys: Mapping[str, pa.Array], partition_by: Sequence[str], schema: pa.Schema
) -> bool:
    """Whether a file may have a row with a key of the batch, as its partition and its statistics tell."""
    bounds = spans(add, schema, keys)
    for name, values in keys.items():
        if not len(values):
            return False
        if name in partition_by:
            here = partition_value((add.get("partitionValues") or {}).get(name), schema.field(name))
            if here is None or not pc.is_in(pa.scalar(here, values.type), value_set=values).as_py():
                return False
        elif name in bounds and not bounds[name].may_hold_any(values):
            return False
    return True
