"""What Iceberg concludes about whole files from our expressions is true of every row in them.

Method: PyIceberg writes real data files of awkward values; every file's rows are judged by the
predicate itself, and must bear out what PyIceberg's evaluators say of the file's metrics and of its
partition.  Metrics are tried as PyIceberg wrote them, and as other writers would have.
"""

# ruff: noqa: DTZ001 - times without a zone are among what is tested

from __future__ import annotations

import datetime as dt
import itertools
import struct
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.expressions.literals import literal
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    _StrictMetricsEvaluator,
)
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import FloatType

from safewrite.frames.predicate import Both, Compare, Constant, Either, In, IsNull, Not, Predicate, truths
from safewrite.frames.where import parse
from safewrite.iceberg.data import expressions
from safewrite.iceberg.data.expressions import may_match, must_match
from safewrite.iceberg.data.pruning import Pruning
from tests.sampling import EXAMPLES, examples

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC

SCHEMA = pa.schema(
    {
        "n": pa.int32(),
        "big": pa.int64(),
        "price": pa.float64(),
        "ratio": pa.float32(),
        "amount": pa.decimal128(10, 2),
        "exact": pa.decimal128(38, 18),
        "text": pa.string(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "flag": pa.bool_(),
    }
)
_MOMENTS = [
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2026, 11, 21, 12),
    dt.datetime(2026, 11, 21, 12, 0, 0, 1),
]
VALUES: dict[str, list[Any]] = {
    "n": [-(2**31), -11, -1, 0, 1, 10, 2**31 - 1],
    "big": [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1],
    "price": [NAN, -INF, -1.5, -0.0, 0.0, 0.1, 1e300, INF],
    "ratio": [NAN, -INF, -1.5, -0.0, 0.0, 0.10000000149011612, 3.4028234663852886e38, INF],
    "amount": [Decimal("-12345678.90"), Decimal("-0.01"), Decimal("0.00"), Decimal("0.05"), Decimal("10.00")],
    "exact": [Decimal("-1e-18"), Decimal(0), Decimal("12345678901234567890.123456789012345678")],
    "text": ["", "a", "ab", "abc", "abd", "é", "x" * 20, "x" * 16, "\U0001f600", "\uffff"],
    "day": [moment.date() for moment in _MOMENTS[:4]],
    "at": [moment.replace(tzinfo=UTC) for moment in _MOMENTS],
    "local": _MOMENTS,
    "flag": [False, True],
}
BETWEEN: dict[str, list[Any]] = {
    "n": [5],
    "big": [5],
    "price": [5.0],
    "ratio": [0.1, 1e39, -1e39, 1e-300],
    "amount": [Decimal(5), Decimal("1E+2")],
    "exact": [Decimal("0.5")],
    "text": ["aa", "x" * 17],
    "day": [dt.date(2000, 2, 29)],
    "at": [dt.datetime(2000, 2, 29, 1, tzinfo=UTC)],
    "local": [dt.datetime(2000, 2, 29, 1)],
    "flag": [],
}
"""Values that predicates have and files do not."""


def frames(*names: str) -> st.SearchStrategy[pa.Table]:
    """Up to five rows that have values in some columns, and NULL in the others."""
    columns = {name: st.none() | st.sampled_from(VALUES[name]) for name in names}
    rows = st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=5)
    return rows.map(lambda found: pa.Table.from_pylist(found, SCHEMA))


def predicates(*names: str) -> st.SearchStrategy[Predicate]:
    """Conditions on some columns, nested."""
    compared = [
        st.builds(
            Compare,
            st.just(name),
            st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
            st.sampled_from([v for v in VALUES[name] if v == v] + BETWEEN[name]),  # noqa: PLR0124 - no NaN
        )
        for name in names
    ]
    listed = [
        st.builds(In, st.just(name), st.lists(st.sampled_from(numbers), min_size=2, max_size=5).map(tuple))
        for name in names
        if (numbers := [v for v in VALUES[name] if v == v] + BETWEEN[name])  # noqa: PLR0124 - no NaN
    ]
    leaves = st.one_of(
        *compared, *listed, st.builds(IsNull, st.sampled_from(names)), st.builds(Constant, st.booleans())
    )

    def nested(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        several = st.lists(parts, min_size=1, max_size=3).map(tuple)
        return st.one_of(st.builds(Not, parts), st.builds(Both, several), st.builds(Either, several))

    return st.recursive(leaves, nested, max_leaves=4)


def verdicts(predicate: Predicate, rows: pa.Table) -> list[bool | None]:
    return truths(predicate, rows).to_pylist()


class Lake:
    """A catalog in SQLite and a folder."""

    def __init__(self, folder: Path) -> None:
        self.catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        self.catalog.create_namespace("db")
        self.numbers = itertools.count()

    def table(self, transform: Transform[Any, Any] | None = None, source: str = "n") -> Table:
        made = self.catalog.create_table(f"db.t{next(self.numbers)}", SCHEMA)
        if transform is not None:
            with made.update_spec() as update:
                update.add_field(source, transform, "part")
        return made


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    made = Lake(tmp_path_factory.mktemp("lake"))
    yield made
    made.catalog.close()


@pytest.fixture(scope="module")
def table(lake: Lake) -> Table:
    return lake.table()


# --- metrics, as their writers differ -------------------------------------------------------------------
def altered(file: DataFile, **values: Any) -> DataFile:
    """The file with other metadata."""
    places = {field.name: at for at, field in enumerate(DATA_FILE_TYPE[2].fields)}
    changed = {name: file._data[at] for name, at in places.items() if at < len(file._data)}
    return DataFile.from_args(_table_format_version=2, **{**changed, **values})


def with_nan_counts(file: DataFile, rows: pa.Table, schema: Schema) -> DataFile:
    """As Spark and Java write them."""
    floating = ("price", "ratio")
    counts = {
        schema.find_field(name).field_id: pc.sum(pc.is_nan(rows[name])).as_py() or 0 for name in floating
    }
    return altered(file, nan_value_counts=counts)


def with_nan_bounds(file: DataFile, rows: pa.Table, schema: Schema) -> DataFile:
    """As old Java writers left them: NaN where there are some."""
    lower, upper = dict(file.lower_bounds or {}), dict(file.upper_bounds or {})
    for name in ("price", "ratio"):
        if pc.any(pc.is_nan(rows[name])).as_py():
            field = schema.find_field(name)
            bound = struct.pack("<f" if isinstance(field.field_type, FloatType) else "<d", NAN)
            lower[field.field_id] = upper[field.field_id] = bound
    return altered(file, lower_bounds=lower, upper_bounds=upper)


NO_METRICS = dict.fromkeys(("lower_bounds", "upper_bounds", "null_value_counts", "value_counts"))
OFTEN = [*SCHEMA.names, *["price", "ratio"] * 3]
METRICS = {
    "as PyIceberg writes them": lambda file, rows, schema: file,
    "with counts of NaN": with_nan_counts,
    "with NaN for bounds": with_nan_bounds,
    "without counts of NULL": lambda file, rows, schema: altered(file, null_value_counts=None),
    "without bounds": lambda file, rows, schema: altered(file, lower_bounds=None, upper_bounds=None),
    "without any": lambda file, rows, schema: altered(file, **NO_METRICS),
}


@pytest.mark.sweep("without counts of NULL", "with NaN for bounds", "without any", "with counts of NaN")
@pytest.mark.parametrize("part", EXAMPLES)
@pytest.mark.parametrize("metrics", METRICS)
def test_no_matching_row_is_left_out_and_no_other_row_is_taken_for_one(
    table: Table, metrics: str, part: int
) -> None:
    @given(data=st.data())
    @examples(part)
    def holds(data: st.DataObject) -> None:
        judge(table, metrics, data)

    holds()


@pytest.mark.long
@pytest.mark.parametrize("metrics", METRICS)
def test_ranges_that_stand_for_very_many_values_leave_out_and_take_no_wrong_file(
    table: Table, metrics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "EXACT_MAX", 1)
    monkeypatch.setattr(expressions, "RANGES_MAX", 2)

    @given(data=st.data())
    @settings(max_examples=25)
    def holds(data: st.DataObject) -> None:
        judge(table, metrics, data)

    holds()


def judge(table: Table, metrics: str, data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(OFTEN), min_size=1, max_size=2, unique=True))
    frame = data.draw(frames(*names))
    (file,) = _dataframe_to_data_files(table.metadata, frame, table.io)
    file = METRICS[metrics](file, frame, table.schema())
    for predicate in data.draw(st.lists(predicates(*names), min_size=1, max_size=5)):
        found = verdicts(predicate, frame)
        kept = _InclusiveMetricsEvaluator(table.schema(), may_match(predicate, SCHEMA)).eval(file)
        whole = _StrictMetricsEvaluator(table.schema(), must_match(predicate, SCHEMA)).eval(file)
        event("kept" if kept else "pruned")
        event("whole" if whole else "not known to be whole")
        assert kept or True not in found, f"{predicate} prunes a file in which it is {found}"
        assert not whole or set(found) == {True}, f"{predicate} takes a file whole in which it is {found}"


def test_ranges_of_very_many_values_still_leave_out_files(table: Table) -> None:
    (file,) = _dataframe_to_data_files(table.metadata, PLAIN, table.io)

    def kept(*values: int, negated: bool = False) -> bool:
        found: Predicate = In("n", values)
        expression = may_match(Not(found) if negated else found, SCHEMA)
        return _InclusiveMetricsEvaluator(table.schema(), expression).eval(file)

    far = tuple(range(10, 2_010))
    assert not kept(*far)
    assert not kept(*(-number for number in far), *far), "the file lies in a gap between two ranges"
    assert kept(*far, 2)
    assert kept(*far, negated=True)
    strict = must_match(Not(In("n", far)), SCHEMA)
    assert _StrictMetricsEvaluator(table.schema(), strict).eval(file)


# --- and they are of use ----------------------------------------------------------------------------------
PLAIN = pa.Table.from_pylist(
    [
        {
            "n": n,
            "price": float(n),
            "ratio": float(n),
            "text": text,
            "day": dt.date(2026, 11, n),
            "flag": True,
        }
        for n, text in ((1, "a"), (2, None), (3, "c"))
    ],
    SCHEMA,
)


@pytest.mark.parametrize(
    "where",
    [
        "n > 3", "n < 1", "n = 4", "NOT (n <= 3)", "n IS NULL", "text > 'c'", "text = 'd'", "price < 1", "ratio < 0.1",
        "ratio = 0.1", "day < '2026-11-01'", "n > 3 AND price < 100", "n > 3 OR day IS NULL", "n in (7, 8)", "false",
    ],
)  # fmt: skip
def test_files_that_cannot_match_are_left_out(table: Table, where: str) -> None:
    (file,) = _dataframe_to_data_files(table.metadata, PLAIN, table.io)
    expression = may_match(parse(where, SCHEMA), SCHEMA)
    assert not _InclusiveMetricsEvaluator(table.schema(), expression).eval(file)


@pytest.mark.parametrize(
    ("where", "counted"),
    [
        ("n >= 1", False), ("NOT (n < 1)", False), ("n < 4 AND day > '2026-10-31'", False), ("n <> 9", False),
        ("price > 0.5", False), ("ratio > 0.1", False), ("NOT (price = 9)", True), ("price <= 3", True),
        ("ratio < 3.1", True), ("n = 9 OR n IS NOT NULL", False), ("exact IS NULL", False), ("true", False),
    ],
)  # fmt: skip
def test_files_that_match_whole_are_known(table: Table, where: str, counted: bool) -> None:
    """``counted``: only where somebody counted the NaN, for which PyIceberg's own bounds do not answer."""
    (file,) = _dataframe_to_data_files(table.metadata, PLAIN, table.io)
    expression = must_match(parse(where, SCHEMA), SCHEMA)
    strict = _StrictMetricsEvaluator(table.schema(), expression)
    assert strict.eval(file) is not counted
    assert strict.eval(with_nan_counts(file, PLAIN, table.schema()))


def test_a_file_with_null_does_not_match_whole_although_iceberg_says_that_null_differs(table: Table) -> None:
    nulls = PLAIN.slice(1, 1)
    (file,) = _dataframe_to_data_files(table.metadata, nulls, table.io)
    for where in ("text <> 'a'", "NOT (text = 'a')", "NOT (text > 'a')", "text = 'a' OR text <> 'a'"):
        expression = must_match(parse(where, SCHEMA), SCHEMA)
        assert not _StrictMetricsEvaluator(table.schema(), expression).eval(file)


def test_a_nan_that_nobody_counted_is_neither_left_out_nor_taken_for_a_number(table: Table) -> None:
    """PyIceberg's bounds of this file are 1 and 1."""
    rows = pa.Table.from_pylist([{"price": 1.0}, {"price": NAN}], SCHEMA)
    (file,) = _dataframe_to_data_files(table.metadata, rows, table.io)
    for where in ("price > 5", "price >= 5", "NOT (price <= 5)", "price <> 1"):
        expression = may_match(parse(where, SCHEMA), SCHEMA)
        assert _InclusiveMetricsEvaluator(table.schema(), expression).eval(file), where
    for where in ("price < 5", "price <= 1", "price = 1", "NOT (price > 1)"):
        expression = must_match(parse(where, SCHEMA), SCHEMA)
        assert not _StrictMetricsEvaluator(table.schema(), expression).eval(file), where


def test_nanoseconds_are_not_judged() -> None:
    schema = pa.schema({"fine": pa.timestamp("ns")})
    predicate = Compare("fine", ">", dt.datetime(2026, 11, 21))
    assert must_match(predicate, schema) == AlwaysFalse()
    assert may_match(Both((predicate, Constant(False))), schema) == AlwaysFalse()
    assert may_match(Either((predicate, Constant(True))), schema) == AlwaysTrue()


# --- partitions ---------------------------------------------------------------------------------------------
TRANSFORMS: list[tuple[str, Transform[Any, Any]]] = [
    ("n", IdentityTransform()), ("text", IdentityTransform()), ("amount", IdentityTransform()),
    ("price", IdentityTransform()), ("ratio", IdentityTransform()),
    ("day", IdentityTransform()), ("at", IdentityTransform()), ("flag", IdentityTransform()),
    ("n", BucketTransform(3)), ("text", BucketTransform(3)), ("amount", BucketTransform(3)),
    ("day", BucketTransform(3)), ("local", BucketTransform(3)),
    ("n", TruncateTransform(10)), ("text", TruncateTransform(2)), ("amount", TruncateTransform(50)),
    ("day", MonthTransform()), ("day", YearTransform()), ("day", DayTransform()), ("at", DayTransform()),
    ("local", DayTransform()), ("at", HourTransform()), ("local", MonthTransform()), ("at", YearTransform()),
]  # fmt: skip
JUDGED = [
    pytest.param(
        *case, metrics, id=f"{case[1]}({case[0]})-{'with metrics' if metrics else 'by partitions alone'}",
        marks=pytest.mark.long if metrics and number % 3 else (),
    )
    for number, case in enumerate(TRANSFORMS)
    for metrics in (True, False)
]  # fmt: skip
"""By partitions alone all of them; metrics can only leave out more, and every third has them too."""


def partition_value(table: Table, source: str, transform: Transform[Any, Any], value: Any) -> Any:
    """The value of the partition that a row belongs to, in Iceberg's terms."""
    kind = table.schema().find_type(source)
    if value is not None and not isinstance(value, float):
        value = literal(value).to(kind).value
    return transform.transform(kind)(value)


def append_partitions(
    table: Table, source: str, transform: Transform[Any, Any], *, metrics: bool
) -> dict[str, pa.Table]:
    """Commit a file for each partition of all values; the rows of each file."""
    groups: dict[str, tuple[Any, list[Any]]] = {}
    values = VALUES[source]
    if source == "n" and isinstance(transform, TruncateTransform):
        values = values[1:]  # the least number has no truncated value of its type
    for value in [*values, None]:
        part = partition_value(table, source, transform, value)
        groups.setdefault(repr(part), (part, []))[1].append(value)
    found = {}
    plain = table.metadata.model_copy(update={"default_spec_id": 0})
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for part, members in groups.values():
            rows = pa.Table.from_pylist([{source: value} for value in members], SCHEMA)
            (file,) = _dataframe_to_data_files(plain, rows, table.io)
            bare = {} if metrics else NO_METRICS
            file = altered(file, partition=Record(part), **bare)
            file.spec_id = table.spec().spec_id
            append.append_data_file(file)
            found[file.file_path] = rows
    return found


@pytest.mark.sweep(
    "with metrics",
    "identity(price)",
    "identity(amount)",
    "identity(ratio)",
    "identity(flag)",
    "bucket[3](day)",
    "bucket[3](local)",
    "month(local)",
    "day(local)",
    "truncate[10](n)",
    "year(day)",
    "identity(at)",
    "identity(day)",
    "day(at)",
    "truncate[50](amount)",
    "identity(text)",
    "bucket[3](text)",
)
@pytest.mark.parametrize("part", EXAMPLES)
@pytest.mark.parametrize(("source", "transform", "metrics"), JUDGED)
def test_partitions_are_judged_rightly(
    lake: Lake, source: str, transform: Transform[Any, Any], metrics: bool, part: int
) -> None:
    table = lake.table(transform, source)
    rows = append_partitions(table, source, transform, metrics=metrics)
    files = [task.file for task in table.scan().plan_files()]
    assert {file.file_path for file in files} == rows.keys()

    @given(predicates(source))
    @examples(part)
    def holds(predicate: Predicate) -> None:
        pruning = Pruning(predicate, table.metadata, SCHEMA)
        for file in files:
            found = verdicts(predicate, rows[file.file_path])
            where = f"{predicate} in partition {file.partition} of {found}"
            assert pruning.may_match(file) or True not in found, f"left out: {where}"
            assert not pruning.must_match(file) or set(found) == {True}, f"taken whole: {where}"

    holds()


@pytest.mark.sweep("at-transform2", "ratio-transform6", "day-transform1", "text-transform5")
@pytest.mark.parametrize(
    ("source", "transform", "where", "may", "must"),
    [
        ("day", DayTransform(), "day = '2026-11-21'", 1, 0),
        ("day", IdentityTransform(), "day = '2026-11-21'", 1, 1),
        ("at", DayTransform(), "at >= '2026-11-21T00:00:00Z'", 1, 1),
        ("n", BucketTransform(3), "n = 10", 1, 0),
        ("text", IdentityTransform(), "text IS NULL", 1, 1),
        ("text", TruncateTransform(2), "text > 'y'", 3, 3),
        ("ratio", IdentityTransform(), "ratio > 0", 4, 4),
        ("ratio", IdentityTransform(), "NOT (ratio > 0)", 4, 4),
    ],
)
def test_partitions_alone_decide_where_they_can(  # noqa: PLR0917 - one row of the table above
    lake: Lake, source: str, transform: Transform[Any, Any], where: str, may: int, must: int
) -> None:
    """The number of partitions that are not left out, and of those that match whole."""
    table = lake.table(transform, source)
    append_partitions(table, source, transform, metrics=False)
    pruning = Pruning(parse(where, SCHEMA), table.metadata, SCHEMA)
    files = [task.file for task in table.scan().plan_files()]
    assert (sum(map(pruning.may_match, files)), sum(map(pruning.must_match, files))) == (may, must)


def test_files_of_an_older_layout_are_judged_by_that(lake: Lake) -> None:
    table = lake.table(IdentityTransform(), "n")
    append_partitions(table, "n", IdentityTransform(), metrics=False)
    with table.update_spec() as update:
        update.remove_field("part")
        update.add_field("text", BucketTransform(4), "other")
    pruning = Pruning(parse("n = 10", SCHEMA), table.metadata, SCHEMA)
    files = [task.file for task in table.scan().plan_files()]
    assert [file.partition[0] for file in files if pruning.may_match(file)] == [10]
    assert [file.partition[0] for file in files if pruning.must_match(file)] == [10]
