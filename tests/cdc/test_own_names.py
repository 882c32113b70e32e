"""The columns that a job keeps for itself under names of one's choice: the same rows and order, and one choice for a table's life."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

import safewrite as sw
from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.landing.job_plan import plan
from tests.cdc.jobs import Job, Source, change, cut
from tests.cdc.on_executors import Executors, work_of
from tests.cdc.test_existing import made_by_others
from tests.delta.deltalog import renamed_by_spark

ORDER = {"_cdc_epoch": "run", "_cdc_sequence": "log_position"}
ALL = ORDER | {
    "_cdc_from_time": "valid_from", "_cdc_until_epoch": "until_run", "_cdc_until_sequence": "until_position",
    "_cdc_until_time": "valid_to", "_cdc_revision": "written_by",
}  # fmt: skip
HISTORY = {"mode": "history", "own_names": ALL}
LATE = {"all_late": "count"}


def read(job: Job, names: dict[str, str]) -> list[dict[str, Any]]:
    """The rows of a table by a reader that is not ours, their columns as a job calls them without a choice."""
    ours = {to: name for name, to in names.items()}
    rows = [{ours.get(name, name): value for name, value in row.items()} for row in job.read("a").to_pylist()]
    return sorted(rows, key=lambda row: (row["id"], row["_cdc_sequence"]))


@pytest.mark.sweep("delta-how1")
@pytest.mark.parametrize(
    ("form", "how", "by_tasks"),
    [
        ("delta", {}, True),
        ("delta", {"mode": "history"}, False),
        pytest.param("iceberg", {}, True, marks=pytest.mark.long),
        pytest.param("delta", {"deleted_column": "is_gone"}, False, marks=pytest.mark.long),
        pytest.param("delta", {}, False, marks=pytest.mark.long),
        pytest.param("iceberg", {}, False, marks=pytest.mark.long),
        pytest.param("iceberg", {"deleted_column": "is_gone"}, False, marks=pytest.mark.long),
        pytest.param("iceberg", {"mode": "history"}, False, marks=pytest.mark.long),
        pytest.param(
            "delta", {"sequence": "precombine", "precombine_key": ["n"]}, False, marks=pytest.mark.long
        ),
    ],
)
def test_rows_and_their_order_are_the_same_under_other_names(
    tmp_path: Path, form: str, how: dict[str, Any], by_tasks: bool
) -> None:
    """A random source whose rows change keys; a batch comes twice, and a driver dies between its two commits."""
    names, source, found = ALL if "mode" in how else ORDER, Source(7, tables=("a",)), []
    batches = cut(source.run(30), 10)
    for number, chosen in enumerate(({}, names)):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = Job(folder, [{"table": "a", "own_names": chosen, **LATE, **how}], form, schemas=True)
        executors = Executors() if by_tasks else None
        landing = job.landing()
        landing.land(job.batch(batches[0], 0), work_of(executors))
        job.land_and_die(*batches[1], number=1)
        for at in (1, 2):
            lines = landing.land(job.batch(batches[at], at), work_of(executors))
        assert all(line.by_executors == line.records for line in lines if by_tasks and line.table)
        assert not job.letters()
        assert job.verdict().faults == ()
        found.append(read(job, chosen))
    assert found[0] == found[1]
    assert {*job.read("a").schema.names} >= {*names.values()}
    assert not [name for name in job.read("a").schema.names if name.startswith("_cdc_")]


def test_columns_of_the_source_may_be_called_as_the_jobs_are_by_default(tmp_path: Path) -> None:
    """So are those of a table that a job of this library made, where that is the source; a dead letter lands by the names, too."""
    job = Job(tmp_path, [{"table": "a"}], schemas=False)
    rows = [
        {"id": 1, "_cdc_sequence": "x", "_cdc_epoch": 9},
        {"id": 1, "_cdc_sequence": "y", "_cdc_epoch": 9},
    ]
    job.land(*(change("u", "a", 1, row, lsn=at, offset=at) for at, row in enumerate(rows, 1)))
    assert [one["reason"] for one in job.letters()] == [
        "the source has columns that the job keeps (_cdc_epoch, _cdc_sequence); map their names"
    ] * 2
    job.tables = [{"table": "a", "own_names": ORDER}]
    assert DeadLetters(job.landing()).replay().dead == {}
    (row,) = job.read("a").to_pylist()
    assert (row["_cdc_sequence"], row["_cdc_epoch"], row["run"]) == ("y", 9, 0)
    assert row["log_position"] > "0"


@pytest.mark.sweep("delta-False")
@pytest.mark.parametrize(
    ("form", "by_others"),
    [
        ("delta", False),
        ("delta", True),
        pytest.param("iceberg", False, marks=pytest.mark.long),
        pytest.param("iceberg", True, marks=pytest.mark.long),
    ],
)
def test_other_names_over_a_table_are_refused(tmp_path: Path, form: str, by_others: bool) -> None:
    """Also over one that the job did not create; by the plan and by the job, which lands nothing."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"], "own_names": ORDER}], form)
    if by_others:
        made_by_others(job, form)
    job.land(change("c", "a", 1, {"id": 1, "s": "x"}, lsn=1, offset=0))
    before = job.read("a")
    for chosen in ({}, {"_cdc_epoch": "epoch"}, *([] if by_others else [{**ORDER, "_cdc_sequence": "id2"}])):
        job.tables[0]["own_names"] = chosen
        (told,) = plan(job.landing()).tables
        assert (told.what, "own_names" in told.notes[0]) == ("is refused", True)
        for work in map(work_of, (None, Executors())):
            landing = job.landing()
            with pytest.raises(sw.InvalidInputError, match="order in other columns"):
                landing.land(job.batch([change("c", "a", 2, {"id": 2, "s": "x"}, lsn=2, offset=1)], 1), work)
    assert job.read("a") == before
    job.tables[0]["own_names"] = ORDER
    job.land(change("c", "a", 2, {"id": 2, "s": "x"}, lsn=2, offset=1), number=1)
    assert sorted(job.read("a").column("id").to_pylist()) == [1, 2]


def test_names_of_before_are_refused_where_another_job_joined_the_table(tmp_path: Path) -> None:
    """A table of others with the order of a job's rows in columns of the default names."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}])
    made_by_others(job, "delta")
    job.land(change("c", "a", 1, {"id": 1, "s": "x"}, lsn=1, offset=0))
    other = job.landing(
        job="other", tables=[{"database": "db", "table": "a", "primary_key": ["id"], "own_names": ORDER}]
    )
    with pytest.raises(sw.InvalidInputError, match="log_position, run is not there"):
        other.land(job.batch([change("c", "a", 2, {"id": 2, "s": "x"}, lsn=2, offset=1)]))


def test_a_column_of_the_source_that_an_engine_renamed_is_not_added_again(tmp_path: Path) -> None:
    """Its values would be in two columns: such records are letters, which say so."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}], "iceberg")
    job.land(change("c", "a", 1, {"id": 1, "s": "x"}, lsn=1, offset=0))
    table = load_catalog(**job.catalog()).load_table("db.a")
    with table.update_schema() as schema:
        schema.rename_column("s", "t")
    job.land(change("c", "a", 2, {"id": 2, "s": "y", "new": "n"}, lsn=2, offset=1))
    (letter,) = job.letters()
    assert "column s, which another engine renamed to t" in str(letter)
    assert "s" not in job.read("a").column_names


def test_a_column_that_spark_renamed_in_a_delta_table_is_not_added_again(tmp_path: Path) -> None:
    """The twin of Iceberg's: a table that was mapped for the rename knows the names of before."""
    job = Job(tmp_path, [{"table": "a", "primary_key": ["id"]}])
    job.land(change("c", "a", 1, {"id": 1, "s": "x"}, lsn=1, offset=0))
    (log,) = tmp_path.glob("**/a/_delta_log")
    renamed_by_spark(log, "s", "t")
    job.land(change("c", "a", 2, {"id": 2, "s": "y", "new": "n"}, lsn=2, offset=1))
    (letter,) = job.letters()
    assert "column s, which another engine renamed to t" in str(letter)
    assert "s" not in sw.open(str(log.parent)).schema.names


@pytest.mark.long
def test_columns_that_an_engine_renamed_go_on_under_their_new_names(tmp_path: Path) -> None:
    """The way out that the error names."""
    job = Job(tmp_path, [{"table": "a"}], "iceberg")
    source = Source(3, tables=("a",))
    first, second = source.run(15), source.run(15)
    job.land(*first)
    found = load_catalog(**job.catalog()).load_table("db.a")
    with found.update_schema() as schema:
        for name, to in ORDER.items():
            schema.rename_column(name, to)
    job.tables[0]["own_names"] = ORDER
    with pytest.raises(sw.InvalidInputError, match="set the property"):
        job.land(*second, number=1)
    with found.transaction() as change_of:
        change_of.set_properties({"cdc.own_names": json.dumps(ORDER)})
    job.land(*second, number=1)
    rows = {row["id"]: {name: row[name] for name in ("id", "name", "n")} for row in job.read("a").to_pylist()}
    assert rows == source.rows["a"]


@pytest.mark.parametrize(
    ("name", "schemas"),
    [("_cdc_op", True), ("_cdc_op", False), ("_cdc_place", True), ("_cdc_lacks", True), ("_cdc_row", True)],
)
def test_a_column_of_the_source_by_the_name_of_a_helper_is_named(
    tmp_path: Path, name: str, schemas: bool
) -> None:
    """Changes have such columns on their way to the table: a value there would be taken for what the change does."""
    job = Job(tmp_path, [{"table": "a"}], schemas=schemas)
    row = {"id": 1, name: "d"}
    job.land(change("c", "a", 1, row, lsn=1, offset=0))
    (letter,) = job.letters()
    assert f"columns that the job keeps ({name})" in letter["reason"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"own_names": {"_cdc_epoch": "x", "_cdc_sequence": "X"}},
            "gives x to _cdc_epoch, and _cdc_sequence has that name",
        ),
        ({"own_names": {"_cdc_epoch": "_cdc_sequence"}}, "gives _cdc_sequence to _cdc_epoch"),
        ({"own_names": {"_cdc_epoch": "_CDC_op"}}, "own_names of _cdc_epoch names .* job keeps: _CDC_op"),
        ({"own_names": {"_cdc_revision": "x"}}, "only mode history"),
        (
            {"own_names": {"_cdc_epoch": "x"}, "metadata": {"X": "offset"}},
            r"metadata names .*: X \(own_names of _cdc_epoch",
        ),
        (
            {"own_names": {"_cdc_epoch": "x"}, "deleted_column": "x"},
            r"deleted_column names .*: x \(own_names of _cdc_e",
        ),
        (
            {"own_names": {"_cdc_epoch": "x"}, "partition_by": ["x"]},
            r"partition_by names .*: x \(own_names of _cdc_epoch",
        ),
        (
            {"own_names": {"_cdc_epoch": "x"}, "name_mapping": {"a": "x"}},
            r"name_mapping names .*: x \(own_names of _cdc_e",
        ),
        (
            {"own_names": {"_cdc_epoch": "x"}, "primary_key": ["x"]},
            r"primary_key names .*: x \(own_names of _cdc_epoch",
        ),
        (
            {"own_names": {"_cdc_epoch": "x"}, "shard_column": "x"},
            r"shard_column names .*: x \(own_names of _cdc_epoch",
        ),
        (
            {"metadata": {"y": "offset"}, "deleted_column": "Y"},
            "deleted_column names Y, .* there already .metadata y",
        ),
        (
            {"name_mapping": {"a": "y"}, "shard_column": "y"},
            "shard_column names y, which name_mapping has too",
        ),
        ({"own_names": {"_cdc_other": "x"}}, "_cdc_epoch"),
        (
            {"own_names": {"_cdc_epoch": "x"}, "mode": "append", "metadata": {"op": "op"}},
            "own_names do nothing",
        ),
        ({"properties": {"cdc.own_names": "{}"}}, "set own_names"),
    ],
)
def test_names_that_clash_or_do_nothing_are_refused(
    tmp_path: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(sw.InvalidInputError, match=why):
        Job(tmp_path, [{"table": "a", **options}]).landing()
