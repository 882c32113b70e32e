"""Many processes that write to one table whose rows have ids, by every verb, while Spark changes rows of its own.

``python -m tests.spark.row_id_writer CONFIG``: CONFIG is JSON of ``table``, its ``settings`` or ``name`` and ``properties`` of its
catalog, what changes bring ``besides``, how many ``writers`` there are, and a ``folder``, to which each writes the versions of its append and of its changes as ``<writer>.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
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
from tests.spark.session import Spark

WRITERS = 20
HOT = 10
"""So many keys, from 1 on, are changed by all writers; the newest sequence stays."""
UPKEEP = 7
"""Each writer whose number this divides puts files together, too."""
SPARKS = range(50, 60)
"""Keys that Spark alone changes, in a file of their own."""
Versions = Sequence[Mapping[str, int]]


def first(writer: int) -> int:
    """The first of a writer's own keys: the second is deleted by a change, the third by a condition, the fourth stays as it came, the fifth comes by a change."""
    return 1000 + 10 * writer


def row(number: int, value: str, *, gone: bool = False) -> dict[str, Any]:
    """A change; the value orders the changes of a key."""
    return {"id": number, "value": value, "gone": gone}


def write(table: sw.Table, writer: int, besides: Mapping[str, Any]) -> dict[str, int]:
    """Append, change and delete rows, each once; the versions that were committed."""
    own = first(writer)
    appended = table.append([{"id": own + at, "value": "a"} for at in range(4)], key=f"append-{writer}")
    given = [row(own, "b"), row(own + 1, "b", gone=True), row(own + 4, "b")]
    hot = row(1 + writer % HOT, f"w{writer:03}")
    how: Any = {"keys": ["id"], "sequence_by": ["value"], "delete_when": "gone"}
    changes = [{**change, **besides} for change in (*given, hot)]
    changed = table.apply_changes(changes, key=f"change-{writer}", **how)
    table.delete(f"id = {own + 2}", key=f"delete-{writer}")
    if writer % UPKEEP == 0:
        table.maintain()
    again = table.append([{"id": own + at, "value": "a"} for at in range(4)], key=f"append-{writer}")
    assert again.outcome == "already_committed"
    return {"append": appended.version, "change": changed.version}


def beside(spark: Spark, name: str, config: Mapping[str, Any], folder: Path) -> tuple[int, Versions]:
    """Let the processes write while Spark does; how often Spark merged its rows, and by writer the versions that it committed."""
    told = json.dumps({**config, "writers": WRITERS, "folder": str(folder)})
    crowd = subprocess.Popen([sys.executable, "-m", "tests.spark.row_id_writer", told])
    merged = 0
    while crowd.poll() is None:
        merged += _merged(spark, name, merged)
    assert crowd.returncode == 0
    assert _merged(spark, name, merged), "nobody else writes now"
    return merged + 1, [json.loads((folder / f"{writer}.json").read_text()) for writer in range(WRITERS)]


def _merged(spark: Spark, name: str, before: int) -> bool:
    """Whether Spark changed its own rows, and brought one; it may lose to others, of which nothing stays."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    source = " UNION ALL ".join(f"SELECT {number}L AS id" for number in (*SPARKS, 900 + before))
    try:
        spark.run(f"UPDATE {name} SET value = 'update' WHERE id IN ({', '.join(map(str, SPARKS))})")
        spark.run(
            f"MERGE INTO {name} AS t USING ({source}) AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET value = 'merge {before + 1}' "
            "WHEN NOT MATCHED THEN INSERT (id, value) VALUES (s.id, 'merge')"
        )
    except (PySparkException, Py4JError) as error:
        lost = ("onflict", "oncurrent", "CONCURRENT", "Cannot commit", "Missing required files")
        if not any(word in str(error) for word in lost):
            raise
        return False
    return True


def check(
    found: Sequence[Mapping[str, Any]], merged: int, versions: Versions, sequence_of: Callable[[int], int]
) -> dict[int, str]:
    """Check that each row is there once with an id and the sequence of its own; the rows, by key.

    ``found`` are rows with their ``r`` (id) and ``s`` (sequence), ``sequence_of`` the sequence of a commit.
    """
    by_key = {row["id"]: row for row in found}
    wanted = {number: f"w{WRITERS - HOT - 1 + number:03}" for number in range(1, HOT + 1)}
    wanted |= dict.fromkeys(SPARKS, f"merge {merged}") | {900 + number: "merge" for number in range(merged)}
    for writer in range(WRITERS):
        own = first(writer)
        wanted |= {own: "b", own + 3: "a", own + 4: "b"}
        appended, changed = (sequence_of(versions[writer][name]) for name in ("append", "change"))
        assert [by_key[own + at]["s"] for at in (0, 3, 4)] == [changed, appended, changed]
        assert by_key[own]["r"] + 3 == by_key[own + 3]["r"]
    assert {row["id"]: row["value"] for row in found} == wanted
    assert len(found) == len(wanted) == len({row["r"] for row in found})
    return wanted


def _run(config: dict[str, Any], writer: int) -> None:
    besides = config.get("besides", {})
    if "settings" in config:
        versions = write(sw.open(config["table"], **config["settings"]), writer, besides)
    else:
        with closing(load(config["name"], **config["properties"])) as catalog:
            versions = write(sw.open(config["table"], catalog=catalog), writer, besides)
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
