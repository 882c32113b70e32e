"""One table object in threads, in forked children, and pickled into other processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pyarrow as pa
import pytest

import safewrite as sw
from tests.integration.places import Place, once, rows

CHILDREN = 6
APPENDS = [4, pytest.param(8, marks=pytest.mark.long)]


@pytest.mark.long
@pytest.mark.parametrize("appends", APPENDS)
def test_forked_children_and_their_parent_each_talk_for_themselves(place: Place, appends: int) -> None:
    """On one connection each would get answers that are another's: false errors, and worse (faults A8)."""
    table = place.open(create=True, checkpoints=True)
    table.append(rows(0), key="before")
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def append(first: int) -> None:
        try:
            for number in range(first, first + appends):
                table.append(rows(number), key=f"event-{number}")
            answers.put((first, ""))
        except Exception as error:  # noqa: BLE001 - told to the parent
            answers.put((first, repr(error)))
        finally:
            os._exit(0)

    children = [context.Process(target=append, args=(1000 * n,)) for n in range(1, CHILDREN + 1)]
    for child in children:
        child.start()
    for number in range(1, appends + 1):
        table.append(rows(number), key=f"event-{number}")
    told = dict(answers.get() for _ in children)
    for child in children:
        child.join()
    assert told == {1000 * n: "" for n in range(1, CHILDREN + 1)}
    written = [0, *range(1, appends + 1)]
    written += [1000 * n + i for n in range(1, CHILDREN + 1) for i in range(appends)]
    assert place.ids() == once(*written) == place.replayed_ids()


def test_a_child_does_not_wait_for_a_lock_of_a_thread_that_it_does_not_have(
    new_place: Callable[[str], Place],
) -> None:
    place = new_place("local")
    table = place.open(create=True)
    table.append(rows(0), key="before")
    inside, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with table.turn.lock:
            inside.set()
            go_on.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(60)
    child = multiprocessing.get_context("fork").Process(target=lambda: table.append(rows(1), key="child"))
    child.start()
    child.join(60)
    go_on.set()
    holder.join()
    assert child.exitcode == 0
    assert place.ids() == once(0, 1)


@pytest.mark.sweep("object-store", "dynamodb")
def test_threads_that_share_an_object_take_turns(place: Place) -> None:
    table = place.open(create=True)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda number: table.append(rows(number), key=f"event-{number}"), range(24)))
    assert sorted(receipt.version for receipt in done) == list(range(24))
    assert place.ids() == once(*range(24)) == place.replayed_ids()


@pytest.mark.sweep("object-store", "local")
def test_a_pickled_table_is_opened_again_as_it_was(place: Place) -> None:
    table = place.open(create=True, strict=True, timeout_s=77.0, attempts_max=7, target_file_size=1000)
    table.append(rows(1), key="event-1")
    copy = pickle.loads(pickle.dumps(table))
    assert (copy.uri, copy.arbiter, copy.limits) == (table.uri, table.arbiter, table.limits)
    assert copy._format.planner.target_file_size == 1000
    assert copy.reopen.keywords["strict"] is True
    assert copy.append(rows(1), key="event-1").outcome == "already_committed"
    copy.append(rows(2), key="event-2")
    assert place.ids() == once(1, 2)


def test_a_table_of_a_session_object_says_that_it_cannot_travel(new_place: Callable[[str], Place]) -> None:
    place = new_place("object-store")
    options = place.storage_options
    session = boto3.Session(
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
        region_name=options["AWS_REGION"],
    )
    table = place.open(create=True, boto3_session=session)
    with pytest.raises(sw.InvalidInputError, match="boto3_session"):
        pickle.dumps(table)
    with pytest.raises(sw.InvalidInputError, match="boto3_session"):
        table.sink(app_id="app")


@pytest.mark.sweep("object-store", "dynamodb")
@pytest.mark.parametrize("setting", ["strict"])
def test_a_sink_opens_the_table_as_strictly_as_it_was_opened(place: Place, setting: str) -> None:
    table = place.open(create=True, strict=True)
    table.append(rows(1))
    sink: Any = table.sink(app_id="app")
    assert sink.reopen.keywords[setting] is True
    pickle.loads(pickle.dumps(sink))(pa.table(rows(2)), 0)
    assert place.ids() == once(1, 2)
