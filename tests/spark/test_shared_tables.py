"""Tables that Spark makes and changes, with appends of safewrite between; and tables that safewrite must refuse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from tests.sampling import first
from tests.spark.session import Spark

pytestmark = pytest.mark.xdist_group("spark")


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
    "checkConstraints": ["CREATE TABLE {} (id BIGINT) USING delta", "ALTER TABLE {} ADD CONSTRAINT c CHECK (id > 0)"],
    "generatedColumns": ["CREATE TABLE {} (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)) USING delta"],
    "clustering": ["CREATE TABLE {} (id BIGINT) USING delta CLUSTER BY (id)"],
    "rowTracking": ["CREATE TABLE {} (id BIGINT) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true')"],
    "columnMapping": ["CREATE TABLE {} (id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"],
    "v2Checkpoint": ["CREATE TABLE {} (id BIGINT) USING delta TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"],
}  # fmt: skip


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
