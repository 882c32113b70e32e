"""Statistics of the columns that a table's properties choose, and readers that leave files out by them (H7)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import safewrite as sw
from safewrite.delta.log.indexing import NUM_INDEXED_COLS, STATS_COLUMNS, Indexed, of

SCHEMA = pa.schema(
    [
        ("day", pa.string()),
        ("tags", pa.list_(pa.int64())),
        ("flag", pa.bool_()),
        ("Inner", pa.struct([("x", pa.int64()), ("deep", pa.struct([("y", pa.string()), ("z", pa.int64())]))])),
        ("number", pa.int64()),
        ("odd.`name`", pa.string()),
    ]
)  # fmt: skip
FILTERS = {
    "flag": pc.field("flag") == pc.scalar(True),
    "Inner.x": pc.field("Inner", "x") == 2,
    "Inner.deep.y": pc.field("Inner", "deep", "y") == "2",
    "number": pc.field("number") == 2,
    "odd.`name`": pc.field("odd.`name`") == "2",
}
CHOICES: list[tuple[dict[str, str], list[str]]] = [
    ({NUM_INDEXED_COLS: "0"}, []),
    ({NUM_INDEXED_COLS: "2"}, ["day", "tags"]),
    ({NUM_INDEXED_COLS: "5"}, ["day", "tags", "flag", "Inner.x", "Inner.deep.y"]),
    ({NUM_INDEXED_COLS: "+3"}, ["day", "tags", "flag"]),
    ({STATS_COLUMNS: "number"}, ["number"]),
    ({STATS_COLUMNS: "NUMBER , inner"}, ["Inner.x", "Inner.deep.y", "Inner.deep.z", "number"]),
    ({STATS_COLUMNS: "inner.DEEP, `inner`.`x`"}, ["Inner.x", "Inner.deep.y", "Inner.deep.z"]),
    ({STATS_COLUMNS: "`odd.``name```"}, ["odd.`name`"]),
    ({STATS_COLUMNS: "", NUM_INDEXED_COLS: "2"}, []),
    ({STATS_COLUMNS: "number", NUM_INDEXED_COLS: "2"}, ["number"]),
]


def row(number: int) -> dict[str, Any]:
    return {
        "day": "d", "tags": [number], "flag": number == 2, "number": number, "odd.`name`": str(number),
        "Inner": {"x": number, "deep": {"y": str(number), "z": number}},
    }  # fmt: skip


def indexed(folder: Path) -> list[str]:
    """Leaves that the newest file has null counts of."""
    newest = max((folder / "_delta_log").glob("*.json"))
    (add,) = [
        json.loads(line)["add"] for line in newest.read_text().splitlines() if line.startswith('{"add"')
    ]
    return leaves(json.loads(add["stats"]).get("nullCount", {}))  # Spark leaves out what is empty


def leaves(tree: Any, above: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return [above]
    return [
        one for name, below in tree.items() for one in leaves(below, f"{above}.{name}" if above else name)
    ]


@pytest.mark.sweep(
    "whole-{'delta.dataSkippingStatsColumns'",
    "partitioned",
    "whole-{'delta.dataSkippingNumIndexedCols': '5'",
    "whole-{'delta.dataSkippingNumIndexedCols': '+3'",
)
@pytest.mark.parametrize(("properties", "expected"), CHOICES, ids=str)
@pytest.mark.parametrize("partition_by", [(), ("day",)], ids=["whole", "partitioned"])
def test_files_have_statistics_of_the_columns_that_the_table_chose_and_readers_find_all_rows(
    tmp_path: Path, properties: dict[str, str], expected: list[str], partition_by: tuple[str, ...]
) -> None:
    table = sw.create(tmp_path / "t", SCHEMA, properties=properties, partition_by=partition_by)
    for number in (1, 2):
        table.append(pa.Table.from_pylist([row(number)], schema=SCHEMA))
    if partition_by and "day" in expected:  # it does not count, and the next leaf comes into its place
        following = {"tags": "flag", "flag": "Inner.x", "Inner.deep.y": "Inner.deep.z"}[expected[-1]]
        expected = [*expected[1:], following]
    assert indexed(tmp_path / "t") == expected
    assert {name: found(tmp_path / "t", name) for name in FILTERS} == dict.fromkeys(FILTERS, (1, 1))


def found(folder: Path, name: str) -> tuple[int, int]:
    """Rows that deltalake's dataset, which leaves out files, and DuckDB on it find by a filter on one column."""
    dataset = deltalake.DeltaTable(folder).to_pyarrow_dataset()
    parts = ".".join('"' + part + '"' for part in ([name] if name in SCHEMA.names else name.split(".")))
    literal = {"flag": "true", "Inner.x": "2", "number": "2"}.get(name, "'2'")
    with duckdb.connect() as connection:
        connection.register("t", dataset)
        rows = connection.execute(f"SELECT * FROM t WHERE {parts} = {literal}").fetchall()
    return dataset.to_table(filter=FILTERS[name]).num_rows, len(rows)


WIDE = pa.schema([(f"c{number}", pa.int64()) for number in range(40)])


@pytest.mark.sweep("properties2", "properties3")
@pytest.mark.parametrize(
    ("properties", "count"),
    [({}, 32), ({NUM_INDEXED_COLS: "-1"}, 40), ({NUM_INDEXED_COLS: "35"}, 35), ({STATS_COLUMNS: "c39"}, 1)],
)
def test_every_column_of_a_wide_table_finds_its_rows(
    tmp_path: Path, properties: dict[str, str], count: int
) -> None:
    """deltalake takes a statistic that the table promises and the file lacks for NULL, and leaves the file out."""
    folder = tmp_path / "t"
    table = sw.create(folder, WIDE, properties=properties)
    for value in (1, 2):
        table.append(pa.table([pa.array([value])] * 40, schema=WIDE))
    assert len(indexed(folder)) == count
    dataset = deltalake.DeltaTable(folder).to_pyarrow_dataset()
    assert [dataset.to_table(filter=pc.field(name) == 2).num_rows for name in WIDE.names] == [1] * 40
    assert pl.scan_delta(str(folder)).filter(pl.col("c39") == 2).collect().height == 1


def test_rewritten_files_and_new_columns_follow_the_table_too(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = sw.create(folder, WIDE, properties={NUM_INDEXED_COLS: "-1"})
    table.append(pa.table([pa.array([1, 2])] * 40, schema=WIDE))
    table.delete("c0 = 1")
    assert len(indexed(folder)) == 40
    table.append([dict.fromkeys((*WIDE.names, "new"), 3)], schema_mode="merge")
    assert len(indexed(folder)) == 41


def test_statistics_are_those_of_the_schema_also_where_rows_lack_columns(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = sw.create(folder, WIDE, properties={NUM_INDEXED_COLS: "3"})
    table.append([{"c2": 1, "c39": 2, "c0": 3}], schema_mode="merge")
    assert indexed(folder) == ["c0", "c1", "c2"]


# --- values that make no sense --------------------------------------------------------------------------
UNREADABLE = [
    {NUM_INDEXED_COLS: "x"},
    {NUM_INDEXED_COLS: ""},
    {NUM_INDEXED_COLS: " 5"},
    {NUM_INDEXED_COLS: "5.0"},
    {NUM_INDEXED_COLS: "1_0"},
    {NUM_INDEXED_COLS: "3000000000"},
    {STATS_COLUMNS: "a b"},
    {STATS_COLUMNS: "a,"},
    {STATS_COLUMNS: ",a"},
    {STATS_COLUMNS: "a..b"},
    {STATS_COLUMNS: "a.5"},
    {STATS_COLUMNS: "12"},
    {STATS_COLUMNS: "1e5"},
    {STATS_COLUMNS: "a-b"},
    {STATS_COLUMNS: "`a"},
]


@pytest.mark.sweep(
    "{'delta.dataSkippingStatsColumns': '1",
    "{'delta.dataSkippingStatsColumns': 'a,",
    "{'delta.dataSkippingStatsColumns': 'a-",
)
@pytest.mark.parametrize("properties", UNREADABLE, ids=str)
def test_a_table_whose_property_spark_cannot_read_is_refused(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    """Spark raises (toInt; a list without a parse): rows that safewrite added there would be out of its reach."""
    with pytest.raises(sw.InvalidInputError, match="not created"):
        sw.create(tmp_path / "new", SCHEMA, properties=properties)
    sw.create(tmp_path / "t", SCHEMA)
    log = tmp_path / "t" / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] = properties
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(sw.UnsupportedTableError, match="Spark cannot read it either"):
        sw.open(tmp_path / "t").check_writable()


def test_a_number_below_minus_one_means_all_in_the_log_and_is_refused_for_new_tables(tmp_path: Path) -> None:
    assert len(of({NUM_INDEXED_COLS: "-7"}).leaves(SCHEMA)) == 8
    with pytest.raises(sw.InvalidInputError, match="-1"):
        sw.create(tmp_path / "new", SCHEMA, properties={NUM_INDEXED_COLS: "-7"})


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("nothing", "no column nothing"),
        ("inner.nothing", "no column inner.nothing"),
        ("number.x", "no column number.x"),
        ("day", "partition column"),
        ("tags", "no bounds"),
        ("flag", "no bounds"),
        ("number, NUMBER", "named twice"),
        ("inner, inner.x", "named twice"),
    ],
)
def test_a_new_table_cannot_name_columns_that_spark_refuses(tmp_path: Path, columns: str, why: str) -> None:
    with pytest.raises(sw.InvalidInputError, match=why):
        sw.create(tmp_path / "t", SCHEMA, properties={STATS_COLUMNS: columns}, partition_by=["day"])
    assert not (tmp_path / "t").exists()


def test_columns_that_are_gone_from_the_table_are_passed_over() -> None:
    assert Indexed(named=(("gone",), ("number",))).leaves(SCHEMA) == {("number",)}
    assert Indexed(named=(("gone", "x"), ("number", "x"))).leaves(SCHEMA) == frozenset()
