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
from safewrite.stores.abc import Ledger
from safewrite.stores.dynamodb_ledger import DynamoDBLedger, aws_ledger
from safewrite.stores.ledger import ObjectLedger
from safewrite.stores.local import SqliteLedger
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.sql import SqlLedger, ensure
from safewrite.stores.world import World

FUTURE_S = 4_000_000_000
RECORDS = [LedgerRecord(f"event-{n}", n, f"v1:{n}:ab") for n in range(250)]


@pytest.fixture(params=["dynamodb", "dynamodb-groups", "local", "sql", "objects"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    if request.param == "dynamodb":
        client, name = (request.getfixturevalue(one) for one in ("dynamodb", "dynamodb_table"))
        return aws_ledger(client, name, uuid.uuid4())[0]
    if request.param == "dynamodb-groups":
        client, name = (request.getfixturevalue(one) for one in ("dynamodb", "dynamodb_table"))
        return DynamoDBLedger(client, name, f"s3a://{uuid.uuid4()}/t", in_groups=True)
    if request.param == "objects":
        return ObjectLedger(MemoryObjects())
    if request.param == "local":
        return SqliteLedger(tmp_path / "ledger.sqlite")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/c.db")
    ensure(engine)
    return SqlLedger(engine, "t")


def world(ledger: Any) -> World:
    return World(MemoryObjects(), ledger=ledger, sleep=lambda _: None)


@pytest.mark.sweep("objects", "dynamodb-groups")
def test_known_keys_do_not_hold_up_the_others(ledger: Ledger) -> None:
    ours = world(ledger)
    known = RECORDS[5], RECORDS[120], RECORDS[249]
    for record in known:
        assert ledger.intend(replace(record, base_version=7), FUTURE_S) == Ok()
    answers = ours.perform(Together(tuple(LedgerIntend(record) for record in RECORDS)))
    assert answers == Ok(tuple(Exists() if record in known else Ok() for record in RECORDS))
    found = ours.perform(Together(tuple(LedgerGet(record.key) for record in RECORDS)))
    told = tuple(Ok(replace(one, base_version=7) if one in known else one) for one in RECORDS)
    assert found == Ok(told)


@pytest.mark.sweep("objects", "dynamodb-groups")
def test_what_became_of_many_keys_replaces_their_intents(ledger: Ledger) -> None:
    ours = world(ledger)
    done = [replace(record, version=9) for record in RECORDS[:3]]
    ours.perform(Together(tuple(LedgerIntend(record) for record in RECORDS[:2])))
    assert ours.perform(Together(tuple(LedgerCommit(record) for record in done))) == Ok((Ok(),) * 3)
    names = [*(record.key for record in done), "never"]
    found = ours.perform(Together(tuple(LedgerGet(name) for name in names)))
    assert found == Ok((*map(Ok, done), Missing()))


@pytest.mark.sweep("objects", "dynamodb-groups")
def test_what_became_of_keys_replaces_what_other_attempts_said(ledger: Ledger) -> None:
    ours = world(ledger)
    earlier = [RECORDS[0], replace(RECORDS[1], base_version=7), replace(RECORDS[2], fingerprint="v1:2:cd")]
    doubted = replace(RECORDS[3], in_doubt_at=8)
    ours.perform(Together(tuple(LedgerIntend(record) for record in [*earlier, RECORDS[3]])))
    ours.perform(LedgerCommit(doubted))
    for in_doubt_at, version in ((10, None), (None, 9)):
        told = [replace(record, in_doubt_at=in_doubt_at, version=version) for record in RECORDS[:4]]
        assert ours.perform(Together(tuple(LedgerCommit(record) for record in told))) == Ok((Ok(),) * 4)
        found = ours.perform(Together(tuple(LedgerGet(record.key) for record in told)))
        assert found == Ok(tuple(map(Ok, told)))


@pytest.mark.sweep("objects", "dynamodb-groups")
def test_results_that_differ_reach_their_own_keys(ledger: Ledger) -> None:
    ours = world(ledger)
    ours.perform(Together(tuple(LedgerIntend(record) for record in RECORDS[:3])))
    told = [replace(record, version=9 + n) for n, record in enumerate(RECORDS[:3])]
    assert ours.perform(Together(tuple(LedgerCommit(record) for record in told))) == Ok((Ok(),) * 3)
    found = ours.perform(Together(tuple(LedgerGet(record.key) for record in told)))
    assert found == Ok(tuple(map(Ok, told)))


def test_a_database_is_told_of_many_keys_in_one_statement_and_of_no_other_table(engine: sa.Engine) -> None:
    ledger, other = SqlLedger(engine, "t"), SqlLedger(engine, "other")
    other.intend_many(RECORDS[:100], FUTURE_S)
    statements: list[str] = []
    sa.event.listen(engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
    assert ledger.intend_many(RECORDS[:100], FUTURE_S) == (Ok(),) * 100
    asked = [statement for statement in statements if statement.startswith("INSERT")]  # a sweep may follow
    assert len(asked) == 1
    statements.clear()
    assert ledger.commit_many([replace(one, version=9) for one in RECORDS[:100]], FUTURE_S) == (Ok(),) * 100
    assert len(statements) == 1
    statements.clear()  # what an Iceberg snapshot carries has one sequence number, whatever the bases were
    landed = [replace(one, version=9, base_version=-20) for one in RECORDS[:100]]
    assert ledger.commit_many(landed, FUTURE_S) == (Ok(),) * 100
    assert (len(statements), ledger.get(landed[7].key)) == (1, Ok(landed[7]))
    assert other.get(RECORDS[0].key) == Ok(RECORDS[0])


def test_a_known_key_does_not_hold_up_the_others_in_either_database(engine: sa.Engine) -> None:
    ledger = SqlLedger(engine, "t")
    known = replace(RECORDS[7], base_version=1)
    assert ledger.intend(known, FUTURE_S) == Ok()
    answers = ledger.intend_many(RECORDS[:10], FUTURE_S)
    assert answers == tuple(Exists() if one.key == known.key else Ok() for one in RECORDS[:10])
    assert ledger.get(known.key) == Ok(known)


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
