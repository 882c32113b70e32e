"""What is remembered of changes belongs to columns of an Iceberg table, and not to the names that they had at the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType, StringType

import safewrite as sw
from safewrite.changes.meaning.memory import Memory
from safewrite.iceberg.write import puffin

SCHEMA = pa.schema({
    "id": pa.int64(),
    "new_id": pa.int64(),
    "s": pa.int64(),
    "lsn": pa.int64(),
    "note": pa.string(),
    "text": pa.string(),
})  # fmt: skip
Row = dict[str, Any]


class Lake:
    """A table in which key 2 was deleted at 50, and key 1 carries its note on from 1."""

    def __init__(self, folder: Path, properties: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/c.db", warehouse=folder.as_uri())
        sw.create("db.t", SCHEMA, catalog=self.catalog, properties=properties)
        first = dict.fromkeys(SCHEMA.names, None) | {"id": 1, "s": 1, "lsn": 1, "note": "old", "text": "t"}
        self.apply([first, {"id": 2, "s": 50, "lsn": 5, "op": "d"}])
        self.apply([first | {"s": 30, "note": None, "lacks": ["note"]}])

    def apply(self, rows: list[Row], **how: Any) -> Row:
        """Apply changes by way of a table that is opened for them; what became of them."""
        given = {
            "keys": ["id"],
            "sequence_by": ["s"],
            "delete_when": [("op", "=", "d")],
            "unchanged": "lacks",
        }
        table = sw.open("db.t", catalog=self.catalog)
        names = [*table.iceberg.schema().as_arrow().names]
        kinds = table.iceberg.schema().as_arrow()
        schema = pa.schema([
            *(pa.field(name, kinds.field(name).type) for name in names),
            pa.field("op", pa.string()),
            pa.field("lacks", pa.list_(pa.string())),
        ])  # fmt: skip
        found = table.apply_changes(pa.Table.from_pylist(rows, schema), **given | {"all_late": "count"} | how)
        return {name: count for name, count in found.changes.items() if count and name != "applied"}

    def change(self, *changes: Callable[[Any], None]) -> None:
        for change in changes:
            with self.catalog.load_table("db.t").update_schema(allow_incompatible_changes=True) as update:
                change(update)

    def rename(self, *names: tuple[str, str]) -> None:
        for old, new in names:
            self.change(lambda update, old=old, new=new: update.rename_column(old, new))

    def replace(self, name: str, kind: Any) -> None:
        """Drop a column, and add another of its name."""
        self.change(lambda update: update.delete_column(name), lambda update: update.add_column(name, kind))

    def rows(self) -> list[Row]:
        found = self.catalog.load_table("db.t").scan().to_arrow().to_pylist()
        return sorted(found, key=str)

    def memory(self) -> Row:
        """What the newest file of what is remembered says of itself."""
        path = self.catalog.load_table("db.t").properties["safewrite.changes.memory"].removeprefix("file://")
        body = puffin.decoded(Path(path).read_bytes())
        (self.folder / "memory").write_bytes(body)
        return json.loads(pq.read_schema(self.folder / "memory").metadata[b"safewrite.changes"])


@pytest.fixture(params=["today's file", pytest.param("a file of before", marks=pytest.mark.long)])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The same table as today's code and as older code made it: that wrote the names alone."""
    if request.param == "today's file":
        return Lake(tmp_path)
    return of_before(tmp_path, monkeypatch)


def of_before(folder: Path, patch: pytest.MonkeyPatch) -> Lake:
    encode = Memory.encode
    with patch.context() as then:
        then.setattr(Memory, "encode", lambda memory: encode(replace(memory, ids={})))
        lake = Lake(folder)
    assert "ids" not in lake.memory()
    return lake


def up(**values: Any) -> Row:
    return {"new_id": None, "lsn": None, "note": "n", "text": "t", "op": "u"} | values


def test_deletions_of_a_key_that_was_renamed_are_remembered(lake: Lake) -> None:
    """T3-A1: an honest rename was refused with advice that nobody could follow."""
    lake.rename(("id", "order_id"))
    how: Row = {"keys": ["order_id"]}
    assert lake.apply([up(order_id=2, s=49), up(order_id=3, s=2)], **how) == {"late": 1, "inserted": 1}
    assert lake.apply([up(order_id=2, s=51)], **how) == {"inserted": 1}
    assert [row["order_id"] for row in lake.rows()] == [1, 2, 3]


def test_deletions_are_remembered_though_their_order_was_renamed(lake: Lake) -> None:
    lake.rename(("s", "at"), ("lsn", "s"))
    refused = (sw.InvalidInputError, r"sequence_by=\['s'\] \('s' is called 'at' now\)")
    with pytest.raises(refused[0], match=refused[1]):
        lake.apply([up(id=2, at=None, s=10)])
    assert lake.apply([up(id=2, at=10, s=99)], sequence_by=["at"]) == {"late": 1}


def test_another_column_under_the_name_of_the_key_is_another_key(lake: Lake) -> None:
    """T3-A1: a new row counted as late, for a row of the old key with that number had been deleted, and was nowhere."""
    lake.rename(("id", "legacy_id"), ("new_id", "id"))
    changes = [up(id=2, legacy_id=7, s=10, new_id=None)]
    before = lake.rows()
    with pytest.raises(
        sw.InvalidInputError, match=r"'id' is called 'legacy_id' now.*Give keys=\['legacy_id'\]"
    ):
        lake.apply(changes)
    member = {"id": 2, "legacy_id": 7, "s": 10, "lsn": 1, "note": "n", "text": "t"}
    table = sw.open("db.t", catalog=lake.catalog)
    with pytest.raises(sw.InvalidInputError, match="'id' is called 'legacy_id' now"):
        table.apply_changes_many([("k", [member])], keys=["id"], sequence_by=["s"])
    assert lake.rows() == before
    assert lake.apply([up(legacy_id=2, id=None, s=10)], keys=["legacy_id"]) == {"late": 1}
    assert lake.apply(changes, full_refresh=True) == {"inserted": 1}
    assert [row["id"] for row in lake.rows()] == [2]


def test_a_column_that_took_the_place_of_the_key_is_another_key(lake: Lake) -> None:
    lake.replace("id", LongType())
    with pytest.raises(sw.InvalidInputError, match=r"'id' is not in the table any more.*full_refresh=True"):
        lake.apply([up(id=2, s=10)])
    assert lake.apply([up(id=2, s=10)], full_refresh=True) == {"inserted": 1}
    assert lake.apply([up(id=2, s=9)]) == {"late": 1}


def test_a_late_value_lands_in_a_carried_column_that_was_renamed(lake: Lake) -> None:
    """T3-A2: it was left out for good."""
    lake.rename(("note", "remark"))
    late = {name: value for name, value in up(id=1, s=20, remark="newer").items() if name != "note"}
    assert lake.apply([late]) == {"updated": 1}
    assert [row["remark"] for row in lake.rows()] == ["newer"]
    assert lake.apply([late | {"s": 15, "remark": "older"}]) == {"late": 1}


def test_names_that_change_places_take_what_is_carried_with_them(lake: Lake) -> None:
    lake.rename(("note", "x"), ("text", "note"), ("x", "text"))
    assert lake.apply([up(id=1, s=20, text="newer", note="late")]) == {"updated": 1}
    assert [(row["text"], row["note"]) for row in lake.rows()] == [("newer", "t")]


def test_nothing_is_carried_on_to_another_column_of_the_name(lake: Lake) -> None:
    lake.replace("note", StringType())
    assert lake.apply([up(id=1, s=20, note="of another column")]) == {"late": 1}
    assert lake.apply([up(id=1, s=40)]) == {"updated": 1}
    assert [row["note"] for row in lake.rows()] == ["n"]


def test_a_truncate_is_remembered_under_the_order_s_new_name(lake: Lake) -> None:
    lake.apply([{"s": 60, "op": "t"}], truncate_when=[("op", "=", "t")])
    lake.rename(("s", "at"))
    assert lake.apply([up(id=8, at=59), up(id=9, at=61)], sequence_by=["at"]) == {"late": 1, "inserted": 1}


# --- tables of before --------------------------------------------------------------------------------------
def test_the_first_commit_after_it_gives_an_older_file_its_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = of_before(tmp_path, monkeypatch)
    assert lake.apply([up(id=2, s=49)]) == {"late": 1}  # nothing is remembered that was not before
    assert lake.memory()["ids"] == {"id": 1, "s": 3, "note": 5}
    lake.rename(("id", "order_id"))
    assert lake.apply([up(order_id=2, s=49)], keys=["order_id"]) == {"late": 1}


def forgetful(lake: Lake) -> None:
    """Take away what told under which schema the file was written."""
    table = lake.catalog.load_table("db.t")
    with table.transaction() as change, change.update_statistics() as update:
        for one in table.metadata.statistics:
            update.remove_statistics(one.snapshot_id)
    table.manage_snapshots().remove_tag("safewrite-changes").commit()


def test_of_an_older_file_without_its_snapshot_names_tell_that_one_column_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = of_before(tmp_path, monkeypatch)
    lake.rename(("id", "order_id"))
    forgetful(lake)
    assert lake.apply([up(order_id=2, s=49)], keys=["order_id"]) == {"late": 1}


def test_of_an_older_file_without_its_snapshot_a_name_of_two_columns_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = of_before(tmp_path, monkeypatch)
    lake.rename(("id", "legacy_id"), ("new_id", "id"))
    forgetful(lake)
    with pytest.raises(sw.InvalidInputError, match="full_refresh"):
        lake.apply([up(id=2, s=49)])
