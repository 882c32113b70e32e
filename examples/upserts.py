"""Applies a change log, shuffled and delivered twice, to a local table: `python -m examples.upserts FOLDER`."""

from __future__ import annotations

import random
import sys
from typing import Any

import pyarrow as pa

import safewrite as sw

SCHEMA = pa.schema({"id": pa.int64(), "lsn": pa.int64(), "name": pa.string()})


def change_log(changes: int, keys: int, seed: int) -> list[dict[str, Any]]:
    """Inserts, updates and deletes in the order of their source."""
    rng = random.Random(seed)
    return [
        {
            "op": "d" if rng.random() < 0.2 else "u",
            "id": rng.randrange(keys),
            "lsn": lsn,
            "name": f"name {lsn}",
        }
        for lsn in range(changes)
    ]


def main(folder: str, changes: int = 300, keys: int = 40, seed: int = 1) -> dict[int, str]:
    """Apply the log in batches of ten and return the table; it is what the log says, in whatever order they come."""
    table = sw.create(f"{folder}/customers", SCHEMA)
    log = change_log(changes, keys, seed)
    batches = [(f"batch-{start}", log[start : start + 10]) for start in range(0, changes, 10)]
    deliveries = batches + batches[::3]
    random.Random(seed).shuffle(deliveries)
    for key, batch in deliveries:
        receipt = table.apply_changes(
            batch, keys=["id"], sequence_by=["lsn"], delete_when=[("op", "=", "d")], all_late="count", key=key
        )
        print(receipt.outcome, {name: count for name, count in (receipt.changes or {}).items() if count})
    return expected(log)


def expected(log: list[dict[str, Any]]) -> dict[int, str]:
    """What the log leaves: the last change of each key."""
    last = {change["id"]: change for change in log}
    return {number: change["name"] for number, change in last.items() if change["op"] == "u"}


if __name__ == "__main__":
    main(sys.argv[1])
