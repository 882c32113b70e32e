"""Tells which data files may hold rows with some keys, or of a condition, by their partition and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from safewrite.delta.data.mapping import by_display_name
from safewrite.delta.data.spans import Bounded
from safewrite.delta.log.actions import Action
from safewrite.frames.predicate import Predicate, columns, partition_value, possible
from safewrite.frames.spans import Span

if TYPE_CHECKING:
    from safewrite.delta.log.snapshot import Snapshot


class Pruning:
    """Compares the keys of one batch with many files.

    Most files are left out by the least and the greatest key; only the others are compared key by key.
    """

    def __init__(self, keys: Mapping[str, pa.Array], state: Snapshot) -> None:
        self._keys, self._partition_by, self._schema = keys, state.partition_by, state.schema
        self._ends = {name: _ends(values) for name, values in keys.items()}
        self._spans, self._physical = spans_of(keys, state), state.physical

    def may_hold(self, add: Action) -> bool:
        """Whether a file may have a row with a key of the batch, as its partition and its statistics tell."""
        bounds = self._spans(add)
        for name, values in self._keys.items():
            if not len(values):
                return False
            if name in self._partition_by:
                here = partition_value(
                    (add.get("partitionValues") or {}).get(self._physical[name]), self._schema.field(name)
                )
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
    bounds = spans_of(named, state)(add)
    return True in possible(predicate, known) and True in possible(predicate, {**bounds, **known})


def spans_of(names: Collection[str], state: Snapshot) -> Callable[[Action], Mapping[str, Span]]:
    """What tells of a file the bounds of some columns, by their names; statistics know them by physical names."""
    if not state.mapping:
        return Bounded.of(state.schema, names).spans
    own = {state.physical[name]: name for name in names if name in state.physical}
    renamed = pa.schema([pa.field(one, state.schema.field(name).type) for one, name in own.items()])
    bounded = Bounded.of(renamed, own)
    return lambda add: {own[one]: span for one, span in bounded.spans(add).items()}


def constants(names: Collection[str], add: Action, state: Snapshot) -> dict[str, Any]:
    """Of some columns those that have one value in all rows of a file: partition columns, and new ones (NULL)."""
    spelled: Mapping[str, Any] = by_display_name(add.get("partitionValues") or {}, state)
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
