"""Settings of a new table, given for one that is there: those that differ are named, and nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

import safewrite as sw
from tests.test_wrong_calls import SCHEMA, Given, row

pytestmark = pytest.mark.sweep("iceberg")  # both formats go one way


@pytest.fixture
def given(tmp_path: Path) -> Given:
    """A table of each format, without partitions, order and properties."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": str(tmp_path / "warehouse"),
    }
    delta = sw.create(tmp_path / "delta", SCHEMA)
    return Given(delta, sw.create("db.orders", SCHEMA, catalog=catalog), catalog, tmp_path, {})


def test_settings_of_a_table_that_is_there_are_named_where_they_have_no_effect(
    given: Given, caplog: pytest.LogCaptureFixture
) -> None:
    sw.open(given.folder / "delta", create=True, partition_by=["day"], properties={"owner": "me"})
    sw.open("db.orders", catalog=given.catalog, create=True, partition_by=["day"])
    told = [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()]
    assert len(told) == 2
    assert "partition_by= (the table has [])" in told[0]
    assert "property owner" in told[0]


def test_settings_that_the_table_has_are_not_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "w")}
    settings: list[tuple[Any, dict[str, Any]]] = [
        (tmp_path / "delta", {"partition_by": ["day"], "properties": {"owner": "me"}}),
        (
            "db.orders",
            {
                "catalog": catalog,
                "partition_by": ["days(at)", "bucket(4, id)"],
                "properties": {"format-version": "2", "owner": "me"},
            },
        ),
    ]
    for name, given in settings:
        for _ in range(2):
            sw.open(name, create=True, **given).append(
                [row(price=decimal.Decimal("1.00"), at=dt.datetime.now(dt.UTC))]
            )
    assert [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()] == []


@pytest.mark.long
def test_a_sort_order_a_spec_and_a_location_that_a_table_lacks_are_named(
    given: Given, caplog: pytest.LogCaptureFixture
) -> None:
    settings: dict[str, Any] = {
        "sort_by= (the table has [])": {"sort_by": ["id desc"]},
        "partition_by= (the table has [])": {"partition_by": partition_spec()},
        "location= (the table has ": {"location": "s3://elsewhere/orders"},
    }
    for message, one in [*settings.items(), ("sort_by= (the table has [])", {"sort_by": ["nothing"]})]:
        caplog.clear()
        sw.open("db.orders", catalog=given.catalog, create=True, **one)
        assert message in caplog.text
    caplog.clear()
    with pytest.raises(sw.ConflictError):
        sw.create("db.orders", SCHEMA, catalog=given.catalog, sort_by=["id"])
    assert "sort_by=" in caplog.text


def partition_spec() -> PartitionSpec:
    return PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))


def test_a_layout_that_the_table_has_is_not_named_however_it_is_spelled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = (tmp_path / "else where").as_uri()
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "w")}
    order = ["id", "bucket(4, id) desc nulls first", "day asc nulls last"]
    sw.create(
        "db.orders", SCHEMA, catalog=catalog, partition_by=["bucket(4, id)"], sort_by=order, location=place
    )
    for one in (
        {"sort_by": ["id ASC nulls first", "bucket(4,id) desc NULLS FIRST", "day nulls last"]},
        {"partition_by": partition_spec()},
        {"sort_by": sw.open("db.orders", catalog=catalog).iceberg.sort_order()},
        {"location": f"{place}/"},
        {"location": str(tmp_path / "else where")},
        {"partition_by": ()},
    ):
        sw.open("db.orders", catalog=catalog, create=True, **one)
        assert "has no effect" not in caplog.text, one
    sw.open("db.orders", catalog=catalog, create=True, sort_by=["id"])
    assert (
        f"sort_by= (the table has {['id', 'bucket(4, id) desc nulls first', 'day nulls last']})"
        in caplog.text
    )


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
def test_settings_are_compared_when_another_writer_was_first_to_make_the_table(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, format_: str
) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "w")}
    where: dict[str, Any] = {} if format_ == "delta" else {"catalog": catalog}
    name = str(tmp_path / "t") if format_ == "delta" else "db.t"
    slow = sw.open(name, create=True, partition_by=["day"], properties={"owner": "me"}, **where)
    sw.open(name, create=True, **where).append([{"id": 1, "day": "a"}])
    assert "has no effect" not in caplog.text
    for number in (2, 3):
        slow.append([{"id": number, "day": "b"}])
    told = [record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()]
    assert len(told) == 1
    assert "partition_by= (the table has [])" in told[0]
    assert "property owner (the table has None)" in told[0]


def test_a_partitioning_of_a_column_that_is_not_there_is_named(
    given: Given, caplog: pytest.LogCaptureFixture
) -> None:
    sw.open("db.orders", catalog=given.catalog, create=True, partition_by=["days(nothing)"])
    assert "partition_by= (the table has [])" in caplog.text
