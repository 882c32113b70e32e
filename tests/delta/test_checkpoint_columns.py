"""A checkpoint made of the columns of the one before it holds what one made action by action does."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import safewrite as sw
from safewrite.delta.log import actions, checkpoint_file, columns
from safewrite.delta.log.checkpoint import is_affordable, write_checkpoint
from safewrite.delta.log.checkpoint_file import Encoded, encode, encoded
from safewrite.delta.log.replay import LogFiles, read_log
from safewrite.delta.log.segment import Checkpoint
from safewrite.delta.log.snapshot import load
from tests.delta.logs import PROTOCOL, Table, add, metadata, remove
from tests.sampling import no_more_than

VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 4, "cardinality": 1}
WEEK_MS = 7 * 24 * 3600 * 1000
NOW_MS = 1_700_000_000_000

PATHS = st.sampled_from(["a", "b", "c", "day=x%20y/a", "day=x y/a", "ü", "%C3%BC", "p%2Fq"])
VECTORS = st.sampled_from([{}, {}, {"deletionVector": VECTOR}, {"deletionVector": None}])
EXTRAS = st.sampled_from(
    [
        {},
        {"tags": {"k": "v", "n": None}},
        {"partitionValues": {"day": None, "n": "1"}},
        {"stats": None},
        {"tags": {}},
    ]
)
ADDS = st.builds(lambda path, vector, more: add(path, **vector, **more), PATHS, VECTORS, EXTRAS)
TIMES = st.sampled_from([None, NOW_MS, NOW_MS - WEEK_MS + 1, NOW_MS - WEEK_MS, NOW_MS - WEEK_MS - 1])
REMOVES = st.builds(
    lambda path, at, vector: remove(path, deletionTimestamp=at, **vector), PATHS, TIMES, VECTORS
)
OTHERS = st.sampled_from(
    [
        {"txn": {"appId": "x", "version": 1}},
        {"txn": {"appId": "x", "version": 2, "lastUpdated": 5}},
        {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
        {"commitInfo": {"timestamp": NOW_MS}},
    ]
)
COMMITS = st.lists(st.lists(st.one_of(ADDS, REMOVES, OTHERS), min_size=1, max_size=6), min_size=1, max_size=5)


def actions_of(made: Encoded) -> Counter[str]:
    """The actions of a checkpoint file, whatever their order; those that are alike are counted."""
    rows = pq.read_table(io.BytesIO(made.body)).to_pylist()
    assert len(rows) == made.rows
    assert sum(row["add"] is not None for row in rows) == made.adds
    return Counter(
        json.dumps({k: v for k, v in row.items() if v is not None}, sort_keys=True) for row in rows
    )


def by_columns(found: LogFiles) -> Encoded:
    return checkpoint_file._encoded_by_columns(found, NOW_MS)


def log_of(table: Table) -> LogFiles:
    return table.run(read_log(table.run(load())))


def split(table: Table, checkpoint: Checkpoint, parts: int) -> None:
    """Put the checkpoint into several files, as Delta does for large tables, without columns that are empty."""
    rows = pq.read_table(io.BytesIO(table.blobs.pop(checkpoint.paths[0])))
    empty = [name for name in rows.column_names if rows[name].null_count == len(rows)]
    rows = rows.drop_columns([name for name in empty if name not in ("protocol", "metaData", "add")])
    for at, path in enumerate(actions.checkpoint_paths(checkpoint.version, parts)):
        sink = io.BytesIO()
        pq.write_table(
            rows.slice(at * len(rows) // parts, (at + 1) * len(rows) // parts - at * len(rows) // parts), sink
        )
        table.blobs[path] = sink.getvalue()


@no_more_than(60)
@given(before=COMMITS, after=COMMITS, parts=st.integers(1, 3))
def test_columns_and_actions_give_the_same_checkpoint(
    before: list[list[dict[str, Any]]], after: list[list[dict[str, Any]]], parts: int
) -> None:
    table = Table(PROTOCOL, metadata(partition_by=("day",)))
    for lines in before:
        table.commit(*lines)
    made = table.run(write_checkpoint(table.run(load())))
    assert made is not None
    if parts > 1:
        split(table, made, parts)
    for lines in after:
        table.commit(*lines)
    found = log_of(table)
    assert len(found.parts) == parts
    assert actions_of(by_columns(found)) == actions_of(encode(found.replayed(), NOW_MS))


def test_a_checkpoint_of_deltalake_is_taken_over_by_its_columns(tmp_path) -> None:
    for n in range(12):
        write_deltalake(
            tmp_path,
            pa.table({"n": [n, n + 100], "day": [f"d {n % 3}", None]}),
            mode="append",
            partition_by=["day"],
        )
    DeltaTable(tmp_path).delete("n = 2")
    DeltaTable(tmp_path).create_checkpoint()
    DeltaTable(tmp_path).delete("n = 5")
    write_deltalake(tmp_path, pa.table({"n": [77], "day": ["z"]}), mode="append")
    found = log_of(Table.of_folder(tmp_path))
    assert found.parts
    assert found.commits
    assert actions_of(by_columns(found)) == actions_of(encode(found.replayed(), NOW_MS))


def test_columns_that_cannot_be_taken_over_whole_are_read_action_by_action() -> None:
    """Another engine wrote a size as text, and left out a required field: readers in Java take both."""
    table = Table(PROTOCOL, metadata(), add("a"), add("b", size=None))
    with pytest.raises(Exception, match="size"):
        table.run(write_checkpoint(table.run(load())))
    table = Table(PROTOCOL, metadata(), add("a"))
    made = table.run(write_checkpoint(table.run(load())))
    rows = pq.read_table(io.BytesIO(table.blobs[made.paths[0]]))
    loose = [row and {**row, "size": None} for row in rows["add"].to_pylist()]
    sink = io.BytesIO()
    pq.write_table(rows.set_column(rows.column_names.index("add"), "add", [loose]), sink)
    table.blobs[made.paths[0]] = sink.getvalue()
    table.commit(add("b"))
    found = log_of(table)
    with pytest.raises(columns.NotPlainError):
        by_columns(found)
    with pytest.raises(Exception, match="size"):
        encoded(found, NOW_MS)


def test_a_caller_pays_for_a_checkpoint_with_a_tenth_of_its_time_at_most() -> None:
    table = Table(PROTOCOL, metadata(), add("a"))
    state = table.run(load())
    assert is_affordable(state, 2.0)
    assert not is_affordable(state, 0.5)
    large = state.with_checkpoint(Checkpoint(0, actions.checkpoint_paths(0), size=20_000_000))
    assert not is_affordable(large, 30.0)
    assert is_affordable(large, 60.0)
    huge = state.with_checkpoint(Checkpoint(0, actions.checkpoint_paths(0), size=1_000_000_000))
    assert not is_affordable(huge, 3600.0)


def test_a_checkpoint_whose_files_tell_of_no_vectors_is_gone_on_from(tmp_path):
    """Other engines leave the column out where no file has a vector; ours has it, with parts that must be there."""
    table = sw.create(
        tmp_path / "t", pa.schema([("id", pa.int64())]), properties={"delta.enableDeletionVectors": "true"}
    )
    table.append([{"id": 1}, {"id": 2}])
    table.append([{"id": 4}])
    assert table.checkpoint()
    (path,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    before = pq.read_table(path)
    at, adds = before.schema.get_field_index("add"), before["add"].combine_chunks()
    kept = [one for one in adds.type if one.name != "deletionVector"]
    values = [adds.field(one.name) for one in kept]
    bare = pa.StructArray.from_arrays(values, fields=kept, mask=adds.is_null())
    pq.write_table(before.set_column(at, pa.field("add", bare.type), bare), path)
    again = sw.open(tmp_path / "t")
    again.append([{"id": 3}])
    again.delete("id = 2")
    assert again.checkpoint()
    for file in (tmp_path / "t" / "_delta_log").glob("*.json"):
        file.unlink()
    assert sorted(sw.open(tmp_path / "t").rows(where="true")["id"].to_pylist()) == [1, 3, 4]
