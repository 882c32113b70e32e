"""Tables as other makers leave them, a feature each: read as Spark reads them, and called unsafe by nobody (issue Y 5)."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import safewrite as sw
from bench.servers.catalogs import CatalogKind
from safewrite.delta.maintenance.doctor import examine as examine_delta
from safewrite.delta.maintenance.inspection import inspect_table
from safewrite.findings import Finding, Severity
from safewrite.iceberg.catalog.loading import load
from safewrite.iceberg.connect import look
from safewrite.iceberg.maintenance.doctor import examine as examine_iceberg
from tests.spark.lake import Lake
from tests.spark.session import Spark

pytestmark = pytest.mark.long

C = "id BIGINT, seq BIGINT, v STRING"
ROWS = "SELECT id, id AS seq, concat('v', id) AS v FROM range(10)"
INSERT = f"INSERT INTO {{t}} (id, seq, v) {ROWS}"
MORE = tuple(f"INSERT INTO {{t}} VALUES ({number}, {number}, 'x')" for number in (100, 101, 102))
UC = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.checkpointPolicy": "v2",
    "delta.enableInCommitTimestamps": "true",
}


def delta(
    columns: str = C, rows: str = INSERT, tail: str = "", after: tuple[str, ...] = (), **properties: str
) -> list[str]:
    given = ", ".join(f"'delta.{name.replace('__', '.')}' = '{value}'" for name, value in properties.items())
    made = f"CREATE TABLE {{t}} ({columns}) USING delta {tail} " + (
        f"TBLPROPERTIES ({given})" if given else ""
    )
    return [made, rows, *after]


def uc(*without: str) -> dict[str, str]:
    return {name.removeprefix("delta."): value for name, value in UC.items() if name not in without}


WIDE = ", ".join(f"c{number} INT" for number in range(33))
VALUES = ", ".join(f"CAST(id AS INT) AS c{number}" for number in range(33))
DELTA: dict[str, list[str]] = {
    "plain": delta(),
    "not_null": delta("id BIGINT NOT NULL, seq BIGINT, v STRING"),
    "check": delta(after=("ALTER TABLE {t} ADD CONSTRAINT pos CHECK (seq >= 0)",)),
    "cdf": delta(enableChangeDataFeed="true"),
    "append_only": delta(appendOnly="true"),
    "dv": delta(enableDeletionVectors="true", after=("DELETE FROM {t} WHERE id = 9",)),
    "map_name": delta(columnMapping__mode="name"),
    "map_id": delta(columnMapping__mode="id"),
    "map_renamed": delta(
        after=(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
            "ALTER TABLE {t} RENAME COLUMN v TO `w x`",
            "ALTER TABLE {t} ADD COLUMN v STRING",
        )
    ),
    "map_part": delta(
        f"{C}, p STRING",
        f"INSERT INTO {{t}} SELECT *, 'a' FROM ({ROWS})",
        "PARTITIONED BY (p)",
        columnMapping__mode="name",
    ),
    "row_tracking": delta(enableRowTracking="true"),
    "row_tracking_cap": delta(feature__rowTracking="supported"),
    "ict": delta(enableInCommitTimestamps="true"),
    "v2_checkpoint": delta(checkpointPolicy="v2", checkpointInterval="2", after=MORE),
    "v2_listed": delta(feature__v2Checkpoint="supported"),
    "clustered": delta(tail="CLUSTER BY (id)"),
    "clustered_33": delta(
        f"{C}, {WIDE}, z INT",
        f"INSERT INTO {{t}} SELECT id, id, concat('v', id), {VALUES}, CAST(id AS INT) FROM range(10)",
        "CLUSTER BY (z)",
        dataSkippingStatsColumns="id,seq,z",
    ),
    "widened": delta(
        "id INT, seq BIGINT, v STRING",
        after=("ALTER TABLE {t} ALTER COLUMN id TYPE BIGINT",),
        enableTypeWidening="true",
    ),
    "defaults": delta(
        "id BIGINT, seq BIGINT, v STRING DEFAULT 'none'", feature__allowColumnDefaults="supported"
    ),
    "defaults_all": delta(f"{C}, w INT DEFAULT 7", feature__allowColumnDefaults="supported"),
    "compat_v2": delta(enableIcebergCompatV2="true", columnMapping__mode="name"),
    "variant": delta(
        f"{C}, x VARIANT", f"INSERT INTO {{t}} SELECT *, parse_json('{{{{\"a\":1}}}}') FROM ({ROWS})"
    ),
    "ntz": delta(
        f"{C}, at TIMESTAMP_NTZ",
        f"INSERT INTO {{t}} SELECT *, TIMESTAMP_NTZ'2026-01-01 00:00:00' FROM ({ROWS})",
    ),
    "vacuum_check": delta(feature__vacuumProtocolCheck="supported"),
    "protection": delta(
        enableDeletionVectors="true",
        after=("DELETE FROM {t} WHERE id = 9", "ALTER TABLE {t} DROP FEATURE deletionVectors"),
    ),
    "materialized": delta(
        f"{C}, p STRING",
        f"INSERT INTO {{t}} SELECT *, 'a' FROM ({ROWS})",
        "PARTITIONED BY (p)",
        feature__materializePartitionColumns="supported",
    ),
    "domain": delta(feature__domainMetadata="supported"),
    "generated": delta(f"{C}, g BIGINT GENERATED ALWAYS AS (id + 1)"),
    "generated_part": delta(
        f"{C}, at TIMESTAMP, d DATE GENERATED ALWAYS AS (CAST(at AS DATE))",
        f"INSERT INTO {{t}} (id, seq, v, at) SELECT *, TIMESTAMP'2026-01-01 10:00:00' FROM ({ROWS})",
        "PARTITIONED BY (d)",
    ),
    "identity": delta(f"{C}, n BIGINT GENERATED ALWAYS AS IDENTITY"),
    "identity_default": delta(f"{C}, n BIGINT GENERATED BY DEFAULT AS IDENTITY"),
    "fabric": delta(
        parquet__vorder__enabled="true", enableDeletionVectors="true", after=("DELETE FROM {t} WHERE id = 9",)
    ),
    "uc_2025": delta(**uc("delta.enableInCommitTimestamps")),
    "uc_2026": delta(
        tail="CLUSTER BY (id)", after=MORE[:2], columnMapping__mode="name", checkpointInterval="2", **uc()
    ),
    "uc_2026_nomap": delta(tail="CLUSTER BY (id)", **uc()),
    "uniform_v3": delta(
        enableIcebergCompatV3="true",
        columnMapping__mode="name",
        enableRowTracking="true",
        enableDeletionVectors="true",
    ),
}
"""Statements that make one table each; ``invariant`` is made by a DataFrame."""
WRITTEN = {
    "map_name", "map_id", "map_renamed", "map_part",
    "plain", "not_null", "cdf", "append_only", "dv", "widened", "ntz", "vacuum_check", "protection", "domain", "fabric",
    "v2_checkpoint", "v2_listed", "clustered", "clustered_33", "check", "invariant",
    "generated", "generated_part", "defaults", "defaults_all", "identity_default",
    "row_tracking", "row_tracking_cap", "ict", "uc_2025", "uc_2026", "uc_2026_nomap", "variant",
    "compat_v2", "uniform_v3", "materialized",
}  # fmt: skip


def iceberg(
    columns: str = C, rows: str = INSERT, tail: str = "", after: tuple[str, ...] = (), **properties: str
) -> list[str]:
    given = ", ".join(f"'{name.replace('__', '.')}' = '{value}'" for name, value in properties.items())
    return [
        f"CREATE TABLE {{t}} ({columns}) USING iceberg {tail} TBLPROPERTIES ({given or _KEPT})",
        rows,
        *after,
    ]


_KEPT = "'history.expire.max-snapshot-age-ms' = '2592000000'"
V3 = {"format-version": "3"}
MARKS = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
GONE = ("DELETE FROM {t} WHERE id = 9",)
UPGRADE = ("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')",)
ICEBERG: dict[str, list[str]] = {
    "v2": iceberg(),
    "v2_mor": iceberg(after=GONE, **MARKS),
    "v3": iceberg(**V3),
    "v3_dv": iceberg(after=GONE, **V3, **MARKS),
    "v3_twice": iceberg(
        after=(*GONE, "UPDATE {t} SET v = 'w' WHERE id = 1", "DELETE FROM {t} WHERE id < 3"), **V3, **MARKS
    ),
    "v3_upgraded": iceberg(after=(*GONE, *UPGRADE), **MARKS),
    "v3_upgraded_marked": iceberg(after=(*GONE, *UPGRADE, "DELETE FROM {t} WHERE id = 8"), **MARKS),
    "v3_part": iceberg(
        f"{C}, p STRING",
        f"INSERT INTO {{t}} SELECT *, 'a' FROM ({ROWS})",
        "PARTITIONED BY (p)",
        after=GONE,
        **V3,
        **MARKS,
    ),
    "v3_variant": iceberg(
        f"{C}, x VARIANT", f"INSERT INTO {{t}} SELECT *, parse_json('{{{{\"a\":1}}}}') FROM ({ROWS})", **V3
    ),
    "v3_void": iceberg(f"{C}, n VOID", f"INSERT INTO {{t}} SELECT *, NULL FROM ({ROWS})", **V3),
    "v3_default": iceberg(**V3),
    "v3_nanos": iceberg(**V3),
}


def plain(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in one order, without zones: all are in UTC."""

    def value(one: Any) -> Any:
        return one.replace(tzinfo=None) if isinstance(one, dt.datetime) else one

    return sorted(
        json.dumps({name: value(one) for name, one in row.items()}, default=str, sort_keys=True)
        for row in rows
    )


def check(table: sw.Table, truth: list[dict[str, Any]], findings: list[Finding], *, written: bool) -> None:
    """A table is read as Spark reads it, by every way of reading, and nothing unsafe is said of it."""
    names = table.schema.names
    want = plain([{name: row[name] for name in names} for row in truth])
    if len(names) < len(truth[0]):
        with pytest.raises(sw.UnsupportedTableError, match="Name the columns to be read"):
            table.rows(where="true")
    assert plain(table.rows(where="true", columns=names).to_pylist()) == want
    (everything,) = table.added_since(None)
    assert plain(everything.read(names).to_pylist()) == want
    assert table.row_count() == len(truth)
    three = [row for row in want if json.loads(row)["id"] == 3]
    assert plain(table.rows({"id": [3]}, columns=names).to_pylist()) == three
    assert table.history()
    if written:
        table.check_writable()
    else:
        with pytest.raises(sw.UnsupportedTableError):
            table.check_writable()
    assert [one for one in findings if one.severity is not Severity.INFO] == []


def answer(spark: Spark, source: str, unread: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """What Spark reads, but for columns that nobody compares."""
    kinds: Mapping[str, str] = dict(spark.session.table(source).dtypes)
    columns = [
        f"to_json(`{name}`) AS `{name}`" if kind == "variant" else f"`{name}`" for name, kind in kinds.items()
    ]
    return spark.sql(f"SELECT {', '.join(columns)} FROM {source}").to_pylist()


def test_y5_delta_tables_of_other_makers_are_read_as_spark_reads_them(spark: Spark, tmp_path: Path) -> None:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    rule = {"delta.invariants": json.dumps({"expression": {"expression": "seq >= 0"}})}
    fields = [
        StructField("id", LongType()),
        StructField("seq", LongType(), True, rule),
        StructField("v", StringType()),
    ]
    spark.session.createDataFrame([], StructType(fields)).write.format("delta").save(
        str(tmp_path / "invariant")
    )
    failed = {}
    for name, statements in {**DELTA, "invariant": [INSERT]}.items():
        source = f"delta.`{tmp_path / name}`"
        try:
            with spark.setting("spark.databricks.delta.allowArbitraryProperties.enabled", "true"):
                for statement in statements:
                    spark.run(statement.format(t=source))
            findings = examine_delta(inspect_table(str(tmp_path / name)), environment={})
            check(sw.open(tmp_path / name), answer(spark, source), findings, written=name in WRITTEN)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all tables that fail are told of at once
            failed[name] = f"{type(error).__name__}: {error}"[:400]
    assert failed == {}


def test_y5_iceberg_tables_of_other_makers_are_read_as_spark_reads_them(
    spark: Spark, lakes: Callable[[CatalogKind], Lake]
) -> None:
    lake = lakes("sql")
    java = spark.session._jvm.org.apache.iceberg
    failed = {}
    for name, statements in ICEBERG.items():
        table = f"{lake.namespace}.{name}"
        source = lake.sql(table)
        try:
            for statement in statements:
                spark.run(statement.format(t=source))
            inner = java.spark.Spark3Util.loadIcebergTable(spark.session._jsparkSession, source)
            types = java.types.Types
            if name == "v3_default":
                inner.updateSchema().addColumn(
                    "w", types.IntegerType.get(), java.expressions.Literal.of(7)
                ).commit()
            truth = answer(spark, source)
            if name == "v3_nanos":  # Spark reads no such column
                inner.updateSchema().addColumn("at", types.TimestampNanoType.withoutZone()).commit()
                truth = [{**row, "at": None} for row in truth]
            elif name == "v3_default":
                assert {row["w"] for row in truth} == {7}
            own = load(lake.name, **lake.properties)  # PyIceberg's own writes no such metadata
            with closing(own):
                found = examine_iceberg(look(table, own)).findings
                check(sw.open(table, catalog=own), truth, found, written=True)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all tables that fail are told of at once
            failed[name] = f"{type(error).__name__}: {error}"[:400]
    assert failed == {}


VARIANT = "parse_json(concat('{\"a\":', id, ',\"b\":\"t', id, '\"}'))"
VARIANTS: dict[str, tuple[str, str]] = {
    "plain": ("", ""),
    "vectors": ("", "'delta.enableDeletionVectors' = 'true'"),
    "fed": ("", "'delta.enableChangeDataFeed' = 'true'"),
    "tracked": ("", "'delta.enableRowTracking' = 'true'"),
    "mapped": ("", "'delta.columnMapping.mode' = 'name'"),
    "by id": ("PARTITIONED BY (p)", "'delta.columnMapping.mode' = 'id'"),
    "parted": ("PARTITIONED BY (p)", "'delta.enableDeletionVectors' = 'true'"),
}


def test_every_verb_writes_beside_variants_and_spark_reads_what_it_wrote(
    spark: Spark, tmp_path: Path
) -> None:
    """Rows that stay or change keep their variants, at any depth; Spark changes them meanwhile, and puts files together after."""
    failed = {}
    for name, (tail, properties) in VARIANTS.items():
        try:
            written_beside_variants(spark, tmp_path / name.replace(" ", "_"), tail, properties)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all tables that fail are told of at once
            failed[name] = f"{type(error).__name__}: {error}"[:600]
    assert failed == {}


def written_beside_variants(spark: Spark, root: Path, tail: str, properties: str) -> None:
    there = f"delta.`{root}`"
    nested = "x VARIANT, s STRUCT<n: INT, y: VARIANT>, l ARRAY<VARIANT>, m MAP<STRING, VARIANT>"
    given = f"TBLPROPERTIES ({properties})" if properties else ""
    spark.run(f"CREATE TABLE {there} ({C}, p STRING, {nested}) USING delta {tail} {given}")
    values = f"{VARIANT} AS x, named_struct('n', 1, 'y', {VARIANT}) AS s, array({VARIANT}, NULL) AS l, map('k', {VARIANT}) AS m"
    rows = f"SELECT id, id AS seq, concat('v', id) AS v, concat('p', id % 2) AS p, {values} FROM range(12)"
    spark.run(f"INSERT INTO {there} {rows}")
    truth: dict[int, tuple[str, str | None]] = {
        one: (f"v{one}", f'{{"a":{one},"b":"t{one}"}}') for one in range(12)
    }

    def check() -> None:
        shown = "to_json(x) AS x, to_json(s.y) AS y, to_json(l[0]) AS l, to_json(m['k']) AS m"
        found = spark.sql(f"SELECT id, v, {shown} FROM {there}").to_pylist()
        assert {row["id"]: (row["v"], *(row[one] for one in "xylm")) for row in found} == {
            key: (value, *[one] * 4) for key, (value, one) in truth.items()
        }

    def row(number: int, value: str) -> dict[str, Any]:
        return {"id": number, "seq": 100, "v": value, "p": f"p{number % 2}"}

    how: dict[str, Any] = {"keys": ["id"], "sequence_by": ["seq"]}
    table = sw.open(root)
    table.append([row(20, "a")])
    table.delete("id = 3")
    truth[20] = ("a", None)
    del truth[3]
    table.apply_changes([row(5, "b"), row(21, "b")], **how)
    truth |= {5: ("b", truth[5][1]), 21: ("b", None)}
    check()
    spark.run(
        f"UPDATE {there} SET x = parse_json('5'), s.y = parse_json('5'), l = array(parse_json('5')), m = map('k', parse_json('5')) WHERE id = 6"
    )
    table.refresh().apply_changes([row(6, "c")], **how)
    truth[6] = ("c", "5")
    frame = spark.session.createDataFrame([(7, 200, "d", "p1")], f"{C}, p STRING")
    with spark.careless():
        table.apply_changes(frame, **how)
    table.overwrite([row(8, "e")], where="id = 8")
    truth |= {7: ("d", truth[7][1]), 8: ("e", None)}
    check()
    table.maintain()
    check()
    table.checkpoint()
    spark.session.sql(f"OPTIMIZE {there}")  # its own answer is no table of Arrow
    check()
    if "ChangeDataFeed" in properties:
        feed = spark.sql(
            f"SELECT id, _change_type AS how, to_json(x) AS x FROM table_changes_by_path('{root}', 3)"
        ).to_pylist()
        told = {(one["id"], one["how"]): one["x"] for one in feed}
        assert told[3, "delete"] == '{"a":3,"b":"t3"}'
        assert told[5, "update_preimage"] == told[5, "update_postimage"] == '{"a":5,"b":"t5"}'


UNIFORM: dict[str, dict[str, str]] = {
    "V1": {"columnMapping.mode": "name"},
    "V2": {"columnMapping.mode": "name"},
    "V2 by id": {"columnMapping.mode": "id"},
    "V3": {"columnMapping.mode": "name", "enableRowTracking": "true", "enableDeletionVectors": "true"},
}


def test_tables_that_iceberg_reads_too_are_written_and_spark_goes_on(spark: Spark, tmp_path: Path) -> None:
    """Spark checks the rules of the version at each of its commits, and its own files have the same ids."""
    failed = {}
    for name, properties in UNIFORM.items():
        try:
            written_for_iceberg(spark, tmp_path / name.replace(" ", "_"), name[:2], properties)
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all tables that fail are told of at once
            failed[name] = f"{type(error).__name__}: {error}"[:600]
    assert failed == {}


def written_for_iceberg(spark: Spark, root: Path, version: str, properties: dict[str, str]) -> None:
    there = f"delta.`{root}`"
    nested = "" if version == "V1" else ", l ARRAY<BIGINT>, m MAP<STRING, BIGINT>"
    more = "" if version == "V1" else ", array(id) AS l, map('k', id) AS m"
    given = ", ".join(f"'delta.{name}' = '{value}'" for name, value in properties.items())
    spark.run(
        f"CREATE TABLE {there} ({C}, p STRING{nested}) USING delta PARTITIONED BY (p) "
        f"TBLPROPERTIES ('delta.enableIcebergCompat{version}' = 'true', {given})"
    )
    spark.run(
        f"INSERT INTO {there} SELECT id, id AS seq, concat('v', id) AS v, concat('p', id % 2) AS p{more} FROM range(10)"
    )

    def row(number: int, value: str) -> dict[str, Any]:
        own = {} if version == "V1" else {"l": [number], "m": {"k": number}}
        return {"id": number, "seq": 100, "v": value, "p": f"p{number % 2}", **own}

    def frame(*rows: dict[str, Any]) -> pa.Table:
        schema = table.schema
        return pa.table(
            {
                one.name: pa.array(
                    [[*r[one.name].items()] if one.name == "m" else r[one.name] for r in rows], one.type
                )
                for one in schema
            }
        )

    table = sw.open(root)
    table.append(frame(row(20, "a")))
    table.delete("id = 3")
    table.apply_changes(frame(row(5, "b"), row(21, "b")), keys=["id"], sequence_by=["seq"])
    table.overwrite(frame(row(8, "c")), where="id = 8")
    table.maintain()
    spark.run(f"UPDATE {there} SET v = 'spark' WHERE id = 5")
    table.refresh().append(frame(row(22, "d")))
    spark.session.sql(f"OPTIMIZE {there}")
    truth = {one: f"v{one}" for one in range(10)} | {20: "a", 5: "spark", 21: "b", 8: "c", 22: "d"}
    del truth[3]
    found = spark.sql(f"SELECT * FROM {there}").to_pylist()
    assert {one["id"]: one["v"] for one in found} == truth
    if version != "V1":
        assert all(one["l"] == [one["id"]] and dict(one["m"]) == {"k": one["id"]} for one in found)
    for path in root.rglob("*.parquet"):
        if "_delta_log" not in path.parts and "_safewrite" not in path.parts:
            schema = pq.read_schema(path)
            assert all(b"PARQUET:field_id" in (one.metadata or {}) for one in schema), path.name


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("sql", "copy-on-write"),
        ("rest", "copy-on-write"),
        ("glue", "merge-on-read"),
        ("sql", "merge-on-read"),
    ],
)
def test_rows_come_and_go_beside_variants_of_iceberg_and_spark_goes_on(
    spark: Spark, lakes: Callable[[CatalogKind], Lake], kind: CatalogKind, mode: str
) -> None:
    """No value of the column is lost, whatever the table's mode: rows go by vectors, and upkeep leaves the files to Spark."""
    lake = lakes(kind)
    name = lake.new()
    there = lake.sql(name)
    modes = {f"write.{verb}.mode": mode for verb in ("delete", "update", "merge")}
    given = f"INSERT INTO {{t}} SELECT *, parse_json(concat('{{{{\"a\":', id, '}}}}')) FROM ({ROWS})"
    for statement in iceberg(f"{C}, x VARIANT", given, **V3, **modes):
        spark.run(statement.format(t=there))
    look_at = f"SELECT id, v, to_json(x) AS x, _row_id AS r FROM {there} ORDER BY id"
    before = {row["id"]: row for row in spark.sql(look_at).to_pylist()}
    with closing(load(lake.name, **lake.properties)) as catalog:
        table = sw.open(name, catalog=catalog)
        table.append([{"id": 100, "seq": 1, "v": "b"}], key="more")
        table.delete("id = 2 OR id = 3")
        table.overwrite([{"id": 1, "seq": 2, "v": "c"}], where="id = 1")
        with spark.careless():
            table.append(spark.session.sql("SELECT 101L AS id, 1L AS seq, 'frame' AS v"))
            given = spark.session.sql("SELECT 102L AS id, 1L AS seq, 'frame' AS v, parse_json('1') AS x")
            with pytest.raises(sw.InvalidInputError, match="'x' has the Iceberg type 'variant'"):
                table.append(given)
        with pytest.raises(sw.UnsupportedTableError, match="values of x would have to be carried along"):
            table.apply_changes([{"id": 4, "seq": 9, "v": "z"}], keys=["id"], sequence_by=["seq"])
        table.maintain()
        told = table.changes_since(-1, columns=["id", "v"]).read().to_pylist()
        gone = {row["id"] for row in told if row["_change_type"] == "delete"}
        assert gone == {1, 2, 3}
        found = {row["id"]: row for row in spark.sql(look_at).to_pylist()}
        kept = {number: row for number, row in before.items() if number not in {1, 2, 3}}
        assert {number: found[number] for number in kept} == kept
        assert {*found} == {*kept, 1, 100, 101}
        assert {found[number]["x"] for number in (1, 100, 101)} == {None}
        spark.run(f"UPDATE {there} SET x = parse_json('5') WHERE id = 100")
        spark.run(
            f"CALL {lake.name}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
        )
        table.refresh().delete("id = 4")
        table.append([{"id": 103, "seq": 1, "v": "d"}])
        after = {row["id"]: row for row in spark.sql(look_at).to_pylist()}
        assert {number: after[number] for number in kept if number != 4} == {
            number: row for number, row in kept.items() if number != 4
        }
        assert after[100] | {"x": "5"} == after[100]
        assert after[103]["x"] is None
