"""The proxy in front of PostgreSQL: unnoticed without a plan, and each fault does what it says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from bench.stress.proxies.pgproxy import PgProxy, Transaction
from safewrite.testing.faults import FaultKind, FaultPlan, RequestStep, Rule
from tests.servers import PlannedPgProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.servers.catalogs import Postgres

ON_COMMIT: dict[str, Any] = {"method": "COMMIT", "nth": 1}
SQLSTATES = {
    FaultKind.LOST_ANSWER_500: "XX000",
    FaultKind.LOST_ANSWER_502: "08006",
    FaultKind.LOST_ANSWER_503: "57P01",
    FaultKind.LOST_ANSWER_504: "57014",
    FaultKind.PRECONDITION_412: "40001",
    FaultKind.ERROR_500: "XX000",
    FaultKind.ERROR_502: "08006",
    FaultKind.ERROR_503: "57P01",
    FaultKind.ERROR_504: "57014",
    FaultKind.CONFLICT_409: "40001",
    FaultKind.THROTTLE: "53300",
    FaultKind.FORBIDDEN_403: "42501",
}
PERFORMED = {kind for kind in SQLSTATES if kind.startswith(("lost_answer", "precondition"))}


class Lab:
    """A new database with an empty table ``t``, the proxy, and a connection on either way."""

    def __init__(self, uri: str, proxy: PlannedPgProxy) -> None:
        self.proxy = proxy
        self._uri = uri.replace("+psycopg2", "")
        self._opened: list[Any] = []
        self.direct = self.connect(direct=True)
        self.direct.autocommit = True
        self.run(self.direct, "CREATE TABLE t (id INTEGER)")

    def connect(self, *, direct: bool = False) -> Any:
        self._opened.append(psycopg2.connect(self._uri if direct else self.proxy.through(self._uri)))
        return self._opened[-1]

    @staticmethod
    def run(connection: Any, statement: str) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor) if cursor.description else []

    def stored(self) -> list[int]:
        return [row[0] for row in self.run(self.direct, "SELECT id FROM t ORDER BY id")]

    def close(self) -> None:
        for connection in self._opened:
            connection.close()


@pytest.fixture
def lab(postgres: Postgres) -> Iterator[Lab]:
    uri = postgres.database()
    with PlannedPgProxy(uri) as proxy:
        made = Lab(uri, proxy)
        yield made
        made.close()


def insert_and_commit(lab: Lab, connection: Any, number: int = 1) -> None:
    lab.run(connection, f"INSERT INTO t VALUES ({number})")
    connection.commit()


# --- without faults ---------------------------------------------------------------------------
def test_without_a_plan_nobody_notices_the_proxy(lab: Lab) -> None:
    connection = lab.connect()
    assert connection.info.ssl_in_use is False
    insert_and_commit(lab, connection)
    lab.run(connection, "INSERT INTO t VALUES (2)")
    connection.rollback()
    with pytest.raises(psycopg2.errors.UndefinedTable):
        lab.run(connection, "SELECT * FROM absent")
    connection.rollback()
    large = "x" * 3_000_000
    assert lab.run(connection, f"SELECT '{large}'") == [(large,)]
    assert len(lab.run(connection, "SELECT generate_series(1, 100000)")) == 100_000
    assert lab.stored() == [1]
    assert lab.proxy.fired() == 0


def test_a_client_that_leaves_takes_its_connection_to_the_server_along(lab: Lab) -> None:
    connection = lab.connect()
    (pid,) = lab.run(connection, "SELECT pg_backend_pid()")[0]
    connection.close()
    for _ in range(300):
        if not lab.run(lab.direct, f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid}"):
            break
        time.sleep(0.1)
    else:
        pytest.fail("the server still has the connection")


# --- faults at COMMIT -------------------------------------------------------------------------
@pytest.mark.parametrize(("kind", "stored"), [(FaultKind.LOST_ANSWER, [1]), (FaultKind.CUT, [])])
def test_a_connection_cut_at_commit_has_committed_only_if_the_answer_was_lost(
    lab: Lab, kind: FaultKind, stored: list[int]
) -> None:
    connection = lab.connect()
    lab.proxy.plan(Rule(kind=kind, **ON_COMMIT))
    with pytest.raises(psycopg2.OperationalError):
        insert_and_commit(lab, connection)
    assert connection.closed
    assert lab.stored() == stored
    assert lab.proxy.counts() == {(RequestStep.OTHER, kind): 1}


@pytest.mark.parametrize("kind", SQLSTATES)
def test_an_error_at_commit_tells_its_state_and_leaves_the_connection_usable(
    lab: Lab, kind: FaultKind
) -> None:
    connection = lab.connect()
    lab.proxy.plan(Rule(kind=kind, **ON_COMMIT))
    with pytest.raises(psycopg2.Error, match=f"injected fault {kind}") as refused:
        insert_and_commit(lab, connection)
    assert refused.value.pgcode == SQLSTATES[kind]
    assert lab.stored() == ([1] if kind in PERFORMED else [])
    assert lab.run(lab.direct, "SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == []
    connection.rollback()
    insert_and_commit(lab, connection, 2)
    assert lab.stored()[-1] == 2


def test_every_kind_but_corruption_is_known(lab: Lab) -> None:
    cutting = {FaultKind.LOST_ANSWER, FaultKind.CUT, FaultKind.LATE, FaultKind.DELAY}
    corrupting = {FaultKind.TRUNCATE_BODY, FaultKind.FLIP_BIT}
    assert {*SQLSTATES, *cutting, *corrupting} == set(FaultKind)
    for kind in corrupting:
        with pytest.raises(ValueError, match="not corrupted"):
            lab.proxy.plan(Rule(kind=kind))


@pytest.mark.long
def test_a_late_commit_lands_after_its_client_was_cut_off(lab: Lab) -> None:
    connection = lab.connect()
    lab.proxy.plan(Rule(kind=FaultKind.LATE, delay_s=3.0, **ON_COMMIT))
    with pytest.raises(psycopg2.OperationalError):
        insert_and_commit(lab, connection)
    assert lab.stored() == []
    for _ in range(300):
        if lab.stored():
            break
        time.sleep(0.1)
    assert lab.stored() == [1]


def test_a_delayed_commit_is_held_before_the_server(lab: Lab) -> None:
    connection = lab.connect()
    lab.proxy.plan(Rule(kind=FaultKind.DELAY, delay_s=0.2, **ON_COMMIT))
    began = time.monotonic()
    insert_and_commit(lab, connection)
    assert time.monotonic() - began >= 0.2  # a lower bound: no load can break it
    assert lab.stored() == [1]


# --- faults elsewhere -------------------------------------------------------------------------
def test_a_statement_that_commits_by_itself_is_hit_like_a_commit(lab: Lab) -> None:
    connection = lab.connect()
    connection.autocommit = True
    of_this_database = f"^/{connection.info.dbname}$"
    lab.proxy.plan(Rule(kind=FaultKind.LOST_ANSWER, method="INSERT", path_regex=of_this_database))
    with pytest.raises(psycopg2.OperationalError):
        lab.run(connection, "INSERT INTO t VALUES (1)")
    assert lab.stored() == [1]


def test_a_statement_that_fails_in_a_transaction_spoils_it(lab: Lab) -> None:
    connection = lab.connect()
    lab.run(connection, "INSERT INTO t VALUES (1)")
    lab.proxy.plan(Rule(kind=FaultKind.ERROR_500, method="INSERT", times=1))
    with pytest.raises(psycopg2.errors.InternalError_):
        lab.run(connection, "INSERT INTO t VALUES (2)")
    assert connection.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_INERROR
    connection.rollback()
    insert_and_commit(lab, connection, 3)
    assert lab.stored() == [3]


# --- the plan and the books -------------------------------------------------------------------
def test_a_plan_hits_the_commits_that_its_seed_says(lab: Lab) -> None:
    def outcomes(seed: int) -> list[bool]:
        lab.proxy.plan(Rule(kind=FaultKind.ERROR_500, method="COMMIT", probability=0.5), seed=seed)
        connection = lab.connect()
        results = []
        for number in range(30):
            try:
                insert_and_commit(lab, connection, number)
                results.append(True)
            except psycopg2.Error:
                connection.rollback()
                results.append(False)
        return results

    first = outcomes(1)
    assert {True, False} == set(first)
    assert outcomes(1) == first
    assert outcomes(2) != first


def test_clearing_the_plan_lets_everything_through_and_keeps_the_counts(lab: Lab) -> None:
    lab.proxy.set_plan(FaultPlan(0, (Rule(kind=FaultKind.ERROR_503, method="COMMIT"),)))
    connection = lab.connect()
    with pytest.raises(psycopg2.OperationalError):
        insert_and_commit(lab, connection)
    connection.rollback()
    lab.proxy.clear()
    insert_and_commit(lab, connection)
    assert lab.proxy.counts() == {(RequestStep.OTHER, FaultKind.ERROR_503): 1}


def test_stopping_ends_the_connections_and_twice_is_no_error(postgres: Postgres) -> None:
    proxy = PgProxy(postgres.uri).start()
    connection = psycopg2.connect(proxy.through(postgres.uri.replace("+psycopg2", "")))
    proxy.stop()
    proxy.stop()
    with pytest.raises(psycopg2.OperationalError):
        Lab.run(connection, "SELECT 1")
    connection.close()


UPDATE = "UPDATE iceberg_tables SET metadata_location = 'm'"


@pytest.mark.parametrize(
    ("statements", "steps"),
    [
        (["BEGIN", UPDATE, "COMMIT"], [RequestStep.OTHER, RequestStep.OTHER, RequestStep.CATALOG_COMMIT]),
        (["BEGIN", UPDATE, "ROLLBACK", "COMMIT"], [RequestStep.OTHER] * 4),
        (["BEGIN", 'INSERT INTO "iceberg_tables" VALUES (1)', "COMMIT"], [RequestStep.OTHER, RequestStep.OTHER, RequestStep.CATALOG_CREATE]),
        (["BEGIN", "SELECT a,\n b \nFROM iceberg_tables", "COMMIT"], [RequestStep.OTHER, RequestStep.CATALOG_LOAD, RequestStep.OTHER]),
        (["SELECT * FROM pg_class WHERE relname = 'iceberg_tables'"], [RequestStep.OTHER]),
        (["UPDATE iceberg_tables_of_others SET a = 1"], [RequestStep.OTHER]),
        ([UPDATE], [RequestStep.CATALOG_COMMIT]),
        (["INSERT INTO safewrite_ledger (a) VALUES (1)"], [RequestStep.PUT_LEDGER]),
        (["UPDATE safewrite_ledger SET a = 1"], [RequestStep.UPDATE_LEDGER]),
        (["SELECT a FROM safewrite_ledger"], [RequestStep.GET_LEDGER]),
        (["UPDATE safewrite_queue SET a = 1", "SELECT a FROM safewrite_queue"], [RequestStep.LEASE, RequestStep.LEASE]),
    ],
)  # fmt: skip
def test_the_step_of_a_commit_is_that_of_what_was_written(
    statements: list[str], steps: list[RequestStep]
) -> None:
    transaction = Transaction()
    assert [transaction.step(statement) for statement in statements] == steps
