"""Predicates mean what SQL says, and nothing is guessed."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safewrite.errors import InvalidInputError, MissingExtraError
from safewrite.frames.predicate import (
    ANYTHING,
    Both,
    Compare,
    Constant,
    Either,
    In,
    IsNull,
    Not,
    columns,
    partition_value,
    possible,
    truths,
)
from safewrite.frames.spark.sql import to_sql
from safewrite.frames.where import parse

NAN = float("nan")
UTC = dt.UTC
SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "small": pa.int8(),
        "price": pa.float64(),
        "ratio": pa.float32(),
        "amount": pa.decimal128(10, 2),
        "text": pa.string(),
        "flag": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "Mixed Case": pa.string(),
        "blob": pa.binary(),
        "nested": pa.struct({"inner": pa.int64()}),
    }
)
ROWS = {
    "n": [None, -1, 0, 1, 2, 2**53 + 1],
    "price": [None, -0.0, 0.5, NAN, float("inf"), 2.0],
    "text": [None, "", "a", "it's", "é", "z"],
    "flag": [None, True, False, True, False, None],
    "day": [None, *(dt.date(2026, 11, day) for day in (1, 20, 21, 22, 30))],
}
TABLE = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in ROWS.items()})


# --- against an independent engine ----------------------------------------------------------------------
COMPARISONS = st.one_of(
    st.builds(lambda op, v: f"n {op} {v}", st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), st.sampled_from([-1, 0, 2, 2**53])),
    st.builds(lambda op, v: f"{v} {op} price", st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.sampled_from(["0", "0.5", "-2.25"])),
    st.builds(lambda op, v: f"text {op} '{v}'", st.sampled_from(["=", "<>", "<", ">="]), st.sampled_from(["", "a", "it''s", "é"])),
    st.builds(lambda op, v: f"day {op} DATE '2026-11-{v:02}'", st.sampled_from(["=", "<", ">="]), st.sampled_from([1, 21, 29])),
    st.sampled_from(["flag", "flag = true", "false <> flag", "TRUE", "n IS NULL", "text IS NOT NULL", "price BETWEEN 0.5 AND 3"]),
    st.sampled_from(["n IN (0, 2, 7)", "text NOT IN ('a', 'q')", "n NOT BETWEEN 0 AND 1", "day IN ('2026-11-21', '2026-11-01')"]),
)  # fmt: skip
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_sql_means_for_every_row_what_duckdb_says(text):
    rows = TABLE
    expected = duckdb.sql(f"SELECT ({text}) FROM rows").fetchall()
    predicate = parse(text, SCHEMA)
    assert truths(predicate, rows).to_pylist() == [value for (value,) in expected]


@given(CONDITIONS)
def test_the_text_of_a_predicate_is_sql_for_the_same_predicate(text):
    predicate = parse(text, SCHEMA)
    assert truths(parse(str(predicate), SCHEMA), TABLE).equals(truths(predicate, TABLE))


@given(CONDITIONS, st.sets(st.sampled_from(sorted(ROWS))))
def test_what_is_possible_for_a_file_holds_for_each_of_its_rows(text, known):
    """With every column known the outcome is exact; with fewer, the real one is among the possible."""
    predicate = parse(text, SCHEMA)
    real = truths(predicate, TABLE).to_pylist()
    for row, truth in zip(TABLE.to_pylist(), real, strict=True):
        outcomes = possible(predicate, {name: row[name] for name in known})
        assert truth in outcomes
        assert not columns(predicate) <= known or outcomes == {truth}


LISTED: dict[str, list[object]] = {
    "n": [-1, 0, 2, 2**53, 2**53 + 1],
    "price": [-0.0, 0.0, 0.5, float("inf")],
    "ratio": [0.1, 0.10000000149011612, 0.0],
    "amount": [Decimal("0.10"), Decimal("1E+2")],
    "text": ["", "a", "it's"],
    "flag": [True, False],
    "day": [dt.date(2026, 11, 21), dt.date(1, 1, 1)],
    "at": [dt.datetime(2026, 11, 21, tzinfo=UTC), dt.datetime(1, 1, 1, tzinfo=UTC)],
    "local": [dt.datetime(2026, 11, 21), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)],  # noqa: DTZ001
}


@given(st.data())
def test_a_list_means_what_its_comparisons_mean(data):
    """One look-up of each row instead of one comparison with each value: NULL, NaN and -0.0 as before."""
    name = data.draw(st.sampled_from(sorted(LISTED)))
    kind = SCHEMA.field(name).type
    values = tuple(data.draw(st.lists(st.sampled_from(LISTED[name]), min_size=2, max_size=6)))
    odd = [None, *([NAN, -0.0] if pa.types.is_floating(kind) else [])]
    found = data.draw(st.lists(st.sampled_from([*odd, *LISTED[name]]), max_size=8))
    rows = pa.table({name: pa.chunked_array([pa.array(found[:3], kind), pa.array(found[3:], kind)])})
    listed = In(name, values)
    compared = Either(tuple(Compare(name, "=", value) for value in values))
    for one, other in ((listed, compared), (Not(listed), Not(compared))):
        assert truths(one, rows).to_pylist() == truths(other, rows).to_pylist()
        assert str(one) == str(other), "a repeat is known by this text"
        assert columns(one) == {name}
        assert possible(one, {}) == ANYTHING
        for value in rows[name].to_pylist():
            assert possible(one, {name: value}) == possible(other, {name: value})


def test_a_long_list_is_no_chain_of_or_for_spark_but_for_floats():
    assert to_sql(In("n", (1, 2))) == "(`n` = 1) OR (`n` = 2)"
    many = to_sql(In("n", tuple(range(1_001))))
    assert (many[:11], many.count(" OR ")) == ("`n` IN (0, ", 0)
    assert to_sql(In("price", tuple(map(float, range(1_001))))).count(" OR ") == 1_000


def test_a_list_of_one_value_is_a_comparison():
    assert parse("n IN (7)", SCHEMA) == parse([("n", "in", [7])], SCHEMA) == Compare("n", "=", 7)
    assert parse([("n", "in", [7, 8])], SCHEMA) == In("n", (7, 8))
    assert parse([("n", "not in", [7, 8])], SCHEMA) == Not(In("n", (7, 8)))


# --- what files the partition values decide ----------------------------------------------------------------
def test_partition_values_decide_a_mixed_condition_where_they_can():
    predicate = parse("day = '2026-11-21' AND n > 5", SCHEMA)
    assert possible(predicate, {"day": dt.date(2026, 11, 20)}) == {False}
    assert possible(predicate, {"day": None}) <= {False, None}
    assert possible(predicate, {"day": dt.date(2026, 11, 21)}) == ANYTHING
    either = parse("day = '2026-11-21' OR n > 5", SCHEMA)
    assert possible(either, {"day": dt.date(2026, 11, 21)}) == {True}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("n", "42", 42),
        ("text", "a/b %", "a/b %"),
        ("text", "", None),
        ("n", None, None),
        ("flag", "true", True),
        ("day", "2026-11-21", dt.date(2026, 11, 21)),
        ("price", "1e-07", 1e-07),
        ("ratio", "0.1", 0.10000000149011612),
        ("amount", "-3.70", Decimal("-3.70")),
        ("at", "2026-11-21T01:02:03.000004Z", dt.datetime(2026, 11, 21, 1, 2, 3, 4, tzinfo=UTC)),
        # T3-E8: deltalake spells instants so, and means UTC.
        ("at", "2026-11-21 01:02:03.000004", dt.datetime(2026, 11, 21, 1, 2, 3, 4, tzinfo=UTC)),
        ("local", "2026-11-21 01:02:03", dt.datetime(2026, 11, 21, 1, 2, 3)),  # noqa: DTZ001 - a local time
    ],
)
def test_partition_values_of_the_log_are_read_by_type(name, text, value):
    assert partition_value(text, SCHEMA.field(name)) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("local", "2026-11-21T01:02:03Z"), ("n", "x"), ("flag", "yes"), ("day", "21.11.2026"), ("blob", "a")],
)
def test_a_partition_value_of_unclear_meaning_is_refused(name, text):
    with pytest.raises(InvalidInputError, match=name):
        partition_value(text, SCHEMA.field(name))


# --- tuples ----------------------------------------------------------------------------------------------
def test_tuples_in_one_list_must_all_hold_and_of_several_lists_one_must():
    one = parse([("n", ">=", 1), ("text", "==", "a")], SCHEMA)
    assert one == Both((Compare("n", ">=", 1), Compare("text", "=", "a")))
    assert parse([[("n", "=", 1)], [("n", "=", 2)]], SCHEMA) == Either(
        (Compare("n", "=", 1), Compare("n", "=", 2))
    )
    assert parse([("n", "in", [1, 2])], SCHEMA) == parse("n in (1, 2)", SCHEMA)
    assert parse([("n", "not in", {1})], SCHEMA) == Not(Compare("n", "=", 1))


def test_equal_to_none_asks_for_null():
    assert parse([("day", "=", None)], SCHEMA) == IsNull("day")
    assert parse([("day", "!=", None)], SCHEMA) == Not(IsNull("day"))


def test_columns_are_found_whatever_their_case_and_with_blanks():
    assert columns(parse("\"mixed case\" = 'x' AND N = 1", SCHEMA)) == {"Mixed Case", "n"}


def test_of_columns_that_differ_in_case_alone_the_one_that_was_named_is_meant():
    """Iceberg tables may have such."""
    schema = pa.schema({"id": pa.int64(), "ID": pa.int64()})
    assert columns(parse("ID = 1", schema)) == {"ID"}
    with pytest.raises(InvalidInputError, match="Id"):
        parse("Id = 1", schema)


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("amount = 3.70", Decimal("3.70")),
        ("n = 3.0", 3),
        ("day = '2026-11-21'", dt.date(2026, 11, 21)),
        ("at >= '2026-11-21T00:00:00+01:00'", dt.datetime(2026, 11, 20, 23, tzinfo=UTC)),
        ("at >= TIMESTAMP '2026-11-21 00:00:00Z'", dt.datetime(2026, 11, 21, tzinfo=UTC)),
        ("local < '2026-11-21'", dt.datetime(2026, 11, 21)),  # noqa: DTZ001 - a local time
        ("text = 'it''s'", "it's"),
        ("n = -9223372036854775808", -(2**63)),
    ],
)
def test_values_are_read_as_the_columns_type(condition, value):
    predicate = parse(condition, SCHEMA)
    assert isinstance(predicate, Compare)
    assert predicate.value == value
    assert type(predicate.value) is type(value)


def test_a_float32_column_is_compared_with_the_value_as_written():
    """0.1 as a float32 is a little more than 0.1."""
    table = pa.table({"ratio": pa.array([0.1], pa.float32())})
    assert truths(parse("ratio > 0.1", SCHEMA), table).to_pylist() == [True]


@pytest.mark.parametrize(
    "where",
    [
        "n = 'text'", "n = 3.5", "n = 9223372036854775808", "small = 128", "text = 5", "flag = 1", "flag = 'true'",
        "amount = 3.701", "amount = 123456789012", "day = 'soon'", "day = DATE '2026-13-01'", "text = DATE '2026-11-21'",
        "at = '2026-11-21'", "at = '2026-11-21 00:00:00'", "local = '2026-11-21T00:00:00Z'", "price = 'NaN'",
        "local = '2026-11-21T00:00:00.1234567'", "blob = 'x'", "nested = 1", "n = TRUE",
    ],
)  # fmt: skip
def test_a_value_that_is_none_of_the_columns_is_refused(where):
    with pytest.raises(InvalidInputError):
        parse(where, SCHEMA)


@pytest.mark.parametrize(
    "where",
    [
        "", "  ", "n =", "n = 1; DROP TABLE t", "SELECT 1", "n + 1 = 2", "upper(text) = 'A'", "n = small",
        "text LIKE 'a%'", "nested.inner = 1", "missing = 1", 'text = "a"', "n = NULL", "n IN (1, NULL)", "n IN ()",
        "n IN (SELECT 1)", "n", "n IS TRUE", "CASE WHEN flag THEN TRUE END", "1 = 1", "CAST(n AS INT) = 1",
        [], [("n", "=")], [("n", "~", 1)], [("n", "<", None)], [("n", "in", "12")], [("n", "in", [])],
        [("n", "=", NAN)], [("price", "=", NAN)], [[], [("n", "=", 1)]], [(1, "=", 1)], 7, None, [("text", "=", b"x")],
    ],
)  # fmt: skip
def test_what_is_no_condition_on_columns_is_refused(where):
    with pytest.raises(InvalidInputError, match="Nothing was written"):
        parse(where, SCHEMA)


def test_sql_without_sqlglot_names_the_extra_and_tuples_do_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*'sqlglot>="):
        parse("n = 1", SCHEMA)
    assert parse([("n", "=", 1)], SCHEMA) == Compare("n", "=", 1)


def test_constants_stand_for_every_row():
    assert truths(Constant(True), TABLE).to_pylist() == [True] * TABLE.num_rows
    assert parse("true", SCHEMA) == Constant(True)
