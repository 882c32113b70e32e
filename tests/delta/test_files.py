"""The full list of files: reconciled as the protocol says."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from safewrite.delta.log import actions
from safewrite.delta.log.checkpoint import write_checkpoint
from safewrite.delta.log.replay import load_files
from safewrite.delta.log.snapshot import load
from safewrite.errors import Kind, StorageError
from safewrite.protocol.effects import Get, Ok, Unknown
from tests.delta.logs import PROTOCOL, Table, add, body, metadata, remove

VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 4,
    "cardinality": 1,
}


def files_of(table: Table):
    return table.run(load_files(table.run(load())))


def live(table: Table) -> list[str]:
    return sorted(path for path, _ in files_of(table).adds)


def test_removed_files_become_tombstones_and_added_ones_again_live():
    table = Table(PROTOCOL, metadata(), add("a"), add("b"))
    table.commit(remove("a"), add("c"))
    files = files_of(table)
    assert set(files.adds) == {("b", None), ("c", None)}
    assert set(files.tombstones) == {("a", None)}
    table.commit(add("a"))
    files = files_of(table)
    assert set(files.adds) == {("a", None), ("b", None), ("c", None)}
    assert not files.tombstones


def test_a_remove_with_other_escapes_removes_the_same_file():
    table = Table(PROTOCOL, metadata(), add("day=a%20b/x.parquet"))
    table.commit(remove("day=a b/x.parquet"))
    assert live(table) == []


def test_a_file_that_gets_a_deletion_vector_is_one_live_file_with_it():
    table = Table(PROTOCOL, metadata(), add("a"))
    table.commit(add("a", deletionVector=VECTOR), remove("a"))
    files = files_of(table)
    assert list(files.adds) == [("a", "uab^-aqEH.-t@S}K{vb[*k^@4")]
    assert list(files.tombstones) == [("a", None)]


def test_an_add_of_a_live_file_replaces_what_was_known_of_it():
    table = Table(PROTOCOL, metadata(), add("a", size=1))
    table.commit(add("a", size=2))
    assert [file["size"] for file in files_of(table).adds.values()] == [2]


def test_transactions_and_domains_are_kept_and_removed_domains_are_not():
    def domain(name: str, removed: bool) -> dict:
        return {"domainMetadata": {"domain": name, "configuration": "{}", "removed": removed}}

    table = Table(PROTOCOL, metadata(), domain("a", False), domain("b", False))
    table.commit({"txn": {"appId": "app", "version": 5, "lastUpdated": 77}}, domain("a", True))
    files = files_of(table)
    assert files.txns == {"app": {"appId": "app", "version": 5, "lastUpdated": 77}}
    assert list(files.domains) == ["b"]


@pytest.mark.parametrize("checkpoint_at", [2, 5, 8])
def test_a_checkpoint_and_the_commits_after_it_give_what_all_commits_give(checkpoint_at):
    def make(checkpoint: bool) -> Table:
        table = Table(PROTOCOL, metadata(), add("first", tags={"k": None, "l": "x"}))
        for n in range(1, 9):
            table.commit(
                add(
                    f"{n}",
                    partitionValues={"day": None, "hour": f"{n}"},
                    deletionVector=VECTOR if n % 3 else None,
                ),
                *([remove(f"{n - 2}", partitionValues={"day": None}, size=3)] if n > 5 else []),
                {"txn": {"appId": f"app-{n % 2}", "version": n}},
            )
            if checkpoint and n == checkpoint_at:
                table.run(write_checkpoint(table.run(load())))
        return table

    short, whole = files_of(make(True)), files_of(make(False))
    assert short.state.checkpoint.version == checkpoint_at

    def shown(actions):
        return {
            key: {name: item for name, item in action.items() if item is not None and name != "dataChange"}
            for key, action in actions.items()
        }

    assert shown(short.adds) == shown(whole.adds)
    assert shown(short.tombstones) == shown(whole.tombstones)
    assert short.txns == whole.txns


def test_the_files_of_a_table_of_deltalake_are_those_that_it_lists(tmp_path):
    for n in range(8):
        write_deltalake(
            tmp_path,
            pa.table({"n": [n], "day": [f"d {n}/%"]}),
            mode="overwrite" if n == 3 else "append",
            partition_by=["day"],
            configuration={"delta.checkpointInterval": "3"} if n == 0 else None,
        )
    DeltaTable(tmp_path).delete("n = 5")
    table = Table.of_folder(tmp_path)
    files = files_of(table)
    assert len(files.adds) == 4
    assert {path for path, _ in files.adds} <= set(table.blobs), "decoded paths are those of real files"
    expected = DeltaTable(tmp_path).get_add_actions(flatten=True)
    assert sum(file["size"] for file in files.adds.values()) == sum(
        pa.table(expected)["size_bytes"].to_pylist()
    )
    assert len(files.tombstones) == 4


def test_a_state_that_was_advanced_by_hand_far_from_its_checkpoint_finds_a_newer_one():
    table = Table(PROTOCOL, metadata())
    state = table.run(load())
    for n in range(1, 91):
        version = table.commit(add(f"{n}"))
        state = state.advance(version, actions.parse(body(add(f"{n}")), version))
        if n == 85:
            table.run(write_checkpoint(table.run(load())))
    files = table.run(load_files(state))
    assert len(files.adds) == 90
    assert files.state is state
    assert table.asked["Get"] < 20


def test_the_list_is_that_of_the_version_asked_for_though_the_log_goes_on():
    table = Table(PROTOCOL, metadata(), add("a"))
    state = table.run(load())
    table.commit(add("b"), remove("a"))
    assert list(table.run(load_files(state)).adds) == [("a", None)]


def test_advancing_is_what_reading_anew_would_give_and_leaves_the_old_list_alone():
    table = Table(PROTOCOL, metadata(), add("a"), add("b"))
    before = files_of(table)
    version = table.commit(remove("a"), add("c"), {"commitInfo": {"timestamp": 5_000_000_000_000}})
    after = before.advance(version, actions.parse(table.blobs[actions.commit_path(version)], version))
    assert after == files_of(table)
    assert set(before.adds) == {("a", None), ("b", None)}


def test_a_checkpoint_that_goes_away_while_being_read_starts_the_read_anew():
    table = Table(PROTOCOL, metadata(), add("a"))
    for n in range(4):
        table.commit(add(f"{n}"))
        if n == 1:
            table.run(write_checkpoint(table.run(load())))
    state = table.run(load())
    table.run(write_checkpoint(state))
    del table.blobs[actions.checkpoint_paths(2)[0]]
    for version in range(4):
        del table.blobs[actions.commit_path(version)]
    assert len(table.run(load_files(state)).adds) == 5


def test_a_garbled_list_of_files_is_an_error_and_never_a_shorter_list():
    table = Table(PROTOCOL, metadata(), *(add(f"{n}") for n in range(50)))
    state = table.run(load())
    table.run(write_checkpoint(state))
    state = table.run(load())
    (path,) = actions.checkpoint_paths(0)
    blob = bytearray(table.blobs[path])
    group = pq.read_metadata(io.BytesIO(blob)).row_group(0)
    (paths,) = [c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "add.path"]
    end = paths.dictionary_page_offset + paths.total_compressed_size
    blob[end - 3] ^= 1
    table.blobs[path] = bytes(blob)
    with pytest.raises(StorageError) as caught:
        table.run(load_files(state))
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_lost_answers_are_asked_again():
    table = Table(PROTOCOL, metadata(), add("a"))
    table.commit(add("b"))
    state = table.run(load())
    lost = set()

    def lose_each_once(effect):
        if effect in lost or not isinstance(effect, Get):
            return None
        lost.add(effect)
        return Unknown("cut")

    table.answer = lose_each_once
    assert len(table.run(load_files(state)).adds) == 2
    assert len(lost) == 2


def test_a_commit_that_both_removes_and_adds_one_file_leaves_it_live():
    """Not legal, and the order of actions means nothing: the reading that loses no rows is taken."""
    for lines in ([add("a"), remove("a")], [remove("a"), add("a")]):
        table = Table(PROTOCOL, metadata(), add("a"))
        table.commit(*lines)
        assert live(table) == ["a"]


@pytest.mark.parametrize("version", [3, 7])
def test_an_answer_that_is_anothers_does_not_become_a_checkpoint(version: int) -> None:
    """Faults A8: two processes on one connection got each other's answers; a checkpoint made of such loses a row for all."""
    table = Table(PROTOCOL, metadata())
    for number in range(10):
        table.commit(add(f"f{number}"))
    state = table.run(load())
    assert state is not None
    wrong = table.blobs[actions.commit_path(version - 1)]
    table.answer = lambda effect: Ok(wrong) if effect == get_of(version) else None
    for steps in (load_files(state), write_checkpoint(state)):
        with pytest.raises(StorageError, match="other bytes"):
            table.run(steps)
    assert not [path for path in table.blobs if "checkpoint" in path]
    table.answer = lambda _: None
    assert table.run(write_checkpoint(state))


def get_of(version: int) -> Get:
    return Get(actions.commit_path(version), name="files.get_commit")
