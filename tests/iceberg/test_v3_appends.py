"""Appends to tables of format version 3: each row has an id of its own, which stays the same (issue U 1).

Ids are computed here from the files, by the rules of the specification, and not by what safewrite says of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.manifest as avro
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.iceberg import SafeCatalog
from safewrite.iceberg.catalog.loading import load
from safewrite.iceberg.connect import look
from safewrite.iceberg.data.manifests_v3 import numbered
from safewrite.iceberg.maintenance.repair import set_retention
from safewrite.iceberg.table import IcebergTable
from safewrite.protocol.effects import Effect, Outcome
from safewrite.protocol.iceberg.change import SwapTable
from safewrite.stores.world import Performer
from safewrite.testing.steps import Stepwise
from tests.changes.tasked import by_tasks
from tests.iceberg import v3_tables as v3
from tests.iceberg.memory_glue import DATABASE, MemoryGlue
from tests.iceberg.test_read_only_tables import DEFAULTS

SCHEMA = pa.schema({"id": pa.int64(), "v": pa.string()})


def rows(*ids: int, v: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "v": v} for number in ids]


def opened(properties: Any, **how: Any) -> IcebergTable:
    table = sw.open(v3.NAME, catalog=properties, **how)
    assert isinstance(table, IcebergTable)
    return table


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """A catalog without a table."""
    return v3.lake(tmp_path)


def made(lake: dict[str, str], schema: pa.Schema = SCHEMA, **how: Any) -> IcebergTable:
    return sw.create(v3.NAME, schema, catalog=lake, format_version=3, **how)


def next_id(table: IcebergTable) -> int:
    metadata: Any = table.iceberg.metadata
    found: int = metadata.next_row_id
    return found


def row_ids(table: IcebergTable, at: int | None = None) -> dict[int, int]:
    """The row id of each live row by its ``id``."""
    return {number: row for number, (row, _) in v3.lineage(table, at).items() if row is not None}


def check(table: IcebergTable) -> dict[int, int]:
    """Row ids are disjoint and below the table's next; snapshots of every branch took theirs one after another."""
    found = row_ids(table)
    metadata: Any = table.iceberg.metadata
    assert len({*found.values()}) == len(found) == table.row_count()
    at = 0
    for one in metadata.snapshots:
        if one.first_row_id is not None:
            assert one.first_row_id == at
            at += one.added_rows
    assert metadata.next_row_id == at > max(found.values())
    assert sorted(table.rows(where="true")["id"].to_pylist()) == sorted(found)
    assert sorted(table.iceberg.scan().to_arrow()["id"].to_pylist()) == sorted(found)  # as PyIceberg reads it
    return found


def test_each_way_of_appending_gives_ids(lake: dict[str, str]) -> None:
    table = made(lake, partition_by=["v"], properties={"commit.manifest.min-count-to-merge": "2"})
    assert (table.iceberg.metadata.format_version, next_id(table)) == (3, 0)
    table.append([*rows(1, 2), *rows(3, v="b")])
    table.append_many([("a", rows(4)), ("b", rows(5, 6, v="b"))])
    table.append(rows(7), positions={"topic": (None, 5)}, key="seven")
    assert table.append(rows(7), positions={"topic": (None, 5)}, key="seven").outcome == "already_committed"
    table.append(SCHEMA.empty_table())
    opened(lake, group="always").append(rows(8))
    table = opened(lake)
    table.append([{"id": 9, "v": "c", "new": 1}], schema_mode="merge")
    assert table.rows({"id": [9]}).to_pylist() == [{"id": 9, "v": "c", "new": 1}]
    before = check(table)
    assert before[7] == 6
    assert len(v3.listed(table)) < 5  # merged ones reserve ids for rows that have theirs, as with Java
    table.append([{"id": 10, "v": "a", "new": None}])
    after = check(table)
    assert before == {number: after[number] for number in before}


def test_an_upgraded_table_gives_its_old_rows_ids_with_the_first_commit_and_keeps_them(
    lake: dict[str, str],
) -> None:
    table = sw.create(v3.NAME, SCHEMA, catalog=lake)
    assert table.iceberg.metadata.format_version == 2
    table.append(rows(1, 2))
    table.append(rows(3))
    v3.upgrade(lake)
    table = opened(lake)
    assert next_id(table) == 0
    assert table.row_count() == 3  # the list of before is known from here on
    table.append(rows(4))
    first = check(table)
    file = v3.data_files(lake)[0]
    table = opened(lake)
    assert table.rows({"id": [1]}).num_rows == 1  # a read, from which the append knows what the list says
    table.append(rows(5))
    assert check(table) == first | {5: 4}
    v3.mark(lake, {file: [0]})
    table = opened(lake)
    assert table.row_count() == 4
    ids = row_ids(table)
    table.append(rows(6))
    assert row_ids(table) == ids | {6: next_id(table) - 1}
    assert sorted(table.rows(where="true")["id"].to_pylist()) == [2, 3, 4, 5, 6]


class Overtaken(Stepwise):
    """Another writer commits before a commit is asked for, the first times."""

    def __init__(self, world: Performer, *others: Callable[[], object]) -> None:
        super().__init__(world)
        self.others, self.swaps = list(others), 0

    def _step(self, step: str, effect: Effect) -> Outcome:
        if isinstance(effect, SwapTable):
            self.swaps += 1
            if self.others:
                self.others.pop(0)()
        return self.world.perform(effect)


def test_ids_are_given_again_with_each_try(lake: dict[str, str]) -> None:
    """Also where only another branch moved, so that no requirement of the commit fails; and where no row came with the other commit."""
    table = made(lake)
    table.append(rows(1))
    audit = opened(lake, branch="audit")
    table = opened(lake)
    table.world = Overtaken(
        table.world,
        lambda: opened(lake).append(rows(2, 3)),
        lambda: audit.append(rows(4, 5, 6)),
        lambda: audit.append(SCHEMA.empty_table()),
    )
    assert table.append(rows(7, 8)).attempts == 4
    assert table.world.swaps == 4
    assert check(table) == {1: 0, 2: 1, 3: 2, 7: 6, 8: 7}
    metadata: Any = table.iceberg.metadata
    assert [one.sequence_number for one in metadata.snapshots] == [1, 2, 3, 4, 5]
    assert row_ids(audit, audit.refresh().version) == {1: 0, 4: 3, 5: 4, 6: 5}
    audit.append(rows(9))
    assert row_ids(audit, audit.refresh().version)[9] == 8


@pytest.mark.parametrize("group", ["never", "always"])
def test_racing_writers_give_disjoint_ids(group: str, lake: dict[str, str]) -> None:
    made(lake)
    tables = [opened(lake, group=group) for _ in range(3)]

    def work(writer: int) -> None:
        for number in range(2):
            first = 10 * (2 * writer + number)
            tables[writer].append(rows(*range(first, first + writer + 1)))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    assert sorted(check(opened(lake)).values()) == list(range(12))


def test_a_glue_catalog_writes_such_metadata(tmp_path: Path) -> None:
    table = sw.create(f"{DATABASE}.t", SCHEMA, catalog=MemoryGlue().catalog(tmp_path), format_version=3)
    table.append(rows(1, 2))
    table.append(rows(3))
    assert check(table) == {1: 0, 2: 1, 3: 2}


def test_a_branch_is_begun_and_published(lake: dict[str, str]) -> None:
    table = made(lake)
    table.append(rows(1))
    audit = opened(lake, branch="audit")
    audit.append(rows(2))
    audit.fast_forward()
    table.append(rows(3))
    assert check(table) == {1: 0, 2: 1, 3: 2}


def test_retention_is_repaired(lake: dict[str, str]) -> None:
    made(lake, properties={"history.expire.max-snapshot-age-ms": str(2**40)})
    set_retention(look(v3.NAME, lake))
    table = opened(lake)
    assert table.properties["history.expire.max-snapshot-age-ms"] == str(15 * 24 * 3600 * 1000)
    assert (table.iceberg.metadata.format_version, next_id(table)) == (3, 0)


def test_nanoseconds_are_appended(lake: dict[str, str]) -> None:
    made(lake)
    v3.add_column(lake, "timestamp_ns")
    moment = pa.array([2**62, -1], pa.timestamp("ns"))
    opened(lake).append(pa.table({"id": [1, 2], "v": ["a", "b"], "x": moment}))
    table = opened(lake)
    assert table.rows(where="true").sort_by("id")["x"].combine_chunks() == moment
    assert table.rows({"id": [1, 2]}, columns=["x"]).num_rows == 2


def test_a_column_that_a_frame_lacks_gets_its_write_default(lake: dict[str, str]) -> None:
    """Of each type, by each verb that adds rows, for each member; a NULL that is given stays; a repeat is known."""
    made(lake).append(rows(1))
    for number, (kind, default, _) in enumerate(DEFAULTS):
        v3.add_column(lake, kind, column=f"x{number}", **{"write-default": default})
    given = {f"x{number}": value for number, (*_, value) in enumerate(DEFAULTS)}
    table = opened(lake)
    table.append(rows(2), key="second")
    assert table.append(rows(2), key="second").outcome == "already_committed"
    table.append([{**rows(3)[0], "x0": None, "x1": "other"}])
    table.append_many([("a", rows(4)), ("b", [{**rows(5)[0], "x0": 8}])])
    table.overwrite(rows(7), where="id = 7")
    table.append([{**rows(6)[0], "new": 1}], schema_mode="merge")
    found = {row.pop("id"): row for row in table.rows(where="true").sort_by("id").to_pylist()}
    plain = {"v": "a", **given, "new": None}
    assert found == {
        1: dict.fromkeys(plain) | {"v": "a"}, 2: plain, 3: plain | {"x0": None, "x1": "other"}, 4: plain, 5: plain | {"x0": 8},
        6: plain | {"new": 1}, 7: plain,
    }  # fmt: skip
    assert [one.name for one in opened(lake).row_rules.fills] == [*given]  # jobs go by these


def with_defaults_inside(lake: dict[str, str], given: str = "write-default") -> dict[str, Any]:
    """Add columns whose structs have fields with defaults of each type, in a struct, a list and a map; what such a struct gets."""

    def struct(first: int) -> dict[str, Any]:
        fields = [{"id": first, "name": "a", "required": False, "type": "long"}]
        for number, (kind, default, _) in enumerate(DEFAULTS):
            fields.append(
                {
                    "id": first + 1 + number,
                    "name": f"x{number}",
                    "required": False,
                    "type": kind,
                    given: default,
                }
            )
        return {"type": "struct", "fields": fields}

    kinds: dict[str, Any] = {
        "s": struct(100),
        "l": {"type": "list", "element-id": 200, "element-required": False, "element": struct(201)},
        "m": {
            "type": "map",
            "key-id": 300,
            "key": "string",
            "value-id": 301,
            "value-required": False,
            "value": struct(302),
        },
    }
    v3.edit(lake, lambda one: one.update({"last-column-id": 400}))
    for name, kind in kinds.items():
        v3.add_column(lake, kind, column=name)
    return {"a": 1, **{f"x{number}": value for number, (*_, value) in enumerate(DEFAULTS)}}


def narrow(*ids: int) -> pa.Table:
    """Rows whose structs have one field."""
    one, count = pa.struct([("a", pa.int64())]), len(ids)
    return pa.table(
        {
            "id": ids,
            "v": ["b"] * count,
            "s": pa.array([{"a": 1}] * count, one),
            "l": pa.array([[{"a": 1}, None]] * count, pa.list_(one)),
            "m": pa.array([[("k", {"a": 1})]] * count, pa.map_(pa.string(), one)),
        }
    )


def inside(table: sw.Table, number: int) -> list[Any]:
    """What the structs of a row are."""
    (row,) = table.refresh().rows({"id": [number]}).to_pylist()
    return [row["s"], row["l"], row["m"]]


@pytest.mark.parametrize("way", [nullcontext, by_tasks], ids=["here", "tasks"])
def test_a_field_that_the_structs_of_a_frame_lack_gets_its_write_default(
    way: Any, lake: dict[str, str]
) -> None:
    """Of each type, in structs, lists and maps, by each verb; a struct that is NULL, and a NULL that is given, stay; a repeat is known."""
    made(lake).append(rows(0))
    struct = with_defaults_inside(lake)
    full, table = [struct, [struct, None], [("k", struct)]], opened(lake)
    table.append(narrow(1), key="one")
    assert table.append(narrow(1), key="one").outcome == "already_committed"
    table.append_many([("a", narrow(2)), ("b", narrow(3))])
    table.overwrite(narrow(4), where="id = 4")
    table.append(narrow(5).append_column("n", pa.array([1])), schema_mode="merge")
    table.append([{"id": 6, "v": "a", "n": None, "s": {"a": 1}, "l": [{"a": 1}, None], "m": None}])
    with way():
        table.apply_changes(narrow(1, 7), keys=["id"], sequence_by=["v"], schema_mode="merge")
    for number in (1, 2, 3, 4, 5, 7):
        assert inside(table, number) == full, number
    assert inside(table, 6) == [*full[:2], None]
    fields = [("a", pa.int64()), ("x0", pa.int32())]
    one = narrow(8, 9).append_column("n", pa.array([1, 1]))
    table.append(one.set_column(2, "s", pa.array([{"a": 1, "x0": None}, None], pa.struct(fields))))
    assert (inside(table, 8)[0], inside(table, 9)[0]) == (struct | {"x0": None}, None)
    table.delete("id = 8")
    table.maintain()
    assert inside(table, 3) == full
    assert not any(field.metadata for field in table.schema.field("s").type)


def test_a_required_field_inside_of_a_struct_is_filled_too(lake: dict[str, str]) -> None:
    made(lake).append(rows(0))
    inner = [
        {"id": 99, "name": "a", "required": True, "type": "int", "write-default": 7},
        {"id": 98, "name": "b", "required": False, "type": "int"},
    ]
    v3.add_column(lake, {"type": "struct", "fields": inner})  # type: ignore[arg-type]
    table = opened(lake)
    table.append([{"id": 1, "v": "a", "x": {"b": 1}}, {"id": 2, "v": "a", "x": None}])
    assert table.rows(where="id > 0").sort_by("id")["x"].to_pylist() == [{"a": 7, "b": 1}, None]


def test_an_initial_default_fills_fields_in_lists_and_maps_of_older_files(lake: dict[str, str]) -> None:
    """A field that came later is no part of the structs of a file; one that is there and NULL stays NULL."""
    one = pa.struct([("a", pa.int64())])
    schema = pa.schema([*SCHEMA, ("s", one), ("l", pa.list_(one)), ("m", pa.map_(pa.string(), one))])
    made(lake, schema).append(narrow(1))

    def grow(metadata: dict[str, Any]) -> None:
        fields = {field["name"]: field["type"] for field in metadata["schemas"][-1]["fields"]}
        structs = (fields["s"], fields["l"]["element"], fields["m"]["value"])
        for number, kind in enumerate(structs):
            kind["fields"].append(
                {"id": 90 + number, "name": "b", "required": False, "type": "int", "initial-default": 7}
            )
        metadata["last-column-id"] = 99

    v3.edit(lake, grow)
    table = opened(lake)
    struct = {"a": 1, "b": 7}
    assert inside(table, 1) == [struct, [struct, None], [("k", struct)]]
    one = pa.struct([("a", pa.int64()), ("b", pa.int32())])
    table.append([{"id": 2, "v": "b", "s": {"a": 1, "b": None}, "l": [], "m": None}])
    table.overwrite([{"id": 3, "v": "b", "s": None, "l": None, "m": None}], where="id = 3")
    table.maintain()
    assert inside(table, 1) == [struct, [struct, None], [("k", struct)]]
    assert inside(table, 2)[0] == {"a": 1, "b": None}


def test_a_job_is_refused_by_a_default_inside_of_a_column(lake: dict[str, str]) -> None:
    """It makes a struct that lacks a field one that has NULL there."""
    made(lake).append(rows(0))
    with_defaults_inside(lake)
    with pytest.raises(
        sw.UnsupportedTableError, match=r"s\.x0, .* would have to be filled inside of a column"
    ):
        _ = opened(lake).row_rules


REFUSED: dict[str, tuple[Callable[[dict[str, str]], object], str]] = {
    "nulls inside of a column": (
        lambda lake: v3.add_column(lake, {"type": "struct", "fields": [{"id": 99, "name": "a", "required": False, "type": "unknown"}]}),  # type: ignore[arg-type]
        "types: values would have to be written to x.a",
    ),
    "a next row id that was given": (
        lambda lake: v3.edit(lake, lambda one: one.update({"next-row-id": 0})), "says 0 as the next row id .* gave all up to 0"
    ),
    "no next row id": (lambda lake: v3.edit(lake, lambda one: one.pop("next-row-id")), "does not say the next row id"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_append_would_have_to_know_is_refused(what: str, lake: dict[str, str]) -> None:
    made(lake).append(rows(1))
    change, told = REFUSED[what]
    change(lake)
    table = opened(lake)
    with pytest.raises(sw.UnsupportedTableError, match=f"{told}.*Nothing was written"):
        table.append(rows(2))
    assert table.row_count() == 1


class Theirs(SqlCatalog):
    """A catalog of a class of the user's own, which writes metadata as PyIceberg does."""


def test_an_object_of_pyicebergs_catalog_writes_such_metadata_too(lake: dict[str, str]) -> None:
    untyped = {name: value for name, value in lake.items() if name != "type"}  # a pickle tells the class then
    with SqlCatalog("default", **untyped) as catalog:
        table = sw.create(v3.NAME, SCHEMA, catalog=catalog, format_version=3)
        table.append(rows(1))
        assert opened(lake).append(rows(2)).rows == 1
        assert pickle.loads(pickle.dumps(table)).append(rows(3)).rows == 1
        assert table.refresh().row_count() == 3


def test_a_catalog_that_does_not_write_such_metadata_is_refused(lake: dict[str, str]) -> None:
    with Theirs("default", **lake) as catalog:
        with pytest.raises(
            sw.UnsupportedTableError, match=r"does not write its metadata.*Nothing was written.*as a dict"
        ):
            sw.create(v3.NAME, SCHEMA, catalog=catalog, format_version=3)
        made(lake).append(rows(1))
        table = sw.open(v3.NAME, catalog=catalog)
        assert table.row_count() == 1
        with pytest.raises(sw.UnsupportedTableError, match="Give catalog= as a dict"):
            table.append(rows(2))


@pytest.mark.parametrize("verb", ["append", "overwrite", "delete", "upsert"])
def test_rows_of_pyicebergs_own_calls_are_refused_before_an_upload(
    verb: str, lake: dict[str, str], tmp_path: Path
) -> None:
    """They uploaded files, and then failed with an error of PyIceberg's writer; what is of no rows goes on."""
    made(lake).append(rows(1))
    given = pa.Table.from_pylist(rows(1, v="b"), SCHEMA)
    with load("default", **lake) as catalog:
        table, files = SafeCatalog(catalog).load_table(v3.NAME), {*tmp_path.rglob("*.*")}
        call = {"delete": lambda: table.delete("id = 1"), "upsert": lambda: table.upsert(given, ["id"])}
        with pytest.raises(sw.UnsupportedTableError, match=r"format version 3.*safewrite\.open\('db\.t'"):
            call.get(verb, lambda: getattr(table, verb)(given))()
        assert {*tmp_path.rglob("*.*")} == files
        assert SafeCatalog(catalog).load_table(v3.NAME).scan().to_arrow().num_rows == 1
        with table.transaction() as transaction:
            transaction.set_properties({"owner": "me"})
        assert SafeCatalog(catalog).load_table(v3.NAME).properties["owner"] == "me"


@pytest.mark.parametrize("given", [0, 1, 4, "3", 2.5, [3], None])
def test_a_format_version_is_one_that_there_is(given: Any, lake: dict[str, str], tmp_path: Path) -> None:
    both = {"format-version": "2"}
    asked = {"format_version": 3, "properties": both} if given is None else {"format_version": given}
    with pytest.raises(sw.InvalidInputError, match="format_version="):
        sw.create(v3.NAME, SCHEMA, catalog=lake, **asked)
    with pytest.raises(sw.InvalidInputError, match="for a Delta table"):
        sw.create(str(tmp_path / "delta"), SCHEMA, format_version=3)  # type: ignore[call-overload]


def test_a_change_of_properties_alone_is_refused_there_too(lake: dict[str, str]) -> None:
    made(lake).append(rows(1))
    with Theirs("default", **lake) as catalog:
        table = SafeCatalog(catalog).load_table(v3.NAME)
        with pytest.raises(
            sw.UnsupportedTableError, match=r"does not write its metadata.*Nothing was written"
        ):
            table.transaction().set_properties({"a": "b"}).commit_transaction()
    assert opened(lake).append(rows(2)).rows == 1


def test_ids_end_where_the_type_ends(lake: dict[str, str]) -> None:
    made(lake).append(rows(1))
    v3.edit(lake, lambda one: one.update({"next-row-id": 2**63 - 2}))
    table = opened(lake)
    table.append(rows(2))
    with pytest.raises(sw.UnsupportedTableError, match="no row ids left"):
        table.append(rows(3))
    assert table.row_count() == 2


def test_a_manifest_that_does_not_count_its_rows_is_refused() -> None:
    one = avro.ManifestFile.from_args(
        manifest_path="m", content=avro.ManifestContent.DATA, added_rows_count=None
    )
    with pytest.raises(sw.UnsupportedTableError, match="does not say how many rows"):
        numbered([one], 0)
