"""Columns of tables that are there become wider where the source's have: the table's look-ups, rewrites and books go on."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, FloatType, IntegerType, NestedField, StructType

from safewrite.cdc.landing.dead_letters import DeadLetters
from safewrite.cdc.landing.job_plan import plan
from safewrite.cdc.records.change import KafkaRecord
from safewrite.errors import InvalidInputError
from tests.cdc.events import event, postgres, record, with_schema
from tests.cdc.jobs import Job, Rows, Source, cut
from tests.cdc.on_executors import Executors, work_of

LONG = pytest.mark.long
NARROW = pa.schema(
    [("id", pa.int32()), ("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(5, 2)),
     ("t", pa.struct([("a", pa.int32())]))]
)  # fmt: skip
FIELDS: list[dict[str, Any]] = [
    {"type": "int64", "optional": True, "field": "id"},
    {"type": "int64", "optional": True, "field": "n"},
    {"type": "double", "optional": True, "field": "f"},
    {"type": "string", "optional": True, "field": "d"},
]
STRUCTS = [{"type": "int64", "optional": True, "field": name} for name in "ab"]
FAR = 2**40


def job_of(folder: Path, form: str, **more: Any) -> Job:
    """A job over a table that others made, with narrow columns and one row."""
    widens = {"widen": True, "readers": ["spark", "databricks"]} if form == "delta" else {}
    table = {"table": "a", "primary_key": ["id"], "decimal_fields": {"d": [9, 2]}, **widens, **more}
    job = Job(folder, [table], form, {"decimal_handling_mode": "string"})
    if form == "delta":
        deltalake.write_deltalake(f"{folder}/db/a", NARROW.empty_table())
        return job
    inner = StructType(NestedField(11, "a", IntegerType(), required=False))
    kinds = [IntegerType(), IntegerType(), FloatType(), DecimalType(5, 2), inner]
    fields = [
        NestedField(at, name, kind, required=False)
        for at, (name, kind) in enumerate(zip(NARROW.names, kinds, strict=True), 1)
    ]
    catalog = load_catalog(**job.catalog())
    catalog.create_namespace("db")
    catalog.create_table("db.a", Schema(*fields))
    return job


def told(op: str, row: dict[str, Any], lsn: int, structs: int = 1) -> KafkaRecord:
    """A change with its schema, in which the struct has so many fields."""
    inner = {"type": "struct", "optional": True, "field": "t", "fields": STRUCTS[:structs]}
    given = event(op, None if op == "d" else row, row if op == "d" else None, source=postgres(lsn, "a"))
    return record(with_schema(given, [*FIELDS, inner]), {"id": row["id"]}, offset=lsn - 1)


def rows_of(job: Job) -> Rows:
    """The rows by readers that are not ours: PyIceberg; or DuckDB over the files that Delta's log has (deltalake reads no wider types)."""
    found = rows_listed(job)
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row for row in found}


def rows_listed(job: Job) -> list[dict[str, Any]]:
    if job.form == "iceberg":
        listed = job.read("a").select(NARROW.names).to_pylist()
        return [dict(one) for one in listed]
    folder, live = Path(job.folder) / "db/a", dict[str, None]()
    for path in sorted((folder / "_delta_log").glob("*.json")):
        for action in map(json.loads, path.read_text().splitlines()):
            live |= {action["add"]["path"]: None} if "add" in action else {}
            live.pop(action.get("remove", {}).get("path"), None)
    files = [str(folder / name) for name in live]
    query = "select id, n, f, d, t from read_parquet($1, union_by_name=true)"
    listed = duckdb.connect().execute(query, [files]).fetchall()
    return [dict(zip(NARROW.names, one, strict=True)) for one in listed]


def kinds_of(job: Job, *names: str) -> list[str]:
    """The types of columns as the table's metadata says."""
    if job.form == "iceberg":
        schema = load_catalog(**job.catalog()).load_table("db.a").schema()
        return [str(schema.find_field(name).field_type) for name in names]
    logs = sorted((Path(job.folder) / "db/a/_delta_log").glob("*.json"))
    actions = [json.loads(line) for path in logs for line in path.read_text().splitlines()]
    schema = json.loads([one["metaData"] for one in actions if "metaData" in one][-1]["schemaString"])
    return [str({one["name"]: one["type"] for one in schema["fields"]}[name]) for name in names]


def row(key: int, **more: Any) -> dict[str, Any]:
    return {"id": key, "n": 1, "f": 0.5, "d": "1.25", "t": {"a": 1}} | more


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize(
    ("form", "tasks"),
    [
        ("iceberg", True),
        ("delta", False),
        *(pytest.param(*one, marks=LONG) for one in (("iceberg", False), ("delta", True))),
    ],
)
def test_columns_become_wider_and_old_files_go_on(tmp_path: Path, form: str, tasks: bool) -> None:
    """Each kind of widening, of the key too; then rows of old files are updated and deleted, by keys and bounds of the narrow type.

    A driver dies between table and ledger right after it.
    """
    job = job_of(tmp_path, form)
    work = work_of(Executors() if tasks else None)

    def land(number: int, *records: KafkaRecord) -> None:
        job.landing().land(job.batch(records, number), work)

    land(0, *(told("c", row(key), key) for key in (1, 2, 3)))
    narrow = kinds_of(job, "id", "n", "f", "d")
    wide = row(FAR, n=FAR + 1, f=0.1, d="1234567.89", t={"a": FAR, "b": 2})
    job.land_and_die(told("c", wide, 4, 2), number=1)
    land(1, told("c", wide, 4, 2))
    land(2, told("u", row(1, n=7, f=0.2), 5), told("d", row(2), 6), told("u", {**wide, "n": 8}, 7, 2))
    exact = {"d": Decimal("1.25"), "t": {"a": 1, "b": None}}
    assert rows_of(job) == {
        1: row(1, n=7, f=0.2, **exact),
        3: row(3, **exact),
        FAR: {**wide, "n": 8, "d": Decimal("1234567.89")},
    }
    assert narrow != kinds_of(job, "id", "n", "f", "d")
    assert [kind.replace(" ", "") for kind in kinds_of(job, "id", "n", "f", "d")] == [
        "long",
        "long",
        "double",
        "decimal(9,2)",
    ]
    assert job.letters() == []
    assert not job.verdict().faults


class WideningSource(Source):
    """A source whose columns get more room as its log goes on, and whose rows of before stay."""

    def row(self, key: int, draw: random.Random) -> dict[str, Any]:
        stage = len(self.records) // 60
        n = draw.randrange(-5, 5) if stage < 1 else draw.choice([1, 2**31, -(2**40)])
        f = draw.choice([0.5, -3.25]) if stage < 2 else draw.choice([0.5, 0.1, 1e300])
        return {"id": key, "n": n, "f": f, "d": "1.25" if stage < 1 else draw.choice(["0.05", "1234567.89"])}


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "form", "tasks"),
    [
        (2, "delta", True),
        *(
            pytest.param(seed, form, seed % 2 == 0, marks=LONG)
            for seed in range(3, 8)
            for form in ("iceberg", "delta")
        ),
    ],
)
def test_a_log_whose_columns_widen_in_the_middle_lands_as_its_source_is(
    tmp_path: Path, seed: int, form: str, tasks: bool
) -> None:
    """Batches end anywhere, drivers die between table and ledger, and keys change and are deleted on both sides."""
    job, source, draw = job_of(tmp_path, form), WideningSource(seed, ("a",)), random.Random(seed)
    work = work_of(Executors() if tasks else None)
    for number, records in enumerate(cut(source.run(160), 40)):
        if draw.random() < 0.3:
            job.land_and_die(*records, number=number)
        job.landing().land(job.batch(records, number), work)
    wanted = {key: {**row, "d": Decimal(row["d"])} for key, row in source.rows["a"].items()}
    assert {
        key: {name: row[name] for name in ("id", "n", "f", "d")} for key, row in rows_of(job).items()
    } == wanted
    assert kinds_of(job, "n", "f") == ["long", "double"]
    assert job.letters() == []
    assert not job.verdict().faults


@pytest.mark.parametrize(
    ("form", "widen"),
    [*(pytest.param(form, False, marks=LONG) for form in ("iceberg", "delta")), ("delta", None)],
)
def test_what_may_not_be_wider_waits_as_dead_letters(tmp_path: Path, form: str, widen: bool | None) -> None:
    """New fields of structs ask for nothing of Delta's readers, so they come unasked; a job that widens lands the letters."""
    job = job_of(tmp_path, form, widen=widen, readers=[])
    job.land(told("c", row(1), 1), told("c", row(2, n=FAR), 2), told("c", row(3), 3))
    with_field = told("c", row(4, t={"a": 1, "b": 2}), 4, 2)
    job.land(with_field, number=1)
    assert sorted(rows_of(job)) == ([1, 3] if widen is False else [1, 3, 4])
    assert len(job.letters()) == (2 if widen is False else 1)
    job.tables[0] |= {"widen": True, **({"readers": ["spark"]} if form == "delta" else {})}
    assert DeadLetters(job.landing()).replay().landed == len(job.letters())
    assert sorted(rows_of(job)) == [1, 2, 3, 4]
    assert not job.verdict().faults


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=LONG)])
def test_a_column_that_no_type_holds_stays_and_the_others_are_wider(tmp_path: Path, form: str) -> None:
    """A text for a number widens nothing; a value of its batch that asks for more digits is there all the same."""
    job = job_of(tmp_path, form)
    fields = [one if one["field"] != "n" else {**one, "type": "string"} for one in FIELDS]
    text = record(
        with_schema(event("c", {"id": 2, "n": "x"}, source=postgres(2, "a")), fields), {"id": 2}, offset=1
    )
    job.land(told("c", row(1), 1), text, told("c", row(3, d="99999.99"), 3))
    assert sorted(rows_of(job)) == [1, 3]
    assert [kind.replace(" ", "") for kind in kinds_of(job, "n", "d")] in (
        ["int", "decimal(9,2)"],
        ["integer", "decimal(9,2)"],
    )
    assert [one["offset"] for one in job.letters()] == [1]


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        ("delta", "append"),
        *(
            pytest.param(*one, marks=LONG)
            for one in (("iceberg", "append"), ("delta", "history"), ("iceberg", "history"))
        ),
    ],
)
def test_a_configuration_with_more_digits_widens_in_each_mode(tmp_path: Path, form: str, mode: str) -> None:
    """A table that the job itself made: each change is a row, or each version of one."""
    own = {"primary_key": ["id"]} if mode == "history" else {"metadata": {"op": "op"}}
    table: dict[str, Any] = {"table": "a", "mode": mode, "decimal_fields": {"d": [5, 2]}, **own}
    job = Job(tmp_path, [table], form, {"decimal_handling_mode": "string"})
    job.land(told("c", row(1), 1), told("c", row(2), 2))
    table |= {
        "decimal_fields": {"d": [9, 2]},
        **({"widen": True, "readers": ["spark"]} if form == "delta" else {}),
    }
    job.land(told("u", row(1, d="1234567.25"), 3), told("c", row(3), 4), number=1)
    found = rows_listed(job)
    assert sorted((one["id"], one["d"]) for one in found) == [
        (1, Decimal("1.25")), (1, Decimal("1234567.25")), (2, Decimal("1.25")), (3, Decimal("1.25")),
    ]  # fmt: skip
    assert job.letters() == []
    assert not job.verdict().faults


def test_a_key_of_whole_numbers_stays_one(tmp_path: Path) -> None:
    """Delta would let it become binary; then no change of the table could land any more."""
    job = job_of(tmp_path, "delta")
    fields = [one if one["field"] != "id" else {**one, "type": "double"} for one in FIELDS]
    half = record(
        with_schema(event("c", {"id": 1.5, "n": 1}, source=postgres(1, "a")), fields), {"id": 1.5}, offset=0
    )
    job.land(half, told("c", row(FAR), 2))
    job.land(told("u", row(FAR, n=2), 3), number=1)
    assert {key: found["n"] for key, found in rows_of(job).items()} == {FAR: 2}
    assert [one["offset"] for one in job.letters()] == [0]


@pytest.mark.long
def test_a_driver_that_dies_between_the_wider_column_and_its_rows_leaves_nothing_undone(
    tmp_path: Path,
) -> None:
    job = job_of(tmp_path, "delta")
    job.land(told("c", row(1), 1))
    dying, wide = job.landing(), told("c", row(2, n=FAR), 2)
    widen = dying.targets.widen

    def widen_and_die(*args: Any) -> Any:
        widen(*args)
        raise KeyboardInterrupt

    dying.targets.widen = widen_and_die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        job.land(wide, landing=dying, number=1)
    assert (sorted(rows_of(job)), kinds_of(job, "n")) == ([1], ["long"])
    job.land(wide, number=1)
    assert {key: found["n"] for key, found in rows_of(job).items()} == {1: 1, 2: FAR}
    assert job.letters() == []
    assert not job.verdict().faults


def test_null_for_misfits_is_of_those_that_no_wider_type_takes(tmp_path: Path) -> None:
    """Tasks say which columns have to be wider, and the driver, which alone changes tables, makes them so before tasks decide."""
    job = job_of(tmp_path, "delta", on_misfit="null")
    landing = job.landing()
    landing.land(job.batch([told("c", row(3), 1)]), Executors().work)
    records = [told("c", row(1, n=FAR), 2), told("c", row(2, d="12345678901.00"), 3)]
    lines = landing.land(job.batch(records, 1), Executors().work)
    assert {key: (found["n"], found["d"]) for key, found in rows_of(job).items()} == {
        1: (FAR, Decimal("1.25")),
        2: (1, None),
        3: (1, Decimal("1.25")),
    }
    assert [line.by_executors for line in lines if line.table] == [2]


@pytest.mark.long
@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=LONG)])
def test_two_jobs_of_which_one_knows_the_narrow_table(tmp_path: Path, form: str) -> None:
    """Each lands what it has, and neither makes the column narrow again."""
    job = job_of(tmp_path, form)
    first, other = job.landing(), job.landing(job="other")
    first.land(job.batch([told("c", row(1), 1)]))
    other.land(job.batch([told("c", row(5), 1)]))
    first.land(job.batch([told("c", row(2, n=FAR), 2)], 1))
    other.land(job.batch([told("c", row(6, n=3), 2)], 1))
    other.land(job.batch([told("c", row(7, n=FAR), 3)], 2))
    assert {key: found["n"] for key, found in rows_of(job).items()} == {1: 1, 5: 1, 2: FAR, 6: 3, 7: FAR}


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=LONG)])
def test_a_plan_says_which_columns_become_wider(tmp_path: Path, form: str) -> None:
    job = job_of(tmp_path, form)
    job.land(told("c", row(1), 1))
    (told_of,) = plan(job.landing()).tables
    assert "d becomes decimal(9, 2) with the first value that decimal(5, 2) cannot hold" in told_of.notes
    job.tables[0]["widen"] = False
    (told_of,) = plan(job.landing()).tables
    assert any("d stays decimal(5, 2)" in note and "becomes" not in note for note in told_of.notes)
    job.tables[0]["widen"] = None
    (told_of,) = plan(job.landing()).tables
    assert any("becomes wider with widen" in note for note in told_of.notes) == (form == "delta")


@pytest.mark.parametrize("readers", [[], ["spark", "deltalake"]])
def test_delta_is_widened_only_for_readers_that_know_it(tmp_path: Path, readers: list[str]) -> None:
    job = job_of(tmp_path, "delta", readers=readers)
    with pytest.raises(InvalidInputError, match=r"widen .*typeWidening.*readers"):
        job.landing()
