"""Calls of awswrangler's ``to_deltalake`` and ``to_iceberg``: what is written, by which arguments; both libraries make them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd

REFUSED = "refused"
Frame = Callable[[], pd.DataFrame]


@dataclass(frozen=True)
class Call:
    """One call, after those of ``first`` on the same table; ``then`` is what Athena leaves of an Iceberg table."""

    says: str
    frame: Frame
    given: dict[str, Any]
    first: tuple[tuple[Frame, dict[str, Any]], ...] = ()
    then: Any = None
    types: tuple[tuple[str, str], ...] = ()
    why: str = ""
    """Why safewrite does otherwise, where it does."""


def rows(*values: Any, column: str = "v") -> Frame:
    """Rows 1, 2, ... with these values."""
    return lambda: pd.DataFrame({"id": range(1, len(values) + 1), column: list(values)})


def typed(*values: Any, of: str) -> Frame:
    """The same, of a type of pandas."""
    return lambda: pd.DataFrame({"id": range(1, len(values) + 1), "v": pd.Series(list(values), dtype=of)})


A, B = rows("a", "b"), rows("c")
DAY = dt.date(2026, 1, 2)
NOON = dt.datetime(2026, 1, 2, 12)  # noqa: DTZ001 - a column without a zone is meant
ROUNDS = "would round or cut the value"
NAN = "NaN stays NaN: awswrangler makes NULL of it"
GONE = "columns and their values would go"


def _indexed() -> pd.DataFrame:
    return pd.DataFrame({"v": ["a", "b"]}, index=pd.Index([7, 8], name="at"))


def _two_levels() -> pd.DataFrame:
    return pd.DataFrame({"v": ["a"]}, index=pd.MultiIndex.from_tuples([(1, "x")], names=["n", "t"]))


def _empty() -> pd.DataFrame:
    return A().iloc[:0]


DELTA = (
    Call("a new table", A, {}),
    Call("append", B, {}, ((A, {}),)),
    Call("mode='append' by name", B, {"mode": "append"}, ((A, {}),)),
    Call("mode='overwrite'", B, {"mode": "overwrite"}, ((A, {}),)),
    Call("mode='error', a new table", A, {"mode": "error"}),
    Call("mode='error', a table that is there", B, {"mode": "error"}, ((A, {}),)),
    Call("mode='ignore', a new table", A, {"mode": "ignore"}),
    Call("mode='ignore', a table that is there", B, {"mode": "ignore"}, ((A, {}),)),
    Call("a mode that is none", A, {"mode": "merge"}),
    Call("index=False", _indexed, {"index": False}),
    Call("index=True, named", _indexed, {"index": True}),
    Call("index=True, two levels", _two_levels, {"index": True}),
    Call("index=True, without a name", A, {"index": True}),
    Call("partition_cols, a new table", A, {"partition_cols": ["v"]}),
    Call("partition_cols, the table's own", B, {"partition_cols": ["v"]}, ((A, {"partition_cols": ["v"]}),)),
    Call("partition_cols, others than the table's", B, {"partition_cols": ["id"]}, ((A, {}),)),
    Call("partition_cols left out for a partitioned table", B, {}, ((A, {"partition_cols": ["v"]}),)),
    Call("partition_cols, a column that is not there", A, {"partition_cols": ["day"]}),
    Call("schema_mode='merge', a new column", rows(1, column="w"), {"schema_mode": "merge"}, ((A, {}),)),
    Call("a new column without schema_mode", rows(1, column="w"), {}, ((A, {}),)),
    Call(
        "schema_mode='overwrite', a new column",
        lambda: A().assign(w=1),
        {"mode": "overwrite", "schema_mode": "overwrite"},
        ((A, {}),),
    ),
    Call(
        "schema_mode='overwrite', another type",
        rows(1, 2),
        {"mode": "overwrite", "schema_mode": "overwrite"},
        ((A, {}),),
        why="the new rows under a new type: write to a new path",
    ),
    Call(
        "schema_mode='overwrite', a column less",
        lambda: A()[["id"]],
        {"mode": "overwrite", "schema_mode": "overwrite"},
        ((A, {}),),
        why=GONE,
    ),
    Call(
        "schema_mode='merge', int to bigint",
        typed(2**40, of="int64"),
        {"schema_mode": "merge"},
        ((typed(1, of="int32"), {}),),
    ),
    Call("int into a column of bigint", typed(2, of="int32"), {}, ((typed(2**40, of="int64"), {}),)),
    Call("a bigint that fits into a column of int", typed(2, of="int64"), {}, ((typed(1, of="int32"), {}),)),
    Call("a bigint that does not fit into int", typed(2**40, of="int64"), {}, ((typed(1, of="int32"), {}),)),
    Call("texts into a column of numbers", A, {}, ((rows(1, 2), {}),)),
    Call(
        "numbers into a column of texts",
        rows(1, 2),
        {},
        ((A, {}),),
        why="numbers would become texts: cast them, by dtype=",
    ),
    Call("dtype='bigint' of int", typed(1, 2, of="int32"), {"dtype": {"v": "bigint"}}),
    Call("dtype='int' of whole floats", rows(1.0, 2.0), {"dtype": {"v": "int"}}),
    Call("dtype='int' of 1.5", rows(1.5), {"dtype": {"v": "int"}}, why=ROUNDS),
    Call(
        "dtype='string' of numbers",
        rows(1, 2),
        {"dtype": {"v": "string"}},
        why="safewrite casts them, awswrangler refuses",
    ),
    Call("dtype='double' of texts", rows("1.5"), {"dtype": {"v": "double"}}),
    Call(
        "dtype='decimal(10,2)' of floats",
        rows(19.99),
        {"dtype": {"v": "decimal(10,2)"}},
        why="safewrite casts them by their shortest text, awswrangler refuses",
    ),
    Call(
        "dtype='decimal(10,2)' of 1.005",
        rows(Decimal("1.005")),
        {"dtype": {"v": "decimal(10,2)"}},
        why=ROUNDS,
    ),
    Call("dtype='date' of times at noon", rows(NOON), {"dtype": {"v": "date"}}, why=ROUNDS),
    Call("dtype of a column that is not there", A, {"dtype": {"w": "int"}}),
    Call("dates", rows(DAY, None), {}),
    Call(
        "times in nanoseconds that are whole microseconds",
        rows(pd.Timestamp("2026-01-02 03:04:05.000006")),
        {},
    ),
    Call(
        "times in nanoseconds that are not",
        typed("2026-01-02T03:04:05.000000007", of="datetime64[ns]"),
        {},
        why=ROUNDS,
    ),
    Call(
        "times with a zone",
        rows(pd.Timestamp("2026-01-02 12:00", tz="Europe/Berlin")),
        {},
    ),
    Call("decimals", rows(Decimal("1.50"), Decimal("22.25")), {}),
    Call("categories", typed("a", "b", "a", of="category"), {}),
    Call("None among texts", rows("a", None), {}),
    Call("NaN among floats", rows(1.0, float("nan")), {}, why=NAN),
    Call("Int64 with NA", typed(1, pd.NA, of="Int64"), {}),
    Call("booleans", rows(True, False), {}),
    Call("bytes", rows(b"\x00\xff"), {}),
    Call("lists", rows([1, 2], [3]), {}),
    Call("timedelta", typed("1s", of="timedelta64[ns]"), {}),
    Call("an empty frame", _empty, {}, ((A, {}),)),
    Call("numpy scalars among objects", rows(np.int64(1), np.int64(2)), {}),
)

OLD: tuple[tuple[Frame, dict[str, Any]], ...] = ((rows("a", "b"), {}),)
NEW = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
ICEBERG = (
    Call("a new table", A, {}, then=NEW),
    Call("append", B, {}, OLD, [{"id": 1, "v": "a"}, {"id": 1, "v": "c"}, {"id": 2, "v": "b"}]),
    Call("mode='overwrite'", B, {"mode": "overwrite"}, OLD, [{"id": 1, "v": "c"}]),
    Call(
        "mode='overwrite_partitions'",
        lambda: pd.DataFrame({"id": [9], "v": ["a"]}),
        {"mode": "overwrite_partitions", "partition_cols": ["v"]},
        ((A, {"partition_cols": ["v"]}),),
        [{"id": 2, "v": "b"}, {"id": 9, "v": "a"}],
    ),
    Call(
        "mode='overwrite_partitions' without partition_cols",
        A,
        {"mode": "overwrite_partitions"},
        OLD,
        REFUSED,
    ),
    Call(
        "merge_cols, 'update'",
        lambda: pd.DataFrame({"id": [2, 3], "v": ["x", "y"]}),
        {"merge_cols": ["id"]},
        OLD,
        [{"id": 1, "v": "a"}, {"id": 2, "v": "x"}, {"id": 3, "v": "y"}],
    ),
    Call(
        "merge_cols, 'ignore'",
        lambda: pd.DataFrame({"id": [2, 3], "v": ["x", "y"]}),
        {"merge_cols": ["id"], "merge_condition": "ignore"},
        OLD,
        [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "y"}],
        why="one commit cannot say which keys another writer inserts meanwhile",
    ),
    Call(
        "merge_cols, a key twice in the frame",
        lambda: pd.DataFrame({"id": [2, 2], "v": ["x", "y"]}),
        {"merge_cols": ["id"]},
        OLD,
        REFUSED,
    ),
    Call(
        "merge_match_nulls=True",
        lambda: pd.DataFrame({"id": pd.array([1, None], "Int64"), "v": ["x", "y"]}),
        {"merge_cols": ["id"], "merge_match_nulls": True},
        OLD,
        [{"id": None, "v": "y"}, {"id": 1, "v": "x"}, {"id": 2, "v": "b"}],
        why="two rows without a key would be one",
    ),
    Call(
        "partition_cols, a transform",
        lambda: A().assign(t=NOON),
        {"partition_cols": ["day(t)"]},
        then=[one | {"t": NOON} for one in NEW],
    ),
    Call("partition_cols, bucket", A, {"partition_cols": ["bucket(4, id)"]}, then=NEW),
    Call("index=True", _indexed, {"index": True}, then=[{"v": "a", "at": 7}, {"v": "b", "at": 8}]),
    Call(
        "a new column, schema_evolution=True",
        lambda: B().assign(w=5),
        {"schema_evolution": True},
        OLD,
        [{"id": 1, "v": "a", "w": None}, {"id": 1, "v": "c", "w": 5}, {"id": 2, "v": "b", "w": None}],
    ),
    Call("a new column, schema_evolution=False", lambda: B().assign(w=5), {}, OLD, REFUSED),
    Call("a missing column is NULL", lambda: B()[["id"]], {}, OLD, [{"id": 1, "v": None}, *NEW]),
    Call(
        "fill_missing_columns_in_df=False",
        lambda: B()[["id"]],
        {"fill_missing_columns_in_df": False},
        OLD,
        REFUSED,
    ),
    Call(
        "int to bigint, schema_evolution=True",
        typed(2**40, of="int64"),
        {"schema_evolution": True},
        ((typed(1, of="int32"), {}),),
        [{"id": 1, "v": 1}, {"id": 1, "v": 2**40}],
        (("v", "long"),),
    ),
    Call(
        "bigint into int, schema_evolution=False",
        typed(2**40, of="int64"),
        {},
        ((typed(1, of="int32"), {}),),
        REFUSED,
    ),
    Call("an empty frame", _empty, {}, OLD, REFUSED),
)
