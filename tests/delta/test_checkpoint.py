"""Checkpoints: readable by others, never replaced, and holding all that the log held."""

from __future__ import annotations

import io
import json

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from safewrite.delta.log import actions
from safewrite.delta.log.checkpoint import due, write_checkpoint
from safewrite.delta.log.segment import Checkpoint
from safewrite.delta.log.snapshot import load
from safewrite.errors import ConflictError, Kind, StorageError, UnsupportedTableError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Busy, Failed, Ok, PutIfAbsent, Unknown
from tests.delta.logs import PROTOCOL, Table, add, metadata, remove

DAY_MS = 24 * 3600 * 1000
NOW_MS = 1_700_000_000_000


def checkpoint(table: Table) -> bool:
    return table.run(write_checkpoint(table.run(load()))) is not None


def rows_of(table: Table, version: int) -> pa.Table:
    return pq.read_table(io.BytesIO(table.blobs[actions.checkpoint_paths(version)[0]]))


def values(rows: pa.Table, root: str) -> list[dict]:
    return [value for value in rows.column(root).to_pylist() if value is not None]


def written_by_deltalake(folder) -> Table:
    for n in range(6):
        write_deltalake(
            folder,
            pa.table({"n": [n, None], "price": [0.5, 1.5], "day": ["a/b %", None]}),
            mode="append",
            partition_by=["day"],
            commit_properties=CommitProperties(app_transactions=[Transaction("app", n)]),
        )
    DeltaTable(folder).delete("n = 2")
    return Table.of_folder(folder)


def only_the_checkpoint(table: Table, version: int) -> None:
    """Remove every commit before the checkpoint, as log clean-up does: readers have nothing else."""
    for path in list(table.blobs):
        known = actions.version_of(path)
        if known is not None and known < version:
            del table.blobs[path]


def test_deltalake_and_polars_read_the_same_table_from_the_checkpoint_alone(tmp_path):
    table = written_by_deltalake(tmp_path / "before")
    before = DeltaTable(tmp_path / "before")
    assert checkpoint(table)
    only_the_checkpoint(table, 6)
    folder = table.to_folder(tmp_path / "after")
    after = DeltaTable(folder)
    assert after.version() == 6
    assert after.transaction_version("app") == 5
    assert after.metadata() == before.metadata()
    assert after.schema() == before.schema()
    assert sorted(uri.removeprefix(str(folder)) for uri in after.file_uris()) == sorted(
        uri.removeprefix(str(tmp_path / "before")) for uri in before.file_uris()
    )
    order = [("n", "ascending"), ("price", "ascending"), ("day", "ascending")]
    assert after.to_pyarrow_table().sort_by(order) == before.to_pyarrow_table().sort_by(order)
    assert pl.scan_delta(str(folder)).select(pl.len()).collect().item() == 11


def test_deltalake_writes_on_after_the_checkpoint(tmp_path):
    table = written_by_deltalake(tmp_path / "before")
    checkpoint(table)
    only_the_checkpoint(table, 6)
    folder = table.to_folder(tmp_path / "after")
    write_deltalake(folder, pa.table({"n": [9], "price": [0.0], "day": ["z"]}), mode="append")
    assert DeltaTable(folder).to_pyarrow_table().num_rows == 12
    DeltaTable(folder).create_checkpoint()
    state = Table.of_folder(folder).run(load())
    assert (state.version, state.checkpoint.version) == (7, 7)
    assert state.txns == {"app": 5}


def test_statistics_partitions_tags_and_vectors_survive():
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 4, "cardinality": 1}
    table = Table(PROTOCOL, metadata(partition_by=("day",)))
    table.commit(
        add(
            "a",
            partitionValues={"day": None},
            tags={"k": "v"},
            stats='{"numRecords":3}',
            deletionVector=vector,
        ),
        add("b", partitionValues={"day": "é"}, baseRowId=4, defaultRowCommitVersion=1),
    )
    checkpoint(table)
    first, second = values(rows_of(table, 1), "add")
    assert first["partitionValues"] == [("day", None)]
    assert first["tags"] == [("k", "v")]
    assert first["stats"] == '{"numRecords":3}'
    assert first["deletionVector"] == {**vector, "offset": None}
    assert second["partitionValues"] == [("day", "é")]
    assert (second["baseRowId"], second["defaultRowCommitVersion"]) == (4, 1)
    assert not first["dataChange"]
    assert first["size"] == 100


def test_each_checkpoint_is_made_from_the_one_before_it():
    table = Table(PROTOCOL, metadata(), add("0"))
    for n in range(1, 31):
        table.commit(add(f"{n}"), *([remove(f"{n - 1}")] if n % 7 == 0 else []))
        if n % 10 == 0:
            assert checkpoint(table)
            if n > 10:
                assert table.asked["Get"] <= 1 + 10 + 1 + 2  # the last two look whether the log is the same
            only_the_checkpoint(table, n)
    parsed = pq.read_metadata(io.BytesIO(table.blobs[actions.checkpoint_paths(30)[0]]))
    assert parsed.num_row_groups == 3  # what was there and what came are together
    assert {file["path"] for file in values(rows_of(table, 30), "add")} == {
        f"{n}" for n in range(31) if n not in (6, 13, 20, 27)
    }


def test_a_reader_of_protocol_and_metadata_fetches_nothing_of_the_files():
    table = Table(PROTOCOL, metadata(), *(add(f"{n}") for n in range(100)))
    checkpoint(table)
    parsed = pq.read_metadata(io.BytesIO(table.blobs[actions.checkpoint_paths(0)[0]]))
    assert [parsed.row_group(n).num_rows for n in range(parsed.num_row_groups)] == [100, 2]


def test_fields_have_the_types_of_the_specification():
    """PROTOCOL.md, "Checkpoint Schema" and the tables of required fields."""
    table = Table(PROTOCOL, metadata(), add("a"))
    table.commit(remove("a"), {"txn": {"appId": "x", "version": 1}})
    checkpoint(table)
    schema = rows_of(table, 1).schema
    assert schema.names == ["protocol", "metaData", "txn", "domainMetadata", "add", "remove"]
    kinds = {f"{root.name}.{child.name}": child for root in schema for child in root.type}
    assert all(root.nullable for root in schema)
    assert kinds["protocol.minReaderVersion"].type == pa.int32()
    assert kinds["protocol.writerFeatures"].type == pa.list_(pa.field("element", pa.string(), nullable=False))
    assert kinds["txn.version"].type == pa.int64()
    assert kinds["add.partitionValues"].type == pa.map_(pa.string(), pa.string())
    assert kinds["remove.deletionTimestamp"].type == pa.int64()
    assert not {"remove.stats", "remove.tags"} & set(kinds)
    required = {name for name, field in kinds.items() if not field.nullable}
    assert {
        "add.path",
        "add.size",
        "remove.path",
        "remove.dataChange",
        "metaData.id",
        "txn.appId",
    } <= required
    assert not {"add.stats", "add.tags", "metaData.name", "remove.size", "txn.lastUpdated"} & required


def test_features_of_the_protocol_are_written_where_there_are_any():
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "domainMetadata"],
    }
    domain = {"domain": "mine", "configuration": "{}", "removed": False}
    table = Table({"protocol": protocol}, metadata(), {"domainMetadata": domain})
    checkpoint(table)
    assert values(rows_of(table, 0), "protocol") == [{**protocol, "readerFeatures": None}]
    assert values(rows_of(table, 0), "domainMetadata") == [domain]
    assert table.run(load()).protocol == protocol


# --- tombstones -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("retention", "kept"), [(None, ["six days", "now"]), ("interval 1 day", ["now"])])
def test_tombstones_expire_by_the_newest_time_in_the_log(retention, kept):
    properties = {} if retention is None else {"delta.deletedFileRetentionDuration": retention}
    ages = {"eight days": 8, "six days": 6, "now": 0}
    table = Table(PROTOCOL, metadata(properties=properties), *(add(name) for name in ages))
    for name, days in ages.items():
        table.commit(
            remove(name, deletionTimestamp=NOW_MS - days * DAY_MS),
            {"commitInfo": {"timestamp": NOW_MS - days * DAY_MS}},
        )
    checkpoint(table)
    assert [tombstone["path"] for tombstone in values(rows_of(table, 3), "remove")] == kept


def test_a_tombstone_keeps_what_vacuum_needs():
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 4, "cardinality": 1}
    table = Table(PROTOCOL, metadata(), add("a", deletionVector=vector))
    table.commit(
        remove(
            "a",
            deletionVector=vector,
            extendedFileMetadata=True,
            partitionValues={"day": "x"},
            size=5,
            stats="{}",
        )
    )
    checkpoint(table)
    (tombstone,) = values(rows_of(table, 1), "remove")
    assert tombstone["deletionVector"] == vector
    assert (tombstone["size"], tombstone["partitionValues"]) == (5, [("day", "x")])


# --- never replaced, never torn -----------------------------------------------------------------------
def test_a_checkpoint_that_stands_is_never_replaced():
    """B2: four maintainers of one version, one checkpoint."""
    table = Table(PROTOCOL, metadata(), add("a"))
    state = table.run(load())
    (path,) = actions.checkpoint_paths(0)
    table.blobs[path] = b"somebody else's"
    assert table.run(write_checkpoint(state)) is None
    assert table.blobs[path] == b"somebody else's"
    assert actions.LAST_CHECKPOINT not in table.blobs


def test_nothing_is_read_where_the_state_already_comes_from_that_checkpoint():
    table = Table(PROTOCOL, metadata(), add("a"))
    assert checkpoint(table)
    state = table.run(load())
    assert table.run(write_checkpoint(state)) is None
    assert not table.asked


@pytest.mark.parametrize("applied", [True, False])
def test_a_lost_answer_to_the_put_still_ends_in_one_checkpoint_with_its_hint(applied):
    table = Table(PROTOCOL, metadata(), add("a"))
    state = table.run(load())
    asked = []

    def lose_the_first(effect):
        if not isinstance(effect, PutIfAbsent) or asked:
            return None
        asked.append(effect)
        if applied:
            assert table.world.perform(effect) == Ok()
        return Unknown("cut")

    table.answer = lose_the_first
    assert table.run(write_checkpoint(state)) is not None
    assert json.loads(table.blobs[actions.LAST_CHECKPOINT])["version"] == 0


@pytest.mark.parametrize("answer", [Failed("403"), Busy("409")])
def test_a_refused_put_is_an_error_and_moves_no_hint(answer):
    table = Table(PROTOCOL, metadata(), add("a"))
    state = table.run(load())
    table.answer = lambda effect: answer if isinstance(effect, PutIfAbsent) else None
    with pytest.raises(StorageError):
        table.run(write_checkpoint(state))
    assert actions.LAST_CHECKPOINT not in table.blobs
    assert table.asked["PutIfAbsent"] == (1 if isinstance(answer, Failed) else Limits().asks)


def test_the_hint_says_what_readers_may_rely_on():
    table = Table(PROTOCOL, metadata(), add("a"), add("b"))
    table.commit(remove("a"), {"txn": {"appId": "x", "version": 1}})
    checkpoint(table)
    blob = table.blobs[actions.checkpoint_paths(1)[0]]
    said = json.loads(table.blobs[actions.LAST_CHECKPOINT])
    assert said == {"version": 1, "size": 5, "sizeInBytes": len(blob), "numOfAddFiles": 1}
    assert said["size"] == rows_of(table, 1).num_rows


def test_the_hint_never_moves_back_and_garbage_in_it_is_replaced():
    """B3."""
    table = Table(PROTOCOL, metadata(), add("a"))
    old = table.run(load())
    table.commit(add("b"))
    assert checkpoint(table)
    ahead = table.blobs[actions.LAST_CHECKPOINT]
    assert table.run(write_checkpoint(old)) is not None
    assert table.blobs[actions.LAST_CHECKPOINT] == ahead
    table.commit(add("c"))
    table.blobs[actions.LAST_CHECKPOINT] = b"garbage"
    assert checkpoint(table)
    assert json.loads(table.blobs[actions.LAST_CHECKPOINT])["version"] == 2


@pytest.mark.parametrize("made_again", [False, True])
def test_a_table_that_goes_meanwhile_is_not_brought_back_by_its_checkpoint(made_again):
    table = Table(PROTOCOL, metadata(), add("a"))
    table.commit(add("b"))
    state = table.run(load())
    other = Table(PROTOCOL, metadata(), add("c"))
    other.commit(add("d"))

    def goes_before_the_put(effect):
        if isinstance(effect, PutIfAbsent):
            table.blobs.clear()
            table.blobs.update(other.blobs if made_again else {})

    table.answer = goes_before_the_put
    with pytest.raises(ConflictError) as failed:
        table.run(write_checkpoint(state))
    assert failed.value.kind is Kind.TABLE_REPLACED
    assert table.blobs == (other.blobs if made_again else {})


# --- where it is not ours to write one ----------------------------------------------------------------
def test_unknown_features_forbid_a_checkpoint():
    table = Table(
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["novel"]}}, metadata()
    )
    with pytest.raises(UnsupportedTableError, match="novel"):
        checkpoint(table)


@pytest.mark.parametrize(
    ("setting", "versions"), [(None, [10, 20, 30]), ("15", [15, 30]), ("many", [10, 20, 30])]
)
def test_checkpoints_are_due_at_multiples_of_the_interval(setting, versions):
    properties = {} if setting is None else {"delta.checkpointInterval": setting}
    state = Table(PROTOCOL, metadata(properties=properties)).run(load())
    found = []
    for version in range(31):
        if due(state, version):
            found.append(version)
            state = state.with_checkpoint(Checkpoint(version, actions.checkpoint_paths(version)))
    assert found == versions


def test_where_writers_had_no_time_for_checkpoints_one_is_due_between_two_intervals_as_well():
    state = Table(PROTOCOL, metadata()).run(load())
    assert [version for version in range(51) if due(state, version)] == [10, 20, 25, 30, 35, 40, 45, 50]
