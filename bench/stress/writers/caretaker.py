"""Does chores on an Iceberg table while others write: compaction, expiry of snapshots, a new column.

Each commits through safewrite: the table's own ``overwrite``, or PyIceberg's calls on a table of
``SafeCatalog``.  A chore writes no rows of its own; one that fails, or finds nothing to do, comes again.
"""

from __future__ import annotations

import datetime as dt
import importlib
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import common


def compact(table: Any, config: dict[str, Any], round_: int) -> str | None:
    """Put what one writer has appended so far into new files: by safewrite, then by PyIceberg, in turn.

    A writer's appends come one after the other, so below the newest of them nothing is still to come.
    """
    rng = random.Random(f"{config['seed']}/compact/{round_}")
    number = rng.randrange(*config["of_writers"])
    table.refresh()
    rows = table.iceberg.scan(row_filter=f"writer = {number}").to_arrow()
    if not rows.num_rows:
        return None
    newest = max(rows["seq"].to_pylist())
    if round_ % 2:
        table.iceberg.overwrite(rows, overwrite_filter=f"writer = {number} and seq <= {newest}")
        return f"{rows.num_rows} rows, by PyIceberg"
    table.overwrite(rows, where=f"writer = {number} and seq <= {newest}")
    return f"{rows.num_rows} rows, by safewrite"


def expire(table: Any, config: dict[str, Any], round_: int) -> str | None:
    """Expire snapshots that are older than any pause: then only the ledger knows of them."""
    before = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=config["kept_s"])
    plain = table.refresh().iceberg
    old = [s for s in plain.metadata.snapshots if s.timestamp_ms < before.timestamp() * 1000]
    if not old:
        return None
    plain.maintenance.expire_snapshots().older_than(before).commit()
    return f"{len(old)} snapshots"


def evolve(table: Any, config: dict[str, Any], round_: int) -> str:
    """Add a column."""
    from pyiceberg.types import LongType

    with table.refresh().iceberg.update_schema() as change:
        change.add_column(f"later_{round_}", LongType())
    return f"column later_{round_}"


CHORES: dict[str, Callable[[Any, dict[str, Any], int], str | None]] = {
    "compact": compact, "expire": expire, "evolve": evolve,
}  # fmt: skip


def work(config: dict[str, Any]) -> None:
    """Do the chore again and again until the plan is done."""
    writer = common.Writer(config)
    table = common.open_by_safewrite(config)
    writer.run_chore(config["chore"], lambda round_: CHORES[config["chore"]](table, config, round_))


def main() -> None:
    """Import what is needed, then work."""
    config = common.read_config()
    for module in common.ICEBERG_MODULES[config["catalog"]["type"]]:
        importlib.import_module(module)
    work(config)


main()
