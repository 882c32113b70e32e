"""Fingerprints of Spark's rows: equal for equal rows in any order, and for no others; rows computed once (E5)."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from safewrite.errors import InvalidInputError
from safewrite.frames.predicate import truths
from safewrite.frames.spark import sql
from safewrite.frames.spark.batch import (
    BatchOrigin,
    Check,
    computed,
    counts_every_attempt,
    observed,
)
from safewrite.frames.spark.sql import to_sql
from safewrite.frames.where import parse
from tests.spark.session import Spark

pytestmark = pytest.mark.long

ROWS = (
    "SELECT * FROM VALUES "
    "(1, 'a', double('NaN'), array(1, null), map('x', 1, 'y', 2), named_struct('p', 1, 'q', null), 1.50, true), "
    "(2, null, -0.0D, array(null, 1), map('y', 2, 'x', 1), null, -2.25, null) t(i, s, d, a, m, st, n, b)"
)


def prints(spark: Spark, *queries: str) -> list[str]:
    found = []
    for query in queries:
        with spark.careless(), computed(spark.session.sql(query)) as batch:
            found.append(str(batch.fingerprint))
    return found


def test_order_partitions_widths_and_new_columns_of_null_change_nothing(spark: Spark) -> None:
    alike = prints(
        spark,
        ROWS,
        f"SELECT b, n, st, m, a, d, s, i FROM ({ROWS}) ORDER BY i DESC",
        f"SELECT /*+ REPARTITION(3) */ * FROM ({ROWS})",
        f"SELECT * EXCEPT (i), CAST(i AS BIGINT) AS i FROM ({ROWS})",
        f"SELECT *, CAST(NULL AS STRING) AS later FROM ({ROWS})",
        f"SELECT * EXCEPT (d), d * CAST(1 AS FLOAT) AS d FROM ({ROWS})",
    )
    assert len(set(alike)) == 1
    assert alike[0].startswith("spark1:2:")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 0.0D AS a", "SELECT -0.0D AS a"),
        ("SELECT double('NaN') AS a", "SELECT CAST(float('NaN') AS DOUBLE) AS a"),
        ("SELECT 1.5F AS a", "SELECT 1.5D AS a"),
        ("SELECT CAST(1.50 AS DECIMAL(9, 2)) AS a", "SELECT CAST(1.50 AS DECIMAL(38, 2)) AS a"),
        ("SELECT array(0.0D, 1.0D) AS a", "SELECT array(-0.0F, 1.0F) AS a"),
        ("SELECT named_struct('p', 1, 'q', 2L) AS a", "SELECT named_struct('q', 2, 'p', 1L) AS a"),
        ("SELECT map('k', array(1), 'l', array(2)) AS a", "SELECT map('l', array(2L), 'k', array(1L)) AS a"),
        ("SELECT array(array(1, NULL), NULL) AS a", "SELECT array(array(1L, NULL), NULL) AS a"),
    ],
)
def test_equal_values_of_another_width_have_one_fingerprint(spark: Spark, one: str, other: str) -> None:
    assert len(set(prints(spark, one, other))) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT 12345678901234567890.12BD AS a", "SELECT 12345678901234567890.13BD AS a"),
        ("SELECT 1.50BD AS a", "SELECT 15.0BD AS a"),
        ("SELECT array(array(1), array(2)) AS a", "SELECT array(array(2), array(1)) AS a"),
        ("SELECT array(array(1, 2)) AS a", "SELECT array(array(1), array(2)) AS a"),
        ("SELECT 1 AS a", "SELECT 1 AS b"),
        ("SELECT 1 AS a", "SELECT '1' AS a"),
        ("SELECT named_struct('p', NULL) AS a", "SELECT CAST(NULL AS STRUCT<p: INT>) AS a"),
        ("SELECT 1 AS `a.b`, 2 AS `c``d`", "SELECT 2 AS `a.b`, 1 AS `c``d`"),
        ("SELECT 1 AS a, NULL AS b", "SELECT NULL AS a, 1 AS b"),
        ("SELECT array(1, NULL) AS a", "SELECT array(NULL, 1) AS a"),
        ("SELECT array(1, NULL) AS a", "SELECT array(1) AS a"),
        ("SELECT CAST(array() AS ARRAY<INT>) AS a", "SELECT CAST(NULL AS ARRAY<INT>) AS a"),
        ("SELECT '' AS a", "SELECT CAST(NULL AS STRING) AS a"),
        ("SELECT map('k', 1, 'l', 2) AS a", "SELECT map('k', 2, 'l', 1) AS a"),
        ("SELECT named_struct('p', 1, 'q', 2) AS a", "SELECT named_struct('p', 2, 'q', 1) AS a"),
        ("SELECT 1 AS a UNION ALL SELECT 1", "SELECT 1 AS a"),
        ("SELECT 1 AS a UNION ALL SELECT 1", "SELECT 2 AS a UNION ALL SELECT 2"),
        ("SELECT 'a' COLLATE UTF8_LCASE AS a", "SELECT 'A' COLLATE UTF8_LCASE AS a"),
        ("SELECT 1 AS a, 2 AS b UNION ALL SELECT 3, 4", "SELECT 1 AS a, 4 AS b UNION ALL SELECT 3, 2"),
        ("SELECT TIMESTAMP '2026-01-01' AS a", "SELECT TIMESTAMP_NTZ '2026-01-01' AS a"),
    ],
)
def test_other_rows_have_another_fingerprint(spark: Spark, one: str, other: str) -> None:
    assert len(set(prints(spark, one, other))) == 2


def test_what_is_counted_is_what_is_kept_and_then_it_is_freed(spark: Spark) -> None:
    """E5: a plan that would give other rows each time is run once."""
    kept = spark.session.sparkContext._jsc.getPersistentRDDs()
    before = kept.size()
    with spark.careless(), computed(spark.session.sql("SELECT id, rand() AS salt FROM range(100)")) as batch:
        first, second = batch.frame.collect(), batch.frame.collect()
        assert spark.session.sparkContext._jsc.getPersistentRDDs().size() == before + 1
        with computed(batch.frame) as again:
            assert again.fingerprint == batch.fingerprint
    assert first == second
    assert spark.session.sparkContext._jsc.getPersistentRDDs().size() == before


@pytest.mark.parametrize(
    "query",
    [
        ROWS,
        f"SELECT /*+ REPARTITION(3) */ * FROM ({ROWS})",
        "SELECT id, id % 7 AS day, CAST(rand(1) AS DECIMAL(20, 10)) AS salt FROM range(1000)",
        "SELECT id FROM range(10) WHERE id < 0",
    ],
)
def test_rows_counted_while_they_are_written_have_the_fingerprint_of_rows_computed_before(
    spark: Spark, query: str
) -> None:
    frame = spark.session.sql(query)
    with spark.careless(), computed(frame) as batch:
        seen = observed(batch.frame)
        seen.frame.write.format("noop").mode("append").save()
        assert seen.fingerprint(batch.rows) == batch.fingerprint


def test_columns_that_are_left_out_do_not_change_a_fingerprint(spark: Spark) -> None:
    """They take part by their names only, counted before the write or during it."""
    found = []
    for salt in ("1", "rand()", "NULL"):
        frame = spark.session.sql(f"SELECT id, DOUBLE({salt}) AS salt FROM range(10)")
        with spark.careless(), computed(frame, volatile=("salt",)) as batch:
            seen = observed(batch.frame, ("salt",))
            seen.frame.write.format("noop").mode("append").save()
            found += [batch.fingerprint, seen.fingerprint(batch.rows)]
            assert batch.volatile == ("salt",)
    assert len(set(found)) == 1
    with spark.careless(), computed(spark.session.sql("SELECT id FROM range(10)")) as bare:
        assert bare.fingerprint.leaving_out(["salt"]) == found[0] != bare.fingerprint
    nothing = spark.session.sql("SELECT id, 1 AS salt FROM range(10) WHERE id < 0")
    with spark.careless(), computed(nothing, volatile=("salt",)) as batch:
        seen = observed(batch.frame, ("salt",))
        seen.frame.write.format("noop").mode("append").save()
        assert seen.fingerprint(0) == batch.fingerprint


def test_a_count_that_is_not_that_of_the_files_tells_no_fingerprint(spark: Spark) -> None:
    """A map stage that was run again has counted some rows twice."""
    frame = spark.session.range(10)
    seen = observed(frame.union(frame.where("id > 7")))
    with spark.careless():
        seen.frame.write.format("noop").mode("append").save()
    assert seen.fingerprint(10) is None
    assert seen.fingerprint(12) is not None


def test_a_spark_that_counts_last_attempts_alone_is_not_asked_to_count(spark: Spark) -> None:
    """Spark after 4.1 may; then rows of a first attempt could be written and not counted."""
    name = "spark.sql.legacy.observeMetricsAggregateAllAttempts"
    assert counts_every_attempt(spark.session)
    with spark.setting(name, "false"):
        assert not counts_every_attempt(spark.session)
    with spark.setting(name, "true"):
        assert counts_every_attempt(spark.session)


def test_a_batch_that_is_known_by_its_origin_is_counted_and_checked_and_not_hashed(spark: Spark) -> None:
    origin = BatchOrigin("spark1", "0" * 31 + "7")
    check = Check("id > 7", lambda bad, rows: InvalidInputError(f"{bad} of {rows}"))
    hashless = spark.session.sql("SELECT id, INTERVAL '1' DAY AS gap FROM range(10)")
    with spark.careless():
        with computed(hashless, origin=origin) as batch:
            assert str(batch.fingerprint) == "spark1:10:" + "0" * 31 + "7"
        with pytest.raises(InvalidInputError, match=r"^2 of 10$"), computed(hashless, [check], origin):
            pytest.fail("the rows were let through")
        with pytest.raises(InvalidInputError, match="cannot be compared"), computed(hashless):
            pytest.fail("the rows were hashed")


def test_a_check_that_some_row_fails_refuses_all_and_frees_the_rows(spark: Spark) -> None:
    before = spark.session.sparkContext._jsc.getPersistentRDDs().size()
    check = Check("id > 7", lambda bad, rows: InvalidInputError(f"{bad} of {rows}"))
    with (
        spark.careless(),
        pytest.raises(InvalidInputError, match=r"^2 of 10$"),
        computed(spark.session.range(10), [check]),
    ):
        pytest.fail("the rows were let through")
    assert spark.session.sparkContext._jsc.getPersistentRDDs().size() == before


@pytest.mark.parametrize("alternatives_max", [1_000, 1], ids=["OR", "IN"])
def test_predicates_in_sparks_sql_choose_the_rows_that_they_choose_in_arrow(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, alternatives_max: int
) -> None:
    monkeypatch.setattr(sql, "ALTERNATIVES_MAX", alternatives_max)
    data = pa.table(
        {
            "id": list(range(6)),
            "te xt": ["it's", "a\\b", "`q`", None, "", "ä"],
            "x": [1.5, float("nan"), -0.0, None, float("inf"), 2.0],
            "n": pa.array(
                [Decimal("1.10"), None, Decimal("-2.20"), Decimal(0), None, None], pa.decimal128(9, 2)
            ),
            "day": [dt.date(2026, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), None, None],
            "at": pa.array([0, 1, None, 10**15, -1, None], pa.timestamp("us", "UTC")),
            "wall": pa.array([0, 1, None, 10**15, -1, None], pa.timestamp("us")),
        }
    )
    filters = [
        [("te xt", "=", "it's")],
        [("te xt", "=", "a\\b")],
        [("te xt", "!=", "`q`")],
        [("x", ">", 1.5)],
        [("x", "<=", 0.0)],
        [("n", "=", Decimal("1.10"))],
        [("n", "<", Decimal("0.5"))],
        [("day", ">=", dt.date(2026, 1, 1))],
        [("at", ">=", dt.datetime(1970, 1, 1, tzinfo=dt.UTC))],
        [("wall", "<", dt.datetime(1970, 1, 1))],  # noqa: DTZ001
        [("id", "in", [1, 2]), ("te xt", "!=", "")],
        [("te xt", "in", ["it's", "a\\b", "x"])],
        [("x", "in", [0.0, 2.0])],
        [("n", "in", [Decimal("1.10"), Decimal(0)])],
        [("day", "in", [dt.date(1, 1, 1), dt.date(2026, 1, 1)])],
        [("at", "in", [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(1971, 1, 1, tzinfo=dt.UTC)])],
        [("wall", "not in", [dt.datetime(1970, 1, 1), dt.datetime(1971, 1, 1)])],  # noqa: DTZ001
        [("te xt", "not in", ["it's", "x"])],
    ]
    with spark.careless():
        frame = spark.session.createDataFrame(data)
        for filter_ in filters:
            predicate = parse(filter_, data.schema)
            expected = data.filter(truths(predicate, data))["id"].to_pylist()
            found = frame.where(to_sql(predicate)).select("id").toArrow()["id"].to_pylist()
            assert sorted(found) == expected, filter_
