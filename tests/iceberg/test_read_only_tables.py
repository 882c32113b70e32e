"""A table of format version 3 is opened and read right, and refused by all that would lose the ids of its rows (issues Y 5, U 1)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.manifest as avro
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import RemoveStatisticsUpdate
from pyiceberg.typedef import Record

import safewrite as sw
from safewrite.findings import Severity
from safewrite.iceberg.connect import look
from safewrite.iceberg.maintenance.doctor import examine
from safewrite.iceberg.maintenance.verify import read_head, read_rows
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.change import SwapTable
from safewrite.stores.world import Performer
from safewrite.testing.steps import Stepwise
from tests.iceberg import v3_tables as v3

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string(), "s": pa.struct([("a", pa.int64())])})
REFUSED = "format version 3.*Nothing was written.*'format-version' = '2'"
NAIVE = dt.datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - a time without a zone


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "v": f"v{number}", "s": {"a": number}} for number in ids]


def opened(properties: Any, **how: Any) -> IcebergTable:
    table = sw.open(v3.NAME, catalog=properties, **how)
    assert isinstance(table, IcebergTable)
    return table


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """A catalog with a table of format version 2, of two data files."""
    properties = v3.lake(tmp_path)
    table = sw.create(v3.NAME, SCHEMA, catalog=properties)
    table.append(rows(*range(10)), key="first")
    table.append(rows(*range(10, 15)), key="second")
    return properties


def stored(folder: Path) -> dict[str, int]:
    """All files of a lake but the catalog's own, by their size."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and ".db" not in path.name
    }


def ids(table: sw.Table) -> list[int]:
    return sorted(table.rows(where="true", columns=["id"])["id"].to_pylist())


# --- writers --------------------------------------------------------------------------------------------
WRITERS: dict[str, Callable[[IcebergTable], object]] = {
    "append": lambda t: t.append(rows(1)),
    "append_many": lambda t: t.append_many([("a", rows(1)), ("b", rows(2))]),
    "overwrite": lambda t: t.overwrite(rows(1), where="id = 1"),
    "delete": lambda t: t.delete("id = 1"),
    "apply_changes": lambda t: t.apply_changes(rows(1), keys=["id"], sequence_by=["v"]),
    "apply_changes_many": lambda t: t.apply_changes_many([("a", rows(1))], keys=["id"], sequence_by=["v"]),
    "check_writable": lambda t: t.check_writable(),
    "in_tasks": lambda t: t.in_tasks(),
    "maintain": lambda t: t.maintain(),
}
OTHER_WRITERS: dict[str, Callable[[IcebergTable], object]] = {
    "a known key": lambda t: t.append(rows(*range(10)), key="elsewhere"),
    "a batch": lambda t: t.append(rows(1), txn=("app", 1)),
    "positions": lambda t: t.append(rows(1), positions={"topic": (None, 5)}),
    "merge": lambda t: t.append([{**rows(1)[0], "new": 1}], schema_mode="merge"),
    "widen": lambda t: t.append([{"id": 1, "v": "x", "s": {"a": 2**40}}], schema_mode="widen"),
    "overwrite all": lambda t: t.overwrite(rows(1)),
    "full refresh": lambda t: t.apply_changes(rows(1), keys=["id"], sequence_by=["v"], full_refresh=True),
    "nothing": lambda t: t.append(SCHEMA.empty_table()),
    "a sink": lambda t: t.sink(app_id="s")(pa.table({"id": [1]}), 0),
    "properties": lambda t: t.iceberg.transaction().set_properties({"a": "b"}).commit_transaction(),
    "schema": lambda t: _committed(t.iceberg.update_schema().delete_column("v")),
    "snapshots": lambda t: _committed(t.iceberg.manage_snapshots().create_tag(t.version, "tag")),
    "expiry": lambda t: _committed(t.iceberg.maintenance.expire_snapshots().by_id(t.history()[-1].version)),
    "fast-forward": lambda t: t.fast_forward(t.version),
}
KEEPERS = {
    "append", "append_many", "check_writable", "in_tasks", "a known key", "a batch", "positions", "merge", "widen", "nothing", "a sink",
    "properties", "snapshots", "overwrite", "overwrite all", "delete", "apply_changes", "apply_changes_many",
    "full refresh", "maintain", "expiry",
}  # fmt: skip
"""What keeps the ids of rows, or does nothing to any row; see test_v3_appends.py and test_v3_changes.py."""
CHANGERS = {name: call for name, call in {**WRITERS, **OTHER_WRITERS}.items() if name not in KEEPERS}
READERS = {
    "added_by", "added_since", "after_fork", "arbiter", "catalog", "changes_since", "committed_writes", "history", "iceberg", "limits", "partition_by",
    "positions", "properties", "read_files", "refresh", "resolve", "row_count", "row_rules", "rows", "schema", "table_id", "uri", "version", "world",
    "sink", "fast_forward",  # these two among the others
}  # fmt: skip


def _committed(change: Any) -> None:
    change.commit()


def test_y5_every_verb_is_known_as_a_reader_or_a_writer() -> None:
    assert {name for name in dir(IcebergTable) if not name.startswith("_")} == {*WRITERS} | READERS


def test_y5_all_that_changes_rows_is_refused_by_a_table_of_version_3_before_anything_is_uploaded(
    lake: dict[str, str], tmp_path: Path
) -> None:
    v3.upgrade(lake)
    table = opened(lake)
    before = stored(tmp_path)
    for name, call in CHANGERS.items():
        refused: Any = sw.UnsupportedTableError
        if name == "fast-forward":
            refused = sw.InvalidInputError  # it is open on the main branch
        with pytest.raises(refused) as caught:
            call(table)
        assert name == "fast-forward" or re.search(REFUSED, str(caught.value)), name
        assert stored(tmp_path) == before, name


def test_y5_the_last_line_is_the_commit_request_itself(lake: dict[str, str], tmp_path: Path) -> None:
    """A writer that forgot to ask is refused where its change is asked for, and knows that nothing was committed."""
    v3.upgrade(lake)
    table = opened(lake)
    table._format._admitted = table._format.mark()  # type: ignore[assignment]  # as a writer that did not ask
    before = stored(tmp_path)
    with pytest.raises(sw.UnsupportedTableError, match=REFUSED):
        table.catalog.commit_table(
            table.iceberg, (), (RemoveStatisticsUpdate.model_validate({"snapshot-id": 1}),)
        )
    assert stored(tmp_path) == before


# --- it becomes one while it is written to ------------------------------------------------------------
class Upgraded(Stepwise):
    """Another engine upgrades the table before the first commit is asked for, or after its answer is lost."""

    def __init__(self, world: Performer, properties: dict[str, str], step: str) -> None:
        super().__init__(world)
        self.properties, self.at, self.swaps = properties, step, 0

    def _step(self, step: str, effect: Effect) -> Outcome:
        if step == self.at:
            v3.upgrade(self.properties)
        self.swaps += isinstance(effect, SwapTable)
        return self.world.perform(effect)


RACES: dict[str, Callable[[IcebergTable], object]] = {
    **{
        name: call for name, call in WRITERS.items() if name not in {"check_writable", "in_tasks", "maintain"}
    },
    "merge": OTHER_WRITERS["merge"],
    "positions": OTHER_WRITERS["positions"],
}


@pytest.mark.sweep("shared", "branch")
@pytest.mark.parametrize(
    "how", [{}, {"branch": "audit"}, {"group": "always"}], ids=["main", "branch", "shared"]
)
def test_y5_a_table_that_is_upgraded_in_the_middle_of_a_write_is_not_changed(
    how: dict[str, Any], tmp_path: Path
) -> None:
    """Upgraded in place between a look and the commit: the retry meets version 3, of which no snapshot tells; an append is staged again."""
    some = {"append", "delete", "append_many"} if how else {*RACES}
    for number, (name, call) in enumerate(one for one in RACES.items() if one[0] in some):
        (tmp_path / str(number)).mkdir()
        properties = v3.lake(tmp_path / str(number))
        sw.create(v3.NAME, SCHEMA, catalog=properties).append(rows(1, 2, 3))
        table = opened(properties, **how)
        table.world = Upgraded(table.world, properties, "swap.commit")
        if name in KEEPERS:
            call(table)
            assert (table.world.swaps, len(table.history())) == (2, 2), name
            made: Any = table.iceberg.metadata
            assert [one.first_row_id for one in made.snapshots] == [None, 0]
            assert made.next_row_id == made.snapshots[-1].added_rows
            given = [row for _, row, _ in v3.lineages(table, made.snapshots[-1].snapshot_id)]
            assert None not in given
            assert len({*given}) == len(given), name
            continue
        with pytest.raises(sw.UnsupportedTableError, match="format version 3"):
            call(table)
        assert table.world.swaps == 1, name
        assert ids(table.refresh()) == [1, 2, 3], name
        assert len(table.history()) == 1, name
        with pytest.raises(sw.UnsupportedTableError, match=REFUSED):
            call(table)
        assert opened(properties).row_count() == 3


def test_y5_a_table_that_is_upgraded_in_the_middle_of_upkeep_loses_no_id(tmp_path: Path) -> None:
    properties = v3.lake(tmp_path)
    table = sw.create(v3.NAME, SCHEMA, catalog=properties)
    for number in range(4):
        table.append(rows(number))
    table.world = Upgraded(table.world, properties, "swap.commit")
    table.maintain()
    assert ids(opened(properties)) == [0, 1, 2, 3]
    opened(properties).maintain()
    assert len(v3.data_files(properties)) == 1
    assert None not in {row for row, _ in v3.lineage(opened(properties)).values()}


# --- readers -------------------------------------------------------------------------------------------
@pytest.mark.long
def test_y5_a_table_of_version_3_is_read_as_it_is(lake: dict[str, str]) -> None:
    """Vectors of two files in one Puffin file, with an older one of the first: what a manifest entry points at counts."""
    v3.upgrade(lake)
    table = opened(lake)
    assert (table.row_count(), ids(table)) == (15, [*range(15)])
    at, (first, second) = table.version, v3.data_files(lake)
    v3.mark(lake, {first: [9, 3], second: [0]}, spare={first: [3]})
    table.refresh()
    left = [number for number in range(15) if number not in {3, 9, 10}]
    assert (table.row_count(), ids(table)) == (12, left)
    assert table.rows({"id": [3, 4, 10, 11]}).to_pylist() == rows(11, 4)
    assert table.rows(where="id in (4, 9)", columns=["v", "id"]).to_pylist() == [{"v": "v4", "id": 4}]
    (everything,) = table.added_since(None)
    assert sorted(everything.read(["id"])["id"].to_pylist()) == left
    assert table.added_by(at).read().to_pylist() == rows(*range(10, 15))
    with pytest.raises(sw.HistoryGapError, match="removed rows"):
        table.added_since(at)
    assert [entry.operation for entry in table.history()] == ["delete", "append", "append"]
    assert table.resolve("first") is not None
    assert sorted(read_rows(read_head(look(v3.NAME, lake)), ("id",))["id"]) == left
    assert (
        3 not in set(table.iceberg.scan().to_arrow()["id"].to_pylist()) or True
    )  # PyIceberg's own takes the older one
    with pytest.raises(sw.UnsupportedTableError, match=r"nothing says where the deletion vector.*rows\(\)"):
        list(table.read_files(table.iceberg.scan().plan_files()))


def test_y5_a_vector_stands_instead_of_position_deletes(tmp_path: Path) -> None:
    properties = v3.lake(tmp_path)
    modes = {f"write.{verb}.mode": "merge-on-read" for verb in ("delete", "update", "merge")}
    table = sw.create(v3.NAME, SCHEMA, catalog=properties, properties=modes)
    table.append(rows(*range(6)))
    gone = [{"id": 2, "v": "z", "s": None, "gone": True}]
    table.apply_changes(gone, keys=["id"], sequence_by=["v"], delete_when="gone")
    v3.upgrade(properties)
    (file,) = v3.data_files(properties)
    table = opened(properties)
    assert (table.row_count(), ids(table)) == (5, [0, 1, 3, 4, 5])
    v3.mark(properties, {file: [2, 4]})
    assert (table.refresh().row_count(), ids(table)) == (4, [0, 1, 3, 5])


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "of no file": ({"told": lambda entry: entry.update(referenced_data_file=None)}, "nothing says where"),
    "nowhere": ({"told": lambda entry: entry.update(content_offset=None)}, "nothing says where"),
    "elsewhere": ({"told": lambda entry: entry.update(content_offset=9)}, "cannot be read"),
    "of more rows": ({"told": lambda entry: entry.update(record_count=3)}, "it names 1 rows, not 3"),
    "damaged": ({"garble": lambda body: body[:30] + b"x" + body[31:]}, "checksum"),
    "cut": ({"garble": lambda body: body[:20]}, "cut off"),
}


@pytest.mark.sweep("of more rows", "elsewhere", "nowhere")
@pytest.mark.parametrize("broken", BROKEN)
def test_y5_a_vector_that_cannot_be_applied_is_never_passed_over(broken: str, lake: dict[str, str]) -> None:
    how, told = BROKEN[broken]
    v3.upgrade(lake)
    first, _ = v3.data_files(lake)
    v3.mark(lake, {first: [3]}, **how)
    table = opened(lake)
    for call in (lambda: table.rows(where="id = 3"), lambda: table.added_since(None)[0].read(None)):
        with pytest.raises(sw.UnsupportedTableError, match=told):
            call()


def test_y5_two_vectors_of_one_file_are_refused(lake: dict[str, str]) -> None:
    v3.upgrade(lake)
    first, _ = v3.data_files(lake)
    v3.mark(lake, {first: [3]})
    v3.mark(lake, {first: [3, 4]})
    table = opened(lake)
    for call in (table.row_count, lambda: table.rows(where="id = 3")):
        with pytest.raises(sw.UnsupportedTableError, match="two deletion vectors"):
            call()


DEFAULTS: list[tuple[str, object, object]] = [
    ("int", 7, 7),
    ("string", "none", "none"),
    ("boolean", False, False),
    ("double", 0.5, 0.5),
    ("date", "2026-01-02", dt.date(2026, 1, 2)),
    ("timestamp", "2026-01-02T03:04:05.000006", NAIVE),
    ("timestamptz", "2026-01-02T03:04:05+00:00", dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)),
    ("decimal(5, 2)", "1.25", Decimal("1.25")),
    ("uuid", "00000000-0000-0000-0000-000000000001", bytes(15) + b"\x01"),
    ("binary", "0102", b"\x01\x02"),
    ("fixed[2]", "0102", b"\x01\x02"),
    ("time", "03:04:05", dt.time(3, 4, 5)),
]


def test_y5_a_default_fills_a_column_that_a_file_lacks(lake: dict[str, str]) -> None:
    v3.upgrade(lake)
    for number, (kind, default, _) in enumerate(DEFAULTS):
        v3.add_column(lake, kind, column=f"x{number}", **{"initial-default": default})
    table = opened(lake)
    found = table.rows({"id": [3]}).to_pylist()
    assert found == [{**rows(3)[0], **{f"x{number}": value for number, (*_, value) in enumerate(DEFAULTS)}}]
    for number, (kind, _, value) in enumerate(DEFAULTS):
        name = f"x{number}"
        assert table.rows(where=f"{name} is null", columns=["id"]).num_rows == 0, kind
        assert table.rows(where=f"{name} is not null", columns=["id"]).num_rows == 15, kind
        assert {*table.added_since(None)[0].read([name])[name].to_pylist()} == {value}, kind
    assert table.rows(where="x0 = 7 and x1 = 'none'").num_rows == 15
    assert table.rows(where="x0 = 8").num_rows == 0


def add_fields(lake: dict[str, str], fields: list[dict[str, Any]]) -> None:
    """Add fields to the struct ``s``, as ``ALTER TABLE t ADD COLUMN s.x`` does."""

    def change(metadata: dict[str, Any]) -> None:
        latest = metadata["schemas"][-1]
        (inner,) = (one["type"]["fields"] for one in latest["fields"] if one["name"] == "s")
        inner += [{"id": 50 + at, "required": False, **field} for at, field in enumerate(fields)]
        metadata["last-column-id"] = 50 + len(fields)

    v3.edit(lake, change)


def test_a_default_fills_a_field_that_the_struct_of_a_file_lacks(lake: dict[str, str]) -> None:
    """Of each type; a struct that is NULL stays NULL, and so do fields without a default."""
    sw.open(v3.NAME, catalog=lake).append([{"id": 20, "v": "n", "s": None}])
    v3.upgrade(lake)
    fields = [
        {"name": f"x{number}", "type": kind, "initial-default": default}
        for number, (kind, default, _) in enumerate(DEFAULTS)
    ]
    add_fields(lake, [*fields, {"name": "bare", "type": "int"}])
    table = opened(lake)
    given = {f"x{number}": value for number, (*_, value) in enumerate(DEFAULTS)}
    assert table.rows({"id": [3]}).to_pylist() == [{**rows(3)[0], "s": {"a": 3, **given, "bare": None}}]
    assert table.rows({"id": [20]}).to_pylist() == [{"id": 20, "v": "n", "s": None}]


def test_a_default_of_a_whole_struct_is_refused_by_its_type(lake: dict[str, str]) -> None:
    """It was told as a catalog that fails, which is to be called again."""
    v3.upgrade(lake)
    inner = {"id": 99, "name": "a", "required": False, "type": "int", "initial-default": 7}
    v3.add_column(lake, {"type": "struct", "fields": [inner]}, **{"initial-default": {}})  # type: ignore[arg-type]
    with pytest.raises(
        sw.UnsupportedTableError, match=r"default of type struct<99: a: optional int>.*Nothing was written"
    ):
        opened(lake)


def test_y5_a_column_of_nulls_and_one_of_nanoseconds_are_read(lake: dict[str, str]) -> None:
    v3.upgrade(lake)
    v3.add_column(lake, "unknown")
    assert opened(lake).rows({"id": [3]}).to_pylist() == [{**rows(3)[0], "x": None}]
    v3.edit(lake, lambda metadata: metadata["schemas"][-1]["fields"][-1].update(type="timestamp_ns"))
    table = opened(lake)
    assert table.schema.field("x").type == pa.timestamp("ns")
    assert table.rows({"id": [3]}).to_pylist() == [{**rows(3)[0], "x": None}]


def test_y5_a_table_with_a_column_that_is_not_read_is_read_by_its_others(lake: dict[str, str]) -> None:
    v3.upgrade(lake)
    v3.add_column(lake, "geometry")
    table = opened(lake)
    assert table.schema.names == ["id", "v", "s"]
    assert (table.row_count(), ids(table)) == (15, [*range(15)])
    assert table.rows({"id": [3]}, columns=["s", "id"]).to_pylist() == [{"s": {"a": 3}, "id": 3}]
    for call in (lambda: table.rows({"id": [3]}), lambda: table.added_since(None)[0].read(None)):
        with pytest.raises(sw.UnsupportedTableError, match=r"geometry.*columns=\['id', 'v', 's'\]"):
            call()


# --- what readers must know --------------------------------------------------------------------------
UNREAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "encrypted": (lambda metadata: metadata["properties"].update({"encryption.key-id": "k"}), "encryption"),
    "transform": (
        lambda metadata: metadata.update(
            {
                "partition-specs": [
                    *metadata["partition-specs"],
                    {
                        "spec-id": 1,
                        "fields": [{"source-id": 1, "field-id": 1000, "name": "z", "transform": "zorder"}],
                    },
                ],
                "last-partition-id": 1000,
            }
        ),
        "transforms.*values z are",
    ),
}


@pytest.mark.parametrize("what", UNREAD)
def test_y5_what_readers_must_know_is_refused_when_it_is_opened_and_when_it_is_met(
    what: str, lake: dict[str, str], tmp_path: Path
) -> None:
    """Also by an object that met it by another call than ``refresh``."""
    change, told = UNREAD[what]
    table = opened(lake)
    v3.edit(lake, change)
    before = stored(tmp_path)
    table.history()
    for call in (
        lambda: opened(lake),
        lambda: table.rows(where="true"),
        table.row_count,
        lambda: table.added_since(None),
        table.refresh,
        lambda: table.append(rows(1)),
    ):
        with pytest.raises(sw.UnsupportedTableError, match=told):
            call()
    assert stored(tmp_path) == before


def test_y5_doctor_says_what_may_be_done_with_such_a_table_and_calls_nothing_unsafe(
    lake: dict[str, str],
) -> None:
    v3.upgrade(lake)
    found = {one.code: one for one in examine(look(v3.NAME, lake)).findings}
    assert "unsupported_feature" not in found
    assert {one.severity for one in found.values()} <= {Severity.INFO}
    v3.edit(lake, UNREAD["encrypted"][0])
    found = {one.code: one for one in examine(look(v3.NAME, lake)).findings}
    assert found["unsupported_feature"].severity is Severity.WARNING


def test_y5_bounds_of_a_delete_file_rule_it_out_for_no_condition(lake: dict[str, str]) -> None:
    """An equality delete names rows by one column; those of its other columns need not be like what goes.  It was passed over."""
    catalog = SqlCatalog("default", **lake)
    table = catalog.load_table(v3.NAME)
    bounds = {2: b"zz"}
    v3.commit_deletes(lake, [
        avro.DataFile.from_args(
            content=avro.DataFileContent.EQUALITY_DELETES, file_path=f"{table.location()}/data/eq.parquet",
            file_format=avro.FileFormat.PARQUET, partition=Record(), record_count=1, file_size_in_bytes=9, equality_ids=[1],
            lower_bounds=bounds, upper_bounds=bounds, column_sizes=None, split_offsets=None, value_counts={2: 1}, null_value_counts={2: 0},
        )
    ])  # fmt: skip
    catalog.close()
    found = opened(lake)
    for call in (
        lambda: found.rows(where="v = 'v3'"),
        lambda: found.delete("v = 'v3'"),
        lambda: found.rows({"v": ["v3"]}),
    ):
        with pytest.raises(sw.UnsupportedTableError, match="equality deletes"):
            call()
    assert found.append(rows(30)).outcome == "committed"
