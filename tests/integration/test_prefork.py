"""Processes that servers and pools start: each talks over connections of its own, however it came to its table."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

import safewrite as sw
from tests.integration.places import Place, once, rows

WORKERS, REQUESTS = 3, 3
WAIT_S = 120.0
ARBITERS = pytest.mark.parametrize("arbiter", ["object-store", "dynamodb"])


def _append(packed: bytes, first: int) -> None:
    """What a worker of a pool does with a table that was sent to it."""
    table = pickle.loads(packed)
    for number in range(first, first + REQUESTS):
        table.append(rows(number), key=f"event-{number}")


@pytest.mark.sweep(
    "forkserver-dynamodb",
    "forkserver-object-store",
    "spawn-object-store",
    "fork-object-store",
    "fork-dynamodb",
)
@ARBITERS
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_table_that_is_sent_to_the_workers_of_a_pool(
    new_place: Callable[[str], Place], arbiter: str, method: str
) -> None:
    place = new_place(arbiter)
    table = place.open(create=True)
    table.append(rows(0), key="before")
    context: Any = multiprocessing.get_context(method)
    workers = [context.Process(target=_append, args=(pickle.dumps(table), 100 * number)) for number in (1, 2)]
    for worker in workers:
        worker.start()
    table.append(rows(1), key="meanwhile")
    for worker in workers:
        worker.join(WAIT_S)
    assert [worker.exitcode for worker in workers] == [0, 0]
    table.append(rows(2), key="after")
    written = [100 * number + one for number in (1, 2) for one in range(REQUESTS)]
    assert place.ids() == once(0, 1, 2, *written) == place.replayed_ids()


def _forked(table: sw.Table, first: int, *, dies: bool = False) -> int:
    """A worker as gunicorn starts one: forked from its master, with the table that the master has opened."""
    process = os.fork()
    if process:
        return process
    for number in range(first, first + REQUESTS):
        table.append(rows(number), key=f"event-{number}")
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(0)  # through all that Python does at its end


def _master(place: Place, created: bool) -> None:
    """Opens the table, writes and forks; starts a worker again that died; and ends."""
    table = place.open(create=created)
    table.append(rows(0), key="before")
    workers = [_forked(table, 100 * number, dies=number == 1) for number in range(1, WORKERS + 1)]
    table.append(rows(1), key="meanwhile")
    endings = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    assert endings == [-signal.SIGKILL, *[0] * (WORKERS - 1)], endings
    again = _forked(table, 100)  # the same events: nobody was told that they were written
    assert os.waitstatus_to_exitcode(os.waitpid(again, 0)[1]) == 0
    table.append(rows(2), key="after")


@pytest.mark.long
@ARBITERS
def test_a_server_that_forks_its_workers_after_it_opened_the_table(
    new_place: Callable[[str], Place], arbiter: str
) -> None:
    place = new_place(arbiter)
    master = multiprocessing.get_context("spawn").Process(target=_master, args=(place, True))
    master.start()
    master.join(WAIT_S)
    if master.is_alive():
        master.kill()
    assert master.exitcode == 0
    written = [100 * number + one for number in range(1, WORKERS + 1) for one in range(REQUESTS)]
    assert place.ids() == once(0, 1, 2, *written) == place.replayed_ids()
