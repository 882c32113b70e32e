"""A session of writes by whatever PyIceberg runs this program; what came of it goes to standard output as JSON.

Started by ``test_versions`` in the environment of another PyIceberg than the tests' own, so it needs
nothing but safewrite and its dependencies.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import pyiceberg
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.iceberg.catalog.safe_catalog import SafeCatalog
from safewrite.iceberg.table import IcebergTable
from safewrite.testing.steps import Answers


def rows(*ids: int) -> pa.Table:
    """A small frame: ``id``, and a value made from it."""
    return pa.table({"id": pa.array(ids, pa.int64()), "value": [f"v{number}" for number in ids]})


def session(name: str, catalog: Any) -> dict[str, Any]:
    """Every verb; ids 1, 2, 7, 30, 40, 50 and 60 are left, 50 and 60 with a note."""
    found: dict[str, Any] = {"pyiceberg": pyiceberg.__version__}
    table = sw.open(name, catalog=catalog, create=True)
    assert isinstance(table, IcebergTable)
    first = table.append(rows(1, 2, 3, 4), key="first")
    found["again"] = table.append(rows(1, 2, 3, 4), key="first").version == first.version
    table.overwrite(rows(30), where="id = 3 or id = 30", key="overwrite")
    table.delete("id = 4", key="delete")
    table.append(rows(40), txn=("app", 1))
    found["batch"] = str(table.append(rows(40), txn=("app", 1)).outcome)
    try:
        table.append(rows(41), key="first")
    except sw.ReplayMismatchError as error:
        found["mismatch"] = str(error.kind)
    wide = rows(50).append_column("note", pa.array(["merged"]))
    table.append(wide, schema_mode="merge", key="merge")
    lost(table, rows(60).append_column("note", pa.array(["lost"])), found)
    users = SafeCatalog(table.catalog.inner).load_table(name)
    users.append(rows(7).append_column("note", pa.array(["user"])))
    resolved = table.resolve("lost")
    found["resolved"] = resolved is not None and resolved.version == found["lost"]
    found["ids"] = sorted(table.refresh().iceberg.scan().to_arrow()["id"].to_pylist())
    return found


def lost(table: IcebergTable, data: pa.Table, found: dict[str, Any]) -> None:
    """An append of which no answer is heard, and that is repeated."""
    world = table.world
    table.world = Answers(world, "swap.commit", times=1)
    found["lost"] = table.append(data, key="lost").version
    table.world = world
    found["repeat"] = str(table.append(data, key="lost").outcome)


def main() -> None:
    """``name`` and the catalog's properties as JSON are the arguments."""
    name, properties = sys.argv[1], json.loads(sys.argv[2])
    catalog = load_catalog("lab", **properties)
    catalog.create_namespace_if_not_exists(name.partition(".")[0])
    json.dump(session(name, catalog), sys.stdout)


if __name__ == "__main__":
    main()
