"""Columns of types that no frame holds (variant, geometry, geography): the others are read and written, and no value of theirs is lost (issue U)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import safewrite as sw
from safewrite.iceberg.connect import look
from safewrite.iceberg.data.lineage import kept_columns
from safewrite.iceberg.maintenance.doctor import examine
from safewrite.iceberg.maintenance.repair import set_retention
from safewrite.iceberg.table import IcebergTable
from tests.iceberg import v3_tables as v3
from tests.iceberg.memory_glue import DATABASE, MemoryGlue
from tests.iceberg.test_read_only_tables import stored
from tests.iceberg.test_v3_appends import SCHEMA, Overtaken, made, opened, rows
from tests.iceberg.test_v3_changes import APPLY, Oracle, changes

INSIDE = {"type": "struct", "fields": [{"id": 91, "name": "a", "required": False, "type": "variant"}]}
KINDS: list[Any] = [
    "variant",
    "geometry",
    "geometry(srid:3857)",
    "geography(OGC:CRS84, karney)",
    INSIDE,
    {"type": "list", "element-id": 91, "element": "variant", "element-required": False},
    {
        "type": "map", "key-id": 91, "key": "string", "value-id": 92, "value-required": False,
        "value": {"type": "list", "element-id": 93, "element": "geometry(srid:3857)", "element-required": False},
    },
]  # fmt: skip


@pytest.fixture
def lake(tmp_path: Path) -> dict[str, str]:
    """A catalog without a table."""
    return v3.lake(tmp_path)


def beside(lake: dict[str, str], kind: Any = "variant", **more: Any) -> IcebergTable:
    """A table of ten rows, and then a column of such a type."""
    made(lake).append(rows(*range(10)))
    v3.add_column(lake, kind, **more)
    return opened(lake)


def kinds(lake: dict[str, str]) -> list[Any]:
    """The types of the columns, as the newest metadata file has them."""
    with sqlite3.connect(lake["uri"].removeprefix("sqlite:///")) as database:
        (location,) = database.execute("SELECT metadata_location FROM iceberg_tables").fetchone()
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())
    latest = next(one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"])
    return [one["type"] for one in latest["fields"]]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind if isinstance(kind, str) else kind["type"])
def test_rows_without_the_column_come_and_go_and_no_file_is_written_again(
    kind: Any, lake: dict[str, str]
) -> None:
    """Whatever ``write.delete.mode`` says: a file that was written again would have lost the values of the rows that stay."""
    table, before = beside(lake, kind), v3.data_files(lake)
    assert table.check_writable().schema.names == ["id", "v"]
    oracle = Oracle(table)
    table.append(rows(10), key="ten")
    oracle.after(new=[10])
    assert table.append(rows(10), key="ten").outcome == "already_committed"
    table.append_many([("a", rows(11)), ("b", rows(12))])
    oracle.after(new=[11, 12])
    table.delete("id = 3 or id = 11")
    oracle.after(gone=[3, 11])
    table.overwrite(rows(4, 20), where="id = 4 or id = 20")
    oracle.after(gone=[4], new=[4, 20])
    table.append([{"id": 21, "v": "a", "n": 1}], schema_mode="merge")
    oracle.after(new=[21])
    assert kinds(lake) == ["long", "string", kind, "long"]
    assert {*before} <= {*v3.data_files(lake)}
    assert table.rows({"id": [21]}, columns=["n", "v"]).to_pylist() == [{"n": 1, "v": "a"}]
    table.overwrite([{"id": 1, "v": "a", "n": 2}])
    assert opened(lake).row_count() == 1


def _first_of(answers: list[Any]) -> None:
    raise answers[0]


BROUGHT: dict[str, Callable[[IcebergTable], object]] = {
    "append": lambda t: t.append([{"id": 1, "v": "a", "x": "{}"}]),
    "merge": lambda t: t.append([{"id": 1, "v": "a", "x": "{}"}], schema_mode="merge"),
    "append_many": lambda t: _first_of(t.append_many([("a", [{"id": 1, "v": "a", "x": "{}"}])])),
    "overwrite": lambda t: t.overwrite([{"id": 1, "v": "a", "x": None}], where="id = 1"),
}
REWRITTEN: dict[str, Callable[[IcebergTable], object]] = {
    "apply_changes": lambda t: t.apply_changes(changes(1), **APPLY),
    "apply_changes_many": lambda t: t.apply_changes_many([("a", changes(1))], **APPLY),
    "full refresh": lambda t: t.apply_changes(rows(1), keys=["id"], sequence_by=["v"], full_refresh=True),
}


def test_a_value_for_the_column_is_refused_by_its_name_before_an_upload(
    lake: dict[str, str], tmp_path: Path
) -> None:
    table = beside(lake)
    before = stored(tmp_path)
    for name, call in BROUGHT.items():
        with pytest.raises(
            sw.InvalidInputError, match=r"'x' has the Iceberg type 'variant'.*Leave the column out"
        ):
            call(table)
        assert stored(tmp_path) == before, name


def test_what_would_write_rows_again_is_refused_by_the_column_before_an_upload(
    lake: dict[str, str], tmp_path: Path
) -> None:
    """A change has no value of the column for the row that it replaces."""
    table = beside(lake)
    before = stored(tmp_path)
    for name, call in REWRITTEN.items():
        with pytest.raises(
            sw.UnsupportedTableError, match=r"values of x would have to be carried.*Nothing was written"
        ):
            call(table)
        assert stored(tmp_path) == before, name
    with pytest.raises(sw.UnsupportedTableError, match="'x' has the Iceberg type 'variant'"):
        kept_columns(table.iceberg.metadata)  # the last line, for whoever did not ask


def test_changes_are_told_of_the_columns_that_are_named(lake: dict[str, str]) -> None:
    """Without ``columns`` nobody would see that one of them is missing."""
    table = beside(lake)
    at = table.version
    table.append(rows(20))
    table.delete("id = 3")
    table.overwrite([{"id": 4, "v": "z"}], where="id = 4")
    with pytest.raises(sw.UnsupportedTableError, match=r"column 'x' would be missing.*columns=\['id', 'v'\]"):
        table.changes_since(at)
    found = table.changes_since(at, columns=["v", "id"]).read().to_pylist()
    told = [(row["_change_type"], row["id"]) for row in found]
    assert told == [("insert", 20), ("delete", 3), ("delete", 4), ("insert", 4)]
    assert table.changes_since(None, columns=["v", "id"]).read().num_rows == 10


def test_upkeep_leaves_its_files_as_they_are(lake: dict[str, str]) -> None:
    table = beside(lake)
    for number in range(20, 26):
        table.append(rows(number))
    before = v3.data_files(lake)
    assert table.maintain().dropped == {}
    assert v3.data_files(lake) == before


def test_a_column_that_comes_while_rows_are_deleted_is_not_passed_over(lake: dict[str, str]) -> None:
    """The files that were made for the table of before have no such column: the call is planned again, by vectors."""
    table = made(lake)
    table.append(rows(*range(10)))
    file = v3.data_files(lake)
    table.world = Overtaken(table.world, lambda: v3.add_column(lake, "variant"))
    table.delete("id = 3")
    assert v3.data_files(lake) == file
    assert opened(lake).row_count() == 9


def test_a_column_that_must_have_a_value_closes_the_table_for_writes(lake: dict[str, str]) -> None:
    table = beside(lake, "variant", required=True)
    assert table.rows({"id": [3]}, columns=["id"]).num_rows == 1
    for call in (lambda: table.append(rows(10)), lambda: table.delete("id = 1"), table.check_writable):
        with pytest.raises(sw.UnsupportedTableError, match="types: values would have to be written to x"):
            call()


def test_the_doctor_says_what_is_done_and_a_repair_goes_through(lake: dict[str, str]) -> None:
    beside(lake)
    (found,) = (one for one in examine(look(v3.NAME, lake)).findings if one.code == "unsupported_feature")
    assert "appends to it and deletes from it" in found.message
    assert found.details["appends"]
    assert set_retention(look(v3.NAME, lake)).status == "done"
    assert kinds(lake)[-1] == "variant"


def test_a_branch_of_such_a_table_is_written_to_and_published(lake: dict[str, str]) -> None:
    table = beside(lake, "geometry(srid:3857)")
    audit = opened(lake, branch="audit")
    audit.append(rows(50))
    audit.delete("id = 1")
    audit.fast_forward()
    assert table.refresh().row_count() == 10
    assert kinds(lake)[-1] == "geometry(srid:3857)"


@pytest.mark.parametrize("kind", ["variant", "geometry(srid:3857)", "unknown", "timestamp_ns"])
def test_an_entry_of_glue_has_such_a_column_and_its_table_is_written_to(kind: str, tmp_path: Path) -> None:
    """Glue's own column types have none of these: the entry has the type's name, as with Iceberg's Java library."""
    glue = MemoryGlue()
    catalog = glue.catalog(tmp_path)
    sw.create(f"{DATABASE}.t", SCHEMA, catalog=catalog, format_version=3).append(rows(*range(4)))
    told = glue.entries["t"]["Parameters"]
    path = Path(told["metadata_location"].removeprefix("file://"))
    metadata = json.loads(path.read_text())
    v3.widen(metadata, kind)
    wider = path.with_name(f"00009-{path.name[6:]}")
    wider.write_text(json.dumps(metadata))
    glue.edit("t", Parameters=told | {"metadata_location": wider.as_uri()})
    table = sw.open(f"{DATABASE}.t", catalog=catalog)
    for outcome in ("committed", "already_committed"):
        assert table.append(rows(10), key="ten", schema_mode="merge").outcome == outcome
    table.delete("id = 1 or id = 2")
    found = table.refresh().rows(where="true", columns=["id"])["id"].to_pylist()
    assert sorted(found) == [0, 3, 10]
    entered = {one["Name"]: one["Type"] for one in glue.entries["t"]["StorageDescriptor"]["Columns"]}
    assert entered == {"id": "bigint", "v": "string", "x": kind}
