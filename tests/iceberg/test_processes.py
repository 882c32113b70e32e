"""Iceberg tables in forked children, in other processes, and on one catalog object that threads share."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog

import safewrite as sw

CHILDREN, APPENDS = 3, 3
THREADS, TABLES = 4, 2
ELSEWHERE = """
import pickle, sys
table = pickle.load(sys.stdin.buffer)
for again in range(2):
    print(table.append([{'id': 2}], key='2').outcome)
"""


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {
        "name": "files",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/c.db",
        "warehouse": tmp_path.as_uri(),
    }


def in_memory(tmp_path: Path) -> Catalog:
    return load_catalog("memory", type="in-memory", warehouse=tmp_path.as_uri())


def ids(catalog: dict[str, str], name: str = "db.t") -> Counter[Any]:
    return Counter(load_catalog(**catalog).load_table(name).scan().to_arrow().column("id").to_pylist())


# --- pickled -----------------------------------------------------------------------------------------
@pytest.mark.sweep("False")
@pytest.mark.parametrize("as_object", [False, True])
def test_a_pickled_table_opens_again_in_another_process_and_writes(
    properties: dict[str, str], as_object: bool
) -> None:
    given = {name: value for name, value in properties.items() if name not in ("name", "type")}
    catalog: Any = SqlCatalog("files", **given) if as_object else properties
    table = sw.open("db.t", catalog=catalog, create=True, timeout_s=77.0)
    table.append([{"id": 1}], key="1")
    told = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], input=pickle.dumps(table), capture_output=True, check=True
    )
    assert told.stdout.decode().split() == ["committed", "already_committed"]
    copy = pickle.loads(pickle.dumps(table))
    assert (copy.uri, copy.limits) == (table.uri, table.limits)
    assert ids(properties) == Counter([1, 2])


@pytest.mark.parametrize("as_object", [False, True])
def test_a_table_of_a_catalog_in_memory_does_not_travel(tmp_path: Path, as_object: bool) -> None:
    """Another process would have an empty catalog of that name, and write into a table that nobody sees."""
    settings = {"name": "memory", "type": "in-memory", "warehouse": tmp_path.as_uri()}
    table = sw.open("db.t", catalog=in_memory(tmp_path) if as_object else settings, create=True)
    table.append([{"id": 1}])
    for call in (lambda: pickle.dumps(table), lambda: table.sink(app_id="app")):
        with pytest.raises(sw.InvalidInputError, match=r"memory of this process\. Nothing was written"):
            call()


# --- forked ------------------------------------------------------------------------------------------
def forked(work: Callable[[int], None], children: int) -> dict[int, str]:
    """Each child's work is done in a fork while the parent does its own; what each of them raised, or ""."""
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def told(number: int) -> None:
        try:
            work(number)
            answers.put((number, ""))
        except Exception as error:  # noqa: BLE001 - told to the parent
            answers.put((number, f"{type(error).__name__}: {error}"))
        finally:
            os._exit(0)

    started = [context.Process(target=told, args=(number,)) for number in range(1, children + 1)]
    for child in started:
        child.start()
    work(0)
    found = dict(answers.get() for _ in started)
    for child in started:
        child.join()
    return found


@pytest.mark.long
def test_forked_children_and_their_parent_each_write_their_rows_once(properties: dict[str, str]) -> None:
    table = sw.open("db.t", catalog=properties, create=True)
    table.append([{"id": -1}], key="before")

    def append(first: int) -> None:
        for number in range(first * 100, first * 100 + APPENDS):
            table.append([{"id": number}], key=f"event-{number}")
            assert table.append([{"id": number}], key=f"event-{number}").outcome == "already_committed"

    assert forked(append, CHILDREN) == dict.fromkeys(range(1, CHILDREN + 1), "")
    assert ids(properties) == Counter(
        [-1, *(c * 100 + n for c in range(CHILDREN + 1) for n in range(APPENDS))]
    )


def test_a_catalog_in_memory_is_refused_in_a_forked_child(tmp_path: Path) -> None:
    table = sw.open("db.t", catalog=in_memory(tmp_path), create=True)
    table.append([{"id": 1}])
    told = forked(lambda number: None if number == 0 else table.append([{"id": 2}]) and None, 1)
    assert told[1].startswith("InvalidInputError: The catalog 'memory' cannot be used after a fork")
    assert "Nothing was written" in told[1]
    assert table.append([{"id": 3}]).rows == 1


# --- one catalog object ------------------------------------------------------------------------------
def test_tables_on_one_catalog_object_ask_it_one_at_a_time(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client is not made for threads, and a lock of each table keeps only that table's threads apart."""
    catalog = load_catalog(**properties)
    tables = [sw.open(f"db.t{number}", catalog=catalog, create=True) for number in range(TABLES)]
    for table in tables:
        table.append([{"id": -1}])
    inside = threading.Semaphore()
    overlaps: list[str] = []

    def alone(name: str) -> None:
        ask = getattr(catalog, name)

        def asked(*args: Any, **kwargs: Any) -> Any:
            if not inside.acquire(blocking=False):
                overlaps.append(name)
                return ask(*args, **kwargs)
            try:
                time.sleep(0.005)
                return ask(*args, **kwargs)
            finally:
                inside.release()

        monkeypatch.setattr(catalog, name, asked)

    # PyIceberg's own commit loads the table, so only the outermost call is looked at.
    alone("commit_table")

    def append(worker: int) -> None:
        for number in range(worker * 10, worker * 10 + 3):
            tables[worker % TABLES].append([{"id": number}], key=f"event-{number}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(append, range(THREADS)))
    assert overlaps == []
    for number in range(TABLES):
        mine = [w * 10 + n for w in range(THREADS) if w % TABLES == number for n in range(3)]
        assert ids(properties, f"db.t{number}") == Counter([-1, *mine])
