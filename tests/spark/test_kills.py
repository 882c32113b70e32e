"""Writers that were killed at a step of a commit: Spark reads the table at once, and after the next writer (A4 to A6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers.servers import Ministack
from safewrite.testing.steps import Recorder, points
from tests.integration.children import Nursery, Task
from tests.integration.places import Place, once, rows
from tests.spark.session import Spark, to_folder

BEFORE, MINE, NEXT = 1, 10, 30
KEY = {"key": "event-1"}
PROPERTIES = {"delta.checkpointInterval": "1"}
LANDED_FROM = "commit.put_commit:after"
CLAIMED_FROM = "commit.put_entry:after"


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    """Where child processes come from."""
    nursery = Nursery()
    yield nursery
    nursery.stop()


def changes_something(step: str) -> bool:
    """Whether a step writes: between two of those, a killed writer always leaves the same."""
    return step.partition(".")[2].startswith(("put", "complete", "intend", "commit"))


@pytest.fixture
def places(nursery: Nursery, ministack: Ministack, bucket: str, dynamodb_table: str) -> dict[str, Place]:
    """A table for each point of a keyed append that also makes a checkpoint, killed there, with one row before."""

    def prepared(name: str) -> Place:
        place = Place(f"s3://{bucket}/{name}", "dynamodb", ministack.storage_options(), dynamodb_table)
        place.open(create=True, checkpoints=True, properties=PROPERTIES).append(rows(BEFORE))
        return place

    table = prepared("recorded").open(checkpoints=True)
    table.world = recorder = Recorder(table.world)
    table.append(rows(MINE), **KEY)
    places = {}
    for number, point in enumerate(points(filter(changes_something, recorder.steps))):
        places[point] = place = prepared(str(number))
        task = Task(place, (MINE,), KEY, point, settings={"checkpoints": True})
        assert nursery.killed(task), f"the child never came to {point}"
    return places


def seen(spark: Spark, places: dict[str, Place], folder: Path) -> dict[str, Counter[int]]:
    """What Spark reads in each table as it is now in the bucket, without a lock table.

    Spark looks at the files of the log, and at nothing else that it does not name: of tables whose logs have
    the same files (they differ in temp files and in data files that no commit names), it reads one.
    """
    alike: dict[tuple[str, ...], list[str]] = {}
    folders: dict[str, Path] = {}
    for point, place in places.items():
        objects = place.objects()
        log = [path for path in objects if path.startswith("_delta_log/") and "/.tmp/" not in path]
        same = alike.setdefault(tuple(sorted(log)), [])
        same.append(point)
        if len(same) == 1:
            folders[point] = to_folder(objects, folder)
    assert len(folders) > 1
    found = spark.ids(folders)
    return {point: found[same[0]] for same in alike.values() for point in same}


@pytest.mark.long
def test_spark_reads_what_killed_writers_left_and_what_the_next_writer_makes_of_it(
    spark: Spark, places: dict[str, Place], tmp_path: Path
) -> None:
    """Before N.json is put: none of the killed writer's rows; from then on, or once finished: each once."""
    order = list(places)
    landed = {point: order.index(point) >= order.index(LANDED_FROM) for point in order}
    claimed = {point: order.index(point) >= order.index(CLAIMED_FROM) for point in order}
    assert {"commit.complete:before", "checkpoint.put:after", "checkpoint.put_hint:before"} <= set(order)

    found = seen(spark, places, tmp_path)
    assert found == {point: once(BEFORE, MINE) if landed[point] else once(BEFORE) for point in order}

    for place in places.values():
        place.open().append(rows(NEXT), key="next")
    found = seen(spark, places, tmp_path)
    assert found == {
        point: once(BEFORE, MINE, NEXT) if claimed[point] else once(BEFORE, NEXT) for point in order
    }
