"""The reader by the log alone finds what is there, and says what of the log is not so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.testing.crosscheck.log_files import LogReader
from safewrite.testing.crosscheck.promises import BrokenPromiseError
from tests.each import each

ON = {
    "delta.enableDeletionVectors": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableRowTracking": "true",
}
TYPES = {"id": pa.int64(), "v": pa.string(), "p": pa.date32()}


def made(root: Path) -> Path:
    table = sw.create(root, pa.schema(list(TYPES.items())), partition_by=["p"], properties=ON)
    days = pa.array([0, 1, None, 0], pa.date32())
    table.append(pa.table({"id": [1, 2, 3, 4], "v": ["a", None, "c", "d"], "p": days}))
    table.delete("id = 4")
    table.append(pa.table({"id": [5], "v": ["e"], "p": pa.array([0], pa.date32())}))
    table.overwrite(pa.table({"id": [1], "v": ["x"], "p": pa.array([0], pa.date32())}), where="id = 1")
    return root


def test_rows_and_their_feed_are_read_under_vectors(tmp_path: Path) -> None:
    reader = LogReader(made(tmp_path / "t"))
    for read in (reader, reader.fed):
        found = {int(row["id"][1]): row["v"] for row in read(TYPES, None)}
        assert found == {1: ("text", "x"), 2: None, 3: ("text", "c"), 5: ("text", "e")}


def adds(lines: list[dict[str, Any]], change: Callable[[dict[str, Any]], Any]) -> None:
    for one in lines:
        if "add" in one:
            change(one["add"])


def narrow(add: dict[str, Any]) -> None:
    stats = json.loads(add["stats"])
    add["stats"] = json.dumps({**stats, "minValues": stats["maxValues"] | {"id": 99}})


@each(
    ("says", "change"),
    [
        ("in id", lambda lines: adds(lines, narrow)),
        ("two rows have the id", lambda lines: adds(lines, lambda add: add.update(baseRowId=2))),
        ("was not there", lambda lines: None),
    ],
)
def test_a_log_that_tells_of_other_rows_is_noticed(
    tmp_path: Path, says: str, change: Callable[[list[dict[str, Any]]], Any]
) -> None:
    root = made(tmp_path / says.replace(" ", "_").replace("|", "_"))
    reader = LogReader(root)
    reader(TYPES, None)
    path = sorted((root / "_delta_log").glob("*.json"))[-2 if "in id" in says else -1]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    if says == "was not there":  # the rows of one change are told by another's file
        first = sorted((root / "_delta_log").glob("*.json"))[2]
        told = [one for text in first.read_text().splitlines() if "cdc" in (one := json.loads(text))]
        lines = [one for one in lines if "cdc" not in one] + told
    else:
        change(lines)
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    read = reader.fed if says == "was not there" else reader
    with pytest.raises(BrokenPromiseError, match=says):
        read(TYPES, None)
