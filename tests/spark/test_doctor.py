"""What doctor says of tables that Spark itself wrote: silent where they are sound, and right where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.servers.catalogs import CatalogKind
from safewrite.delta.maintenance.doctor import examine
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.iceberg.maintenance import doctor as iceberg_doctor
from safewrite.iceberg.table import IcebergTable
from tests.integration.places import rows
from tests.sampling import first
from tests.spark.lake import Lake
from tests.spark.session import Spark

PARQUET = "spark.sql.parquet."


@contextmanager
def settings(spark: Spark, **values: str) -> Iterator[None]:
    for name, value in values.items():
        spark.session.conf.set(PARQUET + name, value)
    try:
        with spark.careless():
            yield
    finally:
        for name in values:
            spark.session.conf.unset(PARQUET + name)


def save(spark: Spark, path: Path, *values: str) -> None:
    query = f"SELECT * FROM VALUES {', '.join(values)} t(id, ts, d)"
    spark.session.sql(query).coalesce(1).write.format("delta").mode("append").save(str(path))


def found(path: Path) -> dict[str, list[str]]:
    """Findings of data files, with what they count."""
    findings = examine(inspect_table(path), environment={}, deep=True)
    return {one.code: sorted(one.details["files"]) for one in findings if "checked" in one.details}


NOW = "(1, TIMESTAMP'2020-01-02 03:04:05.123456', DATE'2020-01-02')"
LATE = "(2, TIMESTAMP'9999-12-31 00:00:00', DATE'2020-01-01')"
OLD = "(3, TIMESTAMP'2020-01-01 00:00:00', DATE'1500-01-01')"
VERY_OLD = "(4, TIMESTAMP'1500-01-01 00:00:00', DATE'2020-01-01')"


def test_instants_that_spark_writes_as_int96_are_found_where_others_misread_them(
    spark: Spark, tmp_path: Path
) -> None:
    for name, value in (("sound", NOW), ("late", LATE)):
        with settings(spark, outputTimestampType="INT96"):
            save(spark, tmp_path / name, value)
            save(spark, tmp_path / name, "(5, NULL, NULL)")
    with settings(spark, outputTimestampType="TIMESTAMP_MICROS"):
        save(spark, tmp_path / "micros", LATE, OLD)
    assert found(tmp_path / "sound") == found(tmp_path / "micros") == {}
    assert list(found(tmp_path / "late")) == ["instants_out_of_range"]


@pytest.mark.long
@pytest.mark.parametrize("statistics", ["true", "false"])
def test_instants_without_statistics_are_read(spark: Spark, tmp_path: Path, statistics: str) -> None:
    with settings(spark, outputTimestampType="INT96"):
        spark.session.conf.set("spark.databricks.delta.stats.collect", statistics)
        try:
            save(spark, tmp_path / "sound", NOW)
            save(spark, tmp_path / "late", LATE)
        finally:
            spark.session.conf.unset("spark.databricks.delta.stats.collect")
    assert found(tmp_path / "sound") == {}
    assert list(found(tmp_path / "late")) == ["instants_out_of_range"]


@pytest.mark.long
def test_days_in_the_old_calendar_are_found(spark: Spark, tmp_path: Path) -> None:
    legacy = {"outputTimestampType": "TIMESTAMP_MICROS", "datetimeRebaseModeInWrite": "LEGACY"}
    with settings(spark, **legacy):
        save(spark, tmp_path / "sound", NOW)
        save(spark, tmp_path / "old", OLD)
    with settings(spark, outputTimestampType="INT96", int96RebaseModeInWrite="LEGACY"):
        save(spark, tmp_path / "sound96", NOW)
        save(spark, tmp_path / "old96", VERY_OLD)
    assert found(tmp_path / "sound") == found(tmp_path / "sound96") == {}
    assert list(found(tmp_path / "old")) == ["old_calendar"]
    assert sorted(found(tmp_path / "old96")) == ["instants_out_of_range", "old_calendar"]


CHANGES = {
    "partitioned, and a column added": (
        "CREATE TABLE {t} (id BIGINT, p DATE) USING delta PARTITIONED BY (p)",
        "INSERT INTO {t} VALUES (1, DATE'1500-01-01'), (2, NULL)",
        "ALTER TABLE {t} ADD COLUMN more STRING",
        "INSERT INTO {t} VALUES (3, NULL, 'x')",
    ),
    "mapped by name, renamed and dropped": (
        (
            "CREATE TABLE {t} (id BIGINT, v STRING, `a b` STRUCT<x: BIGINT>) USING delta PARTITIONED BY (v) "
            "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
        ),
        "INSERT INTO {t} VALUES (1, 'x', NULL)",
        "ALTER TABLE {t} RENAME COLUMN v TO w",
        "ALTER TABLE {t} DROP COLUMN `a b`",
        "INSERT INTO {t} VALUES (2, 'x')",
    ),
    "mapped later": (
        "CREATE TABLE {t} (id BIGINT, v STRING) USING delta",
        "INSERT INTO {t} VALUES (1, 'x')",
        (
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.minReaderVersion' = '2', "
            "'delta.minWriterVersion' = '5')"
        ),
        "ALTER TABLE {t} RENAME COLUMN v TO w",
        "INSERT INTO {t} VALUES (2, 'x')",
    ),
    "mapped by id": (
        "CREATE TABLE {t} (id BIGINT, v STRING) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'id')",
        "INSERT INTO {t} VALUES (1, 'x')",
    ),
    "row ids, changes and vectors": (
        (
            "CREATE TABLE {t} (id BIGINT, v STRING) USING delta TBLPROPERTIES ('delta.enableRowTracking' = 'true', "
            "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
        ),
        "INSERT INTO {t} SELECT id, 'x' FROM range(100)",
        "UPDATE {t} SET v = 'y' WHERE id = 1",
        "DELETE FROM {t} WHERE id = 2",
        "OPTIMIZE {t}",
    ),
    "overwritten and restored": (
        "CREATE TABLE {t} (id BIGINT, v STRING) USING delta",
        "INSERT INTO {t} VALUES (1, 'x')",
        "CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1 AS other",
        "RESTORE TABLE {t} TO VERSION AS OF 1",
        "INSERT INTO {t} VALUES (2, 'y')",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("change", first(CHANGES, 2))
def test_columns_of_tables_that_spark_changed_are_known(spark: Spark, tmp_path: Path, change: str) -> None:
    for statement in CHANGES[change]:
        spark.run(statement.format(t=f"delta.`{tmp_path / 't'}`"))
    assert found(tmp_path / "t") == {}


# --- Iceberg ------------------------------------------------------------------------------------------
Lakes = Callable[[CatalogKind], Lake]


def named(table: IcebergTable) -> list[str]:
    codes = (one.code for one in iceberg_doctor.examine(table._format.connection, deep=True).findings)
    return sorted(code for code in codes if code not in ("other_writers", "retention_unset"))


@pytest.mark.long
def test_what_spark_staged_is_named_until_it_is_published(spark: Spark, lakes: Lakes) -> None:
    lake = lakes("sql")
    table = lake.create(rows(1).schema)
    where = lake.sql(table)
    spark.run(f"ALTER TABLE {where} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    spark.run(f"INSERT INTO {where} VALUES (0, 'v0')")
    with spark.setting("spark.wap.id", "audit-1"):
        spark.run(f"INSERT INTO {where} VALUES (1, 'v1')")
    assert named(table) == ["wap_unpublished"]
    spark.run(f"CALL {lake.name}.system.publish_changes('{table.uri}', 'audit-1')")
    assert named(table) == []
    table.append(rows(2), key="k")
    assert named(table) == ["wap_passed_over"]


@pytest.mark.long
def test_what_spark_cherry_picked_is_in_the_table_and_twice_if_it_was_written_again(
    spark: Spark, lakes: Lakes
) -> None:
    lake = lakes("sql")
    table = lake.create(rows(1).schema)
    first = table.append(rows(1), key="first")
    picked = table.append(rows(2), key="k")
    spark.run(f"CALL {lake.name}.system.rollback_to_snapshot('{table.uri}', {first.version})")
    table.append(rows(3), key="third")
    assert named(table) == ["rolled_back_keys"]
    again = table.append(rows(2), key="k")
    spark.run(f"CALL {lake.name}.system.cherrypick_snapshot('{table.uri}', {picked.version})")
    assert again.outcome == "committed"
    assert named(table) == ["key_cherry_picked_twice"]


@pytest.mark.long
def test_a_partition_column_that_spark_dropped_is_no_damage(spark: Spark, lakes: Lakes) -> None:
    lake = lakes("sql")
    name = lake.new()
    where = lake.sql(name)
    spark.run(f"CREATE TABLE {where} (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region)")
    spark.run(f"INSERT INTO {where} VALUES (1, 'a')")
    spark.run(f"ALTER TABLE {where} DROP PARTITION FIELD region")
    spark.run(f"INSERT INTO {where} VALUES (2, 'a')")
    spark.run(f"ALTER TABLE {where} DROP COLUMN region")
    table = lake.open(name)
    table.append(rows(3).select(["id"]))
    assert named(table) == []
