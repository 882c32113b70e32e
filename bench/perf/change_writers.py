"""Calls each writer that contends with changes of its own keys: ``apply_changes``, and merges, each called again after a conflict."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import change_tables, writers
from .changes_child import merge
from .writers import DELTALAKE, DYNAMODB, OBJECT_STORE, Place, preload, settings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ARMS", "DELTALAKE", "Place", "create_for", "opened_many", "preload", "schema", "wrong"]

ARMS = (DYNAMODB, OBJECT_STORE, DELTALAKE)
ROWS_EACH = 1_000
"""Rows of each writer, in a file of their own."""
CALLS_MAX = 100


def schema() -> pa.Schema:
    """The schema of the frame that all writers are handed, and which these leave alone."""
    return writers.schema()


def create_for(arm: str, place: Place, processes: int) -> None:
    """A table with the rows of so many writers."""
    from deltalake import write_deltalake

    writers.create(arm, place, change_tables.schema())
    for part in _parts(processes):
        if arm == DELTALAKE:
            write_deltalake(place.uri, part, mode="append", storage_options=dict(place.storage_options))
        else:
            _table(arm, place).append(part)


def _parts(processes: int) -> list[pa.Table]:
    import numpy as np

    return [
        change_tables.rows_of(np.arange(ROWS_EACH) + number * ROWS_EACH, 1) for number in range(processes)
    ]


def _table(arm: str, place: Place) -> Any:
    import safewrite as sw

    return sw.open(place.uri, **settings(arm, place))


def opened_many(arm: str, place: Place, changes: int, name: str) -> Callable[..., int | None]:
    """Each call applies so many updates to keys of this writer alone, again and again until it is acked."""
    import numpy as np
    import pyarrow as pa

    writer = int(name.rpartition("-")[2])
    numbers, names = itertools.count(2), itertools.count()

    def batch() -> pa.Table:
        number = next(numbers)
        ids = writer * ROWS_EACH + np.random.default_rng(number).permutation(ROWS_EACH)[:changes]
        table = change_tables.rows_of(ids, number)
        return table.append_column("op", pa.array(["u"] * table.num_rows))

    apply = _merging(place) if arm == DELTALAKE else _applying(_table(arm, place))
    return lambda frame, key=None: _until_acked(apply, batch(), f"{name}-{next(names)}")


def _applying(table: Any) -> Callable[[pa.Table, str], bool]:
    """Apply under a key; False where another call is due."""
    import safewrite as sw

    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"], "delete_when": [("op", "=", "d")]}

    def apply(changes: pa.Table, key: str) -> bool:
        try:
            table.apply_changes(changes, key=key, **how)
        except sw.ConflictError:
            return False
        return True

    return apply


def _merging(place: Place) -> Callable[[pa.Table, str], bool]:
    """Merge; False where another call is due."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    def apply(changes: pa.Table, key: str) -> bool:
        try:
            merge(DeltaTable(place.uri, storage_options=dict(place.storage_options)), changes)
        except DeltaError:
            return False
        return True

    return apply


def _until_acked(apply: Callable[[pa.Table, str], bool], changes: pa.Table, key: str) -> int:
    """Call again after a conflict; how many calls it took."""
    for calls in range(1, CALLS_MAX + 1):
        if apply(changes, key):
            return calls
    raise RuntimeError(f"no ack in {CALLS_MAX} calls")


def wrong(place: Place, processes: int) -> str:
    """What is wrong with the table's keys, which nobody adds or deletes; empty if nothing is."""
    from deltalake import DeltaTable

    table = DeltaTable(place.uri, storage_options=dict(place.storage_options))
    ids = sorted(table.to_pyarrow_table(columns=["id"]).column("id").to_pylist())
    if ids == list(range(processes * ROWS_EACH)):
        return ""
    return f"{len(ids)} rows of {len(set(ids))} keys, and should be {processes * ROWS_EACH} of as many"
