"""Metadata that others wrote is read right, or refused with what is wrong with it: the cases of Iceberg's own tests (issue U 1).

Those are ``TableMetadata*.json`` and ``*-position-index.bin`` of apache/iceberg, core/src/test/resources (Apache License 2.0); no file of
theirs is here.  Each case is made of a table with two snapshots, so that what a reader would guess shows in its rows.  The files
themselves are read where ``SAFEWRITE_ICEBERG_RESOURCES`` names a folder that has them somewhere below it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64

import safewrite as sw
from safewrite.changes.meaning.row_vectors import bitmap, deserialized, framed, serialized, unframed
from safewrite.iceberg.table import IcebergTable
from tests.iceberg import v3_tables as v3

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string()})
ROWS = [{"id": 1, "v": "a", "n": None}, {"id": 2, "v": "b", "n": 5}]


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """A catalog without a table."""
    return v3.lake(tmp_path)


def made(lake: dict[str, str], version: int) -> None:
    """A table of two schemas and two snapshots."""
    table = sw.create(v3.NAME, SCHEMA, catalog=lake, format_version=version)
    table.append([{"id": 1, "v": "a"}])
    table.append(ROWS[1:], schema_mode="merge")


def opened(lake: dict[str, str]) -> IcebergTable:
    table = sw.open(v3.NAME, catalog=lake)
    assert isinstance(table, IcebergTable)
    return table


def without(field: str) -> Callable[[dict[str, Any]], object]:
    return lambda metadata: metadata.pop(field, None)


def told(**fields: Any) -> Callable[[dict[str, Any]], object]:
    return lambda metadata: metadata.update({name.replace("_", "-"): value for name, value in fields.items()})


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    **{
        name: (without(name), f"{name}(: Field required| is missing)")
        for name in (
            "table-uuid", "location", "last-sequence-number", "last-updated-ms", "last-column-id", "current-schema-id", "default-spec-id",
            "last-partition-id", "sort-orders", "default-sort-order-id",
        )
    },
    "format-version": (without("format-version"), "format.version"),
    "schemas": (without("schemas"), "current-schema-id 1 can't be found"),
    "partition-specs": (without("partition-specs"), "default-spec-id 0 can't be found"),
    "snapshots": (without("snapshots"), "main is at snapshot .* not in snapshots"),
    "current-snapshot-id": (without("current-snapshot-id"), "current-snapshot-id is None, and branch main at"),
    "a schema that is not there": (told(current_schema_id=7), "current-schema-id 7 can't be found"),
    "a snapshot that is not there": (told(current_snapshot_id=7), "current-snapshot-id is 7"),
    "an order that is not there": (told(default_sort_order_id=7), "default-sort-order-id 7 can't be found"),
    "a sequence number that was given": (told(last_sequence_number=1), "last-sequence-number is 1, and a snapshot has 2"),
    "a newer version": (told(format_version=42), "has format version 42, safewrite reads 1 to 3"),
}  # fmt: skip
READ = ("properties", "snapshot-log", "metadata-log", "refs")
"""What may be left out."""


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("what", REFUSED)
def test_metadata_that_no_reader_may_take_is_refused(what: str, version: int, lake: dict[str, str]) -> None:
    """It is an error of its own, and not one of the catalog: to call again would not help."""
    change, why = REFUSED[what]
    made(lake, version)
    table = opened(lake)
    v3.edit(lake, change)
    with pytest.raises(sw.UnsupportedTableError, match=f"(?s){why}.*Nothing was written"):
        opened(lake)
    with pytest.raises(sw.UnsupportedTableError, match=why):
        table.refresh()


@pytest.mark.parametrize("version", [2, 3])
def test_fields_that_may_be_left_out_are_not_missed(version: int, lake: dict[str, str]) -> None:
    made(lake, version)
    for field in READ:
        v3.edit(lake, without(field))
    table = opened(lake)
    assert table.rows(where="true").sort_by("id").to_pylist() == ROWS
    table.append([{"id": 3, "v": "c", "n": 1}])
    assert opened(lake).row_count() == 3


@pytest.mark.parametrize("version", [2, 3])
def test_statistics_of_any_kind_are_kept(version: int, lake: dict[str, str]) -> None:
    """PyIceberg knows two kinds and refuses the table else; Presto and Iceberg's own tests have others."""
    made(lake, version)
    at = opened(lake).version
    blob = {"type": "ndv", "snapshot-id": at, "sequence-number": 2, "fields": [1]}
    file = {
        "snapshot-id": at,
        "statistics-path": "s3://a/b/stats.puffin",
        "file-size-in-bytes": 413,
        "file-footer-size-in-bytes": 42,
    }
    v3.edit(lake, told(statistics=[{**file, "blob-metadata": [blob]}]))
    opened(lake).append([{"id": 3, "v": "c", "n": 1}])
    assert opened(lake).row_count() == 3
    kept = v3.edit(lake, lambda metadata: None)["statistics"]
    assert [one["blob-metadata"][0]["type"] for one in kept] == ["ndv"]


VECTORS = {
    "empty": ([], "0000000cd1d339640000000000000000bf18480c"),
    "small alternating values": (
        [1, 3, 5, 7, 9], "0000002ad1d339640100000000000000000000003a30000001000000000004001000000001000300050007000900b3fb20be",
    ),
    "small and large values": (
        [100, 101, 2**31 + 99, 2**31 + 100],
        "00000030d1d339640100000000000000000000003a300000020000000000010000800100180000001c000000640065006300640015eb1c7c",
    ),
}  # fmt: skip
"""Positions, and the bytes of Java's library (``TestBitmapPositionDeleteIndex``)."""


@pytest.mark.parametrize("what", VECTORS)
def test_a_vector_has_the_bytes_of_javas_library(what: str) -> None:
    positions, written = VECTORS[what]
    body = bytes.fromhex(written)
    assert framed(serialized(bitmap(np.array(positions, np.int64)))) == body
    assert [*deserialized(unframed(b"x" + body, 1, len(body) - 8), len(positions))] == positions


# --- Iceberg's own files ------------------------------------------------------------------------------
FOLDER = os.environ.get("SAFEWRITE_ICEBERG_RESOURCES", "")
theirs = pytest.mark.skipif(not FOLDER, reason="SAFEWRITE_ICEBERG_RESOURCES is not set")
NO_TABLES = ("UnsupportedVersion", "NotFound", "Missing", "View")
"""What the name of a file has that no reader takes for a table."""
TYPELESS = "TableMetadataV1MissingSchemaType.json"
"""Java refuses a schema that does not say that it is a struct; nothing else can stand there, and PyIceberg takes it as one."""


def files(pattern: str) -> Iterator[Path]:
    found = sorted(Path(FOLDER).rglob(pattern))
    assert found, f"{FOLDER} has no {pattern}"
    yield from found


@pytest.mark.long
@theirs
def test_each_metadata_file_of_icebergs_own_tests_is_read_or_refused(tmp_path: Path) -> None:
    """A table has the columns, the place, the version and the snapshot of its file; what is no table is refused before a write."""
    for number, path in enumerate(files("*Metadata*.json")):
        folder = tmp_path / str(number)
        folder.mkdir()
        lake, told = v3.lake(folder), json.loads(path.read_text())
        with sqlite3.connect(folder / "c.db") as database:
            database.execute(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) VALUES ('default', 'db', 't', ?)",
                [path.as_uri()],
            )
        if any(word in path.name for word in NO_TABLES) and path.name != TYPELESS:
            with pytest.raises(sw.UnsupportedTableError, match="Nothing was written"):
                opened(lake)
            continue
        table = opened(lake)
        metadata: Any = table.iceberg.metadata
        at = told.get("current-schema-id", 0)
        schema = next((one for one in told.get("schemas", ()) if one["schema-id"] == at), told.get("schema"))
        assert table.schema.names == [one["name"] for one in schema["fields"]], path.name
        assert (metadata.location, metadata.format_version) == (told["location"], told["format-version"])
        assert (metadata.current_snapshot_id or -1) == told.get("current-snapshot-id", -1), path.name
        assert {one.snapshot_id for one in metadata.snapshots} == {
            one["snapshot-id"] for one in told.get("snapshots", ())
        }


@pytest.mark.long
@theirs
def test_each_vector_of_icebergs_own_tests_has_the_same_bytes_again() -> None:
    for path in files("*-position-index.bin"):
        body = path.read_bytes()
        inner = unframed(b"x" + body, 1, len(body) - 8)
        there = BitMap64.deserialize(inner[4:])
        found = deserialized(inner, len(there))
        assert [*found] == [*there], path.name
        assert framed(serialized(found)) == body, path.name
