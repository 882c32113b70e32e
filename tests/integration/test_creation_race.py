"""Many writers make one table at the same moment: there is one version 0, and every row is there once (A20)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import safewrite as sw
from tests.integration.places import Place, crash_at, once, rows, visible

CREATORS = 12


def at_once(count: int, act: Callable[[int], object]) -> list[object]:
    """Call ``act(number)`` from so many threads that start together; what came of each."""
    barrier = threading.Barrier(count)

    def one(number: int) -> object:
        barrier.wait()
        try:
            return act(number)
        except sw.SafewriteError as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


@pytest.mark.long
def test_twelve_creators_make_one_table_with_every_row_once(place: Place) -> None:
    """A20."""

    def create(number: int) -> sw.Receipt:
        return place.open(create=True).append(rows(number), key=f"event-{number}")

    outcomes = at_once(CREATORS, create)
    assert {type(outcome) for outcome in outcomes} == {sw.Receipt}, outcomes
    assert visible([place.ids(), place.replayed_ids()]) == once(*range(CREATORS))
    commits = place.commits()
    assert len(commits) <= CREATORS  # some share one
    assert sum("metaData" in action for actions in commits for action in actions) == 1


def test_a_creator_that_died_with_its_claim_does_not_stop_the_next_one(guarded: Place) -> None:
    """A20, A5: the claim on version 0 names a table id that is not ours, and is finished all the same."""
    crash_at(guarded.open(create=True), "commit.put_entry", "after", rows(1), key="left")
    assert guarded.open(create=True).append(rows(2), key="event").version == 1
    assert visible([guarded.ids(), guarded.replayed_ids()]) == once(1, 2)
    assert guarded.open(create=True).append(rows(1), key="left").outcome == "already_committed"


@pytest.mark.sweep("object-store", "dynamodb")
def test_creators_with_different_schemas_agree_on_the_first_ones(place: Place) -> None:
    """A20: the loser's rows are checked against the winner's schema."""

    def create(number: int) -> sw.Receipt:
        frame = rows(number) if number % 2 else rows(number).append_column("extra", pa.array(["x"]))
        return place.open(create=True).append(frame, key=f"event-{number}")

    outcomes = at_once(6, create)
    acked = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, sw.Receipt)]
    refused = [outcome for outcome in outcomes if not isinstance(outcome, sw.Receipt)]
    assert {number % 2 for number in acked} in ({0}, {1})
    assert {type(error) for error in refused} == {sw.WouldAlterError}
    assert place.ids() == once(*acked)


@pytest.mark.sweep("object-store", "dynamodb")
def test_of_many_calls_to_create_one_makes_the_table(place: Place) -> None:
    settings = {"storage_options": dict(place.storage_options), "checkpoints": False}
    if place.arbiter == "dynamodb":
        settings["lock_table"] = place.lock_table
    elif place.arbiter == "object-store":
        settings["arbiter"] = "object-store"
    schema = rows(0).schema
    outcomes = at_once(4, lambda _: sw.create(place.uri, schema, **settings))
    errors = [outcome for outcome in outcomes if isinstance(outcome, sw.SafewriteError)]
    assert len(errors) == len(outcomes) - 1
    assert {(type(error), error.kind) for error in errors} == {(sw.ConflictError, "table_exists")}
    assert len(place.commits()) == 1


@pytest.mark.sweep("object-store", "dynamodb")
def test_creating_a_table_that_is_there_is_a_conflict_and_leaves_it(place: Place) -> None:
    place.open(create=True).append(rows(1), key="before")
    before = place.objects("_delta_log/")
    settings = {"lock_table": place.lock_table} if place.arbiter == "dynamodb" else {}
    settings |= {"arbiter": "object-store"} if place.arbiter == "object-store" else {}
    with pytest.raises(sw.ConflictError, match=r"safewrite\.open") as caught:
        sw.create(place.uri, rows(0).schema, storage_options=dict(place.storage_options), **settings)
    assert caught.value.kind == "table_exists"
    assert place.objects("_delta_log/") == before
