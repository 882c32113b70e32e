"""Tables that Spark makes and changes, with appends of safewrite between; and tables that safewrite must refuse."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from tests.sampling import first
from tests.spark.session import Spark


def rows(*ids: int, value: str = "new") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "value": [value] * len(ids)})


def pairs(table: pa.Table) -> list[tuple[int, str]]:
    """Rows of ``id`` and ``value``, sorted."""
    return sorted(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True))


# The statements that rewrite files are in the short form of test_plain_delta.py.
@pytest.mark.sweep("deletion vectors")
@pytest.mark.parametrize(
    "vectors",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["files rewritten", "deletion vectors"],
)
def test_appends_between_merge_delete_and_optimize_of_spark(
    spark: Spark, tmp_path: Path, vectors: bool
) -> None:
    """Each row that nobody deleted is there once, for Spark and, where it knows the features, for deltalake."""
    root = tmp_path / "t"
    spark.run(
        f"CREATE TABLE delta.`{root}` (id BIGINT, value STRING) USING delta TBLPROPERTIES "
        f"('delta.enableDeletionVectors' = '{str(vectors).lower()}', 'delta.checkpointInterval' = '4')"
    )
    spark.write(root, rows(1, 2, 3, value="spark"))
    table = sw.open(str(root))
    table.append(rows(4, 5, 6), key="one")
    spark.run(f"DELETE FROM delta.`{root}` WHERE id IN (2, 5)")
    table.append(rows(7, 8), key="two")
    spark.run(
        f"MERGE INTO delta.`{root}` t USING (SELECT EXPLODE(ARRAY(3L, 7L, 9L)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET value = 'merged' WHEN NOT MATCHED THEN INSERT (id, value) VALUES (id, 'inserted')"
    )
    table.append(rows(10), key="three")
    assert uses_vectors(root) == vectors
    spark.run(f"OPTIMIZE delta.`{root}`")
    table.append(rows(11), key="four")
    assert table.append(rows(4, 5, 6), key="one").outcome is sw.Outcome.ALREADY_COMMITTED
    expected = [
        (1, "spark"), (3, "merged"), (4, "new"), (6, "new"), (7, "merged"), (8, "new"), (9, "inserted"),
        (10, "new"), (11, "new"),
    ]  # fmt: skip
    assert pairs(spark.read(root)) == expected
    if not vectors:
        assert pairs(deltalake.DeltaTable(str(root)).to_pyarrow_table()) == expected


def uses_vectors(root: Path) -> bool:
    """Whether any commit has a file with deleted rows in it."""
    return any('"deletionVector":{' in path.read_text() for path in (root / "_delta_log").glob("*.json"))


@pytest.mark.long
def test_rows_that_spark_deleted_by_vectors_do_not_come_back(spark: Spark, tmp_path: Path) -> None:
    root = tmp_path / "t"
    spark.write(root, rows(1, 2, 3, 4), **{"delta.enableDeletionVectors": "true"})
    spark.run(f"DELETE FROM delta.`{root}` WHERE id = 2")
    assert uses_vectors(root)
    table = sw.open(str(root))
    assert table.overwrite(rows(30), where=[("id", ">", 3)]).removed_rows == 1
    assert spark.ids({"t": root}) == {"t": Counter([1, 3, 30])}
    assert table.delete("id = 2").removed_rows == 0
    table.overwrite(rows(4))
    assert spark.ids({"t": root}) == {"t": Counter([4])}


@pytest.mark.long
def test_spark_sees_what_a_delete_left_and_the_delete_in_its_history(spark: Spark, tmp_path: Path) -> None:
    root = tmp_path / "t"
    spark.write(root, rows(1, 2, 3), **{"delta.enableDeletionVectors": "false"})
    sw.open(str(root)).delete("id = 2")
    assert spark.ids({"t": root}) == {"t": Counter([1, 3])}
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{root}`").to_pylist()[0]
    assert newest["operation"] == "DELETE"
    assert dict(newest["operationParameters"]) == {"predicate": '["\\"id\\" = 2"]'}
    spark.run(f"DELETE FROM delta.`{root}` WHERE id = 3")
    assert spark.ids({"t": root}) == {"t": Counter([1])}


REFUSED = {
    "checkConstraints": ["CREATE TABLE {} (id BIGINT) USING delta", "ALTER TABLE {} ADD CONSTRAINT c CHECK (hash(id) > 0)"],
    "generatedColumns": ["CREATE TABLE {} (id BIGINT, twice INT GENERATED ALWAYS AS (hash(id))) USING delta"],
    "identityColumns": ["CREATE TABLE {} (id BIGINT, n BIGINT GENERATED ALWAYS AS IDENTITY) USING delta"],
}  # fmt: skip


@pytest.mark.sweep("generatedColumns")
@pytest.mark.parametrize("feature", first(REFUSED, 2))
def test_a_table_that_spark_made_with_an_unsupported_feature_is_refused_by_its_name(
    spark: Spark, tmp_path: Path, feature: str
) -> None:
    """B6: real tables, not ones that a test imagined."""
    for statement in REFUSED[feature]:
        spark.run(statement.format(f"delta.`{tmp_path / 't'}`"))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(sw.UnsupportedTableError, match=feature):
        sw.open(str(tmp_path / "t")).append(pa.table({"id": [1]}))
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.long
@pytest.mark.parametrize("mode", ["none", "name", "id"])
def test_a_table_as_unity_makes_it_is_written_by_every_verb_while_spark_goes_on(
    spark: Spark, tmp_path: Path, mode: str
) -> None:
    """V2 checkpoints, clustering beyond the columns that have statistics, vectors: each of our files has what OPTIMIZE needs.

    Where columns are mapped Spark renames one on the way, and gives its name to another.
    """
    source, root = f"delta.`{tmp_path / 't'}`", tmp_path / "t"
    given = {"checkpointPolicy": "v2", "checkpointInterval": "3", "enableDeletionVectors": "true"}
    given |= {"dataSkippingStatsColumns": "id,z,n.x", "columnMapping.mode": mode}
    told = ", ".join(f"'delta.{name}' = '{value}'" for name, value in given.items())
    spark.run(
        f"CREATE TABLE {source} (id BIGINT, seq BIGINT, v STRING, z STRING, n STRUCT<x: INT>) USING delta CLUSTER BY (z, n.x) "
        f"TBLPROPERTIES ({told})"
    )
    spark.run(f"ALTER TABLE {source} SET TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'id,z,n.x')")

    name, later = "v", dict[str, None]()

    def row(number: int, v: str = "ours", seq: int = 1) -> dict[str, Any]:
        return {"id": number, "seq": seq, name: v, "z": f"z{number}", "n": {"x": number}, **later}

    def frame(*given: dict[str, Any]) -> Any:
        counted = pa.struct({"x": pa.int32()})
        columns = {"id": pa.int64(), "seq": pa.int64(), name: pa.string(), "z": pa.string(), "n": counted}
        columns |= dict.fromkeys(later, pa.string())
        with spark.careless():
            return spark.session.createDataFrame(pa.Table.from_pylist(list(given), pa.schema(columns)))

    def insert(first: int, end: int) -> None:
        values = "id, 1, 'spark', concat('z', id), named_struct('x', CAST(id AS INT))"
        spark.run(
            f"INSERT INTO {source} (id, seq, `{name}`, z, n) SELECT {values} FROM range({first}, {end})"
        )

    insert(0, 10)
    table = sw.open(root)
    table.append([row(20), row(21)], key="a")
    table.apply_changes([row(1, "changed", 2), row(22)], keys=["id"], sequence_by=["seq"], key="b")
    with spark.careless():
        table.append(frame(*(row(number) for number in range(40, 44))), key="frame")
    spark.run(f"UPDATE {source} SET v = 'updated', seq = 3 WHERE id IN (2, 20)")
    table.delete("id = 3")
    if mode != "none":
        name, later = "v, then", {"v": None}
        spark.run(f"ALTER TABLE {source} RENAME COLUMN v TO `{name}`")
        spark.run(f"ALTER TABLE {source} ADD COLUMN v STRING")
        table.refresh()
    table.overwrite([row(4, "over")], where="id = 4")
    spark.run(f"OPTIMIZE {source}")
    insert(10, 12)
    with spark.careless():
        table.apply_changes(frame(row(5, "by tasks", 2), row(23)), keys=["id"], sequence_by=["seq"], key="c")
    assert table.checkpoint() in (True, False)
    spark.run(f"DELETE FROM {source} WHERE id = 6")
    table.refresh().append([row(24)], key="d")
    expected = dict.fromkeys((0, 7, 8, 9, 10, 11), "spark")
    expected |= dict.fromkeys((21, 22, 23, 24, 40, 41, 42, 43), "ours")
    expected |= {1: "changed", 2: "updated", 20: "updated", 4: "over", 5: "by tasks"}
    found = {one["id"]: one["v"] for one in spark.sql(f"SELECT id, `{name}` AS v FROM {source}").to_pylist()}
    assert found == expected
    assert {one["id"]: one[name] for one in sw.open(root).rows(where="true").to_pylist()} == expected
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(root))
    read = pa.table(query.execute(f'SELECT id, "{name}" AS v FROM t').read_all()).to_pylist()
    assert {one["id"]: one["v"] for one in read} == expected
    files = sw.open(root)._format.refresh().physical
    for path in (root / "_delta_log").glob("*.json"):
        for line in map(json.loads, path.read_text().splitlines()):
            if "add" in line and path.name[0] == "0" and ".checkpoint." not in path.name:
                stats = json.loads(line["add"]["stats"])
                assert {files["z"], files["n"]} <= stats["nullCount"].keys(), path
