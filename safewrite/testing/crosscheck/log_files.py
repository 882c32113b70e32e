"""Reads a local Delta table by the lines of its log and DuckDB alone, whatever features it has; and compares what the log tells with the rows.

Names of columns, partition values, deletion vectors, row ids, statistics and the change data feed are read by the format's text and
none of safewrite's code.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import duckdb
import pyarrow as pa
from pyroaring import BitMap

from safewrite.testing.crosscheck.marks import Z85_TO_B85
from safewrite.testing.crosscheck.meaning import read
from safewrite.testing.crosscheck.oracle import ID
from safewrite.testing.crosscheck.program import Where
from safewrite.testing.crosscheck.promises import must
from safewrite.testing.crosscheck.readers import Found, Types, duck

Action = Mapping[str, Any]
Key = tuple[str, str]
_IDS = "_row-id-col"


@dataclass
class LogFiles:
    """A table at one moment."""

    root: Path
    types: Types
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @cached_property
    def commits(self) -> list[list[dict[str, Action]]]:
        return [lines for _, lines in commits_of(self.root)]

    @cached_property
    def metadata(self) -> Action:
        return [one["metaData"] for lines in self.commits for one in lines if "metaData" in one][-1]

    @cached_property
    def fields(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.metadata["schemaString"])["fields"]
        return found

    def has(self, name: str) -> bool:
        """Whether a property is on: a table that was made anew by others has lost it."""
        return bool(self.metadata["configuration"].get(name) == "true")

    def live(self) -> dict[Key, Action]:
        """The files of the newest version."""
        found: dict[Key, Action] = {}
        for lines in self.commits:
            for one in lines:
                if "remove" in one:
                    found.pop(_key(one["remove"]), None)
            found |= {_key(one["add"]): one["add"] for one in lines if "add" in one}
        return found

    # --- rows ---------------------------------------------------------------------------------------
    def physical(self, path: str) -> list[dict[str, Any]]:
        """All rows of a file as DuckDB's reader of Parquet gives them."""
        if path not in self._read:
            with duck() as connection:
                named = str(self.root / unquote(path))
                table: Any = connection.read_parquet(named, hive_partitioning=False).to_arrow_table()
                self._read[path] = table.to_pylist()
        return self._read[path]

    def numbered(self, file: Action) -> Iterator[tuple[int, dict[str, Any]]]:
        """The live rows of a file with their places in it."""
        gone = _marked(self.root, file.get("deletionVector"))
        return (one for one in enumerate(self.physical(file["path"])) if one[0] not in gone)

    def rows(self, file: Action) -> Found:
        """The live rows of a file as meanings, with the names that users know."""
        return [self.meant(row, file) for _, row in self.numbered(file)]

    def meant(self, row: Mapping[str, Any], file: Action) -> dict[str, Any]:
        parts = self.metadata.get("partitionColumns") or ()
        found: dict[str, Any] = {}
        for one in self.fields:
            name, kind = one["name"], self.types.get(one["name"])
            if kind is None:
                continue
            if name in parts:
                text = (file.get("partitionValues") or {}).get(_own(one))
                found[name] = None if text in (None, "") else read(pa.scalar(text).cast(kind).as_py(), kind)
            else:
                found[name] = read(_shown(row.get(_own(one)), one["type"]), kind)
        return found

    # --- what the log tells -------------------------------------------------------------------------
    def check_statistics(self) -> None:
        """Check that each file of safewrite's is within its bounds and counts its NULLs.

        Raises:
            BrokenPromiseError: a reader that skips by statistics would lose rows.
        """
        ours = {
            one["add"]["path"]
            for lines in self.commits
            if any("safewrite" in one.get("commitInfo", {}) for one in lines)
            for one in lines
            if "add" in one
        }
        for file in self.live().values():
            if file["path"] in ours:
                self._check_file(file)

    def check_partitions(self) -> None:
        """Check that files have the partition columns, too, where the table wants it.

        Raises:
            BrokenPromiseError: one does not, or has others than the log tells.
        """
        protocols = [one["protocol"] for lines in self.commits for one in lines if "protocol" in one]
        parts = self.metadata.get("partitionColumns") or ()
        if "materializePartitionColumns" not in (protocols[-1].get("writerFeatures") or ()):
            return
        for file in self.live().values():
            for row in self.physical(file["path"]):
                told = self.meant(row, file)
                held = {name: read(row[name], self.types[name]) for name in parts}
                must(
                    all(told[name] == value for name, value in held.items()),
                    f"{file['path']} has {held} for {told}",
                )

    def _check_file(self, file: Action) -> None:
        stats, rows = json.loads(file.get("stats") or "{}"), self.physical(file["path"])
        must(stats.get("numRecords") == len(rows), f"{file['path']} has {len(rows)} rows: {stats}")
        for name, count in (stats.get("nullCount") or {}).items():
            nulls = sum(row.get(name) is None for row in rows)
            must(
                isinstance(count, dict) or count == nulls,
                f"{file['path']} has {nulls} NULLs in {name}: {stats}",
            )
        for side in ("minValues", "maxValues"):
            for name, bound in (stats.get(side) or {}).items():
                for row in rows:
                    value = _comparable(row.get(name), bound)
                    within = value is None or (value >= bound if side == "minValues" else value <= bound)
                    must(within, f"{file['path']} has {value!r} in {name}: {stats}")

    def owners(self) -> dict[int, int]:
        """By row id the number of the row that has it."""
        found: dict[int, int] = {}
        own = next(_own(one) for one in self.fields if one["name"] == ID)
        for file in self.live().values():
            for place, row in self.numbered(file):
                kept = row.get(_IDS)
                number = file["baseRowId"] + place if kept is None else kept
                must(number not in found, f"two rows have the id {number}")
                found[number] = row[own]
        return found

    def fed(self) -> Found:
        """What the changes of all commits leave, commit after commit, as readers of the feed take them.

        Raises:
            FileNotFoundError: a file of one is gone.
        """
        left: dict[Any, dict[str, Any]] = {}
        for lines in self.commits:
            typed = [
                (row["_change_type"], self.meant(row, one["cdc"]))
                for one in lines
                if "cdc" in one
                for row in self.physical(one["cdc"]["path"])
            ]
            if not typed:
                changes = [one for one in lines if next(iter(one.values())).get("dataChange")]
                typed = [
                    ("delete", row) for one in changes if "remove" in one for row in self.rows(one["remove"])
                ]
                typed += [("insert", row) for one in changes if "add" in one for row in self.rows(one["add"])]
            for kind, row in typed:
                if kind in ("delete", "update_preimage"):
                    must(left.pop(row[ID], None) == row, f"the feed takes a row that was not there: {row}")
            for kind, row in typed:
                if kind in ("insert", "update_postimage"):
                    must(row[ID] not in left, f"the feed brings a row twice: {row}")
                    left[row[ID]] = row
        return [*left.values()]


@dataclass
class LogReader:
    """Reads as :class:`safewrite.testing.crosscheck.readers.Reader`, and checks what the log tells of rows."""

    root: Path
    _owners: dict[int, int] = field(default_factory=dict)
    """Which row had an id first; it is no other's ever after."""
    _table: str = ""

    def __call__(self, types: Types, where: Where | None) -> Found:
        from safewrite.testing.crosscheck import conditions

        table = LogFiles(self.root, types)
        if self._table != table.metadata["id"]:
            self._table, self._owners = table.metadata["id"], {}
        table.check_statistics()
        table.check_partitions()
        if table.has("delta.enableRowTracking"):
            for number, row in table.owners().items():
                first = self._owners.setdefault(number, row)
                must(first == row, f"row {row} has the id {number}, which was that of row {first}")
        found = [row for file in table.live().values() for row in table.rows(file)]
        return found if where is None else [row for row in found if conditions.holds(where, row)]

    def fed(self, types: Types, where: Where | None) -> Found:
        """The rows by the change data feed; as they are where a file of it is gone."""
        table = LogFiles(self.root, types)
        try:
            if table.has("delta.enableChangeDataFeed") and where is None:
                return table.fed()
        except (duckdb.IOException, FileNotFoundError):
            pass  # as VACUUM takes them
        return self(types, where)


def commits_of(root: Path) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The versions in a log, each with its actions."""
    for path in sorted((root / "_delta_log").glob("*.json")):
        if path.stem.isdigit():
            yield int(path.stem), [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def _key(file: Action) -> Key:
    return file["path"], json.dumps(file.get("deletionVector"), sort_keys=True)


def _own(field_: Mapping[str, Any]) -> str:
    """What files call a field."""
    name: str = (field_.get("metadata") or {}).get("delta.columnMapping.physicalName", field_["name"])
    return name


def _shown(value: Any, kind: Any) -> Any:
    """A value with the names of fields that users know."""
    if value is None or not isinstance(kind, dict):
        return value
    if kind["type"] == "struct":
        return {one["name"]: _shown(value.get(_own(one)), one["type"]) for one in kind["fields"]}
    if kind["type"] == "array":
        return [_shown(one, kind["elementType"]) for one in value]
    pairs = value.items() if isinstance(value, dict) else value
    return [(_shown(key, kind["keyType"]), _shown(one, kind["valueType"])) for key, one in pairs]


def _marked(root: Path, vector: Action | None) -> frozenset[int]:
    """The places that a deletion vector takes away."""
    if not vector:
        return frozenset()
    text = vector["pathOrInlineDv"]
    if vector["storageType"] == "i":
        data = base64.b85decode(text.encode().translate(Z85_TO_B85))[: vector["sizeInBytes"]]
    else:
        prefix, name = text[:-20], base64.b85decode(text[-20:].encode().translate(Z85_TO_B85))
        body = (root / prefix / f"deletion_vector_{UUID(bytes=name)}.bin").read_bytes()
        at = vector.get("offset") or 0
        data = body[at + 4 : at + 4 + vector["sizeInBytes"]]
    _, count = struct.unpack_from("<IQ", data)
    return frozenset(BitMap.deserialize(data[16:])) if count else frozenset()


def _comparable(value: Any, bound: Any) -> Any:
    """A value as a bound in JSON can be compared with it; None where it cannot, or not simply."""
    if isinstance(value, bool) or isinstance(bound, (bool, dict, list)):
        return None
    if isinstance(value, (int, float, Decimal)) and isinstance(bound, (int, float)):
        return None if value != value else type(bound)(value) if isinstance(value, Decimal) else value  # noqa: PLR0124 - NaN
    return value if isinstance(value, str) and isinstance(bound, str) else None
