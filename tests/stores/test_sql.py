"""Ledger and queue in SQL: one winner per key, every ticket once, and honest answers when one is lost."""

from __future__ import annotations

import itertools
import multiprocessing
import sqlite3
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bench.catalogs import Postgres
from bench.servers import free_port
from safewrite.errors import Kind, StorageError
from safewrite.protocol import keys
from safewrite.protocol.ask import Limits
from safewrite.protocol.effects import Busy, Exists, Failed, LedgerRecord, Missing, Ok, Queue, Unknown
from safewrite.stores import sql
from safewrite.stores.memory import MemoryObjects
from safewrite.stores.sql import SqlLedger, SqlQueue
from safewrite.stores.world import World, run
from tests.stores.relay import Relay
from tests.test_public_surface import run_without

SNAPSHOT_MAX = 2**63 - 1
FUTURE_S, LONG_AGO_S = 4_000_000_000, 1_000_000_000
WRITERS = 8
INTENT = LedgerRecord("event-1", 3, "v1:2:ab")

Engines = Callable[..., sa.Engine]


@pytest.fixture
def engines() -> Iterator[Engines]:
    """Makes engines, and disposes of them in the end."""
    made: list[sa.Engine] = []

    def make(uri: str | sa.URL, **settings: Any) -> sa.Engine:
        made.append(sa.create_engine(uri, **settings))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


@pytest.fixture(params=["postgres", "sqlite"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new, empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/catalog.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.database()


@pytest.fixture
def engine(uri: str, engines: Engines) -> sa.Engine:
    """A database of either kind in which the tables are."""
    made = engines(uri, pool_size=WRITERS)
    sql.ensure(made)
    return made


@pytest.fixture
def relay(postgres: Postgres) -> Iterator[Relay]:
    """A relay in front of the PostgreSQL server."""
    made = Relay(postgres.port)
    yield made
    made.close()


@pytest.fixture
def relayed(postgres: Postgres, relay: Relay, engines: Engines) -> sa.Engine:
    """A PostgreSQL database with the tables, over the relay, with one connection open already."""
    made = engines(sa.make_url(postgres.database()).set(port=relay.port))
    sql.ensure(made)
    return made


def all_at_once(call: Callable[[int], Any], times: int = WRITERS) -> list[Any]:
    """What each of so many threads got that called at the same moment."""
    barrier, results = threading.Barrier(times), [None] * times

    def work(number: int) -> None:
        barrier.wait()
        results[number] = call(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(times)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def in_processes(call: Callable[[int], Any], times: int) -> list[Any]:
    """What each of so many forked processes got that called at the same moment."""
    fork = multiprocessing.get_context("fork")
    barrier, results = fork.Barrier(times), fork.SimpleQueue()

    def work(number: int) -> None:
        barrier.wait()
        results.put(call(number))

    children = [fork.Process(target=work, args=(number,)) for number in range(times)]
    for child in children:
        child.start()
    found = [results.get() for _ in children]
    for child in children:
        child.join()
    return found


def key_that_sweeps() -> str:
    """A key whose intent purges expired rows."""
    return next(
        key
        for key in map("sweep-{}".format, itertools.count())
        if int(sql._digest(key), 16) % sql.PURGE_ONE_IN == 0
    )


# --- the ledger -------------------------------------------------------------------------------------
@pytest.mark.parametrize("key", ["event-1", "k\0\\é€😀'\"%s", "k" * 1024])
def test_a_key_is_remembered_as_it_was_intended(engine: sa.Engine, key: str) -> None:
    ledger = SqlLedger(engine, "t")
    record = LedgerRecord(key, SNAPSHOT_MAX, "v1:2:ab")
    assert ledger.get(key) == Missing()
    assert ledger.intend(record, FUTURE_S) == Ok()
    assert ledger.get(key) == Ok(record)
    assert ledger.intend(replace(record, base_version=9), FUTURE_S) == Exists()
    assert ledger.get(key) == Ok(record)


def test_what_became_of_a_key_replaces_its_intent(engine: sa.Engine) -> None:
    ledger = SqlLedger(engine, "t")
    ledger.intend(INTENT, FUTURE_S)
    doubtful, done = replace(INTENT, in_doubt_at=SNAPSHOT_MAX), replace(INTENT, version=SNAPSHOT_MAX)
    assert [ledger.commit(doubtful, FUTURE_S), ledger.get(INTENT.key)] == [Ok(), Ok(doubtful)]
    assert [ledger.commit(done, FUTURE_S), ledger.get(INTENT.key)] == [Ok(), Ok(done)]
    unheard = replace(done, key="never intended")
    assert [ledger.commit(unheard, FUTURE_S), ledger.get(unheard.key)] == [Ok(), Ok(unheard)]


def test_of_many_threads_one_intends_a_key(engine: sa.Engine) -> None:
    for turn in range(10):
        record = replace(INTENT, key=f"event-{turn}")
        got = all_at_once(
            lambda n, record=record: SqlLedger(engine, "t").intend(replace(record, base_version=n), FUTURE_S)
        )
        assert Counter(map(type, got)) == {Ok: 1, Exists: WRITERS - 1}
        assert SqlLedger(engine, "t").get(record.key).value.base_version == got.index(Ok())


def test_of_many_threads_that_commit_an_unheard_key_all_succeed(engine: sa.Engine) -> None:
    done = replace(INTENT, version=4)
    assert all_at_once(lambda _: SqlLedger(engine, "t").commit(done, FUTURE_S)) == [Ok()] * WRITERS
    assert SqlLedger(engine, "t").get(INTENT.key) == Ok(done)


def test_tables_share_neither_keys_nor_queues(engine: sa.Engine) -> None:
    assert SqlLedger(engine, "t").intend(INTENT, FUTURE_S) == Ok()
    assert SqlLedger(engine, "u").get(INTENT.key) == Missing()
    assert SqlLedger(engine, "u").intend(INTENT, FUTURE_S) == Ok()
    assert [SqlQueue(engine, name).take().value[0] for name in ("t", "u", "t")] == [0, 0, 1]


def test_an_expired_key_still_counts_until_it_is_swept_out_long_after(engine: sa.Engine) -> None:
    ledger, other = SqlLedger(engine, "t"), SqlLedger(engine, "u")
    with engine.connect() as connection:
        now_s = connection.execute(sa.select(sa.func.current_timestamp())).scalar_one().timestamp()
    old, late = replace(INTENT, key="old"), replace(INTENT, key="late")
    ledger.intend(late, int(now_s) - sql.PURGE_GRACE_S // 2)
    for each in (ledger, other):
        each.intend(old, LONG_AGO_S)
    assert [ledger.get("old"), ledger.intend(old, FUTURE_S)] == [Ok(old), Exists()]
    assert ledger.intend(replace(INTENT, key=key_that_sweeps()), FUTURE_S) == Ok()
    assert [ledger.get("old"), other.get("old"), ledger.get("late")] == [Missing(), Missing(), Ok(late)]


# --- the queue --------------------------------------------------------------------------------------
def test_many_threads_get_a_ticket_each(engine: sa.Engine) -> None:
    taken = [answer.value for answer in all_at_once(lambda _: SqlQueue(engine, "t").take())]
    assert sorted(ticket for ticket, _ in taken) == list(range(WRITERS))
    assert all(queue == Queue(serving=0, next=ticket + 1) for ticket, queue in taken)
    assert SqlQueue(engine, "t").read() == Ok(Queue(serving=0, next=WRITERS))


def test_a_turn_is_passed_once_and_only_by_its_holder(engine: sa.Engine) -> None:
    queue = SqlQueue(engine, "t")
    assert [queue.read(), queue.pass_turn(0)] == [Missing(), Exists()]
    for _ in range(3):
        queue.take()
    assert queue.pass_turn(1) == Exists()
    assert sorted(map(str, all_at_once(lambda _: queue.pass_turn(0)))) == ["Exists()"] * 7 + [
        "Ok(value=None)"
    ]
    assert queue.read() == Ok(Queue(serving=1, next=3))


# --- many processes -----------------------------------------------------------------------------------
def test_twenty_processes_make_the_tables_at_once(uri: str) -> None:
    def make(number: int) -> tuple[object, object]:
        engine = sa.create_engine(uri)
        try:
            sql.ensure(engine)
            taken = SqlQueue(engine, "t").take()
            return taken.value[0] if isinstance(taken, Ok) else taken, SqlLedger(engine, "t").intend(
                replace(INTENT, base_version=number), FUTURE_S
            )
        except StorageError as error:
            return error.message, None

    got = in_processes(make, 20)
    assert sorted(str(ticket) for ticket, _ in got) == sorted(map(str, range(20)))
    assert Counter(type(intended) for _, intended in got) == {Ok: 1, Exists: 19}


def test_who_is_refused_since_a_rival_was_just_making_the_tables_looks_again(
    postgres: Postgres, engines: Engines
) -> None:
    uri, made = postgres.database(), []
    ours, rivals = engines(uri), engines(uri)
    waiting = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    thread = threading.Thread(target=lambda: made.append(sql.ensure(ours)))
    with rivals.connect() as watcher, rivals.begin() as rival:
        sql._create(rival)
        thread.start()
        while watcher.execute(waiting).scalar_one() == 0:
            watcher.rollback()
            assert thread.is_alive()
    thread.join()
    assert made == [False]


def test_forked_children_leave_the_parents_connections_alone(postgres: Postgres, engines: Engines) -> None:
    engine = engines(postgres.database())
    sql.ensure(engine)
    queue = SqlQueue(engine, "t")
    queue.take()  # a connection waits in the pool now

    def sessions(_: int) -> tuple[int, list[int]]:
        with engine.connect() as connection:  # as the catalog's commits do
            session = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
        return session, [queue.take().value[0] for _ in range(20)]

    ours, _ = sessions(0)
    [(theirs, _)] = in_processes(sessions, 1)
    assert theirs != ours
    got = in_processes(sessions, 4)
    assert len({ours, *(session for session, _ in got)}) == 5
    assert sorted(ticket for _, tickets in got for ticket in tickets) == list(range(41, 121))
    assert sessions(0)[0] == ours


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
