"""Tables whose files Iceberg's metadata can name, too: what their files must have, and what they cannot be (PROTOCOL.md, "Iceberg Compatibility")."""

from __future__ import annotations

import json
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from safewrite.delta.log import features
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from tests.changes.tasked import by_tasks
from tests.delta.test_features import refusal, state
from tests.delta.test_variants import live
from tests.each import each

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("seq", pa.int64()),
        ("p", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("deep", pa.map_(pa.string(), pa.list_(pa.int64()))),
    ]
)
NESTED = {"tags": ("element",), "deep": ("key", "value", "value.element")}
FORMATS = "delta.universalFormat.enabledFormats"


def made(root: Path, number: int, **more: str) -> sw.Table:
    """A table as Spark makes it for UniForm, without rows."""
    fields = [one for one in SCHEMA if number > 1 or one.name not in NESTED]
    sw.create(root, pa.schema(fields), partition_by=["p"])
    (path,) = (root / "_delta_log").glob("*.json")
    found = {name: body for line in path.read_text().splitlines() for name, body in json.loads(line).items()}
    schema, last = json.loads(found["metaData"]["schemaString"]), 0
    for field in schema["fields"]:
        last += 1
        field["metadata"] = {
            "delta.columnMapping.id": last,
            "delta.columnMapping.physicalName": f"col-{last}",
        }
        inside = NESTED.get(field["name"], ())
        ids = {
            f"col-{field['metadata']['delta.columnMapping.id']}.{at}": last + one
            for one, at in enumerate(inside, 1)
        }
        field["metadata"]["delta.columnMapping.nested.ids"] = ids
        last += len(inside)
    configuration = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": str(last),
        f"delta.enableIcebergCompatV{number}": "true",
        FORMATS: "iceberg",
        **more,
    }
    writing = ["appendOnly", "columnMapping", f"icebergCompatV{number}", "invariants"]
    protocol: dict[str, Any] = {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": writing}
    if number > 2:
        configuration |= {
            "delta.enableRowTracking": "true",
            "delta.rowTracking.materializedRowIdColumnName": "_ids",
            "delta.rowTracking.materializedRowCommitVersionColumnName": "_versions",
        }
        protocol["writerFeatures"] += ["domainMetadata", "rowTracking"]
    meta = {**found["metaData"], "schemaString": json.dumps(schema), "configuration": configuration}
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": meta})]
    (root / "_delta_log" / f"{1:020d}.json").write_text("\n".join(lines) + "\n")
    return sw.open(root)


def frame(numbers: list[int], seq: int, table: sw.Table, **more: Any) -> pa.Table:
    rows = [
        {
            "id": one,
            "seq": seq,
            "p": f"p{one % 2}",
            "at": 1_700_000_000_000_000 + one,
            "tags": ["a", None],
            "deep": [("k", [one])],
        }
        for one in numbers
    ]
    found = pa.Table.from_pylist(rows, schema=SCHEMA).select(table.schema.names[:6])
    for name, value in more.items():
        found = found.append_column(name, pa.array([value] * len(numbers)))
    return found


def ids_of(field: pa.Field) -> list[int]:
    """The ids of a field of a file and of all that is in it, but for the groups that Parquet itself has."""
    own = (field.metadata or {}).get(b"PARQUET:field_id")
    kind, found = field.type, [] if own is None else [int(own)]
    inner = (
        [kind.key_field, kind.item_field]
        if pa.types.is_map(kind)
        else [kind.field(n) for n in range(kind.num_fields)]
    )
    return [*found, *(one for each in inner for one in ids_of(each))]


@each(("number", "tasks"), [(1, False), (2, True), (3, False)])
def test_every_verb_makes_files_that_iceberg_reads(tmp_path: Path, number: int, tasks: bool) -> None:
    root = tmp_path / str(number)
    table = made(root, number)
    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
    with by_tasks() if tasks else nullcontext():
        table.append(frame([*range(8)], 0, table))
        table.append(frame([*range(8, 12)], 0, table))
        table.delete("id = 3")
        table.apply_changes(frame([0, 5, 20], 1, table), **how)
        table.overwrite(frame([6], 1, table), where="id = 6")
        if number > 1:
            table.append(frame([30], 2, table, nu=[{"q": [1]}]), schema_mode="merge")
        table.maintain()
    assert sorted(table.rows(where="true").column("id").to_pylist()) == sorted(
        {*range(12), 20, *([30] if number > 1 else [])} - {3}
    )
    for add in live(root).values():
        assert add.get("tags", {}).get("ICEBERG_COMPAT_VERSION") == (None if number == 1 else str(number))
        assert "deletionVector" not in add
        stats = json.loads(add["stats"])
        assert stats["numRecords"] == pq.read_metadata(root / add["path"]).num_rows
        assert "col-3" not in stats["minValues"], "no statistics of what the log tells of the file"
        rows = pq.read_table(root / add["path"], partitioning=None)
        assert {*rows.column("col-3").to_pylist()} == {*add["partitionValues"].values()}
        kept = [name for name in rows.column_names if name not in ("_ids", "_versions")]
        assert kept[-1] == "col-3", "partition columns come last"
        assert rows.schema.field("col-4").type == pa.timestamp("us", "UTC")
        found = [one for field in rows.schema for one in ids_of(field)]
        assert len({*found}) == len(found)
        nested = 0 if number == 1 else 4
        assert {one for one in found if one < 1000} >= {*range(1, 5 + nested)}
        if number > 2:
            own = {
                name: ids_of(rows.schema.field(name))
                for name in ("_ids", "_versions")
                if name in rows.column_names
            }
            assert own in ({}, {"_ids": [2147483540]}, {"_ids": [2147483540], "_versions": [2147483539]})
    fresh = json.loads(features_of(root)["schemaString"])["fields"][-1]
    if number > 1:
        path = fresh["metadata"]["delta.columnMapping.physicalName"]
        assert [*fresh["metadata"]["delta.columnMapping.nested.ids"]] == [f"{path}.element"]


def features_of(root: Path) -> dict[str, Any]:
    lines = [
        line
        for path in sorted((root / "_delta_log").glob("*[0-9].json"))
        for line in path.read_text().splitlines()
    ]
    found: dict[str, Any] = [json.loads(line)["metaData"] for line in lines if "metaData" in line][-1]
    return found


def test_partition_columns_are_in_files_of_a_table_that_lists_it(tmp_path: Path) -> None:
    root = tmp_path / "t"
    sw.create(root, pa.schema([("id", pa.int64()), ("p", pa.date32())]), partition_by=["p"])
    listed = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["materializePartitionColumns"]}
    (root / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": listed}) + "\n")
    table = sw.open(root)
    rows = pa.table({"id": [1, 2, 3], "p": pa.array([0, None, 1], pa.date32())})
    table.append(rows)
    table.append(rows)
    table.delete("id = 3")
    table.maintain()
    for add in live(root).values():
        found = pq.read_table(root / add["path"], partitioning=None)
        assert found.column_names == ["id", "p"]
        texts = {None if one is None else one.isoformat() for one in found.column("p").to_pylist()}
        assert texts == {add["partitionValues"]["p"]}


def test_iceberg_readers_see_commits_later_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path / "t", 2)
    with caplog.at_level(logging.WARNING, "safewrite"):
        table.append(frame([1], 0, table))
        table.append(frame([2], 0, table))
    assert [
        one.message for one in caplog.records if "SYNC METADATA" in one.message and FORMATS in one.message
    ] != []
    assert len(caplog.records) == 1, "it is said once"
    found = examine(inspect_table(str(tmp_path / "t")), environment={})
    assert [one.severity.value for one in found if one.code == "iceberg_metadata_later"] == ["info"]


def test_columns_that_iceberg_lacks_are_refused(tmp_path: Path) -> None:
    first = made(tmp_path / "u", 1)
    with pytest.raises(sw.InvalidInputError, match="no type array"):
        first.append(frame([2], 0, first).append_column("n", pa.array([[1]])), schema_mode="merge")


MAPPED = {"delta.columnMapping.mode": "name"}
OWN = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "n"}
ARRAY = {"type": "array", "elementType": "long", "containsNull": True}
CHANGED = {"delta.typeChanges": [{"fromType": "integer", "toType": "double"}]}


@each(
    ("number", "says", "more"),
    [
        (2, "does not list", {"listed": ()}),
        (1, "need ids of columns", {"properties": {}}),
        (2, "would ask for other files", {"properties": MAPPED | {"delta.enableIcebergCompatV1": "true"}}),
        (1, "may not have deletion vectors", {"listed": ("icebergCompatV1", "deletionVectors")}),
        (2, "may not have deletion vectors", {"properties": MAPPED | {"delta.enableDeletionVectors": "true"}}),
        (3, "rows need ids", {}),
        (1, "no type array", {"kind": ARRAY}),
        (2, "no type void", {"kind": "void"}),
        (2, "does not say the ids of what is in n", {"kind": ARRAY}),
        (2, "widens no integer to double", {"column": OWN | CHANGED, "kind": "double"}),
    ],
)  # fmt: skip
def test_a_table_that_breaks_the_rules_of_its_version_is_refused(
    number: int, says: str, more: dict[str, Any]
) -> None:
    """Spark refuses the same: no engine could write to it."""
    name = f"icebergCompatV{number}"
    given: dict[str, Any] = {"listed": (name,), "properties": MAPPED, "column": OWN, "kind": "long"} | more
    on = given["properties"] | {f"delta.enableIcebergCompatV{number}": "true"}
    listed = ("columnMapping", *given["listed"])
    found = refusal(state(*listed, reader=2, properties=on, column=given["column"], kind=given["kind"]))
    assert f"{name}: " in found
    assert says in found


@pytest.mark.parametrize("version", ["V1", "V2", "V3"])
def test_a_version_that_is_only_listed_asks_for_nothing(version: str) -> None:
    off = {f"delta.enableIcebergCompat{version}": "false"}
    features.check_append(state(f"icebergCompat{version}", reader=3, properties=off))
