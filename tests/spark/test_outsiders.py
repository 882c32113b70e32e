"""What other people's sessions and tables do to values, filters and partitions: written right, or refused."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from tests.integration.places import Place, once, rows
from tests.spark.ends import delta, iceberg
from tests.spark.hooked import HookedTable
from tests.spark.lake import Lake
from tests.spark.session import Spark

Hooked = Callable[[str], HookedTable]
Lakes = Callable[[CatalogKind], Lake]

FOR_EVER = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
OLD = dt.datetime(1500, 1, 1, tzinfo=dt.UTC)
LONG_AGO = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 123456, tzinfo=dt.UTC)


@contextmanager
def settings(spark: Spark, **values: str) -> Iterator[None]:
    names = {name.replace("__", "."): value for name, value in values.items()}
    for name, value in names.items():
        spark.session.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.session.conf.unset(name)


def instants(spark: Spark) -> Any:
    listed = ", ".join(
        f"({number}, TIMESTAMP_LTZ '{value.replace(tzinfo=None)} UTC', DATE '{value.date()}')"
        for number, value in enumerate((FOR_EVER, OLD, LONG_AGO, MOMENT))
    )
    return spark.session.sql(f"SELECT * FROM VALUES {listed} t(id, ts, d)")


def read_everywhere(spark: Spark, place: Place) -> dict[str, list[Any]]:
    """Instants and dates by every reader, by id."""
    options = dict(place.storage_options)
    by_deltalake = deltalake.DeltaTable(place.uri, storage_options=options).to_pyarrow_table().sort_by("id")
    by_polars = pl.read_delta(place.uri, storage_options=options).sort("id")
    by_duckdb = duckdb.from_arrow(by_deltalake).order("id").arrow()
    table = f"delta.`{place.uri.replace('s3://', 's3a://')}`"
    by_spark = spark.sql(f"SELECT id, unix_micros(ts) AS us, unix_date(d) AS days FROM {table} ORDER BY id")
    found = {}
    for name, one in (
        ("deltalake", by_deltalake),
        ("polars", by_polars.to_arrow()),
        ("duckdb", pa.table(by_duckdb)),
    ):
        us = one["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        found[name] = [*us, *one["d"].cast(pa.int32()).to_pylist()]
    return found | {"spark": [*by_spark["us"].to_pylist(), *by_spark["days"].to_pylist()]}


@pytest.mark.long
def test_instants_of_all_years_are_the_same_for_every_reader(spark: Spark, hooked: Hooked) -> None:
    """With Spark's own settings a Delta file has INT96, which readers take for nanoseconds: 9999 becomes 2262 or 1816.

    A session may be set to cut instants off or to write the old calendar; its own files are so, ours are not.
    """
    place = hooked("object-store").place
    table = sw.open(
        place.uri, create=True, arbiter="object-store", storage_options=dict(place.storage_options)
    )
    others = {
        "spark__sql__parquet__datetimeRebaseModeInWrite": "LEGACY",
        "spark__sql__parquet__outputTimestampType": "TIMESTAMP_MILLIS",
    }
    with settings(spark, **others), spark.careless():
        table.append(instants(spark), key="by Spark")
        assert spark.session.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MILLIS"
    found = read_everywhere(spark, place)
    first = [
        round(value.timestamp()) * 10**6 + value.microsecond for value in (FOR_EVER, OLD, LONG_AGO, MOMENT)
    ]
    days = [(value.date() - dt.date(1970, 1, 1)).days for value in (FOR_EVER, OLD, LONG_AGO, MOMENT)]
    assert found == {name: [*first, *days] for name in ("deltalake", "polars", "duckdb", "spark")}


@pytest.mark.long
@pytest.mark.parametrize("setting", ["datetimeRebaseModeInWrite", "int96RebaseModeInWrite"])
def test_rows_in_the_old_calendar_are_not_rewritten_as_other_days(
    spark: Spark, tmp_path: Path, setting: str
) -> None:
    """Files of Spark 2, or of a session that is told to, say in their footer that their days are those before 1582."""
    path = tmp_path / "t"
    kind = "INT96" if "96" in setting else "TIMESTAMP_MICROS"
    names = {
        f"spark__sql__parquet__{setting}": "LEGACY",
        "spark__sql__parquet__outputTimestampType": kind,
    }
    with settings(spark, **names), spark.careless():
        query = "SELECT * FROM VALUES (1, TIMESTAMP '1500-01-01 00:00:00'), (2, TIMESTAMP '2020-01-01 00:00:00') t(id, ts)"
        spark.session.sql(query).coalesce(1).write.format("delta").save(str(path))
    table = sw.open(path)
    for call in (
        lambda: table.delete("id = 2"),
        lambda: table.overwrite(pa.table({"id": pa.array([2], pa.int32()), "ts": [MOMENT]}), where="id = 2"),
    ):
        with pytest.raises(sw.UnsupportedTableError, match="calendar"):
            call()
    assert spark.sql(f"SELECT CAST(ts AS STRING) AS ts FROM delta.`{path}` WHERE id = 1")[
        "ts"
    ].to_pylist() == ["1500-01-01 00:00:00"]
    table.delete("id < 3")
    assert spark.sql(f"SELECT * FROM delta.`{path}`").num_rows == 0


@pytest.mark.long
def test_changes_by_days_of_the_old_calendar_are_refused_until_spark_has_written_the_file_again(
    spark: Spark, tmp_path: Path
) -> None:
    """Decision 0065.  Read by Arrow the key would be another day, and its row would stand twice; so would a value that is carried on."""
    path = tmp_path / "t"
    with settings(spark, spark__sql__parquet__datetimeRebaseModeInWrite="LEGACY"), spark.careless():
        query = "SELECT * FROM VALUES (DATE '1500-01-01', 1, DATE '1500-01-02'), (DATE '2020-01-01', 1, NULL) t(d, s, v)"
        spark.session.sql(query).coalesce(1).write.format("delta").save(str(path))
    old, new = dt.date(1500, 1, 1), dt.date(2020, 1, 1)
    schema = pa.schema({"d": pa.date32(), "s": pa.int32(), "v": pa.date32(), "lacks": pa.list_(pa.string())})
    rows = pa.Table.from_pylist([{"d": day, "s": 2, "lacks": ["v"]} for day in (old, new)], schema)
    how: dict[str, Any] = {"keys": ["d"], "sequence_by": ["s"], "unchanged": "lacks"}
    with spark.careless():
        for frame in (rows, spark.session.createDataFrame(rows)):
            with pytest.raises(sw.UnsupportedTableError, match="calendar"):
                sw.open(path).apply_changes(frame, **how)
        again = f"UPDATE delta.`{path}` SET s = s"
        spark.session.sql(again)
        told = sw.open(path).apply_changes(spark.session.createDataFrame(rows), **how)
    assert told.changes["updated"] == 2
    found = spark.sql(f"SELECT CAST(d AS STRING) d, s, CAST(v AS STRING) v FROM delta.`{path}`").to_pylist()
    assert sorted(found, key=lambda one: one["d"]) == [
        {"d": "1500-01-01", "s": 2, "v": "1500-01-02"},
        {"d": "2020-01-01", "s": 2, "v": None},
    ]


@pytest.mark.long
def test_old_files_whose_remaining_days_are_new_are_rewritten(spark: Spark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with settings(spark, spark__sql__parquet__datetimeRebaseModeInWrite="LEGACY"), spark.careless():
        query = "SELECT * FROM VALUES (1, DATE '1500-01-01'), (2, DATE '2020-01-01') t(id, d)"
        spark.session.sql(query).coalesce(1).write.format("delta").save(str(path))
    sw.open(path).delete("id = 1")
    found = spark.sql(f"SELECT * FROM delta.`{path}`").to_pylist()
    assert found == [{"id": 2, "d": dt.date(2020, 1, 1)}]


TEXTS = ["a\\b", "it's", "plain", "'", "\\", "\\'", "a\\\\b", "\n", "''", 'say "no"', "é\\n"]


SOME_TEXTS = {"true": ["a\\b", "\n"], "false": ["\\'", "é\\n"]}
"""Those of the short form: a backslash, one before a quote, a line end, and what looks like one."""


@pytest.mark.sweep("escaped-some")
@pytest.mark.parametrize(
    ("escaped", "texts"),
    [
        *(
            pytest.param(*case, marks=pytest.mark.long if number else ())
            for number, case in enumerate(SOME_TEXTS.items())
        ),
        *(pytest.param(escaped, TEXTS, marks=pytest.mark.long) for escaped in SOME_TEXTS),
    ],
    ids=["escaped-some", "plain-some", "escaped-all", "plain-all"],
)
def test_texts_in_where_are_the_same_texts_whatever_the_session_escapes(
    spark: Spark, hooked: Hooked, escaped: str, texts: list[str]
) -> None:
    end = delta(hooked("object-store"))
    end.open().append(pa.table({"id": pa.array(range(len(TEXTS)), pa.int64()), "value": TEXTS}))
    left = once(*range(len(TEXTS)))
    with settings(spark, spark__sql__parser__escapedStringLiterals=escaped), spark.careless():
        empty = spark.session.sql("SELECT 1L AS id, 'x' AS value WHERE FALSE")
        for number, text in ((TEXTS.index(text), text) for text in texts):
            end.open().overwrite(empty, where=[("value", "=", text)], key=f"{escaped}-{number}")
            del left[number]
            assert end.ids() == left, text


def test_the_length_of_a_varchar_is_kept(spark: Spark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.run(f"CREATE TABLE delta.`{path}` (id BIGINT, v VARCHAR(3), c CHAR(2), s STRING) USING delta")
    table = sw.open(path)
    good = pa.table({"id": [1], "v": ["äöü"], "c": ["xy"], "s": ["anything"]})
    table.append(good)
    table.append(pa.table({"id": [2], "v": [None], "c": [None], "s": [None]}).cast(good.schema))
    for column, value in (("v", "abcd"), ("v", "abc "), ("c", "x"), ("c", "xyz"), ("c", "")):
        bad = good.set_column(good.schema.get_field_index(column), column, [[value]])
        for call in (
            table.append,
            table.overwrite,
            lambda data: table.overwrite(data, where="id = 1"),
        ):
            with pytest.raises(sw.WouldAlterError, match=r"char\("):
                call(bad)
    found = spark.sql(f"SELECT * FROM delta.`{path}` ORDER BY id").to_pylist()
    assert found == [good.to_pylist()[0], {"id": 2, "v": None, "c": None, "s": None}]


@pytest.mark.long
def test_the_length_of_a_varchar_is_kept_by_frames_of_spark(spark: Spark, hooked: Hooked) -> None:
    made = hooked("object-store")
    spark.run(f"CREATE TABLE delta.`{made.uri}` (id BIGINT, c CHAR(3)) USING delta")
    table = sw.open(made.place.uri, arbiter="object-store", storage_options=dict(made.place.storage_options))
    with spark.careless():
        for value in ("ab", "abcd"):
            with pytest.raises(sw.WouldAlterError, match=r"char\(3\)"):
                table.append(spark.session.sql(f"SELECT 1L AS id, '{value}' AS c"))
        table.append(spark.session.sql("SELECT 1L AS id, 'abc' AS c"), properties={"etl.run": "7"})
    assert spark.read(made.uri).to_pylist() == [{"id": 1, "c": "abc"}]
    history = DeltaTable(made.place.uri, storage_options=dict(made.place.storage_options)).history()
    assert history[0]["etl.run"] == "7"


@pytest.mark.long
def test_partition_values_that_deltalake_cannot_read_are_refused_in_frames_of_spark(
    spark: Spark, hooked: Hooked
) -> None:
    """deltalake 1.6.6 reads -1.67 as '-1.-67', and with it no row of the table."""
    made = hooked("object-store")
    spark.run(f"CREATE TABLE delta.`{made.uri}` (id BIGINT, d DECIMAL(9,2)) USING delta PARTITIONED BY (d)")
    table = sw.open(made.place.uri, arbiter="object-store", storage_options=dict(made.place.storage_options))
    with spark.careless():
        for value in ("-1.67", "-0.05"):
            with pytest.raises(sw.WouldAlterError, match="negative decimal"):
                table.append(spark.session.sql(f"SELECT 1L AS id, {value}BD AS d"))
        whole = spark.session.sql(
            "SELECT id, CAST(d AS DECIMAL(9,2)) AS d FROM VALUES (1L, -2), (2L, 1.5), (3L, NULL) t(id, d)"
        )
        table.append(whole)
    found = DeltaTable(made.place.uri, storage_options=dict(made.place.storage_options)).to_pyarrow_table()
    assert sorted(found.column("id").to_pylist()) == [1, 2, 3]


def test_lengths_inside_of_other_types_are_refused_with_the_table(spark: Spark, tmp_path: Path) -> None:
    path = tmp_path / "t"
    spark.run(f"CREATE TABLE delta.`{path}` (id BIGINT, a ARRAY<VARCHAR(3)>) USING delta")
    with pytest.raises(sw.UnsupportedTableError, match="a have a length"):
        sw.open(path).check_writable()


# --- Iceberg ------------------------------------------------------------------------------------------
def test_a_session_that_stages_its_writes_is_not_passed_over(spark: Spark, lakes: Lakes) -> None:
    """Write-audit-publish: Spark's own INSERT goes to the branch, so ours must not go to main without a word."""
    end = iceberg(lakes("sql"))
    spark.run(f"ALTER TABLE {end.source} SET TBLPROPERTIES ('write.wap.enabled'='true')")
    with spark.careless():
        for setting in ("branch", "id"):
            with settings(spark, **{f"spark__wap__{setting}": "audit"}):
                for call in (lambda t: t.append(end.frame(1)), lambda t: t.overwrite(end.frame(1))):
                    with pytest.raises(sw.UnsafeConfigError, match=f"spark.wap.{setting}"):
                        call(end.open())
        end.open().append(end.frame(2))
    assert end.ids() == once(2)


@pytest.mark.long
def test_what_was_rolled_back_and_cherry_picked_by_spark_is_not_written_again(
    spark: Spark, lakes: Lakes
) -> None:
    lake = lakes("sql")
    table = lake.create(rows(1).schema)
    first = table.append(rows(1), key="first")
    picked = table.append(rows(2), key="k")
    spark.run(f"CALL {lake.name}.system.rollback_to_snapshot('{table.uri}', {first.version})")
    table.append(rows(3), key="third")
    spark.run(f"CALL {lake.name}.system.cherrypick_snapshot('{table.uri}', {picked.version})")
    found = table.resolve("k")
    assert found is not None
    assert found.version == picked.version
    assert table.append(rows(2), key="k").outcome == "already_committed"
    with spark.careless():
        spark.session.catalog.clearCache()
    assert spark.ids({"t": lake.sql(table)})["t"] == once(1, 2, 3)


# The table of version 1 becomes one of version 2.
@pytest.mark.sweep("1")
@pytest.mark.parametrize("version", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_table_whose_partition_column_was_dropped_stays_readable(
    spark: Spark, lakes: Lakes, version: int
) -> None:
    """An acked append made every engine fail: the manifest gave the field of the dropped column no type."""
    lake = lakes("rest")
    name = f"{lake.namespace}.t_{uuid.uuid4().hex[:8]}"
    table = f"{lake.name}.{name}"
    spark.run(
        f"CREATE TABLE {table} (id BIGINT, region STRING) USING iceberg PARTITIONED BY (region) "
        f"TBLPROPERTIES ('format-version'='{version}', 'history.expire.max-snapshot-age-ms'='2592000000')"
    )
    spark.run(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'b')")
    spark.run(f"ALTER TABLE {table} DROP PARTITION FIELD region")
    spark.run(f"ALTER TABLE {table} DROP COLUMN region")
    ours = lake.open(name)
    ours.append(pa.table({"id": [4]}), key="a")
    with spark.careless():
        ours.append(spark.session.sql("SELECT 5L AS id"), key="b")
    ours.delete("id = 2", key="c")
    spark.run(f"REFRESH TABLE {table}")
    assert spark.ids({"t": table})["t"] == once(1, 3, 4, 5)
    if version == 1:
        spark.run(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version'='2')")
        ours.append(pa.table({"id": [6]}), key="d")
        ours.delete("id = 3", key="e")
        spark.run(f"INSERT INTO {table} VALUES (7)")
        spark.run(f"REFRESH TABLE {table}")
        assert spark.ids({"t": table})["t"] == once(1, 4, 5, 6, 7)
    assert ours.refresh().iceberg.scan().to_arrow().num_rows == spark.ids({"t": table})["t"].total()
