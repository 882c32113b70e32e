"""A table that is dropped, or dropped and made anew, under an object that was opened before (A17)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import safewrite as sw
from safewrite.testing.steps import At
from tests.integration.places import Place, crash_at, once, rows
from tests.sampling import some

CITIES = pa.table({"id": pa.array([7], pa.int64()), "city": ["Rome"]})

VERBS: dict[str, Callable[[sw.Table], Any]] = {
    "append": lambda table: table.append(rows(3), key="event-3"),
    "append in a stream": lambda table: table.append(rows(3), txn=("app", 7)),
    "append without a name": lambda table: table.append(rows(3)),
    "overwrite": lambda table: table.overwrite(rows(3), key="event-3"),
    "delete": lambda table: table.delete("id = 7", key="event-3"),
    "refresh": lambda table: table.refresh(),
    "checkpoint": lambda table: table.checkpoint(),
    "resolve": lambda table: table.resolve("event-0"),
}


def drop(place: Place) -> None:
    """Remove all that is under the table's address, and its entries in the lock table, as the docs say."""
    if place.arbiter == "local":
        shutil.rmtree(place.uri)
        return
    for path in place.objects():
        place.delete(path)
    if place.arbiter == "dynamodb":
        for item in place.entries():
            key = {name: item[name] for name in ("tablePath", "fileName")}
            place.dynamodb().delete_item(TableName=place.lock_table, Key=key)


def by_deltalake(place: Place, count: int, data: pa.Table = CITIES) -> None:
    """Make another table at the same address."""
    for _ in range(count):
        deltalake.write_deltalake(place.uri, data, mode="append", storage_options=dict(place.storage_options))


def held(place: Place, **settings: Any) -> sw.Table:
    """An object whose last write was a moment ago: three versions."""
    table = place.open(create=True, **settings)
    table.append(rows(0), key="event-0")
    table.append(rows(1), txn=("app", 7))
    table.append(rows(2), key="event-2")
    return table


@pytest.mark.sweep(
    "local",
    "object-store",
    "dynamodb-append in a stream",
    "dynamodb-append without a name",
    "dynamodb-refresh",
    "dynamodb-checkpoint",
    "dynamodb-overwrite",
    "dynamodb-delete",
    "dynamodb-resolve",
)
@pytest.mark.parametrize("verb", VERBS)
def test_nothing_is_written_where_the_table_was_dropped(place: Place, verb: str) -> None:
    table = held(place)
    drop(place)
    with pytest.raises(sw.TableNotFoundError, match="dropped"):
        VERBS[verb](table)
    assert not [path for path in place.objects("_delta_log/") if path.endswith(".json")]


VERSIONS = (1, 2, 3, 6)
SAMPLED_ANEW = some(product(("dynamodb", "object-store"), VERBS, VERSIONS))


@pytest.mark.sweep(
    "dynamodb",
    "object-store",
    "3",
    "1",
    "local-append without a name-2",
    "local-checkpoint-6",
    "local-append in a stream-2",
    "local-overwrite-6",
    "local-resolve-2",
    "local-append-2",
    "local-refresh-2",
    "local-delete-2",
    "local-append in a stream-6",
)
@pytest.mark.parametrize(
    ("place", "verb", "versions"), [*SAMPLED_ANEW, *product(["local"], VERBS, VERSIONS)], indirect=["place"]
)
def test_nothing_is_written_into_a_table_that_was_made_anew(place: Place, verb: str, versions: int) -> None:
    """With a shorter log, one of the same length, or a longer one: the new table is as its makers left it."""
    table = held(place)
    drop(place)
    by_deltalake(place, versions)
    before = place.objects("_delta_log/")
    with pytest.raises(
        sw.ConflictError, match="Open it again, and look at the table before you write"
    ) as caught:
        VERBS[verb](table)
    assert caught.value.kind is sw.Kind.TABLE_REPLACED
    assert place.objects("_delta_log/") == before
    assert place.delta().to_pyarrow_table().column_names == ["id", "city"]


def test_a_read_of_a_table_that_was_made_anew_does_not_speak_of_commits(tmp_path: Path) -> None:
    table = sw.open(tmp_path / "t", create=True)
    for number in range(3):
        table.append(rows(number))
    shutil.rmtree(tmp_path / "t")
    deltalake.write_deltalake(tmp_path / "t", CITIES)
    reads: list[Callable[[], object]] = [
        lambda: table.rows(where="id = 1"),
        table.row_count,
        lambda: table.changes_since(-1).read(),
    ]
    for read in reads:
        with pytest.raises(sw.ConflictError, match="Open it again") as caught:
            read()
        assert caught.value.kind is sw.Kind.TABLE_REPLACED
        assert "commit" not in caught.value.message


@pytest.mark.sweep("object-store", "dynamodb")
def test_an_object_that_has_seen_a_table_stays_with_it(place: Place) -> None:
    table = held(place)
    drop(place)
    by_deltalake(place, 5, rows(9))
    for _ in range(2):
        with pytest.raises(sw.ConflictError):
            table.append(rows(3), key="event-3")
        with pytest.raises(sw.ConflictError):
            table.refresh()
    assert table.version == 2
    fresh = place.open()
    assert fresh.append(rows(3), key="event-3").version == 5
    assert place.ids() == once(*[9] * 5, 3) == place.replayed_ids()


@pytest.mark.sweep("object-store", "dynamodb")
def test_a_table_that_safewrite_made_anew_is_another_one(place: Place) -> None:
    table = held(place)
    drop(place)
    other = place.open(create=True)
    for number in range(10, 15):
        other.append(rows(number), key=f"new-{number}")
    with pytest.raises(sw.ConflictError) as caught:
        table.append(rows(3), key="event-3")
    assert caught.value.kind is sw.Kind.TABLE_REPLACED
    assert place.ids() == once(*range(10, 15))
    assert place.open().append(rows(1), txn=("app", 7)).outcome == "committed"


@pytest.mark.sweep("object-store")
def test_a_log_that_was_put_back_to_an_earlier_state_is_read_again(s3_place: Place) -> None:
    """The same table from a backup: what came after it is not there any more, and other commits are."""
    table = s3_place.open(create=True)
    table.append(rows(0), key="event-0")
    backup = s3_place.objects()
    table.append(rows(1), key="event-1")
    table.append(rows(2), key="event-2")
    drop(s3_place)
    for path, body in backup.items():
        s3_place.put(path, body)
    by_deltalake(s3_place, 4, rows(9))
    assert table.append(rows(2), key="event-2").version == 5
    assert s3_place.ids() == once(0, *[9] * 4, 2) == s3_place.replayed_ids()


@pytest.mark.sweep("object-store", "dynamodb")
def test_a_table_that_is_made_anew_while_files_are_uploaded_is_noticed(place: Place) -> None:
    """Also by a write that knew the newest version a moment ago, and leaves nothing behind that looks like a claim."""
    table = held(place)

    def anew() -> None:
        drop(place)
        by_deltalake(place, 1)

    table.world = At(table.world, "stage.put_data", "before", anew)
    with pytest.raises(sw.ConflictError) as caught:
        table.append(rows(3), key="event-3")
    assert caught.value.kind is sw.Kind.TABLE_REPLACED
    assert place.delta().version() == 0
    assert not place.objects("_delta_log/.tmp/")


@pytest.mark.long
def test_a_key_that_a_dropped_table_was_to_get_is_found_in_its_successor(guarded: Place) -> None:
    """The ledger outlives the table: where it says to begin is no place of the new log."""
    table = held(guarded)
    crash_at(table, "stage.put_data", "before", rows(3), key="event-3")
    drop(guarded)
    fresh = guarded.open(create=True)
    fresh.append(rows(8), key="other")
    crash_at(fresh, "ledger.commit", "before", rows(3), key="event-3")
    third = guarded.open()
    third.append(rows(10), key="more")
    assert third.resolve("event-3") is not None
    assert third.append(rows(3), key="event-3").outcome == "already_committed"
    assert guarded.ids() == once(8, 3, 10)


@pytest.mark.sweep("rows-more", "added_since-as many", "row_count-as many")
@pytest.mark.parametrize("versions", [3, 12], ids=["as many", "more"])
@pytest.mark.parametrize("read", ["rows", "row_count", "added_since"])
def test_no_rows_of_a_table_that_was_made_anew_are_read(tmp_path: Path, read: str, versions: int) -> None:
    """The versions that the object knows by number are there, and were read as those of its own table."""
    place = Place(str(tmp_path / "t"), "local")
    calls: dict[str, Callable[[sw.Table], Any]] = {
        "rows": lambda table: table.rows(where="id >= 0"),
        "row_count": lambda table: table.row_count(),
        "added_since": lambda table: table.added_since(None),
    }
    table = held(place)
    drop(place)
    by_deltalake(place, versions)
    with pytest.raises(
        sw.ConflictError, match="Open it again, and look at the table before you write"
    ) as caught:
        calls[read](table)
    assert caught.value.kind is sw.Kind.TABLE_REPLACED
    with pytest.raises(sw.HistoryGapError, match="version 2 is another one than before"):
        table.added_since(0)


def test_another_opening_in_this_process_is_of_the_table_that_is_there(tmp_path: Path) -> None:
    """What a process remembers of a table is void once another lives at its address."""
    place = Place(str(tmp_path / "t"), "local")
    held(place)
    drop(place)
    by_deltalake(place, 6)
    assert place.open().schema.names == ["id", "city"]
    drop(place)
    with pytest.raises(sw.TableNotFoundError):
        place.open()
