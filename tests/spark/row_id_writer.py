"""Many processes that write to one Iceberg table of format version 3 by every verb; see ``test_iceberg_row_ids``.

``python -m tests.spark.row_id_writer CONFIG``: CONFIG is JSON of ``name`` and ``properties`` of the catalog, ``table``, how many
``writers`` there are, and a ``folder``, to which each writes the versions of its append and of its changes as ``<writer>.json``.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet  # noqa: F401 - imported before the fork
import pyiceberg.catalog.rest
import pyiceberg.io.pyarrow  # noqa: F401 - imported before the fork

import safewrite as sw
import safewrite.iceberg.write.apply
import safewrite.iceberg.write.compaction
import safewrite.iceberg.write.overwrite
from safewrite.iceberg.catalog.loading import load

HOT = 10
"""So many keys, from 1 on, are changed by all writers; the newest sequence stays."""
UPKEEP = 7
"""Each writer whose number this divides puts files together, too."""


def first(writer: int) -> int:
    """The first of a writer's own keys: the second is deleted by a change, the third by a condition, the fourth stays as it came, the fifth comes by a change."""
    return 1000 + 10 * writer


def row(number: int, value: str, *, gone: bool = False) -> dict[str, Any]:
    """A change; the value orders the changes of a key."""
    return {"id": number, "value": value, "gone": gone}


def write(table: sw.Table, writer: int) -> dict[str, int]:
    """Append, change and delete rows, each once; the versions that were committed."""
    own = first(writer)
    appended = table.append([{"id": own + at, "value": "a"} for at in range(4)], key=f"append-{writer}")
    given = [row(own, "b"), row(own + 1, "b", gone=True), row(own + 4, "b")]
    hot = row(1 + writer % HOT, f"w{writer:03}")
    how: Any = {"keys": ["id"], "sequence_by": ["value"], "delete_when": "gone"}
    changed = table.apply_changes([*given, hot], key=f"change-{writer}", **how)
    table.delete(f"id = {own + 2}", key=f"delete-{writer}")
    if writer % UPKEEP == 0:
        table.maintain()
    again = table.append([{"id": own + at, "value": "a"} for at in range(4)], key=f"append-{writer}")
    assert again.outcome == "already_committed"
    return {"append": appended.version, "change": changed.version}


def _run(config: dict[str, Any], writer: int) -> None:
    with closing(load(config["name"], **config["properties"])) as catalog:
        versions = write(sw.open(config["table"], catalog=catalog), writer)
    (Path(config["folder"]) / f"{writer}.json").write_text(json.dumps(versions))


def main(config: dict[str, Any]) -> int:
    """Fork the writers, which need not import anything, and wait for them; how many failed."""
    children = []
    for writer in range(config["writers"]):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _run(config, writer)
                code = 0
            except BaseException:  # noqa: BLE001 - the parent sees only the code
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
