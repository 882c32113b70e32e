"""``Table.changes_since`` gives what each commit did to rows once, whoever made it, or refuses: on both formats."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import random
import shutil
import warnings
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw
from safewrite.table import row_changes
from tests import changed_tables
from tests.changed_tables import SCHEMA, History, check_resumed, told

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
MARKING = {f"write.{verb}.mode": "merge-on-read" for verb in ("merge", "delete", "update")}
WORLDS: dict[str, tuple[dict[str, str], list[str]]] = {
    "rewritten": ({}, []),
    "marked": (VECTORS, ["part"]),
    "fed": (FEED, ["part"]),
    "fed and marked": (FEED | VECTORS, []),
    "iceberg": ({}, ["part"]),
    "iceberg marked": (MARKING, []),
    "iceberg in parts, marked": (MARKING, ["part"]),
    "iceberg version 3": (MARKING | {"format-version": "3"}, []),
}
DELTA = [world for world in WORLDS if "iceberg" not in world]


def made(world: str, folder: Path) -> Any:
    properties, parts = WORLDS[world]
    if "iceberg" in world:
        folder.mkdir(exist_ok=True)
        catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": folder.as_uri()}
        SqlCatalog("default", **catalog).create_namespace("db")
        return sw.create("db.t", SCHEMA, catalog=catalog, properties=properties, partition_by=parts)
    return sw.create(folder / "t", SCHEMA, properties=properties, partition_by=parts)


def theirs(table: Any, rng: random.Random, turn: int) -> None:
    """What deltalake does, in one commit each."""
    own = deltalake.DeltaTable(table.uri)
    kind = rng.choice(["update", "delete", "merge", "compact", "restore"])
    if kind == "update":
        own.update(predicate=f"id > {rng.randrange(30)}", updates={"seq": str(turn)})
    elif kind == "delete":
        own.delete(f"id = {rng.randrange(26)}")
    elif kind == "merge":
        rows = pa.Table.from_pylist(
            [{"id": 3, "part": "a", "seq": turn, "note": None}, {"id": 30, "part": "b"}], SCHEMA
        )
        merge = own.merge(rows, "s.id = t.id AND s.part = t.part", source_alias="s", target_alias="t")
        named = {name: f"s.{name}" for name in SCHEMA.names}
        merge.when_matched_update(named).when_not_matched_insert(named).execute()
    elif kind == "compact":
        own.optimize.compact()
    else:
        own.restore(max(min(own.version() - 1, table.version - 2), 0))


def by_pyiceberg(table: Any, rng: random.Random, turn: int) -> None:
    """What PyIceberg does; it makes two snapshots of some calls."""
    own, mode = table.iceberg, table.properties.get("write.delete.mode", "copy-on-write")
    kind = rng.choice(["append", "delete", "rename", "partition", "drop"])
    if kind == "append":
        rows = changed_tables.some(table, rng, turn, 3)
        own.append(pa.Table.from_pylist(rows, own.schema().as_arrow()))
    elif kind == "delete":
        with own.transaction() as transaction:  # it warns that it would copy
            transaction.set_properties({"write.delete.mode": "copy-on-write"})
        with warnings.catch_warnings(action="ignore"):  # that no row matched
            own.delete(f"id = {rng.randrange(26)}")
        with own.transaction() as transaction:
            transaction.set_properties({"write.delete.mode": mode})
    elif kind == "rename" and len(table.schema.names) > 4:
        with own.update_schema() as update:
            update.rename_column(table.schema.names[-1], f"m{turn}")
    elif kind == "partition" and not any("id" in one for one in table.partition_by):
        with own.update_spec() as spec:
            spec.add_field("id", "bucket[3]", "ids")
    elif kind == "drop" and len(table.schema.names) > 4:
        with own.update_schema() as update:
            update.delete_column(table.schema.names[-1])


def a_history(table: Any, world: str, seed: int, steps: int) -> History:
    """A history of each kind of step, and of more at random; deltalake writes to no table with vectors."""
    rng, history = random.Random(seed), History(table)
    others = (
        [by_pyiceberg] * ("3" not in world) * 4
        if "iceberg" in world
        else [theirs] * (0 if "marked" in world else 3)
    )
    kinds = [*changed_tables.STEPS, *others]
    rng.shuffle(kinds)
    kinds += rng.choices(kinds, k=max(steps - len(kinds), 0))
    for turn, step in enumerate([changed_tables.append, *kinds], 2):
        with suppress(sw.UnsupportedTableError) if "3" in world else nullcontext():
            step(table.refresh(), rng, turn)
        history.note()
    return history


def check(table: Any, history: History, world: str, *, resumed_every: int = 1) -> None:
    names = table.refresh().schema.names
    found = told(table.changes_since(-1), names, net="fed" in world, ends=history.ends())
    assert found == history.differences()
    whole = told(table.changes_since(None), names, net=False)
    rows = changed_tables.counted(history.states[-1][1], history.columns().values())
    assert whole == ([(table.version, {}, rows)] if rows else [])
    assert ("_change_ordinal" in table.changes_since().schema.names) == ("iceberg" in world)
    for since, batch_rows in ((-1, 3), (None, 5)):
        check_resumed(table, since, batch_rows, every=resumed_every)


@pytest.mark.sweep("fed and marked", "iceberg", "iceberg marked")
@pytest.mark.parametrize("world", [*WORLDS])
def test_changes_of_random_histories_are_the_differences_of_full_reads(world: str, tmp_path: Path) -> None:
    table = made(world, tmp_path)
    check(table, a_history(table, world, 5, 0), world, resumed_every=7)


@pytest.mark.long
@pytest.mark.parametrize("world", [*WORLDS])
def test_changes_of_many_random_histories_are_the_differences_of_full_reads(
    world: str, tmp_path: Path
) -> None:
    for seed in range(50):
        table = made(world, tmp_path / str(seed))
        check(table, a_history(table, world, seed, 20), world)


# --- what is told of a commit --------------------------------------------------------------------------------
def kinds(rows: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return [
        (row["_change_type"], *(row[name] for name in names or ("id", "note"))) for row in rows.to_pylist()
    ]


def row(number: int, note: str | None = "x", part: str = "a") -> dict[str, Any]:
    return {"id": number, "part": part, "seq": 1, "note": note}


def update(table: Any, *rows: dict[str, Any], seq: int = 2) -> int:
    given = [{"gone": False, **one, "seq": seq} for one in rows]
    receipt = table.apply_changes(given, keys=["id"], sequence_by=["seq"], delete_when="gone")
    return int(receipt.version)


@pytest.mark.parametrize("world", DELTA)
def test_rows_of_one_key_are_the_two_images_of_an_update(world: str, tmp_path: Path) -> None:
    """By the recorded key, whether files were rewritten, rows marked as gone or a feed kept; by others where they are named."""
    table = made(world, tmp_path)
    table.append([row(number) for number in range(5)])
    version = update(table, row(1, "new"), row(9, "first"), {**row(2), "gone": True})
    batches = list(table.changes_since(version - 1))
    assert [(one.version, one.position) for one in batches] == [(version, f"{version}@{table.table_id}")]
    assert sorted(kinds(batches[0].rows)) == [
        ("delete", 2, "x"),
        ("insert", 9, "first"),
        ("update_postimage", 1, "new"),
        ("update_preimage", 1, "x"),
    ]
    if "fed" not in world:
        types = [kind for kind, _ in kinds(table.changes_since(version - 1, keys=[]).read(), "id")]
        assert types == ["delete", "delete", "insert", "insert"]
        named = {kind for kind, _ in kinds(table.changes_since(version - 1, keys=["part"]).read(), "id")}
        assert named == {"update_preimage", "update_postimage"}
    table.overwrite([row(3, "again")], where="id = 3")
    table.append([row(20)])
    later = kinds(table.changes_since(version).read())
    assert later[-1] == ("insert", 20, "x")
    if "fed" not in world:
        assert later[:2] == [("update_preimage", 3, "x"), ("update_postimage", 3, "again")]


def test_rows_with_a_null_in_their_key_are_no_images_of_each_other(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    table.append([row(1, None), row(2, "b"), row(2, "b")])
    table.overwrite([{**row(1, None), "seq": 5}, {**row(3, "b"), "seq": 5}])
    assert kinds(table.changes_since(1, keys="note").read()) == [
        ("delete", 1, None),
        ("update_preimage", 2, "b"),
        ("update_preimage", 2, "b"),
        ("insert", 1, None),
        ("update_postimage", 3, "b"),
    ]


def test_files_that_are_too_large_to_be_held_are_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made("rewritten", tmp_path)
    for first in range(0, 40, 10):
        table.append([row(number) for number in range(first, first + 10)])
    at = table.version
    table.overwrite([row(number, "new" if number % 10 == 3 else "x") for number in range(40)])
    whole = table.changes_since(at, keys=["id"]).read()
    assert kinds(whole, "id") == [
        *(("update_preimage", number) for number in (3, 13, 23, 33)),
        *(("update_postimage", number) for number in (3, 13, 23, 33)),
    ]
    monkeypatch.setattr(row_changes, "BYTES_AT_ONCE", 1)
    assert table.changes_since(at, keys=["id"]).read().equals(whole)
    check_resumed(table, at, 1)


def test_rows_are_given_in_the_newest_schema(tmp_path: Path) -> None:
    """A column came, one got a wider type; a file without the one, of the narrow type, went."""
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    table = sw.create(tmp_path / "t", schema, properties={"delta.enableTypeWidening": "true"})
    table.append([{"id": 1, "n": 5}])
    table.append([{"id": 2, "n": 2**40, "more": "m"}], schema_mode="widen")
    at = table.version
    table.delete("id = 1")
    rows = table.changes_since(-1).read()
    assert rows.schema.field("n").type == pa.int64()
    assert kinds(rows, "id", "n", "more") == [
        ("insert", 1, 5, None),
        ("insert", 2, 2**40, "m"),
        ("delete", 1, 5, None),
    ]
    assert rows["_commit_version"].to_pylist() == [1, at, at + 1]


def commit(table: Any, *actions: dict[str, Any]) -> None:
    """A commit of another engine's."""
    path = Path(table.uri) / f"_delta_log/{table.refresh().version + 1:020}.json"
    path.write_text("".join(json.dumps(one) + "\n" for one in actions))


def actions_of(table: Any, version: int) -> list[dict[str, Any]]:
    path = Path(table.uri) / f"_delta_log/{version:020}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_column_that_was_renamed_is_followed_by_its_id(tmp_path: Path) -> None:
    """Also a key column, which the table recorded by its name of then."""
    table = made("fed", tmp_path)
    table.append([row(1), row(2)])
    update(table, row(1, "new"))
    table.overwrite([row(2, "more")], where="id = 2")
    metadata = next(one["metaData"] for one in actions_of(table, 0) if "metaData" in one)
    columns = json.loads(metadata["schemaString"])
    for number, one in enumerate(columns["fields"], 1):
        one["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": one["name"]}
        one["name"] = {"id": "number", "part": "folder"}.get(one["name"], one["name"])
    mapping = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    features = ["columnMapping"]
    protocol = {
        "readerFeatures": features,
        "writerFeatures": features,
        "minReaderVersion": 3,
        "minWriterVersion": 7,
    }
    now = {"schemaString": json.dumps(columns), "partitionColumns": ["folder"], "configuration": mapping}
    commit(table, {"protocol": protocol}, {"metaData": {**metadata, **now}})
    table.refresh()
    assert kinds(table.changes_since(-1).read(), "number", "folder", "note") == [
        ("insert", 1, "a", "x"),
        ("insert", 2, "a", "x"),
        ("update_preimage", 1, "a", "x"),
        ("update_postimage", 1, "a", "new"),
        ("update_preimage", 2, "a", "x"),
        ("update_postimage", 2, "a", "more"),
    ]


def test_rows_of_files_with_other_partition_columns_are_told(tmp_path: Path) -> None:
    """As after an overwrite that laid the table out otherwise."""
    table = made("rewritten", tmp_path)
    table.append([row(1), row(2, part="b")])
    rows = table.rows(where="true")
    deltalake.write_deltalake(
        table.uri, rows, mode="overwrite", schema_mode="overwrite", partition_by=["part"]
    )
    table.refresh()
    assert kinds(table.changes_since(0).read()) == [("insert", 1, "x"), ("insert", 2, "x")]
    table.delete("id = 2")
    assert kinds(table.changes_since(2).read(), "id", "part") == [("delete", 2, "b")]


def test_what_a_removal_leaves_out_is_found_in_the_version_before(tmp_path: Path) -> None:
    """``partitionValues`` and ``size`` of a ``remove`` may be left out (PROTOCOL.md, "Add File and Remove File")."""
    table = made("marked", tmp_path)
    table.append([row(1), row(2, part="b")])
    (file,) = [
        one["add"]
        for one in actions_of(table, 1)
        if one.get("add", {}).get("partitionValues") == {"part": "b"}
    ]
    commit(table, {"remove": {"path": file["path"], "dataChange": True, "deletionTimestamp": 1}})
    table.refresh()
    assert kinds(table.changes_since(1).read(), "id", "part") == [("delete", 2, "b")]


def test_a_batch_may_be_as_large_as_a_number_is(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    table.append([row(1)])
    assert table.changes_since(-1, batch_rows=2**80).read().num_rows == 1


def test_an_object_that_is_older_than_a_position_says_what_to_do(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    other = sw.open(table.uri)
    other.append([row(1)])
    since = other.changes_since(None)
    since.read()
    with pytest.raises(sw.HistoryGapError, match=r"or this object is older: refresh\(\) it"):
        table.changes_since(since.position).read()
    assert table.refresh().changes_since(since.position).read().num_rows == 0


def test_rows_that_an_earlier_vector_took_went_once(tmp_path: Path) -> None:
    table = made("marked", tmp_path)
    table.append([row(number) for number in range(9)])
    for number in (4, 2):
        table.delete(f"id = {number}")
    assert [len(actions_of(table, version)) for version in (2, 3)] == [3, 3]  # commitInfo, remove, add
    assert kinds(table.changes_since(1).read(), "id") == [("delete", 4), ("delete", 2)]


def test_rows_that_come_back_by_a_vector_are_inserts(tmp_path: Path) -> None:
    table = made("fed and marked", tmp_path)
    table.append([row(number) for number in range(6)])
    table.delete("id = 4")
    before, after = actions_of(table, 1), actions_of(table, 2)
    (add,) = [one["add"] for one in before if "add" in one]
    (marked,) = [one["add"] for one in after if "add" in one]
    names = ("path", "partitionValues", "size", "deletionVector")
    commit(table, {"add": add}, {"remove": {**{name: marked[name] for name in names}, "dataChange": True}})
    table.refresh()
    assert kinds(table.changes_since(1).read(), "id") == [("delete", 4), ("insert", 4)]


# --- positions -------------------------------------------------------------------------------------------------
def test_a_position_of_nothing_new_moves_past_commits_without_changes(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    table.append([row(1)])
    table.append([row(2)])
    at = table.changes_since(-1)
    assert [one.version for one in at] == [1, 2]
    deltalake.DeltaTable(table.uri).optimize.compact()
    assert list(table.changes_since(at.position)) == []  # as of the version that was seen
    after = table.refresh().changes_since(at.position)
    assert list(after) == []
    assert after.position == f"3@{table.table_id}"
    assert after.schema.names[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]


def test_a_time_begins_before_the_first_commit_of_that_time(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    for number in range(3):
        table.append([row(number)])
    times = {one.version: one.timestamp for one in table.history()}
    found = [one.version for one in table.changes_since(times[2])]
    assert 2 in found
    assert set(found) <= {1, 2, 3}
    assert list(table.changes_since(times[3] + dt.timedelta(seconds=1))) == []
    assert [one.version for one in table.changes_since(times[0] - dt.timedelta(days=1))] == [1, 2, 3]


def test_a_wrong_call_is_refused(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    table.append([row(1)])
    at = table.changes_since().position
    assert at is None
    wrong = ("1", "x@y", 1.0, True, -2, dt.datetime(2026, 1, 1), b"1")  # noqa: DTZ001 - without a zone
    for position in wrong:
        with pytest.raises(sw.InvalidInputError, match="changes_since"):
            table.changes_since(position)
    for more in ({"keys": ["idd"]}, {"keys": ["id", "id"]}, {"batch_rows": 0}, {"batch_rows": True}):
        with pytest.raises(sw.InvalidInputError):
            table.changes_since(-1, **more)
    with pytest.raises(sw.InvalidInputError, match=r"^keys= takes names .*Nothing was read\."):
        table.changes_since(-1, keys=["idd"])
    named = sw.create(tmp_path / "n", pa.schema([("_change_type", pa.string())]))
    with pytest.raises(sw.UnsupportedTableError, match="_change_type"):
        named.changes_since(None)


def test_changes_whose_history_is_gone_are_refused_and_never_passed_over(tmp_path: Path) -> None:
    """A log that was cleaned, a file that VACUUM took, another table at the address, a version that is not there yet."""
    table = made("rewritten", tmp_path)
    for number in range(4):
        table.append([row(number)])
    table.overwrite([row(9)])
    (file,) = [one["add"]["path"] for one in actions_of(table, 2) if "add" in one]
    (Path(table.uri) / file).unlink()
    reader = table.changes_since(0)
    assert next(reader).version == 1
    for _ in range(2):
        with pytest.raises(sw.HistoryGapError, match=r"a file of version 2 .*VACUUM.*changes_since\(None\)"):
            next(reader)
    assert reader.position == f"1@{table.table_id}"
    assert [one.version for one in table.changes_since(None)] == [5]
    with pytest.raises(sw.HistoryGapError, match="only version 5"):
        next(table.changes_since(6))
    with pytest.raises(sw.HistoryGapError, match="another table"):
        table.changes_since("3@other")
    with pytest.raises(sw.HistoryGapError, match="another table"):
        table.changes_since(3, table_id="other")
    deltalake.DeltaTable(table.uri).create_checkpoint()
    (Path(table.uri) / f"_delta_log/{3:020}.json").unlink()
    with pytest.raises(sw.HistoryGapError, match="cleaned up"):
        next(sw.open(table.uri).changes_since(2))


def test_a_table_that_was_made_again_at_its_address_is_refused(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    table.append([row(1)])
    at = table.changes_since(None)
    assert len(list(at)) == 1
    metadata = next(one["metaData"] for one in actions_of(table, 0) if "metaData" in one)
    commit(table, {"metaData": {**metadata, "id": "another"}})
    again = sw.open(table.uri)
    with pytest.raises(sw.HistoryGapError, match="another table"):
        again.changes_since(at.position)
    with pytest.raises(sw.HistoryGapError, match="made another table"):
        again.changes_since(-1).read()


def test_a_table_that_was_dropped_is_not_found_from_any_position(tmp_path: Path) -> None:
    table = sw.create(str(tmp_path / "t"), SCHEMA)
    table.append([row(1)])
    shutil.rmtree(tmp_path / "t")
    for position in (None, -1, 0):
        with pytest.raises(sw.TableNotFoundError, match="was dropped"):
            table.changes_since(position).read()


def test_changes_that_are_being_read_say_what_to_keep_in_their_place(tmp_path: Path) -> None:
    table = sw.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(TypeError, match=r"changes_since\(position\)"):
        pickle.dumps(table.changes_since(None))


def test_a_look_broken_off_within_a_rewrite_is_not_gone_on_with_under_other_columns(tmp_path: Path) -> None:
    table = made("rewritten", tmp_path)
    table.append([row(number) for number in range(6)])
    table.overwrite([row(number, "new") for number in range(6)])
    taken = [next(reader) for reader in [table.changes_since(1, batch_rows=4)]]
    table.append([{**row(7), "more": 1}], schema_mode="merge")
    with pytest.raises(sw.HistoryGapError, match="4 changes of version 2"):
        next(table.changes_since(taken[0].position))
    begun = next(table.changes_since(0, batch_rows=4))
    table.append([{**row(7), "more": 1, "most": 1}], schema_mode="merge")
    assert next(table.changes_since(begun.position)).rows.num_rows == 2
