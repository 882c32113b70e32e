"""Keeps a transaction under way while Debezium takes its snapshot, with changes from before the snapshot's position.

A new replication slot waits for all transactions that run.  One that begins while it waits for the last of them is decoded
whole, though it changed rows before the position of which the snapshot is; it commits after it and is not in it.
Source: PostgreSQL, src/backend/replication/logical/snapbuild.c (BUILDING_SNAPSHOT, FULL_SNAPSHOT, CONSISTENT).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

FIRST, LAST = 900_000, 900_009
"""Ids of customers that nobody else changes."""
_HELPERS = (900_100, 900_101)
_LIMIT_S = 90.0


class UnderWay:
    """Runs beside the start of a connector: ``begin`` before it, ``end`` once it runs."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._connections: list[Any] = []
        self._pool = ThreadPoolExecutor(1, "under-way")
        self._first: Any = None
        self._turns: Future[None] | None = None
        self.came = False
        """Whether rows changed before the snapshot's position and were committed after it."""

    def begin(self) -> None:
        """Make the rows, and open the transaction that the slot waits for first."""
        rows = self._transaction()
        for number in range(FIRST, LAST + 1):
            self._do(rows, "INSERT INTO customers (id, name) VALUES (%s, 'before')", number)
        rows.commit()
        self._first = self._transaction()
        self._do(self._first, "INSERT INTO customers (id, name) VALUES (%s, 'first')", _HELPERS[0])
        self._turns = self._pool.submit(self._take_turns)

    def end(self) -> None:
        """Wait for the last commit.

        Raises:
            TimeoutError: the slot was not made.
        """
        assert self._turns is not None
        try:
            self._turns.result()
        finally:
            self._pool.shutdown()
            for one in self._connections:
                one.close()

    def _take_turns(self) -> None:
        self._wait("SELECT count(*) > 0 FROM pg_replication_slots")
        time.sleep(1.0)
        second = self._transaction()
        self._do(second, "INSERT INTO customers (id, name) VALUES (%s, 'second')", _HELPERS[1])
        self._first.commit()
        time.sleep(3.0)  # nothing shows that the slot waits for the second one now
        mine = self._transaction()
        self._do(mine, "UPDATE customers SET name = 'after' WHERE id BETWEEN %s AND %s", FIRST, LAST - 3)
        self._do(mine, "DELETE FROM customers WHERE id BETWEEN %s AND %s", LAST - 2, LAST)
        changed = self._do(mine, "SELECT pg_current_wal_insert_lsn()")
        second.commit()
        self._wait("SELECT confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots")
        self.came = bool(self._look("SELECT confirmed_flush_lsn > %s FROM pg_replication_slots", changed))
        self._wait("SELECT active FROM pg_replication_slots")  # the snapshot is over
        mine.commit()

    # --- the database -----------------------------------------------------------------------------
    def _transaction(self) -> Any:
        made = self._connect()
        self._connections.append(made)
        return made

    @staticmethod
    def _do(connection: Any, statement: str, *values: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchone()[0] if cursor.description else None

    def _look(self, statement: str, *values: Any) -> Any:
        connection = self._connect()
        try:
            connection.autocommit = True
            return self._do(connection, statement, *values)
        finally:
            connection.close()

    def _wait(self, statement: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not self._look(statement):
            if time.monotonic() > deadline:
                raise TimeoutError(statement)
            time.sleep(0.2)
