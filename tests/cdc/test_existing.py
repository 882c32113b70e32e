"""Tables that were made by others, and columns of which the first batch tells no type (T3-B11, T3-B12)."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, LongType, NestedField, StringType, StructType

import safewrite as sw
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.landing.job_plan import plan
from tests.cdc.jobs import Job, change

FORMS = ("delta", "iceberg")
FIELDS: list[tuple[str, Any, bool]] = [
    ("id", LongType(), True),
    ("s", StringType(), True),
    ("n", LongType(), False),
]
NESTED = StructType(
    NestedField(11, "a", LongType(), required=True), NestedField(12, "b", LongType(), required=False)
)


def made_by_others(job: Job, form: str, *, nested: bool = False) -> None:
    """A table with NOT NULL in its key and another column, maybe in a field of a struct; the key is Iceberg's identifier."""
    if form == "delta":
        inner = pa.struct([pa.field("a", pa.int64(), nullable=False), ("b", pa.int64())])
        kinds = {"id": pa.int64(), "s": pa.string(), "n": pa.int64()}
        own = [pa.field(name, kinds[name], not needed) for name, _, needed in FIELDS]
        schema = pa.schema([*own, *([pa.field("t", inner)] if nested else [])])
        deltalake.write_deltalake(f"{job.folder}/db/a", schema.empty_table())
        return
    fields = [
        NestedField(at, name, kind, required=needed) for at, (name, kind, needed) in enumerate(FIELDS, 1)
    ]
    fields += [NestedField(4, "t", NESTED, required=False)] if nested else []
    catalog = load_catalog(**job.catalog())
    catalog.create_namespace("db")
    catalog.create_table("db.a", Schema(*fields, identifier_field_ids=[1]))


@pytest.mark.sweep("iceberg-False", "delta-False", "delta-True")
@pytest.mark.parametrize("schemas", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_table_with_not_null_and_identifier_fields_gets_columns_and_rows(
    tmp_path: Path, form: str, schemas: bool
) -> None:
    """T3-B12.  A delete and a value that the source left out need no value there; NULL of an upsert is a dead letter."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}], form, schemas=schemas)
    made_by_others(job, form)
    rows = [{"id": key, "s": "x", "n": key} for key in range(4)]
    job.land(*(change("c", "a", row["id"], row, lsn=row["id"] + 1, offset=row["id"]) for row in rows))
    assert sorted(job.rows("a")) == [0, 1, 2, 3]
    job.land(
        change("u", "a", 0, {"id": 0, "s": None, "n": 9}, lsn=10, offset=4),
        change("d", "a", 1, lsn=11, offset=5),
        change("u", "a", 2, {"id": 2, "s": "__debezium_unavailable_value", "n": 9}, lsn=12, offset=6),
        change("u", "a", 3, {"id": 3, "s": "y", "n": None}, lsn=13, offset=7),
    )
    found = {key: (row["s"], row["n"]) for key, row in job.rows("a").items()}
    assert found == {0: ("x", 0), 2: ("x", 9), 3: ("y", None)}
    (letter,) = job.letters()
    assert (letter["offset"], "NOT NULL" in letter["reason"]) == (4, True)
    assert not job.verdict().faults


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_null_in_a_field_that_must_not_be_null_is_that_records_fault(tmp_path: Path, form: str) -> None:
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}], form, schemas=False)
    made_by_others(job, form, nested=True)
    values = [{"a": 1, "b": None}, {"a": 2, "b": 2}, {"a": None, "b": 1}, {"b": 1}]
    job.land(
        *(
            change("c", "a", key, {"id": key, "s": "x", "t": one}, lsn=key + 1, offset=key)
            for key, one in enumerate(values)
        )
    )
    assert sorted(job.rows("a")) == [0, 1]
    assert [one["offset"] for one in job.letters()] == [2, 3]


def test_a_table_of_somebody_else_in_which_no_row_fits_stays_as_it_is(tmp_path: Path) -> None:
    """It got all columns of the records, and then each record was a dead letter for its key."""
    job, place = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}]), str(tmp_path / "db" / "a")
    deltalake.write_deltalake(place, pa.table({"id": ["x"]}))
    job.land(*(change("c", "a", key, {"id": key, "n": key}, lsn=key + 1, offset=key) for key in range(3)))
    assert [one["offset"] for one in job.letters()] == [0, 1, 2]
    assert deltalake.DeltaTable(place).to_pyarrow_table().to_pydict() == {"id": ["x"]}
    assert not job.verdict().faults


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("form", FORMS)
def test_a_partition_column_that_is_null_in_the_first_batch_is_declared(tmp_path: Path, form: str) -> None:
    """T3-B11.  Until it is, nothing is committed, and the error names the setting."""
    options: dict[str, Any] = {"table": "a", "partition_by": ["country"]}
    job = Job(tmp_path, [options], form, schemas=False)
    first = [change("c", "a", key, {"id": key, "country": None}, lsn=key + 1, offset=key) for key in (0, 1)]
    with pytest.raises(sw.InvalidInputError, match=r"country.*column_types"):
        job.land(*first)
    options["column_types"] = {"country": "string"}
    job.land(*first)
    job.land(change("c", "a", 2, {"id": 2, "country": "de"}, lsn=3, offset=2))
    assert {key: row["country"] for key, row in job.rows("a").items()} == {0: None, 1: None, 2: "de"}


def test_what_is_declared_goes_before_what_values_look_like(tmp_path: Path) -> None:
    declared = {"n": "string", "m": "float64", "o": "int64"}
    job = Job(tmp_path, [{"table": "a", "column_types": declared}], schemas=False)
    job.land(
        change("c", "a", 0, {"id": 0, "n": "7", "m": 1, "o": None}, lsn=1, offset=0),
        change("c", "a", 1, {"id": 1, "n": 7, "m": 1, "o": 1}, lsn=2, offset=1),
        change("c", "a", 2, {"id": 2, "n": None, "m": 1.5, "o": 2}, lsn=3, offset=2),
    )
    schema = job.read("a").schema
    assert [schema.field(name).type for name in declared] == [pa.string(), pa.float64(), pa.int64()]
    assert sorted(job.rows("a")) == [0, 2]  # a number is no text


def test_tables_that_nobody_named_and_cannot_be_made_stop_no_other(tmp_path: Path) -> None:
    """``partition_by`` of ``defaults`` names a column that one of them lacks."""
    defaults = {"partition_by": ["country"]}
    job = Job(
        tmp_path,
        [],
        settings={"unknown_tables": "create", "unknown_database": "raw", "defaults": defaults},
        schemas=False,
    )
    lines = job.land(
        change("c", "with", 0, {"id": 0, "country": "de"}, lsn=1, offset=0),
        change("c", "without", 1, {"id": 1}, lsn=2, offset=1),
        change("c", "with", 2, {"id": 2, "country": "de"}, lsn=3, offset=2),
    )
    assert len(job.read("public_with", "raw")) == 2
    assert [one["offset"] for one in job.letters()] == [1]
    assert all(line.adds_up for line in lines)
    assert not job.verdict().faults


@pytest.mark.long
def test_what_another_engine_widened_takes_the_values_that_waited(tmp_path: Path) -> None:
    """A decimal with more digits, and a struct with a new field: dead letters until then, and rows once they are replayed."""
    kinds = [
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "n", DecimalType(5, 2), required=False),
        NestedField(3, "t", StructType(NestedField(4, "a", LongType(), required=False)), required=False),
    ]
    table = {"table": "a", "primary_key": ["id"], "decimal_fields": {"n": [9, 2]}, "widen": False}
    job = Job(tmp_path, [table], "iceberg", {"decimal_handling_mode": "string"})
    catalog = load_catalog(**job.catalog())
    catalog.create_namespace("db")
    catalog.create_table("db.a", Schema(*kinds))
    running = job.landing()
    job.land(change("c", "a", 1, {"id": 1, "n": "123.45", "t": {"a": 1}}, lsn=1, offset=0), landing=running)
    wide = change("c", "a", 2, {"id": 2, "n": "1234567.89", "t": {"a": 1}}, lsn=2, offset=1)
    job.land(
        wide,
        change("c", "a", 3, {"id": 3, "n": None, "t": {"a": 1, "b": 2}}, lsn=3, offset=2),
        landing=running,
    )
    assert len(job.letters()) == 2
    with catalog.load_table("db.a").update_schema() as update:
        update.update_column("n", DecimalType(9, 2))
        update.add_column(("t", "b"), LongType())
    assert DeadLetters(running).replay().landed == 2
    job.land(
        change("c", "a", 4, {"id": 4, "n": "7654321.00", "t": {"a": 2, "b": 3}}, lsn=4, offset=3),
        landing=running,
    )
    rows = {row["id"]: (row["n"], row["t"]) for row in job.read("a").to_pylist()}
    assert rows == {
        1: (Decimal("123.45"), {"a": 1, "b": None}),
        2: (Decimal("1234567.89"), {"a": 1, "b": None}),
        3: (None, {"a": 1, "b": 2}),
        4: (Decimal("7654321.00"), {"a": 2, "b": 3}),
    }
    assert job.verdict().faults == ()


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        ({}, {"mode": "append", "metadata": {"op": "op"}}, "landed rows in db.a by their keys"),
        ({"mode": "append", "metadata": {"op": "op"}}, {}, "Rows were landed in db.a with their order"),
    ],
)
def test_a_table_that_one_mode_joined_is_refused_to_the_other(
    tmp_path: Path, first: dict[str, Any], then: dict[str, Any], why: str
) -> None:
    """The table was there before the job, so its columns and positions alone say how its rows are kept."""
    job = Job(tmp_path, [{"table": "a", **first}])
    deltalake.write_deltalake(f"{job.folder}/db/a", pa.table({"id": [0], "n": [0]}))
    job.land(change("c", "a", 1, {"id": 1, "n": 1}, lsn=1, offset=0))
    job.tables = [{"table": "a", **then}]
    with pytest.raises(sw.InvalidInputError, match=why):
        job.land(change("c", "a", 2, {"id": 2, "n": 2}, lsn=2, offset=1))
    assert plan(job.landing()).is_refused
    assert len(job.read("a")) == 2
