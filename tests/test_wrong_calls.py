"""Wrong calls, as users make them: each ends in an error whose kind and text help, or in the right result.

Local tables, a SQLite catalog, and closed ports of this machine: no server runs.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import socket
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import safewrite as sw
from tests.each import each

pytestmark = pytest.mark.usefixtures("no_aws_settings")

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "day": pa.string(),
        "price": pa.decimal128(10, 2),
        "at": pa.timestamp("us", tz="UTC"),
        "flag": pa.bool_(),
    }
)
KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1"}
SAFE = re.compile(
    r"Nothing was (written|committed)|left as it was|nothing was written|none of these were written|was not created"
)


def row(**changed: Any) -> dict[str, Any]:
    return {"id": 1, "day": "a", "price": None, "at": None, "flag": True} | changed


@dataclass
class Given:
    """What a call has at hand: tables with one row of key ``"first"``, and an address where nobody listens."""

    delta: Any
    iceberg: Any
    catalog: dict[str, str]
    folder: Path
    nobody: dict[str, str]


@pytest.fixture(scope="module")
def nobody() -> Iterator[dict[str, str]]:
    """Settings of an address where nobody listens, and nobody else can begin to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        yield KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{held.getsockname()[1]}"}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, nobody: dict[str, str]) -> Given:
    folder = tmp_path_factory.mktemp("wrong")
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "warehouse")}
    delta = sw.create(folder / "delta", SCHEMA)
    iceberg = sw.create("db.orders", SCHEMA, catalog=catalog)
    for table in (delta, iceberg):
        table.append([row()], key="first")
        table.delete("id = 900", key="gone")
    (folder / "file").write_text("x")
    return Given(delta, iceberg, catalog, folder, nobody)


Call = Callable[[Any], Any]

FRAME = pd.DataFrame({"id": [1]})
# What is appended to a table of SCHEMA, and what the answer must say.
DATA: dict[str, tuple[Any, type[sw.SafewriteError], str]] = {
    "None": (None, sw.InvalidInputError, "^None is no table"),
    "a number": (5, sw.InvalidInputError, "^An int is no table"),
    "a path": ("orders.parquet", sw.InvalidInputError, "^A str is no table"),
    "a Path": (Path("orders.parquet"), sw.InvalidInputError, "list of dicts"),
    "a class": (pd.DataFrame, sw.InvalidInputError, r"is a class.*'\(\)' missing"),
    "a function": (print, sw.InvalidInputError, "is no table"),
    "one column of pandas": (FRAME["id"], sw.InvalidInputError, "{'name': column}"),
    "one column of polars": (pl.Series("id", [1]), sw.InvalidInputError, "{'name': column}"),
    "one array of Arrow": (pa.array([1]), sw.InvalidInputError, "dict of columns"),
    "an array of numpy": (np.array([1]), sw.InvalidInputError, "dict of columns"),
    "a record array": (np.zeros(1, dtype=[("id", "i8")]), sw.InvalidInputError, "is no table"),
    "a group": (FRAME.groupby("id"), sw.InvalidInputError, "is no table"),
    "a generator": ((row() for _ in range(2)), sw.InvalidInputError, "only once"),
    "an iterator": (iter([row()]), sw.InvalidInputError, "only once"),
    "a reader": (pa.table([[1]], ["id"]).to_reader(), sw.InvalidInputError, "read_all"),
    "one row": (row(), sw.InvalidInputError, "needs a sequence for each"),
    "numbers": ([1, 2], sw.InvalidInputError, "Row 0 is of type int"),
    "lists": ([[1]], sw.InvalidInputError, "not a dict"),
    "rows and None": ([row(), None], sw.InvalidInputError, "Row 1"),
    "rows without columns": ([{}], sw.InvalidInputError, r"has rows \(1\) and no columns"),
    "columns of two lengths": ({"id": [1, 2], "day": ["a"]}, sw.InvalidInputError, "differ in length"),
    "a text as a column": ({"id": "abc"}, sw.InvalidInputError, "sequence"),
    "a number as a name": ([{1: 1}], sw.InvalidInputError, "names must be"),
    "an empty name": ([{"": 1}], sw.InvalidInputError, "non-empty"),
    "a name twice": (pa.table([[1], [2]], ["id", "id"]), sw.InvalidInputError, "twice"),
    "names that differ in case": ([row(ID=2)], sw.InvalidInputError, "only in case"),
    "a named index": (pd.DataFrame([row()]).set_index("id"), sw.InvalidInputError, "reset_index"),
    "an extra column": ([row(more=1)], sw.WouldAlterError, "'more' is not in the table"),
    "a missing column": (
        [{k: v for k, v in row().items() if k != "day"}],
        sw.WouldAlterError,
        "'day' .*missing",
    ),
    "another case": (
        [{"Id": 1} | {k: v for k, v in row().items() if k != "id"}],
        sw.WouldAlterError,
        "has 'id'",
    ),
    "several differences": ([{"id": "x", "more": 1}], sw.WouldAlterError, "in 6 columns"),
    "a key that some rows lack": ([row(), {"id": 2}], sw.WouldAlterError, "Some rows have the key"),
    "a text for a number": ([row(id="1")], sw.WouldAlterError, "int64"),
    "a number for a text": ([row(day=1)], sw.WouldAlterError, "string"),
    "a flag for a number": ([row(id=True)], sw.WouldAlterError, "bool"),
    "a number for a flag": ([row(flag=1)], sw.WouldAlterError, "bool"),
    "a fraction for a whole": ([row(id=1.5)], sw.WouldAlterError, "row 0: 1.5"),
    "NaN for a whole": (pd.DataFrame([row(id=np.nan)]), sw.WouldAlterError, "(?i)nan"),
    "a number that is too great": ([row(id=2**63)], sw.WouldAlterError, "int64"),
    "a float for a decimal": ([row(price=0.1 + 0.2)], sw.WouldAlterError, "decimal"),
    "a decimal with more digits": ([row(price=decimal.Decimal("1.005"))], sw.WouldAlterError, "row 0"),
    "a time without a zone": ([row(at=dt.datetime(2026, 1, 1))], sw.WouldAlterError, "tz_localize"),  # noqa: DTZ001
    "a text for a time": ([row(at="2026-01-01")], sw.WouldAlterError, "'at'"),
    "nanoseconds": (
        pd.DataFrame([row()]).assign(at=pd.Timestamp("2026-01-01 00:00:00.000000001", tz="UTC")),
        sw.WouldAlterError,
        r"dt\.floor\('us'\)",
    ),
    "two kinds in one column": ([row(id=1), row(id="a")], sw.NotCommittedError, "id"),
    "a set": ([row(day={1})], sw.NotCommittedError, "day"),
    "a complex number": ([row(id=1j)], sw.NotCommittedError, "id"),
}


@each("format_", ["delta", "iceberg"])
@each(("data", "error", "word"), DATA.values(), ids=list(DATA))
def test_data_that_is_no_table_or_does_not_fit(
    given: Given, format_: str, data: Any, error: type[sw.SafewriteError], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        getattr(given, format_).append(data)
    assert SAFE.search(str(caught.value)), caught.value


# Calls of a table, and what the answer must say.
CALLS: dict[str, tuple[Call, type[sw.SafewriteError], str]] = {
    "an empty key": (lambda t: t.append([row()], key=""), sw.InvalidInputError, "event id"),
    "a key that is a number": (lambda t: t.append([row()], key=5), sw.InvalidInputError, "not 5"),
    "no key": (lambda t: t.append([row()], key=None), sw.InvalidInputError, "second delivery"),
    "a key that is too long": (lambda t: t.append([row()], key="k" * 1025), sw.InvalidInputError, "1024"),
    "two names": (lambda t: t.append([row()], key="k", txn=("a", 1)), sw.InvalidInputError, "not both"),
    "a text as txn": (lambda t: t.append([row()], txn="a"), sw.InvalidInputError, "app_id, version"),
    "a version below 0": (lambda t: t.append([row()], txn=("a", -1)), sw.InvalidInputError, "from 0"),
    "a version as text": (lambda t: t.append([row()], txn=("a", "1")), sw.InvalidInputError, "from 0"),
    "a reserved app id": (lambda t: t.append([row()], txn=("safewrite:x", 1)), sw.InvalidInputError, "own"),
    "the memory's app id": (
        lambda t: t.append([row()], txn=("safewrite.changes", 1)),
        sw.InvalidInputError,
        "own",
    ),
    "an unknown mode": (lambda t: t.append([row()], schema_mode="overwrite"), sw.InvalidInputError, "merge"),
    "other rows": (lambda t: t.append([row(id=7)], key="first"), sw.ReplayMismatchError, "load time"),
    "another condition": (
        lambda t: t.delete("id = 901", key="gone"),
        sw.ReplayMismatchError,
        "another condition",
    ),
    "volatile as text": (lambda t: t.append([row()], volatile="at"), sw.InvalidInputError, "list of texts"),
    "volatile numbers": (lambda t: t.append([row()], volatile=[1]), sw.InvalidInputError, "list of texts"),
    "a long volatile": (lambda t: t.append([row()], volatile=["x" * 1025]), sw.InvalidInputError, "1024"),
    "a volatile nothing": (lambda t: t.append([row()], volatile=["no"]), sw.InvalidInputError, "no column"),
    "all are volatile": (lambda t: t.append([row()], volatile=SCHEMA.names), sw.InvalidInputError, "all col"),
    "a volatile where": (
        lambda t: t.overwrite([row()], key="v", where="id = 1", volatile=["id"]),
        sw.InvalidInputError,
        "where= is on 'id'",
    ),
    "a sink of a volatile text": (
        lambda t: t.sink(app_id="s", volatile="a"),
        sw.InvalidInputError,
        "list of",
    ),
    "resolve a number": (lambda t: t.resolve(5), sw.InvalidInputError, "not 5"),
    "delete without": (lambda t: t.delete(None), sw.InvalidInputError, "neither SQL text"),
    "delete by nothing": (lambda t: t.delete(""), sw.InvalidInputError, "not one SQL condition"),
    "delete by no tuples": (lambda t: t.delete([]), sw.InvalidInputError, "neither SQL text"),
    "delete by a dict": (lambda t: t.delete({"id": 1}), sw.InvalidInputError, r"\(column, op, value\)"),
    "delete by True": (lambda t: t.delete(True), sw.InvalidInputError, "neither SQL text"),
    "no column": (lambda t: t.delete("dy = 'a'"), sw.InvalidInputError, "'day'"),
    "double quotes": (lambda t: t.delete('day = "a"'), sw.InvalidInputError, "single quotes"),
    "two columns": (lambda t: t.delete("id = id"), sw.InvalidInputError, "compares two columns"),
    "a function on the left": (
        lambda t: t.delete("upper(day) = 'A'"),
        sw.InvalidInputError,
        r"'UPPER\(day\)'",
    ),
    "a function on the right": (
        lambda t: t.delete("'A' = upper(day)"),
        sw.InvalidInputError,
        r"'UPPER\(day\)'",
    ),
    "a sum": (lambda t: t.delete("id + 1 = 2"), sw.InvalidInputError, r"'id \+ 1'"),
    "two constants": (lambda t: t.delete("1 = 1"), sw.InvalidInputError, "'1'"),
    "LIKE": (lambda t: t.delete("day LIKE 'a%'"), sw.InvalidInputError, "LIKE"),
    "a subquery": (lambda t: t.delete("id IN (SELECT 1)"), sw.InvalidInputError, "more than a comparison"),
    "two conditions": (lambda t: t.delete("id = 1; id = 2"), sw.InvalidInputError, "not one"),
    "no SQL": (lambda t: t.delete("id = = 1"), sw.InvalidInputError, "no SQL condition"),
    "= NULL": (lambda t: t.delete("id = NULL"), sw.InvalidInputError, "IS NULL"),
    "< None": (lambda t: t.delete([("id", "<", None)]), sw.InvalidInputError, "NULL"),
    "an operator that is none": (lambda t: t.delete([("id", "~", 1)]), sw.InvalidInputError, "no operator"),
    "in without a list": (lambda t: t.delete([("day", "in", "a")]), sw.InvalidInputError, "list of values"),
    "an operator of SQL": (
        lambda t: t.delete([("day", "is", None)]),
        sw.InvalidInputError,
        r"Operators are =.*= None asks for NULL",
    ),
    "one tuple": (
        lambda t: t.delete(("day", "=", "a")),
        sw.InvalidInputError,
        r"list of tuples, such as \[\('day'",
    ),
    "backticks": (lambda t: t.delete("`day` = 'a'"), sw.InvalidInputError, "double quotes, not backticks"),
    "in an empty list": (lambda t: t.delete([("day", "in", [])]), sw.InvalidInputError, "IN needs values"),
    "a text for an id": (lambda t: t.delete([("id", "=", "1")]), sw.InvalidInputError, "no int64"),
    "a flag for an id": (lambda t: t.delete([("id", "=", np.bool_(True))]), sw.InvalidInputError, "no int64"),
    "a fraction for an id": (lambda t: t.delete("id = 1.5"), sw.InvalidInputError, "no int64"),
    "a number for a text": (lambda t: t.delete("day = 5"), sw.InvalidInputError, "no string"),
    "a time without offset": (lambda t: t.delete("at = '2026-01-01'"), sw.InvalidInputError, "offset"),
    "rows beside the condition": (
        lambda t: t.overwrite([row(id=3)], where="id = 4"),
        sw.InvalidInputError,
        "do not satisfy",
    ),
    "a catalog of Spark's that is a number": (
        lambda t: t.append([row()], spark_catalog=7),
        sw.InvalidInputError,
        "spark_catalog=",
    ),
    "a sink with a catalog without a name": (
        lambda t: t.sink(app_id="s", spark_catalog=""),
        sw.InvalidInputError,
        "spark_catalog=",
    ),
    "a sink without a name": (lambda t: t.sink(app_id=""), sw.InvalidInputError, "app"),
    "a sink for None": (lambda t: t.sink(app_id="s")(None, 0), sw.InvalidInputError, "None is no table"),
    "an epoch that is none": (lambda t: t.sink(app_id="s")([row()], "x"), sw.InvalidInputError, "txn is"),
}


@each("format_", ["delta", "iceberg"])
@each(("call", "error", "word"), CALLS.values(), ids=list(CALLS))
def test_a_verb_with_a_wrong_argument(
    given: Given, format_: str, call: Call, error: type[sw.SafewriteError], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        call(getattr(given, format_))
    assert SAFE.search(str(caught.value)), caught.value


def _open(address: Any = "./new", **settings: Any) -> Call:
    return lambda given: sw.open(address, **settings)


def _first(data: Any, **settings: Any) -> Call:
    return lambda given: sw.open(given.folder / "fresh", create=True, **settings).append(data)


OPENINGS: dict[str, tuple[Call, type[sw.SafewriteError], str]] = {
    "a variable for a bucket": (_open("s3://${BUCKET}/t"), sw.InvalidInputError, "a variable"),
    "a variable in a path": (_open("s3://lake/${ENV}/t"), sw.InvalidInputError, "not replaced"),
    "a variable for a folder": (_open("${DATA}/t", create=True), sw.InvalidInputError, "not replaced"),
    "a file": (lambda g: sw.open(g.folder / "file"), sw.InvalidInputError, "is a file, not a folder"),
    "below a file": (
        lambda g: sw.open(g.folder / "file" / "t", create=True),
        sw.InvalidInputError,
        "is a file, not a folder",
    ),
    "no table": (lambda g: sw.open(g.folder / "nothing"), sw.TableNotFoundError, "create=True"),
    "no Iceberg table": (
        lambda g: sw.open("db.none", catalog=g.catalog),
        sw.TableNotFoundError,
        "create",
    ),
    "no seconds": (_open(timeout_s=0), sw.InvalidInputError, "above 0"),
    "seconds as text": (_open(timeout_s="5"), sw.InvalidInputError, "timeout_s="),
    "no attempts": (_open(attempts_max=0), sw.InvalidInputError, "from 1"),
    "a size as text": (_open(target_file_size="1"), sw.InvalidInputError, "target_file_size="),
    "no for checkpoints": (_open(checkpoints="no"), sw.InvalidInputError, "True or False"),
    "yes for create": (_open(create="yes"), sw.InvalidInputError, "True or False"),
    "a listener that is none": (_open(on_event="log"), sw.InvalidInputError, "on_event="),
    "an arbiter that is none": (
        _open("s3://lake/t", arbiter="dynamo"),
        sw.InvalidInputError,
        "'dynamodb'",
    ),
    "two arbiters": (
        _open("s3://lake/t", arbiter="object-store", lock_table="locks"),
        sw.InvalidInputError,
        "one arbiter",
    ),
    "a lock table for a folder": (_open(lock_table="locks"), sw.InvalidInputError, "local path"),
    "an arbiter for Iceberg": (
        lambda g: sw.open("db.t", catalog=g.catalog, arbiter="dynamodb"),
        sw.InvalidInputError,
        "its catalog",
    ),
    "partitions as text": (_open(create=True, partition_by="day"), sw.InvalidInputError, r"\['day'\]"),
    "partitions without create": (
        lambda g: sw.open(g.folder / "delta", partition_by=["day"]),
        sw.InvalidInputError,
        "create=True",
    ),
    "properties without create": (
        lambda g: sw.open("db.orders", catalog=g.catalog, properties={"a": "b"}),
        sw.InvalidInputError,
        "create=True",
    ),
    "a partition that is no column": (
        _first([{"id": 1, "day": "a"}], partition_by=["nope"]),
        sw.InvalidInputError,
        "which is no column",
    ),
    "all columns as partitions": (
        _first([{"id": 1}], partition_by=["id"]),
        sw.InvalidInputError,
        "one column out",
    ),
    "a first frame of NULL": (
        _first([{"id": None}]),
        sw.InvalidInputError,
        r"safewrite\.create\(uri, schema=",
    ),
    "a first frame without columns": (
        _first(pd.DataFrame()),
        sw.InvalidInputError,
        r"safewrite\.create\(uri, schema=",
    ),
    "a first frame of UUIDs": (_first([{"id": uuid.uuid4()}]), sw.InvalidInputError, "UUID|uuid"),
    "a duration": (_first([{"id": dt.timedelta(1)}]), sw.InvalidInputError, "Convert it to str"),
    "a space in a name": (_first([{"a b": 1}]), sw.InvalidInputError, "Rename"),
    "a slip in a key": (
        _open("s3://lake/t", storage_options={"AWS_ENDPIONT_URL": "http://127.0.0.1:9"}),
        sw.InvalidInputError,
        "'AWS_ENDPOINT_URL'",
    ),
    "keys of s3fs": (
        _open("s3://lake/t", storage_options={"key": "a", "secret": "b"}),
        sw.InvalidInputError,
        "AWS_ACCESS_KEY_ID",
    ),
    "settings in settings": (
        _open("s3://lake/t", storage_options={"client_kwargs": {"a": 1}}),
        sw.InvalidInputError,
        "client_kwargs",
    ),
    "no credentials": (
        _open("s3://lake/t", storage_options={"AWS_REGION": "us-east-1"}),
        sw.StorageError,
        "AWS_ACCESS_KEY_ID",
    ),
    "no region": (_open("s3://lake/t", lock_table="locks"), sw.StorageError, "AWS_REGION"),
    "nobody at the lock table": (
        lambda g: sw.open("s3://lake/t", storage_options=g.nobody),
        sw.StorageError,
        "Nobody answers at 127",
    ),
    "nobody at the store": (
        lambda g: sw.open("s3://lake/t", arbiter="object-store", storage_options=g.nobody),
        sw.StorageError,
        "Nobody answers at 127",
    ),
    "nobody at Glue": (
        lambda g: sw.open("db.t", catalog={"type": "glue"}, storage_options=g.nobody),
        sw.StorageError,
        "Nobody answers at 127",
    ),
    "no credentials for Glue": (
        _open("db.t", catalog={"type": "glue", "glue.region": "us-east-1"}),
        sw.StorageError,
        "AWS_ACCESS_KEY_ID",
    ),
    "nobody at a REST catalog": (
        lambda g: sw.open("db.t", catalog={"type": "rest", "uri": g.nobody["AWS_ENDPOINT_URL"]}),
        sw.StorageError,
        "address",
    ),
    "nobody at an Iceberg table's lock table": (
        lambda g: sw.open("db.orders", catalog=g.catalog, lock_table="locks", storage_options=g.nobody),
        sw.StorageError,
        "Nobody answers",
    ),
    "a Hive catalog": (_open("db.t", catalog={"type": "hive"}), sw.UnsafeConfigError, "REST, Glue or SQL"),
    "a thrift address": (
        _open("db.t", catalog={"uri": "thrift://127.0.0.1:9083"}),
        sw.UnsafeConfigError,
        "type hive",
    ),
    "a Hadoop catalog": (_open("db.t", catalog={"type": "hadoop"}), sw.UnsafeConfigError, "register_table"),
    "a catalog of no type": (_open("db.t", catalog={"type": "nope"}), sw.InvalidInputError, "catalog"),
    "a catalog nobody configured": (_open("db.t", catalog="nope"), sw.InvalidInputError, "pyiceberg"),
    "a number for a catalog": (_open("db.t", catalog=5), sw.InvalidInputError, "catalog="),
    "a name without a database": (
        lambda g: sw.open("orders", catalog=g.catalog),
        sw.InvalidInputError,
        r"db\.table",
    ),
    "a table that is there": (
        lambda g: sw.create(g.folder / "delta", SCHEMA),
        sw.ConflictError,
        "already",
    ),
    "a schema as a dict": (
        lambda g: sw.create(g.folder / "fresh", {"id": "int64"}),  # type: ignore[arg-type]
        sw.InvalidInputError,
        r"pyarrow\.schema",
    ),
    "a frame as a schema": (
        lambda g: sw.create(g.folder / "fresh", FRAME),  # type: ignore[arg-type]
        sw.InvalidInputError,
        r"pyarrow\.schema",
    ),
}


@each(("call", "error", "word"), OPENINGS.values(), ids=list(OPENINGS))
def test_a_table_that_cannot_be_opened_or_made(
    given: Given, call: Call, error: type[sw.SafewriteError], word: str
) -> None:
    with pytest.raises(error, match=word) as caught:
        call(given)
    text = str(caught.value)
    assert SAFE.search(text), text
    assert not re.search(r"'(state|swap|stage|commit|ledger|lease)\.\w+'", text), "a name of an inner step"
    if "Nobody answers" in text or "credentials were found" in text:
        assert "object-store" not in text
        assert "often passes" not in text
    assert not (given.folder / "fresh").exists()


# Odd calls that are right.
RIGHT: dict[str, tuple[Call, Any]] = {
    "a numpy number in a condition": (lambda t: t.delete([("id", "=", np.int64(77))]).outcome, "committed"),
    "a numpy text in a condition": (lambda t: t.delete([("day", "=", np.str_("z"))]).outcome, "committed"),
    "a Series in a condition": (lambda t: t.delete([("id", "in", pd.Series([78, 79]))]).outcome, "committed"),
    "a numpy number in txn": (lambda t: t.append([row(id=50)], txn=("np", np.int64(5))).key, "np/5"),
    "the same rows again": (lambda t: t.append([row()], key="first").outcome, "already_committed"),
    "the same condition again": (lambda t: t.delete("id = 900", key="gone").outcome, "already_committed"),
    "no rows": (lambda t: t.append([]).rows, 0),
    "whole floats": (lambda t: t.append(pd.DataFrame([row(id=51.0)])).rows, 1),
    "a lazy frame": (
        lambda t: t.append(pl.LazyFrame([row(id=52)], schema_overrides={"price": pl.Decimal(10, 2)})).rows,
        1,
    ),
    "an unknown key": (lambda t: t.resolve("never"), None),
}


@each("format_", ["delta", "iceberg"])
@each(("call", "result"), RIGHT.values(), ids=list(RIGHT))
def test_an_odd_call_that_is_right(given: Given, format_: str, call: Call, result: Any) -> None:
    assert call(getattr(given, format_)) == result


def test_a_new_table_with_times_without_a_zone_says_what_that_means(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "safewrite"):
        sw.open(tmp_path / "t", create=True).append([{"at": dt.datetime(2026, 1, 1), "id": 1}])  # noqa: DTZ001
    assert [
        record
        for record in caplog.records
        if "timestampNtz" in record.getMessage() and "(at)" in record.getMessage()
    ]
