"""Other engines on our table, other spellings of it, other lock tables for it, other tables under its name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import deltalake
import pytest

import safewrite as sw
from bench.servers.servers import Ministack, create_lock_table, storage_options
from safewrite.delta import opening
from safewrite.delta.log import snapshot
from safewrite.delta.log.snapshot import Snapshot
from safewrite.protocol.effects import NewestEntry, Outcome
from safewrite.stores.dynamodb import DynamoDBLocks
from safewrite.testing.steps import At, Recorder, points, side_of
from tests.integration.places import Place, crash_at, once, rows, visible
from tests.integration.spark_like import SparkLike


def by_deltalake(place: Place, *ids: int) -> None:
    """Append as deltalake 1.6.6 does: by conditional PUT, whatever the lock table says."""
    deltalake.write_deltalake(
        place.uri, rows(*ids), mode="append", storage_options=dict(place.storage_options)
    )


def steps_of(place: Place) -> list[str]:
    """The points of a lone append, on a table of its own."""
    place.open(create=True).append(rows(0), key="before")
    table = place.open()
    table.world = recorder = Recorder(table.world)
    table.append(rows(1), key="event")
    return points(recorder.steps)


# --- A12: mixed writers -----------------------------------------------------------------------------
@pytest.mark.sweep("dynamodb")
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("arbiter", ["dynamodb", "object-store"])
def test_our_rows_are_once_whenever_a_conditional_put_writer_commits(
    new_place: Callable[[str], Place], arbiter: str, every: int
) -> None:
    """A12: deltalake 1.6.6 commits before and after each of our steps; the short form takes turns."""
    todo = steps_of(new_place(arbiter))
    todo = [point for number, point in enumerate(todo) if every == 1 or number // 2 % 2 == number % 2]
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="before")
    for number, point in enumerate(todo, start=1):
        table = place.open()
        table.world = trap = At(
            table.world, *side_of(point), lambda number=number: by_deltalake(place, -number)
        )
        table.append(rows(number), key=f"event-{number}")
        assert trap.reached
    count = len(todo) + 1
    assert visible([place.ids(), place.replayed_ids()]) == once(0, *range(1, count), *range(-count + 1, 0))


@pytest.mark.long
def test_our_rows_are_once_whenever_sparks_log_store_commits(
    guarded: Place, new_place: Callable[[str], Place]
) -> None:
    """A12: a writer like S3DynamoDBLogStore repairs and commits before and after each of our steps."""
    todo = steps_of(new_place("dynamodb"))
    guarded.open(create=True).append(rows(0), key="before")
    spark = SparkLike(guarded)
    for number, point in enumerate(todo, start=1):
        table = guarded.open()
        table.world = trap = At(table.world, *side_of(point), lambda number=number: spark.append(-number))
        table.append(rows(number), key=f"event-{number}")
        assert trap.reached
    assert visible([guarded.ids(), guarded.replayed_ids()]) == once(0, *range(1, len(todo) + 1), *spark.acked)


@pytest.mark.long
def test_our_rows_are_once_where_the_others_lose_theirs(guarded: Place) -> None:
    """A12: Spark's copy is swallowed under a conditional-PUT writer; ours, beside both, is not."""
    guarded.open(create=True).append(rows(0), key="before")
    spark = SparkLike(guarded)
    spark.append(1, before_copy=lambda: by_deltalake(guarded, 2))
    assert spark.acked == [1]
    assert guarded.ids() == once(0, 2)
    table = guarded.open()
    table.world = At(table.world, "commit.put_entry", "after", lambda: by_deltalake(guarded, 3))
    table.append(rows(4), key="event")
    assert visible([guarded.ids(), guarded.replayed_ids()]) == once(0, 2, 3, 4)


@pytest.mark.sweep("dynamodb")
def test_a_commit_of_ours_that_is_replaced_is_not_acked(s3_place: Place) -> None:
    """A11, A12: somebody copies over N.json between our create and our read-back."""
    s3_place.open(create=True).append(rows(0), key="before")
    table = s3_place.open()
    body = b'{"commitInfo":{"operation":"WRITE"}}\n'
    name = f"_delta_log/{1:020d}.json"
    table.world = At(table.world, "commit.put_commit", "after", lambda: s3_place.put(name, body))
    with pytest.raises(sw.ForeignWriterError) as caught:
        table.append(rows(1), key="event")
    assert (caught.value.kind, caught.value.key) == ("foreign_writer", "event")


def test_commits_past_the_lock_table_are_warned_of_and_refused_where_strict(
    guarded: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A12."""
    guarded.open(create=True).append(rows(0), key="before")
    with caplog.at_level(logging.WARNING, logger="safewrite"):
        guarded.open(strict=True)
        assert not caplog.records
        by_deltalake(guarded, 1)
        guarded.open()
    assert [record.kind for record in caplog.records] == ["mixed_writers"]  # type: ignore[attr-defined]
    with pytest.raises(sw.UnsafeConfigError, match="doctor") as caught:
        guarded.open(strict=True)
    assert caught.value.kind == "mixed_writers"


def test_a_commit_that_comes_between_two_looks_of_an_opening_is_none_past_the_lock_table(
    guarded: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A12: log and lock table are read at once, so an entry may be missed whose commit is seen."""
    table = guarded.open(create=True)
    table.append(rows(0), key="before")
    missed = [table.world.perform(NewestEntry())]
    table.append(rows(1), key="meanwhile")
    newest = DynamoDBLocks.newest

    def newest_or_older(locks: DynamoDBLocks, *, other_spelling: bool = False) -> Outcome:
        return missed.pop() if missed and not other_spelling else newest(locks, other_spelling=other_spelling)

    monkeypatch.setattr(DynamoDBLocks, "newest", newest_or_older)
    with caplog.at_level(logging.WARNING, logger="safewrite"):
        assert guarded.open(strict=True).version == 1
    assert (missed, caplog.records) == ([], [])


@pytest.mark.parametrize(("first", "second"), [("dynamodb", "object-store"), ("object-store", "dynamodb")])
def test_two_arbiters_for_one_table_are_refused(
    new_place: Callable[[str], Place], lake: tuple[str, str], first: str, second: str
) -> None:
    """A12: the table records who arbitrates, and the error says how to open it."""
    place = new_place(first)
    place.open(create=True).append(rows(0), key="before")
    other = replace(place, arbiter=second, lock_table=lake[1] if second == "dynamodb" else None)
    with pytest.raises(sw.UnsafeConfigError, match=r"lock_table=|arbiter='object-store'") as caught:
        other.open()
    assert caught.value.kind == "arbiter_mismatch"
    with pytest.raises(sw.UnsafeConfigError):
        other.open(create=True)


@pytest.mark.sweep("object-store")
@pytest.mark.parametrize("arbiter", ["dynamodb", "object-store"])
def test_a_table_opened_without_settings_has_the_arbiter_that_it_records(
    new_place: Callable[[str], Place], arbiter: str
) -> None:
    """A12: also where the settings name a lock table by default, as Spark and the command line do."""
    place = new_place(arbiter)
    place.open(create=True).append(rows(0), key="event-0")
    options = {**place.storage_options, "DELTA_DYNAMO_TABLE_NAME": "another_log"}
    table = sw.open(place.uri, storage_options=options)
    assert (table.arbiter, table.version) == (arbiter, 0)
    assert table.append(rows(0), key="event-0").outcome == "already_committed"
    table.append(rows(1), key="event-1")
    assert place.ids() == once(0, 1)


def test_what_is_read_to_find_the_arbiter_serves_the_opening_and_the_next_one(
    guarded: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Lambda container opens its table for each event: only the first time the log is read whole."""
    guarded.open(create=True).append(rows(0), key="event-0")
    opening._remembered.clear()
    known: list[int | None] = []

    def load(state: Snapshot | None = None, **settings: Any) -> Any:
        known.append(None if state is None else state.version)
        return snapshot.load(state, **settings)

    monkeypatch.setattr(opening, "load", load)
    for _ in range(2):
        assert sw.open(guarded.uri, storage_options=guarded.storage_options).version == 0
    assert known == [None, 0, 0, 0]


def test_the_object_store_arbiter_refuses_a_table_with_a_lock_tables_temp_files(guarded: Place) -> None:
    """A12: made by deltalake, written by Spark: nothing is recorded in the table, but the temps tell."""
    by_deltalake(guarded, 0)
    SparkLike(guarded).append(1)
    with pytest.raises(sw.UnsafeConfigError, match="lock_table=") as caught:
        replace(guarded, arbiter="object-store", lock_table=None).open()
    assert caught.value.kind == "arbiter_mismatch"
    guarded.open(strict=False).append(rows(2), key="event")
    assert guarded.ids() == once(0, 1, 2)


def test_an_arbiter_recorded_while_we_had_the_table_open_is_seen_before_our_commit(
    guarded: Place, lake: tuple[str, str]
) -> None:
    """A12, A16: both opened a table of deltalake's, and disagree."""
    by_deltalake(guarded, 0)
    ours = replace(guarded, arbiter="object-store", lock_table=None).open()
    guarded.open().append(rows(1), key="theirs")
    with pytest.raises(sw.UnsafeConfigError) as caught:
        ours.append(rows(2), key="event")
    assert (caught.value.kind, caught.value.key) == ("arbiter_mismatch", "event")
    assert guarded.ids() == once(0, 1)


# --- A15: spellings ------------------------------------------------------------------------------------
def test_every_spelling_of_an_address_is_one_table_and_one_lock_domain(guarded: Place) -> None:
    """A15."""
    rest = guarded.uri.removeprefix("s3://")
    bucket, _, prefix = rest.partition("/")
    spellings = [f"s3://{rest}", f"s3a://{rest}", f"s3n://{rest}/", f"s3://{bucket}//{prefix}//"]
    for number, spelling in enumerate(spellings):
        table = replace(guarded, uri=spelling).open(create=True)
        assert table.uri == guarded.uri
        assert table.append(rows(number), key=f"event-{number}").version == number
        assert replace(guarded, uri=spelling).open().append(rows(0), key="event-0").version == 0
    assert guarded.ids() == once(*range(len(spellings)))
    assert [item["fileName"]["S"] for item in guarded.entries()] == [
        f"{version:020d}.json" for version in range(len(spellings))
    ]


# --- A16: two lock tables -------------------------------------------------------------------------------
def test_a_second_lock_table_for_one_table_is_refused(guarded: Place) -> None:
    """A16: another name."""
    guarded.open(create=True).append(rows(0), key="before")
    other = create_lock_table(guarded.dynamodb(), "other_log")
    with pytest.raises(sw.UnsafeConfigError, match=f"delta_log.*{other}") as caught:
        replace(guarded, lock_table=other).open()
    assert caught.value.kind == "arbiter_mismatch"


def test_a_lock_table_of_the_same_name_elsewhere_is_refused(guarded: Place, tmp_path: Path) -> None:
    """A16: the same name in another region's DynamoDB."""
    guarded.open(create=True).append(rows(0), key="before")
    with Ministack(tmp_path) as elsewhere:
        create_lock_table(elsewhere.boto3_client("dynamodb"), str(guarded.lock_table))
        here = guarded.storage_options["AWS_ENDPOINT_URL"]
        there = storage_options(here, dynamodb_url=elsewhere.endpoint_url)
        with pytest.raises(sw.UnsafeConfigError) as caught:
            replace(guarded, storage_options=there).open()
    assert caught.value.kind == "arbiter_mismatch"


# --- A17: dropped and created anew ------------------------------------------------------------------------
def drop(place: Place) -> None:
    """Remove every object of the table, and nothing of the lock table."""
    for path in place.objects():
        place.delete(path)


@pytest.mark.long
def test_entries_of_a_dropped_table_stop_its_successor_with_a_clear_error(guarded: Place) -> None:
    """A17."""
    table = guarded.open(create=True)
    for number in range(3):
        table.append(rows(number), key=f"event-{number}")
    drop(guarded)
    with pytest.raises(sw.UnsafeConfigError, match=r"dropped and created anew.*locks clear") as caught:
        guarded.open(create=True).append(rows(9), key="new")
    assert caught.value.kind == "stale_lock_entries"
    assert not [path for path in guarded.objects("_delta_log/") if path.endswith(".json")]


@pytest.mark.long
def test_an_unfinished_commit_of_a_dropped_table_is_not_finished_in_its_successor(guarded: Place) -> None:
    """A17: a temp that is still there must not become a version of another table."""
    guarded.open(create=True).append(rows(0), key="before")
    crash_at(guarded.open(), "commit.put_entry", "after", rows(1), key="left")
    temps = guarded.objects("_delta_log/.tmp/")
    drop(guarded)
    by_deltalake(guarded, 7)
    for path, body in temps.items():
        guarded.put(path, body)
    with pytest.raises(sw.UnsafeConfigError) as caught:
        guarded.open().append(rows(8), key="new")
    assert caught.value.kind == "stale_lock_entries"
    assert guarded.ids() == once(7)


@pytest.mark.long
def test_a_key_of_a_dropped_table_does_not_make_its_successor_skip_rows(guarded: Place) -> None:
    """A17, promise 6: the ledger outlives the table; the log is the truth."""
    table = guarded.open(create=True)
    table.append(rows(0), key="event-0")
    table.append(rows(1), key="event-1")
    drop(guarded)
    for item in guarded.entries():
        guarded.dynamodb().delete_item(
            TableName=guarded.lock_table, Key={name: item[name] for name in ("tablePath", "fileName")}
        )
    fresh = guarded.open(create=True)
    fresh.append(rows(5), key="other")
    fresh.append(rows(6), key="another")
    receipt = fresh.append(rows(1), key="event-1")
    assert receipt.outcome == "committed"
    assert guarded.ids() == once(1, 5, 6)
    assert guarded.open().append(rows(1), key="event-1").outcome == "already_committed"
    assert guarded.open().resolve("event-0") is None
