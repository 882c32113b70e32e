"""``schema_mode="widen"``: a frame makes columns of its table wider, in the commit of its rows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import deltalake.exceptions
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw

FORMS = ("delta", "iceberg")
NARROW = pa.schema(
    [
        ("id", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.decimal128(5, 2)),
        ("s", pa.struct([("a", pa.int32())])),
    ]
)
WIDE = pa.schema(
    [("id", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(20, 2)),
     ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("new", pa.string())]
)  # fmt: skip
OLD = [{"id": key, "f": 0.5, "d": Decimal("1.25"), "s": {"a": key}} for key in (1, 2)]
NEW = [{"id": 2**40, "f": 0.1, "d": Decimal("12345678.25"), "s": {"a": 2**40, "b": "x"}, "new": "y"}]


def table_of(folder: Path, form: str, **how: Any) -> sw.Table:
    if form == "delta":
        return sw.create(folder / "t", schema=NARROW, **how)
    catalog = load_catalog("c", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    return sw.create("db.t", schema=NARROW, catalog=catalog, **how)


def again(table: sw.Table, folder: Path) -> sw.Table:
    """The table, opened by another writer."""
    if not hasattr(table, "iceberg"):
        return sw.open(folder / "t")
    return sw.open(
        "db.t",
        catalog=load_catalog("c", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}"),
    )


def rows(table: sw.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.concat_tables(
        part.read() for part in table.added_since(None)
    ).to_pylist()
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_one_commit_widens_and_brings_the_rows(tmp_path: Path, form: str) -> None:
    table = table_of(tmp_path, form)
    table.append(pa.Table.from_pylist(OLD, NARROW), key="old")
    frame = pa.Table.from_pylist(NEW, WIDE)
    with pytest.raises(sw.WouldAlterError):
        table.append(frame, schema_mode="merge")
    before = len(list(table.history()))
    receipt = table.append(frame, key="new", schema_mode="widen")
    assert len(list(table.history())) == before + 1
    assert table.refresh().schema.equals(WIDE)
    assert table.append(frame, key="new", schema_mode="widen").version == receipt.version
    assert table.append(pa.Table.from_pylist(OLD, NARROW), key="old").outcome == "already_committed"
    old = [{**row, "s": {**row["s"], "b": None}, "new": None} for row in OLD]
    assert rows(table) == [*old, *NEW]
    assert table.delete("id = 2").removed_rows == 1
    assert table.overwrite(frame, where=f"id = {2**40}", schema_mode="widen").removed_rows == 1
    assert rows(table) == [old[0], *NEW]


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_a_frame_of_narrow_types_narrows_nothing(tmp_path: Path, form: str) -> None:
    """Also of a writer that knows the table as it was before, whatever it widens itself."""
    table = table_of(tmp_path, form)
    others = [again(table, tmp_path) for _ in range(2)]
    first = WIDE.set(2, NARROW.field("d")).set(1, NARROW.field("f"))
    table.append(
        pa.Table.from_pylist([{**NEW[0], "d": Decimal("1.25"), "f": 0.5}], first), schema_mode="widen"
    )
    others[0].append(pa.Table.from_pylist(OLD, NARROW), schema_mode="widen")
    others[1].append(
        pa.Table.from_pylist([{**OLD[0], "f": 0.1, "d": Decimal("1000000.00")}], WIDE), schema_mode="widen"
    )
    assert table.refresh().schema.equals(WIDE)
    assert sorted((row["id"], row["f"]) for row in rows(table)) == [
        (1, 0.1),
        (1, 0.5),
        (2, 0.5),
        (2**40, 0.5),
    ]


@pytest.mark.parametrize(
    ("form", "marks"),
    [
        ("delta", True),
        *(
            pytest.param(*one, marks=pytest.mark.long)
            for one in (("delta", False), ("iceberg", False), ("iceberg", True))
        ),
    ],
)
def test_changes_by_key_go_on_over_files_of_narrow_types(tmp_path: Path, form: str, marks: bool) -> None:
    """Rows are found by narrow bounds and keys, in marked files too; a key that was deleted before is remembered as the wider one."""
    wanted = (
        {"delta.enableDeletionVectors": "true"} if form == "delta" else {"write.merge.mode": "merge-on-read"}
    )
    table = table_of(tmp_path, form, properties=wanted if marks else {})
    columns = [("id", pa.int32()), ("f", pa.float32()), ("at", pa.int64())]
    table.append(pa.schema([*NARROW, ("at", pa.int64())]).empty_table(), schema_mode="merge")

    def apply(*changes: tuple[int, float | None, int]) -> None:
        schema = pa.schema(
            [*columns, ("gone", pa.bool_()), *(field for field in table.schema if field.name in "ds")]
        )
        listed = [{"id": key, "f": f, "at": at, "gone": f is None} for key, f, at in changes]
        data = pa.Table.from_pylist(listed, schema)
        table.apply_changes(data, keys=["id"], sequence_by=["at"], delete_when=[("gone", "=", True)])

    apply(*((key, key / 2, 10) for key in range(1, 41)))
    apply((5, None, 20))
    columns = [("id", pa.int64()), ("f", pa.float64()), ("at", pa.int64())]
    table.append(pa.schema([*columns]).empty_table(), schema_mode="widen")
    table.refresh()
    apply((5, 1.0, 15), (2**40, 0.1, 5), (7, 0.3, 30), (8, None, 31))
    left = {key: key / 2 for key in range(1, 41)} | {7: 0.3, 2**40: 0.1}
    del left[5], left[8]
    assert {row["id"]: row["f"] for row in rows(table)} == left
    for where, gone in ((f"id > {2**33}", 1), ("f > 19", 2), ("id = 1", 1), ("f = 1", 1)):
        assert table.delete(where).removed_rows == gone
    if form == "delta":
        table.checkpoint()
    found = {row["id"]: row["f"] for row in rows(again(table, tmp_path))}
    assert found == {key: f for key, f in left.items() if key not in {1, 2, 39, 40, 2**40}}


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_partition_columns_of_whole_numbers_become_wider_and_no_others(tmp_path: Path, form: str) -> None:
    table = table_of(tmp_path, form, partition_by=["id", "d"])
    table.append(pa.Table.from_pylist(OLD, NARROW))
    wide_d = WIDE.set(0, NARROW.field("id"))
    with pytest.raises(sw.InvalidInputError, match=r"'d'.*partition"):
        table.append(wide_d.empty_table(), schema_mode="widen")
    wide_id = WIDE.set(2, NARROW.field("d"))
    table.append(pa.Table.from_pylist([{**NEW[0], "d": Decimal("1.25")}], wide_id), schema_mode="widen")
    assert [row["id"] for row in rows(table)] == [1, 2, 2**40]
    assert table.delete(f"id = {2**40}").removed_rows == 1
    assert table.delete("id = 1").removed_rows == 1
    assert [row["id"] for row in rows(table)] == [2]


def test_delta_s_protocol_names_the_feature_and_each_change(tmp_path: Path) -> None:
    """Features of the older protocol stay; new fields of structs alone ask for nothing.  deltalake refuses the feature, as the pages say."""
    table, folder = (
        table_of(tmp_path, "delta", properties={"delta.enableChangeDataFeed": "true"}),
        tmp_path / "t",
    )
    fields = pa.schema([("s", pa.struct([("a", pa.int32()), ("b", pa.string())]))])
    table.append(fields.empty_table(), schema_mode="widen")
    assert deltalake.DeltaTable(folder).protocol().min_reader_version == 1
    table.append(WIDE.empty_table(), schema_mode="widen")
    found = deltalake.DeltaTable(folder)
    assert found.protocol().reader_features == ["typeWidening"]
    assert {*found.protocol().writer_features} == {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "typeWidening",
    }
    assert found.metadata().configuration["delta.enableTypeWidening"] == "true"
    kinds = {one["name"]: one for one in json.loads(found.schema().to_json())["fields"]}
    assert kinds["id"]["metadata"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    (inner, _) = kinds["s"]["type"]["fields"]
    assert inner["metadata"]["delta.typeChanges"] == [{"fromType": "integer", "toType": "long"}]
    with pytest.raises(deltalake.exceptions.DeltaProtocolError, match="typeWidening"):
        found.to_pyarrow_table()


def test_a_delta_table_may_be_made_with_the_feature(tmp_path: Path) -> None:
    table = table_of(tmp_path, "delta", properties={"delta.enableTypeWidening": "true"})
    made = deltalake.DeltaTable(tmp_path / "t").protocol()
    assert made.reader_features == ["typeWidening"]
    table.append(pa.Table.from_pylist(NEW, WIDE), schema_mode="widen")
    assert deltalake.DeltaTable(tmp_path / "t").protocol().writer_features == made.writer_features
    assert rows(table) == NEW


def test_groups_do_not_widen(tmp_path: Path) -> None:
    table = table_of(tmp_path, "delta")
    with pytest.raises(sw.InvalidInputError, match="schema_mode is None or 'merge', not 'widen'"):
        table.append_many([("k", pa.Table.from_pylist(NEW, WIDE))], schema_mode="widen")  # type: ignore[arg-type]


def test_spark_frames_do_not_widen(tmp_path: Path) -> None:
    frame = type("DataFrame", (), {"__module__": "pyspark.sql.dataframe"})()
    with pytest.raises(sw.InvalidInputError, match="schema_mode='widen' takes no Spark DataFrame"):
        table_of(tmp_path, "delta").append(frame, schema_mode="widen")
