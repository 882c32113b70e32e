"""Metadata that others wrote is read right, or refused with what is wrong with it: the cases of Iceberg's own tests (issue U 1).

Those are ``TableMetadata*.json`` and ``*-position-index.bin`` of apache/iceberg, core/src/test/resources (Apache License 2.0); no file of
theirs is here.  Each case is made of a table with two snapshots, so that what a reader would guess shows in its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

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
