"""Reading protocol, metadata and transactions: cold, warm, and when the log is not as it should be."""

from __future__ import annotations

import hashlib
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from safewrite.delta.log import actions, ranges
from safewrite.delta.log.checkpoint import write_checkpoint
from safewrite.delta.log.snapshot import load
from safewrite.errors import ConflictError, Kind, StorageError
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Get, GetTail, List, Missing, Ok, Together, Unknown
from tests.delta.logs import PROTOCOL, Table, add, metadata, remove


def table_of(commits: int, *, checkpoint_at: int | None = None, **settings) -> Table:
    """A hand-made table of ``commits`` versions that each add a file and move a transaction on."""
    table = Table(PROTOCOL, metadata(**settings))
    for n in range(1, commits):
        table.commit(add(f"part-{n:05}.parquet"), {"txn": {"appId": "app", "version": n}})
        if n == checkpoint_at:
            table.run(write_checkpoint(table.run(load())))
    return table


def test_no_log_is_no_table():
    assert Table().run(load()) is None


def test_a_log_of_commits_alone_is_read_from_the_first():
    state = table_of(4, properties={"a": "b"}, partition_by=("day",)).run(load())
    assert state.version == 3
    assert state.txns == {"app": 3}
    assert state.properties == {"a": "b"}
    assert state.partition_by == ("day",)
    assert state.table_id == metadata()["metaData"]["id"]
    assert state.checkpoint is None


def test_the_schema_is_that_of_the_metadata():
    state = table_of(1).run(load())
    assert state.schema == pa.schema({"n": pa.int64(), "day": pa.string()})


def test_later_metadata_protocol_and_transactions_win():
    table = table_of(3)
    newer = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}}
    table.commit(newer, metadata(properties={"x": "1"}), {"txn": {"appId": "app", "version": 1}})
    state = table.run(load())
    assert state.protocol == newer["protocol"]
    assert state.properties == {"x": "1"}
    assert state.txns == {"app": 1}, "the last one wins, even if it goes back"


@pytest.mark.parametrize("checkpoint_at", [3, 6, 9])
def test_a_checkpoint_gives_the_state_that_the_commits_give(checkpoint_at):
    plain, short = table_of(10), table_of(10, checkpoint_at=checkpoint_at)
    state = short.run(load())
    assert short.asked["Get"] == 1 + 9 - checkpoint_at
    assert state.checkpoint.version == checkpoint_at
    expected = plain.run(load())
    assert (state.version, state.protocol, state.metadata, state.txns) == (
        expected.version,
        expected.protocol,
        expected.metadata,
        expected.txns,
    )


def test_a_table_of_deltalake_is_read_the_same_from_its_checkpoint(tmp_path):
    for n in range(7):
        write_deltalake(
            tmp_path,
            pa.table({"n": [n], "day": ["x"]}),
            mode="append",
            partition_by=["day"],
            configuration={"delta.checkpointInterval": "5"} if n == 0 else None,
            commit_properties=CommitProperties(app_transactions=[Transaction("app", n)]),
        )
    table = Table.of_folder(tmp_path)
    state = table.run(load())
    assert state.checkpoint.version == 4
    assert (state.version, dict(state.txns), state.partition_by) == (6, {"app": 6}, ("day",))
    assert state.properties == {"delta.checkpointInterval": "5"}
    for path in [p for p in table.blobs if actions.checkpoint_version_of(p)] + [actions.LAST_CHECKPOINT]:
        del table.blobs[path]
    from_commits = table.run(load())
    assert (from_commits.protocol, from_commits.txns) == (state.protocol, state.txns)
    assert from_commits.metadata == {**state.metadata, "name": None, "description": None}


# --- what it costs ------------------------------------------------------------------------------------
def unique(text: str) -> str:
    """A name that does not compress, as real ones do not."""
    return hashlib.sha256(text.encode()).hexdigest()


def long_table(adds: int) -> Table:
    """Version 10 is a checkpoint of ``adds`` files, and three commits follow."""
    table = Table(PROTOCOL, metadata())
    each = adds // 10
    for n in range(10):
        table.commit(*(add(f"day=2026-11-21/{unique(f'{n} {i}')}.parquet") for i in range(each)))
    table.run(write_checkpoint(table.run(load())))
    for n in range(3):
        table.commit(add(f"late-{n}.parquet"), {"txn": {"appId": "app", "version": n}})
    return table


def test_a_cold_read_costs_the_same_for_three_thousand_files_as_for_ten():
    small, large = long_table(10), long_table(3000)
    assert len(large.blobs[actions.checkpoint_paths(10)[0]]) > ranges.TAIL + 16_384, (
        "else the tail is the whole file"
    )
    small.run(load())
    large.run(load())
    assert large.asked == small.asked
    assert large.rounds == small.rounds
    assert len(large.rounds) == 3
    assert large.bytes_read <= small.bytes_read + ranges.TAIL


SPARK_ORDER = ["txn", "add", "remove", "metaData", "protocol", "domainMetadata"]


@pytest.mark.sweep("deltalake")
@pytest.mark.parametrize("engine", ["deltalake", "Spark"])
def test_of_a_large_checkpoint_of_another_engine_only_parts_are_read(tmp_path, engine):
    """Spark puts transactions before the files and the rest behind them; here in row groups, too."""
    table = long_table(8_000)
    for path in [actions.LAST_CHECKPOINT, *actions.checkpoint_paths(10)]:
        del table.blobs[path]
    DeltaTable(table.to_folder(tmp_path)).create_checkpoint()
    table = Table.of_folder(tmp_path)
    (path,) = actions.checkpoint_paths(13)
    if engine == "Spark":
        sink = io.BytesIO()
        rows = pq.read_table(io.BytesIO(table.blobs[path])).select(SPARK_ORDER)
        pq.write_table(rows, sink, row_group_size=3_000)
        table.blobs[path] = sink.getvalue()
    state = table.run(load())
    assert (state.version, dict(state.txns)) == (13, {"app": 2})
    assert state.metadata["schemaString"] == metadata()["metaData"]["schemaString"]
    assert (table.asked["GetRange"] > 0) is (engine == "Spark")
    assert table.bytes_read < ranges.TAIL + 16_384 < len(table.blobs[path]) / 2
    assert len(table.rounds) == (3 if engine == "Spark" else 2)


def test_a_footer_longer_than_the_tail_is_fetched_whole():
    table = table_of(10, checkpoint_at=6)
    expected = table.run(load())
    (path,) = actions.checkpoint_paths(6)
    rows = pq.read_table(io.BytesIO(table.blobs[path]))
    with pq.ParquetWriter(sink := io.BytesIO(), rows.schema) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"long": "x" * 100_000})
    table.blobs[path] = sink.getvalue()
    assert table.run(load()) == expected
    assert "GetRange:state.checkpoint_footer" in table.rounds


def test_the_length_of_the_log_before_the_checkpoint_is_not_listed():
    table = table_of(40, checkpoint_at=38)
    before = table.run(load())
    few = table.bytes_read
    for path in [p for p in table.blobs if (actions.version_of(p) or 99) < 38]:
        del table.blobs[path]
    assert table.run(load()) == before
    assert table.bytes_read == few


def test_a_warm_read_with_nothing_new_is_one_listing():
    table = table_of(12, checkpoint_at=10)
    known = table.run(load())
    assert table.run(load(known)) is known
    assert table.asked == {"List": 1}


def test_a_warm_read_gets_only_the_new_commits_and_keeps_the_schema():
    table = table_of(5)
    known = table.run(load())
    schema = known.schema
    table.commit(add("a"))
    table.commit(add("b"))
    state = table.run(load(known))
    assert state.version == known.version + 2
    assert table.asked == {"List": 1, "Get": 2}
    assert table.rounds == ["List:state.list", "Together:state.get_commits"]
    assert state.schema is schema


def test_a_warm_read_sees_a_new_schema():
    table = table_of(3)
    known = table.run(load())
    assert known.schema.names == ["n", "day"]
    table.commit(metadata(columns=[{"name": "other", "type": "string", "nullable": True, "metadata": {}}]))
    assert table.run(load(known)).schema.names == ["other"]


def test_a_reader_far_behind_goes_by_the_newest_checkpoint():
    table = table_of(90, checkpoint_at=85)
    behind = table.run(load(at=2))
    state = table.run(load(behind))
    assert state == table.run(load())
    table.run(load(behind))
    assert table.asked["Get"] < 10


# --- other versions ---------------------------------------------------------------------------------
@pytest.mark.parametrize("at", [0, 2, 6, 8])
def test_an_older_version_is_read_as_it_was(at):
    state = table_of(10, checkpoint_at=6).run(load(at=at))
    assert state.version == at
    assert state.txns == ({"app": at} if at else {})
    assert (state.checkpoint.version if state.checkpoint else None) == (6 if at >= 6 else None)


def test_of_a_version_that_the_log_lost_it_is_told_that_the_log_is_another():
    with pytest.raises(
        ConflictError, match=r"Version 10 of the log is gone.*look at the table before you write"
    ):
        table_of(10).run(load(at=10))


# --- when the log is not as it should be --------------------------------------------------------------
HINTS = {
    "garbage": b"\x00\xff garbage",
    "torn": b'{"version":6,"si',
    "no object": b"[6]",
    "no version": b'{"size":3}',
    "not a number": b'{"version":"6"}',
    "negative": b'{"version":-6}',
    "parts": b'{"version":6,"parts":-3}',
    "moved back": b'{"version":3,"size":5}',
    "pointing at nothing": b'{"version":5,"size":5}',
    "pointing past the end": b'{"version":999,"size":5}',
    "missing parts": b'{"version":6,"size":5,"parts":4}',
}


@pytest.mark.parametrize("hint", HINTS.values(), ids=HINTS.keys())
def test_last_checkpoint_is_a_hint_only(hint):
    """B3: whatever it says, the state is the right one."""
    table = table_of(6, checkpoint_at=3)
    for n in range(6, 10):
        table.commit(add(f"{n}"), {"txn": {"appId": "app", "version": n}})
        if n == 6:
            table.run(write_checkpoint(table.run(load())))
    expected = table.run(load())
    table.blobs[actions.LAST_CHECKPOINT] = hint
    assert table.run(load()) == expected


def test_a_missing_hint_costs_a_listing_only():
    table = table_of(10, checkpoint_at=6)
    expected = table.run(load())
    del table.blobs[actions.LAST_CHECKPOINT]
    assert table.run(load()) == expected


@pytest.mark.parametrize("damage", ["cut", "empty", "garbled end", "garbled middle", "other file"])
def test_a_torn_checkpoint_is_passed_over(damage):
    """B2: an older checkpoint, or the commits, give the same state."""
    table = table_of(10, checkpoint_at=6)
    (path,) = actions.checkpoint_paths(6)
    expected = table.run(load())
    whole = table.blobs[path]
    middle = bytearray(whole)
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    middle[4:-footer] = bytes(len(whole) - footer - 4)
    other = io.BytesIO()
    pq.write_table(pa.table({"x": [1]}), other)
    table.blobs[path] = {
        "cut": whole[: len(whole) // 2],
        "empty": b"",
        "garbled end": whole[:-8] + b"\xff\xff\xff\x7fPAR1",
        "garbled middle": bytes(middle),
        "other file": other.getvalue(),
    }[damage]
    state = table.run(load())
    assert state.checkpoint is None
    assert (state.version, state.txns, state.metadata) == (expected.version, expected.txns, expected.metadata)


def test_a_torn_checkpoint_with_its_commits_cleaned_up_is_an_error_and_no_empty_table():
    table = table_of(10, checkpoint_at=6)
    table.blobs[actions.checkpoint_paths(6)[0]] = b"torn"
    for version in range(6):
        del table.blobs[actions.commit_path(version)]
    with pytest.raises(StorageError) as caught:
        table.run(load())
    assert caught.value.kind is Kind.CORRUPT_LOG


@pytest.mark.parametrize("hole", [0, 4, 8])
def test_a_hole_in_the_log_is_an_error(hole):
    """E8."""
    table = table_of(10)
    del table.blobs[actions.commit_path(hole)]
    with pytest.raises(StorageError, match=f"version {hole} ") as caught:
        table.run(load())
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_a_hole_after_a_known_state_is_an_error_too():
    table = table_of(5)
    known = table.run(load())
    table.commit(add("a"))
    table.commit(add("b"))
    del table.blobs[actions.commit_path(5)]
    with pytest.raises(StorageError, match="version 5 ") as caught:
        table.run(load(known))
    assert caught.value.kind is Kind.CORRUPT_LOG


@pytest.mark.parametrize("known_at", [None, 3])
def test_a_commit_that_came_while_the_folder_was_read_is_no_hole(known_at):
    """A listing of a folder has of two files that come meanwhile the second only, if it likes."""
    table = table_of(10)
    known = None if known_at is None else table.run(load(at=known_at))
    perform, missed = table.perform, []

    def gapped(effect):
        answer = perform(effect)
        effects = effect.effects if isinstance(effect, Together) else (effect,)
        answers = answer.value if isinstance(effect, Together) else (answer,)
        if missed or not any(isinstance(one, List) for one in effects):
            return answer
        missed.append(8)
        seen = tuple(
            Ok(tuple(item for item in told.value if item.path != actions.commit_path(8)))
            if isinstance(one, List)
            else told
            for one, told in zip(effects, answers, strict=True)
        )
        return Ok(seen) if isinstance(effect, Together) else seen[0]

    table.perform = gapped
    assert table.run(load(known)).version == 9
    assert missed


def test_a_torn_entry_is_an_error():
    """A19."""
    table = table_of(5)
    path = actions.commit_path(4)
    table.blobs[path] = table.blobs[path][:-4]
    with pytest.raises(StorageError, match="Version 4 ") as caught:
        table.run(load())
    assert caught.value.kind is Kind.CORRUPT_LOG


@pytest.mark.parametrize("first", [PROTOCOL, metadata(), add("a")])
def test_a_table_without_protocol_or_metadata_is_an_error(first):
    with pytest.raises(StorageError) as caught:
        Table(first).run(load())
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_a_table_that_was_dropped_and_made_anew_is_read_anew():
    """A17: a known state must not be carried on into another table."""
    table = table_of(6)
    known = table.run(load())
    fresh = metadata()
    fresh["metaData"]["id"] = "another"
    table.blobs.clear()
    table.commit(PROTOCOL, fresh)
    state = table.run(load(known))
    assert (state.version, state.table_id) == (0, "another")
    table.blobs.clear()
    assert table.run(load(known)) is None


def test_commits_that_are_cleaned_up_while_being_read_start_the_read_anew():
    table = table_of(10)
    expected = table.run(load())
    cleaned = []

    def clean_up(effect):
        """The listing is old: by the first get, a checkpoint stands and the commits before it are gone."""
        if isinstance(effect, Get) and effect.name == "state.get_commit" and not cleaned:
            cleaned.append(effect)
            table.answer = lambda _: None
            asked = table.asked
            made = table_of(10, checkpoint_at=8)
            table.blobs.update({p: b for p, b in made.blobs.items() if "checkpoint" in p})
            for version in range(8):
                del table.blobs[actions.commit_path(version)]
            table.asked = asked

    table.answer = clean_up
    state = table.run(load())
    assert cleaned
    assert state.checkpoint.version == 8
    assert (state.version, state.txns) == (expected.version, expected.txns)


def test_a_log_that_keeps_vanishing_is_an_error():
    table = table_of(3)
    table.answer = lambda effect: Missing() if effect.name == "state.get_commit" else None
    with pytest.raises(StorageError, match="went away"):
        table.run(load())


def test_lost_answers_to_reads_are_asked_again():
    table = table_of(10, checkpoint_at=6)
    expected = table.run(load())
    lost = set()

    def lose_each_once(effect):
        if effect in lost or not isinstance(effect, Get | GetTail | List):
            return None
        lost.add(effect)
        return Unknown("timeout")

    table.answer = lose_each_once
    assert table.run(load()) == expected
    assert {type(effect) for effect in lost} == {Get, GetTail, List}


def test_a_store_that_never_answers_is_an_error_after_a_bounded_number_of_tries():
    table = table_of(3)
    table.answer = lambda effect: Unknown("503") if isinstance(effect, List) else None
    with pytest.raises(StorageError, match="503") as caught:
        table.run(load(limits=Limits(asks=4)))
    assert caught.value.kind is Kind.STORAGE
    assert table.asked["List"] == 4


# --- other engines' checkpoints ---------------------------------------------------------------------
def in_parts(table: Table, version: int) -> None:
    """Split a checkpoint into one file per row, as old engines did."""
    (path,) = actions.checkpoint_paths(version)
    whole = pq.read_table(io.BytesIO(table.blobs.pop(path)))
    for at, part in enumerate(actions.checkpoint_paths(version, whole.num_rows)):
        sink = io.BytesIO()
        pq.write_table(whole.slice(at, 1), sink)
        table.blobs[part] = sink.getvalue()
    table.blobs[actions.LAST_CHECKPOINT] = json.dumps(
        {"version": version, "size": 1, "parts": whole.num_rows}
    ).encode()


def test_a_multi_part_checkpoint_is_read():
    table = table_of(10, checkpoint_at=6)
    expected = table.run(load())
    in_parts(table, 6)
    state = table.run(load())
    assert len(state.checkpoint.paths) == 9
    assert (state.version, state.protocol, state.metadata, state.txns) == (
        expected.version,
        expected.protocol,
        expected.metadata,
        expected.txns,
    )


def test_a_multi_part_checkpoint_with_a_part_missing_is_no_checkpoint():
    table = table_of(10, checkpoint_at=6)
    expected = table.run(load())
    in_parts(table, 6)
    del table.blobs[actions.checkpoint_paths(6, 9)[4]]
    state = table.run(load())
    assert state.checkpoint is None
    assert state.txns == expected.txns


def test_a_log_that_only_a_torn_v2_checkpoint_explains_is_corrupt():
    table = table_of(4)
    table.blobs["_delta_log/00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet"] = (
        b"?"
    )
    assert table.run(load()).version == 3, "the commits tell all of it"
    del table.blobs[actions.commit_path(0)]
    with pytest.raises(StorageError, match="no version 0") as caught:
        table.run(load())
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_the_temp_files_of_the_lock_table_protocol_are_not_listed():
    table = table_of(3)
    plain = table.run(load())
    few = table.bytes_read
    for n in range(50):
        table.blobs[f"_delta_log/.tmp/{n:020}.json.x"] = b"{}"
    assert table.run(load()) == plain
    assert table.bytes_read == few


def test_removes_do_not_disturb_the_state():
    table = table_of(3)
    table.commit(remove("part-00001.parquet"))
    assert table.run(load()).version == 3


def test_advancing_by_anything_but_the_next_version_is_an_error():
    state = table_of(3).run(load())
    commit = actions.parse(b'{"commitInfo":{}}', 4)
    with pytest.raises(StorageError) as caught:
        state.advance(4, commit)
    assert caught.value.kind is Kind.CORRUPT_LOG


def test_many_commits_are_read_in_batches():
    table = table_of(600)
    widest = []
    perform = table.perform

    def watch(effect):
        if isinstance(effect, Together):
            widest.append(len(effect.effects))
        return perform(effect)

    table.perform = watch
    assert table.run(load()).txns == {"app": 599}
    assert (sum(widest), max(widest) <= 256) == (600, True)


def test_a_footer_that_claims_to_be_longer_than_the_file_is_never_asked_for():
    table = table_of(10, checkpoint_at=6)
    (path,) = actions.checkpoint_paths(6)
    table.blobs[path] = table.blobs[path][:-8] + b"\xff\xff\xff\x7fPAR1"
    assert table.run(load()).checkpoint is None
    assert table.asked["GetRange"] == 0


def test_what_follows_from_protocol_and_metadata_is_worked_out_once_for_all_versions_that_have_them():
    """Each write asks whether the table may be written to; with 200 columns an answer took two milliseconds."""
    asked = []

    def make(state):
        asked.append(state.version)
        return state.properties

    table = table_of(2)
    state = table.run(load())
    assert state.derived(make) is state.derived(make)
    table.commit(add("more.parquet"), {"txn": {"appId": "app", "version": 9}})
    table.commit(add("most.parquet"))
    later = table.run(load(state))
    assert (later.version, later.derived(make), asked) == (3, {}, [1])
    table.commit(metadata(properties={"a": "b"}))
    assert table.run(load(later)).derived(make) == {"a": "b"}
    assert asked == [1, 4]
