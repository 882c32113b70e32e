"""Ledger and queue in SQL: one winner per key, every ticket once, whoever else is there."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from dataclasses import replace

import pytest
import sqlalchemy as sa

from bench.servers.catalogs import Postgres
from safewrite.errors import StorageError
from safewrite.protocol.effects import Exists, Missing, Ok
from safewrite.protocol.values import LedgerRecord, Queue
from safewrite.stores import sql
from safewrite.stores.sql import SqlLedger, SqlQueue
from tests.stores.conftest import Engines
from tests.stores.together import WRITERS, all_at_once, in_processes

SNAPSHOT_MAX = 2**63 - 1
FUTURE_S, LONG_AGO_S = 4_000_000_000, 1_000_000_000
INTENT = LedgerRecord("event-1", 3, "v1:2:ab")


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


@pytest.mark.sweep("postgres")
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


def test_a_turn_is_held_by_its_holder_for_as_long_as_it_lasts(engine: sa.Engine) -> None:
    queue, others = SqlQueue(engine, "t"), SqlQueue(engine, "u")
    for each in (queue, queue, others):
        each.take()
    assert [queue.hold_turn(1, 9.0), queue.read()] == [Exists(), Ok(Queue(0, 2))]
    assert [queue.hold_turn(0, 7.5), queue.read()] == [Ok(), Ok(Queue(0, 2, hold_s=7.5))]
    assert [queue.hold_turn(0, 9.0), queue.read()] == [Ok(), Ok(Queue(0, 2, hold_s=9.0))]
    assert others.read() == Ok(Queue(0, 1))
    assert [queue.pass_turn(0), queue.read()] == [Ok(), Ok(Queue(1, 2))]
    assert [queue.hold_turn(0, 9.0), queue.hold_turn(1, 0.25), queue.read()] == [
        Exists(),
        Ok(),
        Ok(Queue(1, 2, hold_s=0.25)),
    ]


# --- many processes -----------------------------------------------------------------------------------
@pytest.mark.sweep("postgres")
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


@pytest.mark.long
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
