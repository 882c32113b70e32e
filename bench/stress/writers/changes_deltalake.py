"""Applies a change log with deltalake's ``merge``, as its users do: by sequence, tried again after any error.

``rule`` says what a delete asks: ``guarded``, that it is newer than the row; ``unguarded``, nothing, as in
kafka2delta.  Neither remembers a deleted key.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import change_common
import change_log
import common

ON = " AND ".join(f"t.{name} = s.{name}" for name in change_log.KEYS)
NEWER = f"s.{change_log.SEQUENCE} > t.{change_log.SEQUENCE}"
DELETES = {"guarded": f"s.op = 'd' AND {NEWER}", "unguarded": "s.op = 'd'"}


def merge(table: Any, batch: list[change_log.Change], rule: str) -> None:
    """One batch, its truncate first."""
    kept, cut = change_common.last_of_each_key(batch)
    if cut is not None:
        table.delete(f"{change_log.SEQUENCE} < {cut}")
    if not kept:
        return
    columns = {name: f"s.{name}" for name in change_log.COLUMNS}
    (
        table.merge(change_log.to_arrow(kept), predicate=ON, source_alias="s", target_alias="t")
        .when_matched_delete(DELETES[rule])
        .when_matched_update(columns, predicate=f"s.op <> 'd' AND {NEWER}")
        .when_not_matched_insert(columns, predicate="s.op <> 'd'")
        .execute()
    )


def main() -> None:
    """Deliver until the plan is done."""
    config = common.read_config()
    writer = change_common.ChangeWriter(config)
    from deltalake import DeltaTable

    def apply(rows: list[Any], key: str | None) -> dict[str, Any]:
        options = dict(config["storage_options"])
        merge(DeltaTable(config["table"], storage_options=options), rows, config["rule"])
        return {}

    # The first merge of a process takes a second of CPU for the engine's start: before the start line.
    with tempfile.TemporaryDirectory() as folder:
        merge(DeltaTable.create(folder, change_log.schema()), list(writer.log.batches[0]), config["rule"])
    writer.run(apply)


main()
