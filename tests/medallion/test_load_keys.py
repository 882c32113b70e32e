"""Keys that are not unique at the source (T4-C2): rows of one full load are no changes of one another, and none goes in silence."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from safewrite.intake.letters import STATES
from safewrite.medallion import Pipeline, verify
from safewrite.medallion.audit.quarantine import Quarantine
from safewrite.medallion.silver import apply, load_keys
from tests.medallion import test_tasks
from tests.medallion.test_evolution import FORMATS, clean, rows, shop
from tests.medallion.test_jobs import Shop, set_in
from tests.medallion.test_tasks import Twin, read

small_parts, twins = test_tasks.small_parts, test_tasks.twins
NAME, HEAD = "shop.orders", "id,price\n"
BOTH = "of the same full load has its key (id)"


def put(job: Shop, number: int, text: str, at_s: int = 0) -> None:
    path = f"shop/orders/LOAD{number:08X}.csv"
    job.put(path, HEAD + text)
    if at_s:
        os.utime(job.folder / "raw" / path, (1_790_000_000 + at_s,) * 2)


def aside(job: Shop) -> list[tuple[str, int]]:
    found = [row for row in job.rows("aside") if row["stage"] == "silver" and BOTH in row["reason"]]
    return sorted((row["file"][-5:-4], row["line"]) for row in found)


@pytest.mark.sweep("iceberg", "order1", "order2")
@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize("order", [(1, 2), (2, 1), (0,)])
def test_rows_of_one_load_with_one_key_are_put_aside_but_for_the_last(
    table_format: str, order: tuple[int, ...], tmp_path: Path
) -> None:
    """In one file, in files of one run, and in files of two runs, whichever comes first: silver and quarantine are the same."""
    job = shop(tmp_path, table_format)
    texts = {1: "1,1.00\n1,2.00\n2,3.00\n", 2: "3,4.00\n1,5.00\n"}
    quarantined = 0
    for number in order:
        for one in (number,) if number else (1, 2):
            put(job, one, texts[one], at_s=one)
        run = job.run()
        quarantined += run.tables[0].refined.quarantined
    assert run.ok
    assert {key: str(row["price"]) for key, row in rows(job, "silver").items()} == {
        1: "5.00",
        2: "3.00",
        3: "4.00",
    }
    assert (quarantined, aside(job)) == (2, [("1", 1), ("1", 2)])
    assert "have the key (id) of a later row of their load" in str(run.tables[0].warning)
    assert clean(job)
    waiting = Quarantine(Pipeline(job.config)).find()
    assert [one.state for one in waiting] == [
        "waiting",
        "waiting",
    ]  # a row of the load does not overtake another


@pytest.mark.sweep("iceberg")
@pytest.mark.parametrize("table_format", FORMATS)
def test_too_many_of_them_leave_silver_as_it_is_until_keys_are_right(
    table_format: str, tmp_path: Path
) -> None:
    job = shop(tmp_path, table_format)
    set_in(job, "defaults", "quality", to={})
    put(job, 1, "1,1.00\n1,2.00\n2,3.00\n1,4.00\n")
    (told,) = job.run().tables
    assert "2 of 4 rows of full loads of shop.orders have the key (id)" in str(told.error)
    assert "record 1 of shop/orders/LOAD00000001.csv and record 4" in str(told.error)
    assert rows(job, "silver") == {}
    set_in(job, "defaults", "keys", to=["id", "price"])
    set_in(job, "tables", NAME, "columns", to={"id": "int64", "price": "decimal(10,2)"})
    assert job.run().ok, job.run().tables[0].error
    assert len(read(job, "silver/orders")) == 4
    assert clean(job)


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_load_that_began_again_is_another_load(table_format: str, tmp_path: Path) -> None:
    """Its rows may be in other files than before, and those of a new task too."""
    job = shop(tmp_path, table_format)
    set_in(job, "defaults", "restarted_load", to="fold")
    for at_s, number, text in (
        (1, 1, "1,1.00\n"),
        (2, 2, "2,1.00\n"),
        (3, 1, "2,2.00\n"),
        (4, 2, "1,2.00\n"),
    ):
        put(job, number, text, at_s)
        if at_s in {2, 4}:
            run = job.run()
            assert (run.ok, run.tables[0].refined.same_key) == (True, 0), run.tables[0]
    job.config["tables"][NAME] |= {"epoch": 2, "reload": "keep"}
    put(job, 3, "1,9.00\n", 5)
    run = job.run()
    assert (run.ok, run.tables[0].refined.same_key, aside(job)) == (True, 0, [])
    assert clean(job)
    put(job, 4, "1,9.50\n", 6)
    assert job.run().tables[0].refined.same_key == 1
    assert aside(job) == [("3", 1)]
    assert clean(job)


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
def test_what_an_earlier_build_left_is_found_by_verify_and_put_aside_by_a_replay(
    table_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = shop(tmp_path, table_format)
    put(job, 1, "1,1.00\n1,2.00\n2,3.00\n")
    with monkeypatch.context() as earlier:
        earlier.setattr(load_keys, "_but_last", lambda rows, keys: (None, set()))
        assert job.run().ok
    (audit,) = verify(Pipeline(job.config))
    assert "1 keys have several rows of one full load" in str(audit.flaws)
    assert Pipeline(job.config).replay([NAME]).ok
    assert aside(job) == [("1", 1)]
    assert clean(job)


@pytest.mark.long
@pytest.mark.parametrize("shares", [1, 4])
def test_tasks_find_the_same_rows(
    twins: Callable[..., Twin], shares: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several commits of silver, and looked for by shares of the keys."""
    twin = twins({"kind": "csv", "header": True, "change_seq": "seq"}, {"id": "int64", "name": "string"})
    monkeypatch.setattr(apply, "ROWS_MAX", 100)
    if shares > 1:
        monkeypatch.setattr(load_keys, "SHARE_ROWS", 80)
    for number in (1, 2, 3):
        text = "".join(f"{number * 100 + row},{row}\n" for row in range(97)) + "7,a\n7,b\n"
        twin.put(f"shop/orders/LOAD{number:08X}.csv", ("id,name\n" + text).encode())
    found: list[Any] = [pipeline.run().tables[0] for pipeline in twin.pipelines()]
    assert [(one.error, one.refined.same_key, one.refined.quarantined) for one in found] == [(None, 5, 5)] * 2
    assert {key: test_tasks.tables(twin.plain)[key] for key in ("aside", "silver/orders")} == {
        key: test_tasks.tables(twin.tasks)[key] for key in ("aside", "silver/orders")
    }
    assert aside(twin.tasks) == [("1", 98), ("1", 99), ("2", 98), ("2", 99), ("3", 98)]
    for pipeline in twin.pipelines():
        assert [one.clean for one in verify(pipeline)] == [True]


@pytest.mark.long
@pytest.mark.parametrize("table_format", FORMATS)
def test_a_record_that_a_replayed_one_overtook_does_not_wait(table_format: str, tmp_path: Path) -> None:
    """T4-C4: two updates without a value came before their insert; the later one is in silver after the replay."""
    job = shop(tmp_path, table_format)
    set_in(
        job, "defaults", "files", to={"kind": "csv", "header": True, "change_seq": "seq", "no_sup_value": "?"}
    )
    head = "Op,id,price,seq\n"
    for number, text in ((2, "U,1,?,2\n"), (3, "U,1,?,3\n"), (1, "I,1,1.00,1\n")):
        job.put(f"shop/orders/20261101-00000000{number}.csv", head + text)
        assert job.run().ok
    quarantine = Quarantine(Pipeline(job.config))
    assert quarantine.replay().dead == {}
    assert sorted(one.state for one in quarantine.find(states=STATES)) == [
        "overtaken",
        "replayed",
    ]
