"""Applies batches of changes to one table by one library, and says what each took; configuration on stdin."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .change_tables import TABLE, Load, batch, catalog, properties, rows_of
from .memory_child import forget_peak, release, status

if TYPE_CHECKING:
    import pyarrow as pa

OURS_DELTA, OURS_ICEBERG = "safewrite on Delta", "safewrite on Iceberg"
OURS_MARKED = "safewrite on Iceberg, merge-on-read"
OURS_VECTORS = "safewrite on Delta, deletion vectors"
OURS_V3, OURS_V3_MARKED = "safewrite on Iceberg v3", "safewrite on Iceberg v3, deletion vectors"
ON_DELTA = (OURS_DELTA, OURS_VECTORS)
MERGE, UPSERT, SPARK_MERGE = "deltalake merge", "PyIceberg upsert", "Spark merge"
Apply = Callable[["pa.Table"], object]


def opened(arm: str, folder: Path) -> Apply:
    """What applies a batch to the table of a folder."""
    return {MERGE: _merge, UPSERT: _upsert}.get(arm, _safewrite)(arm, folder)


def _safewrite(arm: str, folder: Path) -> Apply:
    import safewrite as sw

    table = sw.open(str(folder)) if arm in ON_DELTA else sw.open(TABLE, catalog=properties(folder))
    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["lsn"], "delete_when": [("op", "=", "d")]}
    return lambda changes: table.apply_changes(changes, **how)


def _merge(arm: str, folder: Path) -> Apply:
    from deltalake import DeltaTable

    return lambda changes: merge(DeltaTable(str(folder)), changes)


def merge(table: Any, changes: pa.Table) -> None:
    """Upsert and delete where the change is newer, as a user of deltalake does."""
    columns = {name: f"s.{name}" for name in changes.column_names if name != "op"}
    (
        table.merge(changes, predicate="t.id = s.id", source_alias="s", target_alias="t")
        .when_matched_delete("s.op = 'd' AND s.lsn > t.lsn")
        .when_matched_update(columns, predicate="s.op <> 'd' AND s.lsn > t.lsn")
        .when_not_matched_insert(columns, predicate="s.op <> 'd'")
        .execute()
    )


def _upsert(arm: str, folder: Path) -> Apply:
    import pyarrow.compute as pc
    from pyiceberg.expressions import In

    here = catalog(folder)

    def apply(changes: pa.Table) -> None:
        deletes = pc.equal(changes.column("op"), "d")
        with here.load_table(TABLE).transaction() as transaction:
            gone = changes.filter(deletes).column("id").to_pylist()
            if gone:
                transaction.delete(In("id", gone))
            transaction.upsert(changes.filter(pc.invert(deletes)).drop_columns(["op"]), join_cols=["id"])

    return apply


def main() -> None:
    """Warm up by one insert, then time each batch: CPU of all threads, wall, and how far memory rose.

    It rises above what the process held before the first batch: what an allocator keeps of one batch for the next counts.
    """
    config = json.load(sys.stdin)
    load = Load(**config["load"])
    import numpy as np
    import pyarrow as pa

    apply = opened(config["arm"], Path(config["folder"]))
    apply(rows_of(np.array([-1]), 1, load.columns).append_column("op", pa.array(["c"])))
    took = []
    release(pa.default_memory_pool())
    before = status("VmRSS")
    for number in range(load.rounds):
        changes = batch(load, number)
        release(pa.default_memory_pool())
        forget_peak()
        began, cpu_s = time.monotonic(), _cpu_s()
        apply(changes)
        took.append(
            {
                "wall_s": time.monotonic() - began, "cpu_s": _cpu_s() - cpu_s,
                "peak_bytes": max(0, status("VmHWM") - before),
            }
        )  # fmt: skip
    print(json.dumps({"took": took}), flush=True)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
