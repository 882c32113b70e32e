"""Overwrites replace exactly the rows that match, beside others, and once."""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from safewrite.delta.data.datafiles import encode
from safewrite.delta.log import actions
from safewrite.delta.log.snapshot import load
from safewrite.delta.write.abc import Write
from safewrite.delta.write.file_changes import removal
from safewrite.delta.write.overwrite import OverwriteTransaction
from safewrite.delta.write.write import write
from safewrite.errors import (
    ConflictError,
    InternalError,
    InvalidInputError,
    Kind,
    ReplayMismatchError,
    StorageError,
    UnsupportedTableError,
)
from safewrite.frames.prepare import prepare
from safewrite.frames.replace_where import EVERYTHING, check_rows, digest
from safewrite.frames.where import parse
from safewrite.protocol.ask import Limits
from safewrite.protocol.delta.commit import Arbiter
from safewrite.protocol.effects import Get, GetTail, Ok, PutIfAbsent, Unknown
from tests.delta.logs import Table, metadata

ALONE = Arbiter(lock_table=False)


def rows(*values: tuple[int | None, str | None]) -> pa.Table:
    return pa.table({"n": pa.array([n for n, _ in values], pa.int64()), "day": [day for _, day in values]})


@pytest.fixture
def table(tmp_path) -> Table:
    """Rows 1..6 of days a, b and NULL, written by deltalake: one file a day and write."""
    write_deltalake(tmp_path / "first", rows((1, "a"), (2, "b"), (3, None)), partition_by=["day"])
    write_deltalake(tmp_path / "first", rows((4, "a"), (5, "b"), (None, "b")), mode="append")
    return Table.of_folder(tmp_path / "first")


def candidate(table: Table, data: pa.Table, where=None, *, key: str | None = None, **more):
    """A planned-to-be overwrite and the encoder of its rows."""
    state = table.run(load())
    predicate = EVERYTHING if where is None else parse(where, state.schema)
    prepared = prepare(data, state.schema, partition_by=state.partition_by)
    check_rows(prepared, predicate)
    fingerprint = prepared.fingerprint
    write = Write(
        key or f"key-{uuid.uuid4()}", str(fingerprint), prepared.rows, fingerprint_int63=fingerprint.int63
    )
    wanted = OverwriteTransaction(
        commit_id=str(uuid.uuid4()),
        write=write.covering(digest(predicate, "overwrite")),
        timestamp_ms=1_700_000_000_000,
        limits=Limits(),
        state=state,
        predicate=predicate,
        **more,
    )
    return wanted, lambda: encode(prepared, partition_by=state.partition_by, write_id=wanted.commit_id)


def run(table: Table, wanted: OverwriteTransaction, encode_rows):
    return table.run(write(wanted, encode_rows, arbiter=ALONE, limits=Limits()))


def do(table: Table, data: pa.Table, where=None, **more):
    return run(table, *candidate(table, data, where, **more))


def contents(table: Table, folder) -> list[tuple[int | None, str | None]]:
    """The table's rows, as deltalake reads them."""
    read = DeltaTable(table.to_folder(folder / uuid.uuid4().hex)).to_pyarrow_table().to_pylist()
    return sorted(((row["n"], row["day"]) for row in read), key=str)


def expected(*values):
    return sorted(values, key=str)


BEFORE = [(1, "a"), (2, "b"), (3, None), (4, "a"), (5, "b"), (None, "b")]


def actions_of(table: Table, version: int, name: str) -> list[dict]:
    commit = actions.parse(table.blobs[actions.commit_path(version)], version)
    return list(commit.adds()) if name == "add" else commit.of(name)


# --- whole files -------------------------------------------------------------------------------------
def test_an_overwrite_without_where_replaces_everything(table, tmp_path):
    done = do(table, rows((9, "c")))
    assert (done.version, done.already, done.rows) == (2, False, 1)
    assert contents(table, tmp_path) == [(9, "c")]


@pytest.mark.parametrize("where", ["day = 'a'", [("day", "=", "a")]])
def test_where_on_a_partition_column_removes_whole_files_and_reads_none(table, tmp_path, where):
    wanted, encode_rows = candidate(table, rows((9, "a")), where)
    read = []
    table.answer = lambda effect: read.append(effect.path) if isinstance(effect, Get) else None
    run(table, wanted, encode_rows)
    assert not [path for path in read if path.endswith(".parquet")]
    assert contents(table, tmp_path) == expected((9, "a"), (2, "b"), (3, None), (5, "b"), (None, "b"))
    assert len(actions_of(table, 2, "remove")) == 2
    assert len(actions_of(table, 2, "add")) == 1


def test_a_null_partition_is_replaced_by_is_null_and_kept_by_everything_else(table, tmp_path):
    do(table, rows((9, None)), "day IS NULL")
    assert contents(table, tmp_path) == expected(
        (1, "a"), (2, "b"), (4, "a"), (5, "b"), (None, "b"), (9, None)
    )
    do(table, rows((8, "a")), "day <> 'b'")
    assert contents(table, tmp_path) == expected((8, "a"), (2, "b"), (5, "b"), (None, "b"), (9, None))


def test_no_rows_at_all_only_remove(table, tmp_path):
    do(table, rows(), "day = 'b'")
    assert contents(table, tmp_path) == expected((1, "a"), (3, None), (4, "a"))
    assert actions_of(table, 2, "add") == []


def test_where_that_matches_nothing_only_adds(table, tmp_path):
    do(table, rows((9, "z")), "day = 'z'")
    assert contents(table, tmp_path) == expected(*BEFORE, (9, "z"))
    assert actions_of(table, 2, "remove") == []


def test_the_commit_says_what_it_did(table):
    do(table, rows((9, "a")), "day = 'a'")
    (info,) = actions_of(table, 2, "commitInfo")
    assert info["operationParameters"] == {
        "mode": "Overwrite",
        "partitionBy": '["day"]',
        "predicate": "\"day\" = 'a'",
    }
    assert info["isBlindAppend"] is False
    removes = actions_of(table, 2, "remove")
    assert {remove["partitionValues"]["day"] for remove in removes} == {"a"}
    assert all(
        remove["extendedFileMetadata"] and remove["size"] and remove["deletionTimestamp"]
        for remove in removes
    )


def test_a_file_with_a_deletion_vector_is_removed_with_it():
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    add = {
        "path": "p%20q",
        "partitionValues": {"day": None},
        "size": 3,
        "deletionVector": vector,
        "baseRowId": 0,
    }
    remove = removal(add, 77)["remove"]
    assert actions.file_key(remove) == actions.file_key(add)
    assert remove["deletionVector"] == vector
    assert (remove["path"], remove["size"], remove["deletionTimestamp"], remove["baseRowId"]) == (
        "p%20q",
        3,
        77,
        0,
    )
    assert remove["partitionValues"] == {"day": None}


# --- rewritten files ------------------------------------------------------------------------------------
def test_where_on_a_data_column_keeps_the_rows_for_which_it_is_not_true(table, tmp_path):
    """NULL keeps: the row without n neither is greater than 2 nor is not."""
    do(table, rows((9, "c"), (7, "b")), "n > 2")
    assert contents(table, tmp_path) == expected((1, "a"), (2, "b"), (None, "b"), (9, "c"), (7, "b"))


def test_only_files_with_matching_rows_are_touched(table, tmp_path):
    do(table, rows((5, "b")), "n = 5")
    assert contents(table, tmp_path) == expected(*BEFORE)
    (removed,) = actions_of(table, 2, "remove")
    assert removed["partitionValues"] == {"day": "b"}
    kept, new = sorted(actions_of(table, 2, "add"), key=lambda add: "kept" not in add["path"])
    assert json.loads(kept["stats"])["numRecords"] == 1
    assert kept["partitionValues"] == {"day": "b"}
    assert kept["path"].startswith("day=b/")
    assert json.loads(new["stats"])["numRecords"] == 1


def test_a_mixed_condition_reads_only_the_partitions_it_may_touch(table, tmp_path):
    wanted, encode_rows = candidate(table, rows((5, "b")), "day = 'b' AND n >= 5")
    read = []
    table.answer = lambda effect: read.append(effect.path) if isinstance(effect, Get) else None
    run(table, wanted, encode_rows)
    assert {path.split("/")[0] for path in read if path.endswith(".parquet")} == {"day=b"}
    assert contents(table, tmp_path) == expected(*BEFORE)


def test_kept_rows_keep_every_value_of_every_type(tmp_path):
    moment = dt.datetime(2026, 11, 21, 1, 2, 3, 456789, tzinfo=dt.UTC)
    data = pa.table(
        {
            "n": pa.array([1, 2, 3], pa.int64()),
            "price": pa.array([float("nan"), -0.0, 1e300]),
            "text": ["", None, "é'\u2028"],
            "at": pa.array([moment, None, moment], pa.timestamp("us", tz="UTC")),
            "amount": pa.array([None, "1.10", "-0.01"]).cast(pa.decimal128(20, 2)),
            "tags": pa.array([[], None, ["a", None]], pa.list_(pa.string())),
            "inner": pa.array([{"x": 1}, None, {"x": None}], pa.struct({"x": pa.int32()})),
            "blob": pa.array([b"", None, b"\xff\x00"], pa.binary()),
        }
    )
    write_deltalake(tmp_path / "first", data)
    table = Table.of_folder(tmp_path / "first")
    do(table, data.slice(1, 1), "n = 2")
    after = DeltaTable(table.to_folder(tmp_path / "after")).to_pyarrow_table().sort_by("n")
    assert str(after.to_pylist()) == str(data.to_pylist())


def test_columns_added_after_a_file_was_written_read_as_null_in_its_kept_rows(tmp_path):
    write_deltalake(tmp_path / "first", pa.table({"n": [1, 2]}))
    write_deltalake(
        tmp_path / "first", pa.table({"n": [3], "more": ["x"]}), mode="append", schema_mode="merge"
    )
    table = Table.of_folder(tmp_path / "first")
    do(table, pa.table({"n": [2], "more": ["y"]}), "n = 2")
    after = DeltaTable(table.to_folder(tmp_path / "after")).to_pyarrow_table().sort_by("n")
    assert after.to_pylist() == [{"n": 1, "more": None}, {"n": 2, "more": "y"}, {"n": 3, "more": "x"}]


def test_where_on_a_column_that_a_file_lacks_finds_null_there(tmp_path):
    write_deltalake(tmp_path / "first", pa.table({"n": [1, 2]}))
    write_deltalake(
        tmp_path / "first", pa.table({"n": [3], "more": ["x"]}), mode="append", schema_mode="merge"
    )
    table = Table.of_folder(tmp_path / "first")
    do(
        table,
        pa.table({"n": [9], "more": [None]}, schema=pa.schema({"n": pa.int64(), "more": pa.string()})),
        "more IS NULL",
    )
    after = DeltaTable(table.to_folder(tmp_path / "after")).to_pyarrow_table().sort_by("n")
    assert after.to_pylist() == [{"n": 3, "more": "x"}, {"n": 9, "more": None}]


def test_int96_instants_of_spark_stay_the_same_instants(tmp_path):
    moments = [dt.datetime(2026, 11, 21, hour, tzinfo=dt.UTC) for hour in (1, 2)]
    data = pa.table({"n": [1, 2], "at": pa.array(moments, pa.timestamp("us", tz="UTC"))})
    write_deltalake(tmp_path / "first", data)
    table = Table.of_folder(tmp_path / "first")
    (path,) = [path for path in table.blobs if path.endswith(".parquet")]
    pq.write_table(data, sink := io.BytesIO(), use_deprecated_int96_timestamps=True)
    table.blobs[path] = sink.getvalue()
    do(table, data.slice(1, 1), "n = 2")
    after = DeltaTable(table.to_folder(tmp_path / "after")).to_pyarrow_table().sort_by("n")
    assert after.column("at").to_pylist() == moments


def test_a_large_kept_part_is_split_into_files_of_the_target_size(tmp_path):
    data = pa.table({"n": list(range(20_000)), "text": [f"{n * 7919:x}" for n in range(20_000)]})
    write_deltalake(tmp_path / "first", data)
    table = Table.of_folder(tmp_path / "first")
    do(table, data.slice(0, 1), "n = 0", target_file_size=40_000)
    assert len(actions_of(table, 1, "add")) > 3
    after = DeltaTable(table.to_folder(tmp_path / "after")).to_pyarrow_table().sort_by("n")
    assert after.column("n").to_pylist() == data.column("n").to_pylist()


# --- refused --------------------------------------------------------------------------------------------
def test_rows_outside_where_are_refused_with_their_number(table):
    before = dict(table.blobs)
    with pytest.raises(InvalidInputError, match="2 of 3 rows"):
        do(table, rows((1, "a"), (2, "b"), (3, None)), "day = 'a'")
    assert table.blobs == before


def test_a_file_whose_deletion_vector_cannot_be_read_is_only_removed_whole(table):
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    (add, *_) = actions_of(table, 1, "add")
    table.commit(
        {"add": {**add, "deletionVector": vector}}, {"remove": {"path": add["path"], "dataChange": True}}
    )
    before = dict(table.blobs)
    with pytest.raises(StorageError, match=r"deletion vector of data file .* cannot be read") as caught:
        do(table, rows(), "n > 0")
    assert caught.value.kind is Kind.DATA_FILE_DAMAGED
    assert table.blobs == before
    do(table, rows())
    assert vector in [remove.get("deletionVector") for remove in actions_of(table, 3, "remove")]


def test_a_file_outside_the_table_is_not_rewritten(table):
    (add, *_) = actions_of(table, 1, "add")
    table.commit({"add": {**add, "path": "s3://elsewhere/x.parquet"}})
    with pytest.raises(UnsupportedTableError, match="elsewhere") as caught:
        do(table, rows(), "n > 0", key="event-1")
    assert caught.value.key == "event-1"


@pytest.mark.parametrize(
    ("properties", "where", "feature"),
    [
        ({"delta.appendOnly": "true"}, None, "appendOnly"),
    ],
)
def test_tables_that_forbid_it_are_refused_by_feature(table, properties, where, feature):
    (meta,) = actions_of(table, 0, "metaData")
    table.commit({"metaData": {**meta, "configuration": properties}})
    with pytest.raises(UnsupportedTableError, match=feature):
        do(table, rows(), where)


@pytest.mark.parametrize("damage", ["gone", "torn", "other rows"])
def test_a_data_file_that_is_not_what_the_log_says_is_never_rewritten(table, damage):
    paths = [path for path in table.blobs if path.endswith(".parquet")]
    other = io.BytesIO()
    pq.write_table(pa.table({"n": list(range(100))}), other)
    for path in paths:
        if damage == "gone":
            del table.blobs[path]
        else:
            table.blobs[path] = table.blobs[path][:-20] if damage == "torn" else other.getvalue()
    with pytest.raises(StorageError) as caught:
        do(table, rows(), "n > 0")
    assert caught.value.kind is Kind.DATA_FILE_DAMAGED
    assert table.next_version == 2


def test_a_rewritten_file_that_a_vacuum_took_is_not_committed(table):
    """B1: the kept rows are checked before the commit, like the new ones."""
    wanted, encode_rows = candidate(table, rows(), "n >= 5")

    def vacuum(effect):
        if isinstance(effect, GetTail):
            for path in [path for path in table.blobs if "-kept" in path]:
                del table.blobs[path]

    table.answer = vacuum
    with pytest.raises(StorageError) as caught:
        run(table, wanted, encode_rows)
    assert caught.value.kind is Kind.DATA_FILE_DAMAGED
    assert table.next_version == 2


def test_an_overwrite_that_was_not_planned_is_never_committed(table):
    wanted, _ = candidate(table, rows((9, "a")))
    with pytest.raises(InternalError, match="planned"):
        wanted.body(2)


# --- beside others ----------------------------------------------------------------------------------------
def foreign(table: Table, tmp_path, act):
    """Let deltalake act on the table, and take what it wrote."""
    folder = table.to_folder(tmp_path / uuid.uuid4().hex)
    act(str(folder))
    table.blobs.update(Table.of_folder(folder).blobs)


def at_commit(table: Table, act):
    """Run ``act`` once, just before the first try at a version."""
    done = []

    def answer(effect):
        if isinstance(effect, PutIfAbsent) and not done:
            done.append(effect)
            act()

    table.answer = answer


def test_rows_appended_meanwhile_to_the_partition_are_replaced_as_if_they_came_before(table, tmp_path):
    wanted, encode_rows = candidate(table, rows((9, "a")), "day = 'a'")
    append = rows((7, "a"), (8, "b"))
    at_commit(table, lambda: foreign(table, tmp_path, lambda f: write_deltalake(f, append, mode="append")))
    done = run(table, wanted, encode_rows)
    assert (done.version, done.attempts) == (3, 2)
    assert len(actions_of(table, 3, "remove")) == 3
    assert contents(table, tmp_path) == expected(
        (9, "a"), (2, "b"), (3, None), (5, "b"), (None, "b"), (8, "b")
    )


def test_files_removed_meanwhile_are_not_removed_again(table, tmp_path):
    wanted, encode_rows = candidate(table, rows((9, "a")), "day = 'a'")
    at_commit(table, lambda: foreign(table, tmp_path, lambda f: DeltaTable(f).delete("day = 'a'")))
    done = run(table, wanted, encode_rows)
    assert done.version == 3
    assert actions_of(table, 3, "remove") == []
    assert contents(table, tmp_path) == expected((9, "a"), (2, "b"), (3, None), (5, "b"), (None, "b"))


@pytest.mark.parametrize("rival", ["append", "delete", "compact", "delete a day"])
def test_files_that_came_are_looked_at_and_what_was_decided_about_others_holds(table, tmp_path, rival):
    """Rows of a rewritten file do not come back where it was removed meanwhile."""
    wanted, encode_rows = candidate(table, rows((9, "c")), "n >= 5")
    acts = {
        "append": lambda f: write_deltalake(f, rows((6, "b")), mode="append"),
        "delete": lambda f: DeltaTable(f).delete("n = 5"),
        "compact": lambda f: DeltaTable(f).optimize.compact(),
        "delete a day": lambda f: DeltaTable(f).delete("day = 'b'"),
    }
    at_commit(table, lambda: foreign(table, tmp_path, acts[rival]))
    done = run(table, wanted, encode_rows)
    assert (done.version, done.attempts, done.rebased) == (3, 2, 1)
    of_b = [] if rival == "delete a day" else [(2, "b"), (None, "b")]
    assert contents(table, tmp_path) == expected((1, "a"), (3, None), (4, "a"), (9, "c"), *of_b)


def test_an_append_to_a_partition_that_cannot_match_is_no_conflict_for_a_rewrite(table, tmp_path):
    wanted, encode_rows = candidate(table, rows((9, "b")), "day = 'b' AND n >= 5")
    append = rows((70, "a"))
    at_commit(table, lambda: foreign(table, tmp_path, lambda f: write_deltalake(f, append, mode="append")))
    assert run(table, wanted, encode_rows).version == 3
    assert contents(table, tmp_path) == expected(
        (1, "a"), (4, "a"), (70, "a"), (2, "b"), (None, "b"), (9, "b"), (3, None)
    )


def clustered(*columns: str) -> dict:
    told = json.dumps({"clusteringColumns": [[name] for name in columns]})
    return {"domainMetadata": {"domain": "delta.clustering", "configuration": told, "removed": False}}


@pytest.mark.parametrize("change", [metadata(partition_by=("day",)), clustered("n")])
def test_a_change_of_schema_or_of_clustering_meanwhile_is_a_conflict(table, change):
    """H9; our files lack statistics of columns by which the table is clustered since."""
    wanted, encode_rows = candidate(table, rows((9, "a")))
    at_commit(table, lambda: table.commit(change))
    with pytest.raises(ConflictError) as caught:
        run(table, wanted, encode_rows)
    assert caught.value.kind is Kind.SCHEMA_CHANGED


def test_a_table_that_is_clustered_by_the_same_columns_once_more_is_no_conflict(table):
    table.commit(clustered("n"))
    wanted, encode_rows = candidate(table, rows((9, "a")))
    at_commit(table, lambda: table.commit(clustered("n")))
    assert run(table, wanted, encode_rows).attempts == 2


# --- once -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("where", [None, "n > 2"])
def test_a_lost_answer_to_the_commit_is_found_and_not_repeated(table, tmp_path, where):
    wanted, encode_rows = candidate(table, rows((9, "a")), where)
    lost = []

    def lose(effect):
        if isinstance(effect, PutIfAbsent) and not lost:
            lost.append(effect)
            assert table.world.perform(effect) == Ok()
            return Unknown("cut")
        return None

    table.answer = lose
    assert run(table, wanted, encode_rows).version == 2
    assert table.next_version == 3
    assert (9, "a") in contents(table, tmp_path)


def test_a_repeat_returns_the_first_version_without_reading_a_data_file(table, tmp_path):
    first = do(table, rows((9, "a")), "n > 2", key="event-1")
    foreign(table, tmp_path, lambda f: write_deltalake(f, rows((50, "a")), mode="append"))
    wanted, encode_rows = candidate(table, rows((9, "a")), "n > 2", key="event-1")
    again = run(table, wanted, encode_rows)
    assert (again.version, again.already) == (first.version, True)
    assert table.asked["Get"] == 1, "its commit, which must bear out the ledger"
    assert (50, "a") in contents(table, tmp_path), "what came after stands"


def test_the_same_rows_and_key_with_another_where_are_no_repeat(table):
    do(table, rows((9, "a")), "day = 'a'", key="event-1")
    with pytest.raises(ReplayMismatchError):
        do(table, rows((9, "a")), "n > 2", key="event-1")
    with pytest.raises(ReplayMismatchError):
        do(table, rows((9, "a")), key="event-1")


def test_a_plain_append_and_an_overwrite_never_share_a_fingerprint():
    write = Write("k", "v1:1:abc", 1, fingerprint_int63=5)
    predicates = EVERYTHING, parse("n = 1", pa.schema({"n": pa.int64()}))
    whole, part = (write.covering(digest(one, "overwrite")) for one in predicates)
    assert len({write.fingerprint, whole.fingerprint, part.fingerprint}) == 3
    assert len({write.fingerprint_int63, whole.fingerprint_int63, part.fingerprint_int63}) == 3
    assert all(0 <= one.fingerprint_int63 < 2**63 for one in (whole, part))
    assert whole.fingerprint.split(":")[1] == "1"
