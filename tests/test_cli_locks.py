"""The commands on a lock table: create, check, watch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.servers.servers import Ministack
from safewrite.stores.dynamodb import DynamoDBQueue
from tests.delta.spark import Neighbourhood, neighbourhood
from tests.sleeping import sleeps_by
from tests.stores.test_lock_table import make, ttl_on
from tests.test_cli import run, run_json


@pytest.fixture
def here(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Neighbourhood:
    for name, value in ministack.storage_options().items():
        monkeypatch.setenv(name, value)
    return neighbourhood(ministack)


def test_a_lock_table_is_created_once_and_has_all_that_it_needs(here: Neighbourhood) -> None:
    name = f"{here.bucket}-new"
    assert run_json("locks", "create", "--lock-table", name) == (
        0, {"lock_table": name, "created": True, "problems": []}
    )  # fmt: skip
    assert run_json("locks", "create", "--lock-table", name)[1]["created"] is False
    code, answer = run_json("locks", "check", "--lock-table", name)
    assert (code, answer["counts"], answer["findings"]) == (0, {"danger": 0, "warning": 0, "info": 0}, [])


def test_a_table_that_was_made_by_hand_gets_what_it_lacks(here: Neighbourhood) -> None:
    name = f"{here.bucket}-by-hand"
    make(here.dynamodb, name)
    code, answer = run_json("locks", "check", "--lock-table", name)
    assert (code, [one["code"] for one in answer["findings"]]) == (
        0,
        ["lock_table_no_ttl", "lock_table_no_recovery"],
    )
    assert "locks create --lock-table" in run("locks", "check", "--lock-table", name)[1]
    assert run_json("locks", "create", "--lock-table", name)[1]["problems"] == []
    assert run_json("locks", "check", "--lock-table", name)[1]["findings"] == []


def test_a_wrong_table_is_an_error_of_create_that_names_the_difference_and_changes_nothing(
    here: Neighbourhood,
) -> None:
    name = f"{here.bucket}-wrong"
    make(here.dynamodb, name, keys=("table_path", "file_name"))
    code, answer = run_json("locks", "create", "--lock-table", name)
    assert (code, answer["error"]["kind"]) == (1, "lock_table_unusable")
    assert "HASH table_path (S)" in answer["error"]["message"]
    ttl = here.dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert ttl["TimeToLiveStatus"] == "DISABLED"
    code, answer = run_json("locks", "check", "--lock-table", name)
    assert (code, answer["findings"][0]["code"]) == (1, "lock_table_schema")
    assert run_json("locks", "check", "--lock-table", "nowhere")[0] == 1


def test_a_ttl_on_another_attribute_is_an_error_of_create(here: Neighbourhood) -> None:
    name = f"{here.bucket}-ttl"
    make(here.dynamodb, name)
    ttl_on(here.dynamodb, name, "expires")
    code, answer = run_json("locks", "create", "--lock-table", name)
    assert (code, "it is on 'expires'" in answer["error"]["message"]) == (1, True)


# --- watch --------------------------------------------------------------------------------------------
def test_watch_shows_what_is_open_and_exits_with_1_if_it_is_stuck(here: Neighbourhood) -> None:
    watch = ("locks", "watch", "--lock-table", here.lock_table, "--once")
    assert run(*watch) == (
        0, "0 stuck of 0 unfinished claims, 0 stuck of 0 queues with waiting writers\n"
    )  # fmt: skip
    here.spark_entry(4, here.spark_temp(4), complete=False)
    DynamoDBQueue(here.dynamodb, here.lock_table, "iceberg:6c5f").take()
    code, printed = run(*watch)
    assert code == 0
    for text in ("0 stuck of 1 unfinished", "Apache-Spark", "lake/orders", "iceberg:6c5f", "not known"):
        assert text in printed
    here.spark_entry(5, ".tmp/gone", complete=False)
    code, printed = run(*watch, here.uri, "--output", "json")
    assert (code, printed.count("\n")) == (1, 1)
    answer = json.loads(printed)
    assert (answer["stuck_entries"], answer["stuck_turns"], answer["whole"], answer["turns"]) == (
        1,
        0,
        True,
        [],
    )
    assert [(one["version"], one["stuck"]) for one in answer["claims"]] == [(4, False), (5, True)]


def test_watch_looks_again_and_again_and_survives_a_look_that_fails(
    here: Neighbourhood, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.spark_entry(5, ".tmp/gone", complete=False)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 1:
            here.dynamodb.delete_table(TableName=here.lock_table)
        elif len(slept) == 2:
            make(here.dynamodb, here.lock_table)
        else:
            raise KeyboardInterrupt

    sleeps_by(monkeypatch, sleep)
    _, printed = run("locks", "watch", "--lock-table", here.lock_table, "--interval", "7", "--output", "json")
    looks = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert [look["stuck_entries"] for look in looks] == [1, 0]
    assert slept == [7.0, 7.0, 7.0]


def test_watch_prints_the_metric_as_cloudwatch_reads_it(here: Neighbourhood) -> None:
    here.spark_entry(5, ".tmp/gone", complete=False)
    code, printed = run(
        "locks", "watch", "--lock-table", here.lock_table, "--once", "--emf", "--namespace", "lake"
    )
    line: Any = json.loads(printed)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive == {
        "Namespace": "lake", "Dimensions": [["LockTable"]], "Metrics": [{"Name": "StuckEntries", "Unit": "Count"}],
    }  # fmt: skip
    assert (code, line["LockTable"], line["StuckEntries"]) == (1, here.lock_table, 1)
    assert line["claims"][0]["temp_path"] == ".tmp/gone"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--older-than", "0"), ("--older-than", "nan"), ("--interval", "-1"), ("--interval", "inf"),
        ("--namespace", "AWS/Lambda"), ("./local",),
    ],
)  # fmt: skip
def test_watch_refuses_what_makes_no_sense(here: Neighbourhood, wrong: tuple[str, ...]) -> None:
    code, answer = run_json("locks", "watch", "--lock-table", here.lock_table, "--once", *wrong)
    assert (code, answer["error"]["kind"]) == (2, "invalid_input")


def test_watch_of_a_lock_table_that_is_not_there_is_an_error(here: Neighbourhood) -> None:
    code, answer = run_json("locks", "watch", "--lock-table", "nowhere", "--once")
    assert (code, answer["error"]["kind"]) == (1, "storage")
