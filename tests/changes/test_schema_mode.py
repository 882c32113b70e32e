"""``schema_mode=`` of ``apply_changes``: the columns that changes bring come to the table in the commit of their rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.table.sink import Sink
from safewrite.testing.steps import Answers, At
from tests.changes.tasked import by_tasks
from tests.changes.test_tables import COMMIT
from tests.delta.logs import body, metadata
from tests.delta.test_mapped_columns import column
from tests.each import each
from tests.iceberg import v3_tables as v3

SCHEMA = pa.schema({"id": pa.int64(), "at": pa.int64(), "n": pa.int32(), "note": pa.string()})
HOW: dict[str, Any] = {"keys": ["id"], "sequence_by": ["at"], "delete_when": [("op", "=", "d")]}
MARKS = {"delta": {"delta.enableDeletionVectors": "true"}, "iceberg": {"write.merge.mode": "merge-on-read"}}
FIRST = [{"op": "c", "id": key, "at": 1, "n": key, "note": f"old {key}"} for key in range(4)]
MORE = [
    {"op": "u", "id": 1, "at": 2, "n": 10, "note": "one", "more": "x"},
    {"op": "d", "id": 2, "at": 2, "n": None, "note": None, "more": None},
    {"op": "c", "id": 9, "at": 2, "n": 9, "note": "nine", "more": "y"},
]
AFTER = [
    (0, 1, 0, "old 0", None),
    (1, 2, 10, "one", "x"),
    (3, 1, 3, "old 3", None),
    (9, 2, 9, "nine", "y"),
]


class Killed(BaseException):
    """Ends a write where it is, as the end of its process would."""


@dataclass
class Place:
    """One table, and who reads it."""

    form: str
    folder: Path
    catalog: Any = None

    def make(self, schema: pa.Schema = SCHEMA, **properties: str) -> Any:
        if self.form == "delta":
            table = sw.create(self.folder / "t", schema, properties=properties)
        else:
            root = self.folder
            self.catalog = SqlCatalog("local", uri=f"sqlite:///{root}/c.db", warehouse=root.as_uri())
            table = sw.create("db.t", schema, catalog=self.catalog, properties=properties)
        table.apply_changes(FIRST, key="first", **HOW)
        return table

    def open(self) -> Any:
        if self.form == "delta":
            return sw.open(self.folder / "t")
        return sw.open("db.t", catalog=self.catalog)

    def others(self) -> Iterator[list[dict[str, Any]]]:
        """The rows as other libraries read them."""
        if self.form == "delta":
            there = deltalake.DeltaTable(self.folder / "t")
            yield pa.table(
                deltalake.QueryBuilder().register("t", there).execute("SELECT * FROM t").read_all()
            ).to_pylist()
            yield pl.scan_delta(str(self.folder / "t")).collect().to_dicts()
        else:
            yield self.catalog.load_table("db.t").scan().to_arrow().to_pylist()
            found = pl.scan_iceberg(self.catalog.load_table("db.t"), reader_override="pyiceberg")
            yield found.collect().to_dicts()


def rows(table: Any) -> list[tuple[Any, ...]]:
    found = table.refresh().rows(where=[("id", ">=", 0)]).to_pylist()
    return sorted(tuple(one.values()) for one in found)


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def by(way: str) -> Any:
    return by_tasks() if way == "tasks" else nullcontext()


@pytest.mark.sweep(
    *(
        "delta-False-tasks",
        "delta-True-here",
        "iceberg-False-here",
        "iceberg-False-tasks",
        "iceberg-True-here",
    )
)
@pytest.mark.parametrize("way", ["here", "tasks"])
@pytest.mark.parametrize("marks", [False, True])
def test_one_commit_adds_the_column_and_applies_the_changes(place: Place, way: str, marks: bool) -> None:
    table = place.make(**(MARKS[place.form] if marks else {}))
    before = len(table.history())
    with by(way):
        with pytest.raises(
            sw.WouldAlterError, match=r"'more'.*or add it to the table with schema_mode='merge'"
        ):
            table.apply_changes(MORE, key="more", **HOW)
        receipt = table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
        assert (receipt.changes["inserted"], receipt.changes["updated"], receipt.changes["deleted"]) == (
            1,
            1,
            1,
        )
        assert len(table.history()) == before + 1
        for mode in ("merge", "widen", None):
            again = place.open().apply_changes(MORE, key="more", schema_mode=mode, **HOW)
            assert (again.outcome, again.version) == ("already_committed", receipt.version)
    assert rows(table) == AFTER
    if not marks:  # polars reads no deletion vectors
        for found in place.others():
            assert sorted(tuple(one.values()) for one in found) == AFTER
    late = [{"op": "u", "id": 2, "at": 1, "n": 1, "note": "", "more": ""}]
    assert table.apply_changes(late, all_late="count", **HOW).changes["late"] == 1


@pytest.mark.sweep("delta-tasks", "iceberg-here")
@pytest.mark.parametrize("way", ["here", "tasks"])
def test_a_column_becomes_as_wide_as_the_changes_and_a_key_stays_as_it_is(place: Place, way: str) -> None:
    narrow = SCHEMA.set(0, pa.field("id", pa.int32())).set(1, pa.field("at", pa.int32()))
    table = place.make(narrow)
    wide = [{"op": "u", "id": 1, "at": 2, "n": 2**40, "note": "one"}]
    with by(way):
        with pytest.raises(sw.WouldAlterError):
            table.apply_changes(wide, schema_mode="merge", **HOW)
        receipt = table.apply_changes(wide, key="wide", schema_mode="widen", **HOW)
        assert table.refresh().schema.types == [pa.int32(), pa.int32(), pa.int64(), pa.string()]
        again = table.apply_changes(wide, key="wide", schema_mode="widen", **HOW)
        assert (again.version, again.outcome) == (receipt.version, "already_committed")
        head = table.refresh().version
        for name in ("id", "at"):
            with pytest.raises(sw.WouldAlterError, match=f"{name}.*\n?.*Nothing was written"):
                table.apply_changes([{**wide[0], name: 2**40}], schema_mode="widen", **HOW)
        assert table.refresh().version == head
    assert [one[2] for one in rows(table)] == [0, 2**40, 2, 3]
    assert table.apply_changes([{**wide[0], "at": 3, "n": 5}], **HOW).changes["updated"] == 1


def test_a_column_that_changes_lack_is_null_and_no_other_write(place: Place) -> None:
    """As it is where an append lacks one; so one that others add between two tries makes no other write of it."""
    table = place.make()
    lacking = [{"op": "u", "id": 1, "at": 2, "n": 10}]
    with pytest.raises(sw.WouldAlterError, match=r"'note'.* or pass schema_mode='merge' to mean NULL"):
        table.apply_changes(lacking, **HOW)
    receipt = table.apply_changes(lacking, key="k", schema_mode="merge", **HOW)
    assert rows(table)[1] == (1, 2, 10, None)
    place.open().append([{"id": 20, "at": 1, "n": 1, "note": "", "late": 1}], schema_mode="merge")
    for same in (lacking, [{**lacking[0], "note": None}], [{**lacking[0], "note": None, "late": None}]):
        assert (
            place.open().apply_changes(same, key="k", schema_mode="merge", **HOW).version == receipt.version
        )
    with pytest.raises(sw.ReplayMismatchError):
        table.apply_changes([{**lacking[0], "note": ""}], key="k", schema_mode="merge", **HOW)


BESIDE: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "what tells deletes": ({"new": 1}, {}, ["new"]),
    "a list of what is unchanged": ({"new": 1, "lacks": ["note"]}, {"unchanged": "lacks"}, ["new"]),
    "what columns= leaves out": (
        {"new": 1, "b": 2},
        {"columns": ["id", "at", "n", "note", "b"]},
        ["b"],
    ),
    "what columns= names, though it tells deletes": (
        {"new": 1},
        {"columns": ["id", "at", "n", "note", "op"]},
        ["op"],
    ),
}


@each(("more", "how", "added"), BESIDE.values(), ids=list(BESIDE))
def test_only_columns_of_the_rows_are_added(
    place: Place, more: dict[str, Any], how: dict[str, Any], added: list[str]
) -> None:
    table = place.open() if (place.folder / "made").exists() else place.make()
    (place.folder / "made").touch()
    had = [name for name in table.schema.names if name not in SCHEMA.names]
    changes = [{"op": "u", "id": 1, "at": len(table.history()) + 2, "n": 1, "note": "x", **more}]
    table.apply_changes(changes, schema_mode="merge", **(HOW | how))
    now = [name for name in table.refresh().schema.names if name not in SCHEMA.names]
    assert [name for name in now if name not in had] == [name for name in added if name not in had]
    assert "lacks" not in now


WRONG: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a mode that there is not": (
        MORE,
        {"schema_mode": "overwrite"},
        "schema_mode is None or 'merge' or 'widen'",
    ),
    "a key that is no column": (MORE, {"keys": ["more"]}, "keys= names 'more', which is no column"),
    "a sequence that is no column": (MORE, {"sequence_by": ["more"]}, "sequence_by= names 'more'"),
    "a column that nobody has": (
        MORE,
        {"columns": ["id", "at", "n", "note", "none"]},
        r"columns= names \['none'\]",
    ),
    "NULL alone": ([{**one, "more": None} for one in MORE], {}, "'more' holds only NULL"),
    "a name twice": ([{**one, "NOTE": "x"} for one in MORE], {}, "NOTE"),
}


@each(("data", "how", "says"), WRONG.values(), ids=list(WRONG))
def test_a_wrong_call_is_refused_before_anything_is_uploaded(
    place: Place, data: list[dict[str, Any]], how: dict[str, Any], says: str
) -> None:
    made = place.folder / "made"
    table = place.open() if made.exists() else place.make()
    made.touch()
    files = sorted(place.folder.rglob("*.parquet"))
    with pytest.raises(sw.NotCommittedError, match=says) as told:
        table.apply_changes(data, **(HOW | {"schema_mode": "merge"} | how))
    assert "Nothing was written" in str(told.value)
    assert sorted(place.folder.rglob("*.parquet")) == files


# --- beside others -------------------------------------------------------------------------------------
def theirs(name: str, value: Any) -> list[dict[str, Any]]:
    return [{"op": "u", "id": 3, "at": 5, "n": 30, "note": "three", name: value}]


@pytest.mark.sweep("delta-more-tasks", "delta-other-here", "delta-other-tasks")
@pytest.mark.sweep("iceberg-more-here", "iceberg-more-tasks", "iceberg-other-here")
@pytest.mark.parametrize("way", ["here", "tasks"])
@pytest.mark.parametrize("name", ["more", "other"])
def test_a_rival_that_adds_a_column_first_makes_the_plan_anew(place: Place, way: str, name: str) -> None:
    table, rival = place.make(), place.open()

    def act() -> None:
        rival.apply_changes(theirs(name, "z"), schema_mode="merge", **HOW)

    table.world = At(table.world, COMMIT[place.form], "before", act)
    with by(way):
        receipt = table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
    assert receipt.changes["updated"] == 1
    assert table.refresh().schema.names == [*SCHEMA.names, *dict.fromkeys([name, "more"])]
    there = {one["id"]: one for one in table.rows(where=[("id", ">=", 0)]).to_pylist()}
    assert [there[key]["more"] for key in (1, 9)] == ["x", "y"]
    assert there[3][name] == "z"
    assert set(there) == {0, 1, 3, 9}


def test_a_rival_that_adds_the_column_with_another_type_stops_the_write(place: Place) -> None:
    table, rival = place.make(), place.open()
    table.world = At(
        table.world,
        COMMIT[place.form],
        "before",
        lambda: rival.apply_changes(theirs("more", 1.5), schema_mode="merge", **HOW),
    )
    with pytest.raises(sw.WouldAlterError, match="'more'"):
        table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
    assert place.open().resolve("more") is None
    assert [one[0] for one in rows(rival)] == [0, 1, 2, 3]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_writer_that_is_killed_at_its_commit_has_done_it_or_not(place: Place, when: str) -> None:
    table = place.make()

    def die() -> None:
        raise Killed

    table.world = At(table.world, COMMIT[place.form], when, die)
    with pytest.raises(Killed):
        table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
    other = place.open()
    assert ("more" in other.schema.names) == (when == "after")
    receipt = other.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
    assert receipt.outcome == ("already_committed" if when == "after" else "committed")
    assert rows(other) == AFTER


def test_a_lost_answer_is_looked_up_and_nothing_is_applied_twice(place: Place) -> None:
    table = place.make()
    before = len(table.history())
    table.world = Answers(table.world, COMMIT[place.form], times=1)
    receipt = table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
    assert table.apply_changes(MORE, key="more", schema_mode="merge", **HOW).version == receipt.version
    assert len(table.history()) == before + 1
    assert rows(table) == AFTER


# --- many members --------------------------------------------------------------------------------------
def test_a_member_sees_the_columns_of_those_before_it(place: Place) -> None:
    table = place.make()
    before = len(table.history())
    members = [
        ("a", [{"op": "u", "id": 1, "at": 2, "n": 1, "note": "a", "p": 1.5}]),
        ("wrong", [{"op": "u", "id": None, "at": 2, "n": 1, "note": "a", "never": 1.5}]),
        ("b", [{"op": "u", "id": 2, "at": 2, "n": 1, "note": "b", "q": "Q", "p": 2.5}]),
        ("c", [{"op": "u", "id": 1, "at": 3, "n": 1, "note": "c"}]),
        ("unfit", [{"op": "u", "id": 1, "at": 4, "n": 1, "note": "c", "p": "text"}]),
    ]
    answers = table.apply_changes_many(members, schema_mode="merge", **HOW)
    assert [type(one) for one in answers] == [
        sw.Receipt,
        sw.InvalidInputError,
        sw.Receipt,
        sw.Receipt,
        sw.WouldAlterError,
    ]
    assert len(table.history()) == before + 1
    assert table.refresh().schema.names == [*SCHEMA.names, "p", "q"]
    assert rows(table)[1:3] == [(1, 3, 1, "c", None, None), (2, 2, 1, "b", 2.5, "Q")]
    again = place.open().apply_changes_many(
        [one for one in members if one[0] in "abc"], schema_mode="merge", **HOW
    )
    assert {one.outcome for one in again} == {"already_committed"}
    assert again[2].version == answers[0].version


def test_changes_that_bring_no_column_are_planned_as_without_a_mode(place: Place) -> None:
    """They change no schema, and may share commits."""
    table = place.make()
    before = table.schema
    receipt = table.apply_changes([{**FIRST[1], "at": 2}], key="plain", schema_mode="merge", **HOW)
    assert table.refresh().schema.equals(before, check_metadata=True)
    assert table.apply_changes([{**FIRST[1], "at": 2}], key="plain", **HOW).version == receipt.version


# --- features of tables --------------------------------------------------------------------------------
def mapped(folder: Path) -> Place:
    """A table of Delta whose files know columns by other names, with row ids, vectors and a change feed."""
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    wanted = dict.fromkeys(("delta.enableChangeDataFeed", "delta.enableDeletionVectors"), "true")
    kinds = [("id", "long"), ("at", "long"), ("n", "integer"), ("note", "string")]
    columns = [column(name, number, kind, f"p{number}") for number, (name, kind) in enumerate(kinds, 1)]
    both = ["columnMapping", "deletionVectors"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": both}
    writers = {"writerFeatures": [*both, "changeDataFeed", "invariants", "appendOnly"]}
    made = metadata(properties=mode | wanted, columns=columns)
    log = folder / "t" / "_delta_log"
    log.mkdir(parents=True)
    info = {"commitInfo": {"operation": "CREATE TABLE", "engineInfo": "Spark"}}
    (log / f"{0:020d}.json").write_bytes(body(info, {"protocol": protocol | writers}, made))
    place = Place("delta", folder)
    place.open().apply_changes(FIRST, key="first", **HOW)
    return place


@pytest.mark.sweep("tasks")
@pytest.mark.parametrize("way", ["here", "tasks"])
def test_a_mapped_table_with_a_feed_and_vectors_gets_the_column(tmp_path: Path, way: str) -> None:
    """It gets the next id; its name in files is one that no column had."""
    place = mapped(tmp_path)
    table = place.open()
    with by(way):
        table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
    assert rows(table) == AFTER
    feed = table.changes_since(table.version - 1).read().to_pylist()
    told = sorted((one["_change_type"], one["id"], one["more"]) for one in feed)
    assert told == [
        ("delete", 2, None),
        ("insert", 9, "y"),
        ("update_postimage", 1, "x"),
        ("update_preimage", 1, None),
    ]
    found = next(place.others())  # polars reads no such table
    assert sorted(tuple(one.values()) for one in found) == AFTER


@pytest.mark.sweep("tasks")
@pytest.mark.parametrize("way", ["here", "tasks"])
def test_a_table_of_format_version_3_gets_the_column_and_rows_keep_their_ids(
    tmp_path: Path, way: str
) -> None:
    catalog = v3.lake(tmp_path)
    sw.create(v3.NAME, SCHEMA, catalog=catalog, properties=MARKS["iceberg"])
    v3.upgrade(catalog)
    table = sw.open(v3.NAME, catalog=catalog)
    table.apply_changes(FIRST, key="first", **HOW)
    ids = {key: number for key, (number, _) in v3.lineage(table).items()}
    with by(way):
        receipt = table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
        again = table.apply_changes(MORE, key="more", schema_mode="merge", **HOW)
        assert again.version == receipt.version
    assert rows(table) == AFTER
    now = {key: number for key, (number, _) in v3.lineage(table).items()}
    assert {key: now[key] for key in (0, 1, 3)} == {key: ids[key] for key in (0, 1, 3)}
    assert now[9] not in ids.values()


@pytest.mark.sweep("tasks")
@pytest.mark.parametrize("way", ["here", "tasks"])
def test_a_column_that_the_table_computes_is_not_made_null(tmp_path: Path, way: str) -> None:
    """Nor is its default drawn anew by each repeat: a change has to bring it, with a mode, too."""
    catalog = v3.lake(tmp_path)
    sw.create(v3.NAME, SCHEMA, catalog=catalog)
    v3.upgrade(catalog)
    v3.add_column(catalog, "long", column="d", **{"write-default": 5})
    table = sw.open(v3.NAME, catalog=catalog)
    with by(way):
        with pytest.raises(sw.WouldAlterError, match="'d'"):
            table.apply_changes(FIRST, schema_mode="merge", **HOW)
        given = [{**one, "d": 7, "more": "x"} for one in FIRST]
        assert table.apply_changes(given, schema_mode="merge", **HOW).changes["inserted"] == 4


def test_a_column_by_which_a_rule_goes_gets_no_wider(tmp_path: Path) -> None:
    place = mapped(tmp_path)
    log = place.folder / "t" / "_delta_log"
    lines = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    made = next(one["metaData"] for one in lines if "metaData" in one)
    made["configuration"]["delta.constraints.few"] = "n < 100"
    protocol = next(one["protocol"] for one in lines if "protocol" in one)
    protocol["writerFeatures"].append("checkConstraints")
    (log / f"{2:020d}.json").write_bytes(body({"protocol": protocol}, {"metaData": made}))
    table = place.open()
    with pytest.raises(sw.InvalidInputError, match="'n' cannot become wider"):
        table.apply_changes([{**FIRST[1], "at": 2}], schema_mode="widen", **HOW)
    with pytest.raises(sw.WouldAlterError, match="few"):
        table.apply_changes([{**FIRST[1], "at": 2, "n": 100, "more": 1}], schema_mode="merge", **HOW)
    assert table.apply_changes([{**FIRST[1], "at": 2, "more": 1}], schema_mode="merge", **HOW).rows == 1


def test_a_sink_passes_the_mode_on(place: Place) -> None:
    table = place.make()
    declared = {name: HOW[name] for name in HOW}
    sink: Sink = table.sink("apply_changes", app_id="s", schema_mode="widen", changes=declared)
    sink(MORE, 1)
    assert rows(table) == AFTER
    with pytest.raises(sw.InvalidInputError, match="schema_mode"):
        table.sink("apply_changes", app_id="s", schema_mode="overwrite", changes=declared)
    with pytest.raises(sw.InvalidInputError, match="schema_mode"):
        table.sink("append", app_id="s", schema_mode="widen")
