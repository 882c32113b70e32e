"""Tables whose files know columns by other names are read by display names (PROTOCOL.md, "Column Mapping"; T4-D4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.delta.maintenance.verify import read_rows
from safewrite.engine.abc import TaskAttempt
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
    found = inspect_table(table.uri)
    assert read_rows(found, ("v", "part")) == {"v": ["one", None, "three"], "part": ["x", "x", "x"]}
    assert examine(found, environment={}, deep=True) == []
    table.append([{"id": 4, "part": "x"}], schema_mode="merge")
    assert table.row_count() == 4
    assert table.delete("id = 2").removed_rows == 1
    assert [one["id"] for one in table.rows(where="true").to_pylist()] == [4, 1, 3]
    assert table.rows(where="id in (1, 3)").to_pylist() == [WANTED[0], WANTED[2]]


# --- writes -------------------------------------------------------------------------------------------
WRITTEN = [
    column("id", 1, "long", "p-id"),
    column("seq", 2, "long", "p-seq"),
    column("v", 3, "string", "p-v"),
    column("part", 4, "string", "p-part"),
    column("s", 5, struct(column("a", 6, "long", "p-a"), column("t x", 7, "string", "p-t")), "p-s"),
    column(
        "l",
        8,
        {"type": "array", "elementType": struct(column("c", 9, "string", "p-c")), "containsNull": True},
        "p-l",
    ),
]


def row(number: int, v: str | None = "ours", seq: int = 1) -> dict[str, Any]:
    part = None if number == 3 else "x"
    nested = {"s": {"a": number, "t x": str(number)}, "l": [{"c": "z"}, None]}
    return {"id": number, "seq": seq, "v": v, "part": part, **nested}


def commit(root: Path, *lines: dict[str, Any]) -> None:
    """What another engine commits next."""
    folder = root / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    version = len([*folder.glob("0*.json")])
    (folder / f"{version:020d}.json").write_bytes(body({"commitInfo": {"engineInfo": "Spark"}}, *lines))


def changed(root: Path, columns: list[dict[str, Any]], properties: dict[str, str]) -> None:
    commit(root, metadata(properties=properties, partition_by=("part",), columns=columns))


def mapped(root: Path, mode: str = "name", **more: str) -> dict[str, str]:
    """Makes a table without rows; returns its properties."""
    listed = ["appendOnly", "invariants", "changeDataFeed", "domainMetadata", "clustering", "deletionVectors"]
    both = {
        "readerFeatures": ["columnMapping", "deletionVectors"],
        "writerFeatures": ["columnMapping", *listed],
    }
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "9"}
    properties |= {f"delta.{name}": value for name, value in more.items()}
    commit(root, {"protocol": PROTOCOL["protocol"] | both})
    (root / "_delta_log" / f"{0:020d}.json").unlink()
    described = metadata(properties=properties, partition_by=("part",), columns=WRITTEN)
    commit(root, {"protocol": PROTOCOL["protocol"] | both}, described)
    return properties


def state_of(table: sw.Table) -> Any:
    return table._format.refresh()


def adds(root: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted((root / "_delta_log").glob("0*[0-9].json"))]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return [line["add"] for line in lines if "add" in line]


def names_in(schema: Any) -> set[str]:
    """Every name at any depth, but for those of Parquet's lists."""
    found = set()
    for at in range(schema.num_fields if isinstance(schema, pa.DataType) else len(schema)):
        field = schema.field(at)
        found |= ({field.name} - {"element", "list"}) | names_in(field.type)
    return found


def numbers_in(fields: Any) -> dict[str, int]:
    return {one.name: int((one.metadata or {})[b"PARQUET:field_id"]) for one in fields}


@pytest.mark.sweep("name")
@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize("more", [{}, {"enableChangeDataFeed": "true"}, {"enableDeletionVectors": "true"}])
def test_every_verb_writes_files_statistics_and_partitions_by_physical_names(tmp_path, mode, more):
    root = tmp_path / "t"
    mapped(root, mode, **more)
    table = sw.open(root)
    table.append([row(1), row(2), row(3)], key="a")
    sw.open(root).apply_changes([row(2, "changed", 2), row(4)], keys=["id"], sequence_by=["seq"], key="b")
    gone = pa.Table.from_pylist([{**row(1, None, 3), "op": "D"}])
    table.apply_changes(gone, keys=["id"], sequence_by=["seq"], delete_when="op = 'D'", key="c")
    table.delete("id = 3", key="d")
    table.append([row(5), row(6)], key="e")
    table.overwrite([row(5, "over")], where="id = 5", key="f")
    expected = [row(2, "changed", 2), row(4), row(5, "over"), row(6)]
    assert sorted(table.rows(where="true").to_pylist(), key=lambda one: one["id"]) == expected
    query = (
        deltalake.QueryBuilder()
        .register("t", deltalake.DeltaTable(root))
        .execute("SELECT * FROM t ORDER BY id")
    )
    assert pa.table(query.read_all()).to_pylist() == expected
    table.append_many([(str(number), [row(number)]) for number in range(10, 13)])
    assert table.maintain().files_out >= 1
    assert sorted(one["id"] for one in table.rows(where="true").to_pylist()) == [2, 4, 5, 6, 10, 11, 12]
    for path in root.rglob("*.parquet"):
        if not {"_safewrite", "_delta_log"} & {*path.parts}:
            schema = pq.read_schema(path)
            own = {"p-id", "p-seq", "p-v", "p-s", "p-a", "p-t", "p-l", "p-c"}
            feed = {"_change_type"} if "_change_data" in path.parts else set()
            assert names_in(schema) == own | feed
            assert numbers_in(one for one in schema if one.name not in feed) == {
                "p-id": 1,
                "p-seq": 2,
                "p-v": 3,
                "p-s": 5,
                "p-l": 8,
            }
            assert numbers_in(schema.field("p-s").type) == {"p-a": 6, "p-t": 7}
    for add in adds(root):
        assert add["partitionValues"] in ({"p-part": "x"}, {"p-part": None})
        assert json.loads(add["stats"])["nullCount"].keys() == {"p-id", "p-seq", "p-v", "p-s", "p-l"}


def test_new_columns_and_fields_get_ids_that_no_column_ever_had_and_names_of_their_own(tmp_path):
    """Whatever a frame says of the file that it was read from; by names that Parquet does not take, too."""
    root = tmp_path / "t"
    mapped(root)
    table = sw.open(root)
    foreign = {
        "delta.columnMapping.id": "1",
        "delta.columnMapping.physicalName": "p-id",
        "PARQUET:field_id": "1",
    }
    first = pa.Table.from_pylist([{**row(1), "new, one": {"k": 1}}])
    at = first.schema.get_field_index("new, one")
    table.append(
        first.cast(first.schema.set(at, first.schema.field(at).with_metadata(foreign))),
        schema_mode="merge",
        key="a",
    )
    wider = {**row(2), "new, one": {"k": 2}}
    wider["s"] = {**wider["s"], "more": 7}
    table.append([wider], schema_mode="widen", key="b")
    expected = [{**row(1), "new, one": {"k": 1}}, wider]
    expected[0]["s"] = {**expected[0]["s"], "more": None}
    assert sorted(sw.open(root).rows(where="true").to_pylist(), key=lambda one: one["id"]) == expected
    state = state_of(sw.open(root))
    fields = list(every_field(json.loads(state.schema_string)))
    ids, names = (
        [one["metadata"][f"delta.columnMapping.{what}"] for one in fields] for what in ("id", "physicalName")
    )
    assert sorted(ids) == list(range(1, 13))
    assert len({*names}) == 12
    assert state.properties["delta.columnMapping.maxColumnId"] == "12"
    assert names_in(pq.read_schema(root / adds(root)[-1]["path"])) < {*names}


def test_the_change_feed_names_new_columns_as_files_do(tmp_path):
    """An overwrite that brings a column: its change files had it under the name that users know, and readers found none."""
    root = tmp_path / "t"
    mapped(root, enableChangeDataFeed="true")
    table = sw.open(root)
    table.append([row(1), row(2)], key="a")
    table.overwrite([{**row(2, "over"), "new": 7}], where="id = 2", schema_mode="merge", key="b")
    (own,) = {state_of(table.refresh()).physical["new"]}
    files = [*(root / "_change_data").rglob("*.parquet")]
    assert files
    assert {own in pq.read_schema(path).names for path in files} == {True}
    assert not any("new" in pq.read_schema(path).names for path in files)


def every_field(kind: Any) -> Any:
    for field in kind.get("fields", ()) if isinstance(kind, dict) else ():
        yield field
        yield from every_field(field["type"])
    if isinstance(kind, dict):
        yield from every_field(kind.get("elementType"))


def renamed(columns: list[dict[str, Any]], **names: str) -> list[dict[str, Any]]:
    return [{**one, "name": names.get(one["name"], one["name"])} for one in columns]


@pytest.mark.parametrize("before", [False, True], ids=["mapped then", "mapped later"])
def test_deleted_keys_are_remembered_when_their_column_is_renamed(tmp_path, before):
    """Also where the table was not mapped yet when they went; and a column that takes the old name is another one."""
    root = tmp_path / "t"
    columns = [
        column(one["name"], one["metadata"]["delta.columnMapping.id"], one["type"], one["name"])
        for one in WRITTEN[:4]
    ]
    if before:
        sw.create(
            root,
            pa.schema([("id", pa.int64()), ("seq", pa.int64()), ("v", pa.string()), ("part", pa.string())]),
        )
    else:
        properties = mapped(root)
        columns = WRITTEN[:4]
        commit(root, metadata(properties=properties, columns=columns))
    table, how = sw.open(root), {"sequence_by": ["seq"], "delete_when": "v = 'gone'"}

    def change(number: int, v: str, seq: int, name: str = "id") -> list[dict[str, Any]]:
        return [{name: number, "seq": seq, "v": v, "part": None}]

    table.apply_changes(change(1, "a", 1), keys=["id"], key="a", **how)
    table.apply_changes(change(1, "gone", 5), keys=["id"], key="b", **how)
    table.apply_changes(change(2, "b", 1), keys=["id"], key="c", **how)
    properties = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
    swapped = renamed(columns, id="number", part="id")
    state = state_of(table)
    described = metadata(properties=dict(state.properties) | properties, columns=swapped)
    described["metaData"]["id"] = state.table_id
    commit(root, PROTOCOL, described)
    again = sw.open(root)
    with pytest.raises(sw.InvalidInputError, match="'id' is called 'number' now"):
        again.apply_changes([{"number": 9, "seq": 1, "v": "z", "id": "q"}], keys=["id"], key="other", **how)
    late = [{"number": 1, "seq": 3, "v": "late", "id": "q"}, {"number": 2, "seq": 2, "v": "new", "id": "q"}]
    told = again.apply_changes(late, keys=["number"], key="d", **how).changes
    assert told["late"] == 1
    assert again.rows(where="true").to_pylist() == [{"number": 2, "seq": 2, "v": "new", "id": "q"}]


@pytest.mark.parametrize(
    ("what", "today"), [("keys", {"id": "number"}), ("sequence_by", {"seq": "position"})]
)
def test_changes_that_name_an_old_column_are_refused_with_its_name_of_today(tmp_path, what, today):
    columns = [
        column(one["name"], number, one["type"], one["name"]) for number, one in enumerate(WRITTEN[:4], 1)
    ]
    commit(tmp_path, metadata(properties=mapped(tmp_path), columns=renamed(columns, **today)))
    ((old, new),) = today.items()
    with pytest.raises(
        sw.InvalidInputError, match=f"{what}= names '{old}', and this column is called '{new}' now"
    ):
        sw.open(tmp_path).apply_changes(
            [{"id": 1, "seq": 1, "v": "a", "part": None}], keys=["id"], sequence_by=["seq"]
        )


def test_rows_that_tasks_wrote_are_not_committed_once_another_column_has_the_name_of_theirs(tmp_path):
    """Their files have the values of a column that was dropped: all would be read as NULL."""
    root = tmp_path / "t"
    properties = mapped(root)
    table = sw.open(root)
    writer = table._format.planner.in_tasks(state_of(table)).writer
    written = writer.write([("m", pa.Table.from_pylist([row(1)], schema=table.schema))], TaskAttempt(0, 0))
    member = writer.group([written], lambda names: []).member("m")
    changed(
        root,
        [one if one["name"] != "v" else column("v", 10, "string", "p-v2") for one in WRITTEN],
        properties,
    )
    with pytest.raises(sw.ConflictError, match="while tasks wrote rows"):
        table.refresh().append_many([("key", member)])
    assert table.row_count() == 0


def test_statistics_follow_display_names_of_properties_and_physical_names_of_clustering(tmp_path):
    root = tmp_path / "t"
    told = {"clusteringColumns": [["p-s", "p-t"]], "domainName": "delta.clustering"}
    domain = {
        "domainMetadata": {"domain": "delta.clustering", "configuration": json.dumps(told), "removed": False}
    }
    properties = mapped(root, dataSkippingStatsColumns="V, s.a")
    commit(root, domain, metadata(properties=properties, columns=WRITTEN))
    table = sw.open(root)
    table.append([row(1), row(2)], key="a")
    table.apply_changes([row(1, "b", 2)], keys=["id"], sequence_by=["seq"], key="b")
    for add in adds(root):
        counted = json.loads(add["stats"])["nullCount"]
        assert (counted.keys(), counted["p-s"].keys()) == ({"p-v", "p-s"}, {"p-a", "p-t"})


def test_checkpoints_with_statistics_in_types_name_columns_as_files_do(tmp_path):
    root = tmp_path / "t"
    mapped(root, **{"checkpoint.writeStatsAsStruct": "true", "checkpointInterval": "2"})
    table = sw.open(root)
    for number in range(3):
        table.append([row(number)], key=str(number))
    table.checkpoint()
    *_, checkpoint = (root / "_delta_log").glob("*.checkpoint.parquet")
    kind = pq.read_schema(checkpoint).field("add").type
    parsed = kind.field(kind.get_field_index("stats_parsed")).type
    assert {one.name for one in parsed.field(parsed.get_field_index("minValues")).type} >= {
        "p-id",
        "p-v",
        "p-s",
    }
    values = kind.field(kind.get_field_index("partitionValues_parsed")).type
    assert [one.name for one in values] == ["p-part"]
    assert sw.open(root).rows({"id": [1]}).to_pylist() == [row(1)]


# --- types that are not known ---------------------------------------------------------------------------
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
    if kind == "variant":  # NULL in rows that do without it
        table.append([{"id": 2, "v": "b"}])
        assert made.refresh().row_count() == 2
        return
    with pytest.raises(sw.UnsupportedTableError, match="x"):
        table.append([{"id": 2, "v": "b"}])
    assert made.refresh().row_count() == 1
