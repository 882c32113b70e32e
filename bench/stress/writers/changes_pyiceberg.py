"""Applies a change log with PyIceberg: ``delete`` of deleted keys and ``upsert`` of the others, tried again after any error.

``upsert`` asks no sequence, and nothing remembers a deleted key.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import change_common
import change_log
import common


def upsert(table: Any, batch: list[change_log.Change]) -> None:
    """One batch, its truncate first, in one transaction."""
    from pyiceberg.expressions import LessThan
    from pyiceberg.table.upsert_util import create_match_filter

    kept, cut = change_common.last_of_each_key(batch)
    deletes = change_log.to_arrow([change for change in kept if change.op == "d"])
    upserts = change_log.to_arrow([change for change in kept if change.op != "d"]).drop_columns(["op"])
    with table.transaction() as transaction:
        if cut is not None:
            transaction.delete(LessThan(change_log.SEQUENCE, cut))
        if deletes.num_rows:
            transaction.delete(create_match_filter(deletes, list(change_log.KEYS)))
        if upserts.num_rows:
            transaction.upsert(upserts, join_cols=list(change_log.KEYS))


def work(config: dict[str, Any]) -> None:
    """Deliver until the plan is done."""
    from pyiceberg.catalog import load_catalog

    writer = change_common.ChangeWriter(config)
    catalog = load_catalog(**config["catalog"])

    def apply(rows: list[Any], key: str | None) -> dict[str, Any]:
        upsert(catalog.load_table(config["table"]), rows)
        return {}

    writer.run(apply)


def main() -> None:
    """Import what PyIceberg needs, then work in a child that may be killed."""
    config = common.read_config()
    for module in common.ICEBERG_MODULES[config["catalog"]["type"]]:
        importlib.import_module(module)
    common.in_children(lambda: work(config))


main()
