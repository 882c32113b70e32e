"""Ledger and queue of Iceberg tables in a lock table that Delta tables use as well."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import safewrite as sw
from bench.servers.servers import Ministack
from safewrite.cli.app import app
from safewrite.protocol.effects import Exists, Missing, Ok
from safewrite.protocol.values import LedgerRecord, Queue
from safewrite.stores.dynamodb_ledger import aws_ledger

FUTURE_S = 4_000_000_000
INTENT = LedgerRecord("event-1", 2**63 - 1, "v1:2:ab")


@pytest.fixture
def settings(ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands reach the server by the settings of the environment."""
    for name, value in ministack.storage_options().items():
        monkeypatch.setenv(name, value)


def printed(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def listed(*arguments: object) -> Any:
    code, output = printed("locks", "list", *arguments, "--output", "json")
    assert code == 0
    return json.loads(output)


def test_an_iceberg_table_has_a_ledger_and_a_queue_of_its_own(dynamodb: Any, dynamodb_table: str) -> None:
    ledger, queue = aws_ledger(dynamodb, dynamodb_table, uuid.uuid4())
    others, other_queue = aws_ledger(dynamodb, dynamodb_table, uuid.uuid4())
    assert [ledger.intend(INTENT, FUTURE_S), ledger.intend(INTENT, FUTURE_S)] == [Ok(), Exists()]
    assert [ledger.get(INTENT.key), others.get(INTENT.key)] == [Ok(INTENT), Missing()]
    done = replace(INTENT, version=2**63 - 1)
    assert [ledger.commit(done, FUTURE_S), ledger.get(INTENT.key)] == [Ok(), Ok(done)]
    assert [queue.take(), other_queue.read()] == [Ok((0, Queue(serving=0, next=1))), Missing()]


def test_a_turn_is_held_by_who_has_it_and_no_longer_than_it_lasts(dynamodb: Any, dynamodb_table: str) -> None:
    _, queue = aws_ledger(dynamodb, dynamodb_table, uuid.uuid4())
    queue.take()
    queue.take()
    assert [queue.hold_turn(1, 9.0), queue.hold_turn(0, 7.5)] == [Exists(), Ok()]
    assert queue.read() == Ok(Queue(serving=0, next=2, hold_s=7.5))
    assert [queue.pass_turn(0), queue.read()] == [Ok(), Ok(Queue(serving=1, next=2))]
    assert [queue.hold_turn(0, 9.0), queue.take()] == [Exists(), Ok((2, Queue(serving=1, next=3)))]


@pytest.mark.usefixtures("settings")
def test_the_keys_and_the_queue_of_an_iceberg_table_are_listed(dynamodb: Any, dynamodb_table: str) -> None:
    unique = uuid.uuid4()
    ledger, queue = aws_ledger(dynamodb, dynamodb_table, unique)
    ledger.intend(INTENT, FUTURE_S)
    ledger.commit(replace(INTENT, key="[bold]in doubt", in_doubt_at=4), FUTURE_S)
    ledger.commit(replace(INTENT, key="done", version=4), FUTURE_S)
    aws_ledger(dynamodb, dynamodb_table, uuid.uuid4())[0].intend(INTENT, FUTURE_S)
    queue.take()
    assert listed(f"iceberg:{unique}", "--lock-table", dynamodb_table) == {
        "table": f"iceberg:{unique}",
        "lock_table": dynamodb_table,
        "open_keys": [
            {"key": "[bold]in doubt", "base_snapshot": 2**63 - 1, "in_doubt_at": 4, "may_land_through": None},
            {"key": "event-1", "base_snapshot": 2**63 - 1, "in_doubt_at": None, "may_land_through": None},
        ],
        "committed_keys": 1,
        "whole": True,
        "queue": {"serving": 0, "next": 1},
    }
    code, text = printed("locks", "list", f"iceberg:{unique}", "--lock-table", dynamodb_table)
    assert code == 0
    assert "[bold]in doubt" in text
    assert "1 keys with a noted commit" in text
    assert "queue: 1 tickets not yet served (serving 0, next 1)" in text


@pytest.mark.usefixtures("settings")
def test_a_lock_table_that_is_not_there_is_wrong_usage() -> None:
    code, text = printed("locks", "list", f"iceberg:{uuid.uuid4()}", "--lock-table", "nowhere")
    assert code == 2
    assert "'nowhere' cannot be read" in text


@pytest.mark.usefixtures("settings")
def test_iceberg_tables_do_not_show_among_a_delta_tables_locks(
    dynamodb: Any, dynamodb_table: str, bucket: str
) -> None:
    uri = f"s3://{bucket}/orders"
    table = sw.open(uri, create=True, lock_table=dynamodb_table)
    table.append(pa.table({"id": [1]}), key="event-1")
    before = listed(uri)
    ledger, queue = aws_ledger(dynamodb, dynamodb_table, f"{uuid.uuid4()}/{bucket}/orders")
    ledger.intend(INTENT, FUTURE_S)
    queue.take()
    assert listed(uri) == before
    assert [entry["version"] for entry in before["entries"]] == [0]
    assert printed("doctor", uri)[0] == 0
