"""Tells which data files may hold rows with some keys, or of a condition, by their partition and their statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.delta.data.spans import Bounded
from safewrite.delta.log.actions import Action
from safewrite.frames.predicate import Predicate, columns, partition_value, possible

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot


class Pruning:
    """Compares the keys of one batch with many files.

    Most files are left out by the least and the greatest key; only the others are compared key by key.
    """

    def __init__(self, keys: Mapping[str, pa.Array], partition_by: Sequence[str], schema: pa.Schema) -> None:
        self._keys, self._partition_by, self._schema = keys, partition_by, schema
        self._ends = {name: _ends(values) for name, values in keys.items()}
        self._bounded = Bounded.of(schema, keys)

    def may_hold(self, add: Action) -> bool:
        """Whether a file may have a row with a key of the batch, as its partition and its statistics tell."""
        bounds = self._bounded.spans(add)
        for name, values in self._keys.items():
            if not len(values):
                return False
            if name in self._partition_by:
                here = partition_value((add.get("partitionValues") or {}).get(name), self._schema.field(name))
                if here is None or not pc.is_in(pa.scalar(here, values.type), value_set=values).as_py():
                    return False
            elif name in bounds:
                span, ends = bounds[name], self._ends[name]
                if (ends is not None and not span.may_overlap(*ends)) or not span.may_hold_any(values):
                    return False
        return True


def may_match(predicate: Predicate, add: Action, *, state: Snapshot) -> bool:
    """Whether a file may have a row for which a condition is TRUE, as its partition and its statistics tell."""
    named = columns(predicate)
    known = constants(named, add, state)
    bounds = Bounded.of(state.schema, named).spans(add)
    return True in possible(predicate, known) and True in possible(predicate, {**bounds, **known})


def constants(names: Collection[str], add: Action, state: Snapshot) -> dict[str, Any]:
    """Of some columns those that have one value in all rows of a file: partition columns, and new ones (NULL)."""
    spelled = add.get("partitionValues") or {}
    of_partition = {
        name: partition_value(spelled.get(name), state.schema.field(name))
        for name in sorted(names)
        if name in state.partition_by
    }
    return of_partition | dict.fromkeys(set(names).difference(state.schema.names))


def _ends(values: pa.Array) -> tuple[Any, Any] | None:
    """The least and the greatest value; None where they have no order that Python and Arrow share."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date32(kind)):
        return None
    found = pc.min_max(values).as_py()
    return None if found["min"] is None else (found["min"], found["max"])
