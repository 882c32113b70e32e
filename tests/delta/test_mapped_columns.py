"""Tables whose files know columns by other names are read by display names (PROTOCOL.md, "Column Mapping"; T4-D4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.delta.maintenance.verify import read_rows
from tests.delta.logs import body, metadata

PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["columnMapping"],
        "writerFeatures": ["columnMapping"],
    }
}


def column(name: str, number: int, kind: Any, own: str) -> dict[str, Any]:
    mapping = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": own}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapping}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


COLUMNS = [
    column("id", 1, "long", "p-id"),
    column("v", 2, "string", "w x"),  # renamed: another column of the file is called v
    column("part", 3, "string", "p-part"),
    column("s", 4, struct(column("b", 5, "long", "p-a"), column("new", 6, "long", "p-new")), "p-s"),
    column(
        "l",
        7,
        {"type": "array", "elementType": struct(column("c", 8, "string", "p-c")), "containsNull": True},
        "p-l",
    ),
    column(
        "m",
        9,
        {
            "type": "map",
            "keyType": "string",
            "valueType": struct(column("d", 10, "long", "p-d")),
            "valueContainsNull": True,
        },
        "p-m",
    ),
    column("later", 11, "long", "p-later"),
]
WANTED = [
    {"id": 1, "v": "one", "part": "x", "s": {"b": 10, "new": None}, "l": [{"c": "c1"}, None], "m": [("k", {"d": 1})], "later": None},
    {"id": 2, "v": None, "part": "x", "s": None, "l": None, "m": None, "later": None},
    {"id": 3, "v": "three", "part": "x", "s": {"b": None, "new": None}, "l": [], "m": [], "later": None},
]  # fmt: skip


def numbered(name: str, number: int, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def data(*, ids: bool) -> pa.Table:
    """What such a file holds; with ``ids`` its names are another writer's, and only the ids tell."""

    def field(name: str, number: int, kind: pa.DataType) -> pa.Field:
        return numbered(f"x{number}", number, kind) if ids else pa.field(name, kind)

    a, gone = field("p-a", 5, pa.int64()), field("b", 50, pa.int64())
    c, d = field("p-c", 8, pa.string()), field("p-d", 10, pa.int64())
    schema = pa.schema(
        [
            field("p-id", 1, pa.int64()),
            field("v", 20, pa.string()),  # a dropped column of that name
            field("w x", 2, pa.string()),
            field("p-part", 3, pa.string()),  # Spark writes it into mapped files, too; the log's value counts
            field("p-s", 4, pa.struct([gone, a])),
            field("p-l", 7, pa.list_(pa.struct([c]))),
            field("p-m", 9, pa.map_(pa.string(), pa.struct([d]))),
        ]
    )
    rows = [
        [
            1,
            "dropped",
            "one",
            "wrong",
            {gone.name: 9, a.name: 10},
            [{c.name: "c1"}, None],
            [("k", {d.name: 1})],
        ],
        [2, "dropped", None, "wrong", None, None, None],
        [3, "dropped", "three", "wrong", {gone.name: 9, a.name: None}, [], []],
    ]
    arrays = [pa.array(values, one.type) for one, values in zip(schema, zip(*rows, strict=True), strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def table_of(tmp_path: Path, mode: str) -> Path:
    root = tmp_path / mode
    (root / "_delta_log").mkdir(parents=True)
    pq.write_table(data(ids=mode == "id"), root / "Zz.parquet")
    stats = {
        "numRecords": 3,
        "minValues": {"p-id": 1, "id": 100},
        "maxValues": {"p-id": 3, "id": 200},
        "nullCount": {"p-id": 0},
    }
    add = {"path": "Zz.parquet", "partitionValues": {"p-part": "x"}, "size": (root / "Zz.parquet").stat().st_size,
           "modificationTime": 1, "dataChange": True, "stats": json.dumps(stats)}  # fmt: skip
    properties = {"delta.columnMapping.mode": mode}
    first = [*COLUMNS, column("dropped", 20, "string", "v")]
    made, changed = (
        metadata(properties=properties, partition_by=("part",), columns=some) for some in (first, COLUMNS)
    )
    info = {"commitInfo": {"operation": "WRITE", "engineInfo": "Spark"}}
    for version, lines in enumerate(([info, PROTOCOL, made, {"add": add}], [info, changed])):
        (root / "_delta_log" / f"{version:020d}.json").write_bytes(body(*lines))
    return root


@pytest.mark.parametrize("mode", ["name", "id"])
def test_rows_have_display_names_and_values_of_their_own_columns(tmp_path, monkeypatch, mode):
    """Renamed, dropped and new columns, at every depth; partition values and statistics by physical names; parts of large files."""
    table = sw.open(table_of(tmp_path, mode))
    assert table.rows(where="true").to_pylist() == WANTED
    assert table.rows({"id": [3]}).to_pylist() == WANTED[2:]
    assert table.rows(where="part = 'x' and id < 2").to_pylist() == WANTED[:1]
    assert table.rows({"id": [150]}).num_rows == table.rows(where="part = 'wrong'").num_rows == 0
    assert table.row_count() == 3
    for whole_bytes in (2**20, 0):
        monkeypatch.setattr("safewrite.delta.read.files.WHOLE_BYTES", whole_bytes)
        monkeypatch.setattr("safewrite.delta.data.column_reads.WHOLE_BYTES", whole_bytes)
        (added,) = table.added_since(None)
        assert added.read().to_pylist() == WANTED
        assert added.read(["v", "part"]).to_pylist() == [{"v": one["v"], "part": "x"} for one in WANTED]
        assert table.rows({"id": [1]}).to_pylist() == WANTED[:1]
    with pytest.raises(sw.UnsupportedTableError, match=r"columnMapping.*UniForm"):
        table.append([{"id": 4}], schema_mode="merge")
    found = inspect_table(table.uri)
    assert read_rows(found, ("v", "part")) == {"v": ["one", None, "three"], "part": ["x", "x", "x"]}
    assert [(one.severity.value, one.code) for one in examine(found, environment={}, deep=True)] == [
        ("info", "unsupported_feature")
    ]


@pytest.mark.parametrize("kind", ["variant", "interval day", {"type": "novel"}])
def test_a_column_of_a_type_that_is_not_known_is_refused_and_others_are_read(tmp_path, kind):
    root = tmp_path / "t"
    made = sw.open(root, create=True)
    made.append([{"id": 1, "v": "a"}])
    meta = json.loads((root / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[2])["metaData"]
    schema = json.loads(meta["schemaString"])
    schema["fields"].append({"name": "x", "type": kind, "nullable": True, "metadata": {}})
    changed = {"metaData": {**meta, "schemaString": json.dumps(schema)}}
    (root / "_delta_log" / f"{1:020d}.json").write_bytes(body({"commitInfo": {}}, changed))
    table = sw.open(root)
    assert table.schema.names == ["id", "v"]
    assert table.row_count() == 1
    (added,) = table.added_since(None)
    assert added.read(["id", "v"]).to_pylist() == [{"id": 1, "v": "a"}]
    for read in (lambda: table.rows({"id": [1]}), added.read):
        with pytest.raises(sw.UnsupportedTableError, match="'x'"):
            read()
    with pytest.raises(sw.UnsupportedTableError, match="x"):
        table.append([{"id": 2, "v": "b"}])
    assert made.refresh().row_count() == 1
