"""Takes rows of a Delta table away by deletion vectors, by the format's text and none of safewrite's code."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow.parquet as pq

_MAGIC = 1681511377
_NO_RUNS = 12346
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
Z85_TO_B85 = bytes.maketrans(_Z85, _B85)
"""The letters of the log as those of ``base64``."""


def mark_rows(root: Path, ids: set[int]) -> set[int]:
    """Commit marks of the rows with these ids, in files that have none; the ids of the marked rows.

    Raises:
        ValueError: the table has no vectors, or no such row in a file without marks; or its log is not whole.
    """
    table = deltalake.DeltaTable(root)
    if "deletionVectors" not in (table.protocol().reader_features or []):
        raise ValueError("the table has no deletion vectors")
    found: list[dict[str, Any]] = []
    marked: set[int] = set()
    for add in _live(root, table.version()):
        numbers = pq.read_table(root / unquote(add["path"]), columns=["id"], partitioning=None)[
            "id"
        ].to_pylist()
        gone = [at for at, number in enumerate(numbers) if number in ids]
        if not gone or add.get("deletionVector"):
            continue
        marked |= {numbers[at] for at in gone}
        what = {name: add[name] for name in ("path", "partitionValues", "size")} | {"dataChange": True}
        stats = json.loads(add.get("stats") or "{}") | {"numRecords": len(numbers), "tightBounds": False}
        found.append(
            {"remove": what | {"extendedFileMetadata": True, "deletionTimestamp": add["modificationTime"]}}
        )
        found.append(
            {"add": {**add, "dataChange": True, "stats": json.dumps(stats), "deletionVector": _inline(gone)}}
        )
    if not found:
        raise ValueError("no file has such a row")
    log = root / "_delta_log" / f"{table.version() + 1:020d}.json"
    with log.open("x") as file:
        file.writelines(json.dumps(one) + "\n" for one in found)
    return marked


def _live(root: Path, version: int) -> list[dict[str, Any]]:
    live: dict[tuple[str, str], dict[str, Any]] = {}
    for number in range(version + 1):
        path = root / "_delta_log" / f"{number:020d}.json"
        if not path.exists():
            raise ValueError("the log is not whole")
        lines = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
        for kind in ("remove", "add"):
            for one in (line[kind] for line in lines if kind in line):
                key = one["path"], json.dumps(one.get("deletionVector"))
                live.pop(key, None)
                if kind == "add":
                    live[key] = one
    return list(live.values())


def _inline(gone: list[int]) -> dict[str, Any]:
    """A vector in the log itself: one bitmap, of one container that lists its numbers."""
    bitmap = struct.pack("<IIHHI", _NO_RUNS, 1, 0, len(gone) - 1, 16) + struct.pack(f"<{len(gone)}H", *gone)
    data = struct.pack("<IQI", _MAGIC, 1, 0) + bitmap
    text = base64.b85encode(data + bytes(-len(data) % 4)).translate(bytes.maketrans(_B85, _Z85)).decode()
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(gone)}
