"""Valid work on tables that others made, or that look odd: done right, and refused only where it must be."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from tests.integration.places import Place, once, rows

ROWS = pa.table({"id": [1, 2, 3], "p": ["a", "a", "b"]})


@pytest.mark.sweep("partition_by1")
@pytest.mark.parametrize("partition_by", [(), ("p",)])
@pytest.mark.parametrize(
    ("where", "stays"),
    [
        ("x = 1", [1, 2, 3]),
        ("x IS NULL", []),
        ("x = 1 OR id = 2", [1, 3]),
        ("NOT (x = 1)", [1, 2, 3]),
        ("p = 'a' AND x IS NULL", [3]),
        ("p = 'a' AND x = 1", [1, 2, 3]),
        ("x IS NULL AND id < 3", [3]),
    ],
)
def test_a_condition_on_a_column_that_comes_with_the_rows_finds_null_in_the_old_ones(
    tmp_path: Path, partition_by: tuple[str, ...], where: str, stays: list[int]
) -> None:
    table = sw.open(tmp_path / "t", create=True, partition_by=partition_by)
    table.append(ROWS)
    new = pa.table(
        {"id": pa.array([], pa.int64()), "p": pa.array([], pa.string()), "x": pa.array([], pa.int64())}
    )
    table.overwrite(new, where=where, schema_mode="merge")
    found = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == stays
    assert found["x"].to_pylist() == [None] * len(stays)


def test_dates_of_a_column_that_was_widened_to_times_are_their_midnights(tmp_path: Path) -> None:
    """Faults B6: typeWidening lets a column of dates become one of times without a zone; its old files keep dates."""
    path = tmp_path / "t"
    sw.open(path, create=True).append(pa.table({"id": [1, 2], "at": [dt.date(2020, 1, 1), dt.date(1, 1, 1)]}))
    schema = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {
                "name": "at",
                "type": "timestamp_ntz",
                "nullable": True,
                "metadata": {"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz"}]},
            },
        ],
    }
    features = ["typeWidening", "timestampNtz"]
    actions = [
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": features,
                "writerFeatures": features,
            }
        },
        {
            "metaData": {
                "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
                "createdTime": 0,
            }
        },
    ]
    log = path / "_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    kept = [action for action in first if "add" in action]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in [*actions, *kept]))
    sw.open(path).delete("id = 1")
    found = [json.loads(line) for line in (log / f"{1:020d}.json").read_text().splitlines()]
    (added,) = (action["add"]["path"] for action in found if "add" in action)
    import pyarrow.parquet as pq

    assert pq.read_table(path / added).to_pydict() == {
        "id": [2],
        "at": [dt.datetime.fromisoformat("0001-01-01T00:00")],
    }


@pytest.mark.sweep("object-store")
def test_a_checkpoint_without_bytes_is_passed_over(s3_place: Place) -> None:
    """Faults B7: as on the local disk; S3 answers a request for the end of an empty object with 416."""
    table = s3_place.open(create=True)
    for number in range(3):
        table.append(rows(number))
    s3_place.put("_delta_log/00000000000000000002.checkpoint.parquet", b"")
    s3_place.put("_delta_log/_last_checkpoint", b'{"version":2,"size":3}')
    assert s3_place.open().append(rows(3)).version == 3
    assert s3_place.ids() == once(0, 1, 2, 3) if _readable(s3_place) else s3_place.replayed_ids()


def _readable(place: Place) -> bool:
    """deltalake itself stumbles over such a checkpoint."""
    try:
        place.delta()
    except Exception:  # noqa: BLE001 - whatever it says
        return False
    return True


CHILD = """
import os, sys
import safewrite as sw
sw.open, __import__("sqlite3")  # what open and the ledger of a local table need, while this user can read it
os.setuid(65534)
path = sys.argv[1]
for call in (lambda: sw.open(path), lambda: sw.open(path, create=True).append([{"id": 9}], key="other")):
    try:
        print(call())
    except sw.SafewriteError as error:
        print(type(error).__name__)
"""


def test_a_log_that_may_not_be_listed_is_not_an_empty_one(tmp_path: Path) -> None:
    """G10: a folder that refuses says nothing about what is in it."""
    path = tmp_path / "t"
    sw.open(path, create=True).append(rows(0), key="event")
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(0o755)
    (path / "_delta_log").chmod(0o311)
    try:
        code = CHILD if os.getuid() == 0 else CHILD.replace("os.setuid(65534)\n", "")
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": str(tmp_path)},
        )  # fmt: skip
    finally:
        (path / "_delta_log").chmod(0o755)
    assert done.stdout.split() == ["StorageError", "StorageError"], done
    assert Place(str(path), "local").ids() == once(0)
