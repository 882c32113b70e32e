"""Files with deletion vectors are refused before anything is written, where their rows must be looked at; others are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.testing.changes import Change
from tests.changes.test_decide import down, up
from tests.changes.test_tables import SCHEMA, Lake, apply

VECTOR = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", "sizeInBytes": 40, "cardinality": 6}  # fmt: skip
"""The inline vector of Delta's PROTOCOL.md: rows 3, 4, 7, 11, 18 and 29."""


def marked(folder: Path) -> Lake:
    """A table whose one file, of keys 0 to 39, has lost six rows to a vector, as Spark's DELETE commits it."""
    lake = Lake("delta", folder)
    rows = [{"a": a, "b": "x", "s": 1, "t": 0, "value": "old"} for a in range(40)]
    lake.open().append(pa.Table.from_pylist(rows, SCHEMA))
    log = Path(lake.uri) / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{1:020d}.json").read_text().splitlines()]
    (add,) = [line["add"] for line in lines if "add" in line]
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}},
        {"add": {**add, "deletionVector": VECTOR}},
        {"commitInfo": {"timestamp": 1, "operation": "DELETE", "operationParameters": {}}},
    ]
    (log / f"{2:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    return lake


def files(lake: Lake) -> set[Path]:
    return {path for path in Path(lake.uri).rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "verb",
    [
        lambda table: apply(table, [up((2, 0), "new", (7, "x"))]),
        lambda table: apply(table, [down((2, 0), (1, "x"))]),
        lambda table: apply(table, [Change("truncate", (2, 0))]),
        lambda table: table.delete("a = 7"),
        lambda table: table.overwrite(pa.Table.from_pylist([], SCHEMA), where="a = 7"),
    ],
    ids=["update", "delete", "truncate", "delete where", "overwrite where"],
)
def test_rows_under_a_vector_are_never_guessed(verb: Callable[[Any], object], tmp_path: Path) -> None:
    """Key 7 is gone by the vector: an update of it would be counted as one, and find nothing."""
    lake = marked(tmp_path)
    before = files(lake)
    with pytest.raises(sw.UnsupportedTableError, match="deletion vector"):
        verb(lake.open())
    assert files(lake) == before


def test_changes_of_keys_that_no_such_file_has_are_applied(tmp_path: Path) -> None:
    lake = marked(tmp_path)
    assert apply(lake.open(), [up((2, 0), "new", (50, "x"))]).changes["inserted"] == 1
    newest, marking, *_ = lake.open().history()
    assert (newest.rows_added, newest.rows_removed) == (1, 0)
    assert marking.rows_added == 34  # the file under its vector
