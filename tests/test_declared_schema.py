"""``open(create=True, schema=)``: the table has the declared columns, whatever the first message holds."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

SCHEMA = pa.schema(
    [("id", pa.int64()), ("amount", pa.float64()), ("at", pa.timestamp("us", tz="UTC")), ("tag", pa.string())]
)
FIRST = {"id": 1, "amount": 10, "at": None, "tag": None}
SECOND = {"id": 2, "amount": 9.5, "at": None, "tag": "x"}


class Place:
    """Where a table of one format is to be, and how it is opened and read."""

    def __init__(self, form: str, folder: Path) -> None:
        self.form = form
        self.catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": str(folder / "w")}
        self.uri = str(folder / "t") if form == "delta" else "db.t"

    def open(self, **given: Any) -> Any:
        more = {} if self.form == "delta" else {"catalog": self.catalog}
        return sw.open(self.uri, **more, **given)

    def amounts(self) -> list[float]:
        """What another reader finds."""
        if self.form == "delta":
            found = deltalake.DeltaTable(self.uri).to_pyarrow_table()
        else:
            found = load_catalog("default", **self.catalog).load_table(self.uri).scan().to_arrow()
        return sorted(found["amount"].to_pylist())


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


VERBS: dict[str, Callable[[Any, list[dict[str, Any]]], Any]] = {
    "append": lambda table, rows: table.append(rows),
    "append_many": lambda table, rows: table.append_many([(str(rows), rows)]),
    "overwrite": lambda table, rows: table.overwrite(rows, where=f"id = {rows[0]['id']}"),
    "apply_changes": lambda table, rows: table.apply_changes(rows, keys=["id"], sequence_by=["amount"]),
}


@pytest.mark.sweep("delta-overwrite")
@pytest.mark.parametrize("verb", VERBS)
def test_t3_d3_a_whole_number_that_comes_first_decides_no_type(place: Place, verb: str) -> None:
    """T3-D3: after a ``10`` every ``9.5`` was refused for ever, by the handler of docs/lambda.md."""
    table = place.open(create=True, schema=SCHEMA)
    assert table.schema.names == SCHEMA.names
    for row in (FIRST, SECOND):
        VERBS[verb](table, [row])
    assert place.amounts() == [9.5, 10.0]


def test_t3_d3_who_opens_it_later_or_at_the_same_moment_gets_the_one_table(place: Place) -> None:
    found: list[Any] = []
    barrier = threading.Barrier(4)

    def open_and_append(number: int) -> None:
        barrier.wait()
        table = place.open(create=True, schema=SCHEMA)
        found.append(table.append([{**SECOND, "id": number}], key=f"k{number}"))

    threads = [threading.Thread(target=open_and_append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    again = pickle.loads(pickle.dumps(place.open(create=True, schema=SCHEMA)))
    again.append([FIRST])
    assert place.amounts() == [9.5] * 4 + [10.0]


def test_t3_d3_a_table_with_other_columns_keeps_them_and_a_warning_names_them(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.open(create=True).append([{"id": 1, "amount": 10, "more": "x"}])
    with caplog.at_level(logging.WARNING, "safewrite"):
        table = place.open(create=True, schema=SCHEMA)
    assert table.schema.names == ["id", "amount", "more"]
    (told,) = [record.getMessage() for record in caplog.records if "schema=" in record.getMessage()]
    for part in (
        "no column 'at'",
        "no column 'tag'",
        "a column 'more' more",
        "column 'amount' of the table is int64",
    ):
        assert part in told


def test_a_declared_schema_that_is_only_spelled_otherwise_warns_of_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    spelled = pa.schema(
        [("id", pa.int32()), ("text", pa.large_string()), ("raw", pa.large_binary()), ("day", pa.date32()),
         ("many", pa.list_(pa.int64())), ("kind", pa.dictionary(pa.int32(), pa.string()))]
    )  # fmt: skip
    place.open(create=True, schema=spelled)
    with caplog.at_level(logging.WARNING, "safewrite"):
        place.open(create=True, schema=spelled)
    assert not [record for record in caplog.records if "schema=" in record.getMessage()]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"create": True, "schema": {"id": "long"}}, "schema is a pyarrow.Schema, not a dict"),
        ({"create": True, "schema": "id long"}, "schema is a pyarrow.Schema, not a str"),
        ({"create": True, "schema": pa.table({"id": [1]})}, "schema is a pyarrow.Schema, not a Table"),
        ({"schema": SCHEMA}, "schema= only says how a table is made"),
        ({"create": True, "schema": pa.schema([])}, "Nothing was written"),
        (
            {"create": True, "schema": pa.schema([("a", pa.int64()), ("a", pa.int64())])},
            "Nothing was written",
        ),
        ({"create": True, "schema": pa.schema([("a", pa.null())])}, "Nothing was written"),
        ({"create": True, "schema": SCHEMA, "partition_by": ["nope"]}, "Nothing was written"),
    ],
    ids=range(8),
)
def test_a_wrong_schema_is_refused_before_anything_is_made(
    place: Place, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(sw.SafewriteError, match=text):
        place.open(**given)
    with pytest.raises(sw.TableNotFoundError):
        place.open()
