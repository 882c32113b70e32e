"""Every feature of Delta's protocol: a table that lists it, and one that uses it, is opened, read and written, or refused with where to go.

The names are those of PROTOCOL.md, of its RFCs and of the libraries of Delta (November 2026).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.log.features import HONOURED, READ, REFUSED
from tests.each import each

WRITERS = (
    "appendOnly", "invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults", "changeDataFeed", "identityColumns",
    "rowTracking", "domainMetadata", "icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "clustering", "inCommitTimestamp",
    "inCommitTimestamp-preview", "checkpointProtection", "materializePartitionColumns", "redirectWriterOnly-preview",
    "coordinatedCommits-preview", "managedCommit-dev", "collations", "collations-preview", "icebergWriterCompatV1", "icebergWriterCompatV3",
    "columnMappingUsageTracking",
)  # fmt: skip
BOTH = (
    "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "catalogManaged", "catalogOwned-preview", "vacuumProtocolCheck",
    "typeWidening", "typeWidening-preview", "variantType", "variantType-preview", "variantShredding", "variantShredding-preview",
    "redirectReaderWriter-preview", "geospatial", "geospatial-dev", "adaptiveMetadata", "adaptiveMetadata-preview", "timestampNanos",
)  # fmt: skip
CLOSED = {
    "catalogManaged",
    "catalogOwned-preview",
    "adaptiveMetadata",
    "adaptiveMetadata-preview",
    "timestampNanos",
}
"""Listed for readers, who could not read right."""
REFUSES = {
    "coordinatedCommits-preview", "managedCommit-dev", "icebergWriterCompatV1", "icebergWriterCompatV3", "columnMappingUsageTracking", *CLOSED,
}  # fmt: skip


def committed(root: Path, names: tuple[str, ...], properties: dict[str, str], column: dict[str, Any]) -> None:
    """The table with these features, properties, and one more column, or what is said of its own."""
    (first,) = (root / "_delta_log").glob("*0.json")
    meta = next(
        found["metaData"]
        for line in first.read_text().splitlines()
        if "metaData" in (found := json.loads(line))
    )
    schema = json.loads(meta["schemaString"])
    if column.get("name") not in (None, "n"):
        schema["fields"].append({"nullable": True, "metadata": {}, **column})
    else:
        schema["fields"][0] |= column
    reading = [name for name in names if name in BOTH]
    protocol: dict[str, Any] = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": reading,
        "writerFeatures": [*names],
    }
    lines = [{"commitInfo": {"inCommitTimestamp": 1}}, {"protocol": protocol}]
    lines += [{"metaData": {**meta, "schemaString": json.dumps(schema), "configuration": properties}}]
    (root / "_delta_log" / f"{2:020d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")


def made(root: Path, *names: str, column: dict[str, Any] | None = None, **properties: str) -> None:
    sw.create(root, pa.schema([("n", pa.int64())])).append([{"n": 1}])
    committed(root, names, properties, column or {})


NEEDS = {"rowTracking": ("domainMetadata",), "clustering": ("domainMetadata",)}


@each("name", (*WRITERS, *BOTH))
def test_a_table_that_lists_a_feature_is_read_and_written_or_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / name
    made(root, name, *NEEDS.get(name, ()))
    if name in CLOSED:
        with pytest.raises(sw.UnsupportedTableError, match=f"{name}: ") as closed:
            sw.open(root)
        assert "Nothing was read or written." in closed.value.message
        return
    table = sw.open(root)
    assert table.rows(where="true").to_pylist() == [{"n": 1}]
    if name in REFUSES:
        with pytest.raises(sw.UnsupportedTableError, match=f"{name}: ") as refused:
            table.append([{"n": 2}])
        assert refused.value.message.count(name) > 1, "it says where to go"
        assert table.row_count() == 1
        return
    table.append([{"n": 2}])
    table.delete("n = 1")
    assert sw.open(root).rows(where="true").to_pylist() == [{"n": 2}]


def test_every_known_name_is_asked_for() -> None:
    rules = {"types", "statistics", "coordinatedCommits", "char and varchar", "copies for other readers"}
    assert ({*HONOURED, *READ, *REFUSED} - rules) <= {*WRITERS, *BOTH}


USES: dict[str, tuple[tuple[str, ...], dict[str, Any], dict[str, str], str]] = {
    "geography": (("geospatial",), {"name": "g", "type": "geography(OGC:CRS84)"}, {}, "values would have to be written to g"),
    "collated": (("collations",), {"name": "g", "type": "string", "metadata": {"__COLLATIONS": {"g": "ICU.en"}}}, {}, "values would have to be written to g"),
    "moved for writers": (("redirectWriterOnly-preview",), {}, {"delta.redirectWriterOnly-preview": "s3://there"}, "at another place now: s3://there"),
    "coordinated": (("coordinatedCommits-preview",), {}, {"delta.coordinatedCommits.commitCoordinator-preview": "x"}, "the engine that knows the coordinator"),
}  # fmt: skip


@each("case", USES)
def test_a_table_that_uses_a_feature_is_read_by_its_other_columns(tmp_path: Path, case: str) -> None:
    names, column, properties, says = USES[case]
    root = tmp_path / case
    made(root, *names, column=column, **properties)
    if case == "coordinated":
        with pytest.raises(sw.UnsupportedTableError, match=says):
            sw.open(root)
        return
    table = sw.open(root)
    assert table.rows(where="true", columns=["n"]).to_pylist() == [{"n": 1}]
    with pytest.raises(sw.UnsupportedTableError, match=says):
        table.append([{"n": 2}])


def test_a_table_that_was_moved_is_not_read_at_its_old_place(tmp_path: Path) -> None:
    root = tmp_path / "t"
    made(root, "redirectReaderWriter-preview", **{"delta.redirectReaderWriter-preview": "s3://there"})
    with pytest.raises(
        sw.UnsupportedTableError, match=r"s3://there.*open the table at the place that the property names"
    ):
        sw.open(root)
