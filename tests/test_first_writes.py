"""A first write that is refused leaves nothing behind, so that the corrected one makes the table with its own schema (T3-A10)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
import safewrite.wrangler as wr

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way

FINE = pd.DataFrame({"id": [1], "t": [pd.Timestamp("2022-01-01 00:00:00.123456789")]})
"""Nanoseconds, which no table of ours has."""
GOOD = pd.DataFrame({"id": [1], "t": ["2022-01-01 00:00:00.123456789"]})
"""The same as a text: another schema."""


class Place:
    """A place for a table of one format, and what is there."""

    def __init__(self, format_: str, folder: Path) -> None:
        self.format, self.folder = format_, folder
        self.catalog = SqlCatalog(
            "local", uri=f"sqlite:///{folder}/c.db", warehouse=(folder / "lake").as_uri()
        )

    def open(self, **settings: Any) -> Any:
        if self.format == "delta":
            return sw.open(str(self.folder / "lake/db/t"), create=True, **settings)
        return sw.open("db.t", catalog=self.catalog, create=True, **settings)

    def left(self) -> list[str]:
        """Files and tables."""
        files = [str(path) for path in (self.folder / "lake").rglob("*") if path.is_file()]
        known = self.catalog.list_namespaces()
        return files + [".".join(name) for one in known for name in self.catalog.list_tables(one)]


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def one_member(table: Any) -> None:
    raise table.append_many([("k", FINE)])[0]


REFUSED: dict[str, tuple[dict[str, Any], Callable[[Any], Any]]] = {
    "append": ({}, lambda table: table.append(FINE, key="k")),
    "append of a stream's batch": ({}, lambda table: table.append(FINE, txn=("app", 1))),
    "append with new columns": ({}, lambda table: table.append(FINE, schema_mode="merge")),
    "overwrite": ({}, lambda table: table.overwrite(FINE)),
    "the only member of a group": ({}, one_member),
    "rows that where= does not take": ({}, lambda table: table.overwrite(GOOD, where="id = 2")),
    "a condition on no column": ({}, lambda table: table.overwrite(GOOD, where="nope = 2")),
    "a volatile column that is none": ({}, lambda table: table.append(GOOD, volatile=["nope"], key="k")),
    "a position that is elsewhere": ({}, lambda table: table.append(GOOD, positions={"topic": (5, 9)})),
    "a partition column that is none": ({"partition_by": ["nope"]}, lambda table: table.append(GOOD)),
    "two types in a column": ({}, lambda table: table.append([{"id": 1, "t": "a"}, {"id": 2, "t": 5}])),
    "a key that only some dicts have": ({}, lambda table: table.append([{"id": 1, "t": "a"}, {"id": 2}])),
    "a property that is none": ({"properties": {"write.parquet.compression-codec": "lzo", "delta.appendOnly": "x"}},
                                lambda table: table.append(GOOD)),
}  # fmt: skip


@pytest.mark.parametrize("how", REFUSED)
def test_a_refused_first_write_leaves_nothing_and_the_corrected_one_lands(place: Place, how: str) -> None:
    settings, call = REFUSED[how]
    with pytest.raises(sw.NotCommittedError):
        call(place.open(**settings))
    assert place.left() == []
    place.open().append(GOOD, key="k")
    assert place.open().schema.field("t").type == pa.string()


def test_the_object_of_a_refused_first_write_makes_the_table_by_the_next_one(place: Place) -> None:
    table = place.open()
    with pytest.raises(sw.WouldAlterError):
        table.append(FINE, key="k")
    assert table.append(GOOD, key="k").outcome == "committed"
    assert place.open().schema.field("t").type == pa.string()


def test_the_first_member_that_can_be_written_makes_the_table(place: Place) -> None:
    refused, landed = place.open().append_many([("a", FINE), ("b", GOOD)])
    assert isinstance(refused, sw.WouldAlterError)
    assert (landed.outcome, place.open().schema.field("t").type) == ("committed", pa.string())


def test_a_first_write_without_columns_is_told_how_to_make_the_table(place: Place) -> None:
    with pytest.raises(
        sw.InvalidInputError, match=r"Give it columns, or make the table with safewrite\.create\("
    ):
        place.open().append([], key="k")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_refused_first_call_of_awswrangler_s_leaves_nothing(place: Place, mode: Any) -> None:
    def write(frame: pd.DataFrame) -> None:
        if place.format == "delta":
            wr.to_deltalake(frame, str(place.folder / "lake/db/t"), mode=mode, s3_allow_unsafe_rename=False)
        else:
            wr.to_iceberg(
                frame,
                "db",
                "t",
                table_location=(place.folder / "lake/db/t").as_uri(),
                mode=mode,
                catalog=place.catalog,
            )

    with pytest.raises(sw.NotCommittedError):
        write(FINE)
    assert place.left() == []
    write(GOOD)
    assert place.open().schema.field("t").type == pa.string()
