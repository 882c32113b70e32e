"""Ledger and queue in SQL when an answer is lost, the server is gone, or refuses: what is said is true."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.servers.catalogs import Postgres
from bench.servers.servers import free_port
from safewrite.errors import Kind, StorageError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Busy, Exists, Failed, Missing, Ok, Unknown
from safewrite.protocol.values import LedgerRecord, Queue
from safewrite.stores import sql
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.sql import SqlLedger, SqlQueue
from safewrite.stores.world import World, run
from tests.stores.conftest import Engines
from tests.stores.relay import Relay
from tests.stores.together import all_at_once
from tests.test_public_surface import run_without

FUTURE_S = 4_000_000_000
INTENT = LedgerRecord("event-1", 3, "v1:2:ab")


# --- lost answers -------------------------------------------------------------------------------------
def test_an_intent_whose_answer_is_lost_is_unknown_and_then_there(relayed: sa.Engine, relay: Relay) -> None:
    ledger = SqlLedger(relayed, "t")
    relay.lose("answer")
    assert isinstance(ledger.intend(INTENT, FUTURE_S), Unknown)
    assert ledger.get(INTENT.key) == Ok(INTENT)
    done = replace(INTENT, version=4)
    relay.lose("answer")
    assert isinstance(ledger.commit(done, FUTURE_S), Unknown)
    assert ledger.get(INTENT.key) == Ok(done)


def test_an_intent_that_is_lost_on_the_way_is_unknown_and_then_not_there(
    relayed: sa.Engine, relay: Relay
) -> None:
    ledger = SqlLedger(relayed, "t")
    relay.lose("question")
    assert isinstance(ledger.intend(INTENT, FUTURE_S), Unknown)
    assert ledger.get(INTENT.key) == Missing()
    relay.lose("question")
    assert isinstance(ledger.get(INTENT.key), Unknown)


def test_a_ticket_whose_answer_is_lost_is_taken(relayed: sa.Engine, relay: Relay) -> None:
    queue = SqlQueue(relayed, "t")
    queue.take()
    relay.lose("answer")
    assert isinstance(queue.take(), Unknown)
    assert queue.take() == Ok((2, Queue(serving=0, next=3)))
    relay.lose("answer")
    assert isinstance(queue.pass_turn(0), Unknown)
    assert queue.pass_turn(0) == Exists()


@pytest.mark.parametrize(("lost", "ours"), [("answer", False), ("question", True)])
def test_the_protocol_finds_its_own_intent_again(
    relayed: sa.Engine, relay: Relay, lost: Any, ours: bool
) -> None:
    world = World(MemoryObjects(), ledger=SqlLedger(relayed, "t"), sleep=lambda _: None)
    relay.lose(lost)
    record, is_new = run(keys.intend(INTENT, Limits()), world)
    assert (record, is_new) == (INTENT, ours)


def test_after_the_server_has_ended_all_sessions_the_second_call_works(
    postgres: Postgres, engines: Engines
) -> None:
    uri = postgres.database()
    engine, other = engines(uri), engines(uri)
    sql.ensure(engine)
    all_at_once(lambda _: SqlQueue(engine, "t").take(), 4)  # four connections wait in the pool
    with other.connect() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
    assert isinstance(SqlLedger(engine, "t").intend(INTENT, FUTURE_S), Unknown)
    assert SqlLedger(engine, "t").get(INTENT.key) == Missing()
    assert SqlLedger(engine, "t").intend(INTENT, FUTURE_S) == Ok()
    assert SqlQueue(engine, "t").take().value[0] == 4


@pytest.mark.long
def test_a_server_that_is_not_there_was_not_asked(engines: Engines) -> None:
    engine = engines(f"postgresql+psycopg2://nobody@127.0.0.1:{free_port()}/nothing")
    ledger, queue = SqlLedger(engine, "t"), SqlQueue(engine, "t")
    writes = [ledger.intend(INTENT, FUTURE_S), ledger.commit(INTENT, FUTURE_S), queue.take()]
    assert [type(answer) for answer in writes] == [Busy] * 3
    assert [type(answer) for answer in (ledger.get("k"), queue.read())] == [Unknown] * 2
    with pytest.raises(StorageError, match="does not answer") as caught:
        sql.ensure(engine)
    assert caught.value.kind is Kind.LOCK_TABLE_UNUSABLE


# --- refusals -----------------------------------------------------------------------------------------
def test_a_row_that_another_holds_too_long_is_not_changed(postgres: Postgres, engines: Engines) -> None:
    uri = postgres.database()
    engine = engines(uri, connect_args={"options": "-c lock_timeout=50"})
    sql.ensure(engine)
    queue = SqlQueue(engine, "t")
    queue.take()
    with engines(uri).begin() as holder:
        holder.execute(sa.text("SELECT * FROM safewrite_queue FOR UPDATE"))
        assert isinstance(queue.take(), Busy)
        assert queue.read() == Ok(Queue(serving=0, next=1))
    assert queue.take() == Ok((1, Queue(serving=0, next=2)))


def test_a_standby_that_takes_no_writes_is_asked_again(postgres: Postgres, engines: Engines) -> None:
    uri = postgres.database()
    sql.ensure(engines(uri))
    standby = engines(uri, connect_args={"options": "-c default_transaction_read_only=on"})
    assert isinstance(SqlQueue(standby, "t").take(), Busy)
    assert SqlQueue(standby, "t").read() == Missing()


def test_a_sqlite_file_that_another_has_locked_is_asked_again(tmp_path: Path, engines: Engines) -> None:
    file = tmp_path / "catalog.db"
    engine = engines(f"sqlite:///{file}", connect_args={"timeout": 0})
    sql.ensure(engine)
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert isinstance(SqlLedger(engine, "t").intend(INTENT, FUTURE_S), Busy)
    assert isinstance(SqlLedger(engine, "t").get(INTENT.key), Unknown)
    holder.execute("ROLLBACK")
    holder.close()
    assert SqlLedger(engine, "t").intend(INTENT, FUTURE_S) == Ok()


def test_tables_that_were_never_made_are_a_clear_refusal(uri: str, engines: Engines) -> None:
    engine = engines(uri)
    answers = [
        SqlLedger(engine, "t").intend(INTENT, FUTURE_S), SqlLedger(engine, "t").get("k"), SqlQueue(engine, "t").take()
    ]  # fmt: skip
    assert [type(answer) for answer in answers] == [Failed] * 3
    assert all("safewrite_" in answer.detail for answer in answers)


def test_without_rights_the_error_holds_the_sql_that_gives_them(postgres: Postgres, engines: Engines) -> None:
    uri, user = postgres.database(), f"user_{uuid.uuid4().hex[:12]}"
    owner = engines(uri, isolation_level="AUTOCOMMIT")
    with owner.connect() as connection:
        connection.execute(sa.text(f"CREATE ROLE {user} LOGIN"))
    limited = engines(sa.make_url(uri).set(username=user))
    with pytest.raises(StorageError) as caught:
        sql.ensure(limited)
    assert caught.value.kind is Kind.LOCK_TABLE_UNUSABLE
    remedy = caught.value.message.partition("run this once:\n")[2].replace("the_catalogs_user", user)
    *making, granting = [statement for statement in remedy.split(";\n") if statement]
    with owner.connect() as connection:
        for statement in making:
            connection.execute(sa.text(statement))
        with pytest.raises(StorageError, match="permission denied"):
            sql.ensure(limited)
        connection.execute(sa.text(granting))
    assert sql.ensure(limited) is False
    assert SqlLedger(limited, "t").intend(INTENT, FUTURE_S) == Ok()


def test_without_sqlalchemy_the_pip_command_is_printed() -> None:
    done = run_without(("sqlalchemy",), "import safewrite.stores.sql")
    assert "MissingExtraError" in done.stderr
    assert "pip install 'pyiceberg[sql-postgres]'" in done.stderr
