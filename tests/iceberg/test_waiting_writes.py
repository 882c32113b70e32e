"""Writes that were left behind in the queue of an Iceberg table: doctor finds them, repair ends them by the table's metadata."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from safewrite.protocol.effects import Failed, List
from safewrite.stores.world import World
from safewrite.testing.steps import At
from tests.iceberg.command_line import Place, data_files, ids, sqlite_place
from tests.integration.places import CrashError


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A table of rows 1 to 3, and a write of row 4 whose writer was killed as it waited, a while ago."""
    with sqlite_place(tmp_path) as here:
        killed(here, 4, "left")
        yield here


def killed(place: Place, row: int, key: str) -> None:
    def crash() -> None:
        raise CrashError

    table = place.open(group="always", lease_s=0.02)
    table.world = At(table.world, "share.put_member", "after", crash)
    with pytest.raises(CrashError):
        table.append(ids(row), key=key)
    for path in queued(place):
        os.utime(path, (time.time() - 100,) * 2)


def queued(place: Place) -> list[Path]:
    return list(Path(place.table().location().removeprefix("file://")).glob("_safewrite/queue/*"))


def repaired(place: Place, *options: str) -> list[tuple[str, str]]:
    _, done = place.json("repair", *options)
    return [(step["status"], step["detail"]) for step in done["steps"] if step["action"] == "finish"]


def found(place: Place) -> Any:
    return place.findings().get("write_left_waiting", {}).get("details")


def rows_of(place: Place) -> list[int]:
    return sorted(place.table().scan().to_arrow()["id"].to_pylist())


def test_a_write_that_may_still_be_committed_is_committed_once(place: Place) -> None:
    assert found(place) == {"count": 1, "open": 1}
    assert repaired(place, "--dry-run") == [("would", "")]
    assert len(queued(place)) == 1
    assert repaired(place) == [("done", "key left")]
    assert (rows_of(place), queued(place)) == ([1, 2, 3, 4], [])
    assert place.open().append(ids(4), key="left").outcome == "already_committed"
    assert (found(place), repaired(place)) == (None, [])


def test_doctor_reads_each_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    perform, read = World.perform, list[str]()

    def counted(self: World, effect: Any) -> Any:
        read.extend([effect.path] if effect.name == "finish.get_member" else [])
        return perform(self, effect)

    killed(place, 5, "another")
    monkeypatch.setattr(World, "perform", counted)
    assert found(place) == {"count": 2, "open": 2}
    assert len(read) == len(set(read)) == 2


def test_one_that_waits_for_less_than_a_minute_is_left_to_its_writer(place: Place) -> None:
    for path in queued(place):
        os.utime(path)
    assert (found(place), repaired(place)) == (None, [])
    assert len(queued(place)) == 1


def test_one_that_the_table_has_is_removed(place: Place) -> None:
    place.open().append(ids(4), key="left")
    assert found(place) == {"count": 1, "open": 0}
    assert repaired(place) == [("done", "it is in the table")]
    assert (rows_of(place), queued(place)) == ([1, 2, 3, 4], [])


@pytest.mark.long
def test_one_that_no_one_may_commit_any_more_is_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("safewrite.table.shared_queue.SPAN", 2)
    killed(place, 5, "short")
    for row in (6, 7):
        place.open().append(ids(row))
    assert sorted(repaired(place)) == [("done", "key left"), ("done", "no one may commit it any more")]
    assert rows_of(place) == [1, 2, 3, 4, 6, 7]


@pytest.mark.long
def test_none_is_committed_once_others_have_taken_its_last_number(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``resolve`` says from then on that it is not there, and will not be."""
    monkeypatch.setattr("safewrite.table.shared_queue.SPAN", 2)
    killed(place, 5, "short")
    perform = World.perform

    def slowly(self: World, effect: Any) -> Any:
        if effect.name == "stage.put_manifest_list" and not place.open().resolve("meanwhile"):
            monkeypatch.setattr(World, "perform", perform)
            place.open().append(ids(6), key="meanwhile")
            place.open().append(ids(7))
        return perform(self, effect)

    for path in queued(place):
        if path.name.startswith(f"{2:020d}-{18:020d}"):
            path.unlink()
    monkeypatch.setattr(World, "perform", slowly)
    ((status, why),) = repaired(place)
    assert (status, "no one may commit it" in why) == ("failed", True)
    assert rows_of(place) == [1, 2, 3, 6, 7]


def test_one_of_a_table_that_was_dropped_since_is_removed(place: Place) -> None:
    """It was skipped until the new table had as many snapshots, and doctor warned of it all the while."""
    place.catalog.drop_table(place.name)
    place.open(create=True).append(ids(7))
    assert found(place) == {"count": 1, "open": 0}
    assert repaired(place) == [("done", "it is of a table that was there before")]
    assert (queued(place), rows_of(place), found(place)) == ([], [7], None)


def test_one_whose_table_has_changed_or_whose_file_is_gone_waits_on(place: Place) -> None:
    named = set(data_files(place.table()))
    folder = next(iter(named)).parent
    (lost,) = (path for path in folder.rglob("*.parquet") if path not in named)
    body = lost.read_bytes()
    lost.unlink()
    ((status, why),) = repaired(place)
    assert (status, "is gone" in why) == ("skipped", True)
    lost.write_bytes(body)
    with place.table().update_schema() as update:
        update.add_column("more", LongType())
    ((status, why),) = repaired(place)
    assert (status, "has changed" in why) == ("skipped", True)
    assert len(queued(place)) == 1


def test_doctor_says_the_rest_where_the_queue_may_not_be_listed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = World.perform
    monkeypatch.setattr(
        World,
        "perform",
        lambda self, effect: Failed("403") if isinstance(effect, List) else perform(self, effect),
    )
    assert found(place) is None
