"""Ledgers that answer for many keys at once: each answer is that of its own key."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from safewrite.protocol.effects import (
    Busy,
    Exists,
    LedgerCommit,
    LedgerGet,
    LedgerIntend,
    Missing,
    Ok,
    Together,
    Unknown,
)
from safewrite.protocol.values import LedgerRecord
from safewrite.stores.abc import BatchLedger
from safewrite.stores.dynamodb import DynamoDBLedger, aws_ledger
from safewrite.stores.local import SqliteLedger
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.sql import SqlLedger, ensure
from safewrite.stores.world import World

FUTURE_S = 4_000_000_000
RECORDS = [LedgerRecord(f"event-{n}", n, f"v1:{n}:ab") for n in range(250)]


@pytest.fixture(params=["dynamodb", "local", "sql"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> BatchLedger:
    if request.param == "dynamodb":
        client, name = (request.getfixturevalue(one) for one in ("dynamodb", "dynamodb_table"))
        return aws_ledger(client, name, uuid.uuid4())[0]
    if request.param == "local":
        return SqliteLedger(tmp_path / "ledger.sqlite")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/c.db")
    ensure(engine)
    return SqlLedger(engine, "t")


def world(ledger: Any) -> World:
    return World(MemoryObjects(), ledger=ledger, sleep=lambda _: None)


def test_known_keys_do_not_hold_up_the_others(ledger: BatchLedger) -> None:
    ours = world(ledger)
    known = RECORDS[5], RECORDS[120], RECORDS[249]
    for record in known:
        assert ledger.intend(replace(record, base_version=7), FUTURE_S) == Ok()
    answers = ours.perform(Together(tuple(LedgerIntend(record) for record in RECORDS)))
    assert answers == Ok(tuple(Exists() if record in known else Ok() for record in RECORDS))
    found = ours.perform(Together(tuple(LedgerGet(record.key) for record in RECORDS)))
    told = tuple(Ok(replace(one, base_version=7) if one in known else one) for one in RECORDS)
    assert found == Ok(told)


def test_what_became_of_many_keys_replaces_their_intents(ledger: BatchLedger) -> None:
    ours = world(ledger)
    done = [replace(record, version=9) for record in RECORDS[:3]]
    ours.perform(Together(tuple(LedgerIntend(record) for record in RECORDS[:2])))
    assert ours.perform(Together(tuple(LedgerCommit(record) for record in done))) == Ok((Ok(),) * 3)
    names = [*(record.key for record in done), "never"]
    found = ours.perform(Together(tuple(LedgerGet(name) for name in names)))
    assert found == Ok((*map(Ok, done), Missing()))


class Refusing:
    """A DynamoDB client whose transactions are refused for these reasons, one answer after the other."""

    def __init__(self, *answers: list[str] | Exception | None) -> None:
        self.answers = list(answers)
        self.asked: list[int] = []

    def transact_write_items(self, *, TransactItems: list[Any]) -> dict[str, Any]:  # noqa: N803
        self.asked.append(len(TransactItems))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return {}
        reasons = [{"Code": code} for code in answer]
        error = {"Error": {"Code": "TransactionCanceledException"}, "CancellationReasons": reasons}
        raise ClientError(error, "TransactWriteItems")  # type: ignore[arg-type]


def test_of_a_refused_transaction_the_others_go_again() -> None:
    client = Refusing(["None", "ConditionalCheckFailed", "None"], ["TransactionConflict", "None"], None)
    ledger = DynamoDBLedger(client, "locks", "t")
    found = ledger.intend_many(RECORDS[:3], FUTURE_S)
    assert found == (Busy("refused in a transaction: TransactionConflict"), Exists(), Ok())
    assert client.asked == [3, 2, 1]


def test_a_refused_note_is_asked_again_and_a_lost_answer_is_unknown_for_all() -> None:
    client = Refusing(["ThrottlingError", "None"], OSError("cut"), OSError("cut"))
    ledger = DynamoDBLedger(client, "locks", "t")
    assert [type(one) for one in ledger.commit_many(RECORDS[:2], FUTURE_S)] == [Busy, Busy]
    assert [type(one) for one in ledger.commit_many(RECORDS[:2], FUTURE_S)] == [Unknown, Unknown]
    assert [type(one) for one in ledger.intend_many(RECORDS[:2], FUTURE_S)] == [Unknown, Unknown]


@pytest.mark.parametrize("error", [ConnectionClosedError, ReadTimeoutError])
def test_a_connection_that_botocore_says_was_cut_is_unknown_for_all(error: type[Exception]) -> None:
    """These errors of botocore have a ``response`` that is None, where those of DynamoDB have a dict."""
    cut = error(endpoint_url="http://127.0.0.1:1", error="cut")  # type: ignore[call-arg]
    ledger = DynamoDBLedger(Refusing(cut, cut), "locks", "t")
    assert [type(one) for one in ledger.commit_many(RECORDS[:2], FUTURE_S)] == [Unknown, Unknown]
    assert [type(one) for one in ledger.intend_many(RECORDS[:2], FUTURE_S)] == [Unknown, Unknown]
