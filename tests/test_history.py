"""The history of a table: which commits there are, who made them, what they carry."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.delta.write.members import FOLDER
from safewrite.iceberg.history import _carrier
from safewrite.iceberg.metadata import SOURCE, head_of
from safewrite.iceberg.write.members import FINGERPRINT, KEY, ROWS
from safewrite.table.history import CommittedWrite, HistoryEntry
from tests.test_append_many import Place
from tests.test_cli import run


@pytest.fixture(params=["delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.param)


def told(entries: list[HistoryEntry]) -> list[tuple[Any, ...]]:
    """Rows and keys of each commit."""
    return [(one.rows_added, one.rows_removed, [write.key for write in one.writes]) for one in entries]


def ids(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in numbers]


# --- our own commits ------------------------------------------------------------------------------------
def test_each_commit_is_told_with_its_rows_and_its_write_newest_first(place: Place) -> None:
    table = place.open()
    started = dt.datetime.now(dt.UTC) - dt.timedelta(minutes=5)
    receipts = [
        table.append(ids(1, 2, 3), key="event-1", properties={"etl.run": "7"}),
        table.append(ids(4), txn=("orders", 5)),
        table.overwrite(ids(2, 2), where="id = 2", key="event-2"),
        table.delete("id >= 3", key="event-3"),
    ]
    found = table.history()
    assert [one.version for one in found] == [receipt.version for receipt in reversed(receipts)]
    assert told(found) == [
        (0, 2, ["event-3"]),
        (2, 1, ["event-2"]),
        (1, 0, ["orders/5"]),
        (3, 0, ["event-1"]),
    ]
    assert [one.engine for one in found] == [f"safewrite/{sw.__version__}"] * 4
    assert all(started < one.timestamp < started + dt.timedelta(hours=1) for one in found)
    assert {one.timestamp.tzinfo for one in found} == {dt.UTC}
    assert [dict(one.properties) for one in found] == [{}, {}, {}, {"etl.run": "7"}]
    assert found[2].writes == (CommittedWrite("orders/5", 1, ("orders", 5), receipts[1].fingerprint),)
    words = {
        "delta": ["DELETE", "WRITE", "WRITE", "WRITE"],
        "iceberg": ["overwrite", "overwrite", "append", "append"],
    }
    assert [one.operation for one in found] == words[place.format]


@pytest.mark.sweep("iceberg")
def test_a_limit_gives_the_newest_commits(place: Place) -> None:
    table = place.open()
    versions = [table.append(ids(number), key=str(number)).version for number in range(5)]
    assert [one.version for one in table.history(2)] == [versions[4], versions[3]]
    assert [one.version for one in table.history(limit=99)] == versions[::-1]


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "3"])
def test_a_limit_that_is_no_number_of_commits_is_refused(place: Place, limit: Any) -> None:
    table = place.open()
    table.append(ids(1), key="a")
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        table.history(limit)


@pytest.mark.sweep("iceberg")
def test_a_history_shows_what_another_object_wrote_meanwhile(place: Place) -> None:
    table = place.open()
    table.append(ids(1), key="a")
    place.open().append(ids(2), key="b")
    assert told(table.history()) == [(1, 0, ["b"]), (1, 0, ["a"])]


def test_a_table_that_is_not_there_has_no_history(place: Place) -> None:
    table = place.open()
    with pytest.raises(sw.TableNotFoundError):
        table.history()
    with pytest.raises(sw.TableNotFoundError):
        table.committed_writes(0)


# --- groups ---------------------------------------------------------------------------------------------
@pytest.mark.sweep("iceberg")
def test_a_short_group_is_told_member_by_member(place: Place) -> None:
    table = place.open()
    table.append_many([("a", ids(1)), ("b", ids(2, 3)), (("app", 7), ids(4))])
    (entry,) = table.history()
    assert (entry.rows_added, entry.write_count) == (4, 3)
    assert [(one.key, one.rows, one.txn) for one in entry.writes] == [
        ("a", 1, None), ("b", 2, None), ("app/7", 1, ("app", 7))
    ]  # fmt: skip
    assert table.committed_writes(entry.version) == list(entry.writes)


MANY = 700
"""Members enough for a list of its own on both formats."""


@pytest.mark.sweep("iceberg")
def test_a_long_group_is_told_by_its_first_members_and_read_as_a_whole(place: Place) -> None:
    table = place.open()
    table.append(ids(-1), key="before")
    table.append_many([(f"event-{number}", ids(number)) for number in range(MANY)])
    newest, oldest = table.history()
    assert (newest.rows_added, newest.write_count) == (MANY, MANY)
    assert [one.key for one in newest.writes] == [f"event-{number}" for number in range(10)]
    assert [one.key for one in oldest.writes] == ["before"]
    whole = table.committed_writes(newest.version)
    assert [one.key for one in whole] == [f"event-{number}" for number in range(MANY)]


@pytest.mark.long
def test_a_list_that_is_gone_leaves_its_count(tmp_path: Path) -> None:
    table = Place(tmp_path, "delta").open()
    table.append_many([(f"event-{number}", ids(number)) for number in range(MANY)])
    for path in (tmp_path / "t" / FOLDER).iterdir():
        path.unlink()
    (entry,) = table.history()
    assert (entry.writes, entry.write_count) == ((), MANY)
    with pytest.raises(sw.StorageError, match="is gone"):
        table.committed_writes(0)


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("version", [99, -1, "0", None, True])
def test_writes_of_a_version_that_is_not_there_are_refused(place: Place, version: Any) -> None:
    table = place.open()
    table.append(ids(1), key="a")
    with pytest.raises(sw.InvalidInputError, match="Nothing was written"):
        table.committed_writes(version)


# --- other engines --------------------------------------------------------------------------------------
def test_commits_of_deltalake_are_told_in_its_own_words(tmp_path: Path) -> None:
    name = str(tmp_path / "t")
    by_app = deltalake.CommitProperties(
        custom_metadata={"team": "sales"}, app_transactions=[deltalake.Transaction("stream", 3)]
    )
    deltalake.write_deltalake(name, pa.table({"id": [1, 2, 3]}), commit_properties=by_app)
    theirs = deltalake.DeltaTable(name)
    theirs.update(updates={"id": "9"}, predicate="id = 1")
    theirs.merge(
        pa.table({"id": [9, 10]}), "s.id = t.id", source_alias="s", target_alias="t"
    ).when_matched_delete().when_not_matched_insert_all().execute()
    theirs.delete("id = 2")
    theirs.optimize.compact()
    found = sw.open(name).history()
    operations = [one.operation for one in found]
    assert operations[-4:] == ["DELETE", "MERGE", "UPDATE", "WRITE"]
    rows = {one.operation: (one.rows_added, one.rows_removed) for one in found}
    assert rows["WRITE"] == (3, 0)
    assert rows["UPDATE"] == (1, 1)
    assert rows["MERGE"] == (1, 1)
    assert rows["DELETE"] == (0, 1)
    assert rows.get("OPTIMIZE", (0, 0)) == (0, 0)
    assert {one.engine for one in found} == {f"delta-rs:py-{deltalake.__version__}"}
    first = found[-1]
    assert first.writes == (CommittedWrite(None, txn=("stream", 3)),)
    assert first.properties["team"] == "sales"
    assert sw.open(name).committed_writes(0) == list(first.writes)
    times = [entry["timestamp"] for entry in theirs.history()]
    assert [round(one.timestamp.timestamp() * 1000) for one in found] == times


def commit(folder: Path, version: int, *actions: dict[str, Any]) -> Path:
    path = folder / "_delta_log" / f"{version:020}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return path


def add(path: str, rows: int | None, **more: Any) -> dict[str, Any]:
    stats = {} if rows is None else {"stats": json.dumps({"numRecords": rows})}
    file = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {**file, **stats, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **more}}


def test_a_commit_that_tells_nothing_of_itself_is_told_by_its_files_and_the_store(tmp_path: Path) -> None:
    table = Place(tmp_path, "delta").open()
    table.append(ids(1), key="a")
    path = commit(tmp_path / "t", 1, add("x.parquet", 4), add("y.parquet", 3))
    os.utime(path, (1_700_000_000, 1_700_000_000))
    (entry, _) = table.history()
    assert entry.timestamp == dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
    assert (entry.operation, entry.engine) == (None, None)
    assert (entry.rows_added, entry.rows_removed) == (7, 0)
    assert (entry.writes, entry.write_count, dict(entry.details)) == ((), 0, {})


@pytest.mark.parametrize(
    ("actions", "rows"),
    [
        ([add("x", None)], (None, 0)),
        ([add("x", 2), remove("a")], (2, None)),
        ([add("x", 2), remove("a", stats='{"numRecords": 5}')], (2, 5)),
        ([add("x", 5, dataChange=False), remove("a", dataChange=False)], (0, 0)),
        ([remove("a", stats="garbage")], (0, None)),
        ([add("x", 5, deletionVector={"cardinality": 2, "storageType": "u", "pathOrInlineDv": "v"})], (3, 0)),
        ([{"txn": {"appId": "s", "version": 4}}], (0, 0)),
        ([{"commitInfo": {"operation": "WRITE", "operationMetrics": {"numOutputRows": "2"}}}, add("x", 3),
          remove("a", stats='{"numRecords": 5}')], (2, 4)),
        ([{"commitInfo": {"operation": "MERGE", "operationMetrics": "?"}}, add("x", 1)], (1, 0)),
        ([{"commitInfo": {"operation": 7, "timestamp": "soon", "engineInfo": None}}, add("x", 1)], (1, 0)),
        ([{"commitInfo": {"timestamp": 10**30, "operation": "DELETE",
                          "operationMetrics": {"numDeletedRows": "3", "numCopiedRows": "1"}}}], (0, 3)),
    ],
)  # fmt: skip
def test_rows_are_those_that_are_recorded_and_otherwise_none(
    tmp_path: Path, actions: list[dict[str, Any]], rows: tuple[int | None, int | None]
) -> None:
    table = Place(tmp_path, "delta").open()
    table.append(ids(1), key="a")
    commit(tmp_path / "t", 1, *actions)
    entry = table.history()[0]
    assert (entry.rows_added, entry.rows_removed) == rows
    assert entry.timestamp is not None
    assert json.dumps(entry.to_dict())


def test_a_log_that_was_cleaned_up_tells_what_is_left(tmp_path: Path) -> None:
    table = Place(tmp_path, "delta").open()
    for number in range(5):
        table.append(ids(number), key=str(number))
    table.checkpoint()
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020}.json").unlink()
    fresh = sw.open(tmp_path / "t")
    assert [one.version for one in fresh.history()] == [4, 3]
    assert [one.version for one in fresh.history(4)] == [4, 3]
    with pytest.raises(sw.InvalidInputError, match="cleaned up"):
        fresh.committed_writes(1)


# --- Iceberg's branches ---------------------------------------------------------------------------------
@pytest.fixture
def iceberg(tmp_path: Path) -> Place:
    return Place(tmp_path, "iceberg")


def test_snapshots_of_pyiceberg_are_told_by_what_their_summaries_count(iceberg: Place) -> None:
    table = iceberg.open()
    table.append(ids(1), key="a")
    table.iceberg.append(pa.table({"id": [5, 6]}), snapshot_properties={"team": "sales"})
    table.refresh()
    table.iceberg.delete("id = 5")
    found = table.history()
    assert told(found) == [(1, 2, []), (2, 0, []), (1, 0, ["a"])]
    assert [one.engine for one in found] == [None, None, f"safewrite/{sw.__version__}"]
    assert [one.properties.get("team") for one in found] == [None, "sales", None]
    assert found[1].details["added-records"] == "2"


def test_a_history_is_that_of_the_branch_without_what_was_rolled_back(iceberg: Place) -> None:
    table = iceberg.open()
    kept = table.append(ids(1), key="a").version
    gone = table.append(ids(2), key="b").version
    table.iceberg.manage_snapshots().set_current_snapshot(kept).commit()
    again = table.append(ids(3), key="c").version
    assert [one.version for one in table.history()] == [again, kept]
    assert [one.key for one in table.committed_writes(gone)] == ["b"]


def test_expired_snapshots_are_not_in_the_history(iceberg: Place) -> None:
    table = iceberg.open()
    versions = [table.append(ids(number), key=str(number)).version for number in range(3)]
    table.iceberg.maintenance.expire_snapshots().by_id(versions[0]).commit()
    assert [one.version for one in table.history()] == versions[:0:-1]


@pytest.mark.long
def test_a_cherry_picked_snapshot_brings_the_writes_of_its_source(iceberg: Place) -> None:
    """Spark's cherrypick_snapshot, as it stands in the metadata."""
    table = iceberg.open()
    table.append(ids(1), key="a")
    summaries = {5: {SOURCE: "4"}, 4: {KEY: "staged", FINGERPRINT: "f", ROWS: "2"}}
    head = head_of(table.iceberg)
    picked = replace(
        head, current=5, parents={5: head.current, 4: head.current, **head.parents},
        summaries={**head.summaries, **summaries}, picked={5: 4},
    )  # fmt: skip
    assert [_carrier(picked, at) for at in picked.ancestors()] == [4, head.current]


# --- the command ----------------------------------------------------------------------------------------
@pytest.mark.long
def test_the_command_tells_what_the_call_tells(place: Place) -> None:
    table = place.open()
    table.append(ids(1, 2), key="event-1", properties={"etl.run": "7"})
    table.append_many([(f"event [{number}]", ids(number)) for number in range(MANY)])
    code, answer = place.command("history")
    assert code == 0
    assert answer == {"table": table.uri, "history": [one.to_dict() for one in table.history()]}
    newest, oldest = answer["history"]
    assert dt.datetime.fromisoformat(oldest["timestamp"]).tzinfo is not None
    assert (newest["write_count"], len(newest["writes"])) == (MANY, 10)
    assert place.command("history", "--limit", 1)[1]["history"] == [newest]
    code, answer = place.command("history", "--commit", newest["version"])
    assert (code, len(answer["writes"])) == (0, MANY)
    assert answer["writes"][0]["key"] == "event [0]"


@pytest.mark.sweep("iceberg")
def test_the_command_refuses_what_is_not_there(place: Place) -> None:
    assert place.command("history")[0] == 2
    place.open().append(ids(1), key="a")
    assert place.command("history", "--limit", 0)[0] == 2
    assert place.command("history", "--commit", 77)[0] == 2
    assert place.command("history", "--limit", 3)[0] == 0


def test_the_command_shows_a_grid(tmp_path: Path) -> None:
    table = Place(tmp_path, "delta").open()
    table.append(ids(1, 2), txn=("app", 3))
    deltalake.write_deltalake(
        table.uri, pa.table({"id": [5]}), mode="append",
        commit_properties=deltalake.CommitProperties(app_transactions=[deltalake.Transaction("stream [x]", 3)]),
    )  # fmt: skip
    table.append_many([(f"event-{number}", ids(number)) for number in range(MANY)])
    code, printed = run("history", table.uri)
    assert code == 0
    assert all(part in printed for part in ("batch 3 of stream [x]", "app/3", "event-9", "delta-rs", "WRITE"))
    assert "690 more" in " ".join(printed.split())
    code, printed = run("history", table.uri, "--commit", 2)
    assert (code, f"event-{MANY - 1}" in printed) == (0, True)
